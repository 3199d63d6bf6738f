#!/usr/bin/env python3
"""deaths_sweep.py CASE...: one party of a session of three processes is killed at each of its messages, one after the other: before it
sends the first, after it has received the second, and so on until two phase changes there and back need no more of them. After
each death the others go on with equal bytes, the ledger is the machine's, no gate stays shut, and phases change again."""
import itertools
import os
import select
import signal
import subprocess
import time

import harness
import three

CHANGES = ("rollout", "train") * 2


class Clients(three.Case):
    """The same coordinator and the same two others through all of it, so what one death leaves behind meets the next."""

    def given_round(self, role, at):
        """@role joins, and dies. True: it had fewer messages than that."""
        survivors = [other for other in self.members if other != role]
        home = "rollout" if role == "rollout" else "train"
        if home == "rollout":
            self.given_changed("rollout")
        child = self.given_member(role, at)
        for phase in CHANGES:
            self.given_changed(phase)
        through = child.poll() is None and role in self.members
        if through:
            child.kill()
        self.assertEqual(child.wait(timeout=60), -signal.SIGKILL)
        self.members.pop(role, None)
        self.given_all_joined()
        for phase in CHANGES[:2]:
            self.given_changed(phase)
            self.given_true(phase)
            self.given_bytes_equal([other for other in survivors if three.WHERE[phase][other] != "host"])
        return through

    def given_sweep(self, role):
        self.given_three()
        self.members.pop(role).kill()
        self.given_all_joined()
        for at in itertools.count(1):
            try:
                if self.given_round(role, at):
                    break
            except AssertionError as error:
                raise AssertionError("%s at its message %d" % (role, at)) from error
        print("%s was killed at each of %d messages" % (role, at - 1), flush=True)
        self.assertGreater(at, 30)

    def train(self):
        self.given_sweep("train")

    def rollout(self):
        self.given_sweep("rollout")

    def other(self):
        self.given_sweep("other")


class TightClients(Clients):
    """Host memory has room for what changes places extent by extent alone."""
    pool = three.TIGHT

    def tight_train(self):
        self.given_sweep("train")

    def tight_rollout(self):
        self.given_sweep("rollout")


class Coordinators(three.Case):
    """Each dies one message later than the one before. The same three processes live through all of them."""

    def given_struck(self, at):
        """A coordinator that dies at that message. It may have died before the processes came back to it."""
        env = dict(self.env, SUBLET_TEST_STRIKE_AT=str(at))
        child = subprocess.Popen([harness.EXE, "serve", "--policy", self.policy], env=env, cwd=self.folder, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.children.append(child)
        joined = b""
        # a status would be messages of its own
        while joined.count(b" joins: ") < len(self.members):
            self.assertTrue(select.select([child.stderr], [], [], 30)[0], joined)
            part = os.read(child.stderr.fileno(), 65536)
            if not part:
                break
            joined += part
        return child

    def given_round(self, at):
        struck = self.given_struck(at)
        for phase in CHANGES:
            if struck.poll() is None:
                self.sublet("phase", phase)
        through = struck.poll() is None
        if through:
            struck.kill()
        self.assertEqual(struck.wait(timeout=60), -signal.SIGKILL)
        self.children.remove(struck)
        struck.stderr.close()
        # with nobody to ask
        self.given_bytes_equal()
        self.given_served()
        self.given_all_joined()
        for phase in CHANGES[:2]:
            self.given_changed(phase)
            self.given_true(phase)
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        return through

    def given_sweep(self, first, step):
        self.given_three()
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        for at in itertools.count(first, step):
            try:
                if self.given_round(at):
                    break
            except AssertionError as error:
                raise AssertionError("the coordinator at its message %d" % at) from error
        print("coordinators were killed at each of messages %d, %d ... %d" % (first, first + step, at - step), flush=True)
        self.assertGreater(at, 100)

    def coordinator_odd(self):
        self.given_sweep(1, 2)

    def coordinator_even(self):
        self.given_sweep(2, 2)


class TightCoordinators(Coordinators):
    pool = three.TIGHT

    def tight_coordinator_odd(self):
        self.given_sweep(1, 2)

    def tight_coordinator_even(self):
        self.given_sweep(2, 2)


if __name__ == "__main__":
    harness.main()
