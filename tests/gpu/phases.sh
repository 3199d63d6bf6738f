#!/bin/sh
# tests/gpu/phases.sh [--iterations N] [--left GiB] [--mps] [--by nvtx|command] [--out DIR] [--build DIR]
# A training process and a generation process on one GPU that has room for one of them, neither knowing Sublet: they trade the
# memory at phase barriers, 20 iterations; their results must be those of plain runs, each alone. See --help; phases.py does the work.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/phases.py limit=560 quick_limit=300
. "$here/../bounded.sh"
