#!/bin/bash
# tests/sanitize.sh address|thread|valgrind [BUILD]
# The test suites under a checker, each in a build folder of its own (BUILD, default build-<kind>): never part of the usual
# test command, as they take many times as long. Headers are looked for as configured in 'build'; SUBLET_HEADERS names others.
# Ends with what ran, how it ended and what was left out for which reason; the exit status is 0 when nothing failed.
#   address   address and undefined-behaviour sanitizers: unit, fuzz corpora and the command's suite. What plain processes
#             load (libsublet.so, the simulated driver) stays uninstrumented, its code is checked where the unit suite links it
#   thread    thread sanitizer on the lifecycle
#   valgrind  memcheck on the programs of the simulated driver, plainly and under `sublet run`
set -euo pipefail
kind=${1-}
case $kind in
address) sanitize=address,undefined ;;
thread) sanitize=thread ;;
valgrind)
	sanitize=none
	command -v valgrind >/dev/null || { echo "sanitize.sh: error: no valgrind here: install the package 'valgrind'" >&2; exit 2; }
	;;
*)
	echo 'usage: tests/sanitize.sh address|thread|valgrind [BUILD]' >&2
	exit 2
	;;
esac
build=$(realpath -m "${2:-build-$kind}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

headers=${SUBLET_HEADERS-}
if [ -z "$headers" ] && [ -e build/meson-info/intro-buildoptions.json ]; then
	headers=$(python3 -c 'import json
print(next(o["value"] for o in json.load(open("build/meson-info/intro-buildoptions.json")) if o["name"] == "driver_headers"))')
fi
# lundef: the sanitizer's calls in a shared object are defined by the program that loads it
[ -e "$build/build.ninja" ] || meson setup "$build" -Db_sanitize="$sanitize" -Db_lundef=false -Dtests=enabled \
	-Ddriver_headers="$headers"

# link order: the tests preload libsublet.so, which then comes before the runtime of an instrumented program
export ASAN_OPTIONS=verify_asan_link_order=0:abort_on_error=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=exitcode=66:second_deadlock_stack=1:die_after_fork=0 # forked children of the sweep start threads

BOUND_S=1800 # of one suite: several times what the longest takes on two cores
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

run_suite() {
	local status=0
	rm -f "$build/meson-logs/testlog.json"
	timeout -k 30 "$BOUND_S" meson test -C "$build" --num-processes 2 --print-errorlogs --timeout-multiplier 10 "$@" || status=$?
	[ "$status" -ne 124 ] || echo "sanitize.sh: no end within $BOUND_S s: meson test $*" >&2
	[ "$status" -eq 0 ] || failed=1
	[ ! -e "$build/meson-logs/testlog.json" ] || cat "$build/meson-logs/testlog.json" >>"$folder/ran"
}

# One line for each test, and what its cases say they left out.
say_table() {
	python3 - "$kind" "$folder/ran" <<-'END'
		import json, re, sys
		kind, path = sys.argv[1:]
		with open(path) as lines:
		    ran = [json.loads(line) for line in lines]
		left_out = []
		print()
		for test in ran:
		    print("%-8s %-32s %-8s %6.1f s" % (kind, test["name"].split(" / ")[-1], test["result"], test["duration"]))
		    left_out += re.findall(r"^(\S+) \([\w.]+\)(?:\n.*)? \.\.\. skipped (.*)$", test.get("stdout", ""), re.M)
		for case, reason in left_out:
		    print("%-8s left out: %s: %s" % (kind, case, reason.strip("'\"")))
		bad = sum(test["result"] not in ("OK", "SKIP") for test in ran)
		print("%s: %d tests, %d failed" % (kind, len(ran), bad))
		sys.exit(bad != 0 or not ran)
	END
}

touch "$folder/ran"
case $kind in
address)
	run_suite --suite unit
	run_suite fuzz_corpus_source fuzz_corpus_block fuzz_corpus_protocol
	# but for 'cross', which builds a second time, uninstrumented
	run_suite --suite cli --no-suite second_build
	;;
thread)
	run_suite --suite lifecycle
	# all of its runs take longer than half an hour here: each seventh
	SUBLET_TEST_STRIDE=7 run_suite residency_sweep
	;;
valgrind) SUBLET_TEST_MEMCHECK=1 run_suite $(python3 tests/sim/expected.py) ;;
esac
say_table || failed=1
exit "$failed"
