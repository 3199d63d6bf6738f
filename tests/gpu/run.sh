#!/bin/sh
# tests/gpu/run.sh [--quick] [--only NAME,...] [--out DIR] [--build DIR]
# Runs GPU programs plain and under Sublet, and compares what they print. For anyone with one NVIDIA GPU and a built
# tree; programs whose framework is missing are skipped by name. See --help; harness.py does the work and bounds each
# program, the limit here is for the harness itself.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
	echo "skip: no '$python' (set PYTHON)"
	[ "${SUBLET_TEST_REQUIRE:-}" = gpu ] && exit 1
	exit 77
fi
limit=520
for word in "$@"; do
	case $word in
	--quick) limit=220 ;;
	--seconds | --seconds=*) limit=7200 ;;
	esac
done
export PYTHONDONTWRITEBYTECODE=1
exec timeout --foreground -k 25 "$limit" "$python" "$here/harness.py" "$@"
