"""tests/cli/eventer.py
A Python program with events that may begin phases, as it is told on stdin, a word and perhaps a name a line; it answers each with a line
when it is done. It plays one copy of NVTX by hand (shim/nvtx_abi.h), so that no NVTX is needed, and knows nothing else of Sublet but
sublet_phase. Without the word `init` it loads no driver."""
import ctypes
import os
import sys
import threading
import time

MIB = 1 << 20
CORE, FUNCTIONS = 1, 16
START, END, PUSH, POP = 5, 7, 9, 11  # numbers in the table of the core
POINTER = ctypes.c_void_p
libc = ctypes.CDLL(None, use_errno=True)


class Nvtx:
    """The pointers that a copy of NVTX keeps, and what it says of them."""

    class Callbacks(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("get_module_table", POINTER)]

    def __init__(self):
        self.slots = (POINTER * FUNCTIONS)()
        self.places = (POINTER * FUNCTIONS)(*[ctypes.addressof(self.slots) + 8 * i if i else None for i in range(FUNCTIONS)])
        self.module = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(POINTER), ctypes.POINTER(ctypes.c_uint))(self.table)
        self.callbacks = self.Callbacks(ctypes.sizeof(self.Callbacks), ctypes.cast(self.module, POINTER))
        self.get = ctypes.CFUNCTYPE(POINTER, ctypes.c_uint32)(lambda which: ctypes.addressof(self.callbacks) if which == 1 else None)
        self.attached = False

    def table(self, module, table, count):
        if module != CORE:
            return 0
        table[0] = ctypes.addressof(self.places)
        count[0] = FUNCTIONS
        return 1

    def call(self, number, result, *args):
        if not self.attached:
            self.attached = True
            ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"]).InitializeInjectionNvtx2(self.get)
        if self.slots[number]:
            return ctypes.CFUNCTYPE(result, *[type(arg) for arg in args])(self.slots[number])(*args)
        return None


def check(result):
    assert result == 0, result


class Program:
    def __init__(self):
        self.nvtx, self.context, self.kernels = Nvtx(), POINTER(), {}

    def init(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module, self.address = POINTER(), ctypes.c_uint64()
        check(self.driver.cuInit(0))
        check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        check(self.driver.cuCtxSetCurrent(self.context))
        check(self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(16 * MIB)))
        self.load("sim_noop", "sim_busy", "sim_spin")

    def load(self, *names):
        check(self.driver.cuModuleLoadData(ctypes.byref(self.module), b"sublet-sim:builtin"))
        for name in names:
            self.kernels[name] = POINTER()
            check(self.driver.cuModuleGetFunction(ctypes.byref(self.kernels[name]), self.module, name.encode()))

    def reload(self, name):
        check(self.driver.cuModuleUnload(self.module))
        self.load(name)

    def push(self, name):
        self.nvtx.call(PUSH, ctypes.c_int, ctypes.c_char_p(name.encode()))

    def begin_push(self, name):
        """On another thread, which is in the middle of it."""
        threading.Thread(target=self.push, args=(name,)).start()
        time.sleep(0.2)

    def pop(self):
        self.nvtx.call(POP, ctypes.c_int)

    def start(self, name):
        self.number = self.nvtx.call(START, ctypes.c_uint64, ctypes.c_char_p(name.encode()))

    def set(self):
        """A gated call that touches what is there."""
        check(self.driver.cuMemsetD8_v2(self.address, ctypes.c_ubyte(7), ctypes.c_size_t(MIB)))

    def set_elsewhere(self):
        def run():
            check(self.driver.cuCtxSetCurrent(self.context))
            self.set()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def set_in_callback(self):
        """In a host function of the driver, which what waits for work waits for."""
        function = ctypes.CFUNCTYPE(None, POINTER)(lambda _: self.driver.cuMemcpyHtoD_v2(self.address, b"x" * 8, ctypes.c_size_t(8)))
        check(self.driver.cuLaunchHostFunc(None, function, None))
        check(self.driver.cuStreamSynchronize(None))

    def queue_push_in_callback(self, name):
        """The event comes from a host function that goes on to make a gated call."""
        def run(_):
            self.push(name)
            self.driver.cuMemcpyHtoD_v2(self.address, b"x" * 8, ctypes.c_size_t(8))

        function = ctypes.CFUNCTYPE(None, POINTER)(run)
        check(self.driver.cuLaunchHostFunc(None, function, None))
        check(self.driver.cuStreamSynchronize(None))

    def launch(self, name, stream=None):
        milliseconds = ctypes.c_uint32(0)
        params = (POINTER * 1)(ctypes.addressof(milliseconds))
        check(self.driver.cuLaunchKernel(self.kernels[name], 1, 1, 1, 1, 1, 1, 0, stream, params, None))

    def capture(self, name):
        stream, graph = POINTER(), POINTER()
        check(self.driver.cuStreamCreate(ctypes.byref(stream), 1))
        check(self.driver.cuStreamBeginCapture_v2(stream, 0))
        self.launch(name, stream)
        check(self.driver.cuStreamEndCapture(stream, ctypes.byref(graph)))

    def spin(self):
        """Work that goes on until `release`."""
        self.flag = POINTER()
        check(self.driver.cuMemHostAlloc(ctypes.byref(self.flag), ctypes.c_size_t(4096), 0))
        params = (POINTER * 1)(ctypes.addressof(self.flag))
        check(self.driver.cuLaunchKernel(self.kernels["sim_spin"], 1, 1, 1, 1, 1, 1, 0, None, params, None))

    def set_and_release(self):
        """As a collective does: what runs ends when the next launch has been made."""
        self.launch("sim_noop")
        ctypes.c_uint32.from_address(self.flag.value).value = 1

    def alloc(self, mib):
        check(self.driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(mib) * MIB)))

    def phase(self, name):
        return libc.sublet_phase(name.encode())

    def env(self, assignment):
        name, value = assignment.split("=")
        os.environ[name] = value

    def unset(self, name):
        del os.environ[name]

    def churn(self, seconds):
        """Set and unset thousands of variables, so that the C library's list moves again and again."""
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            names = ["CHURN_%d" % i for i in range(3000)]
            for name in names:
                os.environ[name] = name
            for name in names:
                del os.environ[name]

    def fork_and(self, word, name):
        """A child that does it, and waits until it was told: what it asks for by name comes after that."""
        child = os.fork()
        if child == 0:
            getattr(self, word)(name)
            time.sleep(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def loads_driver(self):
        with open("/proc/self/maps") as text:
            return "libcuda" in text.read()


def main():
    program = Program()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        got = getattr(program, word)(*rest)
        print("done" if got is None else got, flush=True)


main()
