"""The parts of PyTorch that lean on device memory in other ways than training: one of them per run.

    torch_variants.py memory|graphs|workers|compile|ipc

Prints relations and checksums, never raw addresses. The last line of output is one JSON object (see compare.py)."""

import gc
import hashlib
import json
import os
import sys
import time

START = time.monotonic()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch

MiB = 1 << 20
exact, info = {}, {}


def digest(*tensors):
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return state.hexdigest()


def settle():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def memory():
    """Cache emptied in a loop, memory info, addresses that stay, out-of-memory caught. Wants the device for itself."""
    x = torch.arange(4 * MiB, device="cuda", dtype=torch.float32)
    address = x.data_ptr()
    # kernels are loaded at first use and take memory too: use them all before memory is measured
    warm = torch.full((16,), 1, device="cuda", dtype=torch.int32)
    int(warm.sum(dtype=torch.int64)), digest(warm), float(x.double().square().sum())
    del warm
    total = torch.cuda.get_device_properties(0).total_memory
    settle()
    free_before, total_told = torch.cuda.mem_get_info()
    exact["total told"] = total == total_told
    state, peaks = hashlib.sha256(), set()
    for i in range(40):
        sizes = [(i * 7 + k * 13) % 60 + 1 for k in range(6)]
        blocks = [
            torch.full((size * MiB // 4,), i * 10 + k, device="cuda", dtype=torch.int32) for k, size in enumerate(sizes)
        ]
        state.update(str([int(b.sum(dtype=torch.int64)) for b in blocks]).encode())
        peaks.add(torch.cuda.memory_reserved() >> 20)
        del blocks
        torch.cuda.empty_cache()
    exact["empty_cache loop"] = state.hexdigest()
    exact["reserved in the loop MiB"] = sorted(peaks)
    settle()
    free_after, _ = torch.cuda.mem_get_info()
    exact["free memory back after the loop"] = abs(free_before - free_after) <= 64 * MiB

    big = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    free_held, _ = torch.cuda.mem_get_info()
    exact["free memory falls by a block"] = (3 << 30) <= free_after - free_held <= (3 << 30) + 64 * MiB
    del big
    settle()
    exact["and comes back"] = abs(torch.cuda.mem_get_info()[0] - free_after) <= 64 * MiB

    caught = []
    for name, size in (("beyond the device", 2 * total), ("absurd", 1 << 50)):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            caught.append(name)
    # two that fit alone and not together: the second fails, the first is unharmed, and then there is room again
    part = int(total * 0.55)
    first = torch.empty(part, dtype=torch.uint8, device="cuda")
    first[:: 1 << 20] = 7
    try:
        second = torch.empty(part, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        caught.append("second of two")
    exact["first of two unharmed"] = int(first[:: 1 << 20].sum(dtype=torch.int64)) == 7 * ((part + (1 << 20) - 1) >> 20)
    del first
    settle()
    second = torch.empty(part, dtype=torch.uint8, device="cuda")
    second[-1] = 3
    exact["room after the failure"] = int(second[-1]) == 3
    del second
    settle()
    exact["out of memory caught"] = caught
    exact["still right"] = [repr(float(x.double().square().sum())), digest(x)]
    exact["address stays"] = x.data_ptr() == address
    statistics = torch.cuda.memory_stats()
    exact["statistics"] = {
        k: statistics.get(k) for k in ("num_ooms", "allocated_bytes.all.current", "reserved_bytes.all.peak")
    }
    info["statistics"] = {k: statistics.get(k) for k in ("num_alloc_retries", "num_device_alloc", "num_device_free")}
    info["free MiB"] = [free_before // MiB, free_after // MiB]


def graphs():
    """A training step and an inference step captured and replayed, memory churning around them."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
    x, target = torch.randn(512, 1024, device="cuda"), torch.randn(512, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.mse_loss(net(x), target).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
    addresses = [p.data_ptr() for p in net.parameters()]
    losses, churn = [], []
    for i in range(60):
        torch.manual_seed(100 + i)
        x.copy_(torch.randn(512, 1024, device="cuda"))
        graph.replay()
        losses.append(repr(loss.item()))
        churn.append(torch.full(((i % 7 + 1) * 3 * MiB,), i, device="cuda", dtype=torch.uint8))
        if i % 10 == 9:
            churn.clear()
            torch.cuda.empty_cache()
    second = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(second, pool=graph.pool()):
        out = net(x).softmax(-1)
    second.replay()
    torch.cuda.synchronize()
    exact["losses"] = losses
    exact["parameters"] = digest(*net.parameters())
    exact["second graph"] = digest(out)
    exact["addresses stay"] = addresses == [p.data_ptr() for p in net.parameters()]
    # a block born in the graph's pool lives as long as the graph
    del out, second
    graph.replay()
    exact["replay after another graph went"] = repr(loss.item())


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.arange(i, i + 4096, dtype=torch.float32), i


def child_work(rank, queue):
    """Its own context in a process of its own; the answer goes back as plain numbers."""
    torch.manual_seed(rank)
    weight = torch.full((1024, 1024), 1.0 + rank, device="cuda", dtype=torch.float64)
    blocks = [torch.full((8 * MiB,), k + rank, device="cuda", dtype=torch.uint8) for k in range(4)]
    total = sum(int(b.sum(dtype=torch.int64)) for b in blocks)
    queue.put((rank, float((weight @ weight).sum()), total))


def workers():
    """DataLoader with forked workers and pinned memory, then spawned children that use the device themselves."""
    import torch.multiprocessing as multiprocessing

    weights = torch.linspace(-1, 1, 4096, device="cuda", dtype=torch.float64)
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=32, num_workers=3, pin_memory=True, multiprocessing_context="fork", timeout=60
    )
    for turn in range(2):
        sums, pinned = [], True
        for batch, index in loader:
            pinned = pinned and batch.is_pinned()
            on_device = batch.to("cuda", non_blocking=True).double()
            sums.append(repr(float((on_device @ weights).sum())))
        exact[f"loader {turn}"] = sums
        exact[f"pinned {turn}"] = pinned
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=child_work, args=(rank, queue)) for rank in range(2)]
    for child in children:
        child.start()
    exact["children"] = sorted(queue.get(timeout=90) for _ in children)
    for child in children:
        child.join(timeout=30)
    exact["children ended"] = [child.exitcode for child in children]
    exact["weights"] = digest(weights)


def ipc_child(queue, answers):
    tensor = queue.get(timeout=60)
    answers.put(int(tensor.sum(dtype=torch.int64)))
    tensor.fill_(5)
    torch.cuda.synchronize()
    answers.put("written")
    del tensor
    queue.get(timeout=60)


def ipc():
    """A tensor handed to another process by CUDA IPC, written there, read here."""
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=ipc_child, args=(queue, answers))
    child.start()
    tensor = torch.full((16 * MiB,), 3, device="cuda", dtype=torch.uint8)
    queue.put(tensor)
    try:
        exact["seen by the child"] = answers.get(timeout=60)
        exact["child says"] = answers.get(timeout=60)
        torch.cuda.synchronize()
        exact["seen here"] = int(tensor.sum(dtype=torch.int64))
        queue.put("end")
        child.join(timeout=30)
        exact["child ended"] = child.exitcode
    finally:
        if child.is_alive():
            child.kill()


def compile_():
    """torch.compile with CUDA graphs under it."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda().eval()
    fast = torch.compile(net, mode="reduce-overhead")
    state = hashlib.sha256()
    with torch.no_grad():
        for i in range(20):
            x = torch.randn(64, 512, device="cuda")
            state.update(digest(fast(x)).encode())
            junk = torch.empty((i % 5 + 1) * 8 * MiB, dtype=torch.uint8, device="cuda")
            del junk
            if i % 6 == 5:
                torch.cuda.empty_cache()
        exact["close to eager"] = bool(torch.allclose(fast(x), net(x), atol=1e-4))
    exact["outputs"] = state.hexdigest()


if __name__ == "__main__":
    work = {"memory": memory, "graphs": graphs, "workers": workers, "ipc": ipc, "compile": compile_}[sys.argv[1]]
    work()
    info["total s"] = round(time.monotonic() - START, 2)
    info["torch"] = torch.__version__
    print(json.dumps({"exact": exact, "info": info}))
    sys.stdout.flush()
