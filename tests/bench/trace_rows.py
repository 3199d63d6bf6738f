#!/usr/bin/env python3
"""What a trace costs: an event when it is written, and ten million of them when they are summarised.
trace_rows.py SUBLET GENERATOR [ROWS]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

EVENT_NS_MAX = 50
BESIDE_CLOCK_NS_MAX = 30  # virtual machines have slow clocks
SECONDS_MAX = 10
MIB_MAX = 500
FILES = 8


def summarise(sublet, folder):
    """What it says, the seconds it took, and the most memory it had, in MiB."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen([sublet, "trace", "summary", "--json", folder], stdout=said)
        _, status, usage = os.wait4(child.pid, 0)  # of this child alone
        child.returncode = status
        seconds = time.monotonic() - begun
        said.seek(0)
        if status:
            sys.exit("sublet trace summary failed: %d" % status)
        return json.load(said), seconds, usage.ru_maxrss / 1024


def main():
    sublet, generator = sys.argv[1:3]
    rows = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000_000
    folder = tempfile.mkdtemp(prefix="sublet-bench-")
    try:
        needed = FILES * (2 << 20) + 64 * FILES * (1 << (rows // FILES - 1).bit_length())
        if shutil.disk_usage(folder).free < needed * 1.2:
            print("skipped: %s has not the %d MiB that %d rows take" % (folder, needed >> 20, rows))
            return 77
        made = subprocess.run([generator, folder, str(FILES), str(rows // FILES)], check=True, stdout=subprocess.PIPE, text=True)
        event_ns, clock_ns = map(float, made.stdout.split())
        summary, seconds, mib = summarise(sublet, folder)
    finally:
        shutil.rmtree(folder)
    counted = sum(summary["events"].values())
    print("an event: %.1f ns, of which the clock %.1f ns (bar %d, or %d beside the clock)" % (
        event_ns, clock_ns, EVENT_NS_MAX, BESIDE_CLOCK_NS_MAX))
    print("%d events summarised in %.2f s (bar %d)" % (counted, seconds, SECONDS_MAX))
    print("memory of the reader: %.0f MiB (bar %d)" % (mib, MIB_MAX))
    good = counted == rows // FILES * FILES and (
        event_ns <= EVENT_NS_MAX or event_ns - clock_ns <= BESIDE_CLOCK_NS_MAX) and seconds <= SECONDS_MAX and mib <= MIB_MAX
    return 0 if good else 1


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(main())
