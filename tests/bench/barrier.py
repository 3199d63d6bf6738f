"""The part "barrier": what a phase change costs that moves nothing.

Eight processes of the simulated driver in one session; one connection, as `sublet phase` makes it, asks for a thousand changes
between two phases, and each is timed from the question to the end of its answer. Every process is asked for its plan in each of
them and told of the new phase; none is held, as nothing moves. Needs no GPU: nothing of it calls the driver."""

import os
import socket
import sys
import time

import intervals
import steps
from steps import ns_text
from workers import Session, Worker, WorkerError

sys.path.append(os.path.join(steps.ROOT, "tests", "cli"))
import protocol

PROCESSES, CHANGES, BAR_NS, BLOCK = 8, 1000, 1e6, 4 << 20
POLICY = """version: 1
roles: [worker]
phases: [{name: one, roles: [worker]}, {name: other, roles: [worker]}]
triggers: [{enter: one, command: true}, {enter: other, command: true}]
objects:
  - {name: everything, match: {role: worker}, class: permanent, resident: all}
"""


def change(peer, number):
    """ns until the phase had begun for everybody."""
    begin, name, wrong = time.perf_counter_ns(), None, None
    peer.send(protocol.ask_phase(number % 2, number + 2))
    while name != "END":
        name, body, _ = peer.receive()
        if name not in ("PHASE", "END"):
            wrong = f"it is answered with {name}"
        elif name == "END" and int.from_bytes(body[4:8], "little"):
            wrong = body[8:].split(b"\0")[0].decode("utf-8", "replace")
        if wrong:
            raise WorkerError(f"phase change {number}: {wrong}")
    return time.perf_counter_ns() - begin


def measure(bench, changes):
    """A time for each change; all workers stay till the end, and are asked for nothing meanwhile."""
    flags = ["-DVIA_DLSYM", "-ldl", "-DON_SIM", "-rdynamic", "-I", steps.ROOT]
    argv = [bench.program("barrier_worker", "residency_worker.c", flags)]
    workers, found, peer = [], [], None
    with Session(bench.build, POLICY, sim=bench.find_sim()) as session:
        try:
            for _ in range(PROCESSES):
                env = steps.sublet_env(log="*:warn,stats:info")
                workers.append(Worker(session.argv(argv, "worker"), env, bench.work, "barrier"))
            for worker in workers:
                worker.ready(min(60, bench.left()))
                worker.ask(f"take {BLOCK} 1")
            peer = protocol.Peer(session.folder)
            peer.join(command=b"bench")
            for number in range(changes):
                if bench.left() < 5:
                    raise WorkerError(f"out of time after {number} of {changes} phase changes")
                found.append(change(peer, number))
        except socket.timeout:
            raise WorkerError(f"no answer to phase change {len(found)} within {peer.socket.gettimeout():.0f} s") from None
        finally:
            if peer:
                peer.close()
            bench.logs += [worker.close() for worker in workers]
        clients = [steps.Report(log) for log in bench.logs[-PROCESSES:]]
    bench.logs.append(session.log)
    absent = sum(not report.managed for report in clients)
    if absent:
        raise WorkerError(f"{absent} of {PROCESSES} processes managed no memory: was Sublet there?")
    return found


def run(bench):
    made = measure(bench, CHANGES)
    value, low, high = intervals.interval([[float(ns) for ns in made]])
    # --sim tries the script, on whatever machine and beside whatever else
    verdict = "shown" if bench.options.sim else intervals.judge(value, low, high, BAR_NS, at_least=False)
    bench.row(
        f"phase change that moves nothing, {PROCESSES} processes, {len(made)} in a row over one connection",
        "",
        f"median {ns_text(value)}, p99 {ns_text(intervals.percentile(made, 99))}, longest {ns_text(max(made))}",
        f"[{ns_text(low)}, {ns_text(high)}] of the median",
        "-" if bench.options.sim else "median at most 1 ms",
        verdict,
    )
    bench.raw["barrier"] = {"ns": made, "interval": [value, low, high], "bar": BAR_NS}
