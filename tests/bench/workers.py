"""The processes that measure: one, and a plain one beside one under Sublet. Every answer is waited for at most so long."""

import ctypes
import os
import selectors
import subprocess
import tempfile
import time

import steps

LIBC = ctypes.CDLL(None)
ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h


def same_addresses():
    """In a process about to be started: its addresses are those of the next one of its kind."""
    LIBC.personality(ADDR_NO_RANDOMIZE)


class WorkerError(Exception):
    def __init__(self, text, tail=""):
        super().__init__(text)
        self.tail = tail


class Worker:
    """One measuring process; every answer is waited for at most so long."""

    def __init__(self, argv, env, work, kind, prepare=None):
        self.kind, self.pending, self.process = kind, b"", None
        self.err = tempfile.TemporaryFile(dir=work)
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.err,
                env=env,
                cwd=work,
                start_new_session=True,
                preexec_fn=prepare,
            )
        except OSError as error:
            self.err.close()
            raise WorkerError(f"cannot start '{argv[0]}': {error.strerror}") from error
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def told(self):
        self.err.seek(0)
        return self.err.read().decode("utf-8", "replace")

    def tail(self):
        return "\n".join(self.told().rstrip().splitlines()[-15:])

    def line(self, seconds):
        limit = time.monotonic() + seconds
        while b"\n" not in self.pending:
            if steps.stop.is_set():
                raise WorkerError("interrupted")
            left = limit - time.monotonic()
            if left <= 0:
                raise WorkerError(f"{self.kind} worker: no answer within {seconds:.0f} s", self.tail())
            if not self.selector.select(min(left, 0.2)):
                continue
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise WorkerError(f"{self.kind} worker ended early", self.tail())
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()

    def ready(self, seconds):
        while self.line(seconds) != "ready":  # a framework may talk on stdout first
            pass

    def say(self, words):
        try:
            self.process.stdin.write(words.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise WorkerError(f"{self.kind} worker is gone", self.tail()) from None

    def ask(self, words, seconds=30):
        self.say(words)
        return self.line(seconds)

    def close(self):
        """Ends the worker; returns what it wrote on stderr."""
        try:
            self.process.stdin.write(b"quit\n")
            self.process.stdin.close()
        except OSError:
            pass
        limit = time.monotonic() + 15
        while not steps.has_ended(self.process.pid) and time.monotonic() < limit and not steps.stop.is_set():
            time.sleep(0.01)
        steps.end_group(self.process)
        told = self.told()
        self.selector.close()
        self.process.stdout.close()
        self.err.close()
        return told


class Session:
    """The folder of a session, for the processes of one measurement. With @policy it has a coordinator, started by its first
    process; @sim: the folder of the simulated driver, whose machine is that of the session's processes and of plain ones beside
    them (without a policy each plain process has one of its own, unless @shared). At the end nothing of it is left, and .log has
    what the coordinator wrote."""

    def __init__(self, build, policy=None, sim=None, capacity=None, shared=False):
        self.build, self.served, self.sim, self.capacity, self.log = build, policy is not None, sim, capacity, ""
        self.folder = steps.session_dir()
        if self.served:
            self.policy = os.path.join(self.folder, "policy.yaml")
            steps.write_file(self.policy, policy)
        self.machine = os.path.join(self.folder, "sim") if sim and (self.served or shared) else None
        if self.machine:
            os.mkdir(self.machine, 0o700)

    def sublet(self, *words):
        """The command, its own words first."""
        return [os.path.join(self.build, "tools", "sublet"), *words, "--session", self.folder]

    def plain_env(self, extra=None):
        """Of a plain process that shares the device with those of the session."""
        env = steps.plain_env(extra)
        if self.sim:
            env["LD_LIBRARY_PATH"] = self.sim + os.pathsep + env.get("LD_LIBRARY_PATH", "")
        if self.machine:
            env["SUBLET_SIM_MACHINE"] = self.machine
        if self.sim and self.capacity:
            env["SUBLET_SIM_CAPACITY"] = str(self.capacity)
        return env

    def argv(self, argv, role=None):
        """@argv under Sublet."""
        words = self.sublet("run")
        if self.served:
            words += ["--policy", self.policy, "--role", role]
        if self.sim:
            words.append(f"--sim={self.capacity}" if self.capacity else "--sim")
        return words + ["--"] + argv

    def close(self):
        if self.served:
            self.stop_coordinator()
        steps.drop_dir(self.folder)

    def stop_coordinator(self):
        """It would end by itself, half a minute later, and keep the host memory till then."""
        steps.run_command(self.sublet("ctl", "stop"), 20, env=steps.plain_env())
        try:
            with open(os.path.join(self.folder, "coordinator.log"), encoding="utf-8", errors="replace") as file:
                self.log = "coordinator:\n" + file.read()
        except OSError:
            pass  # it never started; the process has said why

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pair:
    """A plain worker and one under Sublet, started together. With a policy the session has a coordinator, and on a simulated
    driver the two are on one machine. @second: more variables for the second worker, or PLAIN: that is a plain one too."""

    PLAIN = {}

    def __init__(self, bench, argv, sim=None, ready_s=60, env=None, wait=True, cores=None, prepare=None, policy=None, role=None,
                 second=None):
        self.bench, self.session, self.workers, self.silent = bench, Session(bench.build, policy, sim), [], False
        try:
            under = self.session.argv(argv, role)
            self.workers.append(Worker(argv, self.session.plain_env(env), bench.work, "plain", prepare))
            # the counters at the end and nothing else: what is measured must not be the log
            env = steps.sublet_env({**(env or {}), **(second or {})}, log="*:warn,stats:info")
            self.workers.append(Worker(argv if second is self.PLAIN else under, env, bench.work, "Sublet", prepare))
            if cores:  # before they have threads, so that all of those inherit it
                for worker in self.workers:
                    os.sched_setaffinity(worker.process.pid, cores)
            if wait:
                self.ready(ready_s)
        except Exception:
            self.close()
            raise

    def ready(self, seconds):
        for worker in self.workers:
            worker.ready(min(seconds, self.bench.left()))

    def ask(self, number, words, seconds=30):
        """(plain answer, Sublet answer); who comes first alternates with @number."""
        answers = [None, None]
        for i in (0, 1) if number % 2 == 0 else (1, 0):
            answers[i] = self.workers[i].ask(words, min(seconds, self.bench.left() + 1))
        return answers

    def close(self):
        told = [worker.close() for worker in self.workers]
        self.bench.logs += told
        self.session.close()
        self.bench.logs.append(self.session.log)
        if len(told) == 2:
            self.report = steps.Report(told[1])
            self.silent = not self.report.seen or not self.report.managed

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close()
        if kind is None and self.silent:
            raise WorkerError(
                "the Sublet worker ended without counters, or managed no memory: was Sublet there?",
                "\n".join(self.report.lines[-5:]),
            )
