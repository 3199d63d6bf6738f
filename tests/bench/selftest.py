"""The benchmark judged by itself, without a GPU: known statistics, made-up workers, a made-up `sublet`. Run by
`python3 tests/bench/selftest.py`."""

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import bench
import intervals
import moves
import steps

FAKE_SUBLET = """#!/bin/sh
[ "$1" = ctl ] && shift && exec {python} {folder}/ctl "$@"
[ "$1" = phase ] && shift && exec {python} {folder}/phase "$@"
while [ "$1" != -- ]; do
	[ "$1" = --session ] && session=$2
	[ "$1" = --role ] && role=$2
	shift
done
[ -n "$role" ] && echo $$ >"$session/pid_of_$role"
shift
UNDER_SUBLET=1 "$@"
status=$?
[ -n "$FAKE_SILENT" ] || echo "sublet[1 ]: managed 8 MiB peak in 1 allocations, native 4 bytes" >&2
exit $status
"""

FAKE_WORKER = """#!{python}
import os, random, sys, time
sublet = "UNDER_SUBLET" in os.environ
source = random.Random(os.getpid())
mode = os.environ.get("FAKE_MODE", "")
if mode == "dies" and sublet:
    sys.exit("driver trouble")
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "quit":
        break
    if mode == "hangs" and sublet:
        time.sleep(100)
    if words[0].startswith("launch"):
        cost = float(os.environ.get("FAKE_COST", "8")) if sublet else 0
        print(int(int(words[1]) * (100 + source.gauss(0, 3) + cost)))
    elif words[0] == "pairs":
        n = int(words[2])
        one = [source.randint(900, 1100) // (4 if sublet else 1) for _ in range(2 * n)]
        print(sum(one), *one)
    elif words[0] == "free_beside":
        values = dict(free_ns=200000 if sublet else 400000000, alloc_ns=1000, rose=int(words[1]),
                      busy_after_free=int(sublet), busy_after_fill=int(sublet),
                      foreign=3 if mode == "foreign" and sublet else 0, rounds=50, spoiled=0, kernel_ns=400100000)
        print(*(k + "=" + str(v) for k, v in values.items()))
    elif words[0] in ("take", "pin", "rest"):
        print(words[2])
    elif words[0] == "own":
        size = int(words[1]) / 2**30
        print(int(280000 * size), int(720000 * size), int(290000 * size), int(200000 * size), int(700000 * size))
    elif words[0] == "copies":
        print(295000000, 305000000)
    elif words[0] in ("out", "in"):
        print(int(words[2]) + 1000, int(words[2]) + (301000000 if words[0] == "in" else 300001000))
    elif words[0] == "check":
        if mode == "dies at check":
            sys.exit("driver trouble")
        print(int(words[1]) * 32 // 4, 5 if mode == "spoils" else 0)
    elif words[0] == "used":
        state = os.environ["FAKE_STATE"]
        print(2**36 - (int(open(state).read()) if os.path.exists(state) and mode != "keeps" else 0))
    else:
        print(int(int(words[1]) * 1e6 * (1.002 if sublet else 1) * (1 + source.gauss(0, 0.002))))
    sys.stdout.flush()
"""

# Answers as `sublet ctl VERB OBJECT --session DIR --timeout S --json` does; sizes are those of the policy there.
FAKE_CTL = """
import json, os, re, sys, time
verb, name = sys.argv[1:3]
if verb == "stop":
    sys.exit(0)
mode = os.environ.get("FAKE_CTL", "")
if mode == "hangs":
    time.sleep(100)
if mode == "fails":
    sys.exit("sublet: error: pid 7: the gate did not shut")
with open(os.path.join(sys.argv[sys.argv.index("--session") + 1], "policy.yaml")) as file:
    block = int(re.search("name: %s, match: .*size: ([0-9]+)MiB" % name, file.read()).group(1)) << 20
size = 32 * block
with open(os.environ["FAKE_STATE"], "w") as file:
    file.write("0" if verb == "restore" else str(size))
per_gib = {"discard": 0.00073, "offload": 0.0190, "park": 0.020, "restore": 0.000285 if name == "scratch" else 0.0195}
answer = {"good": True, "text": "", "moved_bytes": size // 2 if mode == "half" else size, "failed": 0, "skipped": 0,
          "seconds": size / 2**30 * per_gib[verb] * float(os.environ.get("FAKE_SLOW", "1"))}
answer["copy_seconds"] = answer["seconds"] * 0.99
if mode == "no seconds":
    del answer["seconds"]
print("not json" if mode == "garbage" else json.dumps([answer]))
"""

# Answers as `sublet phase NAME --session DIR --json` does: who is named for the phase comes, the other leaves, if they are there.
FAKE_PHASE = """
import json, os, sys
mode, session = os.environ.get("FAKE_PHASE", ""), sys.argv[sys.argv.index("--session") + 1]
if mode == "fails":
    sys.exit("sublet: error: phase 'first' does not begin: pid 7: the host pool is full")
moves = []
for role in ("first", "second"):
    path = os.path.join(session, "pid_of_" + role)
    if os.path.exists(path) and not (mode == "one way" and role == sys.argv[1]):
        step = "acquire" if role == sys.argv[1] else "release"
        seconds = (0.32 if step == "acquire" else 0.31) * float(os.environ.get("FAKE_SLOW", "1"))
        moves.append({"pid": int(open(path).read()), "step": step, "moved_bytes": 16 << 30, "seconds": seconds})
print("not json" if mode == "garbage" else json.dumps({"phase": sys.argv[1], "clock": 1, "seconds": 0.33, "moves": moves}))
"""


class Intervals(unittest.TestCase):
    def test_median_and_percentile(self):
        self.assertEqual(intervals.median([3, 1, 2]), 2)
        self.assertEqual(intervals.median([4, 1, 2, 3]), 2.5)
        self.assertEqual(intervals.percentile(range(1, 101), 95), 95)
        self.assertEqual(intervals.percentile([7], 95), 7)
        self.assertEqual(intervals.percentile([1, 2], 95), 2)

    def test_interval_covers_the_truth_about_as_often_as_it_says(self):
        source, hits = random.Random(5), 0
        for k in range(120):
            rounds = []
            for _ in range(8):
                shift = source.gauss(0, 1)
                rounds.append([10 + shift + source.gauss(0, 2) for _ in range(20)])
            _, low, high = intervals.interval(rounds, resamples=300, seed=k)
            hits += low <= 10 <= high
        self.assertGreaterEqual(hits, 95)  # of 120: rounds few, so somewhat under 95 %

    def test_one_sample_is_a_point(self):
        self.assertEqual(intervals.interval([[4.0]]), (4.0, 4.0, 4.0))

    def test_bars(self):
        self.assertEqual(intervals.judge(5, 4, 6, 20, at_least=False), "pass")
        self.assertEqual(intervals.judge(19, 15, 22, 20, at_least=False), "pass, interval crosses the bar")
        self.assertEqual(intervals.judge(21, 19, 25, 20, at_least=False), "FAIL")
        self.assertEqual(intervals.judge(0.999, 0.996, 1.001, 0.995, at_least=True), "pass")
        self.assertEqual(intervals.judge(0.99, 0.98, 1.0, 0.995, at_least=True), "FAIL")


class Whole(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.makedirs(os.path.join(self.folder, "tools"))
        os.makedirs(os.path.join(self.folder, "sim"))
        os.makedirs(os.path.join(self.folder, "tools", "sim"), exist_ok=True)
        steps.write_file(os.path.join(self.folder, "tools", "sim", "libcuda.so.1"), "")
        self.worker = os.path.join(self.folder, "worker")
        for path, text in (
            (
                os.path.join(self.folder, "tools", "sublet"),
                FAKE_SUBLET.replace("{python}", sys.executable).replace("{folder}", self.folder),
            ),
            (os.path.join(self.folder, "ctl"), FAKE_CTL),
            (os.path.join(self.folder, "phase"), FAKE_PHASE),
            (self.worker, FAKE_WORKER.replace("{python}", sys.executable)),
        ):
            steps.write_file(path, text)
            os.chmod(path, 0o755)

        self.peer = None

    def run_parts(self, parts, seconds=100, **env):
        for key, value in env.items():
            os.environ[key] = value
            self.addCleanup(os.environ.pop, key, None)
        os.environ["FAKE_STATE"] = os.path.join(self.folder, "state")
        self.addCleanup(os.environ.pop, "FAKE_STATE", None)
        options = argparse.Namespace(
            quick=True, seconds=seconds, out=os.path.join(self.folder, "out"), sim=False, sizes=None, memory_saver=self.peer
        )
        one = bench.Bench(options, self.folder, self.folder, {"GPU": "made up"})
        one.program = lambda *_: self.worker
        talk = io.StringIO()
        with contextlib.redirect_stdout(talk), contextlib.redirect_stderr(talk):
            one.run(parts)
            failed = bench.write_reports(options, one, {"date": "today"}, 1.0, "tests/bench/run.sh")
        self.talk = talk.getvalue()
        with open(os.path.join(options.out, "bench-results.json"), encoding="utf-8") as file:
            self.assertIn("raw", json.load(file))
        return one, failed

    def test_a_cost_under_the_bar_passes_and_is_measured(self):
        one, failed = self.run_parts(["sim"])
        self.assertEqual(failed, 0)
        value, low, high = one.raw["simulated launch"]["interval"]
        self.assertTrue(6.5 < value < 9.5 and low < value < high, (value, low, high))

    def test_a_cost_over_the_bar_fails(self):
        self.assertEqual(self.run_parts(["sim"], FAKE_COST="40")[1], 2)

    def test_every_gpu_part_runs(self):
        one, failed = self.run_parts(["launch", "alloc", "free"])
        self.assertEqual(failed, 0, self.talk)
        self.assertEqual(len(one.rows), 6)
        self.assertIn("200 us", one.rows[-1].cells[2])
        self.assertIn("x 0.2", one.rows[2].cells[3])

    def test_foreign_words_fail(self):
        self.assertEqual(self.run_parts(["free"], FAKE_MODE="foreign")[1], 1)
        self.assertIn("written by somebody else", self.talk)

    def test_a_silent_sublet_fails(self):
        self.assertEqual(self.run_parts(["launch"], FAKE_SILENT="1")[1], 1)
        self.assertIn("was Sublet there", self.talk)

    def test_a_worker_that_dies_is_reported_and_the_next_part_runs(self):
        _, failed = self.run_parts(["launch", "free"], FAKE_MODE="dies")
        self.assertEqual(failed, 2)
        self.assertIn("driver trouble", self.talk)

    def test_a_worker_that_hangs_is_bounded(self):
        begin = time.monotonic()
        _, failed = self.run_parts(["launch"], seconds=21, FAKE_MODE="hangs")
        self.assertEqual(failed, 1)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertIn("no answer", self.talk)

    # --- residency: no part of it may need a GPU to be found wrong

    def residency(self, part_seconds=60, **env):
        with mock.patch.object(steps.Nvml, "open", return_value=None), mock.patch.object(moves.Part, "SECONDS", part_seconds):
            one, failed = self.run_parts(["residency"], **env)
        self.verdicts = {row.cells[0].split(",")[0]: row.verdict for row in one.rows}
        return one, failed

    def test_residency_within_the_bars_passes(self):
        one, failed = self.residency()
        self.assertEqual(failed, 0, self.talk)
        self.assertEqual(sum(v.startswith("pass") for v in self.verdicts.values()), 6, self.talk)
        cells = {row.cells[0].split(",")[0]: row.cells for row in one.rows}
        self.assertIn("32 extents of 1.0 GiB", cells["release 32.0 GiB without backup"][0] + self.talk)
        self.assertIn("unmap, release 23 ms", cells["release 32.0 GiB without backup"][1])
        self.assertIn("moved in 23.4 ms, command took", cells["release 32.0 GiB without backup"][2])
        self.assertIn("x 1.014", cells["release 32.0 GiB without backup"][3])
        self.assertIn("9.12 ms", cells["bring 32.0 GiB back without content"][3])
        at_once = cells["bring 32.0 GiB back as soon as as much was given back (the driver still clears it)"]
        self.assertEqual((at_once[2], at_once[5]), ("moved in 9.12 ms", "shown"))
        self.assertIn("97.0 % of the plain rate", cells["offload 16.0 GiB in pieces of 256.0 MiB"][3])
        self.assertIn("(56.5 GB/s; from the first copy to the last 301 ms)", cells["offload 16.0 GiB in pieces of 256.0 MiB"][2])
        self.assertIn("offload: another process 65536 / 49152 / 65536", self.talk)
        self.assertIn("not given: --memory-saver DIR", self.talk)
        self.assertEqual(len(one.raw["residency, release"]["plain ns, ns in the process, by round"][0]), 4)

    def test_residency_over_the_bars_fails(self):
        self.assertEqual(self.residency(FAKE_SLOW="1.2")[1], 4)
        for name in ("release", "bring", "offload", "restore"):
            found = [verdict for row, verdict in self.verdicts.items() if row.startswith(name) and verdict != "shown"]
            self.assertEqual(found, ["FAIL"], name)

    def test_residency_that_spoils_bytes_fails(self):
        self.assertEqual(self.residency(FAKE_MODE="spoils")[1], 1)
        self.assertIn("5 of 4294967296 words are not what was written", self.talk)

    def test_residency_whose_memory_stays_in_use_fails(self):
        self.assertEqual(self.residency(FAKE_MODE="keeps")[1], 1)
        self.assertIn("discard of 32.0 GiB: another process sees 0 MiB less", self.talk)

    def test_residency_commands_that_go_wrong_are_reported(self):
        for mode, text in (
            ("fails", "the gate did not shut"),
            ("half", "8.0 GiB of 16.0 GiB moved"),
            ("garbage", "its answer is not understood"),
            ("no seconds", "its answer is not understood (KeyError: 'seconds')"),
        ):
            with self.subTest(mode):
                self.assertEqual(self.residency(FAKE_CTL=mode)[1], 1)
                self.assertIn(text, self.talk)

    def test_residency_with_a_worker_that_dies_shows_what_it_has(self):
        self.assertEqual(self.residency(FAKE_MODE="dies at check")[1], 1)
        self.assertIn("driver trouble", self.talk)
        self.assertIn("first offload of 16.0 GiB", self.talk)

    def test_residency_with_anything_that_hangs_is_bounded(self):
        for env in ({"FAKE_CTL": "hangs"}, {"FAKE_MODE": "hangs"}):
            with self.subTest(env):
                begin = time.monotonic()
                self.assertEqual(self.residency(part_seconds=3, **env)[1], 1)
                self.assertLess(time.monotonic() - begin, 50)
                for key in env:
                    del os.environ[key]

    def test_a_peer_that_cannot_start_costs_its_rows_only(self):
        self.peer = self.folder
        self.assertEqual(self.residency()[1], 0, self.talk)
        self.assertIn("torch_memory_saver worker ended early", self.talk)

    # --- hand-over

    def test_handover_within_the_bar_passes(self):
        one, failed = self.run_parts(["handover"])
        self.assertEqual(failed, 0, self.talk)
        cells = one.rows[0].cells
        self.assertIn("copied in 301 ms (114.2 GB/s both; out 300 ms, in 301 ms)", cells[1])
        self.assertIn("moved in 320 ms (107.4 GB/s both; out 310 ms, in 320 ms), whole phase change 330 ms", cells[2])
        self.assertIn("94.1 % of the plain rate", cells[3])
        self.assertEqual([row.verdict for row in one.rows], ["pass", "pass"])
        self.assertEqual(len(one.raw["handover"]["plain ns, moved ns, by round"][0]), 6)

    def test_handover_below_the_bar_fails(self):
        self.assertEqual(self.run_parts(["handover"], FAKE_SLOW="1.1")[1], 1)

    def test_handover_that_spoils_bytes_fails(self):
        self.assertEqual(self.run_parts(["handover"], FAKE_MODE="spoils")[1], 1)
        self.assertIn("5 of 4294967296 words are not what was written", self.talk)

    def test_handover_commands_that_go_wrong_are_reported(self):
        for mode, text in (
            ("fails", "the host pool is full"),
            ("one way", "not both moved 16.0 GiB, one out and one in"),
            ("garbage", "its answer is not understood"),
        ):
            with self.subTest(mode):
                self.assertEqual(self.run_parts(["handover"], FAKE_PHASE=mode)[1], 1)
                self.assertIn(text, self.talk)

    def test_sizes_are_checked(self):
        for text in ("", "1GiB", "1GiB,1GiB", "100MiB,64MiB", "0GiB,64MiB", "1GiB,64MiB,2GiB", "64,128"):
            with self.subTest(text), self.assertRaises(ValueError):
                moves.Sizes(text or "x")
        self.assertEqual(moves.Sizes("128MiB,64MiB").block("scratch"), 4 << 20)
        self.assertEqual([moves.Sizes().extent(name) for name in ("weights", "scratch")], [256 << 20, 1 << 30])


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=1).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    )
    bad = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
