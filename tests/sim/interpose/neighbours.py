"""tests/sim/interpose/neighbours.py
A program run twice, plainly and with Sublet preloaded among others: the same output, and Sublet served in the second."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["SUBLET_TEST_SOURCE"], "tests/cli"))
import harness  # noqa: E402 (found by the line above)

FOLDER = os.environ["SUBLET_TEST_INTERPOSE"]


class Case(harness.Case):
    def path(self, name):
        return os.path.join(FOLDER, name)

    def run_program(self, *words, preload=(), driver=harness.SIM_FOLDER, **environment):
        env = dict(self.env, LD_LIBRARY_PATH=driver, SUBLET_SIM_CAPACITY="1GiB", **environment)
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        return subprocess.run([self.path(words[0]), *words[1:]], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, cwd=self.folder)

    def run_with_sublet(self, *words, front=(), behind=(), library=harness.LIBRARY, **more):
        session = os.path.join(self.folder, "session")
        os.makedirs(session, mode=0o700, exist_ok=True)
        more.setdefault("SUBLET_LOG", "stats:info")
        return self.run_program(*words, preload=[*front, library, *behind], SUBLET_SESSION=session, **more)

    def assert_served(self, stderr, allocations=1):
        """@allocations were managed, at least."""
        found = re.search(r"device 0: managed ([\d.]+) [KMG]iB peak in (\d+) allocation", stderr)
        self.assertTrue(found, stderr)
        self.assertGreater(float(found.group(1)), 0, stderr)
        self.assertGreaterEqual(int(found.group(2)), allocations, stderr)

    def same_with_and_without(self, *words, front=(), behind=(), library=harness.LIBRARY, allocations=1, **more):
        """Returns what the program prints; self.plain_stderr and self.stderr are what it and its neighbours say."""
        plain = self.run_program(*words, preload=[*front, *behind], **more)
        with_sublet = self.run_with_sublet(*words, front=front, behind=behind, library=library, **more)
        self.plain_stderr, self.stderr = plain.stderr, with_sublet.stderr
        self.assertEqual((plain.returncode, plain.stdout), (with_sublet.returncode, with_sublet.stdout),
                         plain.stderr + with_sublet.stderr)
        self.assertEqual(plain.returncode, 0, plain)
        self.assert_served(with_sublet.stderr, allocations)
        return plain.stdout
