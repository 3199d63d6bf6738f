"""Every program plain and under Sublet on one GPU, and a table of what came out. Started by run.sh.

Steps that look at free memory have the device for themselves; the others run several at a time. A step that fails does
not stop the others. Exit 0: all passed (skips allowed, unless SUBLET_TEST_REQUIRE=gpu); 1: something failed; 2: wrong
usage or nothing built; 77: no GPU here."""

import argparse
import fnmatch
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import compare
import steps

HERE = steps.HERE
PYTHON = sys.executable


class Step:
    def __init__(self, name, argv, **options):
        self.name, self.argv = name, argv
        self.build = options.pop("build", None)  # name in BUILDS; argv[0] is then the program it makes
        self.needs = options.pop("needs", [])  # Python modules
        self.tool = options.pop("tool", None)  # a program that must be there
        self.env = options.pop("env", {})
        self.managed = options.pop("managed", True)  # Sublet must have served allocations, not only been there
        self.alone = options.pop("alone", False)  # nothing else on the device meanwhile
        self.quick = options.pop("quick", False)  # also with --quick
        self.quick_argv = options.pop("quick_argv", [])
        self.seconds = options.pop("seconds", 90)
        self.weight = options.pop("weight", 1)  # the heaviest start first
        self.runs = options.pop("runs", None)
        self.informational = options.pop("informational", None)  # why a failure is not counted
        self.accept = options.pop("accept", None)  # text that must be in the output, for tools that print no object
        assert not options, options


def script(name, *words):
    return [PYTHON, os.path.join(HERE, name), *words]


ALLOC = "PYTORCH_CUDA_ALLOC_CONF"
STEPS = [
    Step("cudart_static", ["cudart_static"], build="cudart_static", alone=True, quick=True, seconds=60),
    Step("cudart_shared", ["cudart_shared"], build="cudart_shared", alone=True, seconds=60),
    Step("drv_link", ["drv_link"], build="drv_link", alone=True, quick=True, seconds=60),
    Step("drv_dlsym", ["drv_dlsym"], build="drv_dlsym", alone=True, quick=True, seconds=60),
    Step("drv_procaddr", ["drv_procaddr"], build="drv_procaddr", alone=True, seconds=60),
    Step("torch_memory", script("torch_variants.py", "memory"), needs=["torch"], alone=True, quick=True),
    Step(
        "torch_train_generate",
        script("torch_train_generate.py", "--deterministic"),
        needs=["torch", "transformers"],
        quick=True,
        quick_argv=["--steps", "18", "--tokens", "32"],
        seconds=120,
        weight=8,
    ),
    Step(
        "torch_train_generate_default",
        script("torch_train_generate.py"),
        needs=["torch", "transformers"],
        seconds=120,
        weight=7,
    ),
    Step(
        "torch_expandable_segments",
        script("torch_train_generate.py", "--deterministic", "--model", "gpt", "--steps", "20"),
        needs=["torch"],
        env={ALLOC: "expandable_segments:True"},
        managed=False,
        weight=4,
    ),
    Step(
        "torch_malloc_async",
        script("torch_train_generate.py", "--deterministic", "--model", "gpt", "--steps", "20"),
        needs=["torch"],
        env={ALLOC: "backend:cudaMallocAsync"},
        managed=False,
        weight=4,
    ),
    Step("torch_graphs", script("torch_variants.py", "graphs"), needs=["torch"], weight=4),
    Step("torch_workers", script("torch_variants.py", "workers"), needs=["torch"], weight=6, seconds=150),
    Step("torch_compile", script("torch_variants.py", "compile"), needs=["torch", "triton"], weight=9, seconds=150),
    Step(
        "torch_ipc",
        script("torch_variants.py", "ipc"),
        needs=["torch"],
        runs=(1, 1),
        seconds=120,
        informational="legacy IPC on managed memory comes with share groups",
    ),
    Step(
        "jax",
        script("jax_train.py"),
        needs=["jax"],
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        managed=False,
        quick=True,
        seconds=120,
        weight=5,
    ),
    Step(
        "jax_preallocate",
        script("jax_train.py"),
        needs=["jax"],
        env={"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.12"},
        managed=False,
        seconds=120,
        weight=5,
    ),
    Step(
        "jax_platform",
        script("jax_train.py"),
        needs=["jax"],
        env={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
        seconds=120,
        weight=5,
    ),
    Step("cupy", script("cupy_ops.py"), needs=["cupy"], quick=True, weight=4),
    Step("triton", script("triton_kernels.py"), needs=["torch", "triton"], weight=4),
    Step(
        "memcheck",
        ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "cudart_static", "--small"],
        build="cudart_static",
        tool="compute-sanitizer",
        runs=(1, 1),
        alone=True,
        seconds=60,
        accept="ERROR SUMMARY: 0 errors",
        informational="a memory checker brings its own injection",
    ),
]


class Row:
    def __init__(self, step):
        self.step, self.verdict, self.plain, self.sublet, self.memory, self.note = step, "not run", "", "", "", ""
        self.details, self.tails, self.record = [], [], {}

    @property
    def failed(self):
        return self.verdict in ("FAIL", "not run")


class Harness:
    def __init__(self, options, build, work):
        self.options, self.build, self.work = options, build, work
        self.deadline = steps.Deadline(options.seconds)
        self.programs, self.lock, self.logs = {}, threading.Lock(), []

    # --- programs built here

    def builds(self):
        nvcc, compiler = steps.find_nvcc(), steps.find_compiler()
        include = steps.find_cuda_include(self.build)
        source = os.path.join(HERE, "cudart.cu")
        made = {}
        if nvcc:
            common = [nvcc, "-O2", "-std=c++17", "-arch=native", "-I", HERE, source, "-o"]
            made["cudart_static"] = common + ["@", "-cudart", "static"]
            made["cudart_shared"] = common + ["@", "-cudart", "shared", "-default-stream", "per-thread"]
        if compiler and include:
            common = [compiler, "-O2", "-I", HERE, "-isystem", include, os.path.join(HERE, "drv.c"), "-o", "@"]
            made["drv_link"] = common + ["-DVIA_LINK"] + steps.find_libcuda_flags() + ["-lpthread"]
            made["drv_dlsym"] = common + ["-DVIA_DLSYM", "-ldl", "-lpthread"]
            made["drv_procaddr"] = common + ["-DVIA_PROCADDR", "-ldl", "-lpthread"]
        return made

    def compile(self, name, argv):
        path = os.path.join(self.work, name)
        argv = [path if word == "@" else word for word in argv]
        result = steps.run_command(argv, min(120, self.deadline.left()), env=steps.plain_env())
        if not result.good and "-arch=native" in argv:
            argv = [word for word in argv if word != "-arch=native"]
            result = steps.run_command(argv, min(120, self.deadline.left()), env=steps.plain_env())
        self.log(f"compile {name}", result)
        with self.lock:
            self.programs[name] = (path, None) if result.good else (None, result)

    def compile_all(self, selected):
        wanted = {step.build for step in selected if step.build}
        todo = {name: argv for name, argv in self.builds().items() if name in wanted}
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: self.compile(*item), todo.items()))

    # --- one step

    def log(self, title, result):
        with self.lock:
            self.logs.append(
                f"=== {title}: {'good' if result.good else result.problem or f'exit {result.status}'}, "
                f"{result.seconds:.1f} s\n"
                f"$ {shlex.join(result.argv)}\n--- stdout\n{result.out[-6000:]}\n--- stderr\n{result.err[-12000:]}\n"
            )

    def cannot(self, step):
        """Why this step cannot run here, or None."""
        for module in step.needs:
            if importlib.util.find_spec(module) is None:
                return f"no Python module '{module}'"
        if step.tool and not shutil.which(step.tool):
            return f"no '{step.tool}'"
        if step.build and step.build not in self.programs:
            return "no nvcc" if step.build.startswith("cudart") else "no C compiler, or no cuda.h"
        return None

    def environment(self, step):
        env = dict(step.env)
        if ALLOC in env:
            env["PYTORCH_ALLOC_CONF"] = env[ALLOC]  # the newer name of the same variable
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH"):
            env[name] = os.path.join(self.work, "cache", step.name, name.lower())
        return env

    def run_once(self, step, argv, with_sublet, number):
        env, session = self.environment(step), None
        if with_sublet:
            session = steps.session_dir()
            argv, env = steps.sublet_argv(self.build, session, argv), steps.sublet_env(env)
        else:
            env = steps.plain_env(env)
        result = steps.run_command(argv, min(step.seconds, self.deadline.left()), env=env, cwd=self.work)
        if session:
            steps.drop_dir(session)
        self.log(f"{step.name} {'sublet' if with_sublet else 'plain'} {number}", result)
        return result

    def run_step(self, step):
        row = Row(step)
        try:
            self.fill_row(step, row)
        except Exception as error:  # noqa: BLE001: one step's surprise must not end the others
            row.verdict, row.note = "FAIL", f"harness: {type(error).__name__}: {error}"
            row.details.append(row.note)
        if row.verdict == "FAIL" and step.informational:
            row.verdict, row.note = "differs", f"not counted: {step.informational}"
        print(f"{row.verdict:8} {step.name}" + (f": {row.note}" if row.note else ""), file=sys.stderr, flush=True)
        return row

    def fill_row(self, step, row):
        reason = self.cannot(step)
        if reason:
            row.verdict, row.note = "skip", reason
            if os.environ.get("SUBLET_TEST_REQUIRE") == "gpu":
                row.verdict, row.note = "FAIL", f"{reason}, and SUBLET_TEST_REQUIRE=gpu"
                row.details.append(row.note)
            return
        argv = list(step.argv)
        if step.build:
            path, failed = self.programs[step.build]
            if not path:
                row.verdict, row.note = "FAIL", "does not compile"
                row.tails.append(("compile", failed.tail()))
                return
            argv = [path if word == step.build else word for word in argv]
        if self.options.quick:
            argv += step.quick_argv
        plain_runs, sublet_runs = step.runs or ((2, 2) if self.options.quick else (3, 2))
        # alternating, so that a drift of the machine meets both kinds
        order = [
            k < sublet_runs and with_sublet
            for k in range(max(plain_runs, sublet_runs))
            for with_sublet in (False, True)
            if (k < sublet_runs if with_sublet else k < plain_runs)
        ]
        done = {False: [], True: []}
        for with_sublet in order:
            result = self.run_once(step, argv, with_sublet, len(done[with_sublet]) + 1)
            done[with_sublet].append(result)
            if not result.good and not with_sublet:
                break  # without a plain answer there is nothing to compare with
            if result.problem:
                break
        self.judge(step, row, done[False], done[True])

    def judge(self, step, row, plain, sublet):
        row.verdict = "pass"

        def fail(text, result=None, title=""):
            row.verdict = "FAIL"
            row.details.append(text)
            if result is not None:
                row.tails.append((title, result.tail()))

        for kind, results in (("plain", plain), ("with Sublet", sublet)):
            for i, result in enumerate(results):
                if result.problem and result.problem.startswith("not started"):
                    row.verdict, row.note = "not run", result.problem
                    row.details.append(result.problem)
                    return
                if not result.good:
                    fail(
                        f"{kind}, run {i + 1}: {result.problem or f'exit {result.status}'}",
                        result,
                        f"{kind}, run {i + 1}",
                    )
        row.plain = self.times(plain)
        row.sublet = self.times(sublet)
        reports = [steps.Report(result.err) for result in sublet]
        self.judge_reports(step, row, plain, reports, sublet, fail)
        row.record = {
            "plain": [{"seconds": r.seconds, "status": r.status, "printed": compare.parse(r.out)} for r in plain],
            "sublet": [
                {"seconds": r.seconds, "status": r.status, "printed": compare.parse(r.out), "lines": report.lines[:40]}
                for r, report in zip(sublet, reports)
            ],
        }
        if not (plain and sublet and all(r.good for r in plain + sublet)):
            row.note = row.note or (row.details[0] if row.details else "")
            return
        if step.accept:
            for kind, results in (("plain", plain), ("with Sublet", sublet)):
                if not all(step.accept in r.out + r.err for r in results):
                    fail(f"{kind}: no '{step.accept}' in the output", results[0], kind)
            row.plain, row.sublet = f"1 run: {step.accept}", "the same" if row.verdict == "pass" else "not the same"
        else:
            objects = [[compare.parse(r.out) for r in results] for results in (plain, sublet)]
            for kind, results, found in (("plain", plain, objects[0]), ("with Sublet", sublet, objects[1])):
                for result, one in zip(results, found):
                    if one is None:
                        fail(f"{kind}: printed no result", result, kind)
            if not all(one is not None for found in objects for one in found):
                row.note = row.details[0]
                return
            verdict = compare.compare(*objects)
            for text in verdict.differences:
                fail(text)
            row.plain = f"{verdict.plain}; {self.times(plain)}"
            row.sublet = f"{verdict.sublet}; {self.times(sublet)}"
            partial = {
                name for found in objects for one in found for name in one.get("info", {}).get("parts that failed", [])
            }
            if partial:
                row.note = "parts that no run could do: " + ", ".join(sorted(partial))
        if row.verdict == "FAIL":
            row.note = row.details[0]

    @staticmethod
    def times(results):
        return " ".join(f"{r.seconds:.1f}" for r in results) + " s" if results else ""

    @staticmethod
    def judge_reports(step, row, plain, reports, sublet, fail):
        """A run that silently went without Sublet proves nothing."""
        for result in plain:
            if steps.Report(result.err).lines:
                fail("a plain run speaks as Sublet: is it preloaded from outside?", result, "plain")
                break
        for i, (report, result) in enumerate(zip(reports, sublet)):
            if report.bugs:
                fail(f"with Sublet, run {i + 1}: {report.bugs[0]}")
            if not result.good:
                continue
            if not report.seen:
                fail(
                    f"with Sublet, run {i + 1}: no line with Sublet's counters: was it there?",
                    result,
                    f"with Sublet, run {i + 1}",
                )
            elif step.managed and not report.managed:
                fail(f"with Sublet, run {i + 1}: Sublet managed no memory: {report.lines[-1]}")
        seen = [report for report in reports if report.seen]
        if seen:
            row.memory = (
                f"{steps.amount(max(r.managed for r in seen))} in {max(r.allocations for r in seen)}"
                f" / {steps.amount(max(r.native for r in seen))}"
            )

    # --- all of them

    def run_all(self, selected):
        rows = {}
        self.compile_all(selected)
        for step in [s for s in selected if s.alone]:
            rows[step.name] = self.run_step(step)
        together = sorted((s for s in selected if not s.alone), key=lambda s: -s.weight)
        with ThreadPoolExecutor(max(1, self.options.jobs)) as pool:
            for step, row in zip(together, pool.map(self.run_step, together)):
                rows[step.name] = row
        return [rows[step.name] for step in selected]


HEAD = ["name", "plain, spread", "with Sublet", "managed / native", "verdict"]


def write_reports(options, rows, facts, logs, seconds, command):
    cells = [[r.step.name, r.plain, r.sublet, r.memory, r.verdict + (f" ({r.note})" if r.note else "")] for r in rows]
    short = [
        [
            r.step.name,
            r.plain.rsplit(";", 1)[0],
            r.sublet.rsplit(";", 1)[0],
            r.memory,
            r.verdict + (f" ({r.note[:70]})" if r.note else ""),
        ]
        for r in rows
    ]
    text = [steps.table_text(HEAD, short), ""]
    for row in rows:
        if row.details and row.verdict != "skip":
            text.append(f"{row.step.name}: {row.verdict}")
            text += [f"  {detail}" for detail in row.details[:12]]
            for title, tail in row.tails[:3]:
                text.append(f"  last lines, {title}:")
                text += [f"    {line}" for line in tail.splitlines()]
            text.append(f"  again: tests/gpu/run.sh --only {row.step.name}")
            text.append("")
    passed = sum(r.verdict == "pass" for r in rows)
    failed = sum(r.failed for r in rows)
    others = [
        f"{sum(r.verdict == v for r in rows)} {n}"
        for v, n in (("skip", "skipped"), ("differs", "differ, not counted"))
        if any(r.verdict == v for r in rows)
    ]
    text.append(facts_line := steps.facts_text(facts))
    text.append(f"{command}, {seconds:.0f} s")
    text.append(f"{passed} passed, {failed} failed" + "".join(f", {o}" for o in others))
    text = "\n".join(text)
    print(text)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        steps.write_file(os.path.join(options.out, "gpu-table.txt"), text + "\n")
        markdown = (
            "## The same results with and without Sublet\n\n"
            f"`{command}`: {passed} passed, {failed} failed{''.join(', ' + o for o in others)}, {seconds:.0f} s.\n"
            f"{facts_line}.\n\n"
            'Plain and Sublet runs alternate. "Identical" is to the last bit (losses, checksums, error codes); where plain\n'
            "runs do not repeat themselves, the largest relative distance between plain runs stands beside the distance of\n"
            "the runs under Sublet to the nearest plain one. The last figures are wall seconds of whole processes, several\n"
            "of them at a time.\n\n" + steps.table_markdown(HEAD, cells) + "\n"
        )
        steps.write_file(os.path.join(options.out, "gpu-measurements.md"), markdown)
        steps.write_file(
            os.path.join(options.out, "gpu-results.json"),
            json.dumps(
                {
                    "facts": facts,
                    "command": command,
                    "seconds": seconds,
                    "steps": {
                        r.step.name: {"verdict": r.verdict, "note": r.note, "details": r.details, **r.record}
                        for r in rows
                    },
                },
                indent=1,
            ),
        )
        steps.write_file(os.path.join(options.out, "gpu-logs.txt"), "\n".join(logs))
    return failed


def parse_options():
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run.sh",
        description="Run every GPU program plain and under Sublet, and compare.",
        epilog="environment: SUBLET_BUILD (build folder), SUBLET_TEST_REQUIRE=gpu (a skip is a failure), CUDA_HOME, "
        "NVCC, CC, PYTHON. Example: tests/gpu/run.sh --quick --out results",
    )
    parser.add_argument("--quick", action="store_true", help="fewer programs, two plain runs each (under 3 minutes)")
    parser.add_argument("--only", metavar="NAME,...", help="these steps only; a name may hold * and ?")
    parser.add_argument("--list", action="store_true", help="name the steps and end")
    parser.add_argument("--out", metavar="DIR", help="also write table, markdown, JSON and logs there")
    parser.add_argument("--build", metavar="DIR", help="the build folder (build)")
    parser.add_argument("--jobs", type=int, help="programs at a time (6, or half the cores)")
    parser.add_argument("--seconds", type=float, help="time for everything (460; 165 with --quick)")
    parser.add_argument("--keep", action="store_true", help="keep the work folder also when all passed")
    options = parser.parse_args()
    options.seconds = options.seconds or (165 if options.quick else 460)
    options.jobs = options.jobs or max(1, min(6, (os.cpu_count() or 2) // 2))
    return options


def select(options):
    if not options.only:
        return [s for s in STEPS if s.quick or not options.quick]
    patterns = [p for p in options.only.split(",") if p]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(s.name, pattern) for s in STEPS):
            print(f"run.sh: no step '{pattern}'; see tests/gpu/run.sh --list", file=sys.stderr)
            sys.exit(2)
    return [s for s in STEPS if any(fnmatch.fnmatchcase(s.name, p) for p in patterns)]


def main():
    options = parse_options()
    selected = select(options)
    if options.list:
        print("\n".join(s.name for s in selected))
        return 0
    steps.stop_on_signals()
    nvcc = steps.find_nvcc()
    if nvcc:  # its neighbours, such as compute-sanitizer
        os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + os.pathsep + os.path.dirname(nvcc)
    begin = time.monotonic()
    build, reason = steps.find_build(options.build)
    if not build:
        print(f"run.sh: {reason}", file=sys.stderr)
        return 2
    gpu, reason = steps.probe_gpu()
    if not gpu:
        required = os.environ.get("SUBLET_TEST_REQUIRE") == "gpu"
        print(f"{'FAIL' if required else 'skip'}: {reason}" + (", and SUBLET_TEST_REQUIRE=gpu" if required else ""))
        print(f"0 passed, {1 if required else 0} failed" + ("" if required else ", 1 skipped"))
        return 1 if required else 77
    facts = steps.machine_facts(build, gpu)
    work = tempfile.mkdtemp(prefix="sublet-gpu-")
    harness = Harness(options, build, work)
    rows = harness.run_all(selected)
    command = "tests/gpu/run.sh" + "".join(f" {flag}" for flag in (["--quick"] if options.quick else []))
    command += f" --only {options.only}" if options.only else ""
    failed = write_reports(options, rows, facts, harness.logs, time.monotonic() - begin, command)
    if options.keep or failed:
        steps.write_file(os.path.join(work, "logs.txt"), "\n".join(harness.logs))
        print(f"work folder kept: {work}", file=sys.stderr)
    else:
        steps.drop_dir(work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
