#!/usr/bin/env python3
"""Capacity, reserve and budget: what a process is told there is, what it may take, and what the others leave it. The processes are programs
on the simulated driver that know nothing of Sublet."""
import os
import signal
import struct
import subprocess
import sys
import time

import harness
import session
from protocol import CLIENT, message
from session import MIB, ProcessPeer

HERE = os.path.dirname(os.path.abspath(__file__))
OUT_OF_MEMORY = "error 2"  # CUDA_ERROR_OUT_OF_MEMORY
POLICY = """version: 1
host_pool: 2GiB
{more}
roles: [train, rollout]
phases:
  - {{name: rollout, roles: [rollout], idle: [train]}}
  - {{name: train, roles: [train], idle: [rollout]}}
triggers: [{{enter: rollout, command: true}}, {{enter: train, command: true}}]
objects:
  - {{name: kv_cache, match: {{role: rollout}}, class: regenerable, resident: [rollout], otherwise: discard, exclusive: true}}
  - {{name: train_state, match: {{role: train}}, class: permanent, resident: [train], otherwise: offload}}
"""
UUID = b"sublet-sim-0000\0"


def parked(policy):
    """Nobody is held: what leaves the device is reached where it is."""
    return policy.replace("otherwise: discard, exclusive: true", "otherwise: park").replace("otherwise: offload", "otherwise: park")


class Case(session.Case):
    def given_policy(self, more, change=lambda text: text, env=None):
        with open(self.policy, "w") as text:
            text.write(change(POLICY.format(more=more)))
        return self.given_served(env=env)

    def given_taker(self, role=None, sim="1GiB", env=None):
        words = [harness.EXE, "run", "--session", self.session, "--sim=" + sim, *(["--role", role] if role else []), "--",
                 sys.executable, os.path.join(HERE, "taker.py")]
        child = subprocess.Popen(words, env=env or self.env, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=open(os.path.join(self.folder, "taker.err"), "a"), text=True)
        self.children.append(child)
        self.assertEqual(child.stdout.readline().strip(), "ready", self.given_errors())
        return child

    def given_said(self, child, word):
        child.stdin.write(word + "\n")
        child.stdin.flush()
        return child.stdout.readline().strip()

    def given_ended(self, child):
        child.stdin.close()
        self.assertEqual(child.wait(timeout=60), 0, self.given_errors())

    def given_errors(self):
        with open(os.path.join(self.folder, "taker.err")) as text:
            return text.read()

    def given_phase(self, name):
        got = self.sublet("phase", name)
        self.assertEqual(got.returncode, 0, got)

    def given_info(self, child):
        free, total = map(int, self.given_said(child, "info").split())
        return free, total


class Budget(Case):
    def memory_info_and_totals_speak_of_it_in_all_their_forms(self):
        self.given_policy("budget: {rollout: 600MiB}")
        rollout = self.given_taker("rollout")
        for word, wanted in (("info", "600 600"), ("old", "600 600"), ("total", "600"), ("oldtotal", "600")):
            self.assertEqual(self.given_said(rollout, word), wanted, word)
        self.assertEqual(self.given_said(rollout, "take 100"), "taken")
        self.assertEqual(self.given_said(rollout, "native 10"), "taken")
        self.assertEqual((self.given_said(rollout, "info"), self.given_said(rollout, "old")), ("490 600", "490 600"))
        self.assertEqual(self.given_said(rollout, "put 0"), "freed")
        self.assertEqual(self.given_info(rollout), (590, 600))

    def role_without_one_is_told_of_the_device(self):
        self.given_policy("budget: {rollout: 600MiB}")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "total"), "1024")
        self.assertEqual(self.given_said(train, "take 700"), "taken")
        self.assertEqual(self.given_info(train), (324, 1024))

    def percentage_is_of_the_device(self):
        self.given_policy("budget: {rollout: 25%}")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 56"), "taken")
        self.assertEqual(self.given_info(rollout), (200, 256))

    def larger_than_the_device_is_the_device(self):
        self.given_policy("budget: {rollout: 4TiB}")
        rollout = self.given_taker("rollout")
        self.assertEqual((self.given_info(rollout), self.given_said(rollout, "total")), ((1024, 1024), "1024"))
        self.assertEqual(self.given_said(rollout, "take 1000"), "taken")
        self.assertEqual(self.given_info(rollout), (24, 1024))

    def engine_sizes_itself_for_its_phase_while_another_is_half_released(self):
        """SCENARIOS 10: without a budget the engine gets half a cache, for ever."""
        self.given_policy("budget: {rollout: 800MiB}")
        train = self.given_taker("train")
        for _ in range(2):
            self.assertEqual(self.given_said(train, "take 300"), "taken")
        self.assertEqual(self.given_said(train, "put 0"), "freed")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_info(rollout), (800, 800))
        self.given_phase("rollout")
        self.assertEqual(self.given_info(rollout), (800, 800))
        self.assertEqual(self.given_said(rollout, "take 798"), "taken")
        self.given_phase("train")
        self.assertEqual(self.given_said(train, "check"), "same bytes")
        self.assertEqual(self.given_info(rollout), (2, 800))

    def roles_whose_budgets_exceed_the_device_each_have_theirs_in_turn(self):
        self.given_policy("budget: {rollout: 800MiB, train: 700MiB}")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 600"), "taken")
        self.given_phase("rollout")
        rollout = self.given_taker("rollout")
        self.assertEqual((self.given_info(train), self.given_info(rollout)), ((100, 700), (800, 800)))
        self.assertEqual(self.given_said(rollout, "take 780"), "taken")
        for _ in range(3):
            self.given_phase("train")
            self.assertEqual(self.given_said(train, "check"), "same bytes")
            self.given_phase("rollout")
        self.assertEqual((self.given_info(train), self.given_info(rollout)), ((100, 700), (20, 800)))
        self.given_ended(rollout)
        self.assertEqual(self.given_said(train, "check"), "same bytes")

    def allocation_beyond_it_is_plainly_out_of_memory_and_the_program_goes_on(self):
        self.given_policy("budget: {rollout: 300MiB}")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 200"), "taken")
        self.assertEqual(self.given_said(rollout, "take 101"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(rollout, "take 100"), "taken")
        self.assertEqual(self.given_said(rollout, "put 0"), "freed")
        self.assertEqual(self.given_said(rollout, "take 200"), "taken")
        self.assertEqual((self.given_said(rollout, "check"), self.given_info(rollout)), ("same bytes", (0, 300)))
        self.assertRegex(self.given_errors(), r"102.00 MiB of device 0 are more than the budget of role 'rollout' leaves: 300.00 MiB, of which "
                                              r"this process has 200.00 MiB managed and 0 B native; the program is told that it is out of memory")

    def all_that_memory_info_promises_can_be_taken(self):
        self.given_policy("budget: {rollout: 300MiB}")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 7"), "taken")
        self.assertEqual(self.given_said(rollout, "native 3"), "taken")
        free, _ = self.given_info(rollout)
        self.assertEqual(int(self.given_said(rollout, "fits")), free // 2)

    def free_memory_does_not_rise_without_a_free_of_its_own(self):
        """FRAMEWORKS 4c: engines assert it between two readings. Others free, move and end meanwhile, and so do its own moves."""
        self.given_policy("budget: {rollout: 500MiB}", parked)
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        self.assertEqual(self.given_said(train, "take 300"), "taken")
        readings = []

        def read():
            readings.append(self.given_info(rollout)[0])

        for step in (lambda: self.given_said(rollout, "take 100"), lambda: self.given_phase("rollout"), lambda: self.given_said(train, "put 0"),
                     lambda: self.given_phase("train"), lambda: self.given_said(rollout, "native 20"), lambda: self.given_phase("rollout"),
                     lambda: self.given_ended(train), lambda: self.given_said(rollout, "take 30")):
            read()
            step()
            read()
        self.assertEqual(readings, sorted(readings, reverse=True))
        self.assertEqual((readings[0], readings[-1]), (500, 350))


class Capacity(Case):
    def beyond_it_is_plainly_out_of_memory_and_a_free_of_another_makes_room(self):
        self.given_policy("capacity: 600MiB")
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        self.assertEqual(self.given_said(train, "take 400"), "taken")
        self.assertEqual(self.given_said(rollout, "take 201"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(rollout, "take 100"), "taken")
        self.assertEqual(self.given_said(rollout, "take 200"), OUT_OF_MEMORY)
        self.assertRegex(self.given_errors(), r"202.00 MiB of device 0 are refused: processes of the session have 400.00 MiB of the 600.00 MiB that the "
                                              r"policy's capacity leaves: pid \d+ \(train\) 400.00 MiB; the program is told that it is out of memory")
        self.assertEqual(self.given_said(train, "put 0"), "freed")
        self.assertEqual(self.given_said(rollout, "take 200"), "taken")
        self.assertEqual(self.given_said(rollout, "check"), "same bytes")

    def its_own_free_makes_room_at_once(self):
        self.given_policy("capacity: 300MiB")
        train = self.given_taker("train")
        for _ in range(20):
            self.assertEqual(self.given_said(train, "take 250"), "taken")
            self.assertEqual(self.given_said(train, "take 51"), OUT_OF_MEMORY)
            self.assertEqual(self.given_said(train, "put -1"), "freed")
            self.assertEqual(int(self.given_said(train, "fits")), 150)

    def reserve_is_not_given_to_managed_memory(self):
        self.given_policy("capacity: 600MiB\nreserve: 100MiB")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 501"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(train, "take 500"), "taken")
        self.assertEqual(self.given_said(train, "native 90"), "taken")

    def percentages_are_of_the_device(self):
        self.given_policy("capacity: 50%\nreserve: 25%")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 257"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(train, "take 256"), "taken")

    def credit_that_is_idle_is_had_from_others(self):
        """Slabs are larger than what is used of them; what one does not use another may."""
        self.given_policy("capacity: 600MiB")
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        for one, other in ((train, rollout), (rollout, train)) * 3:
            self.assertEqual(self.given_said(one, "take 550"), "taken")
            self.assertEqual(self.given_said(other, "take 60"), OUT_OF_MEMORY)
            self.assertEqual(self.given_said(one, "put -1"), "freed")

    def allocation_asks_the_session_once_for_many(self):
        self.given_policy("capacity: 80%")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 2"), "taken")
        device, = self.given_status()["devices"]
        self.assertEqual((device["used_bytes"] // MIB, device["credit_bytes"] // MIB), (2, 819))

    def each_device_has_its_own(self):
        self.env["SUBLET_SIM_DEVICES"] = "2"
        self.given_policy("capacity: 300MiB")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 300"), "taken")
        self.assertEqual(self.given_said(train, "device 1"), "current")
        self.assertEqual(self.given_said(train, "take 302"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(train, "take 300"), "taken")
        self.assertEqual([d["used_bytes"] // MIB for d in self.given_status()["devices"]], [300, 300])

    def client_that_dies_gives_its_credit_back(self):
        self.given_policy("capacity: 600MiB")
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        self.assertEqual(self.given_said(train, "take 500"), "taken")
        self.assertEqual(self.given_said(rollout, "take 200"), OUT_OF_MEMORY)
        train.send_signal(signal.SIGKILL)
        train.wait(timeout=20)
        self.eventually(lambda: len(self.given_status()["clients"]) == 1)
        self.assertEqual(self.given_said(rollout, "take 600"), "taken")

    def client_that_is_stopped_keeps_its_credit_and_holds_up_nobody(self):
        self.given_policy("capacity: 600MiB")
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        self.assertEqual(self.given_said(train, "take 100"), "taken")
        train.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.assertEqual(self.given_said(rollout, "take 200"), OUT_OF_MEMORY)
        self.assertLess(time.monotonic() - begun, 15)
        train.send_signal(signal.SIGCONT)
        self.assertEqual(self.given_said(rollout, "take 200"), "taken")


class Moves(Case):
    def what_a_barrier_moves_is_counted_and_not_refused(self):
        """500 and 400 MiB in a capacity of 600: in turn, with every byte."""
        self.given_policy("capacity: 600MiB")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 500"), "taken")
        self.given_phase("rollout")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 400"), "taken")
        for _ in range(3):
            self.given_phase("train")
            self.assertEqual(self.given_said(train, "check"), "same bytes")
            self.assertEqual([d["used_bytes"] // MIB for d in self.given_status()["devices"]], [500])
            self.assertEqual(self.given_said(train, "take 101"), OUT_OF_MEMORY)
            self.given_phase("rollout")
            self.assertEqual([d["used_bytes"] // MIB for d in self.given_status()["devices"]], [400])

    def more_than_the_capacity_comes_back_all_the_same(self):
        """A process that wakes out of turn: bytes that exist are not held back for a number."""
        self.given_policy("capacity: 600MiB", parked)
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 400"), "taken")
        self.given_phase("rollout")
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 400"), "taken")
        self.assertEqual(self.sublet("ctl", "restore", "--all").returncode, 0)
        self.assertEqual([d["used_bytes"] // MIB for d in self.given_status()["devices"]], [800])
        for one in (train, rollout):
            self.assertEqual((self.given_said(one, "check"), self.given_said(one, "take 2")), ("same bytes", OUT_OF_MEMORY))
        self.assertEqual(self.given_said(train, "put 0"), "freed")
        self.assertEqual(self.given_said(rollout, "take 200"), "taken")


class Coordinator(Case):
    def without_one_nothing_is_refused_and_one_line_says_so(self):
        pid = self.given_policy("capacity: 300MiB")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 300"), "taken")
        self.assertEqual(self.given_said(train, "take 100"), OUT_OF_MEMORY)
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: "joins when it can" in self.given_errors())
        for _ in range(3):
            self.assertEqual(self.given_said(train, "take 100"), "taken")
        self.assertEqual(self.given_errors().count("cannot be asked for device memory: nothing is refused meanwhile"), 1)

    def next_one_is_told_what_is_used(self):
        pid = self.given_policy("capacity: 300MiB")
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 300"), "taken")
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: "joins when it can" in self.given_errors())
        self.assertEqual(self.given_said(train, "take 100"), "taken")
        self.given_served()
        self.eventually(lambda: [d["credit_bytes"] // MIB for d in self.given_status()["devices"]] == [400])
        self.assertEqual(self.given_said(train, "take 2"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(train, "put 0"), "freed")
        self.assertEqual(self.given_said(train, "take 200"), "taken")

    def one_that_does_not_answer_refuses_nothing(self):
        pid = self.given_policy("capacity: 300MiB")
        train = self.given_taker("train")
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertEqual(self.given_said(train, "take 400"), "taken")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.eventually(lambda: [d["used_bytes"] // MIB for d in self.given_status()["devices"]] == [400])
        self.assertEqual(self.given_said(train, "take 2"), OUT_OF_MEMORY)
        self.assertEqual(self.given_said(train, "put 0"), "freed")
        self.assertEqual(self.given_said(train, "take 300"), "taken")

    def session_without_a_policy_has_no_limits(self):
        self.given_served(policy=False)
        train = self.given_taker("train")
        self.assertEqual(self.given_said(train, "take 1000"), "taken")
        self.assertEqual(self.given_info(train), (24, 1024))


class Status(Case):
    def says_capacity_use_and_budgets(self):
        self.given_policy("capacity: 600MiB\nreserve: 10%\nbudget: {rollout: 50%, train: 300MiB}")
        train, rollout = self.given_taker("train"), self.given_taker("rollout")
        self.assertEqual(self.given_said(train, "take 100"), "taken")
        self.assertEqual(self.given_said(rollout, "take 64"), "taken")
        self.assertEqual(self.given_said(rollout, "native 4"), "taken")
        status = self.given_status()
        self.assertEqual((status["capacity"], status["reserve"]), ({"bytes": 600 * MIB}, {"percent": 10.0}))
        device, = status["devices"]
        self.assertEqual({name: device[name] for name in ("bytes", "capacity_bytes", "used_bytes", "native_bytes")},
                         {"bytes": 1024 * MIB, "capacity_bytes": 600 * MIB, "used_bytes": 164 * MIB, "native_bytes": 4 * MIB})
        self.assertEqual(device["reserve_bytes"], 1024 * MIB // 10)
        self.assertRegex(device["uuid"], r"\AGPU(-[0-9a-f]+){5}\Z")
        clients = {client["role"]: client for client in status["clients"]}
        self.assertEqual((clients["train"]["budget"], clients["rollout"]["budget"]), ({"bytes": 300 * MIB}, {"percent": 50.0}))
        mine, = clients["rollout"]["devices"]
        self.assertEqual((mine["budget_bytes"], mine["used_bytes"], mine["native_bytes"]), (512 * MIB, 64 * MIB, 4 * MIB))
        self.assertEqual(clients["train"]["devices"][0]["used_bytes"], 100 * MIB)
        text = self.sublet("ctl", "status").stdout
        self.assertIn("\ncapacity     600.00 MiB of each device, 10% of it reserve\n", text)
        self.assertIn("\ndevice       %s: 164.00 MiB of 600.00 MiB in use, and 4.00 MiB native\n" % device["uuid"], text)
        self.assertRegex(text, r"(?m) host pool +budget$")
        self.assertRegex(text, r"(?m)^ *%d .* 300.00 MiB$" % clients["train"]["pid"])
        self.assertRegex(text, r"(?m)^ *%d .* 50%%$" % clients["rollout"]["pid"])

    def of_a_session_without_a_capacity_has_the_use(self):
        self.given_served()
        rollout = self.given_taker("rollout")
        self.assertEqual(self.given_said(rollout, "take 64"), "taken")
        status = self.given_status()
        self.assertEqual((status["capacity"], status["clients"][0]["budget"]), (None, None))
        self.assertEqual([(d["used_bytes"], d["capacity_bytes"]) for d in status["devices"]], [(64 * MIB, None)])


class ByHand(Case):
    """The protocol itself: devices by their UUID, whatever number a process has for them."""

    def given_client(self):
        peer = ProcessPeer(self.session)
        self.peers.append(peer)
        peer.join(peer=CLIENT, role=b"train")
        return peer

    def setUp(self):
        super().setUp()
        self.peers = []
        self.given_policy("capacity: 600MiB")

    def tearDown(self):
        for peer in self.peers:
            try:
                peer.close()
            except OSError:
                pass
        super().tearDown()

    def given_use(self, kind, credit, wanted=None, uuid=UUID, answers=0, serial=7):
        wanted = credit if wanted is None and kind == "DEVICE_CREDIT" else wanted or 0
        return message(kind, struct.pack("<16sQQQQQQQII", uuid, 1 << 30, credit * MIB, wanted * MIB, credit * MIB, 0, 0, answers, 0, 0),
                       serial)

    def given_verdict(self, peer):
        name, body, _ = peer.receive()
        self.assertEqual(name, "DEVICE_CREDITED")
        granted, _, credit = struct.unpack_from("<IIQ", body)
        return granted, credit // MIB

    def given_asked(self, peer, credit, **more):
        peer.send(self.given_use("DEVICE_CREDIT", credit, **more))
        return self.given_verdict(peer)

    def credit_is_of_the_device_with_that_uuid(self):
        one, other = self.given_client(), self.given_client()
        self.assertEqual(self.given_asked(one, 500), (1, 500))
        self.assertEqual(self.given_asked(other, 500, uuid=b"another device.."), (1, 500))

    def slab_is_what_is_left(self):
        one, other = self.given_client(), self.given_client()
        self.assertEqual(self.given_asked(one, 100, wanted=200), (1, 200))
        self.assertEqual(self.given_asked(other, 100, wanted=1100), (1, 400))

    def others_are_asked_before_anybody_is_refused(self):
        one, other = self.given_client(), self.given_client()
        self.assertEqual(self.given_asked(one, 10, wanted=600), (1, 600))
        other.send(self.given_use("DEVICE_CREDIT", 300))
        name, body, _ = one.receive()
        self.assertEqual((name, body[:16], struct.unpack_from("<I", body, 16)), ("DEVICE_SAY", UUID, (0,)))
        one.send(self.given_use("DEVICE_HAVE", 310, answers=1))
        self.assertEqual(self.given_verdict(one), (1, 310))
        self.assertEqual(self.given_verdict(other), (0, 0))

    def who_leaves_while_others_wait_for_it_makes_room(self):
        one, other = self.given_client(), self.given_client()
        self.assertEqual(self.given_asked(one, 600), (1, 600))
        other.send(self.given_use("DEVICE_CREDIT", 300))
        self.assertEqual(one.receive()[0], "DEVICE_SAY")
        one.close()
        self.assertEqual(self.given_verdict(other), (1, 300))

    def more_than_the_capacity_is_counted_when_it_is_told(self):
        one, other = self.given_client(), self.given_client()
        one.send(self.given_use("DEVICE_HAVE", 900))
        self.assertEqual(self.given_verdict(one), (1, 900))
        self.assertEqual(self.given_asked(one, 800), (1, 800))
        other.send(self.given_use("DEVICE_CREDIT", 1))
        self.assertEqual(one.receive()[0], "DEVICE_SAY")
        self.assertEqual(self.given_verdict(other), (0, 0))


if __name__ == "__main__":
    harness.main()
