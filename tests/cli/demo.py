#!/usr/bin/env python3
"""The demo of the paper's iteration, run as `tools/bootstrap demo` runs it: its numbers agree with each other and with the table, and
it notices when bytes are lost. What the numbers are is not held here but that they are counted and add up."""
import functools
import os
import re
import subprocess
import sys

import harness

BUILD = os.path.dirname(os.path.dirname(harness.SIM_FOLDER))
DEMO = os.path.join(harness.SOURCE, "tools/demo/paper.py")
POLICY = os.path.join(harness.SOURCE, "tools/demo/paper.yaml")
LEFT = 80


def demo(*words):
    return subprocess.run([sys.executable, DEMO, BUILD, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=170)


@functools.lru_cache(None)
def whole():
    """Run once, looked at by several cases."""
    return demo()


class Whole(harness.Case):
    def setUp(self):
        super().setUp()
        self.got = whole()
        self.text = self.got.stdout

    def given_rows(self, begins, ends):
        """The lines between those that begin so, as words."""
        part = self.text.split("\n" + begins)[1].split("\n" + ends)[0]
        return [line.split() for line in part.split("\n")]

    def ends_well_within_a_hundred_columns(self):
        self.assertEqual((self.got.returncode, self.got.stderr), (0, ""), self.text)
        self.assertLessEqual(max(map(len, self.text.splitlines())), 100)
        self.assertNotIn("demo: error", self.text)

    def naive_placement_needs_the_sum_of_its_parts_and_is_out_of_memory(self):
        rows = [row for row in self.given_rows("What naive", "  device of") if row and row[0] in ("train", "reference", "rollout")]
        total = re.search(r"\n  total +([\d.]+) +(\d+) ", self.text)
        self.assertEqual(len(rows), 10)
        self.assertAlmostEqual(sum(float(row[-2]) for row in rows), float(total[1]), 3)
        self.assertEqual(sum(int(row[-1]) for row in rows), int(total[2]))
        self.assertTrue(all(0 <= int(row[-1]) - float(row[-2]) < 2 and int(row[-1]) % 2 == 0 for row in rows))
        device, ballast, left = map(int, re.search(r"device of (\d+) MiB; .* takes (\d+), so (\d+) are left", self.text).groups())
        self.assertEqual((device - ballast, left), (left, LEFT))
        taken = int(re.search(r"run plainly: .*: out of memory; (\d+) of them were taken", self.text)[1])
        self.assertLessEqual(taken, LEFT)
        self.assertGreater(int(total[2]), LEFT)

    def phases_move_what_they_say_and_stay_below_the_device(self):
        rows = [[int(word) for word in row[:1] + row[2:7] + row[9:]] for row in self.given_rows("  iteration phase", "  peak,") if len(row) == 10]
        self.assertEqual([row[0] for row in rows], [1, 1, 1, 2, 2, 2, 3, 3, 3])
        for k in (2, 3):  # nothing is made for good any more: what leaves in an iteration comes in it
            own = [row for row in rows if row[0] == k]
            self.assertEqual(sum(row[1] + row[2] for row in own), sum(row[3] + row[4] for row in own))
        self.assertEqual([row[1:5] for row in rows[3:6]], [row[1:5] for row in rows[6:]])
        peak, of, pool = map(int, re.search(r"counted it: (\d+) of (\d+) MiB device memory; host pool (\d+)", self.text).groups())
        self.assertEqual((of, peak), (LEFT, max(max(row[5:]) for row in rows)))
        self.assertLessEqual(peak, LEFT)
        self.assertGreater(pool, 0)

    def objects_add_up_to_what_is_on_the_device(self):
        part = self.text.split("  object  ")[1].split("\n  contents:")[0]
        begin = 2 + 18 + 1 + 12
        cells = {line[2:33].strip(): [line[begin + 14 * i:begin + 14 * i + 14].strip() for i in range(3)]
                 for line in part.split("\n")[1:] if line}
        device, counted = cells.pop("on the device"), cells.pop("most, counted by the driver")
        self.assertEqual(len(cells), 10)
        for i in range(3):
            self.assertEqual(sum(int(row[i]) for row in cells.values() if row[i].isdigit()), int(device[i]))
            self.assertLessEqual(int(device[i]), int(counted[i]))
            self.assertLessEqual(int(counted[i]), LEFT)

    def contents_are_compared_and_equal(self):
        counts = re.findall(r"(?:contents:? +|plainly on .*: )(\d+) (?:comparisons|sums).*?(\d+) differ", self.text)
        self.assertEqual(len(counts), 5)
        for compared, differ in counts:
            self.assertGreater(int(compared), 0)
            self.assertEqual(int(differ), 0)

    def ablations_exceed_where_their_arithmetic_says(self):
        parts = self.text.split("\nAblation ")[1:]
        self.assertEqual([part.split("'")[1] for part in parts], ["offload", "release", "segments"])
        for part in parts:
            part = " ".join(part.split("Differences")[0].split())
            sums = re.search(r"arithmetic (.*) MiB, of (\d+)", part)
            over = [(k, phase) for k, row in re.findall(r"iteration (\d): ([^;]*)", sums[1])
                    for phase, size in re.findall(r"(\w+) (\d+)", row) if int(size) > int(sums[2])]
            self.assertIn("run iteration %s, %s: " % over[0], part)
            self.assertRegex(part, "out of memory|does not begin")


class Parts(harness.Case):
    def policy_has_no_warning(self):
        got = self.sublet("check", "--strict", POLICY)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)

    def lost_bytes_are_noticed(self):
        """Runtime buffers that the policy lets go, although the program wants them back."""
        policy = os.path.join(self.folder, "policy.yaml")
        with open(POLICY) as text:
            head, tail = text.read().split("  - name: runtime_buffers\n")
        tail = tail.replace("permanent", "regenerable", 1).replace("otherwise: offload", "otherwise: discard\n    exclusive: true", 1)
        with open(policy, "w") as text:
            text.write(head + "  - name: runtime_buffers\n" + tail)
        got = demo("--only", "full", "--policy", policy)
        self.assertEqual(got.returncode, 1, got)
        self.assertRegex(got.stdout, r"contents: .*: 2 differ\n")
        self.assertIn("demo: error: contents differ: ", got.stdout)
        self.assertIn("'rollout', 'other', 'buffers'", got.stdout)

    def other_policy_is_refused(self):
        got = demo("--only", "full", "--policy", os.path.join(harness.SOURCE, "examples/paper-iteration.yaml"))
        self.assertEqual((got.returncode, got.stderr), (1, ""))
        self.assertRegex(got.stdout, r"\Ademo: error: .* is not taken by 'train_weights'; 'sublet check' of it says more\n\Z")


if __name__ == "__main__":
    harness.main()
