#!/usr/bin/env python3
"""Drivers, and session folders, that Sublet cannot work with: the program's output and exit status are those of the plain run,
and Sublet says so in one line."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))

import harness  # noqa: E402

PROGRAMS = os.environ["SUBLET_TEST_PROGRAMS"]


class Broken(harness.Case):
    def setUp(self):
        super().setUp()
        self.session = os.path.join(self.folder, "session")
        os.mkdir(self.session, 0o700)
        # a session and a driver without `sublet run`, which would refuse some of these or put its own driver in front
        self.env.update(LD_LIBRARY_PATH=harness.SIM_FOLDER, SUBLET_SIM_CAPACITY="1GiB")

    def given_driver(self, *flags):
        """A folder with a libcuda.so.1 made of drivers/old.c."""
        folder = os.path.join(self.folder, "driver")
        os.mkdir(folder)
        subprocess.run([*harness.COMPILER.split(), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags, "-o",
                        os.path.join(folder, "libcuda.so.1"),
                        os.path.join(harness.SOURCE, "tests/sim/drivers/old.c")], check=True)
        return folder

    def given_run(self, words, env):
        words = [os.path.join(PROGRAMS, words[0]), *words[1:]]
        return subprocess.run(words, env=env, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def given_both(self, *words, session=None, **variables):
        """What Sublet said, line by line; everything else is the same."""
        env = dict(self.env, **variables)
        off = self.given_run(words, env)
        on = self.given_run(words, dict(env, LD_PRELOAD=os.path.realpath(harness.LIBRARY),
                                        SUBLET_SESSION=session or self.session))
        lines = on.stderr.splitlines(keepends=True)
        said = [line for line in lines if line.startswith("sublet[")]
        self.assertEqual("".join(line for line in lines if line not in said), off.stderr)
        self.assertEqual((on.returncode, on.stdout), (off.returncode, off.stdout), said)
        self.assertGreaterEqual(off.returncode, 0, off)
        for line in said:
            self.assertTrue(line.endswith("\n"), line)
            self.assertLess(len(line), 512)
        return [line.split("]: ", 1)[1].rstrip("\n") for line in said]

    def given_line(self, pattern, *words, **more):
        said = self.given_both(*words, **more)
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], pattern)

    def driver_older_than_cuda_11_2_turns_sublet_off(self):
        for version, text in (("9020", "9.2"), ("11010", "11.1")):
            self.given_line("^shim: driver: off in this process: the driver is of CUDA %s .needs a driver of CUDA 11.2 or later.$"
                            % text.replace(".", "[.]"), "looked_up", SUBLET_SIM_DRIVER_VERSION=version)

    def drivers_from_cuda_11_2_on_are_served(self):
        for version in ("11020", "11040", "12000", "12080", "13010", "14000"):
            self.assertEqual(self.given_both("looked_up", SUBLET_SIM_DRIVER_VERSION=version), [], version)
            self.assertEqual(self.given_both("asked", "v2", SUBLET_SIM_DRIVER_VERSION=version), [], version)
            self.assertEqual(self.given_both("startup", SUBLET_SIM_DRIVER_VERSION=version), [], version)

    def driver_that_lacks_symbols_is_named_with_the_first(self):
        self.given_line("^shim: driver: off in this process: this libcuda has no cu[A-Z]\\w+ .needs a driver of CUDA 11.2",
                        "looked_up", LD_LIBRARY_PATH=self.given_driver())

    def driver_that_lacks_symbols_under_a_program_linked_with_more(self):
        # the loader's own refusal at the first missing name, or before main; which name may be another one
        env = dict(self.env, LD_LIBRARY_PATH=self.given_driver(), LD_BIND_NOW="1")
        off = self.given_run(["streams"], env)
        self.assertEqual(off.returncode, 127, off)
        on = self.given_run(["streams"], dict(env, LD_PRELOAD=os.path.realpath(harness.LIBRARY), SUBLET_SESSION=self.session))
        self.assertEqual((on.returncode, on.stdout), (127, ""))
        self.assertIn("undefined symbol: cu", on.stderr)

    def library_that_is_only_named_like_a_driver_is_named(self):
        self.given_line("^shim: driver: off in this process: '.*/driver/libcuda.so.1' is no driver, it has no cuInit",
                        "looked_up", LD_LIBRARY_PATH=self.given_driver("-DEMPTY"))
        # the runtime's way, whose first look-up is of another name
        os.rename(os.path.join(self.folder, "driver"), os.path.join(self.folder, "runtime"))
        self.given_line("is no driver, it has no cuInit", "startup", LD_LIBRARY_PATH=os.path.join(self.folder, "runtime"))

    def library_that_is_no_elf_file_is_the_loaders_affair(self):
        folder = os.path.join(self.folder, "driver")
        os.mkdir(folder)
        with open(os.path.join(folder, "libcuda.so.1"), "w") as text:
            text.write("GROUP ( libcuda.so )\n")
        for words in (["looked_up"], ["startup"], ["linked"]):
            self.assertEqual(self.given_both(*words, LD_LIBRARY_PATH=folder), [], words)

    def no_driver_at_all_is_the_loaders_affair(self):
        self.assertEqual(self.given_both("looked_up", LD_LIBRARY_PATH=self.folder), [])

    def start_that_fails_is_said_once(self):
        for code, name in (("999", "CUDA_ERROR_UNKNOWN"), ("3", "CUDA_ERROR_NOT_INITIALIZED"), ("12345", "unknown")):
            self.given_line("^shim: driver: cuInit failed .%s, error %s.; nothing is served" % (name, code), "init_retry",
                            SUBLET_SIM_FAIL="cuInit:1+=" + code)

    def start_without_a_device_is_no_news(self):
        self.assertEqual(self.given_both("init_retry", SUBLET_SIM_DEVICES="0"), [])
        self.given_line("cuInit failed .CUDA_ERROR_NO_DEVICE, error 100.", "init_retry", SUBLET_SIM_DEVICES="0",
                        SUBLET_LOG="info")

    def device_without_virtual_memory_management_stays_native(self):
        self.given_line("^memory: driver: device 0 has no virtual memory management; memory of device 0 stays native$",
                        "looked_up", SUBLET_SIM_WITHOUT="vmm")

    def driver_without_parts_that_are_not_needed_is_served_in_silence(self):
        for part in ("posix_fd", "host_numa", "ctx_record_event"):
            for words in (["looked_up"], ["busy_free"], ["info"], ["captures"]):
                self.assertEqual(self.given_both(*words, SUBLET_SIM_WITHOUT=part), [], part)

    def calls_that_fail_leave_their_allocations_to_the_driver(self):
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cuMemGetAllocationGranularity"):
            said = self.given_both("looked_up", SUBLET_SIM_FAIL=call + ":1+=999")
            self.assertGreaterEqual(len(said), 1, call)
            self.assertLessEqual(len(said), 2, said)
            self.assertTrue(all(line.startswith("memory: driver: ") for line in said), said)

    def session_folder_that_cannot_be_used_keeps_counters_private(self):
        file = os.path.join(self.folder, "file")
        open(file, "w").close()
        wide = os.path.join(self.folder, "open")
        os.mkdir(wide)
        os.chmod(wide, 0o755)
        link = os.path.join(self.folder, "link")
        os.symlink("session", link)
        for path in (os.path.join(self.folder, "none"), file, wide, link, file + "/below"):
            self.given_line("^shim: session folder '%s'.*; counters stay private" % path, "looked_up", session=path)

    def session_folder_with_no_room_for_the_page_is_named(self):
        path = self.session
        while len(path) < 505:
            path = os.path.join(path, "n" * min(200, 510 - len(path)))
            os.mkdir(path, 0o700)
        self.given_line("^stats: counters stay private: the path of the session folder has more than", "looked_up", session=path)


if __name__ == "__main__":
    harness.main()
