#!/usr/bin/env python3
"""Holds DESIGN.md 4's diagram of who may include whom over the source tree, and the manners of code that lives in other
people's processes. Reads the text alone: what is not compiled here (another processor, a feature left out) counts too."""
import os
import re

import harness

SYSTEM = "system"  # any header in angle brackets but those of CUDA
CUDA = "cuda"

# folder -> folders whose headers it may include; a file stands for itself. The longest folder that fits a file counts.
ALLOWED = {
    "base": {"base", SYSTEM},
    "policy": {"policy", "base", SYSTEM},
    # reads YAML, so it must stay out of the preloaded library
    "policy/source": {"policy/source", "policy", "base", SYSTEM},
    "layout": {"layout", "base", SYSTEM},
    "lifecycle": {"lifecycle", "policy", "layout", "base", SYSTEM, CUDA},
    "shim": {"shim", "lifecycle", "policy", "base", SYSTEM, CUDA},
    # of lifecycle only what has no cuda.h in it, of shim only the lists
    "tools": {"tools", "policy", "policy/source", "layout", "base", SYSTEM, "lifecycle/coordinator.h", "lifecycle/protocol.h",
              "lifecycle/endpoint.h", "lifecycle/trace.def", "lifecycle/trace_format.h", "lifecycle/stats.h", "lifecycle/inventory.h", "lifecycle/callers/wants.h", "shim/entries.def", "shim/reasons.def"},
    "tools/sim": {"tools/sim", "base", SYSTEM, CUDA, "shim/entries.def", "shim/cuda_abi.h"},
    # programs of the user's kind: nothing of ours
    "tools/demo": {"tools/demo", SYSTEM, CUDA},
}

# In somebody else's process. snprintf into a buffer of one's own is no stdio in this sense.
FORBIDDEN_CALLS = re.compile(r"(?<![\w.>])(printf|fprintf|vprintf|vfprintf|dprintf|puts|fputs|putchar|fopen|fdopen|fwrite|"
                             r"fread|fclose|fflush|perror|exit|_exit|_Exit|quick_exit|abort|assert|setlocale|system|popen)"
                             r"\s*\(|\b(stdout|stderr)\b")
INJECTED = ("shim", "lifecycle", "policy")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.M)
CUDA_HEADER = re.compile(r"^(cuda|cudaProfiler|cuda_runtime\w*|cudart\w*|nvtx\w*|nccl)\b.*\.h$|^crt/")


def source_files():
    for folder in sorted({f.split("/")[0] for f in ALLOWED}):
        for path, _, names in sorted(os.walk(os.path.join(harness.SOURCE, folder))):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def", ".S", ".cc", ".cpp", ".inc")):
                    yield os.path.relpath(os.path.join(path, name), harness.SOURCE)


def text_of(file):
    with open(os.path.join(harness.SOURCE, file)) as text:
        return text.read()


def without_comments_and_strings(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def folder_of(file):
    return max((f for f in ALLOWED if file.startswith(f + "/")), key=len)


def may_include(folder, included):
    if included in ALLOWED[folder]:
        return True
    # a header of tools/sim is none of tools
    fitting = [f for f in ALLOWED if included.startswith(f + "/")]
    return bool(fitting) and max(fitting, key=len) in ALLOWED[folder]


class Diagram(harness.Case):
    def every_include_is_one_the_diagram_allows(self):
        wrong, seen = [], 0
        for file in source_files():
            folder = folder_of(file)
            for match in INCLUDE.finditer(re.sub(r"/\*.*?\*/", "", text_of(file), flags=re.S)):
                system, own = match.groups()
                seen += 1
                if system:
                    kind = CUDA if CUDA_HEADER.match(system) else SYSTEM
                    if kind not in ALLOWED[folder]:
                        wrong.append("%s includes <%s>" % (file, system))
                elif not may_include(folder, own):
                    wrong.append('%s includes "%s"' % (file, own))
        self.assertGreater(seen, 50)
        self.assertEqual(wrong, [])

    def own_headers_are_spelled_folder_first_and_exist(self):
        wrong = []
        for file in source_files():
            for _, own in INCLUDE.findall(re.sub(r"/\*.*?\*/", "", text_of(file), flags=re.S)):
                if own and not os.path.exists(os.path.join(harness.SOURCE, own)):
                    wrong.append('%s includes "%s"' % (file, own))
        self.assertEqual(wrong, [])

    def headers_of_lifecycle_that_tools_include_have_no_cuda_in_them(self):
        for header in sorted(h for h in ALLOWED["tools"] if h.startswith("lifecycle/")):
            todo, done = [header], set()
            while todo:
                file = todo.pop()
                if file in done or not os.path.exists(os.path.join(harness.SOURCE, file)):
                    continue
                done.add(file)
                for system, own in INCLUDE.findall(text_of(file)):
                    self.assertFalse(CUDA_HEADER.match(system), "%s, by way of %s, includes <%s>" % (header, file, system))
                    if own:
                        todo.append(own)

    def injected_code_never_prints_or_ends_the_process(self):
        wrong = []
        for file in source_files():
            if not file.startswith(tuple(f + "/" for f in INJECTED)) or file.endswith(".def"):
                continue
            if file.startswith("policy/source/"):  # for the tools
                continue
            for number, line in enumerate(without_comments_and_strings(text_of(file)).splitlines(), 1):
                match = FORBIDDEN_CALLS.search(line)
                if match and not re.match(r"\s*#\s*include", line):
                    wrong.append("%s:%d: %s" % (file, number, match.group(0).strip()))
        self.assertEqual(wrong, [])

    def entry_points_are_named_in_one_list(self):
        """A row of a symbol anywhere else would drift apart."""
        for file in source_files():
            if file != "shim/entries.def":
                self.assertIsNone(re.search(r"^(WRAP|PASS)\(cu\w+, \"", text_of(file), re.M), file)

    def every_source_opens_with_its_charter(self):
        for file in source_files():
            if file.endswith((".c", ".h", ".def", ".S")):
                self.assertTrue(text_of(file).startswith("/* %s\n" % file), file)


if __name__ == "__main__":
    harness.main()
