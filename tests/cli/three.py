"""tests/cli/three.py
A session of three processes that pass one device around, for the tests of what is left of it when one of them or its coordinator is
struck (tests/cli/struck.c): who lives on goes on with equal bytes, and the ledgers say what the simulated machine says."""
import os
import select
import signal
import subprocess
import sys
import time

import harness
import phases
import session
from session import MIB

STRUCK = os.environ["SUBLET_TEST_STRUCK"]
# Both change at each phase, and a third with them that is parked; what the device has is room for one of the first two.
SIZES = {"train": (12, 8, 4), "rollout": (12, 6, 2), "other": (6,)}
TOTAL = {role: sum(sizes) for role, sizes in SIZES.items()}
OBJECT = {"train": "train_state", "rollout": "rollout_weights", "other": "other_state"}
DEVICE = 44
ROOMY, TIGHT = 200, 42  # of the host pool, in MiB: the second makes the two exchange extents
POLICY = """version: 1
host_pool: %dMiB
roles: [train, rollout, other]
phases:
  - {name: rollout, roles: [rollout, other], idle: [train]}
  - {name: train, roles: [train, other], idle: [rollout]}
triggers: [{enter: rollout, command: true}, {enter: train, command: true}]
barrier: {timeout: 4s}
objects:
  - {name: rollout_weights, match: {role: rollout}, class: permanent, resident: [rollout], otherwise: offload}
  - {name: train_state, match: {role: train}, class: permanent, resident: [train], otherwise: offload}
  - {name: other_state, match: {role: other}, class: permanent, resident: [train], otherwise: park}
"""
WHERE = {"train": {"train": "device", "rollout": "host", "other": "device"},
         "rollout": {"train": "host", "rollout": "device", "other": "parked"}}
GATED_S = 30  # for a gated call of who lives on: a second of a soft hold, and then much for a loaded machine


class Case(session.Case):
    pool = ROOMY

    def setUp(self):
        super().setUp()
        with open(self.policy, "w") as text:
            text.write(POLICY % self.pool)
        self.env["LD_PRELOAD"] = STRUCK  # does nothing where it is not told to
        self.given_served()
        self.members = {}

    def given_member(self, role, strike_at=0, strike_with=signal.SIGKILL):
        """A process of @role; None when it was struck before it was ready. `env` stands between, so that `sublet run`, which
        speaks to the coordinator too, is not the one that is struck."""
        words = [harness.EXE, "run", "--session", self.session, "--sim=%dMiB" % DEVICE, "--role", role, "--", "env",
                 "SUBLET_TEST_STRIKE_AT=%d" % strike_at, "SUBLET_TEST_STRIKE_WITH=%d" % strike_with, session.HOLDER]
        child = subprocess.Popen([*words, *map(str, SIZES[role])], env=self.env, cwd=self.folder, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=open(os.path.join(self.folder, role + ".err"), "a"), text=True)
        self.children.append(child)
        said = child.stdout.readline().strip()
        self.members[role] = child
        if said != "ready":
            self.assertEqual((said, child.wait(timeout=60)), ("", -strike_with), "%s: %s" % (role, said))
            del self.members[role]
        return child

    def given_three(self):
        """In phase train: one after the other, as the device has no room for all."""
        self.given_changed("rollout")
        for role in ("other", "rollout"):
            self.given_member(role)
        self.given_changed("train")
        self.given_member("train")

    def given_said(self, role, word):
        self.members[role].stdin.write(word + "\n")
        self.members[role].stdin.flush()
        return self.members[role].stdout.readline().strip()

    def given_asked(self, phase):
        """`sublet phase`, which is not waited for."""
        child = subprocess.Popen([harness.EXE, "phase", phase], env=self.env, cwd=self.folder, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def given_stopped(self, pid):
        """The process stands still, by a signal that it was sent or sends itself."""
        def stands():
            with open("/proc/%d/stat" % pid) as text:
                return text.read().rpartition(")")[2].split()[0] == "T"
        self.eventually(stands, "pid %d stands still" % pid)

    def given_changed(self, phase):
        got = self.sublet("phase", phase, "--json")
        self.assertEqual(got.returncode, 0, got)
        return session.json.loads(got.stdout)

    def given_bytes_equal(self, roles=None):
        """Each makes gated calls, all at once, and has them through within a bound."""
        roles = list(self.members if roles is None else roles)
        for role in roles:
            self.members[role].stdin.write("check\n")
            self.members[role].stdin.flush()
        until = time.monotonic() + GATED_S
        for role in roles:
            stdout = self.members[role].stdout
            there = select.select([stdout], [], [], max(0, until - time.monotonic()))[0]
            self.assertTrue(there, "the gate of %s stays shut" % role)
            self.assertEqual(stdout.readline().strip(), "same bytes", role)

    def given_witness(self):
        """MiB of the device and of host memory that are taken, as the simulated machine counts them."""
        if not hasattr(self, "witness"):
            env = dict(self.env, LD_PRELOAD="", LD_LIBRARY_PATH=harness.SIM_FOLDER, SUBLET_SIM_CAPACITY=str(DEVICE * MIB),
                       SUBLET_SIM_MACHINE=os.path.join(self.session, "sim"))
            self.witness = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "witness.py")], env=env,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.children.append(self.witness)
        self.witness.stdin.write("\n")
        self.witness.stdin.flush()
        return tuple(map(int, self.witness.stdout.readline().split()))

    def given_all_joined(self):
        self.eventually(lambda: len(self.given_status()["clients"]) == len(self.members), "all have joined", 30)

    def ledger(self):
        """What is wrong with it; None: nothing is."""
        pool, (device, host) = self.given_status(), self.given_witness()
        clients, pool = pool["clients"], pool["host_pool"]
        held = sum(client["host_pool_bytes"] for client in clients)
        if len(clients) != len(self.members):
            return "clients: %s" % clients
        if pool["used_bytes"] != held + pool["kept_bytes"] or pool["used_bytes"] > self.pool * MIB:
            return "used %s of %s, held %d MiB" % (pool, self.pool, held // MIB)
        if host * MIB != pool["used_bytes"]:
            return "the machine has %d MiB of host memory taken, the ledger says %s" % (host, pool)
        return None

    def given_true(self, phase):
        """All are where @phase wants them, and nothing else is taken."""
        wanted = {OBJECT[role]: {WHERE[phase][role]: TOTAL[role]} for role in self.members}
        places = {name: {where: size // MIB for where, size in row["bytes"].items() if size}
                  for name, row in self.given_objects().items() if row["allocations"]}
        self.assertEqual(places, wanted)
        on_device = sum(TOTAL[role] for role in self.members if WHERE[phase][role] == "device")
        # freed pages leave when the work before them has passed, and a process has ended some time after it was killed
        self.eventually(lambda: self.ledger() is None, self.ledger())
        self.eventually(lambda: self.given_witness()[0] == on_device, "%d MiB on the device, not %s" % (on_device, self.given_witness()))
