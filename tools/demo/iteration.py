"""tools/demo/iteration.py
Three iterations of the paper on one site, and what was seen on the way. Without a session the same programs in the same order."""
from programs import NoRoom, Site
import table

ITERATIONS = 3


class Seen:
    """Of one phase of one iteration."""

    def __init__(self, iteration, phase):
        self.iteration, self.phase = iteration, phase
        self.moves = []
        self.before = self.begun = self.ended = None  # the objects: before the barrier, after it, when the work is done
        self.barrier_peak = self.peak = self.host_peak = self.used = 0  # device bytes without the ballast

    def device(self, rule):
        """The most of the two looks: what is allocated in the phase, and what is freed in it."""
        return max(look[rule]["bytes"]["device"] for look in (self.begun, self.ended))

    def moved(self):
        """Bytes that left for the host and without a copy, and that came from the host and without a copy."""
        out, dropped, back, fresh = 0, 0, 0, 0
        for rule, was in self.before.items():
            change = {where: self.begun[rule]["bytes"][where] - was["bytes"][where] for where in was["bytes"]}
            out += max(-change["device"] - max(change["empty"], 0), 0)
            dropped += max(change["empty"], 0)
            back += max(change["device"] + min(change["empty"], 0), 0)
            fresh += max(-change["empty"], 0)
        return out, dropped, back, fresh


class Run:
    def __init__(self, build, folder, capacity, left=None, policy=None, cached=False, percents=(100,) * ITERATIONS):
        self.site = Site(build, folder, capacity, left, policy)
        self.phases = policy is not None
        self.percents, self.options = percents, ("--cached-segments",) if cached else ()
        self.seen, self.compared, self.results, self.released = [], [], [], []
        self.at = "start"

    # ---- programs ----

    def start(self, role):
        self.site.start(role, table.sizes(role), *self.options)

    def together(self, words):
        """Each role's line at once, then the answers; {role: what it came to}."""
        came = {}
        for role, line in words.items():
            self.site.programs[role].tell(*line)
        for role in words:
            for line in self.site.programs[role].answer():
                if line[0] in ("same", "other"):
                    self.compared.append((self.at, role, *line))
                elif line[0] == "released":
                    self.released.append((self.at, int(line[1])))
                else:
                    came[role] = line[1]
                    self.results.append((self.at, role, line[1]))
        return came

    # ---- phases ----

    def begin(self, iteration, phase):
        self.at = "iteration %d, %s" % (iteration, phase)
        seen = Seen(iteration, phase)
        self.seen.append(seen)
        self.site.machine.usage(reset=True)
        if self.phases:
            seen.before = self.site.objects()
            seen.moves = self.site.phase(phase)
            seen.begun = self.site.objects()
        seen.barrier_peak = self.site.machine.usage(reset=True).peak - self.site.ballast

    def end(self):
        seen = self.seen[-1]
        if self.phases:
            seen.ended = self.site.objects()
        usage = self.site.machine.usage()
        seen.used, seen.peak, seen.host_peak = usage.used - self.site.ballast, usage.peak - self.site.ballast, usage.host_peak

    def run(self):
        """Stands where it fails: self.at says where."""
        self.start("train")
        self.start("reference")
        for k in range(1, ITERATIONS + 1):
            self.begin(k, "decode")
            if k == 1:
                self.start("rollout")
            came = self.together({"rollout": ("decode", k), "reference": ("decode", k),
                                  "train": ("decode", k, "%x" % self.percents[k - 1])})
            self.end()
            self.begin(k, "suffix")
            score = self.together({"reference": ("suffix", k, came["rollout"])})
            self.together({"train": ("suffix", k, score["reference"])})
            self.end()
            self.begin(k, "update")
            self.together({"train": ("update", k)})
            self.end()
        self.at = "end"
        self.together({"train": ("compare",)})

    def elsewhere(self):
        """After a barrier that failed: objects that are not where they were before it."""
        before, now = self.seen[-1].before, self.site.objects()
        return [rule for rule in now if now[rule]["bytes"] != before[rule]["bytes"]]

    def attempt(self):
        """The NoRoom that it met, or None."""
        try:
            self.run()
        except NoRoom as met:
            return met
        return None

    def close(self):
        self.site.close()


def without(policy, rules, to):
    """A copy of the policy's text, written to `to`, in which the objects stay on the device."""
    with open(policy) as text:
        lines, inside = [], False
        for line in text.read().splitlines():
            if line.startswith("  - name: "):
                inside = line.split(": ")[1] in rules
            elif line and not line.startswith("    "):
                inside = False
            key = line.split(":")[0].strip()
            if inside and key in ("resident", "otherwise", "exclusive"):
                if key == "resident":
                    lines.append("    resident: all")
                continue
            if inside and key == "class":
                line = "    class: permanent"
            if key == "capacity" or key == "expect":
                continue  # that it does not fit is what is to be seen, and not only by the checker
            lines.append(line)
    with open(to, "w") as text:
        text.write("\n".join(lines) + "\n")
    return to
