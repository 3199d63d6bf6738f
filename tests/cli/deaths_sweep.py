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


if __name__ == "__main__":
    harness.main()
