"""Two Triton kernels over buffers of many sizes, against PyTorch's own answer.
The last line of output is one JSON object (see compare.py)."""

import hashlib
import json
import sys
import time

START = time.monotonic()

import torch
import triton
import triton.language as tl


@triton.jit
def scale_add(x, y, out, count, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    tl.store(out + at, tl.load(x + at, mask=mask) * factor + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def row_softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + at, power / tl.sum(power, axis=0), mask=at < columns)


def main():
    exact = {}
    state = hashlib.sha256()
    right = True
    torch.manual_seed(0)
    for count in (1000, 1 << 18, (1 << 20) + 3, 1 << 24, 1 << 28):
        x = torch.rand(count, device="cuda")
        y = torch.rand(count, device="cuda")
        out = torch.empty_like(x)
        scale_add[(triton.cdiv(count, 1024),)](x, y, out, count, 2.0, BLOCK=1024)
        right = right and bool(torch.equal(out, x * 2 + y))
        state.update(repr(float(out.double().sum())).encode() + out[-5:].cpu().numpy().tobytes())
        del x, y, out
        torch.cuda.empty_cache()
    exact["scale_add is right"] = right
    exact["scale_add"] = state.hexdigest()
    x = torch.randn(4096, 3000, device="cuda")
    out = torch.empty_like(x)
    row_softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096)
    exact["softmax is right"] = bool(torch.allclose(out, x.softmax(-1), atol=1e-6))
    exact["softmax"] = hashlib.sha256(out.cpu().numpy().tobytes()).hexdigest()
    info = {"total s": round(time.monotonic() - START, 2), "triton": triton.__version__, "torch": torch.__version__}
    print(json.dumps({"exact": exact, "info": info}))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
