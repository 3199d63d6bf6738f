"""Are the runs under Sublet what plain runs are?

A program prints one JSON object on its last line of output:

    {"exact": {...}, "loose": {...}, "info": {...}}

exact   must be equal in every plain run and every run under Sublet, to the last digit
loose   numbers, or lists of numbers, that plain runs themselves do not repeat: a run under Sublet may be as far from
        its nearest plain run as two plain runs are from each other, times SPREAD_FACTOR, or FLOOR
info    not compared"""

import json

SPREAD_FACTOR = 2.0
FLOOR = 1e-6  # relative; matters only when all plain runs happen to agree


def parse(out):
    """The object on the last line that is one, or None."""
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and isinstance(found.get("exact"), dict):
                return found
    return None


def distance(a, b):
    """The largest relative difference between two numbers or two lists; infinite where shapes differ or at a NaN."""
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        if not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b)):
            return float("inf")
        return max((distance(x, y) for x, y in zip(a, b)), default=0.0)
    if a == b:
        return 0.0
    if not all(isinstance(x, (int, float)) for x in (a, b)) or a != a or b != b:
        return float("inf")
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


def short(value, room=60):
    text = json.dumps(value)
    return text if len(text) <= room else text[: room - 3] + "..."


class Verdict:
    """passed, plain and sublet (one cell of the table each), and what differs, in words."""

    def __init__(self):
        self.passed, self.plain, self.sublet, self.differences = True, "", "", []

    def fail(self, text):
        self.passed = False
        self.differences.append(text)


def compare(plain, sublet):
    verdict = Verdict()
    keys = sorted({key for run in plain + sublet for key in run["exact"]})
    varying = [key for key in keys if len({json.dumps(run["exact"].get(key)) for run in plain}) > 1]
    for key in varying:
        verdict.fail(
            f"plain runs differ among themselves in '{key}': " + " / ".join(short(r["exact"].get(key)) for r in plain)
        )
    different = 0
    for key in keys:
        if key in varying:
            continue
        wanted = plain[0]["exact"].get(key)
        found = [run["exact"].get(key) for run in sublet if run["exact"].get(key) != wanted]
        if found:
            different += 1
            verdict.fail(f"'{key}': plain {short(wanted)}, with Sublet {short(found[0])}")
    plain_cell = [f"{len(plain)} runs: {len(keys) - len(varying)} of {len(keys)} values identical"]
    sublet_cell = [f"{len(sublet)} runs: " + (f"{different} differ" if different else "identical")]
    for key in sorted(set(plain[0].get("loose", {}))):
        values = [run.get("loose", {}).get(key) for run in plain]
        spread = max((distance(a, b) for i, a in enumerate(values) for b in values[:i]), default=0.0)
        away = max(min(distance(run.get("loose", {}).get(key), value) for value in values) for run in sublet)
        plain_cell.append(f"{key} within {spread:.1e}")
        sublet_cell.append(f"{key} {away:.1e} from the nearest")
        if not away <= max(SPREAD_FACTOR * spread, FLOOR):
            verdict.fail(
                f"'{key}' is {away:.2e} away from the nearest plain run, plain runs {spread:.2e} from each other"
            )
    verdict.plain, verdict.sublet = "; ".join(plain_cell), "; ".join(sublet_cell)
    return verdict
