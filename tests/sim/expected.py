#!/usr/bin/env python3
"""tests/sim/expected.py
Every run of onoff.py: program, words, environment, and what each process that uses the driver has to leave in its stats page
under Sublet. The numbers are counted by hand from the program: managed are the cuMemAlloc of 1 MiB and more outside
captures, in whole 2 MiB pages."""
import signal
from collections import namedtuple

MIB = 1 << 20

# managed: allocations ever; peak, live: bytes at most and at the end; native: kind -> allocations ever.
Process = namedtuple("Process", "managed peak live native", defaults=(0, 0, 0, {}))


class Between:
    """What threads make of a number."""

    def __init__(self, least, most):
        self.least, self.most = least, most

    def __eq__(self, number):
        return self.least <= number <= self.most

    def __repr__(self):
        return "%d..%d" % (self.least, self.most)


Program = namedtuple("Program", "name processes binary args env status without says skip")


def program(name, *processes, binary=None, args=(), env=None, status=0, without=(), says=(), skip=None):
    return Program(name, list(processes), binary or name, args, env or {}, status, without, list(says), skip)


# Other ways to serve that must look the same from outside. A program names those that it cannot be run with, and why.
VARIANTS = {
    "every size": {"SUBLET_MIN_SIZE": "1"},
    "free waits, nothing kept": {"SUBLET_FREE": "sync", "SUBLET_CACHE": "0"},
}

PARENT = Process(1, 4 * MIB)
CHILD = Process(1, 2 * MIB)
TWO_DEVICES = {"SUBLET_SIM_DEVICES": "2"}

PROGRAMS = [
    program("linked", Process(2, 12 * MIB, 0, {"small": 1})),
    program("looked_up", Process(2, 12 * MIB, 0, {"small": 1})),
    program("asked_v1", Process(2, 12 * MIB, 0, {"small": 1}), binary="asked", args=["v1"]),
    program("asked_v2", Process(2, 12 * MIB, 0, {"small": 1}), binary="asked", args=["v2"]),
    program("asked_per_thread", Process(2, 12 * MIB, 0, {"small": 1}), binary="asked", args=["v2", "per-thread"]),
    program("startup", Process(1, 6 * MIB, 0, {"small": 1, "pool": 1})),
    # where the driver answers with addresses that are no exports, as older ones do
    program("startup_internal", Process(1, 6 * MIB, 0, {"small": 1, "pool": 1}), binary="startup",
            env={"SUBLET_SIM_INTERNAL_POINTERS": "1"}),
    program("sizes", Process(10, 1024 * MIB, 0, {"small": 8})),
    program("reuse", Process(40 + 80 + 200, 242 * MIB)),
    program("queries", Process(4, 8 * MIB, 0, {"small": 2, "pinned": 1})),
    program("info", Process(2 + 20 * 16 + 1, 160 * MIB)),
    program("out_of_memory", Process(10 + 1 + 20 + 3, 1024 * MIB, 0, {"pool": 1, "vmm": 1})),
    program("wrong_frees", Process(5, 12 * MIB, 4 * MIB, {"small": 2, "pinned": 1, "vmm": 1})),
    program("copies", Process(2 + 8, (12 + 16) * MIB, 12 * MIB)),
    program("streams", Process(2 + 10, 10 * MIB, 0, {"pinned": 1})),
    program("busy_free", Process(2 * 2 * 6, 4 * MIB)),
    program("own_vmm", Process(1, 8 * MIB, 0, {"vmm": 3})),
    program("shared_vmm", Process(1, 6 * MIB, 0, {"vmm": 1}), Process(1, 2 * MIB, 2 * MIB)),
    program("captures", Process(8 + 4 + 2 + 5 + 1, 12 * MIB, 0, {"small": 4 + 2, "capture": 2})),
    program("callbacks", Process(1, 4 * MIB)),
    program("graph_memory", Process(1, 2 * MIB)),
    program("threads", Process(8 * 40 * 2, Between(2 * MIB, 8 * 2 * 6 * MIB))),
    program("per_thread", Process(5, Between(4 * MIB, 10 * MIB), 0, {"pool": 4})),
    program("contexts", Process(11, (74 + 30) * MIB, 4 * MIB, {"small": 1}), env=TWO_DEVICES),
    program("peers", Process(5, 12 * MIB), env=TWO_DEVICES),
    program("lost", Process(3, 8 * MIB, 0, {"small": 1}), env=TWO_DEVICES),
    program("kinds", Process(2, 4 * MIB, 0, {"small": 1, "pool": 5, "uvm": 1, "pitched": 1, "pinned": 3}),
            without=["every size"]),  # legacy handles of what is managed are refused
    # One process each where the child is a fork: it leaves the driver alone, or it cannot use it.
    *(program(how, PARENT, binary="processes", args=[how]) for how in ("fork_unused", "fork_used", "system")),
    program("fork_under_load", Process(Between(20, 10 ** 9), Between(6 * MIB, 10 * MIB)), binary="processes",
            args=["fork_under_load"]),
    *(program(how, PARENT, CHILD, binary="processes", args=[how]) for how in ("fork_exec", "vfork_exec", "spawn")),
    program("fork_first", PARENT, CHILD, binary="processes", args=["fork_first"]),
    *(program("ends_by_" + how, Process(2, 12 * MIB, 12 * MIB), binary="exits", args=[how], status=status)
      for how, status in (("return", 0), ("thread", 11), ("exit_in_handler", 12), ("_exit", 14), ("killed", -signal.SIGKILL),
                          ("aborted", -signal.SIGABRT))),
    *(program("ends_by_" + how, Process(3, 12 * MIB, 8 * MIB), binary="exits", args=[how])
      for how in ("atexit_before", "atexit_after")),
    program("ends_by_busy", Process(Between(3, 10 ** 9), Between(12 * MIB, 22 * MIB), Between(12 * MIB, 20 * MIB)),
            binary="exits", args=["busy"], status=10),
    program("ends_by__exit_in_handler", Process(Between(3, 10 ** 9), Between(12 * MIB, 16 * MIB), Between(12 * MIB, 14 * MIB)),
            binary="exits", args=["_exit_in_handler"], status=13),
    program("ends_by_exit_anywhere", *[Process(Between(0, 10 ** 9), Between(0, 6 * MIB), Between(0, 2 * MIB))] * 24,
            binary="exits", args=["exit_anywhere"]),
    program("constructor", Process(3, 10 * MIB)),
    program("unloaded", Process(8, 12 * MIB, 0, {"small": 4})),
    program("init_retry", Process(1, 4 * MIB), env={"SUBLET_SIM_FAIL": "cuInit:1=999"},
            says=["cuInit failed .CUDA_ERROR_UNKNOWN, error 999."]),
    program("init_together", Process(16, Between(2 * MIB, 32 * MIB))),
]

if __name__ == "__main__":  # the build asks which tests there are
    print(*(p.name for p in PROGRAMS))
