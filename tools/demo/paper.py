#!/usr/bin/env python3
"""tools/demo/paper.py BUILD [--only naive|full|offload|release|segments] [--policy FILE]
The iteration of the Rollplex paper on the simulated driver at 1/1024 of its size: what naive placement needs and where it fails,
the same programs under Sublet's phases, and what happens without parts of the policy. Every number is counted, read or computed
in this run; what the paper found is said beside it. Exit status 1 when something is not as it must be."""
import argparse
import os
import shutil
import sys
import tempfile
import textwrap

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from iteration import ITERATIONS, Run, without
from programs import MIB, Failure
import table
from table import PHASES, TABLE

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = os.path.join(HERE, "paper.yaml")
DEVICE = 140 * MIB      # an H200 has 139 GiB
LARGE = 512 * MIB       # one that everything fits on
PERCENTS = (80, 90, 100)  # of the longest prompt: a cache that is asked for the same again keeps nothing more

# What section 4.4 of the paper says of each; `rules`: what stays on the device then.
ABLATIONS = {
    "offload": ("no state offload: optimizer state and activations stay on the device",
                "out of memory in the first iteration", ("master_weights", "moments", "activations")),
    "release": ("rollout resident: KV cache and runtime buffers stay on the device",
                "out of memory at an optimizer step", ("kv_cache", "runtime_buffers")),
    "segments": ("the trainer keeps freed segments as PyTorch does; prompts of %s %%" % ", ".join(map(str, PERCENTS)),
                 "runs; memory grows within an iteration, as reused cache, not live tensors", ()),
}


def say(label, text):
    """A line of a report, wrapped under its label."""
    print(textwrap.fill("  %-11s %s" % (label, text), 98, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False))


class Demo:
    def __init__(self, build, folder, policy):
        self.build, self.folder, self.policy, self.wrong = os.path.abspath(build), folder, os.path.abspath(policy), 0
        self.sublet = os.path.join(self.build, "tools/sublet")
        self.decided = table.explained(self.sublet, self.policy)

    def must(self, holds, text):
        if not holds:
            self.wrong += 1
            print("demo: error: %s" % text)

    def site(self, name, capacity=DEVICE, **more):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder, 0o700)
        return Run(self.build, folder, capacity, **more)

    # ---- naive ----

    def naive(self):
        print("\nWhat naive placement needs (Table 1 of the paper; a GiB there is a MiB here, in pages of 2 MiB)\n")
        print("  %-10s %-30s %10s %10s" % ("role", "component", "GiB", "MiB here"))
        for row in TABLE:
            print("  %-10s %-30s %10.1f %10d" % (row.role, row.label, row.gib, table.pages(table.bytes_of(row)) // MIB))
        total = sum(table.pages(table.bytes_of(row)) for row in TABLE)
        print("  %-10s %-30s %10.1f %10d   (the paper: about 165)" % ("total", "", sum(row.gib for row in TABLE), total // MIB))
        run = self.site("naive", left=table.LEFT * MIB)
        try:
            usage = run.site.machine.usage()
            print("\n  device of %d MiB; a ballast process takes %d, so %d are left" %
                  (usage.capacity / MIB, run.site.ballast / MIB, (usage.capacity - run.site.ballast) / MIB))
            met = run.attempt()
            usage = run.site.machine.usage()
            self.must(met and total > table.LEFT * MIB, "naive placement is not out of memory")
            print("  run plainly: %s; %d of them were taken" % (met, (usage.peak - run.site.ballast) / MIB))
        finally:
            run.close()

    # ---- the whole ----

    def full(self):
        run = self.site("full", left=table.LEFT * MIB, policy=self.policy)
        try:
            met = run.attempt()
        finally:
            run.close()
        print("\nUnder Sublet: %s, 3 programs, %d iterations, 'sublet phase NAME' between the steps" %
              (os.path.basename(self.policy), ITERATIONS))
        print("  (no windows and no weight sharing yet: what would need them is whole on the device, or parked\n"
              "  and used over the link; the policy says which)")
        if met:
            self.must(False, "%s: %s" % (run.at, met))
            return
        self.print_phases(run)
        self.print_residency(run)
        self.print_checks(run)

    def print_phases(self, run):
        print("  MiB that left and came at each barrier; the most on the device then, and after it\n")
        print("  %-9s %-8s %10s %10s %10s %10s %10s %12s %9s" %
              ("iteration", "phase", "offloaded", "discarded", "brought", "fresh", "barrier", "", "phase"))
        for seen in run.seen:
            out, dropped, back, fresh = (size / MIB for size in seen.moved())
            print("  %-9d %-8s %10d %10d %10d %10d %10d %10.3f s %9d" %
                  (seen.iteration, seen.phase, out, dropped, back, fresh, seen.barrier_peak / MIB,
                   max((row["seconds"] for row in seen.moves), default=0), seen.peak / MIB))
            self.check_phase(seen)
        peak = max(max(seen.barrier_peak, seen.peak) for seen in run.seen)
        print("\n  peak, as the simulated driver counted it: %d of %d MiB device memory; host pool %d MiB" %
              (peak / MIB, table.LEFT, max(seen.host_peak for seen in run.seen) / MIB))
        self.must(peak <= table.LEFT * MIB, "the peak is more than was left")

    def check_phase(self, seen):
        where = "iteration %d, %s" % (seen.iteration, seen.phase)
        left = sum(row["moved_bytes"] for row in seen.moves if row["step"] == "release")
        came = sum(row["moved_bytes"] for row in seen.moves if row["step"] == "acquire")
        out, dropped, back, fresh = seen.moved()
        off = [rule for rule, look in seen.begun.items() if not look["bytes"]["device"] and rule in seen.before]
        remapped = sum(min(seen.before[rule]["bytes"][a], seen.begun[rule]["bytes"][b]) for rule in off
                       for a, b in (("host", "parked"), ("parked", "host")))
        self.must(left == out + dropped + remapped, "%s: 'sublet phase' says %d bytes left, objects say %d" % (where, left, out + dropped))
        self.must(came == back + fresh, "%s: 'sublet phase' says %d bytes came, objects say %d" % (where, came, back + fresh))
        needs = table.needs(self.decided, seen.iteration, seen.phase)
        for rule in seen.begun:
            self.must(seen.device(rule) == needs.get(rule, 0), "%s: %d bytes of '%s' are on the device, the policy wants %d" %
                      (where, seen.device(rule), rule, needs.get(rule, 0)))
        there = sum(look["bytes"]["device"] for look in seen.ended.values())
        self.must(there <= seen.used <= seen.peak, "%s: objects have %d bytes, the driver counts %d" % (where, there, seen.used))

    def print_residency(self, run):
        last = {seen.phase: seen for seen in run.seen}
        print("\n  where the objects of iteration %d are (MiB on the device, or where else; from 'sublet ctl objects')\n" % ITERATIONS)
        print("  %-18s %-12s" % ("object", "class") + "".join("%14s" % phase for phase in PHASES))
        for row in TABLE:
            cells = ""
            for phase in PHASES:
                seen = last[phase]
                look = max((seen.begun, seen.ended), key=lambda look: sum(look[row.rule]["bytes"].values()))
                there = [(where, size) for where, size in look[row.rule]["bytes"].items() if size]
                cells += "%14s" % ", ".join(("%d" if where == "device" else where + " %d") % (size / MIB) for where, size in there)
            print("  %-18s %-12s" % (row.rule, last[PHASES[0]].begun[row.rule]["class"]) + cells.rstrip())
        sums = {phase: sum(last[phase].device(row.rule) for row in TABLE) for phase in PHASES}
        print("  %-31s" % "on the device" + "".join("%14d" % (sums[phase] / MIB) for phase in PHASES))
        print("  %-31s" % "most, counted by the driver" + "".join("%14d" % (last[phase].peak / MIB) for phase in PHASES))

    def print_checks(self, run):
        """Compared by the programs themselves, with what they wrote; and with a plain run on a device that has room."""
        plain = self.site("plain", capacity=LARGE)
        try:
            met = plain.attempt()
        finally:
            plain.close()
        self.must(not met, "the plain run on a large device fails: %s" % met)
        classes = {(row.role, row.name): run.seen[0].begun[row.rule]["class"] for row in TABLE}
        permanent = [line for line in run.compared if classes[line[1], line[3]] == "permanent"]
        other = [line for line in run.compared if line[2] != "same"]
        differ = sum(one != two for one, two in zip(run.compared + run.results, plain.compared + plain.results))
        print("\n  contents: %d comparisons of every byte of an object, %.0f MiB (%.0f of permanent objects): %d differ" %
              (len(run.compared), sum(int(line[4]) for line in run.compared) / MIB,
               sum(int(line[4]) for line in permanent) / MIB, len(other)))
        print("  against the same programs run plainly on a device of %d MiB: %d sums and %d results, %d differ" %
              (LARGE / MIB, len(plain.compared), len(plain.results), differ))
        self.must(not other and not differ and len(run.compared) == len(plain.compared) and
                  len(run.results) == len(plain.results), "contents differ: %s" % other[:3])

    # ---- without parts of it ----

    def arithmetic(self, policy, cached):
        """Says what each phase needs; where it is first more than there is, or None."""
        decided = table.explained(self.sublet, policy)
        sums = table.sums(decided, ITERATIONS)
        if cached:
            row = next(row for row in TABLE if row.name == "prefix_kv")
            for k, held in enumerate(table.kept_segments(row, PERCENTS), 1):
                for phase in PHASES:
                    if row.rule in table.needs(decided, k, phase):
                        sums[k, phase] += held - table.pages(table.bytes_of(row))
        shown = ("iteration %d: %s" % (k, ", ".join("%s %d" % (phase, sums[k, phase] / MIB) for phase in PHASES))
                 for k in range(1, ITERATIONS + 1))
        say("arithmetic", "; ".join(shown) + " MiB, of %d" % table.LEFT)
        return next(("iteration %d, %s" % at for at, size in sums.items() if size > table.LEFT * MIB), None)

    def ablation(self, name):
        """Where the run exceeds the device, or None; that has to be where the arithmetic says."""
        title, paper, rules = ABLATIONS[name]
        policy = without(self.policy, rules, os.path.join(self.folder, name + ".yaml")) if rules else self.policy
        cached = not rules
        print("\nAblation '%s': %s" % (name, title))
        over = self.arithmetic(policy, cached)
        run = self.site(name, left=table.LEFT * MIB, policy=policy, cached=cached, percents=PERCENTS if cached else (100,) * ITERATIONS)
        try:
            met, at = run.attempt(), run.at
            elsewhere = run.elsewhere() if met and met.who == "sublet phase" else []
            if met:
                run.together({"train": ("compare",)})
        finally:
            run.close()
        for where, size in run.released:
            say("run", "%s: out of memory; the allocator gave %d MiB of its cache back and went on" % (where, size / MIB))
        if met:
            say("run", "%s: %s" % (at, met))
        else:
            say("run", "all %d iterations, peak %d MiB" % (ITERATIONS, max(max(seen.barrier_peak, seen.peak) for seen in run.seen) / MIB))
        if elsewhere:
            say("", "the old phase goes on, but these are not where they were: %s" % ", ".join(elsewhere))
        other = [line for line in run.compared if line[2] != "same"]
        say("contents", "%d comparisons, %d differ" % (len(run.compared), len(other)))
        say("paper", paper)
        at = at if met else run.released[0][0] if run.released else None
        self.must(not other, "contents differ")
        self.must(at == over, "arithmetic says %s, the run %s" % (over or "that it fits", at or "fits"))
        return at

    def differences(self, where, fits):
        """Of where it exceeded from the paper; each line stands on what was seen."""
        sums = table.sums(self.decided, ITERATIONS)
        largest = max(sums, key=sums.get)
        print("\nDifferences from the paper's section 4.4")
        if (where["offload"] or "").startswith("iteration 1"):
            say("offload", "none: the first iteration")
        if where["release"] and "update" not in where["release"]:
            say("release", "earlier: in %s, not at an optimizer step. Without windows gradients, activations and KV are whole on the "
                "device for the backward pass, so the largest phase is not the update but %s, with %d MiB" %
                (where["release"], largest[1], sums[largest] / MIB))
        if where["segments"]:
            say("segments", "the paper shows growth alone; here it met the end of the device, and PyTorch's way out was enough")
        if fits:
            say("others", "an optimizer that is not chunked and weights that are not shared are both out of memory at an optimizer "
                "step in the paper. They are how Sublet is today, so they are the run above: its update fits with %d MiB, for all "
                "else has left then, and nothing is here that the table does not name (contexts, workspaces, caches)" %
                (max(size for at, size in sums.items() if at[1] == "update") / MIB))


def main():
    parser = argparse.ArgumentParser(description="the iteration of the Rollplex paper at 1/1024 on the simulated driver")
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--only", choices=["naive", "full", *ABLATIONS], help="one part alone")
    parser.add_argument("--policy", default=POLICY, help="in place of paper.yaml; objects and phases have to be those")
    words = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("SUBLET_") or name == "LD_PRELOAD"]:
        del os.environ[name]
    folder = tempfile.mkdtemp(prefix="sublet-demo-")
    try:
        demo = Demo(words.build, folder, words.policy)
        if words.only in (None, "naive"):
            demo.naive()
        if words.only in (None, "full"):
            demo.full()
        fits = not demo.wrong
        where = {name: demo.ablation(name) for name in ABLATIONS if words.only in (None, name)}
        if words.only is None:
            demo.differences(where, fits)
    except (Failure, table.NotTaken) as failure:
        print("demo: error: %s" % failure)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if demo.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
