#!/usr/bin/env python3
"""The preloaded library against a coordinator that is none: whatever it says, the program goes on, one line says what is wrong, and
the process joins the next one that speaks as it should. Also SUBLET_SESSION without `sublet run`, as a framework sets it."""
import fcntl
import os
import signal
import socket
import struct
import subprocess
import time

import harness
import protocol
import session
from protocol import NAMES, HEADER, message
from session import MIB


class Fake:
    """Listens at the session's socket."""

    def __init__(self, case):
        self.case = case
        self.path = os.path.join(case.session, "socket")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.listener.settimeout(20)
        self.peers = []

    def accept(self):
        peer, _ = self.listener.accept()
        peer.settimeout(20)
        self.peers.append(peer)
        return peer

    def close(self):
        for peer in self.peers:
            peer.close()
        self.listener.close()
        os.unlink(self.path)


def welcome(policy_bytes=0, pid=4242):
    return message("WELCOME", struct.pack("<iIQQ256s", pid, 0, policy_bytes, 1 << 30, b"by hand"))


def serve(verb, rule=0xFFFFFFFF, serial=1):
    return message("SERVE", struct.pack("<IIQ", verb, rule, 10 ** 9), serial)


def pass_fd(peer, data, fd):
    peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))])


class Join(session.Case):
    def setUp(self):
        super().setUp()
        self.fake = Fake(self)
        self.machine = dict(self.env, LD_PRELOAD=os.path.realpath(harness.LIBRARY), LD_LIBRARY_PATH=harness.SIM_FOLDER,
                            SUBLET_SIM_CAPACITY=str(1 << 30), SUBLET_SIM_MACHINE=os.path.join(self.folder, "machine"))

    def tearDown(self):
        self.fake.close()
        super().tearDown()

    def given_started(self, env=None):
        """A holder that has not yet said ready: it is in cuInit, and waits for us."""
        self.said = open(os.path.join(self.folder, "said"), "w+")
        child = subprocess.Popen([session.HOLDER, "8"], env=env or self.machine, cwd=self.folder, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=self.said, text=True)
        self.children.append(child)
        return child

    def given_lines(self):
        self.said.flush()
        with open(os.path.join(self.folder, "said")) as text:
            return [line for line in text if line.startswith("sublet[")]

    def given_joined(self, data, fd=None):
        """A holder, what it was answered, and its connection."""
        child = self.given_started()
        peer = self.fake.accept()
        hello = peer.recv(4096)
        self.assertEqual(NAMES[HEADER.unpack_from(hello)[2]], "HELLO")
        if fd is None:
            peer.send(data)
        else:
            pass_fd(peer, data, fd)
        self.assertEqual(child.stdout.readline(), "ready\n")
        return child, peer

    def given_alive(self, child):
        child.stdin.write("check\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "same bytes\n")

    def given_said_once(self, part):
        self.eventually(lambda: self.given_lines(), "a line")
        time.sleep(0.5)  # and not again at each attempt
        lines = self.given_lines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(part, lines[0])
        self.assertRegex(lines[0], "; addresses are stable, nothing moves, and it joins when it can\n$")

    def given_refused(self, data, part, fd=None):
        child, peer = self.given_joined(data, fd)
        self.given_said_once(part)
        self.given_alive(child)
        # the connection was closed, and it tries again
        again = self.fake.accept()
        self.assertEqual(NAMES[HEADER.unpack_from(again.recv(4096))[2]], "HELLO")
        again.send(welcome())
        self.assertEqual(NAMES[HEADER.unpack_from(again.recv(4096))[2]], "JOINED")
        again.send(serve(1))
        self.assertEqual(NAMES[HEADER.unpack_from(again.recv(4096))[2]], "SERVING")
        name, body = self.given_answer(again)
        self.assertEqual(name, "SERVED")
        error, moved = struct.unpack_from("<II", body)
        self.assertEqual((error, moved, struct.unpack_from("<Q", body, 24)[0]), (0, 1, 8 * MIB), body)
        self.given_alive(child)

    def given_answer(self, peer):
        """Skips what the host pool asks, answering it with yes, or no for an extent."""
        while True:
            data = peer.recv(65536)
            name, serial = NAMES[HEADER.unpack_from(data)[2]], HEADER.unpack_from(data)[5]
            if name == "CREDIT":
                peer.send(message("CREDITED", struct.pack("<II256s", 1, 0, b""), serial))
            elif name == "TAKE":
                peer.send(message("TAKEN", struct.pack("<II256s", 0, 0, b""), serial))
            elif name not in ("MADE", "GIVE"):
                return name, data[HEADER.size:]

    def wrong_version(self):
        self.given_refused(message("WELCOME", b"whatever it has", version=7), "protocol 7, and this side speaks %d" % protocol.VERSION)

    def refusal_is_passed_on(self):
        self.given_refused(message("REFUSED", b"come back tomorrow".ljust(256, b"\0")), "refuses: come back tomorrow")

    def truncated(self):
        self.given_refused(welcome()[:-4], "cut off")

    def oversized(self):
        self.given_refused(welcome() + b"x" * 40000, "a message of more than")

    def unknown_type(self):
        self.given_refused(message(77, b"x" * 8), "unknown message 77")

    def another_message_than_the_welcome(self):
        self.given_refused(serve(0), "gives a wrong answer")

    def policy_without_a_descriptor(self):
        self.given_refused(welcome(policy_bytes=4096), "gives a wrong answer")

    def policy_that_is_not_sealed(self):
        fd = os.memfd_create("policy", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096)
        self.given_refused(welcome(policy_bytes=4096), "the policy is not sealed", fd)
        os.close(fd)

    def policy_that_is_no_file_to_map(self):
        with open("/dev/null") as null:
            self.given_refused(welcome(policy_bytes=4096), "the policy is not sealed", null.fileno())

    def policy_that_is_damaged(self):
        fd = os.memfd_create("policy", os.MFD_ALLOW_SEALING)
        os.write(fd, b"SUBLETPB" + b"\xff" * 4088)
        fcntl.fcntl(fd, 1033, 0x2 | 0x4 | 0x8)  # F_ADD_SEALS: shrink, grow, write
        self.given_refused(welcome(policy_bytes=4096), "policy", fd)
        os.close(fd)

    def policy_that_is_shorter_than_said(self):
        fd = os.memfd_create("policy", os.MFD_ALLOW_SEALING)
        os.write(fd, b"SUBLETPB")
        fcntl.fcntl(fd, 1033, 0x2 | 0x4 | 0x8)
        self.given_refused(welcome(policy_bytes=1 << 20), "the policy is not sealed", fd)
        os.close(fd)

    def of_another_user(self):
        env = dict(self.machine, LD_PRELOAD=self.machine["LD_PRELOAD"] + ":" + session.PEER_DOUBLE)
        child = self.given_started(env)
        self.assertEqual(child.stdout.readline(), "ready\n")
        self.given_said_once("the session's coordinator is of another user; use a session folder of your own")
        self.given_alive(child)
        # it was told nothing: not even a hello
        peer = self.fake.accept()
        self.assertEqual(peer.recv(4096), b"")

    def nonsense_behind_a_good_start_closes_that_connection(self):
        child, peer = self.given_joined(welcome())
        self.assertEqual(NAMES[HEADER.unpack_from(peer.recv(4096))[2]], "JOINED")
        peer.send(b"\0" * 100)
        self.assertEqual(peer.recv(4096), b"")
        self.given_said_once("no message of Sublet's")
        self.given_alive(child)

    def answers_that_were_not_asked_for_and_their_descriptors_are_dropped(self):
        child, peer = self.given_joined(welcome())
        peer.recv(4096)
        before = len(os.listdir("/proc/%d/fd" % child.pid))
        for serial in range(100):
            pass_fd(peer, message("TAKEN", struct.pack("<II256s", 1, 0, b""), serial), child.stdin.fileno())
        peer.send(message("LIST", b"\0" * 8, 5))
        self.assertEqual(NAMES[HEADER.unpack_from(peer.recv(4096))[2]], "LISTED")
        self.assertEqual(len(os.listdir("/proc/%d/fd" % child.pid)), before)
        self.assertEqual(self.given_lines(), [])

    def requests_of_objects_that_are_none_are_refused(self):
        child, peer = self.given_joined(welcome())
        peer.recv(4096)
        peer.send(serve(0, rule=3))
        self.assertEqual(NAMES[HEADER.unpack_from(peer.recv(4096))[2]], "SERVING")
        name, body = self.given_answer(peer)
        self.assertEqual(name, "SERVED")
        self.assertIn("no such object", session.text_of(body[protocol.SERVED_HEAD:]))
        # without a policy nothing says that bytes may be lost
        peer.send(serve(3))
        peer.recv(4096)
        self.given_answer(peer)
        self.given_alive(child)

    def more_requests_than_can_wait_are_refused(self):
        child, peer = self.given_joined(welcome())
        peer.recv(4096)
        os.kill(child.pid, signal.SIGSTOP)
        peer.setblocking(False)
        sent = 0
        try:
            while sent < 300:
                peer.send(serve(1, serial=sent + 1))
                sent += 1
        except BlockingIOError:
            pass  # as many as the kernel takes
        self.assertGreater(sent, 66)
        peer.settimeout(20)
        os.kill(child.pid, signal.SIGCONT)
        answered, refused = set(), 0
        while len(answered) < sent:
            data = peer.recv(65536)
            name, serial = NAMES[HEADER.unpack_from(data)[2]], HEADER.unpack_from(data)[5]
            if name == "CREDIT":
                peer.send(message("CREDITED", struct.pack("<II256s", 1, 0, b""), serial))
            elif name == "TAKE":
                peer.send(message("TAKEN", struct.pack("<II256s", 0, 0, b""), serial))
            elif name == "SERVED":
                answered.add(serial)
                refused += b"too many requests wait here" in data
        self.assertEqual(answered, set(range(1, sent + 1)))
        self.assertGreater(refused, 0)
        self.given_alive(child)

    def a_credit_that_is_not_answered_is_no_and_comes_back_when_it_comes_late(self):
        child, peer = self.given_joined(welcome())
        peer.recv(4096)
        peer.send(serve(1))
        asked = None
        while True:
            data = peer.recv(65536)
            name = NAMES[HEADER.unpack_from(data)[2]]
            if name == "CREDIT":
                asked = HEADER.unpack_from(data)[5]
            elif name == "TAKE":
                peer.send(message("TAKEN", struct.pack("<II256s", 0, 0, b""), HEADER.unpack_from(data)[5]))
            elif name == "SERVED":
                break
        self.assertIn(b"does not answer", data)
        self.given_alive(child)
        peer.send(message("CREDITED", struct.pack("<II256s", 1, 0, b""), asked))
        data = peer.recv(4096)
        self.assertEqual(NAMES[HEADER.unpack_from(data)[2]], "GIVE")

    def more_late_answers_than_are_remembered_end_in_a_new_hello(self):
        """Their credit would have stayed in the ledger for as long as the process lives."""
        child, peer = self.given_joined(welcome())
        peer.recv(4096)
        for serial in range(6):
            peer.send(serve(1, serial=serial + 1))
        asked = 0
        peer.settimeout(60)
        data = peer.recv(65536)
        while data:
            asked += NAMES[HEADER.unpack_from(data)[2]] in ("CREDIT", "TAKE")
            data = peer.recv(65536)
        self.assertEqual(asked, 9)
        again = self.fake.accept()
        self.assertEqual(NAMES[HEADER.unpack_from(again.recv(4096))[2]], "HELLO")
        self.given_alive(child)


if __name__ == "__main__":
    harness.main()
