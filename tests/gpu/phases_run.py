"""The runs of phases.py: the two programs, each alone; both plainly on a device that has no room for them; and both in a session,
trading the memory at phase barriers, with what each change moved and how long it took."""

import concurrent.futures
import json
import os
import re
import statistics
import sys

import compare
import steps

sys.path.append(os.path.join(steps.ROOT, "tests", "bench"))
from workers import Session, Worker, WorkerError as Trouble

ROLES = ("train", "rollout")
WORDS = {"train": "train", "rollout": "generate"}
POLICY = """version: 1
host_pool: {pool}MiB
roles: [train, rollout]
phases: # the other one waits for its turn, so what it may lose is discarded at once
  - {{name: rollout, roles: [rollout], idle: [train]}}
  - {{name: train, roles: [train], idle: [rollout]}}
triggers:
  - {{enter: rollout, command: true}}
  - {begins}
barrier: {{quorum: role, timeout: 60s}} # of the roles one has triggers, so its own arrival is enough
objects:
  - {{name: kv_cache, match: {{role: rollout, size: {rollout}}}, class: regenerable, resident: [rollout], otherwise: discard,
     exclusive: true}}
  - {{name: rollout_rest, match: {{role: rollout}}, class: permanent, resident: [rollout], otherwise: offload}}
  - {{name: gradients, match: {{role: train, size: {train}}}, class: regenerable, resident: [train], otherwise: discard,
     exclusive: true}}
  - {{name: train_rest, match: {{role: train}}, class: permanent, resident: [train], otherwise: offload}}
"""
BEGINS = {
    "nvtx": '{enter: train, role: train, nvtx_push: ["*policy_worker*/train", "DeepSpeedEngine.forward"]}',
    "command": "{enter: train, command: true}",
}
LOG = "*:info,residency:warn"  # of the moves; what is said of a gate at a process's end is none of a warning
REWRITTEN = {"train": "gradients", "rollout": "kv_cache"}
MIB = 1 << 20


class NoRoom(Exception):
    """A program found the device full."""


class Program(Worker):
    """One of the two, told a line at a time; its answers end with "done"."""

    def answer(self, seconds):
        lines = []
        while True:
            line = self.line(seconds)
            if line == "done":
                return lines
            if line.startswith("no-room "):
                raise NoRoom(f"{self.kind}: {line[8:]}")
            if line.startswith("other "):
                raise Trouble(f"{self.kind}: bytes are not as it left them: {line}", self.tail())
            lines.append(line)

    def do(self, words, seconds):
        self.say(words)
        return self.answer(seconds)

    def results(self, seconds):
        found = compare.parse("\n".join(self.do("end", seconds)))
        if not found:
            raise Trouble(f"{self.kind}: printed no result", self.tail())
        return found


class Change:
    """Of one phase change: who began it, what went and came (bytes), how long it took."""

    def __init__(self, iteration, phase, before, after, barrier_s, moves, used):
        self.iteration, self.phase, self.barrier_s, self.used = iteration, phase, barrier_s, used
        self.moves = [(row["role"], row["step"], row["moved_bytes"], row["seconds"]) for row in moves]
        self.out = self.dropped = self.back = self.fresh = 0
        for name, row in after.items():
            host, empty = (row["bytes"][where] - before[name]["bytes"][where] for where in ("host", "empty"))
            self.out, self.back = self.out + max(host, 0), self.back + max(-host, 0)
            self.dropped, self.fresh = self.dropped + max(empty, 0), self.fresh + max(-empty, 0)

    @property
    def rate(self):
        """GB/s of what was copied, out and in together, over the whole barrier."""
        return (self.out + self.back) / self.barrier_s / 1e9 if self.barrier_s else 0.0

    def row(self):
        keys = ("iteration", "phase", "barrier_s", "out", "dropped", "back", "fresh", "rate", "moves", "used")
        return {key: getattr(self, key) for key in keys}


class Runs:
    """@programs: {role: words}. @sim: the folder of the simulated driver, or None; @capacity: bytes of its device."""

    def __init__(self, options, build, programs, deadline, work, sim=None, capacity=None):
        self.options, self.build, self.programs, self.deadline, self.work = options, build, programs, deadline, work
        self.sim, self.capacity, self.logs, self.plain = sim, capacity, [], {role: [] for role in ROLES}
        self.changes, self.results, self.notes, self.begun = [], {}, [], 0
        self.nvml = None if sim else steps.Nvml.open()

    def bound(self, seconds):
        left = self.deadline.left()
        if left < 1:
            raise Trouble("out of time")
        return min(seconds, left)

    def ended(self, program):
        self.logs.append(f"=== {program.kind}\n{program.close()[-200000:]}")

    # ---- plain ----

    def alone(self, role):
        with Session(self.build, sim=self.sim, capacity=self.capacity) as place:
            program = Program(self.programs[role], place.plain_env(), self.work, f"{role}, plain")
            try:
                program.answer(self.bound(150))
                for k in range(1, self.options.iterations + 1):
                    program.do(f"{WORDS[role]} {k}", self.bound(60))
                self.plain[role].append(program.results(self.bound(60)))
            finally:
                self.ended(program)

    def run_plain(self):
        """Two runs of each. One of each at a time: they share nothing but the device, which has room for both."""
        with concurrent.futures.ThreadPoolExecutor(len(ROLES)) as pool:
            for _ in range(2):
                for done in [pool.submit(self.alone, role) for role in ROLES]:
                    done.result()
        for role in ROLES:
            if not self.plain[role][0]["info"]["rewritten"][1]:
                raise Trouble(f"{role}: does not say what it rewrites")

    def peak(self, role):
        return max(run["info"]["peak bytes"] for run in self.plain[role])

    def left(self):
        """Bytes that the ballast leaves free: enough for the larger one, its context and the other's, not for both."""
        peaks = sorted(self.peak(role) for role in ROLES)
        left = self.options.left or peaks[1] + self.options.margin
        if not peaks[1] < left < sum(peaks):
            sizes = " and ".join(steps.amount(peak) for peak in peaks)
            raise Trouble(f"{steps.amount(left)} left free do not have room for one of {sizes} only; choose another --left")
        return left

    def ballast(self, place):
        argv = [sys.executable, os.path.join(steps.HERE, "ballast.py"), str(self.left())]
        program = Program(argv, place.plain_env(), self.work, "ballast")
        try:
            told = program.answer(self.bound(60))[0]
        except (Trouble, NoRoom, IndexError):
            self.ended(program)
            raise
        return program, int(told.split()[1])

    def naive(self):
        """What one of them says when both are started plainly; None when there was room for both."""
        programs = []
        with Session(self.build, sim=self.sim, capacity=self.capacity, shared=True) as place:
            try:
                programs.append(self.ballast(place)[0])
                for role in ROLES:
                    programs.append(Program(self.programs[role], place.plain_env(), self.work, f"{role}, naive"))
                for program in programs[1:]:
                    program.answer(self.bound(150))
                for k in (1, 2):  # what lives on is all there after the first
                    for role, program in zip(ROLES[::-1], programs[:0:-1]):
                        program.do(f"{WORDS[role]} {k}", self.bound(60))
            except NoRoom as met:
                return str(met)
            finally:
                for program in programs[::-1]:
                    self.ended(program)
        return None

    # ---- in a session ----

    def policy(self):
        sizes = {role: self.plain[role][0]["info"]["rewritten"][1] for role in ROLES}
        pool = (sum(self.peak(role) for role in ROLES) * 5 // 4 + 64 * MIB) // MIB
        return POLICY.format(pool=pool, begins=BEGINS[self.options.by], **sizes)

    def command(self, *words):
        result = steps.run_command(self.session.sublet(*words, "--json"), self.bound(90), env=steps.plain_env())
        if not result.good:
            raise Trouble(f"sublet {' '.join(words)}: {result.problem or result.status}: {(result.err or result.out)[-600:]}")
        return json.loads(result.out)

    def objects(self):
        return {row["object"]: row for row in self.command("ctl", "objects")}

    def barriers(self):
        """(phase, seconds) of each that has begun, from the coordinator's own record."""
        try:
            with open(os.path.join(self.session.folder, "coordinator.log"), encoding="utf-8", errors="replace") as file:
                return [(name, float(s)) for name, s in re.findall(r"phase (\w+): barrier \d+ took ([\d.]+) s", file.read())]
        except OSError:
            return []

    def start(self, role):
        env = steps.sublet_env({"SUBLET_VERIFY": "1"} if self.options.verify else {}, log=LOG)
        program = Program(self.session.argv(self.programs[role], role), env, self.work, f"{role}, with Sublet")
        self.running[role] = program
        program.answer(self.bound(150))

    def change(self, iteration, phase, work=lambda: None):
        """Into @phase, by command or by what @work does."""
        before = self.objects()
        moves = self.command("phase", phase)["moves"] if phase == "rollout" or self.options.by == "command" else []
        used = self.nvml.used() if self.nvml and moves else None
        work()
        self.begun += 1
        status, barriers = self.command("ctl", "status"), self.barriers()
        found = (status["phase"], status["phases_begun"], len(barriers))
        if found != (phase, self.begun, self.begun) or barriers[-1][0] != phase:
            raise Trouble(
                f"iteration {iteration}: phase {found[0]} is in force, {found[1]} have begun, {found[2]} are in the coordinator's log; "
                f"it should be {phase}, {self.begun} of them"
            )
        self.changes.append(Change(iteration, phase, before, self.objects(), barriers[-1][1], moves, used))

    def check_objects(self, role):
        """The policy takes exactly what the program rewrites."""
        count, size = self.plain[role][0]["info"]["rewritten"]
        row = self.objects()[REWRITTEN[role]]
        found = (row["allocations"], sum(row["bytes"].values()))
        if found != (count, count * size):
            raise Trouble(f"'{REWRITTEN[role]}' has {found[0]} allocations, {found[1]} bytes; it should be {count} of {size}")

    def under_sublet(self):
        self.running, ballast = {}, None
        with Session(self.build, self.policy(), sim=self.sim, capacity=self.capacity) as self.session:
            try:
                ballast, self.free_bytes = self.ballast(self.session)
                self.start("train")
                self.check_objects("train")
                self.change(0, "rollout")
                self.start("rollout")
                self.check_objects("rollout")
                self.iterate()
            except NoRoom as met:
                raise Trouble(f"{met}; phase {self.command('ctl', 'status')['phase']} is in force") from met
            finally:
                for program in self.running.values():
                    self.ended(program)
                if ballast:
                    self.ended(ballast)
        self.logs.append(f"=== {self.session.log}")
        self.look_at_logs()

    def iterate(self):
        for k in range(1, self.options.iterations + 1):
            if k > 1:
                self.change(k, "rollout")
            self.running["rollout"].do(f"generate {k}", self.bound(60))
            self.change(k, "train", lambda k=k: self.running["train"].do(f"train {k}", self.bound(90)))
        self.results["train"] = self.running["train"].results(self.bound(60))
        self.change(k, "rollout")
        self.results["rollout"] = self.running["rollout"].results(self.bound(60))

    def look_at_logs(self):
        for role, text in zip(ROLES, [log for log in self.logs if ", with Sublet\n" in log]):
            report = steps.Report(text)
            if not report.managed:
                self.notes.append(f"{role}: managed no memory: was Sublet there?")
            self.notes += report.bugs + (["verification found a mismatch"] if "MISMATCH" in text else [])
            # a phase in which the program does something that it should not, or a change that was too slow for who waits for it
            self.notes += [line for line in report.lines if "the gate opens for those" in line][:2]

    # ---- what there is to say ----

    def rows(self):
        """A row for each kind of change: the first ones make the host memory, so they stand apart."""
        found = []
        for phase in ("train", "rollout"):
            made = [change for change in self.changes if change.phase == phase]
            # rollout's begins once before there is a rollout, and trainers allocate more in their first step
            first = 1 if phase == "train" else 2
            for name, part in ((f"first to {phase}", made[:first]), (f"to {phase}", made[first:])):
                if part:
                    found.append(self.row(name, phase, part))
        return found

    def row(self, name, phase, changes):
        middle = lambda key: statistics.median(getattr(change, key) for change in changes)
        seconds = sorted(change.barrier_s for change in changes)
        sizes = [steps.amount(int(middle(key))) for key in ("out", "dropped", "back", "fresh")]
        moves = ""
        if changes[-1].moves:
            moves = ", ".join(
                f"{role} {step} {statistics.median(m[3] for c in changes for m in c.moves if m[:2] == (role, step)):.3f} s"
                for role, step in sorted({m[:2] for c in changes for m in c.moves})
            )
        by = "NVTX range" if phase == "train" and self.options.by == "nvtx" else "command"
        return [
            f"{name}, {len(changes)}", by, f"{sizes[0]} / {sizes[1]}", f"{sizes[2]} / {sizes[3]}",
            f"{statistics.median(seconds):.3f} s ({seconds[0]:.3f}..{seconds[-1]:.3f})", f"{middle('rate'):.1f} GB/s", moves,
        ]
