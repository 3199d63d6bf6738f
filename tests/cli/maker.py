"""tests/cli/maker.py
A Python program that makes device memory in functions that have names, as it is told on stdin, one word a line; it answers each
with the addresses. It knows nothing of Sublet but for `tag`, which asks for sublet_tag as a program may."""
import ctypes
import os
import sys
import threading

driver = ctypes.CDLL("libcuda.so.1")
libc = ctypes.CDLL(None)
context = ctypes.c_void_p()
MIB = 1 << 20


def check(result):
    assert result == 0, result


def allocate(mib):
    address = ctypes.c_uint64()
    check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib * MIB)))
    return address.value


class Engine:
    def load_weights(self):
        return [allocate(16) for _ in range(3)]

    def allocate_kv_cache(self):
        return [allocate(16), allocate(24)]

    def forward(self):
        made = [allocate(4), allocate(4)]
        for address in made:
            check(driver.cuMemFree_v2(ctypes.c_uint64(address)))
        return []

    def worker(self):
        made = []

        def run():
            libc.prctl(15, b"pt_autograd_0", 0, 0, 0)
            check(driver.cuCtxSetCurrent(context))
            made.append(allocate(8))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return made

    def tag(self):
        sublet_tag = getattr(libc, "sublet_tag", None)
        if sublet_tag:
            assert sublet_tag(b"boundary_kv layer 3") == 0
        made = [allocate(12)]
        if sublet_tag:
            assert sublet_tag(None) == 0
        return made

    def phase_train(self):
        return [libc.sublet_phase(b"train")]

    def phase_rollout(self):
        return [libc.sublet_phase(b"rollout")]

    def phase_none(self):
        return [libc.sublet_phase(b"no such phase")]

    def locked(self):
        """One thread allocates with a mutex held and without the GIL; this one has the GIL, and waits for that mutex."""
        path = sys.argv[1]
        address = ctypes.c_uint64()

        def run():
            check(driver.cuCtxSetCurrent(context))
            check(ctypes.CDLL(path).allocate_locked(ctypes.c_size_t(6 * MIB), ctypes.byref(address)))

        thread = threading.Thread(target=run)
        thread.start()
        while not ctypes.CDLL(path).is_locked():
            pass
        ctypes.PyDLL(path).wait_for_lock()
        thread.join()
        return [address.value]

    def untagged(self):
        return [allocate(12)]


def main():
    check(driver.cuInit(0))
    for device in reversed(os.environ.get("MAKER_DEVICES", "0").split(",")):  # the first is current
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(device)))
    check(driver.cuCtxSetCurrent(context))
    engine = Engine()
    print("ready", flush=True)
    for line in sys.stdin:
        made = getattr(engine, line.strip())()
        print(" ".join(hex(address) for address in made), flush=True)


main()
