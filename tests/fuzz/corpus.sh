#!/bin/bash
# tests/fuzz/corpus.sh source|block REPLAY SOURCE BLOCKS
# All policy files of the tree (for block: what they compile to) and past findings through a fuzz target, changed a little.
set -euo pipefail
shopt -s nullglob
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
policies=("$3"/examples/*.yaml "$3"/tests/policy/*/*.yaml)
if [ "$1" = block ]; then
	"$4" "$folder" "${policies[@]}"
	policies=("$folder"/*)
fi
"$2" "${policies[@]}" "$3/tests/fuzz/found/$1"/*
