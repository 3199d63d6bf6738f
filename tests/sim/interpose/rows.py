#!/usr/bin/env python3
"""Sublet among other libraries: reported faults of similar preloads that need no GPU, one case each (the row of
ENTRYPOINTS.md 6.1 in its text). Every program runs with and without Sublet and prints the same."""
import os
import re
import shutil
import subprocess

import neighbours
import harness


class Rows(neighbours.Case):
    def given_same(self, *words, **more):
        return self.same_with_and_without(*words, **more)

    def row_1_name_that_begins_like_the_drivers(self):
        """A preload from an unusual folder, asked for a cudnn name."""
        folder = os.path.join(self.folder, "somewhere else".replace(" ", "_"), "deep")
        os.makedirs(folder)
        library = shutil.copy(harness.LIBRARY, folder)
        self.assertIn("it returns 17", self.given_same("names", "cudnn", self.path("libplugin.so"), library=library))

    def row_3_next_twice_in_one_thread(self):
        said = self.given_same("names", "next_twice")
        self.assertIn("same open twice: yes", said)
        self.assertIn("it opens: yes", said)

    def row_4_next_of_a_library_reaches_the_one_behind(self):
        """Linked in order, and preloaded on every side of Sublet."""
        self.assertIn("steps 21 21", self.given_same("chained", "chain"))
        one, two = self.path("libstep_one.so"), self.path("libstep_two.so")
        for front, behind in ([[one, two], []], [[one], [two]], [[], [one, two]]):
            self.assertIn("steps 21 21", self.given_same("names", "chain", front=front, behind=behind))

    def row_5_cuGetProcAddress_of_itself(self):
        self.given_same("work", "proc_of_proc")
        self.given_same("work", "proc")

    def row_6_program_linked_with_the_driver(self):
        self.given_same("linked")

    def row_7_both_versions_of_dlsym(self):
        """The one of glibc 2.34, and the architecture's first (cross.py asks for them on aarch64)."""
        for how in ("old", "new", "default", "next"):
            self.given_same("work", how)

    def row_7_no_version_of_dlsym_is_written_down(self):
        with open(harness.LIBRARY, "rb") as file:
            needs = subprocess.run(["readelf", "-W", "-V", harness.LIBRARY], capture_output=True, text=True).stdout
            versions = set(re.findall(rb"GLIBC_[0-9.]+", file.read()))
        self.assertEqual({v.decode() for v in versions} - set(re.findall(r"Name: (GLIBC_[0-9.]+)", needs)), set())

    def row_9_libraries_that_glibc_has_merged(self):
        self.assertNotIn(": no", self.given_same("names", "merged_libraries"))

    def row_10_children_start(self):
        """Also those that find no libcuda, and no session."""
        self.assertIn("children 0 768", self.given_same("names", "children"))
        for words in (["/bin/true"], ["/bin/sh", "-c", "/bin/true && exec /bin/true"]):
            got = subprocess.run(words, env=dict(self.env, LD_PRELOAD=harness.LIBRARY, SUBLET_SESSION="/nonexistent"),
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""))

    def row_14_plugin_opened_local_finds_itself(self):
        said = self.given_same("names", "local_plugin", self.path("libplugin.so"), allocations=2)
        self.assertIn("finds itself 24", said)
        self.assertIn("plugin finds the driver: yes", said)
        self.assertIn("program finds the driver: no", said)

    def row_14_plugin_that_asks_for_the_next_one(self):
        """It gets Sublet's, not the driver's own: what it takes is managed too."""
        self.given_same("late_plugin", self.path("libplugin.so"), allocations=2)

    def row_15_second_libcuda_in_another_namespace(self):
        self.assertIn("there: yes", self.given_same("names", "namespace"))

    def static_tls_is_left_to_others(self):
        self.assertIn("opened", self.given_same("names", "small_tls", self.path("libtls.so")))

    def row_20_stream_ordered_memory_is_counted(self):
        self.given_same("async_family")
        self.assertRegex(self.stderr, r"native pool 8\.00 MiB peak in 1 allocation")

    def row_21_extended_launch_is_passed_on(self):
        self.assertIn("cuLaunchKernelEx 0", self.given_same("async_family"))

    def row_22_profilers_variables_reach_the_program(self):
        """One injected profiler per process: Sublet is none and leaves the place to it."""
        env = dict(self.env, CUDA_INJECTION64_PATH="/somewhere/cuda.so", NVTX_INJECTION64_PATH="/somewhere/nvtx.so")
        got = self.sublet("run", "--sim=64MiB", "--", "/bin/sh", "-c",
                          "echo $CUDA_INJECTION64_PATH $NVTX_INJECTION64_PATH $SUBLET_NVTX_NEXT", env=env)
        # NVTX's is given on: tests/sim/nvtx
        self.assertEqual(got.stdout.split(), ["/somewhere/cuda.so", harness.LIBRARY, "/somewhere/nvtx.so"])
        with open(harness.LIBRARY, "rb") as file:
            self.assertNotRegex(file.read(), rb"(?i)cupti|InitializeInjection(?!Nvtx)")


if __name__ == "__main__":
    harness.main()
