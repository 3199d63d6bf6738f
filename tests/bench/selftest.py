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

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import bench
import intervals
import steps

FAKE_SUBLET = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
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
    else:
        print(int(int(words[1]) * 1e6 * (1.002 if sublet else 1) * (1 + source.gauss(0, 0.002))))
    sys.stdout.flush()
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
            (os.path.join(self.folder, "tools", "sublet"), FAKE_SUBLET),
            (self.worker, FAKE_WORKER.replace("{python}", sys.executable)),
        ):
            steps.write_file(path, text)
            os.chmod(path, 0o755)

    def run_parts(self, parts, seconds=100, **env):
        for key, value in env.items():
            os.environ[key] = value
            self.addCleanup(os.environ.pop, key, None)
        options = argparse.Namespace(quick=True, seconds=seconds, out=os.path.join(self.folder, "out"))
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


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=1).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    )
    bad = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
