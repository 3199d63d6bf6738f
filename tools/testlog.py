#!/usr/bin/env python3
"""tools/testlog.py TESTLOG.json BUILD STATUS: prints the output of failed tests and the reasons of skipped ones from meson's
test log, then one line that counts. Exit status 1 when a test failed, none ran, or meson test itself ended with STATUS
other than 0 (then the log may not have all of them)."""
import json
import re
import sys

LINES = 200  # of each stream of a failed test; the log has all
PASSED = {"OK", "EXPECTEDFAIL"}


def tail(text):
    lines = text.rstrip("\n").splitlines()
    if len(lines) > LINES:
        lines = ["... (%d lines before)" % (len(lines) - LINES)] + lines[-LINES:]
    return lines


def short_name(test):
    # 'sublet:cli / run', from meson 1.12 at the latest 'cli - sublet:run'
    return re.split(" / |:", test["name"])[-1]


def main():
    status = int(sys.argv[3])
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        tests = [json.loads(line) for line in log if line.strip()]
    passed = [t for t in tests if t["result"] in PASSED]
    skipped = [t for t in tests if t["result"] == "SKIP"]
    failed = [t for t in tests if t["result"] not in PASSED and t["result"] != "SKIP"]
    for test in failed:
        print("\n==== %s: %s" % (test["name"], test["result"]))
        for stream in ("stdout", "stderr"):
            for line in tail(test.get(stream) or ""):
                print("  " + line)
        print("==== again: meson test -C %s -v '%s'" % (sys.argv[2], short_name(test)))
    for test in skipped:
        said = tail(test.get("stdout") or "") + tail(test.get("stderr") or "")
        print("skipped %s: %s" % (test["name"], said[-1].strip() if said else "no reason given"))
    if not tests:
        print("bootstrap: error: no test ran", file=sys.stderr)
    elif not failed and status:
        print("bootstrap: error: meson test ended with status %d" % status, file=sys.stderr)
    count = "%d passed, %d failed" % (len(passed), len(failed))
    if skipped:
        count += ", %d skipped" % len(skipped)
    sys.stdout.flush()
    print(count, flush=True)
    return 1 if failed or status or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
