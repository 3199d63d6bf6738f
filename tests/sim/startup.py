#!/usr/bin/env python3
"""libcudart's start-up batch under Sublet: whose pointer each request is answered with. That the answers' statuses are the
plain run's, and that what they lead to works, is the program 'startup' of onoff.py."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))

import harness  # noqa: E402

PROGRAM = os.path.join(os.environ["SUBLET_TEST_PROGRAMS"], "startup")
PER_THREAD = 2


def number(version):
    major, minor = version.split(".")
    return int(major) * 1000 + int(minor) * 10


class Startup(harness.Case):
    def setUp(self):
        super().setUp()
        self.rows = json.loads(self.sublet("entries", "--json").stdout)
        with open(os.path.join(harness.SOURCE, "tests/sim/programs/startup.def")) as text:
            self.requests = re.findall(r'^REQUEST\("(\w+)", (\d+), (\d)\)$', text.read(), re.M)

    def given_row(self, base, version, flags):
        """The newest form that is not newer than the version; the per-thread twin where one was asked for and exists."""
        rows = [r for r in self.rows if r["base"] == base and number(r["since"]) <= version]
        twins = [r for r in rows if (r["stream"] != "legacy") == (flags == PER_THREAD)]
        rows = twins or [r for r in rows if r["stream"] == "legacy"]
        return max(rows, key=lambda r: number(r["since"]))

    def given_owners(self, **variables):
        got = self.sublet("run", "--sim", "--", PROGRAM, "owners", env=dict(self.env, **variables))
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return [line.split()[:4] for line in got.stdout.splitlines()]

    def given_plain_has_internal_pointers(self):
        env = dict(self.env, LD_LIBRARY_PATH=harness.SIM_FOLDER, SUBLET_SIM_INTERNAL_POINTERS="1")
        got = subprocess.run([PROGRAM, "owners"], env=env, capture_output=True, text=True, timeout=60)
        return any(line.endswith(" inside") for line in got.stdout.splitlines())

    def given_checked(self, answers):
        self.assertEqual([tuple(a[:3]) for a in answers], self.requests, "every request is answered")
        wrong = []
        replaced = 0
        for base, version, flags, owner in answers:
            row = self.given_row(base, int(version), int(flags))
            wanted = "libsublet.so" if row["what"] != "pass" else "libcuda.so.1"
            replaced += row["what"] != "pass"
            if owner != wanted:
                wrong.append((row["symbol"], owner, wanted))
        self.assertEqual(wrong, [])
        return replaced

    def requests_begin_as_the_runtime_does(self):
        self.assertEqual(self.requests[:3], [("cuInit", "2000", "0"), ("cuGetProcAddress", "11030", "0"),
                                             ("cuGetProcAddress", "12000", "0")])
        self.assertGreater(len(self.requests), 400)
        self.assertEqual(len(self.requests), len(set(self.requests)))

    def wrapped_rows_are_answered_by_sublet_and_no_others(self):
        self.assertGreater(self.given_checked(self.given_owners()), 40)

    def the_same_where_the_driver_gives_pointers_that_are_no_exports(self):
        if not self.given_plain_has_internal_pointers():
            self.skipTest("this simulated driver answers with exports only")
        exports = self.given_owners()
        internal = self.given_owners(SUBLET_SIM_INTERNAL_POINTERS="1")
        self.given_checked(internal)
        self.assertEqual(internal, exports)


if __name__ == "__main__":
    harness.main()
