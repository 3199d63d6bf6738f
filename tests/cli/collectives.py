#!/usr/bin/env python3
"""Barriers among processes that wait for each other outside Sublet's sight: halves of a collective in two processes, of which one is
launched and the other not, and ranks that have long work of their own. Nobody hangs, and the phase begins."""
import os
import subprocess
import sys

import harness
import phases

HERE = phases.HERE
POLICY = phases.POLICY.replace("barrier: {timeout: 2s}", "barrier: {timeout: 40s}")


class Collectives(phases.Case):
    def setUp(self):
        super().setUp()
        with open(self.policy, "w") as text:
            text.write(POLICY)
        self.sublet("ctl", "stop")
        self.given_served()
        self.shared = os.path.join(self.folder, "shared")
        with open(self.shared, "wb") as file:
            file.write(bytes(4096))
        self.ranks = [self.given_rank(number) for number in (0, 1)]

    def given_rank(self, number):
        words = [harness.EXE, "run", "--session", self.session, "--sim=1GiB", "--role", "train", "--", sys.executable,
                 os.path.join(HERE, "rank.py"), self.shared, str(number)]
        child = subprocess.Popen(words, env=self.env, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=open(os.path.join(self.folder, "rank.err"), "a"), text=True)
        self.children.append(child)
        self.assertEqual(child.stdout.readline().strip(), "ready")
        return child

    def given_command(self, phase):
        child = subprocess.Popen([harness.EXE, "phase", phase], env=self.env, cwd=self.folder, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def given_through(self, phase, where):
        self.eventually(lambda: self.given_status()["phase"] == phase, "phase %s" % phase, 40)
        self.assertEqual(self.given_places(), {"train_state": {where: 32}})

    def halves_of_a_collective_on_the_two_sides_of_a_hold(self):
        one, other = self.ranks
        self.assertEqual(self.given_said(one, "half"), "launched")
        waiting = self.given_command("rollout")
        self.eventually(lambda: self.given_status()["next_phase"] == "rollout")
        # in front of a shut gate or of an open one: it goes through at a reopening at the latest
        self.assertEqual(self.given_said(other, "half"), "launched")
        for rank in self.ranks:
            self.assertEqual(self.given_said(rank, "wait"), "0")
        out, err = waiting.communicate(timeout=60)
        self.assertEqual((waiting.returncode, err), (0, ""), out)
        self.given_through("rollout", "host")

    def rank_that_has_arrived_before_it_launched_its_half(self):
        one, other = self.ranks
        self.assertEqual(self.given_said(one, "half"), "launched")
        # its own arrival is a quorum, and the device does not come to rest before it goes on
        self.assertEqual(self.given_said(other, "phase_rollout"), "0x0")
        self.assertEqual(self.given_said(other, "half"), "launched")
        for rank in self.ranks:
            self.assertEqual(self.given_said(rank, "wait"), "0")
        self.given_through("rollout", "host")

    def rank_in_a_long_phase_without_the_device_is_not_waited_for(self):
        """It makes no gated call: its bytes leave and come back, and it finds them as they were."""
        self.given_phase("rollout")
        self.assertEqual(self.given_places(), {"train_state": {"host": 32}})
        self.given_phase("train")
        for rank in self.ranks:
            self.assertEqual(self.given_said(rank, "compute"), "0x5eed")

    def held_rank_that_is_told_to_compute_finds_its_bytes(self):
        """As an engine that sleeps, into which a trainer pushes weights: awake within seconds, slow at worst, and right."""
        self.given_phase("rollout")
        for rank in self.ranks:
            self.assertEqual(self.given_said(rank, "compute"), "0x5eed")
        self.assertEqual(self.given_places(), {"train_state": {"parked": 32}})
        self.given_phase("train")
        self.assertEqual(self.given_places(), {"train_state": {"device": 32}})

    def launched_half_whose_other_half_never_comes_gives_the_barrier_up(self):
        """By its timeout, with who was in the way; the phase that was goes on."""
        one, other = self.ranks
        self.assertEqual(self.given_said(one, "half"), "launched")
        got = self.sublet("phase", "rollout", "--timeout", "2")
        self.assertEqual(got.returncode, 1, got)
        self.assertIn("phase 'rollout' does not begin: pid %d (train)" % one.pid, got.stderr)
        self.assertEqual(self.given_places(), {"train_state": {"device": 32}})
        self.assertEqual(self.given_said(other, "half"), "launched")
        for rank in self.ranks:
            self.assertEqual(self.given_said(rank, "wait"), "0")


if __name__ == "__main__":
    harness.main()
