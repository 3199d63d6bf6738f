#!/bin/sh
# tests/sim/completeness.sh ENTRIES STUB
# Every cu* name that the toolkit's stub library exports is a row of entries.def. Skipped where there is no stub.
set -eu
[ -e "$2" ] || { echo "skip: no stub library"; exit 77; }
missing=$(nm -D --defined-only "$2" | awk '$3 ~ /^cu[A-Z]/ { print $3 }' | sort -u |
	while read -r name; do grep -Eq "^(WRAP|GATED|PASS)[(]$name," "$1" || echo "$name"; done)
[ -z "$missing" ] || { echo "not in the list: $missing"; exit 1; }
