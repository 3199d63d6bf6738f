#!/bin/sh
# tests/gpu/objects.sh [--quick] [--out DIR] [--build DIR] [--only train,generate] [--self-test]
# A training and a generation from public packages under examples/policies/pytorch-transformers.yaml: how many bytes of their
# weights, gradients, optimizer state, activations and KV cache Sublet has put into the right object, with PyTorch's allocator
# in several settings. See --help; objects.py does the work.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
program=$here/objects.py limit=520 quick_limit=240
. "$here/../bounded.sh"
