"""A worker (worker.h) with torch_memory_saver in the place of Sublet, as its own documentation starts it: its hook is preloaded
(configure_subprocess), tensors are made in a region with a tag. PYTHONPATH names the folder its wheel is unpacked in.

take TAG BYTES N   N tensors of BYTES, each filled with its number; a tag other than "scratch" has a host backup; answer: N
pause TAG          answer: ns
resume TAG         answer: ns
retain TAG         from now on the host backup is kept between a resume and the next pause; answer: 0
check TAG          answer: words that are not what was written"""

import os
import sys
import time

import torch
import torch_memory_saver as package


def start_with_hook():
    """This program again, with the hook preloaded; the hook wants the CUDA runtime, which only torch knows the place of."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        found = [line.split()[-1] for line in file if "libcudart" in line]
    if found:
        paths = [os.path.dirname(found[0]), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p)
    with package.configure_subprocess():
        os.execv(sys.executable, [sys.executable] + sys.argv)


def timed(function):
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    function()
    torch.cuda.synchronize()
    return time.perf_counter_ns() - begin


def main():
    if "torch_memory_saver" not in os.environ.get("LD_PRELOAD", ""):
        start_with_hook()
    saver, tensors = package.torch_memory_saver, {}
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split() or ["quit"]
        if verb == "quit":
            break
        tag = words[0]
        if verb == "take":
            with saver.region(tag=tag, enable_cpu_backup=tag != "scratch"):
                tensors[tag] = [torch.full((int(words[1]) // 4,), i, dtype=torch.int32, device="cuda") for i in range(int(words[2]))]
            torch.cuda.synchronize()
            answer = len(tensors[tag])
        elif verb == "retain":
            saver.retain_cpu_backup = True
            answer = 0
        elif verb == "check":
            answer = sum(int((t != i).sum()) for i, t in enumerate(tensors[tag]))
        else:
            answer = timed(lambda: getattr(saver, verb)(tag))
        print(answer, flush=True)


if __name__ == "__main__":
    main()
