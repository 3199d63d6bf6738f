"""tools/demo/table.py
Table 1 of the Rollplex paper (arXiv 2608.14498): what one GPU has to hold, and sums over it. One GiB there is one MiB here."""
import collections
import json
import subprocess

MIB = 1 << 20
PAGE = 2 * MIB  # device memory comes in these, here as on hardware: it does not scale
LEFT = 80       # of the paper's device
PHASES = ("decode", "suffix", "update")

# `order`: the how many-th allocation of its program it is, which is how the policy tells equal sizes apart; `lives`: the phases in
# which the program has it; the moments are made with the first update
Row = collections.namedtuple("Row", "role name rule label gib order lives")
TABLE = [
    Row("train", "weights", "train_weights", "BF16 weights (TP=8)", 7.6, 1, PHASES),
    Row("train", "gradients", "gradients", "FP32 gradient buffer", 15.1, 2, PHASES),
    Row("train", "master", "master_weights", "FP32 master weights", 15.1, 3, PHASES),
    Row("train", "activations", "activations", "Activations (one microbatch)", 28.3, 4, PHASES),
    Row("train", "prefix_kv", "prefix_kv", "Preserved prefix KV", 16.0, 5, ("decode", "suffix")),
    Row("train", "moments", "moments", "FP32 Adam moments", 30.3, 6, PHASES),
    Row("reference", "weights", "reference_weights", "BF16 weights (TP=8)", 7.6, 1, PHASES),
    Row("rollout", "weights", "rollout_weights", "BF16 weights (TP=4)", 15.1, 1, PHASES),
    Row("rollout", "kv_cache", "kv_cache", "KV cache", 29.0, 2, PHASES),
    Row("rollout", "buffers", "runtime_buffers", "Runtime buffers (2-4)", 3.0, 3, PHASES),
]


class NotTaken(Exception):
    """The policy cannot be used, or means other objects."""


def bytes_of(row):
    return int(row.gib * MIB)


def pages(size):
    """Bytes of the whole pages that hold it."""
    return -(-size // PAGE) * PAGE


def sizes(role):
    return {row.name: bytes_of(row) for row in TABLE if row.role == role}


def explained(sublet, policy):
    """{rule: {phase: residency}}, as the policy's own engine decides for each row of the table."""
    decided = {}
    for row in TABLE:
        facts = "role=%s size=%d order=%d" % (row.role, bytes_of(row), row.order)
        got = subprocess.run([sublet, "check", "--json", "--explain", facts, policy], stdout=subprocess.PIPE, text=True)
        explain = json.loads(got.stdout)[0].get("explain")
        if not explain or explain["rule"] != row.rule:
            raise NotTaken("%s: '%s' is not taken by '%s'; 'sublet check' of it says more" % (policy, facts, row.rule))
        decided[row.rule] = {phase["phase"]: phase["residency"] for phase in explain["phases"]}
    return decided


def lives(row, iteration, phase):
    return phase in row.lives and (row.name != "moments" or iteration > 1 or phase == "update")


def needs(decided, iteration, phase):
    """{rule: bytes on the device}: whole pages of what lives then, where the policy wants it there."""
    return {row.rule: pages(bytes_of(row)) for row in TABLE
            if lives(row, iteration, phase) and decided[row.rule][phase] == "device"}


def sums(decided, iterations):
    """{(iteration, phase): bytes on the device}, in order of time."""
    return {(k, phase): sum(needs(decided, k, phase).values()) for k in range(1, iterations + 1) for phase in PHASES}


def kept_segments(row, percents):
    """What a caching allocator holds for the row at each iteration, if it asks for so many percents of it and nothing goes back."""
    segments, held = [], []
    for percent in percents:
        size = pages(bytes_of(row) * percent // 100)
        if not any(segment >= size for segment in segments):
            segments.append(size)
        held.append(sum(segments))
    return held
