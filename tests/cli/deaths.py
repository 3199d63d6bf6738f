#!/usr/bin/env python3
"""What one process of a session, or its coordinator, does to the others by ending, by standing still, and by leaving a child behind.
That each message may be the last one is deaths_sweep.py's."""
import json
import os
import random
import signal
import struct
import subprocess
import time

import harness
import phases
import protocol
import session
import three
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


class Silent(three.Case):
    """A process that stands still: it answers nothing, reads nothing, and has not ended."""
    MIDDLE = 12  # of its messages: it has answered that it is held, and is asked to move, or is about to be

    def given_silent(self):
        """The trainer stands still in the middle of a change to the phase of the others."""
        self.given_three()
        self.members.pop("train").kill()
        self.given_all_joined()
        train = self.given_member("train", self.MIDDLE, signal.SIGSTOP)
        asked = self.given_asked("rollout")
        self.given_stopped(train.pid)
        return train, asked

    def given_all_as_before(self):
        for phase in ("rollout", "train"):
            self.given_changed(phase)
            self.given_true(phase)
        self.given_bytes_equal()

    def one_that_goes_on_in_time_costs_nothing_but_that_time(self):
        train, asked = self.given_silent()
        time.sleep(1)
        os.kill(train.pid, signal.SIGCONT)
        _, said = asked.communicate(timeout=60)
        self.assertEqual((asked.returncode, said), (0, ""))
        self.given_true("rollout")
        self.given_all_as_before()

    def one_that_is_killed_in_the_end_is_one_that_died(self):
        train, asked = self.given_silent()
        time.sleep(1)
        train.kill()
        del self.members["train"]
        _, said = asked.communicate(timeout=60)
        self.assertEqual((asked.returncode, said), (0, ""))
        self.given_true("rollout")
        self.given_all_as_before()

    def one_that_is_silent_for_long_is_given_up_and_comes_back(self):
        """Stopped when it is asked to shut its gate, so that the barrier need not wait for bytes that are half moved."""
        self.MIDDLE = 7
        train, asked = self.given_silent()
        _, said = asked.communicate(timeout=60)
        self.assertEqual(asked.returncode, 1)
        self.assertIn("pid %d (train): it does not answer (stopped, or very busy)" % train.pid, said)
        self.given_bytes_equal(["other"])
        os.kill(train.pid, signal.SIGCONT)
        self.given_all_as_before()


class Suspended(three.Case):
    """All processes of the session stand still and go on, as in a machine that is suspended. CLOCK_MONOTONIC, by which all deadlines
    are kept, stands still in a real suspend and goes on here, so this is the harder case: deadlines pass, and nobody could
    answer. It stands for 60 s, since what is shorter than that is over after 11 s too (the longest of these is AWAY_WAIT_MS, 10 s)
    but for the 30 s of a way back, which no message comes in; a move's 300 s are over in neither."""
    AWAY_S = 11

    def given_suspended(self, coordinator_first):
        self.given_three()
        self.members.pop("other").kill()
        self.given_all_joined()
        other = self.given_member("other", Silent.MIDDLE, signal.SIGSTOP)
        coordinator = self.given_status()["coordinator"]
        asked = self.given_asked("rollout")
        self.given_stopped(other.pid)  # so all are in the middle of a barrier
        pids = [coordinator, asked.pid, *(child.pid for child in self.members.values())]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.AWAY_S)
        for pid in pids if coordinator_first else reversed(pids):
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        asked.communicate(timeout=60)  # begun or given up, in words
        self.given_bytes_equal()
        self.given_changed("train")  # none, perhaps, and what had to be parked for the call above is so still
        self.given_changed("rollout")
        for phase in ("train", "rollout"):
            self.given_changed(phase)
            self.given_true(phase)

    def machine_that_wakes_the_coordinator_first(self):
        self.given_suspended(True)

    def machine_that_wakes_the_coordinator_last(self):
        self.given_suspended(False)


class Children(three.Case):
    def child_that_has_the_socket_hides_no_death(self):
        """It was made in a way that no fork handler sees. The process dies in the middle of a barrier; its end is that of its process,
        not of its connection."""
        self.given_three()
        self.members.pop("train").kill()
        self.given_all_joined()
        train = self.given_member("train", Silent.MIDDLE)
        child = int(self.given_said("train", "clone"))
        sockets = [fd for fd in os.listdir("/proc/%d/fd" % child) if os.readlink("/proc/%d/fd/%s" % (child, fd)).startswith("socket:")]
        self.assertEqual(len(sockets), 1)
        self.given_changed("rollout")
        self.assertEqual(train.wait(timeout=20), -signal.SIGKILL)
        del self.members["train"]
        os.kill(child, 0)  # it lives
        self.given_true("rollout")
        self.given_changed("train")
        self.given_true("train")
        self.given_bytes_equal()
        os.kill(child, signal.SIGKILL)


class AtOnce(three.Case):
    def two_commands(self):
        """Both phases begin, in some order; the one that began last is in force."""
        self.given_three()
        for _ in range(8):
            for asked in [self.given_asked("rollout"), self.given_asked("train")]:
                _, said = asked.communicate(timeout=60)
                self.assertEqual((asked.returncode, said), (0, ""))
            self.given_true(self.given_status()["phase"])
        self.given_bytes_equal()

    def two_commands_and_a_death(self):
        """In the first of the two barriers, which the second waits for."""
        self.given_three()
        self.members.pop("train").kill()
        self.given_all_joined()
        train = self.given_member("train", Silent.MIDDLE)
        for asked in [self.given_asked("rollout"), self.given_asked("train")]:
            _, said = asked.communicate(timeout=60)
            self.assertEqual((asked.returncode, said), (0, ""))
        self.given_changed("rollout" if self.given_status()["phase"] == "train" else "train")
        self.assertEqual(train.wait(timeout=20), -signal.SIGKILL)
        del self.members["train"]
        self.given_true(self.given_status()["phase"])
        self.given_bytes_equal()


class Devices(phases.Case):
    """Two devices, and processes of both that arrive at once at different phases."""

    def setUp(self):
        super().setUp()
        self.env["SUBLET_SIM_DEVICES"] = "2"

    def given_arrived(self, *arrivals):
        for child, phase in arrivals:
            self.given_told(child, "phase_" + phase)
        for child, _ in arrivals:
            self.assertEqual(child.stdout.readline().strip(), "0x0")

    def two_roles_on_two_devices(self):
        ranks = [self.given_maker("train", device) for device in "01"]
        for rank in ranks:
            self.given_said(rank, "load_weights")
        self.given_arrived((ranks[0], "train"), (ranks[1], "rollout"))
        for there, back in (("rollout", "train"), ("train", "rollout")) * 4:
            self.given_arrived((ranks[0], there), (ranks[1], back))
            for rank, phase in ((ranks[0], there), (ranks[1], back)):
                objects = self.given_json("objects", "--pid", str(rank.pid))
                self.assertEqual([where for row in objects if row["allocations"] for where, size in row["bytes"].items() if size],
                                 ["device" if phase == "train" else "host"])

    def death_on_one_device_while_the_other_changes(self):
        ranks = [self.given_maker("train", device) for device in "01"]
        for rank in ranks:
            self.given_said(rank, "load_weights")
        self.given_arrived((ranks[0], "train"), (ranks[1], "train"))
        self.given_told(ranks[0], "phase_rollout")
        self.given_told(ranks[1], "phase_rollout")
        ranks[0].kill()
        self.assertEqual(ranks[1].stdout.readline().strip(), "0x0")
        self.given_arrived((ranks[1], "train"))


class Cycles(three.Case):
    """100 changes of phase with deaths in between, at messages that nobody chose."""
    CYCLES, DEATHS = 100, 24

    def given_coordinator_struck(self, at):
        """In the place of the one that is there."""
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        got = self.sublet("serve", "--background", "--policy", self.policy, env=dict(self.env, SUBLET_TEST_STRIKE_AT=str(at)))
        self.assertEqual(got.returncode, 0, got)

        def all_joined():
            got = self.sublet("ctl", "status", "--json")
            return got.returncode or len(json.loads(got.stdout)["clients"]) == len(self.members)  # it has died at a status, too
        self.eventually(all_joined)

    def given_mended(self, phase):
        """Whoever has died is there again, and @phase in force for a full session. Its peers did not notice."""
        if self.sublet("ctl", "status").returncode:
            self.given_served()
        dead = [role for role, child in self.members.items() if child.poll() is not None]
        for role in dead:
            self.assertEqual(self.members.pop(role).returncode, -signal.SIGKILL)
        self.given_all_joined()
        for role in dead + [role for role in three.SIZES if role not in self.members and role not in dead]:
            # where it has room to begin
            self.given_changed("rollout" if role == "rollout" else "train")
            self.given_member(role)
        self.given_changed(phase)

    def hundred_with_deaths_at_random_leave_no_trace(self):
        seed = int(os.environ.get("SUBLET_TEST_SEED", random.randrange(1 << 32)))
        print("SUBLET_TEST_SEED=%d" % seed, flush=True)
        chance = random.Random(seed)
        at_death = set(chance.sample(range(self.CYCLES), self.DEATHS))
        self.given_three()
        self.given_changed("rollout")
        self.given_changed("train")
        self.given_true("train")
        deaths = 0
        for cycle in range(self.CYCLES):
            phase = "rollout" if cycle % 2 == 0 else "train"
            if cycle not in at_death:
                self.given_changed(phase)
                continue
            role = chance.choice([*three.SIZES, "coordinator"])
            at = chance.randrange(5, 100 if role == "coordinator" else 30)
            if role == "coordinator":
                self.given_coordinator_struck(at + 25)
            else:
                self.given_changed("rollout" if role == "rollout" else "train")
                self.members.pop(role).kill()
                self.given_all_joined()
                self.given_member(role, at)
            for each in ("train", "rollout", "train", "rollout")[cycle % 2:][:3]:
                self.sublet("phase", each)
            deaths += self.sublet("ctl", "status").returncode != 0 or any(child.poll() is not None for child in self.members.values())
            self.given_mended(phase)
        for phase in ("train", "rollout", "train"):
            self.given_changed(phase)
        self.given_true("train")
        # flat: what the dead left is used again, so there is never more than all have in host memory at once
        self.assertLessEqual(self.given_witness()[1], sum(three.TOTAL.values()))
        self.given_bytes_equal()
        self.assertGreater(deaths, self.DEATHS // 2)


if __name__ == "__main__":
    harness.main()
