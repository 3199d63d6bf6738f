"""tests/cli/witness.py
Looks at the simulated machine of a session from outside: a process of its own that is no part of the session, and answers each
line with what all processes of the machine have taken, in MiB of the device and of host memory."""
import ctypes
import sys


class Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("capacity", "used", "peak", "host", "host_peak")]


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    driver.sublet_sim_usage.restype = ctypes.c_bool
    assert driver.cuInit(0) == 0
    usage = Usage()
    for _ in sys.stdin:
        assert driver.sublet_sim_usage(0, False, ctypes.byref(usage))
        print(usage.used >> 20, usage.host >> 20, flush=True)


main()
