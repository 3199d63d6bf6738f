#!/usr/bin/env python3
"""Host memory that is not enough for all at once: what one process keeps goes to another, and at a barrier two exchange their bytes
extent by extent. The processes are programs on the simulated driver that know nothing of Sublet."""
import phases
import harness
from session import MIB


class Case(phases.Case):
    def given_pool(self, mib, policy=phases.POLICY):
        with open(self.policy, "w") as text:
            text.write(policy.replace("host_pool: 2GiB", "host_pool: %dMiB" % mib))
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


if __name__ == "__main__":
    harness.main()
