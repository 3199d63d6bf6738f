"""CuPy over its memory pool, over plain driver allocations, and with a kernel compiled at run time; print what came
out. The last line of output is one JSON object (see compare.py)."""

import hashlib
import json
import sys
import time

START = time.monotonic()

import cupy
import numpy

exact, info = {}, {}
MiB = 1 << 20

KERNEL = r"""
extern "C" __global__ void scramble(unsigned int *words, unsigned long long count, unsigned int seed)
{
	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
	     i += (unsigned long long)gridDim.x * blockDim.x)
		words[i] = (unsigned int)(i * 2654435761u) ^ (words[i] + seed);
}
"""


def digest(array):
    return hashlib.sha256(cupy.asnumpy(cupy.ascontiguousarray(array)).tobytes()).hexdigest()


def attempt(name, function):
    """A part that this machine's CuPy cannot do is left out by its name, the same way in every run."""
    try:
        exact[name] = function()
    except Exception as error:  # noqa: BLE001
        exact[name] = f"{type(error).__name__}: {str(error)[:120]}"
        print(f"cupy_ops: {name}: {error}", file=sys.stderr)


def pool_loop():
    pool = cupy.get_default_memory_pool()
    state = hashlib.sha256()
    for i in range(40):
        blocks = [cupy.full((((i * 7 + k * 13) % 50 + 1) * MiB // 4,), i + k, dtype=cupy.int32) for k in range(5)]
        state.update(str([int(b.sum(dtype=cupy.int64)) for b in blocks]).encode())
        del blocks
        if i % 4 == 3:
            pool.free_all_blocks()
            state.update(str(pool.total_bytes()).encode())
    return state.hexdigest()


def no_pool():
    cupy.cuda.set_allocator(None)
    try:
        total = 0
        for i in range(60):
            block = cupy.full(((i * 5) % 30 + 1) * MiB // 4, i, dtype=cupy.int32)
            total += int(block.sum(dtype=cupy.int64))
            del block
        return total
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def raw_kernel():
    kernel = cupy.RawKernel(KERNEL, "scramble")
    words = cupy.zeros(24 * MiB // 4, dtype=cupy.uint32)
    for seed in range(5):
        kernel((264,), (256,), (words, numpy.uint64(words.size), numpy.uint32(seed)))
    return digest(words)


def linear_algebra():
    rows = cupy.arange(2048 * 2048, dtype=cupy.float64).reshape(2048, 2048) % 1013
    product = rows @ rows.T
    single = (rows.astype(cupy.float32) % 31) @ (rows.astype(cupy.float32) % 29)
    return [digest(product), digest(single), repr(float(cupy.linalg.norm(product)))]


def elementwise():
    x = cupy.linspace(0, 10, 4 * MiB, dtype=cupy.float64)
    y = cupy.sin(x) * cupy.exp(-x) + cupy.sqrt(x)
    fused = cupy.ElementwiseKernel("float64 a, float64 b", "float64 c", "c = a * b + 1.0", "fused_one")
    return [
        digest(y),
        digest(fused(x, y)),
        digest(cupy.sort(y)[:1000]),
        digest(cupy.cumsum(cupy.ones(MiB, dtype=cupy.int64))),
    ]


def random_numbers():
    cupy.random.seed(5)
    return [digest(cupy.random.random(MiB)), digest(cupy.random.standard_normal(MiB, dtype=cupy.float32))]


def fourier():
    x = cupy.arange(1 << 20, dtype=cupy.float64) % 127
    return [digest(cupy.fft.fft(x)), digest(cupy.fft.rfft(x.reshape(1024, 1024)))]


def streams():
    pinned = cupy.cuda.alloc_pinned_memory(32 * MiB)
    host = numpy.frombuffer(pinned, dtype=numpy.uint32, count=8 * MiB)
    host[:] = numpy.arange(8 * MiB, dtype=numpy.uint32)
    out = []
    for i in range(3):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            there = cupy.empty(8 * MiB, dtype=cupy.uint32)
            there.set(host, stream=stream)
            there *= cupy.uint32(2 * i + 1)
            back = there.get(stream=stream)
            stream.synchronize()
            out.append(hashlib.sha256(back.tobytes()).hexdigest())
    return out


def out_of_memory():
    try:
        cupy.cuda.memory.alloc(1 << 50)
    except cupy.cuda.memory.OutOfMemoryError:
        return "caught"
    return "not caught"


def graph():
    stream = cupy.cuda.Stream(non_blocking=True)
    words = cupy.zeros(4 * MiB, dtype=cupy.uint32)
    kernel = cupy.RawKernel(KERNEL, "scramble")
    kernel((264,), (256,), (words, numpy.uint64(words.size), numpy.uint32(1)))
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        kernel((264,), (256,), (words, numpy.uint64(words.size), numpy.uint32(9)))
        captured = stream.end_capture()
        for _ in range(7):
            captured.launch(stream)
        stream.synchronize()
    return digest(words)


def main():
    for name, function in (
        ("pool loop", pool_loop),
        ("without a pool", no_pool),
        ("raw kernel", raw_kernel),
        ("linear algebra", linear_algebra),
        ("elementwise", elementwise),
        ("random numbers", random_numbers),
        ("fourier", fourier),
        ("streams", streams),
        ("graph", graph),
        ("out of memory", out_of_memory),
        ("raw kernel again", raw_kernel),
    ):
        attempt(name, function)
    info["total s"] = round(time.monotonic() - START, 2)
    info["cupy"] = cupy.__version__
    info["runtime"] = cupy.cuda.runtime.runtimeGetVersion()
    failed = [name for name, value in exact.items() if isinstance(value, str) and "Error" in value]
    info["parts that failed"] = failed
    print(json.dumps({"exact": exact, "info": info}))
    return 1 if "raw kernel" in failed or "pool loop" in failed else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(status)
