"""tests/cli/harness.py
What the tests of the command share: where things are (from meson, by environment), a run in a clean environment, a folder
that is kept when a test fails. A case is a method named <subject>_<situation>_<outcome>."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["SUBLET_TEST_SOURCE"]
EXE = os.environ["SUBLET_TEST_EXE"]
LIBRARY = os.environ["SUBLET_TEST_LIBRARY"]
BUILD = os.environ["SUBLET_TEST_BUILD"]
SIM_FOLDER = os.environ["SUBLET_TEST_SIM_FOLDER"]
COMPILER = os.environ["SUBLET_TEST_COMPILER"]
PAGE_WRITER = os.environ["SUBLET_TEST_PAGE_WRITER"]
FORKER = os.environ["SUBLET_TEST_FORKER"]
SANITIZE = os.environ["SUBLET_TEST_SANITIZE"]  # the option b_sanitize, of the command too

# What a developer's shell may have set and what would change the outcome.
UNWANTED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "POSIXLY_CORRECT")


def uninstrumented(reason):
    """For a case that a command built with a sanitizer cannot go through, whatever is right or wrong with it."""
    return unittest.skipIf(SANITIZE != "none", reason)


class Case(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sublet-test-")
        self.env = {k: v for k, v in os.environ.items() if k not in UNWANTED and not k.startswith("SUBLET_")}
        self.env["XDG_RUNTIME_DIR"] = self.folder
        self.env["LC_ALL"] = "C"

    def tearDown(self):
        failures = [case for case, trace in self._outcome_failures() if trace]
        if failures:
            print("kept: %s" % self.folder, file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _outcome_failures(self):
        outcome = self._outcome
        if hasattr(outcome, "errors"):  # Python before 3.11
            return [(c, e) for c, e in outcome.errors if c is self]
        result = outcome.result
        return [(c, t) for c, t in result.failures + result.errors if c is self]

    def sublet(self, *words, exe=EXE, **more):
        more.setdefault("env", self.env)
        more.setdefault("timeout", 60)
        more.setdefault("cwd", self.folder)
        return subprocess.run([exe, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, **more)

    def refuses(self, status, text, *words, **more):
        """One line on stderr that starts `sublet: error: ` and has @text, nothing on stdout, exit @status."""
        got = self.sublet(*words, **more)
        self.assertEqual(got.returncode, status, got)
        self.assertEqual(got.stdout, "", got)
        self.assertTrue(got.stderr.startswith("sublet: error: "), got.stderr)
        self.assertEqual(got.stderr.count("\n"), 1, got.stderr)
        self.assertTrue(got.stderr.endswith("\n"), got.stderr)
        self.assertFalse(got.stderr.rstrip("\n").endswith("."), got.stderr)
        self.assertIn(text, got.stderr)
        return got


def forget_inherited_signals():
    """A caller's nohup or '&' leaves signals ignored, and a shell cannot trap those: cases would wait for them in vain."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own doing
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def main():
    forget_inherited_signals()
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]

    class Loader(unittest.TestLoader):
        # every public method of a case that is not part of unittest or the harness
        def getTestCaseNames(self, case):
            return sorted(n for n in vars(case) if not n.startswith("_") and callable(getattr(case, n)) and
                          n not in ("setUp", "tearDown") and not n.startswith("given_"))

    loader = Loader()
    suite = unittest.TestSuite()
    only = sys.argv[1:]
    for value in list(vars(module).values()):
        if isinstance(value, type) and issubclass(value, Case) and value is not Case:
            for name in loader.getTestCaseNames(value):
                if not only or name in only:
                    suite.addTest(value(name))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
