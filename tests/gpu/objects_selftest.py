"""objects.py judged by itself, without a GPU: made-up allocations and tensors, a made-up `sublet` and a made-up program. Run by
`tests/gpu/objects.sh --self-test`."""

import argparse
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import objects
import steps

MIB = 1 << 20
# two segments of weights with a hole between them, one of no rule right behind the second
ROWS = [
    {"address": hex(100 * MIB), "bytes": 20 * MIB, "object": "weights"},
    {"address": hex(140 * MIB), "bytes": 20 * MIB, "object": "weights"},
    {"address": hex(160 * MIB), "bytes": 4 * MIB, "object": None},
]
FAKE_SUBLET = """#!/bin/sh
if [ "$1" = ctl ] && [ "$2" = objects ]; then exec cat {folder}/answer.json; fi
if [ "$1" = ctl ]; then exit 0; fi
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
FAKE_PROGRAM = """import json, os, sys, time
what, folder = sys.argv[1:3]
for name in {moments}:
    path = os.path.join(folder, "walk-" + name + ".json")
    with open(path + ".part", "w") as file:
        json.dump({{"tensors": {tensors}}}, file)
    os.rename(path + ".part", path)
    while not os.path.exists(os.path.join(folder, "taken-" + name)):
        time.sleep(0.01)
sys.exit({status})
"""


class Spread(unittest.TestCase):
    def setUp(self):
        self.allocations = objects.allocations_of([{"pid": 1, "allocations": ROWS}])

    def test_answers_of_both_shapes_are_read(self):
        self.assertEqual(objects.allocations_of({"clients": [{"allocations": ROWS}]}), self.allocations)
        self.assertEqual(self.allocations[2], (160 * MIB, 164 * MIB, objects.NO_RULE))

    def test_a_tensor_inside_of_a_segment_is_in_its_object(self):
        self.assertEqual(objects.spread([[101 * MIB, 3 * MIB]], self.allocations), {"weights": 3 * MIB})

    def test_the_last_byte_belongs_to_the_segment_and_the_next_does_not(self):
        found = objects.spread([[120 * MIB - 1, 2]], self.allocations)
        self.assertEqual(found, {"weights": 1, objects.NOWHERE: 1})

    def test_a_tensor_over_two_segments_is_divided(self):
        found = objects.spread([[158 * MIB, 4 * MIB]], self.allocations)
        self.assertEqual(found, {"weights": 2 * MIB, objects.NO_RULE: 2 * MIB})

    def test_a_tensor_around_everything_counts_holes(self):
        found = objects.spread([[90 * MIB, 100 * MIB]], self.allocations)
        self.assertEqual(found, {"weights": 40 * MIB, objects.NO_RULE: 4 * MIB, objects.NOWHERE: 56 * MIB})

    def test_what_no_allocation_has_is_not_managed(self):
        self.assertEqual(objects.spread([[1, 5], [999 * MIB, 7]], self.allocations), {objects.NOWHERE: 12})
        self.assertEqual(objects.spread([[1, 5]], []), {objects.NOWHERE: 5})

    def test_two_allocations_at_one_address_are_no_inventory(self):
        with self.assertRaises(objects.Trouble):
            objects.allocations_of([{"allocations": ROWS + [{"address": hex(163 * MIB), "bytes": 1, "object": "x"}]}])

    def test_another_process_is_left_out_where_a_pid_is_asked_for(self):
        self.assertEqual(objects.allocations_of([{"pid": 1, "allocations": ROWS}], 2), [])


class Judge(unittest.TestCase):
    def judge(self, setting, tensors):
        return objects.judge(setting, [("step", tensors, objects.allocations_of([{"allocations": ROWS}]))])

    def test_shares_are_of_all_bytes_and_what_is_elsewhere_is_named(self):
        rows, held, wrong = self.judge("caching (default)", {"gradients": [[150 * MIB, 6 * MIB], [160 * MIB, 2 * MIB]]})
        self.assertEqual(rows[0], ["step", "gradients", "8.0 MiB", "0.0 %", "weights 75.0 %, (default) 25.0 %", "told"])
        self.assertEqual(held[0], ["step", "weights", "40.0 MiB", "6.0 MiB", "34.0 MiB"])
        self.assertEqual(wrong, [])

    def test_a_share_under_the_bar_fails(self):
        rows, _, wrong = self.judge("caching (default)", {"weights": [[100 * MIB, 9 * MIB], [160 * MIB, MIB]]})
        self.assertEqual((rows[0][3], rows[0][5]), ("90.0 %", "FAIL"))
        self.assertIn("90.0 % of weights", wrong[0])

    def test_all_kinds_have_a_bar_without_caching(self):
        self.assertEqual(set(objects.SETTINGS["no caching"][2]), set(objects.EXPECTED))
        rows, _, wrong = self.judge("no caching", {"optimizer": [[100 * MIB, MIB]]})
        self.assertEqual((rows[0][5], len(wrong)), ("FAIL", 1))

    def test_no_tensors_of_a_kind_fail(self):
        self.assertIn("no gradients at all", self.judge("caching (default)", {"gradients": []})[2][0])

    def test_no_allocations_fail(self):
        wrong = objects.judge("caching (default)", [("step", {"weights": [[1, 1]]}, [])])[2]
        self.assertIn("step: nothing is managed", wrong)

    def test_every_object_that_is_expected_is_in_the_policy(self):
        with open(objects.POLICY, encoding="utf-8") as file:
            text = file.read()
        for name in objects.EXPECTED.values():
            self.assertIn(f"  - name: {name}\n", text)


class Whole(unittest.TestCase):
    """From the start of a program to the rows, with a `sublet` and a program of a few lines."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = kept.name
        os.mkdir(os.path.join(self.folder, "tools"))
        path = os.path.join(self.folder, "tools", "sublet")
        steps.write_file(path, FAKE_SUBLET.format(folder=self.folder))
        os.chmod(path, 0o755)

    def run_one(self, tensors, status=0, moments=("forward", "step"), answer=None):
        program = os.path.join(self.folder, "program.py")
        steps.write_file(program, FAKE_PROGRAM.format(moments=list(moments), tensors=tensors, status=status))
        steps.write_file(os.path.join(self.folder, "answer.json"), answer or json.dumps([{"allocations": ROWS}]))
        self.logs = []
        with mock.patch.object(objects, "PROGRAM", program):
            options = argparse.Namespace()
            return objects.one(options, self.folder, steps.Deadline(60), "train", "caching (default)", self.logs)

    def test_both_moments_are_judged(self):
        rows, held, good = self.run_one({"weights": [[100 * MIB, MIB]]})
        self.assertEqual([row[2:6] for row in rows], [[m, "weights", "1.0 MiB", "100.0 %"] for m in ("forward", "step")])
        self.assertEqual(len(held), 4)
        self.assertTrue(good)

    def test_a_program_that_fails_fails(self):
        rows, _, good = self.run_one({"weights": [[100 * MIB, MIB]]}, status=3)
        self.assertFalse(good)
        self.assertIn("ended with 3", rows[0][6])

    def test_a_program_that_ends_too_early_is_said_so(self):
        rows, _, good = self.run_one({"weights": [[100 * MIB, MIB]]}, moments=("forward",))
        self.assertFalse(good)
        self.assertIn("ended before 'step'", rows[0][6])

    def test_an_inventory_that_is_none_is_said_so(self):
        rows, _, good = self.run_one({"weights": [[100 * MIB, MIB]]}, answer="nonsense")
        self.assertFalse(good)
        self.assertIn("sublet ctl objects", rows[0][6])


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
