#!/bin/sh
# tests/bench/run.sh [--quick] [--only PART,...] [--out DIR] [--build DIR]
# Measures what Sublet costs and how fast it moves memory: on a GPU where there is one, and a launch on the simulated driver
# anywhere. See --help;
# bench.py does the work and bounds each part, the limit here is for bench.py itself.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/bench.py limit=550 quick_limit=210
. "$here/../bounded.sh"
