#!/usr/bin/env python3
"""The library for aarch64, where its cross compiler is there: all of it compiles without a warning, the file brings into a
process what the native one does (library.py says what), and, where qemu's user emulation is there, look-ups and the demo
give the same as natively."""
import os
import shutil
import subprocess
import sys

import harness

COMPILER = "aarch64-linux-gnu-gcc"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
# The emulator keeps books on every page of a reservation, and 16 TiB of them take minutes and gigabytes.
ARENA = "4GiB"


class Cross(harness.Case):
    build = None

    @classmethod
    def _built(cls, case):
        """The build folder, made once."""
        if cls.build:
            return cls.build
        build = os.path.join(harness.BUILD, "aarch64")
        shutil.rmtree(build, ignore_errors=True)
        for words in (["meson", "setup", "--cross-file", os.path.join(harness.SOURCE, "tools/cross/aarch64.ini"),
                       "-Ddriver_headers=" + os.environ["SUBLET_TEST_HEADERS"], "-Dtests=disabled", build, harness.SOURCE],
                      ["ninja", "-C", build, "-j2"]):
            made = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=240)
            case.assertEqual(made.returncode, 0, made.stdout[-4000:])
        case.assertNotIn("warning:", made.stdout)
        cls.build = build
        return build

    def _emulated(self, *words, **environment):
        """Runs @words as aarch64 programs; returns what they print."""
        emulator = next((e for e in EMULATORS if shutil.which(e)), None)
        if not emulator:
            self.skipTest("no %s (package qemu-user-static)" % EMULATORS[0])
        loader = subprocess.run([COMPILER, "-print-file-name=ld-linux-aarch64.so.1"], capture_output=True, text=True)
        root = os.path.dirname(os.path.dirname(os.path.realpath(loader.stdout.strip())))
        command = [emulator, "-L", root]
        for name, value in environment.items():
            command += ["-E", "%s=%s" % (name, value)]
        return subprocess.run([*command, *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120)

    def brings_into_a_process_what_the_native_one_does(self):
        library = os.path.join(self._built(self), "shim/libsublet.so")
        header = subprocess.run(["readelf", "-h", library], capture_output=True, text=True).stdout
        self.assertRegex(header, r"Machine: +AArch64")
        env = dict(os.environ, SUBLET_TEST_LIBRARY=library, SUBLET_TEST_COMPILER=COMPILER)
        got = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "library.py")], env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(got.returncode, 0, got.stdout)

    def lookups_under_emulation_are_the_native_ones(self):
        build = self._built(self)
        program, driver = os.path.join(self.folder, "lookups"), os.path.join(build, "tools/sim/libcuda.so.1")
        subprocess.run([COMPILER, "-D_GNU_SOURCE", os.path.join(harness.SOURCE, "tests/sim/lookups.c"), "-o", program],
                       check=True)
        got = self._emulated(program, driver, "libcuda.so.1")
        self.assertEqual((got.returncode, got.stdout + got.stderr), (0, ""))
        got = self._emulated(program, driver, "libsublet.so", LD_PRELOAD=os.path.join(build, "shim/libsublet.so"))
        self.assertEqual((got.returncode, got.stdout + got.stderr), (0, ""))

    def demo_under_emulation_has_the_same_results(self):
        build = self._built(self)
        demo, sim = os.path.join(build, "tools/demo"), os.path.join(build, "tools/sim")
        session = os.path.join(self.folder, "session")
        os.mkdir(session, 0o700)
        plain = self._emulated(demo, LD_LIBRARY_PATH=sim, SUBLET_SIM_CAPACITY="8GiB")
        served = self._emulated(demo, LD_LIBRARY_PATH=sim, SUBLET_SIM_CAPACITY="8GiB", SUBLET_SESSION=session,
                                LD_PRELOAD=os.path.join(build, "shim/libsublet.so"), SUBLET_ARENA=ARENA)
        self.assertEqual((plain.returncode, plain.stderr, served.returncode, served.stderr), (0, "", 0, ""))
        # buffer, size and checksum; address and kind of memory are what Sublet is there to change
        results = [[(line.split()[0], line.split()[-1]) for line in got.stdout.splitlines()] for got in (plain, served)]
        self.assertEqual(len(results[0]), 5)
        self.assertEqual(results[0], results[1])
        self.assertIn("extents", served.stdout)


if __name__ == "__main__":
    for tool in (COMPILER, "meson", "ninja", "readelf"):
        if not shutil.which(tool):
            package = {COMPILER: "gcc-aarch64-linux-gnu"}.get(tool, tool)
            print("skip: no %s (package %s): nothing compiled for aarch64" % (tool, package))
            sys.exit(77)
    harness.main()
