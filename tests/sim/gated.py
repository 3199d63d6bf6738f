#!/usr/bin/env python3
"""The gate in a preloaded process: gated.c shuts it by the addresses that libsublet.so's own symbol table gives. Each case runs with
membarrier and with fences."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))

import harness  # noqa: E402

PROGRAM = os.path.join(os.environ["SUBLET_TEST_PROGRAMS"], "gated")


class Gated(harness.Case):
    def given_run(self, part):
        symbols = subprocess.run(["nm", harness.LIBRARY], check=True, capture_output=True, text=True).stdout
        found = {name: address for address, name in re.findall(r"^([0-9a-f]+) \w (\w+)$", symbols, re.M)}
        lifecycle = int(found["shim_hot"], 16) + 16  # struct shim_hot
        env = dict(self.env, GATE_HOLD=found["gate_hold"], GATE_OPEN=found["gate_open"], LIFECYCLE="%x" % lifecycle,
                   SERVICE_DO=found["service_do"])
        said = []
        for fences in ("0", "1"):
            got = subprocess.run([harness.EXE, "run", "--sim=1GiB", "--", PROGRAM, part], env=dict(env, SUBLET_GATE_FENCES=fences),
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            self.assertEqual((got.returncode, got.stderr), (0, ""), got.stdout)
            said.append(got.stdout)
        self.assertEqual(said[0], said[1])
        return said[0]

    def every_gated_entry_point_waits_and_no_other(self):
        with open(os.path.join(harness.SOURCE, "shim/entries.def")) as text:
            rows = len(re.findall(r"^GATED\(", text.read(), re.M))
        self.assertGreater(rows, 100)
        self.assertIn("%d gated, 0 wrong" % (rows + 10), self.given_run("rows"))

    def call_back_that_makes_a_gated_call_does_not_wait(self):
        self.assertIn("call-backs passed", self.given_run("callback"))

    def calls_that_get_hold_of_pages_wait_and_expose_them(self):
        self.assertIn("pins waited", self.given_run("pins"))

    def thread_cancelled_in_front_of_the_gate_leaves_nothing(self):
        self.assertIn("cancelled", self.given_run("cancel"))

    def process_that_ends_with_bytes_away_can_save_them(self):
        self.assertIn("saved: 0, the same bytes", self.given_run("away"))

    def process_that_ends_while_held_ends(self):
        self.assertIn("at the end: 0", self.given_run("end"))


if __name__ == "__main__":
    harness.main()
