#!/bin/bash
# tests/fuzz/run.sh source|block|protocol|inventory|trace SECONDS
# Builds a fuzz target with clang and libFuzzer, address and undefined-behaviour sanitizers, and runs it from the policy files
# of tests/ and examples/ on. Findings, and how to repeat them, are printed; what it learnt stays in $SUBLET_FUZZ_FOLDER
# (default: a fresh folder that is removed when nothing was found). A finding that is mended becomes a file in
# tests/fuzz/found/TARGET/.
set -euo pipefail

target=${1:?source, block, protocol, inventory or trace} seconds=${2:?seconds}
cd "$(dirname "$0")/../.."
clang=${CLANG:-clang}
if ! command -v "$clang" >/dev/null; then
	echo "no clang, so no libFuzzer; the corpus is replayed by the test fuzz_corpus all the same"
	exit 77
fi
folder=${SUBLET_FUZZ_FOLDER:-}
if [ -z "$folder" ]; then
	folder=$(mktemp -d)
	keep=
fi
mkdir -p "$folder/learnt" "$folder/seeds"
folder=$(cd "$folder" && pwd)

flags=(-g -O1 -std=gnu11 -D_GNU_SOURCE -I. -fno-sanitize-recover=all -fno-omit-frame-pointer)
sources=(policy/*.c policy/source/*.c base/errors.c base/size.c base/words.c)
[ "$target" = coordinator ] && sources+=(lifecycle/coordinator_{barrier,judge,ledger,pool,requests}.c lifecycle/protocol.c base/{log,text,process}.c)
[ "$target" = protocol ] && sources=(lifecycle/protocol.c base/errors.c)
[ "$target" = inventory ] && sources=(lifecycle/inventory.c base/errors.c)
[ "$target" = trace ] && sources=(tools/trace_{file,merge,model,sums}.c base/{errors,list,map,text}.c)
build() { "$clang" "${flags[@]}" "$@" "${sources[@]}" -lyaml; }
if ! build -fsanitize=fuzzer,address,undefined -o "$folder/fuzz_$target" "tests/fuzz/fuzz_$target.c" 2>"$folder/build.log"; then
	if grep -q 'fuzzer.*No such file\|cannot find.*fuzzer' "$folder/build.log"; then
		echo "this clang comes without libFuzzer; the corpus is replayed by the test fuzz_corpus all the same"
		exit 77
	fi
	cat "$folder/build.log"
	exit 1
fi
if [ "$target" = block ]; then
	build -o "$folder/blocks" tests/fuzz/blocks.c
	"$folder/blocks" "$folder/seeds" examples/*.yaml tests/policy/*/*.yaml
elif [ "$target" = protocol ] || [ "$target" = inventory ] || [ "$target" = trace ]; then
	sources=(lifecycle/protocol.c lifecycle/inventory.c base/errors.c)
	build -o "$folder/messages" tests/fuzz/messages.c
	"$folder/messages" "$folder/seeds" "$target"
else
	cp examples/*.yaml tests/policy/*/*.yaml "$folder/seeds"
fi
if compgen -G "tests/fuzz/found/$target/*" >/dev/null; then
	cp "tests/fuzz/found/$target"/* "$folder/seeds"
fi

options=(-max_total_time="$seconds" -max_len=32768 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
	-artifact_prefix="$folder/finding-" -verbosity=0)
[ "$target" = source ] && options+=(-dict=tests/fuzz/policy.dict)
status=0
# under ptrace (a debugger, some containers) the leak checker cannot work; it says so and fails
"$folder/fuzz_$target" "${options[@]}" "$folder/learnt" "$folder/seeds" >"$folder/log" 2>&1 || status=$?
grep -E 'stat::number_of_executed_units|stat::new_units_added|stat::slowest_unit|ERROR|SUMMARY' "$folder/log" || true
if [ "$status" -ne 0 ]; then
	tail -n 60 "$folder/log"
	echo "again: $folder/fuzz_$target $(ls "$folder"/finding-* 2>/dev/null | head -n 1)"
	exit 1
fi
[ -n "${keep-x}" ] || rm -rf "$folder"
