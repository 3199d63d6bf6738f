#!/usr/bin/env python3
"""What libsublet.so brings into every process, read off the file: one needed library, no code at load, the listed exports,
little static TLS, no stdio or exit."""
import os
import re
import subprocess

import harness

TLS_BYTES_MAX = 64  # the loader's surplus for such libraries is 1,664 bytes for all of them together

# Own symbols that programs may call, beside the driver's entry points. Each is documented in README.md.
OWN_EXPORTS = {"sublet_phase", "sublet_tag"}
# What NVTX looks for in the library that it is told to load.
NVTX_EXPORTS = {"InitializeInjectionNvtx2", "InitializeInjectionNvtxExtension"}


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words, harness.LIBRARY], check=True, capture_output=True, text=True).stdout


def dynamic_symbols():
    """(name, defined) of each; versions cut off."""
    found = []
    for line in readelf("--dyn-syms").splitlines():
        parts = line.split()
        # aarch64's linker puts sections in as local symbols
        if len(parts) >= 8 and parts[0].rstrip(":").isdigit() and parts[4] != "LOCAL":
            found.append((parts[7].split("@")[0], parts[6] != "UND"))
    return found


class Library(harness.Case):
    def needs_libc_and_the_loader_only(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d")))
        self.assertIn("libc.so.6", needed)
        extra = {n for n in needed - {"libc.so.6"} if not re.match(r"ld-linux(-x86-64|-aarch64)?\.so", n)}
        self.assertEqual(extra, set())

    def runs_no_code_at_load(self):
        """The one entry the compiler's own start files put there (frame_dummy) is all there may be."""
        sizes = dict(re.findall(r"\((INIT_ARRAYSZ|PREINIT_ARRAYSZ)\) +(\d+)", readelf("-d")))
        self.assertNotIn("PREINIT_ARRAYSZ", sizes)
        symbols = readelf("-s")
        in_array = [line for line in symbols.splitlines() if "frame_dummy_init_array_entry" in line]
        pointer_bytes = 8
        self.assertLessEqual(int(sizes.get("INIT_ARRAYSZ", "0")), pointer_bytes * max(1, len(in_array)))

    def exports_the_wrapped_entries_and_dlsym_only(self):
        with open(os.path.join(harness.SOURCE, "shim/entries.def")) as text:
            wrapped = set(re.findall(r"^(?:WRAP|GATED)\((\w+),", text.read(), re.M))
        exported = {name for name, defined in dynamic_symbols() if defined}
        self.assertGreater(len(wrapped), 20)
        self.assertEqual(exported, wrapped | {"dlsym", "dlvsym"} | OWN_EXPORTS | NVTX_EXPORTS)

    def own_exports_are_in_the_readme(self):
        with open(os.path.join(harness.SOURCE, "README.md")) as text:
            readme = text.read()
        for name in OWN_EXPORTS:
            self.assertTrue(name.startswith("sublet_"), name)
            self.assertIn(name, readme)

    def static_tls_is_small(self):
        sizes = [int(line.split()[5], 16) for line in readelf("-l").splitlines() if line.split()[:1] == ["TLS"]]
        self.assertLessEqual(sum(sizes), TLS_BYTES_MAX)

    def never_ends_or_prints_for_the_process(self):
        undefined = {name for name, defined in dynamic_symbols() if not defined}
        self.assertFalse(undefined & {"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "raise", "printf",
                                      "fprintf", "vfprintf", "puts", "fputs", "fputc", "putchar", "fopen", "fopen64",
                                      "fwrite", "fclose", "fflush", "perror", "stdout", "stderr", "__printf_chk",
                                      "__fprintf_chk", "__vfprintf_chk", "setlocale", "system", "popen"})

    def has_no_text_relocations_and_no_executable_stack(self):
        self.assertNotIn("TEXTREL", readelf("-d"))
        stack = [line for line in readelf("-l").splitlines() if "GNU_STACK" in line]
        self.assertTrue(stack and "RWE" not in stack[0], stack)

    def lookup_stub_keeps_the_marks_of_protected_c_code(self):
        """One object without them takes the marks (CET, BTI, PAC) from the whole library."""
        machine = re.search(r"Machine: +(.+)", readelf("-h")).group(1)
        family, option = {"AArch64": ("aarch64", "-mbranch-protection=standard")}.get(
            machine, ("x86_64", "-fcf-protection=full"))
        c_file = os.path.join(self.folder, "c.c")
        with open(c_file, "w") as text:
            text.write("int x;\n")
        marks = []
        for source in (c_file, os.path.join(harness.SOURCE, "shim/dlsym_%s.S" % family)):
            made = os.path.join(self.folder, "made.o")
            subprocess.run([*harness.COMPILER.split(), option, "-c", source, "-o", made], check=True)
            notes = subprocess.run(["readelf", "-W", "-n", made], check=True, capture_output=True, text=True).stdout
            marks.append(re.findall(r"feature: ([^\n<]*)", notes))
        self.assertTrue(marks[0], option)
        self.assertEqual(marks[0], marks[1])


if __name__ == "__main__":
    harness.main()
