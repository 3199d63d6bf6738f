#!/bin/sh
# tests/bench/run.sh [--quick] [--only PART,...] [--out DIR] [--build DIR]
# Measures what Sublet costs: on a GPU where there is one, and a launch on the simulated driver anywhere. See --help;
# bench.py does the work and bounds each part, the limit here is for bench.py itself.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
	echo "skip: no '$python' (set PYTHON)"
	[ "${SUBLET_TEST_REQUIRE:-}" = gpu ] && exit 1
	exit 77
fi
limit=400
for word in "$@"; do
	case $word in
	--quick) limit=160 ;;
	--seconds | --seconds=*) limit=7200 ;;
	esac
done
export PYTHONDONTWRITEBYTECODE=1
exec timeout --foreground -k 25 "$limit" "$python" "$here/bench.py" "$@"
