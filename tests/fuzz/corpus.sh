#!/bin/bash
# tests/fuzz/corpus.sh source|block|protocol|inventory|trace REPLAY SOURCE MAKER
# All policy files of the tree (for block: what MAKER compiles them to; for the others: MAKER's messages and lists) and past findings through
# a fuzz target, changed a little.
set -euo pipefail
shopt -s nullglob
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
policies=("$3"/examples/*.yaml "$3"/tests/policy/*/*.yaml)
if [ "$1" = block ]; then
	"$4" "$folder" "${policies[@]}"
	policies=("$folder"/*)
elif [ "$1" = protocol ] || [ "$1" = inventory ] || [ "$1" = trace ]; then
	"$4" "$folder" "$1"
	policies=("$folder"/*)
fi
"$2" "${policies[@]}" "$3/tests/fuzz/found/$1"/*
