"""Two programs that do not fit on a GPU together take turns on it, page by page, and nothing in their results changes.

A trainer and a generation loop, neither knowing Sublet (torch_phases.py). Two plain runs of each come first and must agree bit
for bit. A plain process then takes the device's memory but for so much as one of the two needs, and both together, started
plainly, must be out of memory. Then both run in a session with a policy: `sublet phase rollout` begins the one phase, the NVTX
range that the trainer opens around its step begins the other, and in each the other program's memory is offloaded, and discarded
where it is written anew. Exit status as harness.py."""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time

import compare
import mps
import steps
from phases_run import ROLES, NoRoom, Runs, Trouble

GIB, MIB = 1 << 30, 1 << 20
HEAD = ["phase change", "begun by", "out: copied / discarded", "in: copied / fresh", "barrier, median", "copied", "moves, median"]
# of the stand-in programs on the simulated driver, whose device has this much
SIM_CAPACITY, SIM_MARGIN = 256 * MIB, 8 * MIB
SIM_SIZES = {"train": {"weights": 8, "moments": 16, "gradients": 10}, "rollout": {"weights": 6, "kv_cache": 20}}


def parse_options():
    parser = argparse.ArgumentParser(
        prog="tests/gpu/phases.sh",
        description="A training and a generation process share one GPU that has room for one of them.",
        epilog="environment: SUBLET_BUILD (build folder), SUBLET_TEST_REQUIRE=gpu (a skip is a failure), PYTHON. "
        "Example: tests/gpu/phases.sh --out results",
    )
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="of generation and training (20; at least 3)")
    parser.add_argument(
        "--left", type=float, metavar="GIB", help="device memory that the ballast leaves free (what the larger one needs, and --margin)"
    )
    parser.add_argument(
        "--margin", type=float, default=3.5, metavar="GIB", help="beyond what the larger one's allocator took: contexts, libraries (3.5)"
    )
    parser.add_argument("--by", choices=["nvtx", "command"], default="nvtx", help="what begins the phase train (the trainer's NVTX range)")
    parser.add_argument("--ranges", choices=["nemo-rl", "deepspeed"], default="nemo-rl", help="whose names the trainer's ranges have")
    parser.add_argument("--verify", action="store_true", help="with SUBLET_VERIFY=1")
    parser.add_argument("--mps", action="store_true", help="all of it as clients of an MPS daemon of its own")
    parser.add_argument(
        "--sim", metavar="PROGRAM", help="try this script on the simulated driver, with stand-ins (tests/gpu/phases_standin.c)"
    )
    parser.add_argument("--out", metavar="DIR", help="also write table, markdown, JSON and logs there")
    parser.add_argument("--build", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=520, help="time for everything")
    options = parser.parse_args()
    if options.iterations < 3:
        parser.error("the first changes make the host memory: --iterations 3 or more")
    if options.sim and options.mps:
        parser.error("--mps needs a GPU, --sim has none")
    options.left = options.left and int(options.left * GIB)
    options.margin = SIM_MARGIN if options.sim else int(options.margin * GIB)
    return options


def programs_of(options, folder):
    if options.sim:
        return {
            role: [os.path.abspath(options.sim), role, folder, *(f"{name}={mib * MIB}" for name, mib in sizes.items())]
            for role, sizes in SIM_SIZES.items()
        }
    words = [sys.executable, os.path.join(steps.HERE, "torch_phases.py")]
    return {"train": words + ["train", "--ranges", options.ranges], "rollout": words + ["rollout"]}


class Outcome:
    def __init__(self):
        self.rows, self.failed = [], 0

    def add(self, what, found, wrong=()):
        self.failed += bool(wrong)
        self.rows.append([what, found, "FAIL: " + "; ".join(wrong) if wrong else "pass"])


def run(options, runs, outcome):
    """All of it. What fails ends it, and is a row."""
    at = "plain runs"
    try:
        runs.run_plain()
        for role in ROLES:
            verdict = compare.compare(runs.plain[role], runs.plain[role])
            found = f"{verdict.plain}; at most {steps.amount(runs.peak(role))} allocated"
            outcome.add(f"{role}, plain", found, verdict.differences)
        at = "both plainly"
        met = runs.naive()
        outcome.add(f"both plainly, {steps.amount(runs.left())} free", met or "", [] if met else ["there was room for both"])
        at = "in a session"
        runs.under_sublet()
        for role in ROLES:
            verdict = compare.compare(runs.plain[role], [runs.results[role]])
            outcome.add(f"{role}, {options.iterations} iterations with Sublet", verdict.sublet, verdict.differences)
        if runs.notes:
            outcome.add("logs", "", runs.notes[:4])
    except (Trouble, NoRoom, OSError, ValueError, KeyError) as error:
        tail = getattr(error, "tail", "")
        runs.logs.append(f"=== trouble\n{tail}")
        text = str(error) if isinstance(error, (Trouble, NoRoom)) else f"{type(error).__name__}: {error}"
        outcome.add(at, f"after {len(runs.changes)} phase changes", [text])
        outcome.tail = tail


def report(options, runs, outcome, facts, seconds, daemon):
    usual = {"iterations": 20, "by": "nvtx", "ranges": "nemo-rl", "margin": SIM_MARGIN if options.sim else int(3.5 * GIB), "left": None}
    given = {name: getattr(options, name) for name in usual if getattr(options, name) != usual[name]}
    given.update({name: given[name] / GIB for name in ("margin", "left") if name in given})
    flags = [name for name in ("verify", "mps", "sim") if getattr(options, name)]
    command = "tests/gpu/phases.sh" + "".join(f" --{name} {value}" for name, value in given.items()) + "".join(f" --{f}" for f in flags)
    head, rows = ["what", "found", "verdict"], runs.rows() if runs.changes else []
    text = (steps.table_text(HEAD, rows) + "\n\n" if rows else "") + steps.table_text(head, outcome.rows) + "\n"
    text += "".join(f"    {line}\n" for line in getattr(outcome, "tail", "").splitlines()[-15:])
    free = getattr(runs, "free_bytes", None)
    if free:
        text += f"\n{steps.amount(free)} of the device were free when the first of the two started in the session\n"
    text += f"\n{steps.facts_text(facts)}\n{command}, {seconds:.0f} s\n"
    text += f"{len(outcome.rows) - outcome.failed} passed, {outcome.failed} failed"
    print(text)
    if not options.out:
        return
    os.makedirs(options.out, exist_ok=True)
    markdown = (
        "## Two programs that do not fit together\n\n"
        f"`{command}`, {seconds:.0f} s.\n{steps.facts_text(facts)}.\n\n"
        "The barrier's time is the coordinator's, from the arrival that began it until all gates are open; what is copied, out and in\n"
        "together, is divided by it. The first changes make the host memory.\n\n"
        f"{steps.table_markdown(HEAD, rows)}\n\n{steps.table_markdown(head, outcome.rows)}\n"
    )
    steps.write_file(os.path.join(options.out, "phases.md"), markdown)
    found = {"facts": facts, "command": command, "seconds": seconds, "free bytes": free, "rows": outcome.rows}
    found.update(changes=[c.row() for c in runs.changes], plain=runs.plain, sublet=runs.results)
    steps.write_file(os.path.join(options.out, "phases.json"), json.dumps(found, indent=1))
    steps.write_file(os.path.join(options.out, "phases-logs.txt"), "\n".join(runs.logs + [daemon]))


def main():
    options = parse_options()
    steps.stop_on_signals()
    build, reason = steps.find_build(options.build)
    if not build:
        print(f"phases.sh: {reason}", file=sys.stderr)
        return 2
    gpu, reason = None, mps.why_not() if options.mps else None
    if not reason and not options.sim:
        gpu, reason = steps.probe_gpu()
    if reason:
        print(f"skip: {reason}")
        return 1 if os.environ.get("SUBLET_TEST_REQUIRE") == "gpu" else 77
    begin, outcome, daemon = time.monotonic(), Outcome(), None
    sim = os.path.join(build, "tools", "sim") if options.sim else None
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-gpu-"))
        if options.mps:
            daemon = stack.enter_context(mps.Mps())
        deadline, capacity = steps.Deadline(options.seconds), SIM_CAPACITY if sim else None
        runs = Runs(options, build, programs_of(options, work), deadline, work, sim, capacity)
        run(options, runs, outcome)
        if daemon and not daemon.clients():
            outcome.add("MPS", "", ["its daemon has no server, so nobody was its client"])
    facts = steps.machine_facts(build, gpu)
    report(options, runs, outcome, facts, time.monotonic() - begin, daemon.log if daemon else "")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
