"""tests/cli/rank.py SHARED NUMBER
One of two ranks that launch halves of a collective: kernels that wait for each other, through memory that both processes map. Does what
it is told on stdin, one word a line, and answers each with a line. It knows nothing of Sublet."""
import ctypes
import mmap
import sys

driver = ctypes.CDLL("libcuda.so.1")
libc = ctypes.CDLL(None)
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
memory = ctypes.c_uint64()
MIB = 1 << 20


def check(result):
    assert result == 0, result
    return "0"


class Rank:
    def __init__(self, path, number):
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 4096)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.shared))
        self.own, self.other = base + 64 * number, base + 64 * (1 - number)
        module = ctypes.c_void_p()
        check(driver.cuModuleLoadData(ctypes.byref(module), b"sublet-sim:builtin"))
        self.fill, self.spin = self.function(module, b"sim_fill32"), self.function(module, b"sim_spin")

    def function(self, module, name):
        function = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), module, name))
        return function

    def launch(self, function, *parameters):
        pointers = (ctypes.c_void_p * len(parameters))(*(ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in parameters))
        check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None))

    def half(self):
        """Says that it is there, and waits on the device for the other."""
        self.launch(self.fill, ctypes.c_uint64(self.own), ctypes.c_size_t(1), ctypes.c_uint32(1))
        self.launch(self.spin, ctypes.c_uint64(self.other))
        return "launched"

    def wait(self):
        return check(driver.cuStreamSynchronize(stream))

    def compute(self):
        """A copy and its end: a gated call and one that is not."""
        word = ctypes.c_uint32()
        check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))
        return hex(word.value)

    def phase_train(self):
        return hex(libc.sublet_phase(b"train"))

    def phase_rollout(self):
        return hex(libc.sublet_phase(b"rollout"))


def main():
    check(driver.cuInit(0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(driver.cuCtxSetCurrent(context))
    check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    check(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16 * MIB)))
    check(driver.cuMemsetD32_v2(memory, 0x5eed, ctypes.c_size_t(4 * MIB)))
    rank = Rank(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        print(getattr(rank, line.strip())(), flush=True)


main()
