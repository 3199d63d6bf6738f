#!/bin/bash
# tests/fuzz/corpus_block.sh BLOCKS REPLAY SOURCE
# The blocks of all policy files that compile, and past findings, through the block's fuzz target.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder" "$3"/examples/*.yaml "$3"/tests/policy/*/*.yaml
cp "$3"/tests/fuzz/found/block/* "$folder" 2>/dev/null || true
"$2" "$folder"/*
