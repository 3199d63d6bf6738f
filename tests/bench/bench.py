"""What Sublet costs: plain and Sublet workers side by side, asked in turn, and a table with intervals.

Started by run.sh. Measured on a GPU: an empty launch (linked and through dlsym), a training step, cuMemAlloc + cuMemFree,
a cuMemFree beside a running kernel, memory that is given back and taken again (moves.py), two processes that change places
(handover.py). Measured anywhere: a launch on the simulated driver, a phase change that moves nothing (barrier.py). Exit 0: every bar met; 1: one
was not, or something broke; 2: wrong usage or nothing built; 77: nothing could be measured here."""

import argparse
import contextlib
import importlib.util
import json
import os
import random
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "gpu"))

import barrier
import handover
import intervals
import moves
import steps
from steps import ns_text
from workers import Pair, WorkerError, same_addresses

GPU = os.path.join(os.path.dirname(HERE), "gpu")
MIB, GIB = 1 << 20, 1 << 30


class Row:
    def __init__(self, name, plain, sublet, change, bar, verdict):
        self.cells = [name, plain, sublet, change, bar, verdict]
        self.verdict = verdict


class Bench:
    def __init__(self, options, build, work, gpu):
        self.options, self.build, self.work, self.gpu = options, build, work, gpu
        self.deadline = steps.Deadline(options.seconds)
        self.rows, self.raw, self.notes, self.logs, self.failures, self.programs = [], {}, [], [], [], {}

    def left(self):
        return self.deadline.left()

    def row(self, *cells):
        self.rows.append(Row(*cells))

    # --- programs

    def program(self, name, source, flags):
        if name in self.programs:
            return self.programs[name]
        compiler, include = steps.find_compiler(), steps.find_cuda_include(self.build)
        if not compiler or not include:
            raise WorkerError("no C compiler, or no cuda.h")
        path = os.path.join(self.work, name)
        argv = [
            compiler,
            "-O2",
            "-isystem",
            include,
            "-I",
            GPU,
            "-I",
            HERE,
            os.path.join(HERE, source),
            "-o",
            path,
        ] + flags
        result = steps.run_command(argv, min(60, self.left()), env=steps.plain_env())
        if not result.good:
            raise WorkerError(f"'{source}' does not compile", result.tail())
        self.programs[name] = path
        return path

    def find_sim(self):
        """Its folder. There and nowhere else: tests build other libraries of that name, for other processors too."""
        folder = os.path.join(os.path.abspath(self.build), "tools", "sim")
        if not os.path.exists(os.path.join(folder, "libcuda.so.1")):
            raise WorkerError("no simulated driver in the build folder")
        return folder

    def driver_worker(self, via):
        if via == "link":
            return self.program("worker_link", "driver_worker.c", ["-DVIA_LINK"] + steps.find_libcuda_flags())
        return self.program("worker_dlsym", "driver_worker.c", ["-DVIA_DLSYM", "-ldl"])

    # --- measurements

    def bursts(self, argv, words, rounds, count, per, **options):
        """Rounds of (plain ns, Sublet ns), each divided by @per. Stops early, with fewer, when time runs out."""
        made = []
        for number in range(rounds):
            if self.left() < 15 and made:
                self.notes.append(f"{words}: out of time after {number} of {rounds} rounds")
                break
            with Pair(self, argv, **options) as pair:
                made.append([])
                for i in range(count):
                    if self.left() < 10 and i >= 4:
                        break
                    answers = pair.ask(i, words)
                    made[-1].append(tuple(int(a) / per for a in answers))
        return made

    def row_of_bursts(self, name, made, bar=None, as_speed=False):
        plain = intervals.median([a for r in made for a, _ in r])
        sublet = intervals.median([b for r in made for _, b in r])
        pairs = sum(len(r) for r in made)
        if as_speed:  # plain / Sublet: 1 is equal, less is slower
            value, low, high = intervals.interval([[1 / x for x in r] for r in intervals.ratios(made)])
            change = f"{100 * value:.2f} % of plain speed [{100 * low:.2f}, {100 * high:.2f}]"
            verdict = intervals.judge(value, low, high, bar, at_least=True) if bar is not None else "shown"
            wanted = f"at least {100 * bar:.1f} %" if bar is not None else "-"
        else:
            value, low, high = intervals.interval(intervals.differences(made))
            ratio, ratio_low, ratio_high = intervals.interval(intervals.ratios(made))
            change = f"{value:+.1f} ns [{low:+.1f}, {high:+.1f}], x {ratio:.4f} [{ratio_low:.4f}, {ratio_high:.4f}]"
            verdict = intervals.judge(value, low, high, bar, at_least=False) if bar is not None else "shown"
            wanted = f"at most {bar:.0f} ns more" if bar is not None else "-"
        self.rows.append(
            Row(
                f"{name}, {pairs} pairs in {len(made)} rounds", ns_text(plain), ns_text(sublet), change, wanted, verdict
            )
        )
        self.raw[name] = {"plain, Sublet by round": made, "interval": [value, low, high], "bar": bar}

    def sim_launch(self):
        sim = self.find_sim()
        argv = [self.program("sim_launch", "sim_launch.c", ["-DVIA_DLSYM", "-ldl"])]
        rounds, count = (4, 15) if self.options.quick else (8, 30)
        burst = 100000
        for name, words in (("simulated launch", "launch"), ("simulated launch, LaunchKernelEx", "launch_ex")):
            made = self.bursts(
                argv, f"{words} {burst}", rounds, count, burst, sim=sim, ready_s=20
            )
            self.row_of_bursts(name, made, bar=20.0)

    def gpu_launch(self):
        quick, burst = self.options.quick, 20000
        for name, via, rounds, count in (
            ("null launch, linked", "link", 3 if quick else 5, 10 if quick else 50),
            ("null launch, dlsym", "dlsym", 2 if quick else 3, 10 if quick else 30),
        ):
            made = self.bursts([self.driver_worker(via)], f"launch {burst}", rounds, count, burst, ready_s=45)
            self.row_of_bursts(name, made)

    def alloc_free(self):
        """No bar: the figures of both, and what changed."""
        quick = self.options.quick
        for label, size, number, bursts in (
            ("2 MiB", 2 * MIB, 100, 3 if quick else 6),
            ("64 MiB", 64 * MIB, 50, 3 if quick else 6),
            ("16 GiB", 16 * GIB, 5, 2 if quick else 5),
        ):
            kinds = [{"alloc": [], "free": [], "both": []} for _ in range(2)]
            totals = []
            rounds = 1 if quick else 2
            for _ in range(rounds):
                with Pair(self, [self.driver_worker("link")], ready_s=45) as pair:
                    pair.ask(0, f"pairs {size} 2")  # the first ones fill caches on both sides
                    totals.append([])
                    for i in range(bursts):
                        answers = [
                            [int(w) for w in answer.split()] for answer in pair.ask(i, f"pairs {size} {number}", 60)
                        ]
                        totals[-1].append(tuple(a[0] / number for a in answers))
                        for kind, answer in zip(kinds, answers):
                            alloc, free = answer[1 : 1 + number], answer[1 + number :]
                            kind["alloc"] += alloc
                            kind["free"] += free
                            kind["both"] += [a + f for a, f in zip(alloc, free)]
            value, low, high = intervals.interval(intervals.ratios(totals))
            cells = []
            for kind in kinds:
                cells.append(
                    f"alloc {ns_text(intervals.median(kind['alloc']))} free {ns_text(intervals.median(kind['free']))}, "
                    f"both {ns_text(intervals.median(kind['both']))}, "
                    f"p95 {ns_text(intervals.percentile(kind['both'], 95))}"
                )
            self.rows.append(
                Row(
                    f"cuMemAlloc + cuMemFree {label}, {len(kinds[0]['both'])} each",
                    *cells,
                    f"x {value:.3f} [{low:.3f}, {high:.3f}]",
                    "-",
                    "shown",
                )
            )
            self.raw[f"alloc + free {label}"] = {"plain": kinds[0], "Sublet": kinds[1], "mean by burst": totals}

    def free_beside(self):
        """cuMemFree while a kernel writes the block for 400 ms.

        It returns in under 1 ms, the block stays the kernel's, and counts as free."""
        size, busy_ms, times = 256 * MIB, 400, 2 if self.options.quick else 5
        answers = [[], []]
        for _ in range(1 if self.options.quick else 2):
            with Pair(self, [self.driver_worker("link")], ready_s=45) as pair:
                for i in range(times):
                    for found, answer in zip(answers, pair.ask(i, f"free_beside {size} {busy_ms}")):
                        found.append({k: int(v) for k, v in (word.split("=") for word in answer.split())})
        plain, sublet = answers
        wrong = []
        for kind, found in (("plain", plain), ("Sublet", sublet)):
            for a in found:
                if a["foreign"]:
                    wrong.append(f"{kind}: {a['foreign']} words of the freed block were written by somebody else")
                if a["spoiled"]:
                    wrong.append(f"{kind}: {a['spoiled']} words of the new block are spoiled")
                if not a["rounds"] or a["kernel_ns"] < 0.9e6 * busy_ms:
                    wrong.append(f"{kind}: the kernel did not run its time")
                if kind == "Sublet" and not size <= a["rose"] + MIB <= size + 64 * MIB:
                    wrong.append(f"Sublet: free memory rose by {a['rose'] / MIB:.1f} MiB, not by {size // MIB}")
                if kind == "Sublet" and not a["busy_after_free"]:
                    wrong.append("Sublet: the kernel had ended before the free returned")
        longest = max(a["free_ns"] for a in sublet)
        if longest >= 1e6:
            wrong.append(f"Sublet: a free took {ns_text(longest)}")
        beside = sum(a["busy_after_fill"] for a in sublet)
        self.notes.append(
            f"free beside a kernel: in {beside} of {len(sublet)} Sublet runs the new block was written while the kernel "
            "ran"
        )
        longest_plain = max(a["free_ns"] for a in plain)
        medians = [ns_text(intervals.median([a["free_ns"] for a in found])) for found in answers]
        self.rows.append(
            Row(
                f"cuMemFree of 256 MiB beside a {busy_ms} ms kernel, {len(sublet)} each",
                f"{medians[0]}, longest {ns_text(longest_plain)}",
                f"{medians[1]}, longest {ns_text(longest)}",
                "contents untouched, counted as free" if not wrong else "; ".join(sorted(set(wrong))),
                "under 1 ms",
                "FAIL" if wrong else "pass",
            )
        )
        self.raw["free beside a kernel"] = {"plain": plain, "Sublet": sublet}

    def train(self):
        self.train_pairs("training step", 0.995)

    def train_plain(self):
        self.train_pairs("control: training step of two plain processes", second=Pair.PLAIN)

    def train_native(self):
        """Look-ups, wrappers and gate alone."""
        self.train_pairs("training step, all memory native", second={"SUBLET_MIN_SIZE": "1TiB"})

    def train_pairs(self, name, bar=None, second=None):
        if importlib.util.find_spec("torch") is None:
            raise WorkerError("no Python module 'torch'")
        quick = self.options.quick
        # A burst of some steps takes 10 % more or less than the next one, plain or not, so many short ones in turn tell more
        # than few long ones; and some pairs of processes, since those differ too. Pairs of a group start together, since
        # starting takes long. Both of a pair keep to the same cores: they never work at the same time, and cores differ.
        groups, pairs = (1, 2) if quick else (3, 4)
        counts = {"small": 20 if quick else 160, "large": 6 if quick else 10}
        sizes = {"small": 4, "large": 6}
        made = {size: [] for size in sizes}
        argv = [sys.executable, os.path.join(HERE, "train_worker.py")]
        mine = sorted(os.sched_getaffinity(0))
        share = min(2, max(1, len(mine) // pairs))  # one thread computes forwards, one backwards
        cores = [set(mine[i * share : (i + 1) * share] or mine) for i in range(pairs)]
        # The order of sets and dictionaries, and where things lie, are part of a process's speed: the same for both of a pair,
        # and others for each pair by the length of what lies above the stack.
        steady = {"PYTHONHASHSEED": "0"}
        lengths = random.Random(1)
        for number in range(groups):
            if self.left() < 60 and number:
                self.notes.append(f"training: out of time after {number} of {groups} groups of {pairs} pairs")
                break
            with contextlib.ExitStack() as stack:
                group = []
                for i in range(pairs):
                    env = {**steady, "SUBLET_BENCH_FILL": "x" * lengths.randrange(4096)}
                    pair = Pair(self, argv, wait=False, cores=cores[i], env=env, prepare=same_addresses, second=second)
                    group.append(stack.enter_context(pair))
                for pair in group:
                    pair.ready(120)
                    for size in sizes:
                        made[size].append([])
                for i in range(max(counts.values())):
                    if self.left() < 15 and i >= 4:
                        break
                    for j, pair in enumerate(group):  # one at a time: nothing else runs beside a burst
                        for size, n in sizes.items():
                            if i < counts[size]:
                                rounds = made[size][len(made[size]) - pairs + j]
                                rounds.append(tuple(int(a) / n for a in pair.ask(i + j, f"{size} {n}")))
        for size in sizes:
            what = "launching is the work" if size == "small" else "the device is busy"
            self.row_of_bursts(f"{name}, {size} ({what})", made[size], bar=bar, as_speed=True)

    def residency(self):
        moves.Part(self).run()

    def handover(self):
        handover.Part(self).run()

    def barrier(self):
        barrier.run(self)

    # --- all

    PARTS = {
        "sim": ("sim_launch", False),
        "launch": ("gpu_launch", True),
        "alloc": ("alloc_free", True),
        "free": ("free_beside", True),
        "train": ("train", True),
        "residency": ("residency", True),
        "handover": ("handover", True),
        "barrier": ("barrier", False),
        # Where a difference comes from; only when named.
        "train_plain": ("train_plain", True),
        "train_native": ("train_native", True),
    }

    def run(self, names):
        for name in names:
            function, needs_gpu = self.PARTS[name]
            print(f"{name} ...", file=sys.stderr, flush=True)
            if needs_gpu and not self.gpu and not self.options.sim:
                continue
            problem, tail = None, ""
            before = len(self.rows)
            try:
                if self.left() < 20 or steps.stop.is_set():
                    raise WorkerError("interrupted" if steps.stop.is_set() else "out of time")
                getattr(self, function)()
            except WorkerError as error:
                problem, tail = str(error), error.tail
            except Exception as error:  # noqa: BLE001: one part's surprise must not end the others
                problem = f"{type(error).__name__}: {error}"
            if problem and problem.startswith("no ") and os.environ.get("SUBLET_TEST_REQUIRE") != "gpu":
                self.rows.append(Row(name, "", "", problem, "", "skip"))
            elif problem:
                self.rows.append(Row(name, "", "", problem, "", "FAIL"))
                self.failures.append((name, problem, tail))
            for row in self.rows[before:]:
                print(f"  {row.cells[0]}: {row.cells[3]}: {row.verdict}", file=sys.stderr, flush=True)


HEAD = ["what", "plain", "with Sublet", "change, 95 % interval", "bar", "verdict"]


def write_reports(options, bench, facts, seconds, command):
    rows = bench.rows
    passed, failed = sum(r.verdict.startswith("pass") for r in rows), sum(r.verdict == "FAIL" for r in rows)
    shown, skipped = sum(r.verdict == "shown" for r in rows), sum(r.verdict == "skip" for r in rows)
    text = [steps.table_text(HEAD, [r.cells for r in rows]), ""]
    for name, problem, tail in bench.failures:
        text.append(f"{name}: {problem}")
        text += [f"    {line}" for line in tail.splitlines()]
        text.append(f"  again: tests/bench/run.sh --only {name}")
    text += [f"note: {note}" for note in bench.notes]
    text.append(steps.facts_text(facts))
    text.append(f"{command}, {seconds:.0f} s")
    text.append(f"{shown} figures without a bar")
    text.append(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    text = "\n".join(text)
    print(text)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        steps.write_file(os.path.join(options.out, "bench-table.txt"), text + "\n")
        steps.write_file(
            os.path.join(options.out, "bench-measurements.md"),
            "## What Sublet costs\n\n"
            f"`{command}`: {passed} passed, {failed} failed, {seconds:.0f} s.\n{steps.facts_text(facts)}.\n\n"
            "A plain process and one under Sublet live side by side and are asked in turn, burst by burst, each pair in the\n"
            "other order; a round is a fresh pair of processes. The change is the median over pairs of bursts; its interval\n"
            "resamples rounds, then bursts inside them.\n\n"
            + steps.table_markdown(HEAD, [r.cells for r in rows])
            + "\n"
            + "".join(f"\n{note}." for note in bench.notes)
            + ("\n" if bench.notes else ""),
        )
        steps.write_file(
            os.path.join(options.out, "bench-results.json"),
            json.dumps(
                {
                    "facts": facts,
                    "command": command,
                    "seconds": seconds,
                    "rows": [r.cells for r in rows],
                    "raw": bench.raw,
                }
            ),
        )
        steps.write_file(
            os.path.join(options.out, "bench-logs.txt"),
            "\n===\n".join(log for log in bench.logs if log.strip())[-(8 << 20) :],
        )
    return failed


def parse_options():
    parser = argparse.ArgumentParser(
        prog="tests/bench/run.sh",
        description="Measure what Sublet costs, against plain runs in the same minutes.",
        epilog="environment: SUBLET_BUILD (build folder), SUBLET_TEST_REQUIRE=gpu (a skip is a failure), CUDA_HOME, CC, "
        "PYTHON. Example: tests/bench/run.sh --quick --out results",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds (under 3 minutes)")
    parser.add_argument("--only", metavar="PART,...", help="of: " + ", ".join(Bench.PARTS))
    parser.add_argument(
        "--out", metavar="DIR", help="also write table, markdown, JSON with raw numbers, and logs there"
    )
    parser.add_argument("--build", metavar="DIR", help="the build folder (build)")
    parser.add_argument("--seconds", type=float, help="time for everything (490; 160 with --quick)")
    parser.add_argument("--sizes", metavar="SCRATCH,WEIGHTS", help="parts residency and handover: bytes moved (32GiB,16GiB; handover moves WEIGHTS each way); of others no bar is judged")
    parser.add_argument("--sim", action="store_true", help="parts residency, handover and barrier, to try the scripts: on the simulated driver, and no bar is judged")
    parser.add_argument("--memory-saver", metavar="DIR", help="part residency: a folder with torch_memory_saver's wheel unpacked, to compare")
    options = parser.parse_args()
    options.seconds = options.seconds or (160 if options.quick else 490)
    options.parts = [p for p in (options.only or ",".join(p for p in Bench.PARTS if not p.startswith("train_"))).split(",") if p]
    for part in options.parts:
        if part not in Bench.PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(Bench.PARTS)}")
    if options.sim and not set(options.parts) <= {"residency", "handover", "barrier"}:
        parser.error("--sim is for some parts only: write --only residency,handover,barrier --sim")
    try:
        moves.Sizes(options.sizes)
    except ValueError as error:
        parser.error(str(error))
    return options


def main():
    options = parse_options()
    steps.stop_on_signals()
    begin = time.monotonic()
    build, reason = steps.find_build(options.build)
    if not build:
        print(f"run.sh: {reason}", file=sys.stderr)
        return 2
    gpu, reason = (None, "not looked for") if options.sim else steps.probe_gpu()
    facts = steps.machine_facts(build, gpu)
    work = tempfile.mkdtemp(prefix="sublet-bench-")
    bench = Bench(options, build, work, gpu)
    required = os.environ.get("SUBLET_TEST_REQUIRE") == "gpu"
    if not gpu and not options.sim and any(Bench.PARTS[p][1] for p in options.parts):
        bench.rows.append(Row("GPU parts", "", "", reason, "", "FAIL" if required else "skip"))
    try:
        bench.run(options.parts)
        command = (
            "tests/bench/run.sh"
            + (" --quick" if options.quick else "")
            + (f" --only {options.only}" if options.only else "")
            + (f" --sizes {options.sizes}" if options.sizes else "")
            + (" --sim" if options.sim else "")
        )
        failed = write_reports(options, bench, facts, time.monotonic() - begin, command)
    finally:
        steps.drop_dir(work)
    if failed:
        return 1
    return 0 if any(r.verdict != "skip" for r in bench.rows) else 77


if __name__ == "__main__":
    sys.exit(main())
