"""The part "residency": what it costs to give memory back and to take it again, told so from outside.

One process under `sublet run --policy` has two objects: scratch, which may be lost, and weights, which may not. A plain
process beside it makes the driver's own calls for as many bytes in extents of the same size, and plain copies between as
much pinned memory and the device. Both are measured in turn: own, Sublet, own, ... A bar is judged on the time of the move inside the
process (`seconds` in the answer of `sublet ctl`: the gate is shut, all of the move); how long the whole command took as this
process sees it stands beside it. The first offload makes the host pool, so it has a row of its own and counts nowhere else."""

import json
import os
import re
import sys
import time

import intervals
import steps
from steps import ns_text
from workers import Pair, Worker, WorkerError

MIB, GIB = 1 << 20, 1 << 30
BLOCKS = 32
# For some time after pages were given back the driver clears them, and who asks for pages waits for that. In use an object is
# away for seconds; what comes at once has a row of its own.
REST_S = 0.3
ROLE = "worker"
POLICY = """version: 1
host_pool: {pool}
roles: [{role}]
phases:
  - {{name: work, roles: [{role}]}}
  - {{name: rest, idle: [{role}]}}
triggers: [{{enter: work, command: true}}, {{enter: rest, command: true}}]
objects:
  - {{name: scratch, match: {{role: {role}, size: {scratch}}}, class: regenerable, resident: [work], otherwise: discard, exclusive: true}}
  - {{name: weights, match: {{role: {role}, size: {weights}}}, class: permanent, resident: [work], otherwise: offload}}
"""


class Sizes:
    """Bytes of scratch and weights, in BLOCKS allocations each, and of the extents these are made of."""

    def __init__(self, text=None):
        self.are_those_of_the_bars = text is None
        words = text.split(",") if text else ["32GiB", "16GiB"]
        found = [re.fullmatch(r"(\d+)([MG])iB", word) for word in words]
        if len(words) != 2 or not all(found):
            raise ValueError(f"'{text}' is not two sizes; write --sizes 32GiB,16GiB")
        self.scratch, self.weights = (int(f.group(1)) * (GIB if f.group(2) == "G" else MIB) for f in found)
        if self.scratch == self.weights or any(size == 0 or size % (BLOCKS * 2 * MIB) for size in (self.scratch, self.weights)):
            raise ValueError(f"'{text}': two different multiples of {2 * BLOCKS}MiB are needed, as in --sizes 32GiB,16GiB")
        with open(os.path.join(steps.ROOT, "lifecycle", "backing.h"), encoding="utf-8") as file:
            text = file.read()
        found = {name: re.search(r"#define EXTENT_%s_BYTES \((\d+)ull << (\d+)\)" % name, text).groups() for name in ("POLICY", "MAX")}
        # what returns without content is cut less finely than what is copied
        self.cut = {what: int(found[name][0]) << int(found[name][1]) for what, name in (("weights", "POLICY"), ("scratch", "MAX"))}

    def block(self, name):
        return getattr(self, name) // BLOCKS

    def extent(self, name):
        return min(self.block(name), self.cut[name])

    def policy(self):
        sizes = {name: f"{self.block(name) // MIB}MiB" for name in ("scratch", "weights")}
        return POLICY.format(role=ROLE, pool=f"{(self.weights + self.weights // 2) // MIB}MiB", **sizes)


class Move:
    """What `sublet ctl VERB OBJECT` said of one move, and how long it took as seen from here."""

    def __init__(self, verb, name, result, size):
        where = f"sublet ctl {verb} {name}"
        if not result.good:
            raise WorkerError(f"{where}: {result.problem or 'exit status %d' % result.status}", result.tail())
        try:
            answers = json.loads(result.out)
            self.ns, self.copy_ns = (sum(a[key] for a in answers) * 1e9 for key in ("seconds", "copy_seconds"))
            moved, wrong = sum(a["moved_bytes"] for a in answers), [a["text"] for a in answers if not a["good"] or a["failed"] or a["skipped"]]
        except (ValueError, KeyError, TypeError) as error:
            raise WorkerError(f"{where}: its answer is not understood ({type(error).__name__}: {error})", result.out[-600:]) from error
        if wrong or moved != size:
            raise WorkerError(f"{where}: {steps.amount(moved)} of {steps.amount(size)} moved; {'; '.join(wrong)}", result.out[-600:])
        if self.ns <= 0:
            raise WorkerError(f"{where}: it says that it took no time", result.out[-600:])
        self.wall_ns = result.seconds * 1e9


class Found:
    """All figures, by round where they are compared."""

    def __init__(self):
        self.pairs = {"release": [], "back": [], "offload": [], "restore": []}  # rounds of (plain ns, ns in the process)
        self.wall, self.copy = {}, {}  # by what was done
        self.at_once = []
        self.own_each, self.own_bare, self.park, self.unpark, self.pin, self.first = [], [], [], [], [], []
        self.memory = []  # (verb, bytes, {who: (before, away, back)})
        self.checks, self.wrong = 0, []

    def add(self, what, plain_ns, move):
        self.pairs[what][-1].append((plain_ns, move.ns))
        self.took(what, move)

    def took(self, what, move):
        self.wall.setdefault(what, []).append(move.wall_ns)
        self.copy.setdefault(what, []).append(move.copy_ns)


class Round:
    """One fresh pair of processes, and all that is measured with it."""

    def __init__(self, part, pair, number):
        self.part, self.pair, self.sizes, self.found, self.number = part, pair, part.sizes, part.found, number
        self.plain, self.under = pair.workers
        self.at_once = False

    def ask(self, worker, words, seconds=60):
        return [int(word) for word in worker.ask(words, min(seconds, self.part.left() + 1)).split()]

    def move(self, verb, name):
        argv = self.pair.session.sublet("ctl", verb, name, "--timeout", "20", "--json")
        result = steps.run_command(argv, min(60, self.part.left()), env=steps.plain_env())
        return Move(verb, name, result, getattr(self.sizes, name))

    def used(self):
        seen = {"another process": self.ask(self.plain, "used")[0]}
        if self.part.nvml:
            seen["NVML"] = self.part.nvml.used()
        return seen

    def there_and_back(self, verb, name, meanwhile=lambda: None):
        """Both moves. What others see of it is noted."""
        before = self.used()
        self.rest()
        away, seen = self.move(verb, name), self.used()
        meanwhile()
        self.rest()
        back, after = self.move("restore", name), self.used()
        self.found.memory.append((verb, getattr(self.sizes, name), {who: (before[who], seen[who], after[who]) for who in before}))
        return away, back

    def check(self, when):
        compared, differ = self.ask(self.under, f"check {self.sizes.block('weights')}", 120)
        self.found.checks += 1
        if compared != self.sizes.weights // 4 or differ:
            self.found.wrong.append(f"{when}: {differ} of {compared} words are not what was written")

    def rest(self):
        if not self.at_once:
            time.sleep(REST_S)

    def no_rest(self, at_once):
        self.at_once = at_once
        self.ask(self.plain, f"rest {0 if at_once else int(1000 * REST_S)} 0")

    def release(self, first):
        """The driver's own calls and Sublet's move; which comes first alternates with @first."""
        own = None
        words = f"own {self.sizes.scratch} {self.sizes.extent('scratch')}"
        if first:
            own = self.ask(self.plain, words)
        away, back = self.there_and_back("discard", "scratch")
        if not first:
            self.rest()
        return own or self.ask(self.plain, words), away, back

    def copy(self, first):
        plain = None
        words = f"copies {self.sizes.block('weights')} {self.sizes.extent('weights')}"
        if first:
            plain = self.ask(self.plain, words)
        away, back = self.there_and_back("offload", "weights")
        self.check("after a restore")
        return plain or self.ask(self.plain, words), away, back

    def start(self):
        block = self.sizes.block("weights")
        for worker in (self.plain, self.under):
            self.ask(worker, f"take {block} {BLOCKS}")
        self.ask(self.under, f"take {self.sizes.block('scratch')} {BLOCKS}")
        self.found.pin += self.ask(self.plain, f"pin {block} {BLOCKS}", 120)
        away, back = self.there_and_back("offload", "weights")
        self.found.first.append(away)
        self.check("after the first restore")
        # the first ones of both sides fill caches
        self.release(True)
        self.ask(self.plain, f"copies {block} {self.sizes.extent('weights')}")

    def go(self, releases, copies, parks):
        self.no_rest(False)
        self.start()
        for rounds in self.found.pairs.values():
            rounds.append([])
        for i in range(releases):
            own, away, back = self.release((self.number + i) % 2 == 0)
            self.found.add("release", own[1], away)
            self.found.add("back", own[0], back)
            self.found.own_each.append(own[2])
            self.found.own_bare.append((own[3], own[4]))
        self.no_rest(True)
        for i in range(max(2, releases // 2)):
            own, _, back = self.release((self.number + i) % 2 == 0)
            if i:  # the first one comes after a rest
                self.found.at_once.append((own[0], back))
        self.no_rest(False)
        for i in range(copies):
            plain, away, back = self.copy((self.number + i) % 2 == 0)
            self.found.add("offload", plain[0], away)
            self.found.add("restore", plain[1], back)
        for _ in range(parks):
            away, back = self.there_and_back("park", "weights", lambda: self.check("while parked"))
            self.check("after a restore from parked")
            self.found.park.append(away)
            self.found.unpark.append(back)


class Part:
    SECONDS = 150

    def __init__(self, bench):
        self.bench, self.options, self.found = bench, bench.options, Found()
        self.sizes, self.deadline = Sizes(bench.options.sizes), steps.Deadline(self.SECONDS)
        self.sim = bench.find_sim() if self.options.sim else None
        self.nvml = None if self.sim else steps.Nvml.open()

    def left(self):
        return min(self.bench.left(), self.deadline.left())

    def run(self):
        rounds, counts = (1, (4, 2, 1)) if self.options.quick else (3, (8, 4, 2))
        flags = ["-DVIA_DLSYM", "-ldl"]
        if self.sim:
            flags += ["-DON_SIM", "-rdynamic", "-I", steps.ROOT]
        argv = [self.bench.program("residency_worker", "residency_worker.c", flags)]
        longest = 0.0
        try:
            for number in range(rounds):
                if number and self.left() < 1.3 * longest:
                    self.bench.notes.append(f"residency: out of time after {number} of {rounds} rounds")
                    break
                begin = time.monotonic()
                with Pair(self.bench, argv, sim=self.sim, ready_s=60, policy=self.sizes.policy(), role=ROLE) as pair:
                    Round(self, pair, number).go(*counts)
                longest = max(longest, time.monotonic() - begin)
                if number == 0:
                    self.peer_rows = self.memory_saver()
        finally:  # what was measured until something broke is shown too
            self.rows()

    # --- rows

    def judge(self, *verdict):
        return intervals.judge(*verdict) if self.sizes.are_those_of_the_bars and not self.sim else "shown"

    def bar(self, text):
        return text if self.sizes.are_those_of_the_bars and not self.sim else "- (those sizes, on a GPU)"

    def sublet_cell(self, what, ns, size=0):
        copied = f" ({size / ns:.1f} GB/s; from the first copy to the last {ns_text(intervals.median(self.found.copy[what]))})"
        took = f", command took {ns_text(intervals.median(self.found.wall[what]))}"
        return f"moved in {ns_text(ns)}" + (copied if size else "") + took

    def compared(self, what, name, size, how, bar, at_least, limit_ns=None):
        """One row of pairs, judged on the ratio; and on the figure itself where there is a limit."""
        made = [r for r in self.found.pairs[what] if r]
        if not made:
            return
        plain, ns = (intervals.median([pair[i] for r in made for pair in r]) for i in (0, 1))
        ratios = intervals.ratios(made)
        if at_least:
            ratios = [[1 / x for x in r] for r in ratios]
        value, low, high = intervals.interval(ratios)
        verdict, bar_text = self.judge(value, low, high, bar, at_least), f"at most {bar} x, of the time in the process"
        change = f"x {value:.3f} [{low:.3f}, {high:.3f}]"
        if at_least:
            change = f"{100 * value:.1f} % of the plain rate [{100 * low:.1f}, {100 * high:.1f}]"
            bar_text = f"at least {100 * bar:.0f} %, of the time in the process"
        if limit_ns:
            bar_text += f", under {ns_text(limit_ns)}"
            edges = intervals.interval([[b for _, b in r] for r in made])
            change += f"; {ns_text(edges[0])} [{ns_text(edges[1])}, {ns_text(edges[2])}]"
            second = self.judge(*edges, limit_ns, False)
            verdict = max(verdict, second, key=lambda v: (v == "FAIL", len(v)))
        self.bench.row(
            f"{name}, {sum(len(r) for r in made)} pairs in {len(made)} rounds",
            f"{how} {ns_text(plain)}" + (f" ({size / plain:.1f} GB/s)" if at_least else ""),
            self.sublet_cell(what, ns, size if at_least else 0),
            change,
            self.bar(bar_text),
            verdict,
        )
        self.bench.raw[f"residency, {what}"] = {
            "plain ns, ns in the process, by round": made, "command ns": self.found.wall[what],
            "ns from the first copy to the last": self.found.copy[what], "interval": [value, low, high]
        }

    def shown(self, name, plain, moves, size):
        if not moves:
            return
        ns, wall = (intervals.median([getattr(m, key) for m in moves]) for key in ("ns", "wall_ns"))
        self.bench.row(name, plain, f"moved in {ns_text(ns)} ({size / ns:.1f} GB/s), command took {ns_text(wall)}", "", "-", "shown")
        self.bench.raw[f"residency, {name}"] = [[m.ns, m.wall_ns] for m in moves]

    def rows(self):
        sizes, found = self.sizes, self.found
        scratch, weights = steps.amount(sizes.scratch), steps.amount(sizes.weights)
        in_extents = f"{sizes.scratch // sizes.extent('scratch')} extents of {steps.amount(sizes.extent('scratch'))}"
        self.compared("release", f"release {scratch} without backup, {in_extents}", sizes.scratch, "unmap, release", 1.1, False)
        self.compared(
            "back", f"bring {scratch} back without content, {in_extents}", sizes.scratch, "create, map, one set-access", 1.1, False, 10e6
        )
        if found.own_each:
            self.bench.row(
                f"the same, the driver's own calls with a set-access for each extent, {len(found.own_each)}",
                ns_text(intervals.median(found.own_each)), "", "", "-", "shown",
            )
            self.bench.raw["residency, own calls with a set-access for each extent"] = found.own_each
        if found.own_bare:
            came, left = zip(*found.own_bare)
            self.bench.row(
                f"the same, the driver's own calls for memory that is not for RDMA, {len(came)}",
                f"in {ns_text(intervals.median(came))}, out {ns_text(intervals.median(left))}", "", "", "-", "shown",
            )
            self.bench.raw["residency, own calls without RDMA"] = found.own_bare
        if found.at_once:
            own, moves = zip(*found.at_once)
            self.bench.row(
                f"bring {scratch} back as soon as as much was given back (the driver still clears it), {len(own)}",
                f"create, map, one set-access {ns_text(intervals.median(own))}",
                f"moved in {ns_text(intervals.median([move.ns for move in moves]))}", "", "-", "shown",
            )
            self.bench.raw["residency, back at once"] = [(plain, move.ns) for plain, move in found.at_once]
        if found.pin:
            pin = intervals.median(found.pin)
            self.shown(
                f"first offload of {weights} (the host pool is made)", f"cuMemHostAlloc of as much {ns_text(pin)}", found.first, sizes.weights
            )
        for what in ("offload", "restore"):
            self.compared(what, f"{what} {weights} in pieces of {steps.amount(sizes.extent('weights'))}", sizes.weights, "copied in", 0.92, True)
        self.shown(f"park {weights}, {len(found.park)}", "", found.park, sizes.weights)
        self.shown(f"restore {weights} that is parked, {len(found.unpark)}", "", found.unpark, sizes.weights)
        self.memory_row()
        if found.checks:
            wrong = "; ".join(found.wrong[:3])
            self.bench.row(
                f"contents of {weights}, {found.checks} times after a restore or while parked", "", "", wrong or "every word as written",
                "no word differs", "FAIL" if wrong else "pass",
            )
        for row in getattr(self, "peer_rows", []):
            self.bench.row(*row)

    def memory_row(self):
        """Device memory in use as somebody else sees it must fall by what left, and be as before when it is back."""
        if not self.found.memory:
            return
        last, wrong = {}, []
        for verb, size, seen in self.found.memory:
            slack = min(64 * MIB, size // 50)
            for who, (before, away, back) in seen.items():
                last[verb] = seen
                if abs(before - away - size) > slack:
                    wrong.append(f"{verb} of {steps.amount(size)}: {who} sees {(before - away) / MIB:.0f} MiB less")
                if abs(back - before) > slack:
                    wrong.append(f"after {verb} and restore {who} sees {(back - before) / MIB:+.0f} MiB")
        cells = [
            f"{verb}: " + ", ".join(f"{who} {' / '.join(f'{x / MIB:.0f}' for x in values)}" for who, values in seen.items())
            for verb, seen in sorted(last.items())
        ]
        self.bench.row(
            f"device memory in use as others see it, MiB before / away / back, {len(self.found.memory)} times",
            "",
            "; ".join(cells),
            "; ".join(sorted(set(wrong))[:3]) or "falls by what left, and is as before when it is back",
            "within 64 MiB, and 2 %",
            "FAIL" if wrong else "pass",
        )
        self.bench.raw["residency, memory in use"] = self.found.memory

    # --- the peer

    def memory_saver(self):
        """Rows (cells) of torch_memory_saver on the same sizes; its trouble is a row, not ours."""
        name, folder = "torch_memory_saver", self.options.memory_saver
        if not folder:
            return [[name, "", "", "not given: --memory-saver DIR", "-", "skip"]]
        env = steps.plain_env({"PYTHONPATH": os.path.abspath(folder)})
        worker, rows = None, []
        try:
            here = os.path.dirname(os.path.abspath(__file__))
            worker = Worker([sys.executable, os.path.join(here, "memory_saver_worker.py")], env, self.bench.work, name)
            worker.ready(min(60, self.left()))
            for tag, size, what in (
                ("scratch", self.sizes.scratch, "{}, no backup"),
                ("weights", self.sizes.weights, "{}, host backup"),
                ("retained", self.sizes.weights, "{}, host backup that is kept"),
            ):
                rows.append(self.peer_row(worker, tag, size, f"{name}, " + what.format(steps.amount(size))))
        except (WorkerError, ValueError) as error:
            rows.append([name, "", "", f"{error}", "-", "shown"])
            self.bench.notes.append(f"{name}: {error}: " + " | ".join(getattr(error, "tail", "").splitlines()[-3:]))
        finally:
            if worker:
                self.bench.logs.append(worker.close())
        return rows

    def peer_row(self, worker, tag, size, name):
        ask = lambda words, seconds=40: int(worker.ask(words, min(seconds, self.left() + 1)))
        if tag != "retained":  # it is the weights again, with another setting
            ask(f"take {tag} {size // BLOCKS} {BLOCKS}")
        else:
            ask("retain weights")
        where = "weights" if tag == "retained" else tag
        times = {"pause": [], "resume": []}
        for _ in range(6 if tag == "scratch" else 2 if tag == "weights" else 3):
            for verb, list_ in times.items():
                list_.append(ask(f"{verb} {where}"))
        differ = 0 if tag == "scratch" else ask(f"check {where}")
        if tag != "weights":  # the first one makes what is kept
            times = {verb: list_[1:] for verb, list_ in times.items()}
        pause, resume = (intervals.median(times[verb]) for verb in ("pause", "resume"))
        self.bench.raw[f"residency, {name}"] = times
        if tag == "scratch":
            cell = f"pause {ns_text(pause)}, resume {ns_text(resume)}"
        else:
            cell = f"pause {ns_text(pause)} ({size / pause:.1f} GB/s), resume {ns_text(resume)} ({size / resume:.1f} GB/s)"
        return [f"{name}, {len(times['pause'])}", cell, "", f"{differ} words differ" if differ else "", "-", "shown"]
