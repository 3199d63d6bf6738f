#!/bin/sh
# tests/sim/plain.sh LIBRARY
# Processes without CUDA run under the preload as if it were not there, also where no libcuda exists.
set -eu
export LD_PRELOAD=$1 SUBLET_SESSION=/nonexistent
unset LD_LIBRARY_PATH
/bin/true
[ "$(printf 'b\na\n' | sort | head -n 1)" = a ]
[ "$(python3 -c 'import ctypes
try:
    ctypes.CDLL(None).cuInit
    print("found")
except AttributeError:
    print("none")')" = none ]
