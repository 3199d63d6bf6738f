"""tests/gpu/ballast.py BYTES
Takes the memory of device 0 until BYTES of it are free, says "done" and keeps it while its input is open: a GPU that is smaller.
Plain driver calls, nothing of Sublet."""

import ctypes
import sys

PIECE = 8 << 30  # one request for nearly all of a device asks for more than memory in pieces would give


def main():
    left, cuda = int(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
    context, address, free, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()

    def check(code, call):
        if code:
            sys.exit(f"ballast: {call} answers {code}")

    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    while True:
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        wanted = min(PIECE, free.value - left) >> 21 << 21
        if wanted <= 0:
            break
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(wanted)), f"cuMemAlloc of {wanted}")
    print(f"left {free.value}\ndone", flush=True)
    for _ in sys.stdin:
        pass


main()
