"""Running one bounded command, reading what Sublet says at its end, and the facts of the machine: shared by
tests/gpu/harness.py and tests/bench/bench.py. Standard library only.

Every command runs in a process group of its own, writes into files, has a time limit, and is ended by the id of that
group alone; a command that not even SIGKILL ends within some seconds is left behind and reported."""

import ctypes
import datetime
import importlib.util
from importlib import metadata
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

stop = threading.Event()  # set by SIGTERM or SIGINT: no command is started any more, and the running ones are ended


def stop_on_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())


class Result:
    """What came of one command: status (None: it did not end by itself), out, err, seconds, problem (text or None)."""

    def __init__(self, argv):
        self.argv, self.status, self.out, self.err, self.seconds, self.problem = argv, None, "", "", 0.0, None

    @property
    def good(self):
        return self.status == 0 and self.problem is None

    def tail(self, lines=15):
        return "\n".join((self.err.rstrip() or self.out.rstrip()).splitlines()[-lines:])


def has_ended(pid):
    """True once the child is a zombie; it is not reaped, so its id stays ours."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def has_ended_within(pid, seconds):
    """The same, seen in the moment it ends: how long a command took is measured by it."""
    descriptor = os.pidfd_open(pid)
    try:
        select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    return has_ended(pid)


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_group(process, grace=4.0):
    """End a child that leads its own process group, and what it started; the child is reaped. False: it did not end."""
    pid = process.pid
    if not has_ended(pid):
        signal_group(pid, signal.SIGTERM)
        limit = time.monotonic() + grace
        while not has_ended(pid) and time.monotonic() < limit:
            time.sleep(0.05)
    signal_group(pid, signal.SIGKILL)
    limit = time.monotonic() + 10
    while not has_ended(pid):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    process.wait()
    return True


def run_command(argv, seconds, env=None, cwd=None, work=None):
    result = Result(argv)
    begin = time.monotonic()
    if stop.is_set() or seconds < 1:
        result.problem = "not started: interrupted" if stop.is_set() else "not started: out of time"
        return result
    with tempfile.TemporaryFile(dir=work) as out, tempfile.TemporaryFile(dir=work) as err:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, cwd=cwd, start_new_session=True
            )
        except OSError as error:
            result.problem = f"cannot start '{argv[0]}': {error.strerror}"
            return result
        while not has_ended_within(process.pid, 0.02):
            if stop.is_set():
                result.problem = "interrupted"
            elif time.monotonic() - begin > seconds:
                result.problem = f"still running after {seconds:.0f} s"
            if result.problem:
                break
        result.seconds = time.monotonic() - begin
        if not end_group(process):
            result.problem = (result.problem or "ended") + ", and could not be killed"
        elif not result.problem:
            result.status = process.returncode
            if result.status < 0:
                result.problem = f"ended by {signal.Signals(-result.status).name}"
        for name, file in (("out", out), ("err", err)):
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - (4 << 20)))
            setattr(result, name, file.read().decode("utf-8", "replace"))
    return result


# --- Sublet

UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
UNITS.update({f"{p}{i}b": 1024 ** (k + 1) for k, p in enumerate("kmgt") for i in ("", "i")})
LINE = re.compile(r"^sublet\[(\d+)[^\]]*\]:\s*(.*)$", re.MULTILINE)
AMOUNT = r"(\d[\d.,]*)\s*([KMGTkmgt]?i?[Bb](?:ytes?)?\b)?"
MANAGED = re.compile(r"\bmanaged\s+" + AMOUNT + r"(?:[^,;]*?\bin\s+(\d+))?", re.IGNORECASE)
NATIVE = re.compile(r"\bnative\s+(?:([a-z]\w*)\s+)?" + AMOUNT, re.IGNORECASE)
COUNTERS = re.compile(r"\blook-ups:\s+\d+")  # the line every process under Sublet ends with


def bytes_of(number, unit):
    return int(float(number.replace(",", "").rstrip(".")) * UNITS.get((unit or "").lower(), 1))


class Report:
    """What Sublet told about one run: the counters of the process that had most, of all that the run started."""

    def __init__(self, err):
        self.lines, self.bugs, by_pid = [], [], {}
        self.seen = False  # a line with counters, which only a process that Sublet served prints
        for match in LINE.finditer(err):
            self.lines.append(match.group(0))
            if "sublet bug" in match.group(2):
                self.bugs.append(match.group(0))
            counts = by_pid.setdefault(match.group(1), [0, 0, 0])
            managed, native = MANAGED.search(match.group(2)), NATIVE.search(match.group(2))
            if managed:
                counts[0] += bytes_of(managed.group(1), managed.group(2))
                counts[1] += int(managed.group(3) or 0)
            if native and native.group(1) != "pinned":  # that is host memory
                counts[2] += bytes_of(native.group(2), native.group(3))
            self.seen = self.seen or bool(managed or native or COUNTERS.search(match.group(2)))
        self.managed, self.allocations, self.native = max(by_pid.values(), default=(0, 0, 0))


def amount(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def ns_text(ns):
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.1f} ns"


def plain_env(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SUBLET_")}
    env.update(PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    env.update(extra or {})
    return env


def sublet_env(extra=None, log="*:info"):
    env = plain_env(extra)
    env["SUBLET_LOG"] = log
    return env


def sublet_argv(build, session, argv):
    return [os.path.join(build, "tools", "sublet"), "run", "--session", session, "--"] + argv


def session_dir():
    """A short path: sockets will live in it."""
    return tempfile.mkdtemp(prefix="sublet-")


def drop_dir(path):
    shutil.rmtree(path, ignore_errors=True)


def find_build(path):
    """The build folder with the `sublet` command in it, or None and the reason."""
    path = os.path.abspath(path or os.environ.get("SUBLET_BUILD") or os.path.join(ROOT, "build"))
    for needed in ("tools/sublet", "shim/libsublet.so"):
        if not os.path.exists(os.path.join(path, needed)):
            return None, f"no '{needed}' in '{path}': build first (tools/bootstrap test), or give --build DIR"
    return path, None


# --- the machine


class Nvml:
    """Bytes in use of device 0, as NVML tells everybody."""

    @staticmethod
    def open():
        """None where there is no NVML that answers."""
        try:
            return Nvml()
        except OSError:
            return None

    def __init__(self):
        self.library, self.handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
            raise OSError("NVML does not answer")

    def used(self):
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, memory):
            raise OSError("NVML does not say what is used")
        return memory[2]


PROBE = """
import ctypes
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit("no libcuda.so.1")
code = driver.cuInit(0)
if code:
    raise SystemExit(f"cuInit answers {code}")
count, version, name, total = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
driver.cuDeviceGetCount(ctypes.byref(count))
driver.cuDriverGetVersion(ctypes.byref(version))
if count.value < 1:
    raise SystemExit("the driver finds no GPU")
driver.cuDeviceGetName(name, 256, 0)
driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
print(f"{count.value}|{version.value}|{name.value.decode()}|{total.value >> 20}")
"""


def probe_gpu():
    """(facts, None) or (None, why there is no GPU to test on)."""
    result = run_command([sys.executable, "-c", PROBE], 60, env=plain_env())
    if not result.good:
        return None, result.problem or result.tail(1) or "the driver does not answer"
    count, version, name, total = result.out.strip().splitlines()[-1].split("|")
    facts = {"GPU": f"{name}, {total} MiB" + (f" (first of {count})" if count != "1" else "")}
    number = int(version)
    facts["CUDA driver API"] = f"{number // 1000}.{number % 1000 // 10}"
    smi = shutil.which("nvidia-smi")
    if smi:
        told = run_command([smi, "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"], 20, env=plain_env())
        if told.good and told.out.strip():
            facts["driver"] = told.out.strip().splitlines()[0]
    if "driver" not in facts:
        try:
            with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
                found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", file.read())
                facts["driver"] = found.group(1) if found else "unknown"
        except OSError:
            facts["driver"] = "unknown"
    return facts, None


def machine_facts(build, gpu):
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
    facts.update(gpu or {})
    facts["system"] = (
        f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}, {os.cpu_count()} cores"
    )
    facts["python"] = platform.python_version()
    nvcc = find_nvcc()
    if nvcc:
        told = run_command([nvcc, "--version"], 20)
        found = re.search(r"release ([\d.]+)", told.out)
        if found:
            facts["nvcc"] = found.group(1)
    for module in ("torch", "transformers", "triton", "jax", "cupy", "numpy"):
        version = module_version(module)
        if version:
            facts[module] = version
    if build:
        told = run_command([os.path.join(build, "tools", "sublet"), "--version"], 10)
        if told.good:
            facts["sublet"] = told.out.strip().replace("sublet ", "")
    return facts


def module_version(module):
    if importlib.util.find_spec(module) is None:
        return None
    # a distribution may be named otherwise than its module (cupy-cuda13x)
    for name in [module] + [
        d.metadata["Name"] for d in metadata.distributions() if (d.metadata["Name"] or "").startswith(module + "-")
    ]:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "?"


def find_nvcc():
    for path in (
        [os.environ.get("NVCC"), shutil.which("nvcc")]
        + [os.path.join(os.environ[k], "bin", "nvcc") for k in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(k)]
        + ["/usr/local/cuda/bin/nvcc"]
    ):
        if path and os.access(path, os.X_OK):
            return path
    return None


def find_cuda_include(build):
    """The folder with cuda.h: the build's own choice first, as tools/bootstrap may have unpacked it there."""
    homes = [os.environ[k] for k in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(k)] + ["/usr/local/cuda", "/usr"]
    nvcc = find_nvcc()
    if nvcc:
        homes.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    for home in homes:
        if os.path.exists(os.path.join(home, "include", "cuda.h")):
            return os.path.join(home, "include")
    for folder, _, files in os.walk(build or os.path.join(ROOT, "build")):
        if "cuda.h" in files:
            return folder
    return None


def find_compiler():
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def find_libcuda_flags():
    """How to link with -lcuda: by the driver's own library if the linker finds it, else by the toolkit's stub."""
    flags = []
    nvcc = find_nvcc()
    homes = [os.environ[k] for k in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(k)] + ["/usr/local/cuda"]
    if nvcc:
        homes.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    for home in homes:
        for folder in ("lib64/stubs", "lib/stubs", "targets/x86_64-linux/lib/stubs", "targets/sbsa-linux/lib/stubs"):
            if os.path.exists(os.path.join(home, folder, "libcuda.so")):
                flags.append("-L" + os.path.join(home, folder))
    return flags + ["-lcuda"]


def write_file(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def table_text(head, rows):
    widths = [max(len(str(row[i])) for row in [head] + rows) for i in range(len(head))]
    line = "  ".join("{:<%d}" % w for w in widths)
    return "\n".join(line.format(*map(str, row)).rstrip() for row in [head] + [["-" * w for w in widths]] + rows)


def table_markdown(head, rows):
    def line(row):
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"

    return "\n".join([line(head), "|" + "---|" * len(head)] + [line(row) for row in rows])


def facts_text(facts):
    return ", ".join(f"{k} {v}" for k, v in facts.items())
