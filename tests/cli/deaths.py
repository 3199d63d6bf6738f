#!/usr/bin/env python3
"""What one process of a session, or its coordinator, does to the others by ending, by standing still, and by leaving a child behind.
That each message may be the last one is deaths_sweep.py's."""
import os
import signal
import struct
import subprocess
import threading
import time

import harness
import phases
import protocol
import session
from session import MIB, ProcessPeer

UUID = b"sublet-sim-0000\0"  # of the first simulated device


def needs(leaves_mib):
    """struct message_needs of a process that has so much on the device, all of which leaves."""
    devices = struct.pack("<II16s", 1, 0, UUID).ljust(len(protocol.DEVICES), b"\0")
    return (devices + struct.pack("<QQQQ", 0, leaves_mib * MIB, 0, 0)).ljust(len(protocol.NEEDS), b"\0")


class Room(phases.Case):
    """A process that is killed is seen to be gone before all that it had is free."""

    def given_waiting(self, phase):
        child = subprocess.Popen([harness.EXE, "phase", phase], env=self.env, cwd=self.folder, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def given_begun(self, waiting):
        _, said = waiting.communicate(timeout=60)
        self.assertEqual((waiting.returncode, said), (0, ""))

    def device_memory_of_who_died_in_a_move_is_waited_for(self):
        train = self.given_holder((500,), "--role", "train")
        self.given_phase("rollout")
        # stands for what the dead one had: no part of the session, on the same machine
        env = dict(self.env, LD_LIBRARY_PATH=harness.SIM_FOLDER, SUBLET_SIM_CAPACITY=str(1024 * MIB),
                   SUBLET_SIM_MACHINE=os.path.join(self.session, "sim"))
        had = subprocess.Popen([session.HOLDER, "700"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(had)
        self.assertEqual(had.stdout.readline(), "ready\n")
        double = self.given_double(b"rollout", PLAN=MIB, RELEASE="dies")
        double.needs = needs(700)
        waiting = self.given_waiting("train")
        self.eventually(lambda: "RELEASE" in double.asked)
        time.sleep(0.5)
        had.kill()
        self.given_begun(waiting)
        self.assertEqual(self.given_places(), {"train_state": {"device": 500}})
        self.assertEqual(train.say("check"), "same bytes")

    def host_memory_of_who_is_about_to_end_is_waited_for(self):
        with open(self.policy, "w") as text:
            text.write(phases.POLICY.replace("host_pool: 2GiB", "host_pool: 200MiB"))
        self.sublet("ctl", "stop")
        self.given_served()
        train = self.given_holder((64,), "--role", "train")
        dying = ProcessPeer(self.session)
        dying.join(peer=protocol.CLIENT, host_bytes=190 * MIB)
        dying.hang_up()
        self.given_log_has("pid %d has left" % dying.child.pid)
        waiting = self.given_waiting("rollout")
        time.sleep(0.7)
        self.assertIsNone(waiting.poll())
        dying.close()
        self.given_begun(waiting)
        self.assertEqual(self.given_places(), {"train_state": {"host": 64}})
        self.assertEqual(train.say("check"), "same bytes")


if __name__ == "__main__":
    harness.main()
