"""The harness judged by itself, without a GPU: made-up programs, a made-up `sublet`.
Run by `python3 tests/gpu/selftest.py`."""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import compare
import harness
import steps

FAKE_SUBLET = """#!/bin/sh
if [ "$1" = --version ]; then echo 'sublet 0.0'; exit 0; fi
shift 4
UNDER_SUBLET=1 "$@"
status=$?
[ -n "$FAKE_LINE" ] && echo "$FAKE_LINE" >&2
exit $status
"""
LINE = "sublet[12 train]: info: managed 4194304 bytes peak in 7 allocations, native 1.5 KiB peak"


class Compare(unittest.TestCase):
    def runs(self, *exacts, loose=None):
        return [{"exact": e, "loose": (loose or [{}] * len(exacts))[i]} for i, e in enumerate(exacts)]

    def test_equal_values_pass(self):
        self.assertTrue(compare.compare(self.runs({"a": 1}, {"a": 1}), self.runs({"a": 1})).passed)

    def test_one_other_value_fails_and_is_named(self):
        verdict = compare.compare(self.runs({"a": 1}, {"a": 1}), self.runs({"a": 1}, {"a": 2}))
        self.assertFalse(verdict.passed)
        self.assertIn("'a'", verdict.differences[0])

    def test_a_missing_value_fails(self):
        self.assertFalse(compare.compare(self.runs({"a": 1}), self.runs({})).passed)
        self.assertFalse(compare.compare(self.runs({}), self.runs({"a": 1})).passed)

    def test_plain_runs_that_differ_fail(self):
        verdict = compare.compare(self.runs({"a": 1}, {"a": 2}), self.runs({"a": 1}))
        self.assertFalse(verdict.passed)
        self.assertIn("plain runs differ", verdict.differences[0])

    def loose(self, plain, sublet):
        return compare.compare(
            self.runs(*[{}] * len(plain), loose=[{"x": v} for v in plain]),
            self.runs(*[{}] * len(sublet), loose=[{"x": v} for v in sublet]),
        )

    def test_loose_within_the_spread_passes(self):
        self.assertTrue(self.loose([1.0, 1.001, 0.999], [1.002]).passed)
        self.assertTrue(self.loose([[1.0, 2.0], [1.0, 2.002]], [[1.0, 2.001]]).passed)

    def test_loose_beyond_the_spread_fails(self):
        self.assertFalse(self.loose([1.0, 1.001, 0.999], [1.0, 1.01]).passed)
        self.assertFalse(self.loose([1.0, 1.0], [1.0001]).passed)

    def test_nan_and_other_shapes_fail(self):
        self.assertFalse(self.loose([1.0, 1.1], [float("nan")]).passed)
        self.assertFalse(self.loose([[1.0, 1.1]], [[1.0]]).passed)
        self.assertFalse(self.loose([[1.0, 1.1]], [None]).passed)

    def test_the_object_is_found_among_noise(self):
        self.assertEqual(compare.parse('x\n{"exact": {"a": 1}}\n{broken\nbye\n')["exact"], {"a": 1})
        self.assertIsNone(compare.parse("{}\nnothing"))


class Reports(unittest.TestCase):
    def test_counters_are_read(self):
        for line, managed, count, native in (
            (LINE, 4194304, 7, 1536),
            ("sublet[9 ]: managed 2.5 GiB peak in 12 allocations, native 0 bytes peak in 0", int(2.5 * 2**30), 12, 0),
            ("sublet[9]: lifecycle: managed 12 MiB in 1 allocation; native 3 MiB", 12 << 20, 1, 3 << 20),
            ("sublet[9 r]: managed 1,048,576 in 3, native 12", 1 << 20, 3, 12),
            (
                "sublet[9 train]: stats: device 0: managed 1.50 GiB peak in 21 allocations, 0 B at the end\n"
                "sublet[9 train]: stats: device 0: native small 1.50 KiB peak in 4 allocations\n"
                "sublet[9 train]: stats: device 0: native pool 2.00 MiB peak in 2 allocations\n"
                "sublet[9 train]: stats: device 0: native pinned 64.00 MiB peak in 1 allocations\n"
                "sublet[9 train]: stats: look-ups: 300 replaced, 0 of them by name, 1 unknown",
                3 << 29,
                21,
                (2 << 20) + 1536,
            ),
            ("sublet[9 ]: stats: look-ups: 300 replaced, 0 of them by name, 1 unknown", 0, 0, 0),
        ):
            report = steps.Report("noise\n" + line + "\nmore")
            self.assertTrue(report.seen, line)
            self.assertEqual((report.managed, report.allocations, report.native), (managed, count, native), line)

    def test_other_lines_are_no_counters(self):
        report = steps.Report("sublet[9 train]: off: no driver\nnot sublet: managed 5 bytes\n")
        self.assertFalse(report.seen)
        self.assertEqual(len(report.lines), 1)

    def test_largest_process_counts(self):
        self.assertEqual(steps.Report(LINE + "\nsublet[13 train]: managed 8 MiB in 2, native 0\n").managed, 8 << 20)


class Commands(unittest.TestCase):
    def test_output_and_status(self):
        result = steps.run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
        self.assertEqual((result.status, result.out, result.err, result.good), (3, "out\n", "err\n", False))

    def test_time_limit_ends_the_whole_group(self):
        begin = time.monotonic()
        result = steps.run_command(["sh", "-c", "trap '' TERM; sleep 100 & echo $!; sleep 100"], 1)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn("still running", result.problem)
        time.sleep(0.2)
        child = int(result.out)
        try:
            with open(f"/proc/{child}/stat", encoding="ascii") as file:
                self.assertIn(file.read().rsplit(")", 1)[1].split()[0], "ZX")
        except FileNotFoundError:
            pass

    def test_left_children_do_not_hold_it(self):
        begin = time.monotonic()
        self.assertTrue(steps.run_command(["sh", "-c", "sleep 100 & exit 0"], 20).good)
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_signal_is_named(self):
        self.assertIn("SIGSEGV", steps.run_command(["sh", "-c", "kill -SEGV $$"], 10).problem)

    def test_missing_program(self):
        self.assertIn("cannot start", steps.run_command(["/nonexistent/x"], 10).problem)


class Whole(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.makedirs(os.path.join(self.folder.name, "tools"))
        path = os.path.join(self.folder.name, "tools", "sublet")
        steps.write_file(path, FAKE_SUBLET)
        os.chmod(path, 0o755)

    def run_one(self, code, line=LINE, seconds=60, **options):
        limits = argparse.Namespace(seconds=seconds, quick=False, jobs=2, out=os.path.join(self.folder.name, "out"))
        one = harness.Harness(limits, self.folder.name, self.folder.name)
        step = harness.Step("fake", [sys.executable, "-c", code], env={"FAKE_LINE": line}, **options)
        talk = io.StringIO()
        with contextlib.redirect_stderr(talk), contextlib.redirect_stdout(talk):
            rows = one.run_all([step])
            self.failed = harness.write_reports(limits, rows, {"date": "today"}, one.logs, 1.0, "tests/gpu/run.sh")
        self.talk = talk.getvalue()
        with open(os.path.join(limits.out, "gpu-results.json"), encoding="utf-8") as file:
            json.load(file)
        return rows[0]

    GOOD = "import json; print(json.dumps({'exact': {'sum': 5}, 'info': {}}))"
    BAD = "import json, os; print(json.dumps({'exact': {'sum': 5 + ('UNDER_SUBLET' in os.environ)}}))"

    def test_equal_runs_pass(self):
        row = self.run_one(self.GOOD)
        self.assertEqual((row.verdict, self.failed, row.memory), ("pass", 0, "4.0 MiB in 7 / 1.5 KiB"))
        self.assertIn("1 passed, 0 failed", self.talk)

    def test_other_results_fail(self):
        row = self.run_one(self.BAD)
        self.assertEqual((row.verdict, self.failed), ("FAIL", 1))
        self.assertIn("'sum': plain 5, with Sublet 6", self.talk)
        self.assertIn("again: tests/gpu/run.sh --only fake", self.talk)

    def test_informational_difference_is_not_counted(self):
        row = self.run_one(self.BAD, informational="a reason")
        self.assertEqual((row.verdict, self.failed), ("differs", 0))

    def test_silent_sublet_fails(self):
        self.assertEqual(self.run_one(self.GOOD, line="").verdict, "FAIL")
        self.assertIn("was it there", self.talk)

    def test_nothing_managed_fails(self):
        line = "sublet[12 train]: managed 0 bytes peak in 0 allocations, native 7 MiB peak"
        self.assertEqual(self.run_one(self.GOOD, line=line).verdict, "FAIL")
        self.assertEqual(self.run_one(self.GOOD, line=line, managed=False).verdict, "pass")

    def test_a_bug_line_fails(self):
        line = LINE + "\nsublet[12 train]: sublet bug: a record was lost"
        self.assertEqual(self.run_one(self.GOOD, line=line).verdict, "FAIL")

    def test_a_crash_under_sublet_fails_with_its_last_lines(self):
        code = self.GOOD + "; import os, sys; sys.exit('deep trouble' if 'UNDER_SUBLET' in os.environ else 0)"
        self.assertEqual(self.run_one(code).verdict, "FAIL")
        self.assertIn("deep trouble", self.talk)

    def test_a_plain_crash_fails(self):
        self.assertEqual(self.run_one("raise SystemExit('no such luck')").verdict, "FAIL")
        self.assertIn("no such luck", self.talk)

    def test_a_hang_is_bounded(self):
        row = self.run_one("import time; time.sleep(60)", seconds=2)
        self.assertEqual(row.verdict, "FAIL")
        self.assertIn("still running", self.talk)

    def test_out_of_time_is_not_a_pass(self):
        row = self.run_one(self.GOOD, seconds=0.5)
        self.assertEqual((row.verdict, self.failed), ("not run", 1))

    def test_a_missing_module_is_a_skip_with_its_reason(self):
        os.environ.pop("SUBLET_TEST_REQUIRE", None)
        row = self.run_one(self.GOOD, needs=["no_such_module_here"])
        self.assertEqual((row.verdict, self.failed), ("skip", 0))
        self.assertIn("no Python module", self.talk)
        os.environ["SUBLET_TEST_REQUIRE"] = "gpu"
        self.addCleanup(os.environ.pop, "SUBLET_TEST_REQUIRE", None)
        self.assertEqual(self.run_one(self.GOOD, needs=["no_such_module_here"]).verdict, "FAIL")

    def test_text_can_be_what_counts(self):
        code = "print('ERROR SUMMARY: 0 errors')"
        self.assertEqual(self.run_one(code, accept="ERROR SUMMARY: 0 errors", runs=(1, 1)).verdict, "pass")
        self.assertEqual(self.run_one("print(1)", accept="ERROR SUMMARY: 0 errors", runs=(1, 1)).verdict, "FAIL")


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=1).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    )
    bad = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
