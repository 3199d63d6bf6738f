"""tests/cli/taker.py
A program that asks what memory there is and takes some, as it is told on stdin, one command a line; it answers each with a line. It knows
nothing of Sublet.
  take MIB       an allocation, filled with a pattern: "taken", or the driver's error
  put N          free the Nth that was taken: "freed"
  native MIB     one that stays the driver's: "taken", or the driver's error
  info, old      free and total as cuMemGetInfo_v2, or its form with 32 bits, tells them: "FREE TOTAL", in MiB
  total, oldtotal  the same for cuDeviceTotalMem
  fits           takes 2 MiB pieces until one is refused, frees them: how many there were
  check          compares every byte: "same bytes"
  device N       makes device N current"""
import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
size_t, address_t, unsigned = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint
taken = []


def check(result):
    assert result == 0, result


def use(device):
    context = ctypes.c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(driver.cuCtxSetCurrent(context))
    return "current"


def take(mib):
    address = address_t()
    result = driver.cuMemAlloc_v2(ctypes.byref(address), size_t(mib * MIB))
    if result:
        return "error %d" % result
    taken.append((address, mib))
    fill = bytes([len(taken) % 251 + 1]) * MIB
    for i in range(mib):
        check(driver.cuMemcpyHtoD_v2(address_t(address.value + i * MIB), fill, size_t(MIB)))
    return "taken"


def native(mib):
    address, pitch = address_t(), size_t()
    result = driver.cuMemAllocPitch_v2(ctypes.byref(address), ctypes.byref(pitch), size_t(MIB), size_t(mib), unsigned(4))
    return "error %d" % result if result else "taken"


def put(which):
    check(driver.cuMemFree_v2(taken[which][0]))
    taken[which] = None
    return "freed"


def fits():
    pieces = []
    while True:
        address = address_t()
        if driver.cuMemAlloc_v2(ctypes.byref(address), size_t(2 * MIB)):
            break
        pieces.append(address)
    for address in pieces:
        check(driver.cuMemFree_v2(address))
    return len(pieces)


def compare():
    seen = ctypes.create_string_buffer(MIB)
    for number, (address, mib) in ((n, t) for n, t in enumerate(taken, 1) if t):
        for i in range(mib):
            check(driver.cuMemcpyDtoH_v2(seen, address_t(address.value + i * MIB), size_t(MIB)))
            if seen.raw != bytes([number % 251 + 1]) * MIB:
                return "other bytes"
    return "same bytes"


def info(call, kind):
    free, total = kind(), kind()
    check(call(ctypes.byref(free), ctypes.byref(total)))
    return "%d %d" % (free.value // MIB, total.value // MIB)


def total(call, kind):
    value = kind()
    check(call(ctypes.byref(value), 0))
    return value.value // MIB


COMMANDS = {
    "take": take, "put": put, "native": native, "fits": fits, "check": compare, "device": use,
    "info": lambda: info(driver.cuMemGetInfo_v2, size_t), "old": lambda: info(driver.cuMemGetInfo, unsigned),
    "total": lambda: total(driver.cuDeviceTotalMem_v2, size_t), "oldtotal": lambda: total(driver.cuDeviceTotalMem, unsigned),
}

check(driver.cuInit(0))
use(0)
print("ready", flush=True)
for line in sys.stdin:
    name, *numbers = line.split()
    print(COMMANDS[name](*map(int, numbers)), flush=True)
