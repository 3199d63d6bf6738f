#!/usr/bin/env python3
"""Host memory that is not enough for all at once: what one process keeps goes to another, and at a barrier two exchange their bytes
extent by extent. The processes are programs on the simulated driver that know nothing of Sublet."""
import phases
import harness
from session import MIB


class Case(phases.Case):
    policy_text = phases.POLICY

    def given_pool(self, mib):
        with open(self.policy, "w") as text:
            text.write(self.policy_text.replace("host_pool: 2GiB", "host_pool: %dMiB" % mib))
        self.sublet("ctl", "stop")
        self.given_served()

    def given_ctl(self, *words):
        got = self.sublet("ctl", *words)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)


class Kept(Case):
    def host_memory_that_one_process_keeps_is_anothers_when_it_needs_it(self):
        self.given_pool(160)
        train, rollout = self.given_holder((100, 40), "--role", "train"), self.given_holder((80, 40, 8), "--role", "rollout")
        for _ in range(3):
            for role, moved, other in (("train", 140, rollout), ("rollout", 128, train)):
                self.given_ctl("offload", "--all", "--role", role)
                places = self.given_places()
                self.assertEqual(sum(row.get("host", 0) for row in places.values()), moved, places)
                self.given_ctl("restore", "--all", "--role", role)
                self.assertEqual(other.say("check"), "same bytes")
        status = self.given_status()
        self.assertLessEqual(status["host_pool"]["used_bytes"], 160 * MIB)
        self.assertEqual((train.say("check"), rollout.say("check")), ("same bytes", "same bytes"))

    def two_that_need_at_once_what_the_other_keeps(self):
        self.given_pool(200)
        one, other = self.given_holder((96, 100), "--role", "train"), self.given_holder((60,) * 3, "--role", "rollout")
        for _ in range(2):
            self.given_ctl("offload", "train_state", "--pid", str(one.pid))
            self.given_ctl("restore", "--all")
            self.given_ctl("offload", "rollout_weights")
            self.given_ctl("restore", "--all")
        self.assertEqual((one.say("check"), other.say("check")), ("same bytes", "same bytes"))


class Full(Case):
    """A device of 1 GiB and a host pool that holds what one of the two has, and a little."""

    def given_two(self, pool, train, rollout, *sim):
        self.given_pool(pool)
        holders = [self.given_holder(train, *sim, "--role", "train")]
        self.given_phase("rollout")
        holders.append(self.given_holder(rollout, *sim, "--role", "rollout"))
        return holders

    def given_swapped(self, holders, here, there):
        for phase in ("train", "rollout"):
            moved = self.given_phase(phase)
            self.assertEqual({row["step"] for row in moved["moves"]}, {"exchange"}, moved)
            self.assertEqual(self.given_places(), here if phase == "train" else there)
        for holder in holders:
            self.assertEqual(holder.say("check"), "same bytes")

    def full_pool_with_a_feasible_exchange(self):
        """Neither memory has room for all that changes places, one extent has."""
        train, rollout = (300, 260, 60), (60, 60, 60, 60, 60, 60, 60, 60)
        holders = self.given_two(780, train, rollout)
        self.given_swapped(holders, {"rollout_weights": {"host": 480}, "train_state": {"device": 620}},
                           {"rollout_weights": {"device": 480}, "train_state": {"host": 620}})
        self.assertLessEqual(self.given_status()["host_pool"]["used_bytes"], 780 * MIB)

    def given_refused(self, holders, there, *parts):
        self.assertEqual(self.given_places(), there)
        got = self.sublet("phase", "train")
        self.assertEqual((got.returncode, got.stdout), (1, ""), got)
        for part in ("phase 'train' does not begin: pid ", *parts):
            self.assertIn(part, got.stderr)
        self.assertEqual(self.given_places(), there)
        for holder in holders:
            self.assertEqual(holder.say("check"), "same bytes")

    def full_pool_without_one(self):
        """Said before anything has moved or is discarded, with what is missing and who needs it."""
        holders = self.given_two(300, (100,), (60,) * 10 + (200,))
        self.given_refused(holders, {"rollout_weights": {"device": 600}, "kv_cache": {"device": 200}, "train_state": {"host": 100}},
                           "pid %d (rollout): 600.00 MiB have to go to the host pool in all" % holders[1].pid,
                           "200.00 MiB of its 300.00 MiB; raise host_pool or SUBLET_HOST_POOL")

    def room_for_no_extent_at_all(self):
        holders = self.given_two(510, (250, 250), (60,) * 8, "--sim=520MiB")
        self.given_refused(holders, {"rollout_weights": {"device": 480}, "train_state": {"host": 500}},
                           "too little to exchange even one extent")

    def capacity_that_has_no_room_for_what_comes(self):
        """Though the device has."""
        self.policy_text = phases.POLICY.replace("host_pool:", "capacity: 700MiB\nhost_pool:")
        holders = self.given_two(2000, (500,), (300, 40))
        third = self.given_holder((300,))
        self.given_refused(holders, {"rollout_weights": {"device": 40}, "kv_cache": {"device": 300}, "train_state": {"host": 500},
                                     "defaults": {"device": 300}},
                           "pid %d (train): 500.00 MiB come to the device in all, 340.00 MiB leave it and 60.00 MiB are free" % holders[0].pid)
        third.end()
        self.given_phase("train")
        self.assertEqual(holders[0].say("check"), "same bytes")

    def device_that_has_no_room_for_what_comes(self):
        """Native memory of a third process is in the way; what could be discarded is as it was."""
        holders = self.given_two(2000, (500,), (300, 40))
        third = self.given_holder((560,))
        self.given_refused(holders, {"rollout_weights": {"device": 40}, "kv_cache": {"device": 300}, "train_state": {"host": 500},
                                     "defaults": {"device": 560}},
                           "pid %d (train): 500.00 MiB come to the device in all, 340.00 MiB leave it" % holders[0].pid)
        third.end()
        self.given_phase("train")


if __name__ == "__main__":
    harness.main()
