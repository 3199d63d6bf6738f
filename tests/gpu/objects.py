"""Are the bytes in the object that they should be in? Judged against the program's own tensors.

torch_walk.py runs under Sublet with examples/policies/pytorch-transformers.yaml. At the end of a forward pass, a step or a
generation it lists its tensors and waits; meanwhile this process asks `sublet ctl objects --allocations --json`, and each byte
of each tensor is looked up in the allocations. What has no allocation (tensors under `min_size`, native memory) counts as wrong.
Exit status as harness.py."""

import argparse
import bisect
import json
import os
import subprocess
import sys
import tempfile
import time

import steps

PYTHON = sys.executable
PROGRAM = os.path.join(steps.HERE, "torch_walk.py")
POLICY = os.path.join(steps.ROOT, "examples", "policies", "pytorch-transformers.yaml")
# the object of the policy that each kind of tensor belongs in
EXPECTED = {kind: kind for kind in ("weights", "gradients", "optimizer", "activations", "kv_cache")}
NOWHERE = "(not managed)"
NO_RULE = "(default)"

PROGRAMS = {
    "train": (["train"], ["forward", "step"]),
    "generate": (["generate", "--cache", "dynamic"], ["generated"]),
    "generate-static": (["generate", "--cache", "static"], ["generated"]),
}
# name: environment, words for the program, the least share of each kind; what is not named is told and not judged
SETTINGS = {
    "caching (default)": ({}, [], {"weights": 0.95}),
    "caching, expandable_segments:False": ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, [], {"weights": 0.95}),
    "caching, emptied before": ({}, ["--empty-cache"], {"weights": 0.95}),
    "no caching": ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, [], {kind: 0.95 for kind in EXPECTED}),
}
QUICK = {"train": ["caching (default)", "no caching"], "generate-static": ["no caching"]}


class Trouble(Exception):
    pass


# --- judging


def allocations_of(answer, pid=None):
    """[(begin, end, object)] by address, of an answer of `ctl objects --allocations --json`: a list of processes, or an object
    with `clients`."""
    clients = answer if isinstance(answer, list) else answer["clients"]
    found = []
    for client in clients:
        if pid is not None and client.get("pid", pid) != pid:
            continue
        for row in client.get("allocations", []):
            address = row["address"]
            begin = int(address, 16) if isinstance(address, str) else address
            found.append((begin, begin + row["bytes"], row.get("object") or NO_RULE))
    found.sort()
    for (_, end, _), (begin, _, _) in zip(found, found[1:]):
        if begin < end:
            raise Trouble(f"two allocations at {begin:#x}")
    return found


def spread(tensors, allocations):
    """Bytes of [(address, bytes)] by the object that they lie in."""
    begins, result = [begin for begin, _, _ in allocations], {}
    for address, size in tensors:
        at, end = address, address + size
        while at < end:
            k = bisect.bisect_right(begins, at) - 1
            if k >= 0 and at < allocations[k][1]:
                name, until = allocations[k][2], allocations[k][1]
            else:
                name, until = NOWHERE, begins[k + 1] if k + 1 < len(begins) else end
            until = min(until, end)
            result[name] = result.get(name, 0) + until - at
            at = until
    return result


def share(kind, found):
    total = sum(found.values())
    return found.get(EXPECTED[kind], 0) / total if total else None


def others(kind, found):
    """What is wrong, largest first, as text."""
    total = sum(found.values())
    wrong = sorted(((size, name) for name, size in found.items() if name != EXPECTED[kind]), reverse=True)
    return ", ".join(f"{name} {100 * size / total:.1f} %" for size, name in wrong if size / total >= 0.0005)


def judge(setting, moments):
    """(rows of the table, rows about the objects, complaints) of one run. moments: [(name, walk, allocations)]"""
    bars, rows, held, wrong = SETTINGS[setting][2], [], [], []
    for name, tensors, allocations in moments:
        inside = {}  # object -> bytes of walked tensors
        for kind, places in tensors.items():
            found = spread(places, allocations)
            right = share(kind, found)
            for where, size in found.items():
                inside[where] = inside.get(where, 0) + size
            if right is None:
                wrong.append(f"{name}: no {kind} at all")
                continue
            bar = bars.get(kind)
            if bar is not None and right < bar:
                wrong.append(f"{name}: {100 * right:.1f} % of {kind}, at least {100 * bar:.0f} % are asked for")
            cells = [name, kind, steps.amount(sum(found.values())), f"{100 * right:.1f} %", others(kind, found)]
            rows.append(cells + ["told" if bar is None else "pass" if right >= bar else "FAIL"])
        if not allocations:
            wrong.append(f"{name}: nothing is managed")
        objects = {}
        for begin, end, where in allocations:
            objects[where] = objects.get(where, 0) + end - begin
        for where, size in sorted(objects.items(), key=lambda item: -item[1]):
            kept = inside.get(where, 0)
            held.append([name, where, steps.amount(size), steps.amount(kept), steps.amount(max(0, size - kept))])
    return rows, held, wrong


# --- running


class Run:
    def __init__(self, options, build, deadline):
        self.options, self.build, self.deadline, self.log = options, build, deadline, ""
        self.session, self.folder = steps.session_dir(), tempfile.mkdtemp(prefix="walk-")

    def inventory(self):
        argv = [os.path.join(self.build, "tools", "sublet"), "ctl", "objects", "--session", self.session]
        result = steps.run_command(argv + ["--allocations", "--json"], min(30, self.deadline.left()))
        if not result.good:
            raise Trouble(f"sublet ctl objects: {result.problem or result.status}: {(result.err or result.out)[-400:]}")
        try:
            return json.loads(result.out)
        except ValueError as error:
            raise Trouble(f"sublet ctl objects: {error}") from None

    def take(self, name, process):
        """The program's list at a moment, and Sublet's."""
        path = os.path.join(self.folder, f"walk-{name}.json")
        while not os.path.exists(path):
            if steps.has_ended(process.pid):
                raise Trouble(f"the program ended before '{name}'")
            if self.deadline.left() < 5 or steps.stop.is_set():
                raise Trouble(f"out of time before '{name}'")
            time.sleep(0.02)
        with open(path, encoding="utf-8") as file:
            walk = json.load(file)
        allocations = allocations_of(self.inventory())
        steps.write_file(os.path.join(self.folder, f"taken-{name}"), "")
        return name, walk["tensors"], allocations

    def go(self, words, moments, env):
        argv = [os.path.join(self.build, "tools", "sublet"), "run", "--session", self.session, "--policy", POLICY]
        argv += ["--role", "program", "--", PYTHON, PROGRAM, words[0], self.folder, *words[1:]]
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=steps.sublet_env(env), start_new_session=True
            )
            try:
                taken = [self.take(name, process) for name in moments]
                while not steps.has_ended(process.pid) and self.deadline.left() > 5 and not steps.stop.is_set():
                    time.sleep(0.05)
            finally:
                steps.end_group(process)
                steps.run_command([argv[0], "ctl", "stop", "--session", self.session], 20)
                out.seek(0)
                self.log = out.read().decode("utf-8", "replace")
        if process.returncode != 0:
            raise Trouble(f"the program ended with {process.returncode}")
        return taken

    def drop(self):
        steps.drop_dir(self.session)
        steps.drop_dir(self.folder)


def one(options, build, deadline, program, setting, logs):
    """(rows, rows about objects, passed)"""
    words, moments = PROGRAMS[program]
    env, extra, _ = SETTINGS[setting]
    run, held = Run(options, build, deadline), []
    try:
        rows, held, wrong = judge(setting, run.go(words + extra, moments, env))
    except (Trouble, OSError, ValueError, KeyError) as error:
        rows, wrong = [["", "", "", "", f"{type(error).__name__}: {error}", "FAIL"]], [str(error)]
    finally:
        run.drop()
    logs.append(f"=== {program}, {setting}\n" + "".join(f"wrong: {text}\n" for text in wrong) + run.log[-100000:])
    return [[program, setting, *row] for row in rows], [[program, setting, *row] for row in held], not wrong


HEAD = ["program", "allocator", "moment", "tensors", "bytes", "in the right object", "elsewhere", "verdict"]
HELD = ["program", "allocator", "moment", "object", "allocated", "walked tensors in it", "free or not walked"]


def planned(options):
    return [
        (program, setting)
        for program in options.only.split(",")
        for setting in (QUICK.get(program, []) if options.quick else SETTINGS)
    ]


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/objects.sh")
    parser.add_argument("--quick", action="store_true", help="three runs of the twelve")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--out", metavar="DIR")
    parser.add_argument("--build", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--self-test", action="store_true", help="judge this program by made-up inputs; needs no GPU")
    options = parser.parse_args()
    if options.self_test:
        import objects_selftest

        return objects_selftest.main()
    for program in options.only.split(","):
        if program not in PROGRAMS:
            parser.error(f"no program '{program}'; there are {', '.join(PROGRAMS)}")
    steps.stop_on_signals()
    build, reason = steps.find_build(options.build)
    if not build:
        print(f"objects.sh: {reason}", file=sys.stderr)
        return 2
    gpu, reason = steps.probe_gpu()
    for module in ("torch", "transformers"):
        reason = reason or (None if steps.module_version(module) else f"no Python module '{module}'")
    if reason:
        print(f"skip: {reason}")
        return 1 if os.environ.get("SUBLET_TEST_REQUIRE") == "gpu" else 77
    begin, deadline, logs, rows, held, passed = time.monotonic(), steps.Deadline(options.seconds), [], [], [], []
    for program, setting in planned(options):
        more, about, good = one(options, build, deadline, program, setting, logs)
        rows, held = rows + more, held + about
        passed.append(good)
        print(f"{'pass' if good else 'FAIL':8} {program}, {setting}", file=sys.stderr, flush=True)
    text = steps.table_text(HEAD, rows) + "\n\n" + steps.table_text(HELD, held)
    text += f"\n\npolicy {os.path.relpath(POLICY, steps.ROOT)}, {time.monotonic() - begin:.0f} s\n"
    text += steps.facts_text(steps.machine_facts(build, gpu)) + f"\n{sum(passed)} passed, {passed.count(False)} failed"
    print(text)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        tables = steps.table_markdown(HEAD, rows) + "\n\n" + steps.table_markdown(HELD, held) + "\n"
        steps.write_file(os.path.join(options.out, "objects.md"), tables)
        steps.write_file(os.path.join(options.out, "objects-logs.txt"), "\n".join(logs))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
