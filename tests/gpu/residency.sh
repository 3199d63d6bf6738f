#!/bin/sh
# tests/gpu/residency.sh [--quick] [--out DIR] [--build DIR] [--only train,generate]
# A training process and a generation process, each alone on one GPU and neither knowing Sublet, give their memory back and
# take it again while they run, told so from another process at random moments; their results must be those of plain runs.
# See --help; residency.py does the work.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/residency.py limit=420 quick_limit=200
. "$here/../bounded.sh"
