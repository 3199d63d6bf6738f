"""phases_selftest.py STANDIN BUILD
phases.py tried on the simulated driver with programs that do wrong: each must be found, and none may take long. And mps.py with a
made-up daemon."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import mps

STANDIN, BUILD = sys.argv[1:3]
# Says what the stand-in is started with; $under is set under Sublet.
PROGRAM = """#!/bin/sh
case $LD_PRELOAD in *libsublet*) under=1 ;; esac
role=$1
{lines}
exec {standin} "$@"
"""
FAKE_CONTROL = """#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY" >{folder}/folders
[ "$1" = -d ] && exec echo started >{folder}/started
read word
echo "$word" >>{folder}/said
[ "$word" = get_server_list ] && echo 4711
[ "$word" = quit ] && echo bye >"$CUDA_MPS_LOG_DIRECTORY/control.log"
exit 0
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else self.made()

    def made(self):  # Python before 3.11
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name


class Wrong(Case):
    def found(self, lines, *words, seconds=60):
        """(exit status, table) with a stand-in before whose start @lines are run."""
        program = os.path.join(self.folder, "program")
        write_program(program, PROGRAM.format(lines=lines, standin=STANDIN))
        argv = [sys.executable, os.path.join(HERE, "phases.py"), "--sim", program, "--build", BUILD, "--iterations", "3"]
        got = subprocess.run(argv + ["--seconds", str(seconds), *words], capture_output=True, text=True, timeout=120, check=False)
        return got.returncode, got.stdout + got.stderr

    def test_nothing_wrong_passes(self):
        status, text = self.found("")
        self.assertEqual(status, 0, text)
        self.assertIn("5 passed, 0 failed", text)

    def test_other_results_under_sublet_fail(self):
        status, text = self.found('[ "$under" ] && [ $role = train ] && shift 2 && set -- train . weights=4194304 "$@"')
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"train, 3 iterations with Sublet +1 runs: 2 differ +FAIL: 'results'")
        self.assertRegex(text, r"rollout, 3 iterations with Sublet +1 runs: identical +pass")

    def test_results_that_plain_runs_do_not_repeat_fail(self):
        mark = os.path.join(self.folder, "mark")
        first = f"[ $role = rollout ] && ! mkdir {mark} 2>/dev/null"
        status, text = self.found(first + ' && shift 2 && set -- rollout . weights=4194304 "$@"')
        self.assertEqual(status, 1, text)
        self.assertIn("plain runs differ among themselves in 'results'", text)

    def test_ranges_that_nobody_sees_fail(self):
        status, text = self.found("unset NVTX_INJECTION64_PATH")
        self.assertEqual(status, 1, text)
        self.assertIn("train, with Sublet: moments 16777216; phase rollout is in force", text)

    def test_objects_that_the_policy_does_not_know_fail(self):
        status, text = self.found('[ "$under" ] && [ $role = rollout ] && shift 2 && set -- rollout . kv_cache=18874368 "$@"')
        self.assertEqual(status, 1, text)
        self.assertIn("'kv_cache' has 0 allocations, 0 bytes; it should be 1 of 20971520", text)

    def test_room_for_both_fails(self):
        status, text = self.found("", "--left", "0.06")
        self.assertEqual(status, 1, text)
        self.assertIn("do not have room for one of 26.0 MiB and 34.0 MiB only", text)

    def test_program_that_ends_early_is_reported(self):
        status, text = self.found('[ "$under" ] && [ $role = rollout ] && echo "driver trouble" >&2 && exit 1')
        self.assertEqual(status, 1, text)
        self.assertIn("rollout, with Sublet worker ended early", text)
        self.assertIn("driver trouble", text)

    def test_program_that_hangs_is_bounded(self):
        begin = time.monotonic()
        status, text = self.found('[ "$under" ] && exec sleep 100', seconds=8)
        self.assertEqual(status, 1, text)
        self.assertIn("no answer within", text)
        self.assertLess(time.monotonic() - begin, 60)


class Daemon(Case):
    def setUp(self):
        super().setUp()
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = self.folder + os.pathsep + path
        self.control = os.path.join(self.folder, mps.CONTROL)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def test_it_is_started_and_quit_in_folders_of_its_own(self):
        write_program(self.control, FAKE_CONTROL.format(folder=self.folder))
        before = dict(os.environ)
        with mps.Mps() as daemon:
            pipe, log = self.read("folders").split()
            self.assertEqual((os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]), (pipe, log))
            self.assertTrue(os.path.isdir(pipe) and os.path.isdir(log))
            self.assertEqual(daemon.clients(), "4711")
        self.assertEqual(self.read("said").split(), ["get_server_list", "quit"])
        self.assertIn("bye", daemon.log)
        self.assertEqual(dict(os.environ), before)
        self.assertFalse(os.path.exists(pipe))

    def test_one_that_does_not_start_leaves_nothing(self):
        write_program(self.control, "#!/bin/sh\nexit 3\n")
        before = dict(os.environ)
        with self.assertRaisesRegex(OSError, "ends with 3"), contextlib.ExitStack() as stack:
            stack.enter_context(mps.Mps())
        self.assertEqual(dict(os.environ), before)

    def test_where_there_is_none_one_line_says_so(self):
        os.environ["PATH"] = self.folder
        argv = [sys.executable, os.path.join(HERE, "phases.py"), "--mps", "--build", BUILD]
        got = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((got.returncode, got.stdout, got.stderr), (77, "skip: no 'nvidia-cuda-mps-control'\n", ""))


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
    bad = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
