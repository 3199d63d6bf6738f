"""tests/cli/session.py
A session for the tests of its coordinator: one that is served, programs that have device memory in it, and the protocol spoken
by hand (protocol.py)."""
import json
import os
import socket
import struct
import subprocess
import sys
import time

import harness
from protocol import Peer, message

HOLDER = os.environ["SUBLET_TEST_HOLDER"]
PEER_DOUBLE = os.environ["SUBLET_TEST_PEER_DOUBLE"]

MIB = 1 << 20

POLICY = """version: 1
host_pool: 1GiB
roles: [train, rollout]
phases:
  - {name: decode, roles: [rollout]}
  - {name: update, roles: [train], idle: [rollout]}
triggers: [{enter: decode, command: true}, {enter: update, command: true}]
pinned: [{role: rollout, size: "<2MiB"}]
objects:
  - {name: kv_cache, match: {role: rollout, size: ">=64MiB"}, class: regenerable, resident: [decode], otherwise: discard,
     exclusive: true}
  - {name: scratch, match: {role: rollout, size: "16MiB..32MiB"}, class: regenerable, resident: [decode], otherwise: park}
  - {name: weights, match: {role: rollout}, class: permanent, resident: [decode], otherwise: park}
"""


def amount(kind, size, extent=None, serial=1):
    if extent is None:
        extent = 1 if kind in ("MADE", "TAKE") else 0
    return message(kind, struct.pack("<QQ", size, extent), serial)


class ProcessPeer(Peer):
    """A connection that is another process's, for as long as that lives: spoken over from here, ended with close()."""

    PROGRAM = ("import array, os, socket, sys\nours = socket.socket(fileno=int(sys.argv[2]))\n"
               "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\nos.chdir(sys.argv[1])\ns.connect('socket')\n"
               "ours.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])\n"
               "s.close()\nours.recv(1)\n")

    def __init__(self, session):
        self.ours, theirs = socket.socketpair()
        self.child = subprocess.Popen([sys.executable, "-c", self.PROGRAM, session, str(theirs.fileno())],
                                      pass_fds=[theirs.fileno()])
        theirs.close()
        _, fds, _, _ = socket.recv_fds(self.ours, 1, 1)
        self.socket = socket.socket(fileno=fds[0])
        self.socket.settimeout(20)

    def hang_up(self):
        """The connection ends, the process does not."""
        self.socket.close()

    def close(self):
        self.socket.close()
        self.ours.close()
        self.child.wait(timeout=20)


def text_of(body):
    return body.split(b"\0")[0].decode()


class Holder:
    """tests/cli/holder.c under `sublet run`."""

    def __init__(self, case, sizes, *options, env=None):
        words = [harness.EXE, "run", "--session", case.session, "--sim=1GiB", *options, "--", HOLDER, *map(str, sizes)]
        self.child = subprocess.Popen(words, env=env or case.env, cwd=case.folder, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=open(os.path.join(case.folder, "holder.err"), "a"), text=True)
        self.pid = self.child.pid
        case.children.append(self.child)
        self.first = self.child.stdout.readline().strip()

    def say(self, word):
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def end(self):
        self.child.stdin.close()
        return self.child.wait(timeout=60)


class Case(harness.Case):
    """self.session is a folder; what was started is ended."""

    def setUp(self):
        super().setUp()
        self.session = os.path.join(self.folder, "session")
        os.mkdir(self.session, 0o700)
        self.policy = os.path.join(self.folder, "policy.yaml")
        with open(self.policy, "w") as text:
            text.write(POLICY)
        self.children = []
        self.env["SUBLET_SESSION"] = self.session

    def tearDown(self):
        for child in self.children:
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
            if child.poll() is None:
                child.kill()
            child.wait()
        self.sublet("ctl", "stop")
        super().tearDown()

    def given_served(self, *options, env=None, policy=True):
        """A coordinator in the background; its pid."""
        options = (*options, "--policy", self.policy) if policy else options
        got = self.sublet("serve", "--background", *options, env=env or self.env)
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""), got)
        return self.given_status()["coordinator"]

    def given_foreground(self, *options, env=None):
        child = subprocess.Popen([harness.EXE, "serve", *options], env=env or self.env, cwd=self.folder, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        self.assertIn("serving session", child.stderr.readline())
        return child

    def given_holder(self, sizes=(64, 8), *options, env=None):
        holder = Holder(self, sizes, *options, env=env)
        self.assertEqual(holder.first, "ready")
        return holder

    def given_json(self, *words):
        got = self.sublet("ctl", *words, "--json")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return json.loads(got.stdout)

    def given_status(self):
        return self.given_json("status")

    def given_objects(self):
        return {row["object"]: row for row in self.given_json("objects")}

    def given_log(self):
        with open(os.path.join(self.session, "coordinator.log")) as text:
            return text.read()

    def given_log_has(self, part):
        self.eventually(lambda: part in self.given_log(), part)

    def eventually(self, holds, what="", seconds=20):
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, "not within %d s: %s" % (seconds, what))
            time.sleep(0.02)
