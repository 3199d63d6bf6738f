#!/usr/bin/env python3
"""`sublet ctl`: what it shows, whom it moves, what it refuses; and the processes of a session when the coordinator, or one of
them, goes in the middle. The processes are programs on the simulated driver that know nothing of Sublet."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import harness
import protocol
import session
from protocol import CLIENT, Peer, message
from session import MIB, ProcessPeer


def residencies(row):
    return {name: size // MIB for name, size in row["bytes"].items() if size}


class Shows(session.Case):
    def status_and_objects_of_a_session(self):
        self.given_served()
        holder = self.given_holder((64, 8, 128), "--role", "rollout")
        status = self.given_status()
        self.assertEqual(status["session"], self.session)
        self.assertEqual(status["policy"], self.policy)
        client, = status["clients"]
        self.assertEqual((client["pid"], client["process"], client["role"], client["answered"], client["held"]),
                         (holder.pid, "holder", "rollout", True, False))
        self.assertEqual(residencies(client), {"device": 200})
        objects = self.given_objects()
        self.assertEqual(list(objects)[0:3], [next(iter(objects)), "kv_cache", "scratch"])
        self.assertEqual((objects["kv_cache"]["class"], objects["kv_cache"]["role"], objects["kv_cache"]["allocations"]),
                         ("regenerable", "rollout", 2))
        self.assertEqual(residencies(objects["kv_cache"]), {"device": 192})
        self.assertEqual(residencies(objects["weights"]), {"device": 8})
        self.assertEqual((objects["scratch"]["role"], objects["scratch"]["allocations"]), (None, 0))
        text = self.sublet("ctl", "status").stdout
        self.assertRegex(text, r"(?m)^ *%d  holder +rollout +no +200.00 MiB +0 B +0 B +0 B +0 B +-$" % holder.pid)
        self.assertRegex(self.sublet("ctl", "objects").stdout, r"(?m)^kv_cache +regenerable +rollout +2 +192.00 MiB ")
        self.assertEqual(holder.end(), 0)
        self.eventually(lambda: self.given_status()["clients"] == [])
        self.assertIn("no process has joined", self.sublet("ctl", "status").stdout)

    def filters_choose_role_and_process(self):
        self.given_served()
        one, other = self.given_holder((64,), "--role", "rollout"), self.given_holder((32,), "--role", "train")
        pids = {row["pid"] for row in self.given_json("status", "--role", "train")["clients"]}
        self.assertEqual(pids, {other.pid})
        self.assertEqual([row["pid"] for row in self.given_json("status", "--pid", str(one.pid))["clients"]], [one.pid])
        self.assertEqual([row["object"] for row in self.given_json("objects", "--role", "train") if row["allocations"]],
                         ["defaults"])

    def without_a_policy_there_is_one_object(self):
        self.given_served(policy=False)
        holder = self.given_holder((64, 8), "--role", "any")
        row, = self.given_json("objects")
        self.assertEqual((row["object"], row["class"], row["role"], row["allocations"]), ("everything", "permanent", "any", 2))
        self.assertEqual(residencies(row), {"device": 72})
        for words in (["everything"], ["--all"]):
            self.given_json("park", *words)
            self.assertEqual(residencies(self.given_status()["clients"][0]), {"parked": 72})
            self.given_json("restore", *words)
        self.assertEqual(residencies(self.given_status()["clients"][0]), {"device": 72})
        self.assertEqual(holder.say("check"), "same bytes")
        for words in (["everything"], ["--all"]):
            self.refuses(1, "no policy says which bytes may be discarded; serve the session with --policy FILE", "ctl", "discard",
                         *words)

    def the_role_of_a_process_comes_from_the_policy_where_none_is_given(self):
        with open(self.policy, "w") as text:
            text.write(session.POLICY.replace("roles: [train, rollout]",
                                              "roles: {train: {command: '*no such*'}, rollout: {command: '*holder 64*'}}"))
        self.given_served()
        self.given_holder((64,))
        self.given_holder((8,), env=dict(self.env, SUBLET_LOG="session:info"))
        self.assertEqual([client["role"] for client in self.given_status()["clients"]], ["rollout", None])

    def more_objects_than_fit_into_a_message(self):
        objects = "".join("  - {name: o%d, match: {size: %dMiB}, class: permanent, resident: all}\n" % (i, 2 * i) for i in range(1, 80))
        with open(self.policy, "w") as text:
            text.write("version: 1\nroles: [a]\nphases: [p]\ntriggers: [{enter: p, command: true}]\nobjects:\n" + objects)
        self.given_served()
        self.given_holder([2] * 10 + [4] * 10 + [20], "--role", "a")
        objects = self.given_objects()
        self.assertEqual([objects[name]["allocations"] for name in ("o1", "o2", "o10", "o79")], [10, 10, 1, 0])


class Moves(session.Case):
    def setUp(self):
        super().setUp()
        self.given_served()
        self.holder = self.given_holder((64, 8), "--role", "rollout")

    def given_places(self):
        return {name: residencies(row) for name, row in self.given_objects().items() if row["allocations"]}

    def offload_park_restore_and_every_byte_is_there(self):
        row, = self.given_json("offload", "kv_cache")
        self.assertEqual((row["pid"], row["role"], row["verb"], row["object"], row["good"], row["moved"], row["moved_bytes"]),
                         (self.holder.pid, "rollout", "offload", "kv_cache", True, 1, 64 * MIB))
        self.assertEqual(self.given_places(), {"kv_cache": {"host": 64}, "weights": {"device": 8}})
        client, = self.given_status()["clients"]
        self.assertEqual((client["held"], client["host_pool_bytes"]), (True, 64 * MIB))
        self.given_json("park", "kv_cache", "weights")
        self.assertEqual(self.given_places(), {"kv_cache": {"parked": 64}, "weights": {"parked": 8}})
        self.assertEqual(self.given_status()["clients"][0]["held"], False)
        self.assertEqual(self.holder.say("check"), "same bytes")
        self.given_json("restore", "--all")
        self.assertEqual(self.given_places(), {"kv_cache": {"device": 64}, "weights": {"device": 8}})
        self.assertEqual(self.holder.say("check"), "same bytes")

    def said_twice_is_said_to_be_there_already(self):
        self.given_json("park", "--all")
        row, = self.given_json("park", "--all")
        self.assertEqual((row["good"], row["moved"], row["already_bytes"]), (True, 0, 72 * MIB))
        self.assertIn("72.00 MiB there already", self.sublet("ctl", "park", "--all").stdout)

    def text_is_one_line_for_each_process(self):
        got = self.sublet("ctl", "park", "weights")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertRegex(got.stdout, r"^pid %d \(holder, rollout\): park weights: 8.00 MiB moved in 1 allocation, \d+\.\d{3} s\n$"
                         % self.holder.pid)

    def discard_is_refused_with_the_reason_from_the_policy(self):
        self.refuses(1, "object 'weights': permanent bytes are never discarded", "ctl", "discard", "weights")
        self.refuses(1, "object 'scratch': 'otherwise: discard' without 'exclusive: true'", "ctl", "discard", "scratch")
        self.refuses(1, "object 'defaults': permanent bytes are never discarded", "ctl", "discard", "defaults")
        # one that may not is enough, and then nothing goes
        self.refuses(1, "object 'weights'", "ctl", "discard", "kv_cache", "weights")
        self.assertEqual(self.given_places(), {"kv_cache": {"device": 64}, "weights": {"device": 8}})

    def discard_of_all_takes_what_the_policy_allows(self):
        self.given_json("discard", "--all")
        self.assertEqual(self.given_places(), {"kv_cache": {"empty": 64}, "weights": {"device": 8}})

    def pinned_objects_stay(self):
        env = dict(self.env, SUBLET_MIN_SIZE="1")
        holder = self.given_holder((1, 8), "--role", "rollout", env=env)
        self.given_json("offload", "--all", "--pid", str(holder.pid))
        row, = self.given_json("status", "--pid", str(holder.pid))["clients"]
        self.assertEqual(residencies(row), {"device": 2, "host": 8})
        name = next(name for name, row in self.given_objects().items() if row["class"] == "pinned")
        self.refuses(1, "'pinned' matches it, so it never moves", "ctl", "park", name)

    def only_those_that_are_meant_are_moved(self):
        other = self.given_holder((32,), "--role", "train")
        row, = self.given_json("park", "--all", "--role", "train")
        self.assertEqual(row["pid"], other.pid)
        row, = self.given_json("park", "--all", "--pid", str(self.holder.pid))
        self.assertEqual(row["pid"], self.holder.pid)
        self.assertEqual(len(self.given_json("restore", "--all")), 2)

    def a_full_host_pool_is_one_line_and_nothing_has_moved(self):
        peer = ProcessPeer(self.session)
        peer.join(peer=CLIENT, host_bytes=1020 * MIB, role=b"train")
        self.eventually(lambda: self.given_status()["host_pool"]["used_bytes"] == 1020 * MIB)
        got = self.sublet("ctl", "park", "--all", "--role", "rollout")
        self.assertEqual((got.returncode, got.stdout), (1, ""), got)
        self.assertEqual(got.stderr.count("\n"), 1, got.stderr)
        self.assertRegex(got.stderr, r"^sublet: error: pid %d \(holder, rollout\): park everything: no room in the host pool for \d+.00 MiB more: "
                         r"[\d.]+ [MG]iB of 1.00 GiB are in use: pid %d \(train\) 1020.00 MiB; raise host_pool or SUBLET_HOST_POOL$"
                         % (self.holder.pid, peer.child.pid))
        self.assertEqual(self.given_places(), {"kv_cache": {"device": 64}, "weights": {"device": 8}})
        self.assertEqual(self.given_status()["clients"][0]["host_pool_bytes"], 0)
        peer.close()
        self.eventually(lambda: self.given_status()["host_pool"]["used_bytes"] == 0)
        self.assertEqual(len(self.given_json("park", "--all")), 1)

    def host_memory_of_one_that_ended_serves_the_next(self):
        self.given_json("park", "--all")
        self.assertEqual(self.holder.end(), 0)
        self.eventually(lambda: self.given_status()["host_pool"]["kept_bytes"] == 72 * MIB)
        other = self.given_holder((64, 8), "--role", "rollout")
        self.given_json("park", "--all")
        pool = self.given_status()["host_pool"]
        self.assertEqual((pool["used_bytes"], pool["kept_bytes"]), (72 * MIB, 0))
        self.assertEqual(other.say("check"), "same bytes")


class Refusals(session.Case):
    def words_that_are_wrong_exit_2_with_the_nearest(self):
        self.given_served()
        self.refuses(2, "unknown verb 'offlaod'; did you mean 'sublet ctl offload'?", "ctl", "offlaod", "--all")
        self.refuses(2, "unknown verb 'sleep'; see 'sublet ctl -h'", "ctl", "sleep")
        self.refuses(2, "no verb; try 'sublet ctl status'", "ctl")
        self.refuses(2, "no object to park; name some", "ctl", "park")
        self.refuses(2, "'--all' and objects contradict each other", "ctl", "park", "--all", "weights")
        self.refuses(2, "'sublet ctl status' takes no objects", "ctl", "status", "weights")
        self.refuses(2, "'sublet ctl stop' takes no objects", "ctl", "stop", "--all")
        self.refuses(2, "'x' is no process id", "ctl", "status", "--pid", "x")
        self.refuses(2, "'-1' is no time in seconds", "ctl", "park", "--all", "--timeout", "-1")
        self.refuses(2, "unknown object 'kv_cahce'; did you mean 'kv_cache'?", "ctl", "park", "kv_cahce")
        self.refuses(2, "unknown object 'everything'; 'sublet ctl objects' lists those of the session", "ctl", "park", "everything")
        self.refuses(2, "unknown role 'rolout'; did you mean 'rollout'?", "ctl", "park", "--all", "--role", "rolout")
        self.refuses(2, "unknown role 'zebra'; 'sublet ctl status' lists", "ctl", "status", "--role", "zebra")

    def nobody_there_exits_1(self):
        self.refuses(1, "nobody serves session '%s'; start it with 'sublet run --policy FILE'" % self.session, "ctl", "status")
        self.given_served()
        self.refuses(1, "no process of the session to ask", "ctl", "park", "--all")
        self.refuses(1, "no process 1 in the session", "ctl", "park", "--all", "--pid", "1")

    def status_of_one_that_refuses_is_1_and_the_others_are_told(self):
        self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        peer = Peer(self.session)
        peer.join(peer=CLIENT, role=b"rollout")
        answers = threading.Thread(target=self.given_answers, args=(peer,))
        answers.start()
        got = self.sublet("ctl", "park", "--all", "--role", "rollout")
        answers.join()
        self.assertEqual(got.returncode, 1)
        self.assertEqual(got.stdout.count("\n"), 1)
        self.assertIn("pid %d (holder, rollout): park everything: 8.00 MiB moved" % holder.pid, got.stdout)
        self.assertRegex(got.stderr, r"^sublet: error: pid \d+ \(by hand, rollout\): park everything: not today\n$")
        peer.close()

    def given_answers(self, peer, error=b"\x05", text=b"not today"):
        """Has nothing, refuses everything."""
        while True:
            data = peer.socket.recv(65536)
            kind, serial = protocol.HEADER.unpack_from(data)[2], protocol.HEADER.unpack_from(data)[5]
            if protocol.NAMES[kind] == "LIST":
                peer.send(message("LISTED", b"\0" * 8, serial))
            elif protocol.NAMES[kind] != "DEVICE_SAY":
                peer.send(message("SERVED", error + b"\0" * (protocol.SERVED_HEAD - 1) + text.ljust(protocol.SERVED_TEXT, b"\0"), serial))
                return


    def asking_makes_no_session(self):
        for name in ("typo", os.path.join(self.folder, "typo")):
            self.refuses(1, "nobody serves session '", "ctl", "status", "--session", name)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "typo")))
        self.refuses(1, "nobody serves session '%s/sublet-%d/typo'; start it" % (self.folder, os.geteuid()), "ctl", "park", "--all",
                     "--session", "typo")
        self.assertEqual(sorted(os.listdir(self.folder)), ["policy.yaml", "session"])

    def a_process_id_is_a_whole_number(self):
        self.refuses(2, "'1.5' is no process id", "ctl", "status", "--pid", "1.5")

    def a_role_is_known_however_many_processes_there_are(self):
        self.given_served(policy=False)
        peers = [Peer(self.session) for _ in range(160)]
        for i, peer in enumerate(peers):
            peer.join(peer=CLIENT, role=b"r%d" % i)
        status = self.given_json("status", "--role", "r159")
        self.assertEqual([client["role"] for client in status["clients"]], ["r159"])
        for peer in peers:
            peer.close()

    def a_role_cut_short_is_completed_also_when_processes_have_it(self):
        self.given_served()
        peers = [Peer(self.session) for _ in range(3)]
        for peer in peers:
            peer.join(peer=CLIENT, role=b"rollout")
        self.refuses(2, "unknown role 'roll'; did you mean 'rollout'?", "ctl", "status", "--role", "roll")
        for peer in peers:
            peer.close()

    def stop_as_json_is_json(self):
        pid = self.given_served()
        self.assertEqual(self.given_json("stop"), {"stopped": pid})

    def as_json_what_was_done_is_told_when_the_coordinator_dies_in_the_middle(self):
        pid = self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        peer = Peer(self.session)
        peer.join(peer=CLIENT, role=b"rollout")
        asked = subprocess.Popen([harness.EXE, "ctl", "park", "--all", "--json"], env=self.env, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.assertEqual(peer.receive()[0], "SERVE")
        self.eventually(lambda: residencies(self.given_parked(holder)) == {"parked": 8})
        os.kill(pid, signal.SIGKILL)
        said, complaint = asked.communicate(timeout=60)
        self.assertEqual((asked.returncode, complaint.count("\n")), (1, 1), complaint)
        self.assertEqual([row["pid"] for row in json.loads(said)], [holder.pid])
        peer.close()

    def given_parked(self, holder):
        return self.given_json("status", "--pid", str(holder.pid))["clients"][0]

    def what_a_process_says_is_one_line(self):
        self.given_served()
        peer = Peer(self.session)
        peer.join(peer=CLIENT, role=b"rollout", command=b"a\nb\x1b[2J")
        answers = threading.Thread(target=self.given_answers, args=(peer, b"\0", b"kernel\nsublet: error: \x1b[2Jforged"))
        answers.start()
        got = self.sublet("ctl", "park", "--all")
        answers.join()
        self.assertEqual((got.returncode, got.stderr, got.stdout.count("\n"), got.stdout.count("\x1b")), (0, "", 1, 0), got)
        peer.close()


class Troubles(session.Case):
    def a_client_that_is_stopped_costs_seconds_and_is_named(self):
        self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        os.kill(holder.pid, signal.SIGSTOP)
        begun = time.monotonic()
        client, = self.given_status()["clients"]
        self.assertEqual((client["answered"], client["held"], client["bytes"]), (False, None, None))
        self.assertIn("it does not say in time what it has", self.sublet("ctl", "status").stdout)
        self.refuses(1, "pid %d (holder, rollout): park everything: it does not answer (stopped, or very busy)" % holder.pid,
                     "ctl", "park", "--all")
        self.assertLess(time.monotonic() - begun, 40)
        os.kill(holder.pid, signal.SIGCONT)
        # it read the request late, and did it
        self.eventually(lambda: residencies(self.given_status()["clients"][0]) == {"parked": 8})
        self.assertEqual(holder.say("check"), "same bytes")

    def a_client_killed_in_the_middle_is_answered_for(self):
        self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        os.kill(holder.pid, signal.SIGSTOP)
        asked = subprocess.Popen([harness.EXE, "ctl", "park", "--all"], env=self.env, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        os.kill(holder.pid, signal.SIGKILL)
        _, said = asked.communicate(timeout=60)
        self.assertEqual(asked.returncode, 1)
        self.assertRegex(said, "it has left before it answered|no process of the session to ask")
        self.eventually(lambda: self.given_status()["clients"] == [])

    def a_client_is_gone_when_its_process_is_though_a_child_has_its_socket(self):
        """subprocess without fork handlers, a debugger, a plugin: the end of a socket is not the end of a process."""
        self.given_served()
        program = ("import os, socket, sys, time\n"
                   "sys.path.insert(0, %r)\nimport protocol\np = protocol.Peer(sys.argv[1])\np.join(peer=protocol.CLIENT)\n"
                   "c = os.fork()\n"
                   "if c == 0:\n    os.close(1)\n    time.sleep(30)\n    os._exit(0)\n"
                   "print(c, flush=True)\nsys.stdin.read()\n") % os.path.dirname(os.path.abspath(session.__file__))
        parent = subprocess.Popen(["python3", "-c", program, self.session], env=dict(os.environ), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.children.append(parent)
        grandchild = int(parent.stdout.readline())
        self.assertEqual([client["pid"] for client in self.given_status()["clients"]], [parent.pid])
        parent.kill()
        parent.wait()
        self.eventually(lambda: self.given_status()["clients"] == [], seconds=10)
        os.kill(grandchild, 0)
        os.kill(grandchild, signal.SIGKILL)

    def a_command_that_is_interrupted_leaves_the_others_alone(self):
        self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        os.kill(holder.pid, signal.SIGSTOP)
        asked = subprocess.Popen([harness.EXE, "ctl", "park", "--all"], env=self.env, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        asked.kill()
        asked.wait()
        os.kill(holder.pid, signal.SIGCONT)
        self.eventually(lambda: residencies(self.given_status()["clients"][0]) == {"parked": 8})

    def a_held_client_opens_though_the_coordinator_is_dead_and_joins_the_next(self):
        pid = self.given_served()
        holder = self.given_holder((64, 8), "--role", "rollout")
        self.given_json("offload", "--all")
        os.kill(pid, signal.SIGKILL)
        begun = time.monotonic()
        self.assertEqual(holder.say("check"), "same bytes")
        self.assertLess(time.monotonic() - begun, 20)
        self.given_served()
        self.eventually(lambda: [(c["pid"], c["held"]) for c in self.given_status()["clients"]] == [(holder.pid, False)])
        self.assertEqual(self.given_status()["host_pool"]["used_bytes"], 72 * MIB)
        self.given_json("discard", "kv_cache")
        self.given_json("restore", "--all")
        self.assertEqual(residencies(self.given_status()["clients"][0]), {"device": 72})

    def a_client_is_held_by_a_coordinator_that_hangs_and_opens(self):
        pid = self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        self.given_json("offload", "--all")
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertEqual(holder.say("check"), "same bytes")
            self.assertEqual(holder.say("alloc"), "allocated")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.given_status()["clients"][0]["held"], False)

    def as_many_objects_as_one_command_may_name_are_moved(self):
        """More than the requests that could wait in a process were refused."""
        objects = "".join("  - {name: o%d, match: {size: %dMiB}, class: permanent, resident: all}\n" % (i, 2 * i) for i in range(1, 251))
        with open(self.policy, "w") as text:
            text.write("version: 1\nroles: [a]\nphases: [p]\ntriggers: [{enter: p, command: true}]\nobjects:\n" + objects)
        self.given_served()
        holder = self.given_holder([2 * i for i in range(1, 21)], "--role", "a")
        rows = self.given_json("park", *("o%d" % i for i in range(1, 251)))
        self.assertEqual((len(rows), sum(row["moved"] for row in rows)), (250, 20))
        self.assertEqual(holder.say("check"), "same bytes")

    def clients_outlive_the_coordinator_and_join_the_next(self):
        pid = self.given_served()
        holder = self.given_holder((64, 8), "--role", "rollout")
        self.given_json("park", "kv_cache")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(holder.say("check"), "same bytes")
        self.assertEqual(holder.say("alloc"), "allocated")
        self.given_served()
        self.eventually(lambda: [c["pid"] for c in self.given_status()["clients"]] == [holder.pid])
        objects = self.given_objects()
        self.assertEqual((residencies(objects["kv_cache"]), residencies(objects["weights"])), ({"parked": 64}, {"device": 12}))
        self.assertEqual(self.given_status()["host_pool"]["used_bytes"], 64 * MIB)
        self.given_json("restore", "--all")
        self.assertEqual(holder.say("check"), "same bytes")
        with open(os.path.join(self.folder, "holder.err")) as text:
            said = text.read()
        self.assertEqual(len(re.findall("coordinator has gone; addresses are stable, nothing moves, and it joins when it can", said)), 1,
                         said)

    def a_process_joins_a_coordinator_that_comes_later(self):
        holder = self.given_holder((64, 8), "--role", "rollout")
        self.given_served()
        self.eventually(lambda: [c["pid"] for c in self.given_status()["clients"]] == [holder.pid])
        # what was made before falls under the policy as well
        self.assertEqual(residencies(self.given_objects()["kv_cache"]), {"device": 64})
        self.given_json("park", "--all")
        self.assertEqual(holder.say("check"), "same bytes")

    def another_policy_after_a_restart_gives_every_allocation_its_new_object(self):
        self.given_served()
        holder = self.given_holder((64, 8), "--role", "rollout")
        self.sublet("ctl", "stop")
        with open(self.policy, "w") as text:
            text.write(session.POLICY.replace("name: kv_cache", "name: other_cache"))
        self.given_served()
        self.eventually(lambda: self.given_status()["clients"])
        self.assertEqual(residencies(self.given_objects()["other_cache"]), {"device": 64})
        self.assertEqual(holder.say("check"), "same bytes")

    def a_start_beside_a_coordinator_that_hangs_takes_about_a_second(self):
        pid = self.given_served()
        os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            env = dict(self.env, LD_PRELOAD=os.path.realpath(harness.LIBRARY), LD_LIBRARY_PATH=harness.SIM_FOLDER,
                       SUBLET_SIM_CAPACITY=str(1 << 30), SUBLET_SIM_MACHINE=os.path.join(self.folder, "machine"))
            got = subprocess.run([session.HOLDER, "8"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                                 cwd=self.folder)
            self.assertEqual((got.returncode, got.stdout), (0, "ready\n"), got)
            self.assertGreaterEqual(time.monotonic() - begun, 1)
            self.assertLess(time.monotonic() - begun, 15)
            self.assertEqual(len(re.findall("coordinator does not answer; addresses are stable", got.stderr)), 1, got.stderr)
        finally:
            os.kill(pid, signal.SIGCONT)

    def a_program_that_closes_all_descriptors_is_not_written_to(self):
        self.given_served()
        holder = self.given_holder((64,), "--role", "rollout")
        self.assertEqual(holder.say("close"), "closed")
        # asked over what stands at the socket's number now; it notices, and joins again
        self.sublet("ctl", "status")
        self.eventually(lambda: [c["answered"] for c in self.given_status()["clients"]] == [True], seconds=30)
        self.assertEqual(holder.say("files"), "as they were")
        self.assertEqual(os.path.getsize(os.path.join(self.folder, "files")), 0)

    def parked_bytes_of_a_program_that_closed_its_connection_are_written_by_nobody(self):
        """Its extents were kept for the next who asks, as if it had ended, and the next wrote into them."""
        self.given_served()
        holder = self.given_holder((64,), "--role", "rollout")
        self.given_json("park", "--all")
        self.assertEqual(holder.say("close"), "closed")
        self.eventually(lambda: self.given_status()["clients"] == [], "the coordinator has noticed")
        other = self.given_holder((8, 64), "--role", "rollout")
        self.given_json("park", "--all", "--pid", str(other.pid))
        self.assertEqual((holder.say("check"), other.say("check")), ("same bytes", "same bytes"))

    def a_forked_child_is_no_member_and_keeps_nothing(self):
        self.given_served()
        holder = self.given_holder((8,), "--role", "rollout")
        child = int(holder.say("fork"))
        self.eventually(lambda: not self.given_sockets(child), "the child has let go of the socket")
        self.assertEqual(self.given_sockets(holder.pid), 1)
        self.assertEqual([c["pid"] for c in self.given_status()["clients"]], [holder.pid])
        self.assertEqual(holder.end(), 0)
        self.eventually(lambda: self.given_status()["clients"] == [])
        os.kill(child, signal.SIGKILL)

    def given_sockets(self, pid):
        found = 0
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                found += os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("socket:")
            except FileNotFoundError:
                pass  # closed in this moment
        return found

    def twenty_processes_are_asked_at_once(self):
        self.given_served()
        holders = [self.given_holder((8,), "--role", "rollout") for _ in range(20)]
        self.assertEqual(len(self.given_json("park", "--all")), 20)
        for holder in holders:
            self.assertEqual(holder.say("check"), "same bytes")
        self.assertEqual(self.given_status()["host_pool"]["used_bytes"], 160 * MIB)


if __name__ == "__main__":
    harness.main()
