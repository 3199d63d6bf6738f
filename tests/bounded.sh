# tests/bounded.sh
# The end of tests/gpu/run.sh and tests/bench/run.sh, which set `program` (a Python file), `limit` and `quick_limit` (seconds
# for that program itself) and read this file with the arguments they were given.
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
	echo "skip: no '$python' (set PYTHON)"
	[ "${SUBLET_TEST_REQUIRE:-}" = gpu ] && exit 1
	exit 77
fi
for word in "$@"; do
	case $word in
	--quick) limit=$quick_limit ;;
	--seconds | --seconds=*) limit=7200 ;;
	esac
done
export PYTHONDONTWRITEBYTECODE=1
exec timeout --foreground -k 25 "$limit" "$python" "$program" "$@"
