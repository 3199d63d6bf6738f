#!/bin/bash
# tools/demo/run.sh BUILD
# Runs the demo program without and with Sublet on the simulated driver, and compares what was in its buffers.
set -euo pipefail

build=${1:?usage: tools/demo/run.sh BUILD}
program=$build/tools/demo
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset LD_PRELOAD SUBLET_SESSION SUBLET_ROLE

LD_LIBRARY_PATH=$build/tools/sim SUBLET_SIM_CAPACITY=8GiB "$program" >"$folder/plain"
"$build/tools/sublet" run --sim=8GiB --follow --session "$folder/session" --role demo -- "$program" \
	>"$folder/sublet" 2>"$folder/report"

echo
echo '$ demo'
cat "$folder/plain"
echo
echo '$ sublet run --sim=8GiB --follow --role demo -- demo'
cat "$folder/sublet" "$folder/report"
echo

# name, size and checksum have to agree; address and kind of memory are what Sublet is there to change
same() { awk '{ print $1, $2, $3, $NF }' "$1"; }
if diff <(same "$folder/plain") <(same "$folder/sublet"); then
	echo 'Same program, same results. Under Sublet the large buffers (memory: extents) keep their addresses for life'
	echo 'while the pages behind them can come and go; small ones stay with the driver and are counted.'
else
	echo 'demo: error: the results differ (see above); run tools/bootstrap test' >&2
	exit 1
fi
