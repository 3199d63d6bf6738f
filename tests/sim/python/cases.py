"""tests/sim/python/cases.py CASE
One case of stacks.py, with the library probe.c in $PROBE, in the interpreter that runs this file: CPython 3.9 or later. Each compares
what the reader says with what sys._getframe says."""
import atexit
import ctypes
import os
import sys
import threading
import time

PROBE = os.environ["PROBE"]
FREE = ctypes.CDLL(PROBE)  # releases the GIL
HELD = ctypes.PyDLL(PROBE)  # keeps it
FRAMES_MAX = 96
ROOM = 1 << 20
for library in (FREE, HELD):
    for name in ("probe_frames", "probe_frames_without_python", "probe_frames_with_mutex", "probe_fork_frames"):
        getattr(library, name).argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    library.probe_median_us.restype = library.probe_median_us_without_python.restype = ctypes.c_double
FREE.probe_prepare()


def text_of(code):
    text = "%s:%s" % (code.co_filename, getattr(code, "co_qualname", code.co_name))
    return "".join("\ufffd" if "\ud800" <= c < "\ue000" or c == "\0" else c for c in text)


def expected(frame):
    texts = []
    while frame and len(texts) < FRAMES_MAX:
        texts.append(text_of(frame.f_code))
        frame = frame.f_back
    return texts


def decode(buffer, count):
    assert count >= 0, count
    texts = buffer.value.decode("utf-8").split("\n")[:-1]
    assert len(texts) == count, (len(texts), count)
    return texts


def read(function):
    """What @function says, of whoever called this."""
    buffer = ctypes.create_string_buffer(ROOM)
    return decode(buffer, function(buffer, ROOM))


def check(function=None):
    """The frames are right, with the GIL released and with it held."""
    for library in (FREE, HELD):
        buffer = ctypes.create_string_buffer(ROOM)
        got = decode(buffer, library.probe_frames(buffer, ROOM))
        want = expected(sys._getframe())
        assert got == want, "got %r\nwant %r" % (got, want)
    return got


def run_thread(function, daemon=False):
    failed = []

    def body():
        try:
            function()
        except BaseException as error:
            failed.append(error)
    thread = threading.Thread(target=body, daemon=daemon)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


class Layer:
    def __init__(self, inner=None):
        self.inner = inner

    def __call__(self, *args):
        return self.inner(*args) if self.inner else check()

    class Nested:
        def method(self):
            return (lambda: [check() for _ in range(2)][0])()


class Made:
    def __init__(self):
        self.seen = check()


def functions():
    check()
    for _ in range(50):  # until calls are specialised
        Layer(Layer(Layer()))()
        Layer.Nested().method()
        Made()
    sorted([2, 1], key=lambda _: len(check()))
    list(map(lambda _: check(), [1]))
    assert any("Layer.__call__" in t or t.endswith(":__call__") for t in Layer()())


def threads():
    run_thread(check)
    run_thread(Layer(Layer()), daemon=True)
    for _ in range(20):
        run_thread(check)
    many = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(50)]
    for thread in many:
        thread.start()
    check()
    run_thread(check)
    for thread in many:
        thread.join()


def generators():
    def inner():
        try:
            yield check()
            yield check()
        finally:
            check()

    def outer():
        yield from inner()
        check()
    for _ in range(3):
        list(outer())
    generator = outer()
    next(generator)
    generator.close()
    generator = outer()
    next(generator)
    try:
        generator.throw(KeyError)
    except KeyError:
        check()
    run_thread(lambda: list(outer()))
    sum(len(check()) for _ in range(2))


def coroutines():
    import asyncio

    async def leaf():
        check()
        await asyncio.sleep(0)
        check()

    async def numbers():
        for i in range(3):
            await leaf()
            yield i

    async def main():
        async for _ in numbers():
            check()
        await asyncio.gather(leaf(), leaf())
    asyncio.run(main())
    run_thread(lambda: asyncio.run(main()))
    check()


def recursion():
    def deep(n):
        return deep(n - 1) if n else check()

    def deep_in_c(n):
        return list(map(deep_in_c, [n - 1])) if n else check()
    for n in (5, 90, 94, 95, 96, 97, 400, 800):
        assert len(deep(n)) == min(FRAMES_MAX, n + len(expected(sys._getframe())) + 2)
        deep_in_c(min(n, 150))
    check()


def names():
    for file, name in (("/tmp/ascii.py", "plain"), ("/tmp/caf\u00e9.py", "d\u00e9j\u00e0"), ("/tmp/\u6a21\u578b.py", "\u5206\u914d"),
                       ("/tmp/\U00020021.py", "\U00020022x"), ("/tmp/\udcff.py", "f"), ("<string>", "\u03b1" * 200),
                       ("/" + "x" * 4000 + ".py", "f"), ("/" + "\u00e9" * 1500, "g"), ("f", "f2"), ("", "h")):
        space = {"check": check}
        exec(compile("def %s():\n    class C:\n        def m(self):\n            return check()\n    return C().m()\n" % name, file, "exec"),
             space)
        for function in (space[name], space[name]):
            assert len(function()) > 3

    # longer than what is kept of them: cut, still one line each
    space = {"read": read}
    exec(compile("def %s():\n    return read(LIB.probe_frames)\n" % ("n" * 3000), "/" + "\u6a21" * 3000, "exec"), dict(space, LIB=FREE), space)
    got = space["n" * 3000]()
    assert got[1] == "/" + "\u6a21" * 1365 + ":" + "n" * 1023, (len(got[1]), got[1][:50])
    # of many sizes, so that heads and ends fall on all sides of pages
    for size in range(1, 300):
        space = {"check": check}
        exec(compile("def f%s(): return check()" % ("y" * size), "/p/" + "z" * size, "exec"), space)
        space["f" + "y" * size]()


def tracing():
    def tracer(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "traced":
            check()
        return None

    def traced():
        return check()
    sys.settrace(tracer)
    traced()
    sys.settrace(None)
    sys.setprofile(lambda *_: None)
    traced()
    sys.setprofile(None)
    check()


def callbacks():
    kind = ctypes.CFUNCTYPE(ctypes.c_int)
    kept = kind(lambda: len(check()))
    assert kept() > 2
    run_thread(kept)


def mutex():
    """A mutex held during the read, and the GIL held elsewhere by a thread that waits for that mutex."""
    results = []

    def allocate():
        buffer = ctypes.create_string_buffer(ROOM)
        results.append((buffer, FREE.probe_frames_with_mutex(buffer, ROOM), expected(sys._getframe())))
    thread = threading.Thread(target=allocate)
    began = time.monotonic()
    thread.start()
    while not FREE.probe_mutex_is_held():
        time.sleep(0.001)
    # from here on until the mutex is free nobody else gets the GIL
    assert HELD.probe_wait_for_mutex() == 0
    thread.join(60)
    buffer, count, want = results[0]
    assert decode(buffer, count) == want
    assert time.monotonic() - began < 15


def no_python():
    buffer = ctypes.create_string_buffer(ROOM)
    assert FREE.probe_frames_without_python(buffer, ROOM) == 0
    assert HELD.probe_frames_without_python(buffer, ROOM) == 0
    check()


def references():
    def here():
        return None
    code, before = check.__code__, None
    read(FREE.probe_frames)
    before = [sys.getrefcount(o) for o in (code, code.co_filename, code.co_name, sys._getframe())]
    for _ in range(500):
        read(FREE.probe_frames)
        check()
    after = [sys.getrefcount(o) for o in (code, code.co_filename, code.co_name, sys._getframe())]
    assert before == after, (before, after)


def child(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def forks():
    def in_child():
        status = 1
        try:
            check()
            run_thread(check)
            status = 0
        finally:
            os._exit(status)

    def fork():
        pid = os.fork()
        if pid == 0:
            in_child()
        child(pid)
    check()
    fork()
    run_thread(fork)
    # a child that the interpreter does not know of
    want = len(expected(sys._getframe()))
    for library in (FREE, HELD):
        buffer = ctypes.create_string_buffer(ROOM)
        pid = library.probe_fork_frames(buffer, ROOM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (1, want + 1)


IN_SUB = """
import sys
sys.path[:] = %r
import cases
def inside():
    return cases.%s()
inside()
"""


def sub_modules():
    if sys.version_info < (3, 13):
        import _xxsubinterpreters as module
        create = (lambda: module.create(isolated=False))
        isolated = None
    else:
        import _interpreters as module
        create = (lambda: module.create("legacy"))
        isolated = (lambda: module.create("isolated"))

    def run(number, code):
        wrong = module.run_string(number, code)
        assert wrong is None, wrong
    return create, isolated, run, module.destroy


def none_in_two_interpreters():
    assert read(FREE.probe_frames) == []


def subinterpreters():
    create, create_isolated, run, destroy = sub_modules()
    # 3.9 has nothing that tells which of a thread's interpreters runs
    body = "check" if sys.version_info >= (3, 10) else "none_in_two_interpreters"
    code = IN_SUB % ([os.path.dirname(os.path.abspath(__file__))] + sys.path, body)
    first, second = create(), create()
    if sys.version_info >= (3, 10):
        check()
    for _ in range(3):
        run(first, code)
        run(second, code)
        if sys.version_info >= (3, 10):
            check()
    run_thread(lambda: run(first, code))
    if sys.version_info >= (3, 10):
        run_thread(check)
    destroy(second)
    destroy(first)
    if sys.version_info >= (3, 13):  # with a GIL of its own; before, ctypes cannot be had there
        own = create_isolated()
        run(own, code)
        run_thread(lambda: run(own, code))
        destroy(own)
    check()


def churn():
    """Other threads come and go, whose states are on the list that is walked."""
    stop, wrong = threading.Event(), []

    def parent():
        while not stop.is_set():
            some = [threading.Thread(target=lambda: None) for _ in range(4)]
            for thread in some:
                thread.start()
            for thread in some:
                thread.join()

    def reader(times):
        found = 0
        for _ in range(times):
            buffer = ctypes.create_string_buffer(4096)
            got = decode(buffer, FREE.probe_frames(buffer, 4096))
            if got:
                found += 1
                if got != expected(sys._getframe()):
                    wrong.append((got, expected(sys._getframe())))
        return found
    parents = [threading.Thread(target=parent) for _ in range(4)]
    for thread in parents:
        thread.start()
    found, until = 0, time.monotonic() + 4
    rounds = 0
    while time.monotonic() < until:
        found += reader(50)
        short = []
        run_thread(lambda: short.append(reader(5)))
        found += short[0]
        rounds += 1
    stop.set()
    for thread in parents:
        thread.join()
    assert not wrong, wrong[0]
    assert found > 0.9 * rounds * 55, (found, rounds * 55)


class Dying:
    def __init__(self, check, frames):
        self.check, self.frames = check, frames

    def __del__(self):
        got, want = self.frames()
        assert got == want, (got, want)
        os.write(1, b"destructor\n")


def shutdown():
    """Reads in atexit, in a destructor while modules are torn down, and in a daemon thread that goes on meanwhile."""
    buffer = ctypes.create_string_buffer(ROOM)

    def frames(function=FREE.probe_frames, buffer=buffer, room=ROOM, decode=decode, expected=expected, frame=sys._getframe):
        got = decode(buffer, function(buffer, room))
        return got, expected(frame())

    def at_exit():
        check()
        os.write(1, b"atexit\n")

    def forever():
        other = ctypes.create_string_buffer(4096)
        while True:
            FREE.probe_frames(other, 4096)
    atexit.register(at_exit)
    sys.modules["dying"] = Dying(check, frames)
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.05)


def startup():
    """Before main runs: site has imported the file that stacks.py made."""
    assert sys.modules["sitecustomize"].FRAMES > 5


def beside_threads():
    stop = threading.Event()
    some = [threading.Thread(target=stop.wait) for _ in range(50)]
    for thread in some:
        thread.start()
    took = FREE.probe_median_us_without_python(1000)
    stop.set()
    for thread in some:
        thread.join()
    return took


def cost():
    """The median of a reading, 40 frames deep: each its own function, two in a file, as in a framework."""
    space = {"read": lambda: FREE.probe_median_us(3000)}
    below = len(expected(sys._getframe())) + 1
    for i in range(40 - below):
        body = "read()" if i == 0 else "function_of_a_module_%d()" % (i - 1)
        exec(compile("class Module_%d:\n    def forward(self): return %s\nfunction_of_a_module_%d = Module_%d().forward" % (i, body, i, i),
                     "/usr/lib/python3/dist-packages/framework/package/module_%d.py" % (i // 2), "exec"), space)
    print("%.1f us without Python, beside 50 threads" % beside_threads())
    print("%.1f us for 40 frames" % space["function_of_a_module_%d" % (39 - below)]())


def described():
    text = ctypes.create_string_buffer(200)
    FREE.probe_describe(text, 200)
    free = hasattr(sys, "_is_gil_enabled") and "free-threading" in sys.version
    assert text.value.decode() == "3.%d%s" % (sys.version_info[1], "t" if free else ""), text.value


def main():
    globals()[sys.argv[1]]()
    print("good")


if __name__ == "__main__":
    # by its name too, for who imports it
    sys.modules["cases"] = sys.modules["__main__"]
    main()
