#!/usr/bin/env python3
"""Sublet beside other libraries that put themselves between a program and the driver or libc, on either side of them: both
go on working, and those that count see as many calls as without Sublet."""
import os
import re
import shutil
import subprocess

import neighbours
import harness

# What WORK of work.h allocates below SUBLET_MIN_SIZE, and frees, one time too often: the calls that Sublet passes on.
NATIVE = {"cuMemAlloc_v2": 1, "cuMemFree_v2": 2}
ALL = {"cuMemAlloc_v2": 2, "cuMemFree_v2": 3}


def counted(stderr):
    return {name: int(count) for name, count in re.findall(r"^interposer: (\w+) (\d+)$", stderr, re.M)}


class Others(neighbours.Case):
    def given_counts(self, *words, **more):
        """What the interposers count, without and with Sublet."""
        self.same_with_and_without(*words, **more)
        return counted(self.plain_stderr), counted(self.stderr)

    def interposer_behind_keeps_its_calls(self):
        """Sublet answers for managed memory itself; all else passes through the interposer, as often as without it."""
        for library in ("libinterposer.so", "libinterposer_symbolic.so"):
            for how in ("old", "new"):
                plain, beside = self.given_counts("work", how, behind=[self.path(library)])
                self.assertEqual({n: plain[n] for n in ALL}, ALL)
                self.assertEqual({n: beside[n] for n in NATIVE}, NATIVE)
                self.assertEqual(beside["cuMemsetD8_v2"], plain["cuMemsetD8_v2"])
                self.assertGreater(plain["cuMemsetD8_v2"], 0)
            plain, beside = self.given_counts("work", "proc", behind=[self.path(library)])
            self.assertGreater(plain["cuGetProcAddress_v2"], 5)
            self.assertEqual(beside["cuGetProcAddress_v2"], plain["cuGetProcAddress_v2"])

    def interposer_in_front_keeps_its_calls(self):
        for library in ("libinterposer.so", "libinterposer_symbolic.so"):
            for words in (("work", "old"), ("work", "new"), ("work", "proc"), ("linked",)):
                plain, beside = self.given_counts(*words, front=[self.path(library)])
                self.assertEqual(plain, beside, (library, words))
                self.assertGreater(sum(plain.values()), 5)

    def interposer_on_both_sides(self):
        """The one behind must be another file, or the loader takes it for the same."""
        second = shutil.copy(self.path("libinterposer_symbolic.so"), os.path.join(self.folder, "libsecond.so"))
        front = [self.path("libinterposer.so")]
        self.same_with_and_without("work", "new", front=front, behind=[second])
        found = re.findall(r"^interposer: cuMemAlloc_v2 (\d+)$", self.stderr, re.M)
        self.assertEqual(sorted(found), ["1", "2"], self.stderr)

    def interposer_without_dlsym_keeps_its_calls(self):
        """Its functions are found by linked programs, and find the next ones by dlsym(RTLD_NEXT)."""
        plain, beside = self.given_counts("linked", front=[self.path("libinterposer_hooks.so")])
        self.assertEqual(plain, beside)
        self.assertEqual({n: plain[n] for n in ALL}, ALL)

    def row_11_linkage_tables_patched(self):
        for sides in ({"front": [self.path("libpatcher.so")]}, {"behind": [self.path("libpatcher.so")]}):
            plain, beside = self.given_counts("linked", PATCHER="slots", **sides)
            self.assertEqual((plain, beside), ({"cuMemAlloc_v2": 2}, {"cuMemAlloc_v2": 2}))

    def row_11_first_bytes_patched(self):
        """Of Sublet's function, which dlsym gives; and of the driver's, which only unmanaged memory still reaches."""
        for how, calls in (("bytes", 2), ("driver", 1)):
            plain, beside = self.given_counts("linked", PATCHER=how, behind=[self.path("libpatcher.so")])
            self.assertEqual((plain, beside), ({"cuMemAlloc_v2": 2}, {"cuMemAlloc_v2": calls}))

    def row_12_auditor_and_cached_pointers(self):
        """Pointers that cuGetProcAddress gave are nothing that an audit sees, with or without Sublet."""
        for words, calls in ((("linked",), 3), (("work", "proc"), 0)):
            plain, beside = self.given_counts(*words, LD_AUDIT=self.path("libauditor.so"))
            self.assertEqual((plain, beside), ({"cuMemFree_v2": calls}, {"cuMemFree_v2": calls}))

    def row_16_address_sanitizer_in_both_orders(self):
        program = os.path.join(self.folder, "sanitized")
        include = os.environ["SUBLET_TEST_HEADERS"]
        words = [*harness.COMPILER.split(), "-D_GNU_SOURCE", "-g", "-fsanitize=address", *(["-I" + include] if include else []),
                 os.path.join(harness.SOURCE, "tests/sim/interpose/work.c"), "-o", program, "-ldl"]
        made = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if made.returncode:
            self.skipTest("the compiler makes no program with the address sanitizer here: %s" % made.stderr.strip()[-200:])
        runtime = re.search(r"(\S*lib(?:asan|clang_rt\.asan)\S*\.so\S*) \(", subprocess.run(
            ["ldd", program], capture_output=True, text=True).stdout)
        if not runtime:
            self.skipTest("the sanitizer's runtime is linked statically here")
        found = subprocess.run([*harness.COMPILER.split(), "-print-file-name=" + os.path.basename(runtime.group(1))],
                               capture_output=True, text=True).stdout.strip()
        more = {"ASAN_OPTIONS": "protect_shadow_gap=0:detect_leaks=0"}
        for how in ("new", "proc"):
            self.same_with_and_without(program, how, front=[found], **more)
        # It refuses to start behind any library; told not to mind, it runs behind this one too.
        got = self.run_with_sublet(program, "new", behind=[found], **more)
        self.assertNotEqual(got.returncode, 0, got)
        self.assertIn("runtime does not come first", got.stderr)
        more["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
        self.same_with_and_without(program, "new", behind=[found], **more)

    def row_17_allocator_that_asks_dlsym_first(self):
        library = self.path("liballocator.so")
        for sides in ({"front": [library]}, {"behind": [library]}):
            for words in (("work", "new"), ("linked",)):
                self.same_with_and_without(*words, **sides)
                self.assertIn("allocator: asked", self.stderr)
                # dlsym itself takes memory for its first answer or not; Sublet adds none
                early = [re.search(r"(\d+) early", text).group(1) for text in (self.plain_stderr, self.stderr)]
                self.assertEqual(early[0], early[1])

    def row_18_program_of_another_c_library(self):
        if not shutil.which("musl-gcc"):
            self.skipTest("no musl-gcc (package musl-tools)")
        source, program = os.path.join(self.folder, "hello.c"), os.path.join(self.folder, "hello")
        with open(source, "w") as file:
            file.write('#include <dlfcn.h>\n#include <stdio.h>\n'
                       'int main(void) { printf("%s\\n", dlsym(RTLD_DEFAULT, "printf") ? "hello" : "lost"); return 3; }\n')
        made = subprocess.run(["musl-gcc", source, "-o", program], capture_output=True, text=True, timeout=60)
        self.assertEqual(made.returncode, 0, made.stderr)
        plain = subprocess.run([program], env=self.env, capture_output=True, text=True, timeout=60)
        if plain.returncode == 127:
            self.skipTest("musl's loader is not where its programs look for it: %s" % plain.stderr.strip())
        self.assertEqual((plain.returncode, plain.stdout), (3, "hello\n"), plain)
        got = self.sublet("run", "--sim=64MiB", "--", program)
        self.assertEqual((got.returncode, got.stdout), (3, "hello\n"), got)


if __name__ == "__main__":
    harness.main()
