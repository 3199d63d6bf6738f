#!/bin/sh
# tests/model/gate.sh MODEL COMPILER
# The model of the gate is right as it stands, with fences too, and wrong when it is broken on purpose. Skipped without spin.
set -u
command -v spin >/dev/null 2>&1 || { echo 'skip: no spin here (Debian: apt-get install spin)'; exit 77; }
model=$(realpath "$1")
compiler=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

# $1: "right" or "wrong"; the rest: what is defined
check() {
	wanted=$1
	shift
	if ! { spin "$@" -a "$model" && $compiler -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m200000 -n; } >said 2>&1; then
		echo "FAIL $*: spin or the compiler refused:"
		cat said
		failed=1
		return
	fi
	if grep -q 'errors: 0$' said; then got=right; else got=wrong; fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' said)
	if grep -q 'search depth too small\|max search depth\|out of memory' said; then got=unfinished; fi
	echo "${*:-as it is}: $got, $states states"
	[ "$got" = "$wanted" ] || { cat said; failed=1; }
}

check right
check right -DFENCED
check wrong -DWITHOUT_BARRIER
check wrong -DLATE_THROUGH
check wrong -DWITHOUT_CHECK
check wrong -DDEAF_CALLBACK
exit $failed
