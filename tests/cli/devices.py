#!/usr/bin/env python3
"""A barrier is about the devices of who began it: ranks elsewhere go on, and a process on two devices ties them together. Two devices of
the simulated driver, one trainer and one rollout process on each."""
import harness
import phases


class Devices(phases.Case):
    def setUp(self):
        super().setUp()
        self.env["SUBLET_SIM_DEVICES"] = "2"

    def given_ranks(self):
        ranks = [self.given_maker("train", device) for device in "01"]
        for rank in ranks:
            self.given_said(rank, "load_weights")
        return ranks

    def given_where(self, child):
        objects = self.given_json("objects", "--pid", str(child.pid))
        return [where for row in objects if row["allocations"] for where, size in row["bytes"].items() if size]

    def ranks_on_other_devices_are_not_waited_for(self):
        """As pipeline ranks need it that wait for each other: the first has arrived before the second can go on."""
        first, second = self.given_ranks()
        for rank in (first, second):
            self.assertEqual(self.given_said(rank, "phase_train"), "0x0")
        for phase, where in (("rollout", "host"), ("train", "device")):
            before = "device" if where == "host" else "host"
            self.assertEqual(self.given_said(first, "phase_" + phase), "0x0")
            self.assertEqual((self.given_where(first), self.given_where(second)), ([where], [before]))
            self.assertEqual(sorted(row["phase"] for row in self.given_status()["devices"]), ["rollout", "train"])
            self.assertRegex(self.sublet("ctl", "status").stdout, r"(?m)^device .*; phase %s$" % ("train" if where == "host" else "rollout"))
            self.assertEqual(self.given_said(second, "phase_" + phase), "0x0")
            self.assertEqual((self.given_where(first), self.given_where(second)), ([where], [where]))

    def ranks_on_one_device_are_waited_for(self):
        first, second = self.given_maker("train", "1"), self.given_maker("train", "1")
        for rank in (first, second):
            self.given_said(rank, "load_weights")
        # from the second time on: before it is not known who arrives
        for rank in (first, second):
            self.assertEqual(self.given_said(rank, "phase_rollout"), "0x0")
        self.given_told(first, "phase_train")
        for _ in range(20):
            self.assertEqual((self.given_status()["phase"], self.given_where(first)), ("rollout", ["host"]))
        self.assertEqual(self.given_said(second, "phase_train"), "0x0")
        self.assertEqual(first.stdout.readline().strip(), "0x0")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["device"], ["device"]))

    def command_is_for_all_devices(self):
        first, second = self.given_ranks()
        self.given_phase("rollout")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["host"], ["host"]))
        self.assertEqual(self.given_said(first, "phase_train"), "0x0")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["device"], ["host"]))
        # one device is there already, the other is not
        self.given_phase("train")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["device"], ["device"]))

    def process_on_two_devices_is_held_with_both(self):
        first, second = self.given_ranks()
        self.given_maker("rollout", "0,1")
        self.assertEqual(self.given_said(first, "phase_rollout"), "0x0")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["host"], ["host"]))

    def process_on_no_device_is_told_what_began_last(self):
        """It was when it joined, and has no device yet whose phase could be another's."""
        idle, elsewhere = self.given_double(), self.given_double(device=b"another device's")
        self.assertEqual(self.given_said(self.given_maker("train"), "phase_rollout"), "0x0")
        self.eventually(lambda: idle.phases[-1] == (1, 0))
        self.assertEqual(elsewhere.phases, [(0, 0xffffffff)])

    def what_a_process_elsewhere_keeps_counts_as_room(self):
        with open(self.policy, "w") as text:
            text.write(phases.POLICY.replace("host_pool: 2GiB", "host_pool: 60MiB"))
        self.sublet("ctl", "stop")
        self.given_served()
        first, second = self.given_ranks()
        for verb in ("offload", "restore"):
            got = self.sublet("ctl", verb, "--all", "--pid", str(second.pid))
            self.assertEqual(got.returncode, 0, got)
        self.assertEqual(self.given_said(first, "phase_rollout"), "0x0")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["host"], ["device"]))


if __name__ == "__main__":
    harness.main()
