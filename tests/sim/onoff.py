#!/usr/bin/env python3
"""tests/sim/onoff.py NAME
Runs one program of programs/ on the simulated driver, plainly and under `sublet run`, and expects the same exit status and
the same bytes on stdout and stderr (but for lines of Sublet that the program is there to provoke). That Sublet was at work is
read off the stats pages of the second run, where every program has to leave the numbers of expected.py. Then once more for
each other way to serve (VARIANTS)."""
import difflib
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))

import expected  # noqa: E402
import harness  # noqa: E402
import session_pages  # noqa: E402

PROGRAMS = os.environ["SUBLET_TEST_PROGRAMS"]
CAPACITY = "1GiB"
LIMIT_S = 120  # a hang; the programs take milliseconds, on a loaded machine a few seconds
# by tests/sanitize.sh valgrind: every process of each run is watched by memcheck, which takes minutes as it is
MEMCHECK = bool(os.environ.get("SUBLET_TEST_MEMCHECK"))
NOT_UNDER_MEMCHECK = {"fork_under_load": "memcheck runs one thread at a time, and those that never rest starve the one that forks"}


class OnOff(harness.Case):
    """One method per program, made below."""

    def given_run(self, program, env, words):
        env = dict(self.env, **program.env, **env)
        words = [*words, os.path.join(PROGRAMS, program.binary), *program.args]
        if MEMCHECK:
            words = ["valgrind", "--quiet", "--trace-children=yes", "--fair-sched=try", "--log-file=%s/memcheck.%%p" % self.folder,
                     "--suppressions=%s/tests/valgrind.supp" % harness.SOURCE, *words]
        child = subprocess.Popen(words, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its children too, which hold the pipes open
            self.fail("no end within %d s: %s\n%s" % (LIMIT_S, " ".join(words), b"".join(child.communicate()).decode()))
        self.given_no_finding()
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def given_no_finding(self):
        """A quiet memcheck says nothing of a process without a fault."""
        for path in glob.glob(os.path.join(self.folder, "memcheck.*")):
            with open(path, errors="replace") as text:
                said = text.read()
            if said:
                self.fail("%s:\n%s" % (path, said))

    def given_plain(self, program):
        machine = os.path.join(self.folder, "machine")
        return self.given_run(program, {"LD_LIBRARY_PATH": harness.SIM_FOLDER, "SUBLET_SIM_CAPACITY": CAPACITY,
                                        "SUBLET_SIM_MACHINE": machine}, [])

    def given_sublet(self, program, name, variables):
        """The outcome, and the pages its processes left: SUBLET_FOLLOW makes them leave one when they end."""
        session = os.path.join(self.folder, name)
        words = [harness.EXE, "run", "--sim=" + CAPACITY, "--session", session, "--"]
        got = self.given_run(program, dict(variables, SUBLET_FOLLOW="1"), words)
        return got, session_pages.read(session)

    def given_same(self, program, on, off, name):
        lines = on.stderr.splitlines(keepends=True)
        said = [line.decode() for line in lines if line.startswith(b"sublet[")]
        self.assertEqual(len(said), len(program.says), said)
        for line, wanted in zip(said, program.says):
            self.assertRegex(line, wanted)
        rest = b"".join(line for line in lines if not line.startswith(b"sublet["))
        differing = "\n".join(difflib.unified_diff(off.stdout.decode().splitlines(), on.stdout.decode().splitlines(), "plain",
                                                   "sublet, " + name, lineterm=""))
        self.assertEqual((on.returncode, rest), (off.returncode, off.stderr), differing)
        if on.stdout != off.stdout:
            self.fail(differing or "other ends of lines")

    def given_numbers(self, found, wanted):
        left = [expected.Process(p.managed(), p.peak(), p.live(), p.native()) for p in found]
        self.assertEqual(len(left), len(wanted), left)
        for page, got, process in zip(found, left, wanted):
            self.assertEqual(got, process, page.comm)
            self.assertEqual(page.active, 1)
            self.assertEqual(page.unknown, 0, "a look-up was answered with a pointer that Sublet does not know")
            if page.live() == 0:
                self.assertEqual(sum(d.requested_bytes for d in page.device), 0)

    def given_program(self, program):
        if program.skip:
            self.skipTest(program.skip)
        if MEMCHECK and program.name in NOT_UNDER_MEMCHECK:
            self.skipTest(NOT_UNDER_MEMCHECK[program.name])
        off = self.given_plain(program)
        self.assertEqual(off.returncode, program.status, off)
        self.assertTrue(off.stdout, "a program that prints nothing compares nothing")
        on, found = self.given_sublet(program, "session", {})
        self.given_same(program, on, off, "as users run it")
        self.given_numbers(found, program.processes)
        for name, variables in expected.VARIANTS.items():
            if name in program.without or MEMCHECK:
                continue
            on, found = self.given_sublet(program, name, variables)
            self.given_same(program, on, off, name)
            self.assertEqual(len(found), len(program.processes), name)
            if any(p.managed for p in program.processes):
                self.assertGreater(sum(p.managed() for p in found), 0, name)


def _case(program):
    return lambda self: self.given_program(program)


for one in expected.PROGRAMS:
    setattr(OnOff, one.name, _case(one))

if __name__ == "__main__":
    harness.main()
