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
            self.assertEqual(self.given_said(rank, "phase_train"), "0x0")
        self.given_told(first, "phase_rollout")
        self.assertEqual(self.given_where(first), ["device"])
        self.assertEqual(self.given_said(second, "phase_rollout"), "0x0")
        self.assertEqual(first.stdout.readline().strip(), "0x0")
        self.assertEqual((self.given_where(first), self.given_where(second)), (["host"], ["host"]))

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


if __name__ == "__main__":
    harness.main()
