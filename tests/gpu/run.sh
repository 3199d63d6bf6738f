#!/bin/sh
# tests/gpu/run.sh [--quick] [--only NAME,...] [--out DIR] [--build DIR]
# Runs GPU programs plain and under Sublet, and compares what they print. For anyone with one NVIDIA GPU and a built
# tree; programs whose framework is missing are skipped by name. See --help; harness.py does the work and bounds each
# program, the limit here is for the harness itself.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/harness.py limit=520 quick_limit=220
. "$here/../bounded.sh"
