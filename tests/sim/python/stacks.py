#!/usr/bin/env python3
"""The Python stack reader in real interpreters: the python3 that runs this, Debian's own, and those that $SUBLET_PYTHONS names
(paths with colons between). cases.py runs in each of them, embedder.c loads their libraries."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "cli"))

import harness  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.environ["SUBLET_TEST_PROBE"]
EMBEDDER = os.environ["SUBLET_TEST_EMBEDDER"]
MORE = [p for p in os.environ.get("SUBLET_PYTHONS", "").split(":") if p]
PYTHONS = list(dict.fromkeys([sys.executable] + [p for p in ["/usr/bin/python3"] if os.path.exists(p)] + MORE))
WRITEV = {"x86_64": "311", "aarch64": "271"}

# Frames as sys says, beside those that the program that embeds us says.
EMBEDDED = """
import sys
def check():
    want, frame = [], sys._getframe()
    got = frames().split("\\n")[:-1]
    while frame:
        want.append("%%s:%%s" %% (frame.f_code.co_filename, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)))
        frame = frame.f_back
    assert got == (want if %r else []), (got, want)
def body():
    check()
    sorted([1], key=lambda _: check())
"""


class Stacks(harness.Case):
    def given_run(self, python, case, *before, **env):
        got = subprocess.run([*before, python, os.path.join(HERE, "cases.py"), case],
                             env=dict(self.env, PROBE=PROBE, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", **env),
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual((got.returncode, got.stderr), (0, ""), (python, got))
        self.assertIn("good\n", got.stdout, (python, got))
        return got.stdout

    def startup_of_an_interpreter_has_frames(self):
        with open(os.path.join(self.folder, "sitecustomize.py"), "w") as out:
            out.write("import sys\nsys.path.insert(0, %r)\nimport cases\ndef at_start():\n    return len(cases.check())\n"
                      "FRAMES = at_start()\n" % HERE)
        for python in PYTHONS:
            self.given_run(python, "startup", PYTHONPATH=self.folder)

    def shutdown_of_an_interpreter_has_frames_and_never_a_fault(self):
        for python in PYTHONS:
            for _ in range(5):
                said = self.given_run(python, "shutdown")
                self.assertEqual(said, "good\natexit\ndestructor\n", python)

    def where_the_kernel_forbids_copies_a_pipe_serves(self):
        for python in PYTHONS:
            for case in ("functions", "generators", "threads"):
                self.given_run(python, case, os.environ["SUBLET_TEST_FILTERED"], WRITEV[os.uname().machine], "errno")

    def libraries_of_interpreters_are_found_and_told_apart(self):
        """Loaded with RTLD_LOCAL, one inside of another on the same thread."""
        libraries = []
        for python in PYTHONS:
            asked = "import sys, sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME'), *sys.version_info[:2])"
            folder, name, major, minor = subprocess.run([python, "-c", asked], check=True, capture_output=True,
                                                        text=True).stdout.split()
            paths = [os.path.join(folder, name), os.path.join(folder, os.uname().machine + "-linux-gnu", name)]
            path = next((p for p in paths if os.path.exists(p) and ".so" in p), None)
            if path:
                libraries.append((path, int(minor)))
        if not libraries:
            self.skipTest("no interpreter here has a library (package libpython3-dev)")
        # the same once more is another one for the loader
        path, minor = libraries[0]
        copy = os.path.join(self.folder, os.path.basename(path))
        shutil.copy(path, copy)
        libraries.insert(1, (copy, minor))
        for (outer, outer_minor), (inner, inner_minor) in zip(libraries, libraries[1:] + libraries[:1]):
            # 3.9 leaves nothing on the C stack by which the inner one is known
            told = outer_minor >= 10 and inner_minor >= 10
            code = EMBEDDED % True + "body()\nassert inner(%r) == 'good'\nbody()\nprint('good')\n" % (EMBEDDED % told + "body()\n")
            got = subprocess.run([EMBEDDER, outer, inner, code], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                 text=True, timeout=60)
            self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "good\n", ""), (outer, inner))

    def offsets_are_those_of_the_headers_here(self):
        includes = []
        for python in PYTHONS:
            include = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], check=True,
                                     capture_output=True, text=True).stdout.strip()
            if os.path.exists(os.path.join(include, "internal", "pycore_runtime.h")):
                includes.append(include)
        if not includes:
            self.skipTest("no interpreter here has its headers (package python3-dev)")
        got = subprocess.run([sys.executable, os.path.join(harness.SOURCE, "tools/python_offsets.py"), "--check", *includes],
                             capture_output=True, text=True, timeout=120)
        self.assertEqual((got.returncode, got.stdout), (0, ""), got.stderr)


CASES = {
    "functions": "functions_methods_and_calls_through_c_are_told_as_python_tells_them",
    "threads": "each_thread_has_its_own_frames",
    "generators": "generator_that_runs_is_a_frame_and_one_that_waits_is_none",
    "coroutines": "coroutine_that_runs_is_a_frame_and_one_that_waits_is_none",
    "recursion": "recursion_deeper_than_the_room_gives_the_innermost_frames",
    "names": "names_of_any_script_and_length_are_utf8",
    "tracing": "traced_and_profiled_functions_have_the_same_frames",
    "callbacks": "callbacks_from_c_have_their_frames",
    "mutex": "mutex_held_during_allocation_and_gil_held_elsewhere_cannot_deadlock",
    "no_python": "thread_that_python_does_not_know_has_no_frame",
    "references": "reference_counts_stay",
    "forks": "forked_child_has_its_frames",
    "subinterpreters": "subinterpreter_has_its_own_frames",
    "churn": "threads_that_come_and_go_do_not_disturb",
    "described": "version_found_is_said",
}


def method_of(case):
    def method(self):
        for python in PYTHONS:
            self.given_run(python, case)
    return method


for word, title in CASES.items():
    setattr(Stacks, title, method_of(word))

if __name__ == "__main__":
    if not MORE:
        print("SUBLET_PYTHONS names no other interpreters: only %s" % ", ".join(PYTHONS))
    harness.main()
