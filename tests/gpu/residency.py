"""Pages leave a running program and return, told so from outside, and nothing in its results changes.

Two plain runs of each program come first and must agree bit for bit. Then the same program runs under Sublet with a
policy, and at random moments this process says offload, park and restore (`sublet ctl`), ten rounds of it. How much memory
is free is read here, in a third process, from the driver and from NVML. Exit status as harness.py."""

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import compare
import steps

PYTHON = sys.executable
PROGRAM = os.path.join(steps.HERE, "torch_train_generate.py")
MIB = 1 << 20
PROGRAMS = {
    "train": ["--steps", "120", "--tokens", "1"],
    "generate": ["--steps", "3", "--tokens", "900"],
}
QUICK = {"train": ["--steps", "60", "--tokens", "1"], "generate": ["--steps", "3", "--tokens", "250"]}
POLICY = """version: 1
host_pool: 48GiB
roles: {train: {}, generate: {}}
phases:
  - {name: work, roles: [train, generate]}
objects:
  - {name: everything, match: {size: ">=1MiB"}, class: permanent, resident: [work]}
"""


class Device:
    """Free and used bytes of device 0, as a process sees them that has nothing to do with the others."""

    def __init__(self):
        self.nvml = steps.Nvml()
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        if (
            self.cuda.cuInit(0)
            or self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            or self.cuda.cuCtxSetCurrent(context)
        ):
            raise OSError("the driver gives no context")

    def used(self):
        """(by NVML, by the driver)"""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
            raise OSError("the driver does not say what is free")
        return self.nvml.used(), total.value - free.value


class Trouble(Exception):
    pass


class Run:
    """One program under Sublet, moved about while it works."""

    def __init__(self, options, build, role, device, deadline, seed):
        self.options, self.build, self.role, self.device, self.deadline = options, build, role, device, deadline
        self.random, self.notes, self.cycles, self.rates = random.Random(seed), [], 0, {}
        self.session = steps.session_dir()
        self.policy = os.path.join(self.session, "policy.yaml")
        steps.write_file(self.policy, POLICY)
        self.progress = os.path.join(self.session, "progress")

    def sublet(self, *words):
        return [os.path.join(self.build, "tools", "sublet"), *words]

    def ctl(self, verb, *words, may_fail=False):
        """The answer of `sublet ctl`: one object of the session, or one for each process and object that was told to move."""
        argv = self.sublet("ctl", verb, "--session", self.session, "--json", *words)
        result = steps.run_command(argv, min(60, self.deadline.left()))
        if result.problem or (result.status != 0 and not may_fail):
            raise Trouble(f"sublet ctl {verb}: {result.problem or result.status}: {(result.err or result.out)[-600:]}")
        return json.loads(result.out)

    def bytes_at(self, residency):
        return sum(client["bytes"].get(residency, 0) for client in self.ctl("status")["clients"])

    def did(self):
        try:
            with open(self.progress) as file:
                return file.read().count("\n")
        except OSError:
            return 0

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if steps.has_ended(self.process.pid):
                raise Trouble(f"the program ended after {self.cycles} rounds; it must last longer")
            time.sleep(0.02)

    def warm(self):
        while self.did() < 5:
            self.wait(0.2)
            if self.deadline.left() < 30:
                raise Trouble("out of time before it worked")

    def cycle(self, kind):
        """Away and back once. What must be true is said as it is found not to be."""
        self.wait(self.random.uniform(0.05, 0.6))
        before = self.device.used()
        verb = {"offload": "offload", "left alone": "offload", "park": "park"}[kind]
        moved = self.ctl(verb, "--all")
        away = sum(answer["moved_bytes"] for answer in moved)
        after = self.device.used()
        held = self.did()
        if away < 200 * MIB:
            self.notes.append(f"round {self.cycles}, {kind}: only {steps.amount(away)} moved")
        if kind != "left alone":  # left alone it may be served by now
            for who, b, a in zip(("NVML", "driver"), before, after):
                if b - a < 0.98 * away - 64 * MIB:
                    self.notes.append(
                        f"round {self.cycles}, {kind}: {steps.amount(away)} moved, {who} sees {steps.amount(b - a)} less"
                    )
        if kind == "offload":
            self.wait(self.random.uniform(0, 0.3))
        else:
            # A training step over the link takes up to some seconds, and a held program waits one before it is served.
            until = time.monotonic() + 15
            self.wait(2.0)
            while self.did() == held and time.monotonic() < until:
                self.wait(0.1)
            if self.did() == held:
                self.notes.append(f"round {self.cycles}, {kind}: nothing was done in 15 s")
        back = self.ctl("restore", "--all")
        if self.bytes_at("host") + self.bytes_at("parked") + self.bytes_at("empty"):
            self.notes.append(f"round {self.cycles}, {kind}: not everything is back")
        for name, answer in ((verb, moved), ("restore", back)):
            size, took = (sum(one[key] for one in answer) for key in ("moved_bytes", "seconds"))
            if size and took:
                self.rates.setdefault(name, []).append(size / took / 1e9)
        self.cycles += 1

    def go(self, words, rounds):
        argv = [PYTHON, PROGRAM, "--deterministic", "--progress", self.progress, *words]
        under = self.sublet("run", "--session", self.session, "--policy", self.policy, "--role", self.role, "--", *argv)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            env = steps.sublet_env({"SUBLET_VERIFY": "1"} if self.options.verify else {})
            self.process = subprocess.Popen(
                under, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )
            trouble = None
            try:
                self.warm()
                kinds = ["offload", "park", "offload", "left alone", "park"] * rounds
                for kind in kinds[:rounds]:
                    self.cycle(kind)
                while not steps.has_ended(self.process.pid) and self.deadline.left() > 10:
                    time.sleep(0.05)
                if not steps.has_ended(self.process.pid):
                    trouble = "it did not end in time"
            except (Trouble, OSError, ValueError, KeyError) as error:
                trouble = f"{type(error).__name__}: {error}"
            finally:
                steps.end_group(self.process)
                steps.run_command(self.sublet("ctl", "stop", "--session", self.session), 20)
            for file in (out, err):
                file.seek(0)
            self.out, self.err = (f.read().decode("utf-8", "replace") for f in (out, err))
        try:
            with open(os.path.join(self.session, "coordinator.log")) as file:
                self.err += "\n--- coordinator\n" + file.read()
        except OSError:
            pass
        steps.drop_dir(self.session)
        if not trouble and self.process.returncode != 0:
            trouble = f"the program ended with {self.process.returncode}"
        return trouble


def plain_runs(words, deadline):
    found = []
    for _ in range(2):
        argv = [PYTHON, PROGRAM, "--deterministic", *words]
        result = steps.run_command(argv, min(120, deadline.left()), env=steps.plain_env())
        answer = compare.parse(result.out)
        if result.problem or result.status or not answer:
            raise Trouble(f"plain run: {result.problem or result.status}: {result.err[-400:]}")
        found.append(answer)
    return found


def one(options, build, role, device, deadline, logs):
    """(row of the table, passed)"""
    words = (QUICK if options.quick else PROGRAMS)[role]
    rounds = 4 if options.quick else options.rounds
    try:
        plain = plain_runs(words, deadline)
    except Trouble as trouble:
        return [role, str(trouble), "", "", "FAIL"], False
    run = Run(options, build, role, device, deadline, options.seed)
    trouble = run.go(words, rounds)
    logs.append(f"=== {role}\n{run.out[-2000:]}\n{run.err[-200000:]}")
    answer = compare.parse(run.out)
    if not answer:
        return [role, "2 runs", trouble or "no result", f"{run.cycles} rounds", "FAIL"], False
    verdict = compare.compare(plain, [answer])
    wrong = ([trouble] if trouble else []) + run.notes + verdict.differences
    if "MISMATCH" in run.err:
        wrong.append("verification found a mismatch")
    rates = ", ".join(f"{k} {sorted(v)[len(v) // 2]:.1f} GB/s" for k, v in sorted(run.rates.items()))
    passed = not wrong and run.cycles == rounds
    cell = f"{run.cycles} rounds; {rates}"
    return [role, verdict.plain, verdict.sublet, cell, "pass" if passed else "FAIL: " + "; ".join(wrong[:6])], passed


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/residency.sh")
    parser.add_argument("--quick", action="store_true", help="shorter programs, four rounds")
    parser.add_argument("--only", default="train,generate")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the random moments (printed)")
    parser.add_argument("--verify", action="store_true", help="with SUBLET_VERIFY=1")
    parser.add_argument("--out", metavar="DIR")
    parser.add_argument("--build", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=380)
    options = parser.parse_args()
    options.seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    steps.stop_on_signals()
    build, reason = steps.find_build(options.build)
    if not build:
        print(f"residency.sh: {reason}", file=sys.stderr)
        return 2
    gpu, reason = steps.probe_gpu()
    if not gpu:
        print(f"skip: {reason}")
        return 1 if os.environ.get("SUBLET_TEST_REQUIRE") == "gpu" else 77
    begin, deadline, logs, rows, passed = time.monotonic(), steps.Deadline(options.seconds), [], [], []
    device = Device()
    for role in options.only.split(","):
        if role not in PROGRAMS:
            parser.error(f"no program '{role}'; there are {', '.join(PROGRAMS)}")
        row, good = one(options, build, role, device, deadline, logs)
        rows.append(row)
        passed.append(good)
    head = ["program", "plain", "with Sublet", "moved about", "verdict"]
    text = steps.table_text(head, rows) + f"\n\nseed {options.seed}, {time.monotonic() - begin:.0f} s\n"
    text += steps.facts_text(steps.machine_facts(build, gpu)) + f"\n{sum(passed)} passed, {passed.count(False)} failed"
    print(text)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        steps.write_file(os.path.join(options.out, "residency.md"), steps.table_markdown(head, rows) + "\n")
        steps.write_file(os.path.join(options.out, "residency-logs.txt"), "\n".join(logs))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
