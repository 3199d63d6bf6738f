#!/bin/sh
# tests/bench/run.sh [--quick] [--only PART,...] [--out DIR] [--build DIR]
# Measures what Sublet costs: on a GPU where there is one, and a launch on the simulated driver anywhere. See --help;
# bench.py does the work and bounds each part, the limit here is for bench.py itself.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/bench.py limit=400 quick_limit=160
. "$here/../bounded.sh"
