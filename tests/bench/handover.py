"""The part "handover": two processes change places in one phase change, told so from outside.

Each of two processes under Sublet has weights; in each phase one has them on the device and the other's are in host memory. A
phase change takes the one's out while it brings the other's in. It is held against two plain processes that copy as many bytes,
one out and one in, between pinned memory and the device, begun at the same moment. Both are done in turn, there and back. The
time is that from the begin of both to the end of the slower: of the moves, as the processes tell it in the answer of `sublet
phase`, and of the copies, by one clock. How long the whole command took (all processes asked, held, moved, opened) stands beside
it. The first changes make the host memory, so they count nowhere."""

import json
import time

import intervals
import steps
from moves import BLOCKS, MIB, Sizes
from steps import ns_text
from workers import Session, Worker, WorkerError

ROLES = ("first", "second")
BAR = 0.92
POLICY = """version: 1
host_pool: {pool}MiB
roles: [first, second]
phases: [{{name: first, roles: [first], idle: [second]}}, {{name: second, roles: [second], idle: [first]}}]
triggers: [{{enter: first, command: true}}, {{enter: second, command: true}}]
objects:
  - {{name: of_first, match: {{role: first}}, class: permanent, resident: [first], otherwise: offload}}
  - {{name: of_second, match: {{role: second}}, class: permanent, resident: [second], otherwise: offload}}
"""


class Change:
    """What `sublet phase` said of one change; @comes and @leaves: pids of who must have moved @size."""

    def __init__(self, result, phase, leaves, comes, size):
        where = f"sublet phase {phase}"
        if not result.good:
            raise WorkerError(f"{where}: {result.problem or 'exit status %d' % result.status}", result.tail())
        try:
            answer = json.loads(result.out)
            self.command_ns = answer["seconds"] * 1e9
            moves = {(row["pid"], row["step"]): (row["moved_bytes"], row["seconds"] * 1e9) for row in answer["moves"]}
        except (ValueError, KeyError, TypeError) as error:
            text = f"{where}: its answer is not understood ({type(error).__name__}: {error})"
            raise WorkerError(text, result.out[-600:]) from error
        wanted = {(leaves, "release"), (comes, "acquire")}
        if set(moves) != wanted or any(not size <= moved <= size + 2 * MIB * BLOCKS for moved, _ in moves.values()):
            raise WorkerError(f"{where}: not both moved {steps.amount(size)}, one out and one in", result.out[-600:])
        self.out_ns, self.in_ns = moves[(leaves, "release")][1], moves[(comes, "acquire")][1]
        self.ns = max(self.out_ns, self.in_ns)


class Round:
    """Four fresh processes: a plain one and one under Sublet for each role."""

    def __init__(self, part, session):
        self.part, self.session, self.workers = part, session, {}
        self.size, self.piece = part.sizes.weights, part.sizes.extent("weights")
        self.block = part.sizes.block("weights")

    def ask(self, worker, words, seconds=60):
        return [int(word) for word in worker.ask(words, min(seconds, self.part.left() + 1)).split()]

    def start(self, argv):
        """One after the other, each with its memory, so that what the session has on the device is never more than one's."""
        bench = self.part.bench
        env = steps.sublet_env(log="*:warn,stats:info")
        for role in ROLES:
            plain = Worker(argv, self.session.plain_env(), bench.work, f"plain {role}")
            self.workers["plain", role] = plain
            plain.ready(min(60, self.part.left()))
            self.ask(plain, f"take {self.block} {BLOCKS}")
            self.ask(plain, f"pin {self.block} {BLOCKS}", 120)
        for role in ROLES:
            worker = Worker(self.session.argv(argv, role), env, bench.work, f"Sublet {role}")
            self.workers["Sublet", role] = worker
            worker.ready(min(60, self.part.left()))
            begun = self.phase_command(role)
            if not begun.good:
                raise WorkerError(f"sublet phase {role}: {begun.problem or 'exit status %d' % begun.status}", begun.tail())
            self.ask(worker, f"take {self.block} {BLOCKS}")

    def pid(self, role):
        return self.workers["Sublet", role].process.pid

    def phase_command(self, phase):
        return steps.run_command(self.session.sublet("phase", phase, "--json"), min(90, self.part.left()), env=steps.plain_env())

    def change(self, comes, leaves):
        return Change(self.phase_command(comes), comes, self.pid(leaves), self.pid(comes), self.size)

    def plain(self, comes, leaves):
        """(ns of both, ns out, ns in)"""
        at_ns = time.monotonic_ns() + 2_000_000  # both have read their line by then, and wait for the clock
        asked = [(self.workers["plain", role], f"{word} {self.piece} {at_ns}") for role, word in ((leaves, "out"), (comes, "in"))]
        for worker, words in asked:
            worker.say(words)
        (out_begin, out_end), (in_begin, in_end) = [
            [int(word) for word in worker.line(min(60, self.part.left() + 1)).split()] for worker, _ in asked
        ]
        return max(out_end, in_end) - min(out_begin, in_begin), out_end - out_begin, in_end - in_begin

    def check(self, role):
        compared, differ = self.ask(self.workers["Sublet", role], f"check {self.block}", 120)
        self.part.checks += 1
        if compared != self.size // 4 or differ:
            self.part.wrong.append(f"{role}: {differ} of {compared} words are not what was written")

    def go(self, changes, number):
        # the second has its memory now, the first's has left: twice more, and both have host memory of their own
        for comes, leaves in (ROLES, ROLES[::-1]):
            self.change(comes, leaves)
            self.plain(comes, leaves)
            self.check(comes)
        made = []
        self.part.pairs.append(made)
        for i in range(changes):
            comes, leaves = ROLES if i % 2 == 0 else ROLES[::-1]
            plain = self.plain(comes, leaves) if (number + i // 2) % 2 else None
            change = self.change(comes, leaves)
            plain = plain or self.plain(comes, leaves)
            made.append((plain[0], change.ns))
            self.part.plain_each.append(plain[1:])
            self.part.changes.append(change)
            if i >= changes - 2:
                self.check(comes)

    def close(self):
        told = {key: worker.close() for key, worker in self.workers.items()}
        self.part.bench.logs += told.values()
        return [role for (kind, role), text in told.items() if kind == "Sublet" and not steps.Report(text).managed]


class Part:
    SECONDS = 200

    def __init__(self, bench):
        self.bench, self.sizes, self.deadline = bench, Sizes(bench.options.sizes), steps.Deadline(self.SECONDS)
        self.sim = bench.find_sim() if bench.options.sim else None
        self.pairs, self.plain_each, self.changes, self.checks, self.wrong = [], [], [], 0, []

    def left(self):
        return min(self.bench.left(), self.deadline.left())

    def run(self):
        rounds, changes = (1, 6) if self.bench.options.quick else (2, 10)
        flags = ["-DVIA_DLSYM", "-ldl"] + (["-DON_SIM", "-rdynamic", "-I", steps.ROOT] if self.sim else [])
        argv = [self.bench.program("handover_worker", "residency_worker.c", flags)]
        policy, longest = POLICY.format(pool=self.sizes.weights * 5 // 2 // MIB), 0.0
        try:
            for number in range(rounds):
                if number and self.left() < 1.3 * longest:
                    self.bench.notes.append(f"handover: out of time after {number} of {rounds} rounds")
                    break
                begin = time.monotonic()
                self.one_round(argv, policy, changes, number)
                longest = max(longest, time.monotonic() - begin)
        finally:  # what was measured until something broke is shown too
            self.rows()

    def one_round(self, argv, policy, changes, number):
        with Session(self.bench.build, policy, sim=self.sim) as session:
            one = Round(self, session)
            try:
                one.start(argv)
                one.go(changes, number)
            finally:
                silent = one.close()
        self.bench.logs.append(session.log)
        if silent:
            raise WorkerError(f"process {silent[0]} ended without counters, or managed no memory: was Sublet there?")

    def rows(self):
        made = [pairs for pairs in self.pairs if pairs]
        if not made:
            return
        judged = self.sizes.are_those_of_the_bars and not self.sim
        size, count = 2 * self.sizes.weights, sum(len(pairs) for pairs in made)
        plain, moved = (intervals.median([pair[i] for pairs in made for pair in pairs]) for i in (0, 1))
        value, low, high = intervals.interval([[1 / x for x in r] for r in intervals.ratios(made)])
        each = [intervals.median([found[i] for found in self.plain_each]) for i in (0, 1)]
        own = [intervals.median([getattr(change, key) for change in self.changes]) for key in ("out_ns", "in_ns", "command_ns")]
        self.bench.row(
            f"hand-over, {steps.amount(self.sizes.weights)} out of one process and as much into another, {count} pairs in "
            f"{len(made)} rounds",
            f"copied in {ns_text(plain)} ({size / plain:.1f} GB/s both; out {ns_text(each[0])}, in {ns_text(each[1])})",
            f"moved in {ns_text(moved)} ({size / moved:.1f} GB/s both; out {ns_text(own[0])}, in {ns_text(own[1])}), "
            f"whole phase change {ns_text(own[2])}",
            f"{100 * value:.1f} % of the plain rate [{100 * low:.1f}, {100 * high:.1f}]",
            f"at least {100 * BAR:.0f} %, of the slower process" if judged else "- (those sizes, on a GPU)",
            intervals.judge(value, low, high, BAR, True) if judged else "shown",
        )
        self.bench.row(
            f"contents after a hand-over, {self.checks} times {steps.amount(self.sizes.weights)}", "", "",
            "; ".join(self.wrong[:3]) or "every word as written", "no word differs", "FAIL" if self.wrong else "pass",
        )
        self.bench.raw["handover"] = {
            "plain ns, moved ns, by round": made, "plain ns out and in": self.plain_each, "interval": [value, low, high],
            "ns out, in, of the command": [(change.out_ns, change.in_ns, change.command_ns) for change in self.changes],
        }
