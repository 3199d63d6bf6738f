#!/bin/sh
# Makes kernels_ptx.h from kernels.cu (needs nvcc). The text is marked as an early PTX version on purpose: the kernels
# use nothing newer, and so any driver since CUDA 10.2 can load it.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
ptx=$(mktemp)
trap 'rm -f "$ptx"' EXIT
"$nvcc" -ptx -arch=compute_75 -std=c++17 -O3 -o "$ptx" kernels.cu
{
	echo '/* Made from kernels.cu by make_kernels_ptx.sh; do not edit. */'
	echo 'static const char kernels_ptx[] ='
	sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version.*/.version 6.5/' \
		-e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/	"/' -e 's/$/\\n"/' "$ptx"
	echo '	;'
} >kernels_ptx.h
