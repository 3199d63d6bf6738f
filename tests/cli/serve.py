#!/usr/bin/env python3
"""`sublet serve` and `sublet run --policy`: how a coordinator starts, is alone, ends, and what it does with those who do not
speak as they should: one clear line, their connection is closed, the session goes on."""
import os
import resource
import signal
import struct
import subprocess
import threading
import time

import harness
import protocol
import session
from protocol import CLIENT, CONTROL, Peer, hello, message
from session import MIB, ProcessPeer, amount, text_of


class Serve(session.Case):
    def foreground_ends_with_a_signal_and_takes_its_socket_along(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            child = self.given_foreground("--policy", self.policy)
            self.assertTrue(os.path.exists(os.path.join(self.session, "socket")))
            child.send_signal(number)
            self.assertEqual(child.wait(timeout=20), 0)
            self.assertFalse(os.path.exists(os.path.join(self.session, "socket")))

    def processes_that_go_on_are_not_said_to_have_ended(self):
        self.given_served()
        peer = Peer(self.session)
        peer.join(peer=CLIENT)
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        self.assertNotIn("has ended", self.given_log())
        peer.close()

    def names_of_policies_are_shown_in_one_line(self):
        name = os.path.join(self.folder, "a\nb.yaml")
        os.rename(self.policy, name)
        self.policy = name
        self.given_served()
        self.assertRegex(self.sublet("ctl", "status").stdout, r"(?m)^policy +.*a\?b.yaml$")

    def stop_returns_when_the_next_can_start(self):
        for _ in range(20):
            self.given_served()
            got = self.sublet("ctl", "stop")
            self.assertEqual((got.returncode, got.stdout), (0, ""), got)
            self.assertRegex(got.stderr, r"^sublet: the coordinator \(pid \d+\) ends; processes of the session go on as they are\n$")

    def second_coordinator_is_refused_with_the_pid_of_the_first(self):
        pid = self.given_served()
        for more in ([], ["--background"]):
            self.refuses(1, "a coordinator serves this session already (pid %d); stop it with 'sublet ctl stop --session %s'"
                         % (pid, self.session), "serve", *more)
        self.assertEqual(self.given_status()["coordinator"], pid)

    def second_coordinator_is_refused_also_where_the_lock_file_was_removed(self):
        pid = self.given_served()
        os.unlink(os.path.join(self.session, "coordinator.lock"))
        self.refuses(1, "a coordinator serves this session already (pid %d)" % pid, "serve")

    def many_that_start_together_are_one(self):
        children = [subprocess.Popen([harness.EXE, "serve", "--background"], env=self.env, stderr=subprocess.PIPE, text=True)
                    for _ in range(12)]
        said = [child.communicate(timeout=60)[1] for child in children]
        self.assertEqual(sorted(child.returncode for child in children), [0] + [1] * 11, said)
        self.assertEqual(len([line for line in said if "serves this session already" in line]), 11, said)

    def stale_socket_is_replaced(self):
        pid = self.given_served()
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(os.path.exists(os.path.join(self.session, "socket")))
        self.eventually(lambda: self.sublet("ctl", "status").returncode == 1)
        self.refuses(1, "nobody serves session '%s'; start it with 'sublet run --policy FILE'" % self.session, "ctl", "status")
        self.assertNotEqual(self.given_served(), pid)

    def what_stands_in_the_place_of_the_socket_is_replaced_too(self):
        open(os.path.join(self.session, "socket"), "w").close()
        self.given_served()

    def session_with_a_long_path_is_served(self):
        folder = os.path.join(self.folder, "l" * 150, "m" * 150)
        os.makedirs(folder, 0o700)
        self.env["SUBLET_SESSION"] = folder
        self.given_served()

    def background_keeps_nothing_of_who_started_it(self):
        read, write = os.pipe()
        os.set_inheritable(write, True)
        got = subprocess.run([harness.EXE, "serve", "--background"], env=self.env, pass_fds=[write])
        self.assertEqual(got.returncode, 0)
        os.close(write)
        self.assertEqual(os.read(read, 1), b"", "the pipe is still open in the coordinator")
        os.close(read)
        pid = self.given_status()["coordinator"]
        with open("/proc/%d/stat" % pid) as text:
            sid, tty = text.read().rpartition(")")[2].split()[3:5]
        self.assertNotEqual(int(sid), os.getsid(0))
        self.assertNotEqual(int(sid), pid, "it could be given a terminal")
        self.assertEqual(tty, "0")
        self.assertEqual(os.readlink("/proc/%d/cwd" % pid), "/")
        files = {fd: os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
        self.assertEqual(files["0"], "/dev/null")
        log = os.path.join(self.session, "coordinator.log")
        self.assertEqual((files["1"], files["2"]), (log, log))
        self.assertEqual(os.stat(log).st_mode & 0o777, 0o600)

    def log_is_cut_when_it_has_grown_long(self):
        log = os.path.join(self.session, "coordinator.log")
        with open(log, "w") as text:
            text.write("x" * (2 << 20))
        self.given_served()
        self.assertLess(os.path.getsize(log), 1 << 20)

    def file_limit_is_raised(self):
        resource_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = min(64, resource_limit[1])
        got = self.sublet("serve", "--background", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                                       (soft, resource_limit[1])))
        self.assertEqual(got.returncode, 0, got)
        with open("/proc/%d/limits" % self.given_status()["coordinator"]) as text:
            line = next(line for line in text if line.startswith("Max open files"))
        self.assertEqual(line.split()[3], line.split()[4])

    def pool_is_capped_by_variable_policy_or_half_of_the_memory(self):
        self.given_served()
        self.assertEqual(self.given_status()["host_pool"]["bytes"], 1 << 30)
        self.sublet("ctl", "stop")
        self.given_served(env=dict(self.env, SUBLET_HOST_POOL="3GiB"))
        self.assertEqual(self.given_status()["host_pool"]["bytes"], 3 << 30)
        self.sublet("ctl", "stop")
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        self.given_served(policy=False)
        half = self.given_status()["host_pool"]["bytes"]
        self.assertLessEqual(half, memory // 2)
        self.sublet("ctl", "stop")
        self.given_served(env=dict(self.env, SUBLET_HOST_POOL="25%"), policy=False)
        self.assertAlmostEqual(self.given_status()["host_pool"]["bytes"], half // 2, delta=MIB)


class Ends(session.Case):
    """By itself, once nobody is left. The time it stays is short here."""

    def given_lingering(self, seconds="1"):
        got = self.sublet("serve", "--background", "--linger", seconds, "--policy", self.policy)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)

    def given_ended(self):
        self.eventually(lambda: not os.path.exists(os.path.join(self.session, "socket")), "it ends")
        self.given_log_has("ends: no process of the session is left")

    def when_nobody_ever_came(self):
        self.given_lingering()
        self.given_ended()

    def after_the_last_client(self):
        self.given_lingering()
        holders = [self.given_holder((8,)) for _ in range(2)]
        self.assertEqual(holders[0].end(), 0)
        time.sleep(2.5)
        self.assertEqual(len(self.given_status()["clients"]), 1)
        holders[1].child.kill()
        self.given_ended()

    def not_while_a_program_lives_that_was_started_in_the_session(self):
        self.given_lingering()
        child = subprocess.Popen([harness.EXE, "run", "--session", self.session, "--", "sleep", "60"], env=self.env)
        self.children.append(child)
        self.given_log_has("stays for pid %d" % child.pid)
        time.sleep(2.5)
        self.assertEqual(self.given_status()["clients"], [])
        child.kill()
        self.given_ended()

    def a_command_is_no_reason_to_stay(self):
        self.given_lingering("2")
        peer = Peer(self.session)
        peer.join(peer=CONTROL)
        self.given_ended()
        peer.close()


class Refusals(session.Case):
    def policy_with_errors_is_said_as_check_says_it(self):
        with open(self.policy, "w") as text:
            text.write("version: 1\nrolls: [a]\n")
        check = self.sublet("check", self.policy).stdout.splitlines()
        for words in (["serve"], ["serve", "--background"], ["run", "--session", self.session]):
            more = ["--", "touch", "ran"] if words[0] == "run" else []
            got = self.sublet(*words, "--policy", self.policy, *more)
            self.assertEqual((got.returncode, got.stdout), (1, ""), got)
            self.assertEqual(got.stderr.splitlines()[:-1], check[:-1])
            self.assertRegex(got.stderr.splitlines()[-1], "^sublet: error: policy '.*' cannot be used: 1 error; see 'sublet check ")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")))

    def warnings_of_a_policy_are_said_and_it_serves(self):
        with open(self.policy, "w") as text:
            text.write("version: 1\nroles: [a, b]\nphases: [{name: p, roles: [a]}]\ntriggers: [{enter: p, command: true}]\n")
        got = self.sublet("serve", "--background", "--policy", self.policy)
        self.assertEqual((got.returncode, got.stdout), (0, ""), got)
        self.assertIn("warning", got.stderr)

    def policy_that_is_not_there_exits_1(self):
        self.refuses(1, "cannot read policy file 'no.yaml': No such file or directory", "serve", "--policy", "no.yaml")

    def pool_that_is_no_size_is_refused(self):
        self.refuses(1, "SUBLET_HOST_POOL='much' is neither a size nor a percentage; write 64GiB or 50%", "serve",
                     env=dict(self.env, SUBLET_HOST_POOL="much"))

    def words_that_are_none_of_serve_exit_2(self):
        self.refuses(2, "'sublet serve' takes no 'grpo.yaml'; a policy is given by --policy FILE", "serve", "grpo.yaml")
        self.refuses(2, "unknown option '--polcy'; did you mean '--policy'?", "serve", "--polcy", "x")

    def times_that_are_none_exit_2(self):
        for text in ("", "x", "-1", "0", "nan"):
            self.refuses(2, "'%s' is no time in seconds" % text, "serve", "--linger", text)

    def folder_that_cannot_be_written_exits_1(self):
        self.refuses(1, "session folder '/proc/self'", "serve", "--session", "/proc/self")


class Run(session.Case):
    def given_run(self, *words, policy=True):
        more = ("--policy", self.policy) if policy else ()
        return self.sublet("run", "--session", self.session, *more, "--", *words)

    def starts_a_coordinator_and_the_next_uses_it(self):
        got = self.given_run("echo", "one")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "one\n", ""), got)
        pid = self.given_status()["coordinator"]
        self.assertEqual(self.given_status()["policy"], self.policy)
        self.assertEqual(self.given_run("echo", "two").stdout, "two\n")
        self.assertEqual(self.given_run("echo", "three", policy=False).stdout, "three\n")
        self.assertEqual(self.given_status()["coordinator"], pid)

    def without_a_policy_no_coordinator_is_started(self):
        self.assertEqual(self.given_run("true", policy=False).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.session)), [])

    def two_at_once_start_one(self):
        children = [subprocess.Popen([harness.EXE, "run", "--session", self.session, "--policy", self.policy, "--", "true"],
                                     env=self.env, stderr=subprocess.PIPE, text=True) for _ in range(8)]
        said = [child.communicate(timeout=60)[1] for child in children]
        self.assertEqual((set(said), {child.returncode for child in children}), ({""}, {0}))

    def another_policy_than_the_sessions_is_refused(self):
        pid = self.given_served()
        other = os.path.join(self.folder, "other.yaml")
        with open(other, "w") as text:
            text.write(session.POLICY.replace("1GiB", "2GiB"))
        self.refuses(1, "has another policy ('%s', coordinator pid %d); stop it with 'sublet ctl stop" % (self.policy, pid), "run",
                     "--session", self.session, "--policy", other, "--", "touch", "ran")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")))

    def a_session_without_a_policy_is_another_policy(self):
        self.given_served(policy=False)
        self.refuses(1, "has another policy ('none', ", "run", "--session", self.session, "--policy", self.policy, "--", "true")

    def policy_from_stdin_is_refused(self):
        self.refuses(2, "a policy read from stdin would take what CMD reads; give '--policy' a file", "run", "--policy", "-", "--", "cat")

    def a_role_that_is_not_in_the_policy_is_refused_before_the_program_starts(self):
        for more in (["--policy", self.policy], []):  # with and without its name, the session has one by then
            self.refuses(2, "unknown role 'rolout'; did you mean 'rollout'?", "run", *more, "--role", "rolout", "--", "touch", "ran")
            self.refuses(2, "unknown role 'zebra'; policy '%s' has train, rollout" % self.policy, "run", *more, "--", "touch", "ran",
                         env=dict(self.env, SUBLET_ROLE="zebra"))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")))
        got = self.sublet("run", "--role", "rollout", "--", "echo", "ran")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "ran\n", ""), got)

    def a_coordinator_is_started_also_below_a_parent_that_ignores_how_children_end(self):
        got = self.sublet("run", "--session", self.session, "--policy", self.policy, "--", "grep", "SigIgn", "/proc/self/status",
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        self.assertTrue(int(got.stdout.split()[1], 16) & 1 << signal.SIGCHLD - 1, "the program has it as it was")

    def standard_streams_that_are_closed_are_not_taken_for_others(self):
        for words in ("serve --background --policy %s" % self.policy, "run --policy %s -- ls /proc/self/fd >&3" % self.policy,
                      "ctl status >&3", "ctl stop"):
            read, write = os.pipe()
            got = subprocess.run(["bash", "-c", "exec 3>&%d %d>&-; exec %s %s <&- 2>&-%s" % (
                write, write, harness.EXE, words, "" if ">" in words else " >&-")], env=self.env, pass_fds=[write], timeout=60)
            os.close(write)
            with open(read) as text:
                said = text.read()
            self.assertEqual(got.returncode, 0, (words, said))
            if "ls" in words.split():
                # closed for the program too: the folder it lists is the first that is free
                self.assertEqual(said.split(), ["0", "1", "3"])

    def the_program_inherits_no_descriptor(self):
        got = self.given_run("ls", "/proc/self/fd")
        self.assertEqual(got.stdout.split(), ["0", "1", "2", "3"], got)

    def a_coordinator_that_does_not_answer_does_not_keep_a_plain_run(self):
        pid = self.given_served()
        os.kill(pid, signal.SIGSTOP)
        try:
            got = self.given_run("echo", "ran", policy=False)
            self.assertEqual((got.returncode, got.stdout), (0, "ran\n"), got)
            self.assertIn("coordinator (pid %d) does not answer; is it stopped? 'kill %d' ends it" % (pid, pid), got.stderr)
        finally:
            os.kill(pid, signal.SIGCONT)

    def it_stays_as_long_as_the_program_though_that_has_no_device_memory(self):
        child = subprocess.Popen([harness.EXE, "run", "--session", self.session, "--policy", self.policy, "--", "sleep", "60"],
                                 env=self.env)
        self.children.append(child)
        self.eventually(lambda: os.path.exists(os.path.join(self.session, "socket")))
        self.given_log_has("stays for pid %d" % child.pid)
        child.kill()
        child.wait()
        self.given_log_has("pid %d has ended" % child.pid)


class WrongMessages(session.Case):
    """Each is told, closed, and logged; the session is what it was."""

    def setUp(self):
        super().setUp()
        self.pid = self.given_served()

    def given_refused(self, peer, part):
        name, body, _ = peer.receive()
        self.assertEqual(name, "REFUSED", body)
        text = text_of(body)
        self.assertIn(part, text)
        self.assertNotIn("\n", text)
        self.assertEqual(peer.receive()[0], "END OF CONNECTION")
        peer.close()
        self.assertEqual(self.given_status()["coordinator"], self.pid)

    def given_sent(self, data, part, fds=(), join=None):
        peer = Peer(self.session)
        if join:
            peer.join(peer=join)
        peer.send(data, fds)
        self.given_refused(peer, part)

    def wrong_version_is_told_both_versions_and_the_fix(self):
        self.given_sent(message("HELLO", b"whatever 99 has", version=99), "protocol 99, and this side speaks %d; stop the coordinator" % protocol.VERSION)
        self.given_log_has("protocol 99")

    def truncated_messages(self):
        for data in (b"\0", hello()[:20], hello()[:-1], message("HELLO", b"")):
            self.given_sent(data, "cut off" if len(data) != 24 else "wrong size")

    def oversized_messages(self):
        self.given_sent(b"x" * 60000, "a message of more than")
        self.given_sent(message("HELLO", b"x" * 2000), "wrong size")

    def nonsense(self):
        self.given_sent(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 20, "no message of Sublet's")

    def unknown_types(self):
        self.given_sent(message(0), "unknown message 0")
        self.given_sent(message(999), "unknown message 999")

    def messages_of_the_other_way_or_kind(self):
        self.given_sent(message("WELCOME", b"\0" * 280), "goes the other way")
        self.given_sent(message("ASK_STATUS", b"\0" * 8), "message ASK_STATUS is a command's", join=CLIENT)
        self.given_sent(amount("CREDIT", 1), "message CREDIT is a client's", join=CONTROL)

    def messages_before_and_after_their_time(self):
        self.given_sent(message("ASK_STATUS", b"\0" * 8), "the first message has to be a hello")
        self.given_sent(hello(CLIENT), "a second hello", join=CLIENT)

    def answers_that_nobody_asked_for(self):
        self.given_sent(message("SERVED", b"\0" * (protocol.SERVED_HEAD + protocol.SERVED_TEXT), serial=1 << 40), "an answer that nobody asked for", join=CLIENT)
        self.given_sent(message("LISTED", b"\0" * 8, serial=1 << 40), "an answer that nobody asked for", join=CLIENT)

    def descriptors_where_none_belong_are_closed(self):
        before = len(os.listdir("/proc/%d/fd" % self.pid))
        with open("/dev/null") as null:
            for _ in range(20):
                self.given_sent(hello(), "came with 3 descriptors, none belong there", fds=[null.fileno()] * 3)
            self.given_sent(message("MADE", b""), "0 descriptors, one belong there", join=CLIENT)
        self.eventually(lambda: len(os.listdir("/proc/%d/fd" % self.pid)) <= before, "descriptors are closed")

    def more_than_it_has_is_not_given_back_nor_made(self):
        self.given_sent(amount("GIVE", 1), "more host bytes given back than it has", join=CLIENT)
        with open("/dev/null") as null:
            self.given_sent(amount("MADE", MIB), "an extent that it had no credit for", fds=[null.fileno()], join=CLIENT)

    def who_says_nothing_is_closed_after_a_while(self):
        peer = Peer(self.session)
        self.given_refused(peer, "it did not say who it is")

    def who_reads_nothing_is_closed_and_the_others_are_served(self):
        peer = Peer(self.session)
        peer.join(peer=CLIENT)
        peer.socket.settimeout(30)
        try:
            for _ in range(200000):  # each is answered with a refusal of 288 bytes
                peer.send(amount("CREDIT", 1 << 50))
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            self.fail("200,000 questions without reading one answer were taken")
        self.given_log_has("it does not read its answers")
        self.assertEqual(self.given_status()["clients"], [])
        peer.close()

    def a_flood_of_one_does_not_keep_others_waiting(self):
        peers = [Peer(self.session) for _ in range(4)]
        for peer in peers:
            peer.join(peer=CLIENT)
            peer.socket.setblocking(False)
        until = time.monotonic() + 2
        longest = 0
        while time.monotonic() < until:
            for peer in peers:
                try:
                    for _ in range(200):
                        peer.send(message("JOINED", b"flood".ljust(68, b"\0")))
                except BlockingIOError:
                    pass
            begun = time.monotonic()
            self.assertEqual(self.given_status()["coordinator"], self.pid)
            longest = max(longest, time.monotonic() - begun)
        self.assertLess(longest, 10)
        for peer in peers:
            peer.close()

    def connections_by_the_thousand_come_and_go(self):
        before = len(os.listdir("/proc/%d/fd" % self.pid))
        for _ in range(20):
            peers = [Peer(self.session) for _ in range(100)]
            for peer in peers:
                peer.close()
        self.assertEqual(self.given_status()["clients"], [])
        self.eventually(lambda: len(os.listdir("/proc/%d/fd" % self.pid)) <= before, "descriptors are closed")


class FewDescriptors(session.Case):
    def more_connections_than_descriptors_are_turned_away_with_the_fix(self):
        hard = 160
        got = self.sublet("serve", "--background",
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))
        self.assertEqual(got.returncode, 0, got)
        pid = self.given_status()["coordinator"]
        peers, told = [], 0
        for _ in range(200):
            peer = Peer(self.session)
            try:
                peer.send(hello())
            except BrokenPipeError:
                pass  # turned away already; the refusal can be read
            peers.append(peer)
        for peer in peers:
            try:
                name, body, _ = peer.receive()
            except ConnectionResetError:  # told once, before what is there to be read
                name, body, _ = peer.receive()
            if name == "REFUSED":
                told += 1
                self.assertIn("limit of open files (ulimit -n)", text_of(body))
        self.assertGreater(told, 0)
        self.assertLess(told, 200)
        for peer in peers:
            peer.close()
        self.eventually(lambda: self.given_status()["coordinator"] == pid)


class OtherUsers(session.Case):
    def coordinator_turns_away_who_is_of_another_user(self):
        got = self.sublet("serve", "--background", env=dict(self.env, LD_PRELOAD=session.PEER_DOUBLE))
        self.assertEqual(got.returncode, 0, got)
        self.refuses(1, "the session's coordinator refuses: this session is of another user; use one of your own", "ctl", "status")
        self.given_log_has("a process of another user tried to join")
        with open(os.path.join(self.session, "coordinator.lock")) as text:
            os.kill(int(text.read()), signal.SIGTERM)

    def command_does_not_speak_to_a_coordinator_of_another_user(self):
        self.given_served()
        self.refuses(1, "the session's coordinator is of another user", "ctl", "status",
                     env=dict(self.env, LD_PRELOAD=session.PEER_DOUBLE))

    def a_real_other_user_is_turned_away(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        self.given_served()
        for path, mode in ((self.folder, 0o711), (self.session, 0o711), (os.path.join(self.session, "socket"), 0o777)):
            os.chmod(path, mode)
        program = ("import os, socket, sys\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                   "os.chdir(sys.argv[1])\ns.connect('socket')\nprint(s.recv(4096)[24:].split(bytes(1))[0].decode())\n")
        got = subprocess.run(["python3", "-c", program, self.session], capture_output=True, text=True, timeout=60)
        os.chmod(self.session, 0o700)
        self.assertEqual(got.stdout, "this session is of another user; use one of your own, with --session NAME\n", got)


class Ledger(session.Case):
    """Host bytes and the descriptors of extents, by the protocol itself."""

    def given_client(self, **words):
        peer = ProcessPeer(self.session)
        self.peers.append(peer)
        peer.join(peer=CLIENT, **words)
        return peer

    def given_answer(self, peer, kind, size):
        peer.send(amount(kind, size, serial=5))
        name, body, fds = peer.receive()
        while name in ("LIST", "DEVICE_SAY"):  # a status asks its clients what they have; this one does not say
            name, body, fds = peer.receive()
        granted, = struct.unpack_from("<I", body)
        return granted, text_of(body[8:]), fds

    def given_pool(self):
        pool = self.given_status()["host_pool"]
        return pool["used_bytes"] // MIB, pool["kept_bytes"] // MIB

    def setUp(self):
        super().setUp()
        self.pid = self.given_served()
        self.files = [open(os.path.join(self.folder, "extent%d" % i), "w") for i in range(4)]
        self.peers = []

    def tearDown(self):
        for file in self.files:
            file.close()
        for peer in self.peers:
            peer.close()
        super().tearDown()

    def given_made(self, peer, size, file=0, extent=1):
        self.assertEqual(self.given_answer(peer, "CREDIT", size)[0], 1)
        peer.send(amount("MADE", size, extent), [self.files[file].fileno()])

    def credit_ends_at_the_cap_and_names_who_holds_what(self):
        one, other = self.given_client(role=b"train"), self.given_client(role=b"rollout")
        self.assertEqual(self.given_answer(one, "CREDIT", 700 * MIB), (1, "", []))
        self.assertEqual(self.given_answer(other, "CREDIT", 300 * MIB), (1, "", []))
        granted, text, _ = self.given_answer(other, "CREDIT", 100 * MIB)
        self.assertEqual(granted, 0)
        self.assertRegex(text, r"^1000.00 MiB of 1.00 GiB are in use: pid \d+ \(train\) 700.00 MiB, "
                               r"pid \d+ \(rollout\) 300.00 MiB; raise host_pool or SUBLET_HOST_POOL$")
        one.send(amount("GIVE", 700 * MIB))
        self.assertEqual(self.given_answer(one, "CREDIT", 700 * MIB), (1, "", []))
        one.close()
        self.eventually(lambda: self.given_pool() == (300, 0))
        self.assertEqual(self.given_answer(other, "CREDIT", 700 * MIB)[0], 1)

    def extents_of_who_ended_go_to_the_next_who_asks_for_that_size(self):
        one = self.given_client()
        self.given_made(one, 64 * MIB)
        self.assertEqual(self.given_answer(one, "TAKE", 64 * MIB)[0], 0, "it is in use")
        one.close()
        self.eventually(lambda: self.given_pool() == (64, 64))
        other = self.given_client()
        self.assertEqual(self.given_answer(other, "TAKE", 32 * MIB)[0], 0)
        granted, _, fds = self.given_answer(other, "TAKE", 64 * MIB)
        self.assertEqual((granted, len(fds)), (1, 1))
        self.assertEqual(os.fstat(fds[0]).st_ino, os.fstat(self.files[0].fileno()).st_ino)
        os.close(fds[0])
        self.assertEqual(self.given_pool(), (64, 0))
        self.assertEqual(self.given_answer(other, "TAKE", 64 * MIB)[0], 0)

    def extents_of_a_process_that_lives_on_without_its_connection_go_to_nobody(self):
        one, other = self.given_client(), self.given_client()
        self.given_made(one, 64 * MIB)
        one.hang_up()
        self.given_log_has("pid %d has left" % one.child.pid)
        self.assertEqual(self.given_pool(), (64, 0), "it still counts")
        self.assertEqual([c["pid"] for c in self.given_status()["clients"]], [other.child.pid])
        self.assertEqual(self.given_answer(other, "TAKE", 64 * MIB)[0], 0)
        self.assertEqual(self.given_answer(other, "CREDIT", 1000 * MIB)[0], 0)
        one.close()
        self.eventually(lambda: self.given_pool() == (64, 64))
        self.assertEqual(self.given_answer(other, "TAKE", 64 * MIB)[0], 1)

    def credit_waits_for_what_a_process_has_that_is_about_to_end(self):
        """Its connection ends before it does, and until then its memory counts."""
        one, other = self.given_client(), self.given_client()
        self.given_made(one, 64 * MIB)
        one.hang_up()
        self.given_log_has("pid %d has left" % one.child.pid)
        ends = threading.Timer(0.4, one.close)
        ends.start()
        self.assertEqual(self.given_answer(other, "CREDIT", 1000 * MIB), (1, "", []))
        ends.join()

    def a_process_that_is_away_for_long_is_not_counted_and_its_extents_are_closed(self):
        one = self.given_client()
        before = len(os.listdir("/proc/%d/fd" % self.pid))
        self.given_made(one, 64 * MIB)
        one.hang_up()
        self.given_log_has("pid %d does not come back; its memory is not counted any more" % one.child.pid)
        self.assertEqual(self.given_pool(), (0, 0))
        self.eventually(lambda: len(os.listdir("/proc/%d/fd" % self.pid)) < before)

    def what_a_process_that_comes_back_had_is_counted_once(self):
        one = Peer(self.session)  # of this process, which comes back below
        one.join(peer=CLIENT)
        self.given_made(one, 64 * MIB)
        one.close()
        self.eventually(lambda: self.given_status()["clients"] == [])
        self.assertEqual(self.given_pool(), (64, 0))
        one = Peer(self.session)
        one.join(peer=CLIENT, host_bytes=64 * MIB)
        self.assertEqual(self.given_pool(), (64, 0))
        one.close()

    def kept_extents_make_room_for_new_ones_those_of_another_size_first(self):
        one = self.given_client()
        self.given_made(one, 512 * MIB, 0)
        self.given_made(one, 256 * MIB, 1)
        one.close()
        self.eventually(lambda: self.given_pool() == (768, 768))
        other = self.given_client()
        self.assertEqual(self.given_answer(other, "CREDIT", 512 * MIB)[0], 1)
        self.assertEqual(self.given_pool(), (1024, 512))
        self.assertEqual(self.given_answer(other, "CREDIT", 512 * MIB)[0], 1)
        self.assertEqual(self.given_pool(), (1024, 0))
        self.assertEqual(self.given_answer(other, "CREDIT", MIB)[0], 0)

    def a_destroyed_extent_is_kept_by_no_descriptor(self):
        one = self.given_client()
        before = len(os.listdir("/proc/%d/fd" % self.pid))
        self.given_made(one, 64 * MIB)
        one.send(amount("GIVE", 64 * MIB, extent=1))
        self.eventually(lambda: len(os.listdir("/proc/%d/fd" % self.pid)) == before)
        self.assertEqual(self.given_pool(), (0, 0))

    def given_kept(self):
        """Which of our files the coordinator has open."""
        links = [os.readlink(os.path.join("/proc/%d/fd" % self.pid, fd)) for fd in os.listdir("/proc/%d/fd" % self.pid)]
        return [file for file in range(len(self.files)) if self.files[file].name in links]

    def only_the_destroyed_one_of_many_extents_loses_its_descriptor(self):
        one = self.given_client()
        for extent in (1, 2, 3):
            self.given_made(one, 64 * MIB, extent, extent)
        one.send(amount("GIVE", 64 * MIB, extent=2))
        one.close()
        self.eventually(lambda: self.given_pool() == (128, 128))
        self.assertEqual(self.given_kept(), [1, 3])
        other = self.given_client()
        other.send(amount("TAKE", 64 * MIB, extent=7, serial=5))
        _, _, fds = other.receive()
        taken = next(file for file in (1, 3) if os.path.sameopenfile(fds[0], self.files[file].fileno()))
        os.close(fds[0])
        other.send(amount("GIVE", 64 * MIB, extent=7))  # by the number of who has it now
        self.eventually(lambda: self.given_pool() == (64, 64))
        self.assertEqual(self.given_kept(), [4 - taken])

    def what_a_client_brings_from_an_earlier_coordinator_counts(self):
        one = self.given_client(host_bytes=900 * MIB)
        self.assertEqual(self.given_pool(), (900, 0))
        self.assertEqual(self.given_answer(one, "CREDIT", 200 * MIB)[0], 0)
        more = self.given_client(host_bytes=900 * MIB)
        self.assertEqual(self.given_pool(), (1800, 0))
        self.assertEqual(self.given_answer(more, "CREDIT", 1)[0], 0)

    def more_than_the_cap_from_before_is_recalled(self):
        """Without a coordinator each process kept to the cap for itself."""
        peers = [self.given_client(host_bytes=900 * MIB) for _ in range(2)]
        for peer in peers:
            peer.send(message("JOINED", struct.pack("<68s", b""), serial=0))
        for peer in peers:
            name, body, _ = peer.receive()
            self.assertEqual((name, struct.unpack_from("<Q", body)[0] // MIB), ("RECALL", 776))
        peers[0].send(amount("LEAVE", 776 * MIB, 1))
        self.eventually(lambda: self.given_pool() == (1024, 0))

    def policy_comes_sealed_and_whole(self):
        peer = Peer(self.session)
        body, fds = peer.join(peer=CLIENT)
        pid, _, size, cap = struct.unpack_from("<iIQQ", body)
        self.assertEqual((pid, cap), (self.pid, 1 << 30))
        self.assertEqual(os.fstat(fds[0]).st_size, size)
        with self.assertRaises(PermissionError):
            os.pwrite(fds[0], b"x", 0)
        with self.assertRaises(PermissionError):
            os.ftruncate(fds[0], 0)
        self.assertEqual(os.pread(fds[0], 8, 0), b"SUBLETPB")
        os.close(fds[0])


if __name__ == "__main__":
    harness.main()
