"""tools/demo/programs.py
The simulated machine of one run and the programs on it: started plainly or in a session, spoken to a line at a time."""
import ctypes
import json
import os
import subprocess

MIB = 1 << 20


class Failure(Exception):
    """The run cannot go on, and not because the device is full."""


class NoRoom(Exception):
    """The device is full: for an allocation of a program, or for what a phase needs."""

    def __init__(self, who, what, text):
        super().__init__("%s: %s: %s" % (who, what, text))
        self.who, self.what, self.text = who, what, text


class Usage(ctypes.Structure):
    """struct sim_usage of tools/sim/sim.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in ("capacity", "used", "peak", "host", "host_peak")]


class Machine:
    """What the simulated driver counts, asked of the driver itself."""

    def __init__(self, build, folder, capacity):
        self.folder, self.capacity, self.library = folder, capacity, os.path.join(build, "tools/sim")
        os.makedirs(folder, 0o700, exist_ok=True)
        os.environ.update(self.environment())
        self.driver = ctypes.CDLL(os.path.join(self.library, "libcuda.so.1"))
        self.driver.sublet_sim_usage.restype = ctypes.c_bool
        if self.driver.cuInit(0) != 0:
            raise Failure("the simulated driver does not start in %s" % folder)

    def environment(self):
        return {"SUBLET_SIM_MACHINE": self.folder, "SUBLET_SIM_CAPACITY": str(self.capacity)}

    def usage(self, reset=False):
        usage = Usage()
        if not self.driver.sublet_sim_usage(0, reset, ctypes.byref(usage)):
            raise Failure("the simulated driver tells nothing of its machine")
        return usage

    def close(self):
        self.driver.sublet_sim_reset()  # the next one may be another machine


class Program:
    def __init__(self, role, words, env, log):
        self.role, self.log = role, log
        with open(log, "a") as errors:
            self.child = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def tell(self, *words):
        try:
            self.child.stdin.write(" ".join(map(str, words)) + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # its answer says why

    def answer(self):
        """The lines up to "done", each as its words."""
        lines = []
        for line in self.child.stdout:
            words = line.split()
            if words[0] == "done":
                return lines
            if words[0] == "no-room":
                raise NoRoom(self.role, words[1], "cuMemAlloc of %.1f MiB: out of memory" % (int(words[2]) / MIB))
            lines.append(words)
        with open(self.log) as log:
            raise Failure("%s ended with status %s: %s" % (self.role, self.child.wait(), log.read().strip()))

    def close(self):
        for stream in (self.child.stdin, self.child.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Site:
    """A machine with its programs, and with a session where `policy` names a file."""

    def __init__(self, build, folder, capacity, left=None, policy=None):
        self.build, self.folder = build, folder
        self.programs, self.ballast, self.served = {}, 0, False
        self.session = os.path.join(folder, "session") if policy else None
        os.makedirs(self.session or folder, 0o700, exist_ok=True)
        # where `sublet run --sim` has the machine of a session
        self.machine = Machine(build, os.path.join(self.session or folder, "sim"), capacity)
        self.env = dict(os.environ, LC_ALL="C")
        try:
            if policy:
                self.sublet("serve", "--background", "--policy", policy)
                self.served = True
            if left:
                self.start("ballast", {"left": left}, plain=True)
                self.ballast = self.machine.usage(reset=True).used
        except BaseException:
            self.close()
            raise

    def sublet(self, *words, good=True):
        words = [os.path.join(self.build, "tools/sublet"), *words, "--session", self.session]
        got = subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if good and got.returncode != 0:
            raise Failure("%s: %s" % (" ".join(words[1:]), got.stderr.strip()))
        return got

    def start(self, role, sizes, *options, plain=False):
        name = {"train": "trainer"}.get(role, role)
        words = [os.path.join(self.build, "tools/paper_" + name), *options, self.folder]
        words += ["%s=%d" % size for size in sizes.items()]
        env = dict(self.env, LD_LIBRARY_PATH=self.machine.library)
        if self.session and not plain:
            words = [os.path.join(self.build, "tools/sublet"), "run", "--session", self.session, "--sim=%d" % self.machine.capacity,
                     "--role", role, "--", *words]
            env = self.env
        program = Program(role, words, env, os.path.join(self.folder, role + ".log"))
        self.programs[role] = program
        return program.answer()

    def phase(self, name):
        """Has the phase begin; the rows of what moved."""
        got = self.sublet("phase", name, "--json", good=False)
        if got.returncode != 0:
            raise NoRoom("sublet phase", name, got.stderr.strip().replace("sublet: error: ", ""))
        return json.loads(got.stdout)["moves"]

    def objects(self):
        """{object: {residency: bytes}} of all roles, and the class of each."""
        rows = json.loads(self.sublet("ctl", "objects", "--json").stdout)
        return {row["object"]: row for row in rows}

    def close(self):
        for program in reversed(list(self.programs.values())):
            program.close()
        if self.served:
            self.sublet("ctl", "stop", good=False)
        self.machine.close()
