#!/bin/bash
# tests/sanitize.sh address|thread|valgrind [BUILD]
# The test suites under a checker, each in a build folder of its own (BUILD, default build-<kind>): never part of the usual
# test command, as they take many times as long. Headers are looked for as configured in 'build'; SUBLET_HEADERS names others.
#   address   address and undefined-behaviour sanitizers: unit, fuzz corpora and most of the command's suite. What plain processes
#             load (libsublet.so, the simulated driver) stays uninstrumented, its code is checked where the unit suite links it
#   thread    thread sanitizer on the lifecycle
#   valgrind  memcheck on programs of the simulated driver, plainly and with libsublet.so preloaded
set -euo pipefail
kind=${1-}
case $kind in
address) sanitize=address,undefined ;;
thread) sanitize=thread ;;
valgrind) sanitize=none ;;
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
export TSAN_OPTIONS=exitcode=66:second_deadlock_stack=1
run_suite() { meson test -C "$build" --num-processes 2 --print-errorlogs --timeout-multiplier 10 "$@"; }

# Programs of one process that end by themselves; those left out start processes or threads by the dozen, which takes minutes
# under memcheck.
programs='linked sizes reuse queries info out_of_memory wrong_frees copies streams own_vmm captures contexts kinds'

# Runs each program plainly and preloaded; a finding is the exit status 97, which no program uses.
run_valgrind() {
	local program way status failed=0 preload
	ninja -C "$build" shim/libsublet.so tools/sim/libcuda.so.1 $(printf 'tests/sim/%s ' $programs)
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	export LD_LIBRARY_PATH=$build/tools/sim SUBLET_SIM_DEVICES=2 SUBLET_SIM_CAPACITY=1GiB SUBLET_SIM_MACHINE=$folder/machine
	for program in $programs; do
		for way in plain preloaded; do
			preload=
			[ "$way" = plain ] || preload=$build/shim/libsublet.so
			status=0
			mkdir -p -m 700 "$folder/session"
			# env below valgrind, so that valgrind itself is not preloaded
			timeout 300 valgrind -q --trace-children=yes --error-exitcode=97 --log-file="$folder/found.%p" \
				--suppressions=tests/valgrind.supp \
				env LD_PRELOAD="$preload" ${preload:+SUBLET_SESSION="$folder/session" SUBLET_FOLLOW=1} "$build/tests/sim/$program" \
				>"$folder/said" 2>&1 </dev/null || status=$?
			# a preload that did not start would be checked for nothing; SUBLET_FOLLOW keeps the page of a process that ended
			if [ "$way" = preloaded ] && [ -z "$(ls "$folder/session")" ]; then
				echo "$program: not managed: the session folder is empty" >>"$folder/said"
				status=1
			fi
			rm -rf "$folder/session"
			if [ "$status" -ne 0 ]; then
				printf 'FAIL %s %s: exit %s\n' "$program" "$way" "$status"
				tail -n 5 "$folder/said"
				cat "$folder"/found.*
				failed=$((failed + 1))
			else
				printf 'ok   %s %s\n' "$program" "$way"
			fi
			rm -f "$folder"/found.*
		done
	done
	echo "valgrind: $failed failed"
	[ "$failed" -eq 0 ]
}

case $kind in
address)
	run_suite --suite unit
	run_suite fuzz_corpus_source fuzz_corpus_block fuzz_corpus_protocol
	# not run, pages, doctor: not green here yet
	run_suite command entries policy_files check signals follow serve ctl
	;;
thread) run_suite memory residency residency_races service host_pool lifecycle_faults lifecycle_fork lifecycle_threads gate gate_races client sweep ;;
valgrind) run_valgrind ;;
esac
