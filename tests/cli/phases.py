#!/usr/bin/env python3
"""Phases: what moves at a barrier, who begins one, and what becomes of it when somebody cannot be held, fails, dies or is silent. The
processes are programs on the simulated driver that know nothing of Sublet, and doubles that speak the protocol by hand."""
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import harness
import protocol
import session
from protocol import CLIENT, DEVICES, NEEDS, Peer, ask_phase, message
from session import MIB, ProcessPeer

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = """version: 1
host_pool: 2GiB
roles: [train, rollout]
phases:
  - {name: rollout, roles: [rollout], idle: [train]}
  - {name: train, roles: [train], idle: [rollout]}
  - {name: unnamed, roles: []}
triggers: [{enter: rollout, command: true}, {enter: train, command: true}, {enter: unnamed, nvtx_push: x}]
barrier: {timeout: 2s}
objects:
  - {name: kv_cache, match: {role: rollout, size: ">=64MiB"}, class: regenerable, resident: [rollout], otherwise: discard,
     exclusive: true}
  - {name: rollout_weights, match: {role: rollout}, class: permanent, resident: [rollout], otherwise: offload}
  - {name: train_state, match: {role: train}, class: permanent, resident: [train], otherwise: offload}
"""
STEPS = ["PLAN", "HOLD", "REOPEN", "RELEASE", "ACQUIRE", "ROOM", "REVERSE", "OPEN", "EXCHANGE"]


class Double(ProcessPeer):
    """A client that answers the steps of a barrier as it is told, in a thread of its own."""

    def __init__(self, case, role=b"train", device=None):
        """@device: the UUID of the one it says it is on."""
        super().__init__(case.session)
        devices = struct.pack("<II16s240x", 1, 0, device) if device else DEVICES
        self.join(peer=CLIENT, role=role)
        self.send(message("JOINED", struct.pack("<68s", role), serial=0))
        self.answers, self.asked, self.phases, self.needs = {}, [], [], devices + NEEDS[len(DEVICES):]
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def run(self):
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    return
                head = protocol.HEADER.unpack_from(data)
                name, body = protocol.NAMES[head[2]], data[protocol.HEADER.size:]
                if name == "PHASE":
                    self.phases.append(struct.unpack_from("<QI", body))
                if name == "STEP":
                    step = STEPS[struct.unpack_from("<I", body)[0]]
                    self.barrier, self.timeout = head[5], struct.unpack_from("<Q", body, 16)[0] / 1e9
                    self.asked.append(step)
                    if step != "ROOM":
                        self.answer(step, head[5])
                if name == "LIST":
                    self.send(message("LISTED", struct.pack("<II", 0, 0), serial=head[5]))
        except OSError:
            pass

    def answer(self, step, barrier):
        """What `answers` has for the step: moved bytes, a text that is an error, "silent" or "dies"."""
        what = self.answers.get(step, 0)
        if what == "silent":
            return
        if what == "dies":
            self.ours.close()
            self.socket.close()
            return
        error, moved, text = (3, 0, what.encode()) if isinstance(what, str) else (0, what, b"")
        served = struct.pack("<IIIIIIQQQQQQ256s", error, 1 if moved else 0, 0, 0, 0, 0, moved, 0, 0, 0, 1000, 1000, text)
        self.send(message("STEPPED", struct.pack("<II", STEPS.index(step), 0) + served + self.needs, serial=barrier))


class Case(session.Case):
    def setUp(self):
        super().setUp()
        with open(self.policy, "w") as text:
            text.write(POLICY)
        self.given_served()

    def given_phase(self, name, *options):
        got = self.sublet("phase", name, "--json", *options)
        self.assertEqual(got.returncode, 0, got)
        return session.json.loads(got.stdout)

    def given_places(self):
        return {name: {where: size // MIB for where, size in row["bytes"].items() if size}
                for name, row in self.given_objects().items() if row["allocations"]}

    def given_double(self, role=b"train", device=None, **answers):
        double = Double(self, role, device)
        double.answers = answers
        self.doubles = getattr(self, "doubles", []) + [double]
        self.eventually(lambda: len(self.given_status()["clients"]) >= 1)
        return double.start()

    def given_maker(self, role, device="0"):
        """tests/cli/maker.py on @device, or on several: "0,1"."""
        words = [harness.EXE, "run", "--session", self.session, "--sim=1GiB", "--role", role, "--", sys.executable,
                 os.path.join(HERE, "maker.py")]
        child = subprocess.Popen(words, env=dict(self.env, MAKER_DEVICES=device), cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=open(os.path.join(self.folder, "maker.err"), "a"), text=True)
        self.children.append(child)
        self.assertEqual(child.stdout.readline().strip(), "ready")
        return child

    def given_said(self, child, word):
        self.given_told(child, word)
        return child.stdout.readline().strip()

    def given_told(self, child, word):
        child.stdin.write(word + "\n")
        child.stdin.flush()

    def tearDown(self):
        for double in getattr(self, "doubles", []):
            try:
                double.close()
            except OSError:
                pass
        super().tearDown()


class Trades(Case):
    def two_processes_that_do_not_fit_together(self):
        """600 and 500 MiB on a device of 1 GiB, five times there and back; every byte and every address as before."""
        train = self.given_holder((500, 100), "--role", "train")
        self.given_phase("rollout")
        rollout = self.given_holder((400, 40), "--role", "rollout")
        for _ in range(5):
            moved = self.given_phase("train")
            self.assertEqual({(row["pid"], row["step"], row["moved_bytes"] // MIB) for row in moved["moves"]},
                             {(rollout.pid, "release", 440), (train.pid, "acquire", 600)})
            self.assertEqual(self.given_places(), {"kv_cache": {"empty": 400}, "rollout_weights": {"host": 40},
                                                   "train_state": {"device": 600}})
            self.assertEqual(train.say("check"), "same bytes")
            moved = self.given_phase("rollout")
            self.assertEqual({(row["pid"], row["step"], row["moved_bytes"] // MIB) for row in moved["moves"]},
                             {(train.pid, "release", 600), (rollout.pid, "acquire", 440)})
            self.assertEqual(self.given_places(), {"kv_cache": {"device": 400}, "rollout_weights": {"device": 40},
                                                   "train_state": {"host": 600}})
        self.assertEqual(rollout.end(), 0)
        self.given_phase("train")
        self.assertEqual(train.say("check"), "same bytes")
        self.assertEqual(train.end(), 0)

    def phase_in_force_is_seen_and_asking_again_moves_nothing(self):
        status = self.given_status()
        self.assertEqual((status["phase"], status["phases_begun"], status["next_phase"]), (None, 0, None))
        self.given_holder((64,), "--role", "train")
        first = self.given_phase("rollout")
        self.assertEqual((first["clock"], len(first["moves"])), (1, 1))
        again = self.given_phase("rollout")
        self.assertEqual((again["clock"], again["moves"]), (1, []))
        status = self.given_status()
        self.assertEqual((status["phase"], status["phases_begun"]), ("rollout", 1))
        self.assertRegex(self.sublet("ctl", "status").stdout, r"(?m)^phase        rollout$")

    def text_says_who_moved_what_how_fast(self):
        holder = self.given_holder((64,), "--role", "train")
        got = self.sublet("phase", "rollout")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertRegex(got.stdout, r"\Apid %d \(holder, train\): 64.00 MiB in 1 allocation left the device, \d+\.\d{3} s, "
                                     r"\d+\.\d GB/s\nphase rollout: \d+\.\d{3} s\n\Z" % holder.pid)

    def log_of_the_session_says_it_too(self):
        """For phases that no command has begun."""
        holder = self.given_holder((64,), "--role", "train")
        self.given_phase("rollout")
        self.given_phase("train")
        for way in ("left", "came to"):
            self.assertRegex(self.given_log(), r"phase \w+: 64.00 MiB in 1 allocations of pid %d \(train\) %s the device, \d+\.\d{3} s" %
                             (holder.pid, way))

    def late_joiner_is_told_the_phase(self):
        self.given_phase("train")
        double = self.given_double()
        self.eventually(lambda: (1, 1) in double.phases)

    def rule_may_ask_for_the_phase(self):
        with open(self.policy, "w") as text:
            text.write(POLICY.replace("objects:\n", "objects:\n  - {name: scratch, match: {role: train, phase: train}, "
                                      "class: permanent, resident: all}\n"))
        self.sublet("ctl", "stop")
        self.given_served()
        holder = self.given_holder((64,), "--role", "train")
        self.given_phase("train")
        self.eventually(lambda: self.given_status()["phase"] == "train")
        holder.say("alloc")
        self.assertEqual(self.given_places(), {"train_state": {"device": 64}, "scratch": {"device": 4}})

    def process_that_wakes_out_of_turn_is_served(self):
        holder = self.given_holder((64,), "--role", "train")
        self.given_phase("rollout")
        self.assertEqual(holder.say("check"), "same bytes")
        self.assertEqual(self.given_places(), {"train_state": {"parked": 64}})
        self.given_phase("train")
        self.assertEqual(self.given_places(), {"train_state": {"device": 64}})


class Words(Case):
    def wrong_words(self):
        self.refuses(2, "no phase; name one of the policy's", "phase")
        self.refuses(2, "unknown phase 'rolout'; did you mean 'rollout'?", "phase", "rolout")
        self.refuses(2, "one phase at a time; 'train' is one too many", "phase", "rollout", "train")
        self.refuses(1, "nothing in the policy lets a command begin 'unnamed'; add '{enter: unnamed, command: true}' to its triggers",
                     "phase", "unnamed")
        self.refuses(2, "'never' is no time in seconds", "phase", "--timeout", "never", "train")

    def session_without_policy_or_coordinator(self):
        self.sublet("ctl", "stop")
        self.refuses(1, "sublet serve", "phase", "train")
        self.given_served(policy=False)
        self.refuses(1, "the session has no policy, so there are no phases; serve it with --policy FILE", "phase", "train")


class Fails(Case):
    def nobody_is_held_where_nothing_moves(self):
        double = self.given_double(PLAN=0)
        self.given_phase("train")
        self.assertEqual(double.asked, ["PLAN"])

    def one_that_cannot_be_held_is_tried_again_and_then_named(self):
        holder = self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", HOLD="thread 7 is in cuMemcpyDtoH_v2")
        pid = double.child.pid
        self.refuses(1, "phase 'rollout' does not begin: pid %d (rollout): thread 7 is in cuMemcpyDtoH_v2" % pid, "phase", "rollout")
        self.assertGreater(double.asked.count("HOLD"), 1)
        self.assertEqual(double.asked.count("HOLD"), double.asked.count("REOPEN"))
        self.assertNotIn("RELEASE", double.asked)
        self.assertEqual(self.given_status()["phase"], None)
        self.assertEqual(self.given_places(), {"train_state": {"device": 64}})
        self.assertEqual(holder.say("check"), "same bytes")

    def hold_that_comes_late_is_enough(self):
        self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", HOLD="not yet")
        threading.Timer(0.4, lambda: double.answers.clear()).start()
        self.given_phase("rollout")
        self.assertEqual(self.given_places(), {"train_state": {"host": 64}})
        self.assertIn("REOPEN", double.asked)

    def failed_release_or_acquire_is_run_backwards(self):
        holder = self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", PLAN=MIB)
        for step in ("RELEASE", "ACQUIRE"):
            double.answers[step] = "the host pool is full"
            del double.asked[:]
            got = self.sublet("phase", "rollout")
            self.assertEqual((got.returncode, got.stderr), (1, "sublet: error: phase 'rollout' does not begin: pid %d (rollout): "
                                                            "the host pool is full\n" % double.child.pid))
            self.assertRegex(got.stdout, r"left the device.*\n.* was moved back, ")
            del double.answers[step]
            self.assertEqual(double.asked[-2:], ["REVERSE", "OPEN"], double.asked)
            self.assertEqual(self.given_places(), {"train_state": {"device": 64}})
            self.assertEqual(self.given_status()["phase"], None)
            self.assertEqual(holder.say("check"), "same bytes")

    def full_host_pool_of_a_real_process(self):
        with open(self.policy, "w") as text:
            text.write(POLICY.replace("host_pool: 2GiB", "host_pool: 48MiB"))
        self.sublet("ctl", "stop")
        self.given_served()
        holder = self.given_holder((64,), "--role", "train")
        got = self.refuses(1, "phase 'rollout' does not begin: pid %d (train): " % holder.pid, "phase", "rollout")
        self.assertIn("host pool", got.stderr)
        self.assertEqual(self.given_places(), {"train_state": {"device": 64}})
        self.assertEqual(holder.say("check"), "same bytes")

    def death_at_each_step_costs_the_others_nothing(self):
        holder = self.given_holder((64,), "--role", "train")
        for step in ("PLAN", "HOLD", "RELEASE", "ACQUIRE", "OPEN"):
            double = self.given_double(b"rollout", PLAN=MIB, **({step: "dies"} if step != "PLAN" else {}))
            if step == "PLAN":
                double.answers["PLAN"] = "dies"
            self.given_phase("rollout")
            self.assertEqual(self.given_places(), {"train_state": {"host": 64}}, step)
            self.assertIn(step, double.asked)
            self.given_phase("train")
            self.assertEqual(self.given_places(), {"train_state": {"device": 64}}, step)
        self.assertEqual(holder.say("check"), "same bytes")

    def command_that_went_before_its_answer_could_be_sent_costs_only_itself(self):
        """It is found gone in the moment in which it is answered, not before: its receiving side is shut, and no event says so."""
        double = self.given_double(b"rollout", PLAN="silent")
        command = Peer(self.session)
        command.join()
        command.send(ask_phase(1, 2))
        self.eventually(lambda: double.asked == ["PLAN"])
        command.socket.shutdown(socket.SHUT_RD)
        double.answers.clear()
        double.answer("PLAN", 1)
        self.eventually(lambda: self.given_status()["phase"] == "train")
        command.close()

    def given_check_within(self, holder, seconds):
        holder.child.stdin.write("check\n")
        holder.child.stdin.flush()
        self.assertTrue(select.select([holder.child.stdout], [], [], seconds)[0], "the gate stays shut")
        self.assertEqual(holder.child.stdout.readline().strip(), "same bytes")

    def coordinator_that_dies_in_a_barrier_leaves_nobody_held(self):
        for step in ("HOLD", "RELEASE", "REVERSE"):
            holder = self.given_holder((64,), "--role", "train")
            answers = {"PLAN": MIB, step: "silent"} if step != "REVERSE" else {"PLAN": MIB, "ACQUIRE": "no", step: "silent"}
            double = self.given_double(b"rollout", **answers)
            waiting = subprocess.Popen([harness.EXE, "phase", "--timeout=60", "rollout"], env=self.env, cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.children.append(waiting)
            self.eventually(lambda: step in double.asked)
            os.kill(self.given_status()["coordinator"], signal.SIGKILL)
            self.given_check_within(holder, 30)
            self.assertEqual(waiting.wait(timeout=60), 1)
            self.assertEqual(holder.end(), 0)
            self.given_served()

    def connection_that_ends_in_a_barrier_leaves_nobody_held(self):
        holder = self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", PLAN=MIB, HOLD="silent")
        waiting = subprocess.Popen([harness.EXE, "phase", "--timeout=60", "rollout"], env=self.env, cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(waiting)
        self.eventually(lambda: "HOLD" in double.asked)
        holder.say("close")
        self.given_check_within(holder, 30)
        waiting.kill()

    def tries_of_a_hold_end_with_the_barriers_timeout(self):
        """Twice the time each, they would go on for as long again."""
        double = self.given_double(b"rollout", PLAN=MIB, HOLD="not yet")
        tries = []

        def answer(step, barrier, answer=double.answer):
            if step == "HOLD":
                tries.append((time.monotonic(), double.timeout))
                time.sleep(double.timeout)
            answer(step, barrier)

        double.answer = answer
        self.refuses(1, "not yet", "phase", "--timeout", "3.6", "rollout")
        self.assertLess(max(begun - tries[0][0] + timeout for begun, timeout in tries), 4.6, tries)
        self.assertGreater(len(tries), 2)

    def silence_at_the_hold_is_given_up(self):
        self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", HOLD="silent")
        self.refuses(1, "pid %d (rollout): it does not answer (stopped, or very busy)" % double.child.pid, "phase", "rollout")
        self.assertEqual(self.given_places(), {"train_state": {"device": 64}})

    def process_that_is_stopped_is_named_as_such(self):
        """Whether it is asked for its plan first, or stops in the middle: what follows from that is not told in its place."""
        double = self.given_double(b"rollout", PLAN="silent")
        gone = "phase 'rollout' does not begin: pid %d (rollout): it does not answer (stopped, or very busy)" % double.child.pid
        self.refuses(1, gone, "phase", "rollout")
        double.answers = {"PLAN": MIB, "HOLD": "silent", "REOPEN": "silent"}
        self.refuses(1, gone, "phase", "rollout")

    def way_back_waits_for_the_room_that_others_give_back(self):
        train = self.given_holder((650,), "--role", "train")
        self.given_phase("rollout")
        rollout = self.given_holder((60,) * 7, "--role", "rollout")
        self.given_phase("train")
        there = {"rollout_weights": {"host": 420}, "train_state": {"device": 650}}
        self.assertEqual(self.given_places(), there)
        double = self.given_double(b"rollout", PLAN=MIB, ACQUIRE="silent")
        waiting = subprocess.Popen([harness.EXE, "phase", "rollout"], env=self.env, cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.children.append(waiting)
        self.eventually(lambda: self.given_places() == {"rollout_weights": {"device": 420}, "train_state": {"host": 650}})
        double.answers["ACQUIRE"] = "no room"
        double.answer("ACQUIRE", double.barrier)
        self.assertEqual(waiting.wait(timeout=60), 1)
        self.assertEqual(self.given_places(), there)
        self.assertNotIn("not moved back", self.given_log())
        self.assertEqual(train.say("check"), "same bytes")
        double.answers.clear()
        self.given_phase("rollout")
        self.assertEqual(rollout.say("check"), "same bytes")

    def failure_of_the_way_back_does_not_stand_for_the_reason(self):
        double = self.given_double(b"rollout", PLAN=MIB, ACQUIRE="the host pool is full", REVERSE="no way back")
        self.refuses(1, "phase 'rollout' does not begin: pid %d (rollout): the host pool is full" % double.child.pid, "phase", "rollout")
        self.assertIn("pid %d (rollout): no way back" % double.child.pid, self.given_log())

    def orders_between_two_phases_are_refused(self):
        self.given_holder((64,), "--role", "train")
        double = self.given_double(b"rollout", HOLD="silent")
        waiting = subprocess.Popen([harness.EXE, "phase", "rollout"], env=self.env, cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.children.append(waiting)
        self.eventually(lambda: "HOLD" in double.asked)
        self.refuses(1, "the session is between two phases; try again when the next has begun", "ctl", "park", "train_state")
        status = self.given_status()
        self.assertEqual((status["phase"], status["next_phase"]), (None, "rollout"))
        self.assertEqual(waiting.wait(timeout=60), 1)


class Arrives(Case):
    def program_that_asks_for_its_phase(self):
        one = self.given_maker("train")
        self.given_said(one, "load_weights")
        self.assertEqual(self.given_said(one, "phase_rollout"), "0x0")
        self.assertEqual(self.given_status()["phase"], "rollout")
        self.assertEqual(self.given_places(), {"train_state": {"host": 48}})
        self.assertEqual(self.given_said(one, "phase_train"), "0x0")
        self.assertEqual(self.given_places(), {"train_state": {"device": 48}})
        self.assertEqual(self.given_said(one, "phase_none"), "0x1")
        with open(os.path.join(self.folder, "maker.err")) as text:
            self.assertIn("phase 'no such phase' does not begin: the policy has no phase 'no such phase'", text.read())

    def ranks_wait_for_each_other_from_their_first_arrival_on(self):
        one, other = self.given_maker("train"), self.given_maker("train")
        self.assertEqual(self.given_said(one, "phase_rollout"), "0x0")
        self.assertEqual(self.given_said(other, "phase_rollout"), "0x0")
        clock = self.given_status()["phases_begun"]
        self.given_told(one, "phase_train")
        self.eventually(lambda: "(train)" in self.given_log())
        self.assertEqual(self.given_status()["phases_begun"], clock)
        self.given_told(other, "phase_train")
        self.assertEqual([child.stdout.readline().strip() for child in (one, other)], ["0x0", "0x0"])
        self.assertEqual(self.given_status()["phase"], "train")

    def rank_that_dies_is_not_waited_for(self):
        one, other = self.given_maker("train"), self.given_maker("train")
        for child in (one, other):
            self.given_said(child, "phase_rollout")
        self.given_told(one, "phase_train")
        other.kill()
        self.assertEqual(one.stdout.readline().strip(), "0x0")

    def coordinator_that_goes_lets_those_who_wait_go_on(self):
        one, other = self.given_maker("train"), self.given_maker("train")
        for child in (one, other):
            self.given_said(child, "phase_rollout")
        self.given_told(one, "phase_train")
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        self.assertEqual(one.stdout.readline().strip(), "0x1")


if __name__ == "__main__":
    harness.main()
