#!/usr/bin/env python3
"""`sublet doctor`: on the simulated driver, whole and with parts left out; with drivers that are not there, hang, crash,
refuse or are full; under low limits and system call filters; its JSON against the documented schema."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import jsonschema

import harness

FAKE_DRIVER = os.environ["SUBLET_TEST_FAKE_DRIVER"]
FILTERED = os.environ["SUBLET_TEST_FILTERED"]

GIB = 1 << 30

# of what doctor asks the driver; each is `not examined` when the driver cannot be used
OF_DRIVER = ("vmm", "posix_fd", "host_numa", "rdma", "record_event")


def listed_checks():
    with open(os.path.join(harness.SOURCE, "tools/doctor/doctor.def")) as text:
        return re.findall(r'^CHECK\((\w+), (NEEDED|USEFUL), \w+, "(.+)"\)$', text.read(), re.M)


def schema():
    with open(os.path.join(harness.SOURCE, "docs/doctor.schema.json")) as text:
        return json.load(text)


class Doctor(harness.Case):
    def given_report(self, *words, status=0, before=(), **more):
        """Runs doctor --json, holds it against the schema, returns its checks by name."""
        if before:
            got = subprocess.run([*before, harness.EXE, "doctor", "--json", *words], env=self.env, text=True,
                                 capture_output=True, timeout=120)
        else:
            got = self.sublet("doctor", "--json", *words, timeout=120, **more)
        self.assertEqual(got.returncode, status, got)
        report = json.loads(got.stdout)
        jsonschema.validate(report, schema(), cls=jsonschema.Draft202012Validator)
        self.assertEqual(report["usable"], status == 0)
        self.assertEqual(report["driver"], "simulated" if "--sim" in words else "machine")
        self.assertEqual([c["name"] for c in report["checks"]], [name for name, _, _ in listed_checks()])
        return {check["name"]: check for check in report["checks"]}

    def given_fake_driver(self, **env):
        folder = os.path.join(self.folder, "driver")
        os.mkdir(folder)
        shutil.copy(FAKE_DRIVER, os.path.join(folder, "libcuda.so.1"))
        self.env.update(env, LD_LIBRARY_PATH=folder)
        return os.path.join(folder, "libcuda.so.1")


class Simulated(Doctor):
    def whole_driver_is_usable_and_every_part_of_it_works(self):
        checks = self.given_report("--sim")
        for name in ("library", "driver", "entry_points", "unknown_entry_points", "session", *OF_DRIVER):
            self.assertEqual(checks[name]["state"], "ok", checks[name])
        self.assertEqual(checks["driver"]["values"]["path"], os.path.realpath(harness.SIM_FOLDER + "/libcuda.so.1"))
        self.assertEqual(checks["driver"]["values"]["cuda_version"], "13.0")
        self.assertEqual(checks["unknown_entry_points"]["values"]["unknown"], [])
        self.assertGreater(checks["unknown_entry_points"]["values"]["exports"], 500)
        self.assertEqual(checks["library"]["values"]["path"], harness.LIBRARY)

    def several_devices_are_all_tried(self):
        self.env["SUBLET_SIM_DEVICES"] = "3"
        checks = self.given_report("--sim")
        for name in ("vmm", "posix_fd", "rdma"):
            self.assertEqual(checks[name]["values"], {"devices": 3, "working": 3})

    def each_part_left_out_is_missing_and_the_rest_is_not(self):
        for part, name, word in (("posix_fd", "posix_fd", "not there"), ("host_numa", "host_numa", "has none"),
                                 ("ctx_record_event", "record_event", "cuCtxRecordEvent")):
            self.env["SUBLET_SIM_WITHOUT"] = part
            checks = self.given_report("--sim")
            self.assertEqual(checks[name]["state"], "missing", part)
            self.assertIn(word, checks[name]["found"])
            lacking = {n for n in OF_DRIVER if checks[n]["state"] != "ok"}
            # parked pages are handed around as descriptors, too
            self.assertEqual(lacking, {name, "host_numa"} if part == "posix_fd" else {name}, part)

    def without_vmm_sublet_cannot_work(self):
        self.env["SUBLET_SIM_WITHOUT"] = "vmm"
        checks = self.given_report("--sim", status=1)
        self.assertEqual(checks["vmm"]["state"], "missing")
        self.assertEqual(checks["driver"]["state"], "ok")
        got = self.sublet("doctor", "--sim")
        self.assertTrue(got.stdout.endswith("Sublet cannot work here: mend vmm\n"), got.stdout)

    def old_drivers_say_what_they_are_too_old_for(self):
        self.env["SUBLET_SIM_DRIVER_VERSION"] = "12000"
        driver = self.given_report("--sim")["driver"]
        self.assertEqual(driver["state"], "limited")
        for text in ("CUDA 12.0", "parking pages in host memory (from CUDA 12.2)", "(from CUDA 12.5)"):
            self.assertIn(text, driver["found"])
        self.env["SUBLET_SIM_DRIVER_VERSION"] = "12040"
        self.assertNotIn("parking", self.given_report("--sim")["driver"]["found"])
        self.env["SUBLET_SIM_DRIVER_VERSION"] = "11010"
        driver = self.given_report("--sim", status=1)["driver"]
        self.assertIn("CUDA 11.2 is the first", driver["found"])

    def no_device_names_what_hides_them(self):
        self.env["SUBLET_SIM_DEVICES"] = "0"
        driver = self.given_report("--sim", status=1)["driver"]
        self.assertIn("CUDA_ERROR_NO_DEVICE", driver["found"])
        self.assertIn("CUDA_VISIBLE_DEVICES", driver["fix"])

    def advertised_and_refused_is_missing(self):
        """A flag of the driver is no proof: what it promises is done."""
        for call, name, status in (("cuMemExportToShareableHandle", "posix_fd", 0), ("cuMemMap", "vmm", 1),
                                   ("cuMemSetAccess", "vmm", 1), ("cuMemAddressReserve", "vmm", 1)):
            self.env["SUBLET_SIM_FAIL"] = "%s:1+=800" % call
            checks = self.given_report("--sim", status=status)
            self.assertEqual(checks[name]["state"], "missing", call)
            self.assertIn(call, checks[name]["found"])

    def full_device_is_no_proof_of_anything(self):
        self.env["SUBLET_SIM_FAIL"] = "cuMemCreate:1+=2"
        checks = self.given_report("--sim")
        for name in ("vmm", "posix_fd", "rdma", "host_numa"):
            self.assertEqual(checks[name]["state"], "limited", name)
            self.assertIn("free", checks[name]["fix"])

    def context_that_cannot_be_made_leaves_mapping_untried(self):
        self.env["SUBLET_SIM_FAIL"] = "cuDevicePrimaryCtxRetain:1+=46"
        checks = self.given_report("--sim")
        self.assertEqual((checks["vmm"]["state"], checks["record_event"]["state"]), ("limited", "limited"))
        self.assertIn("not tried", checks["vmm"]["found"])


class NoDriver(Doctor):
    def absent_driver_is_missing_and_the_other_checks_run(self):
        # in the environment of the case: meson's own has the simulated driver's folder
        load = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=self.env,
                              stderr=subprocess.DEVNULL)
        if load.returncode == 0:
            self.skipTest("this machine has a driver")
        checks = self.given_report(status=1)
        self.assertEqual(checks["driver"]["state"], "missing")
        self.assertIn("libcuda.so.1", checks["driver"]["found"])
        for name in OF_DRIVER:
            self.assertEqual((checks[name]["state"], checks[name]["follows"]), ("missing", True))
        for name in ("library", "session", "membarrier", "memfd", "interposers", "open_files"):
            self.assertFalse(checks[name]["follows"])
            self.assertEqual(checks[name]["values"] == {}, False, name)
        got = self.sublet("doctor")
        self.assertTrue(got.stdout.endswith("Sublet cannot work here: mend driver\n"), got.stdout)

    def file_that_is_no_library_is_named(self):
        folder = os.path.join(self.folder, "broken")
        os.mkdir(folder)
        with open(os.path.join(folder, "libcuda.so.1"), "w") as text:
            text.write("not a library\n" * 100)
        self.env["LD_LIBRARY_PATH"] = folder
        driver = self.given_report(status=1)["driver"]
        self.assertIn(folder, driver["found"])


class BadDriver(Doctor):
    def hanging_driver_gives_a_line_and_ends(self):
        pid_file = os.path.join(self.folder, "pid")
        for step, doing in (("load", "loading it"), ("init", "cuInit"), ("create", "cuMemCreate")):
            shutil.rmtree(os.path.join(self.folder, "driver"), ignore_errors=True)
            self.given_fake_driver(FAKE_DRIVER=step + ":hang", FAKE_PID=pid_file)
            checks = self.given_report("--timeout", "1", status=1)
            self.assertEqual(checks["driver"]["state"], "missing")
            self.assertIn("%s did not return within 1 s" % doing, checks["driver"]["found"])
            self.assertEqual((checks["vmm"]["state"], checks["vmm"]["follows"]), ("missing", True))
            self.assertEqual(checks["memfd"]["state"], "ok")
            with open(pid_file) as text:
                pid = int(text.read())
            self.assertFalse(os.path.exists("/proc/%d" % pid), "the probe lives on")

    def crashing_driver_is_reported_as_such(self):
        for step, doing in (("load", "loading it"), ("init", "cuInit"), ("create", "cuMemCreate")):
            shutil.rmtree(os.path.join(self.folder, "driver"), ignore_errors=True)
            # a sanitizer's handler would abort where the signal is to end the probe
            self.given_fake_driver(FAKE_DRIVER=step + ":crash",
                                   ASAN_OPTIONS=self.env.get("ASAN_OPTIONS", "") + ":handle_segv=0")
            driver = self.given_report(status=1)["driver"]
            self.assertEqual(driver["state"], "missing")
            self.assertIn("%s crashed (Segmentation fault)" % doing, driver["found"])

    def driver_that_ends_the_process_ends_the_probe_alone(self):
        self.given_fake_driver(FAKE_DRIVER="init:exit")
        driver = self.given_report(status=1)["driver"]
        self.assertIn("cuInit ended the process with status 3", driver["found"])

    def output_of_the_driver_is_no_part_of_the_report(self):
        self.given_fake_driver(FAKE_DRIVER="init:noise")
        got = self.sublet("doctor", "--json")
        self.assertEqual(json.loads(got.stdout)["schema"], 1)
        self.assertIn("noise of the driver", got.stderr)

    def refusals_of_init_name_their_remedy(self):
        for result, text in ((34, "stub"), (802, "fabricmanager"), (803, "reboot"), (805, "MPS"), (999, "nvidia_uvm")):
            shutil.rmtree(os.path.join(self.folder, "driver"), ignore_errors=True)
            self.given_fake_driver(FAKE_DRIVER="init:%d" % result)
            driver = self.given_report(status=1)["driver"]
            self.assertIn("error %d" % result, driver["found"])
            self.assertIn(text, driver["fix"])

    def lacking_required_entry_points_are_named(self):
        self.given_fake_driver()
        entry_points = self.given_report(status=1)["entry_points"]
        self.assertEqual(entry_points["state"], "missing")
        self.assertIn("cuMemAlloc_v2", entry_points["values"]["lacking"].split())
        self.assertNotIn("cuInit", entry_points["values"]["lacking"].split())

    def exports_that_the_list_does_not_know_are_named(self):
        path = self.given_fake_driver()
        checks = self.given_report(status=1)
        self.assertEqual(checks["unknown_entry_points"]["state"], "limited")
        self.assertEqual(checks["unknown_entry_points"]["values"]["unknown"], ["cuFancyNewThing"])
        self.assertEqual(checks["driver"]["values"]["path"], os.path.realpath(path))

    def text_that_is_not_utf8_still_gives_json(self):
        self.given_fake_driver()
        self.assertIn("fake ", self.given_report(status=1)["driver"]["found"])

    def ignored_child_signal_changes_nothing(self):
        self.given_fake_driver(FAKE_DRIVER="init:crash")
        driver = self.given_report(status=1, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))["driver"]
        self.assertIn("crashed", driver["found"])


class Limits(Doctor):
    def given_limited(self, kind, soft, hard):
        return self.given_report("--sim", preexec_fn=lambda: resource.setrlimit(kind, (soft, hard)))

    def few_descriptors_are_limited_and_say_how_to_get_more(self):
        check = self.given_limited(resource.RLIMIT_NOFILE, 256, 256)["open_files"]
        self.assertEqual((check["state"], check["values"]), ("limited", {"soft": 256, "hard": 256}))
        self.assertIn("limits.conf", check["fix"])
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard == resource.RLIM_INFINITY or hard >= 4096:
            check = self.given_limited(resource.RLIMIT_NOFILE, 256, 4096)["open_files"]
            self.assertIn("'ulimit -n 4096'", check["fix"])
            check = self.given_limited(resource.RLIMIT_NOFILE, 4096, 4096)["open_files"]
            self.assertEqual(check["state"], "ok")

    @harness.uninstrumented("a sanitizer's shadow alone takes more addresses than the limit")
    def few_addresses_are_limited(self):
        check = self.given_limited(resource.RLIMIT_AS, 4 * GIB, 4 * GIB)["address_space"]
        self.assertEqual((check["state"], check["values"]["soft"]), ("limited", 4 * GIB))
        self.assertLessEqual(check["values"]["room_bytes"], 4 * GIB)

    def little_lockable_memory_is_limited_unless_the_user_is_exempt(self):
        check = self.given_limited(resource.RLIMIT_MEMLOCK, 65536, 65536)["memlock"]
        self.assertEqual(check["values"]["soft"], 65536)
        self.assertEqual(check["state"], "ok" if check["values"]["exempt"] else "limited")

    def filtered_system_calls_are_missing(self):
        numbers = {"pidfd_open": 434, "pidfd_getfd": 438, "membarrier": 324, "memfd": 319, "process_vm_readv": 310}
        if os.uname().machine != "x86_64":
            numbers.update(membarrier=283, memfd=279, process_vm_readv=270)
        for name, number in numbers.items():
            checks = self.given_report("--sim", before=(FILTERED, str(number), "errno"))
            self.assertEqual(checks[name]["state"], "missing", name)
            self.assertEqual(checks[name]["values"]["error"], "EPERM", name)

    def filter_that_kills_is_reported_as_such(self):
        for name, number in (("pidfd_open", 434), ("pidfd_getfd", 438)):
            check = self.given_report("--sim", before=(FILTERED, str(number), "kill"))[name]
            self.assertEqual(check["state"], "missing")
            self.assertIn("crashed (Bad system call)", check["found"])


class Neighbours(Doctor):
    def given_object(self, name, code):
        source, path = os.path.join(self.folder, name + ".c"), os.path.join(self.folder, name)
        with open(source, "w") as text:
            text.write(code)
        subprocess.run([*harness.COMPILER.split(), "-shared", "-fPIC", "-o", path, source], check=True)
        return path

    def given_interposers(self, state, **env):
        self.env.update(env)
        check = self.given_report("--sim")["interposers"]
        self.assertEqual(check["state"], state, check)
        return check["values"]["interposers"]

    def preloaded_driver_calls_are_in_the_way(self):
        path = self.given_object("libother.so", "int cuMemAlloc_v2(void) { return 0; }")
        (found,) = self.given_interposers("limited", LD_PRELOAD=path)
        self.assertEqual((found["where"], found["entry"], found["what"]), ("LD_PRELOAD", path, "answers driver calls"))

    @harness.uninstrumented("a sanitizer's runtime looks its originals up with this dlsym before anything works")
    def preloaded_dlsym_is_in_the_way(self):
        path = self.given_object("libother.so", """
            extern void *__libc_dlsym(void *, const char *);
            void *dlvsym(void *, const char *, const char *);
            void *dlsym(void *handle, const char *name) {
                void *(*next)(void *, const char *) = dlvsym((void *)-1, "dlsym", "GLIBC_2.34");
                return next ? next(handle, name) : 0;
            }""")
        self.env["LD_PRELOAD"] = path
        got = self.sublet("doctor", "--sim")
        self.assertIn("libother.so answers look-ups (dlsym)", got.stdout)

    @harness.uninstrumented("a sanitizer brings its own allocator")
    def preloaded_allocator_is_none_of_sublets_business(self):
        path = self.given_object("liballoc.so",
                                 "#include <stddef.h>\nextern void *__libc_malloc(size_t);\n"
                                 "void *malloc(size_t n) { return __libc_malloc(n); }")
        (found,) = self.given_interposers("ok", LD_PRELOAD="liballoc.so", LD_LIBRARY_PATH=os.path.dirname(path))
        self.assertEqual(found["what"], "is an allocator of host memory")

    def preload_that_cannot_be_loaded_is_said(self):
        (found,) = self.given_interposers("limited", LD_PRELOAD="/nonexistent/libx.so")
        self.assertIn("is not loaded", found["what"])

    def sublet_itself_is_not_in_the_way_and_stays_out_of_the_probe(self):
        session = os.path.join(self.folder, "session")
        (found,) = self.given_interposers("ok", LD_PRELOAD=harness.LIBRARY, SUBLET_SESSION=session)
        self.assertEqual(found["what"], "is Sublet itself")
        self.assertEqual(os.listdir(session), [])

    def injected_tools_are_in_the_way(self):
        found = self.given_interposers("limited", CUDA_INJECTION64_PATH="/opt/x.so", NVTX_INJECTION64_PATH="/opt/y.so")
        self.assertEqual([(f["where"], f["in_the_way"]) for f in found],
                         [("CUDA_INJECTION64_PATH", True), ("NVTX_INJECTION64_PATH", False)])

    def control_daemon_of_mps_is_found_by_its_process(self):
        pipes = os.path.join(self.folder, "mps")
        os.mkdir(pipes)
        self.env["CUDA_MPS_PIPE_DIRECTORY"] = pipes
        self.assertEqual(self.given_report("--sim")["mps"]["state"], "ok")
        open(os.path.join(pipes, "control"), "w").close()
        for pid, state in ((os.getpid(), "limited"), (2 ** 30, "ok")):
            with open(os.path.join(pipes, "nvidia-cuda-mps-control.pid"), "w") as text:
                text.write("%d\n" % pid)
            check = self.given_report("--sim")["mps"]
            self.assertEqual((check["state"], check["values"]["active"]), (state, state == "limited"))
            self.assertIn(pipes, check["found"])


class Session(Doctor):
    def folder_open_to_others_is_missing_and_says_the_command(self):
        session = os.path.join(self.folder, "open")
        os.mkdir(session)
        os.chmod(session, 0o755)
        check = self.given_report("--sim", "--session", session, status=1)["session"]
        self.assertIn("open to other users (mode 755)", check["found"])
        self.assertEqual(check["fix"], "run 'chmod 700 %s'" % session)

    def folder_is_made_as_run_would_make_it(self):
        check = self.given_report("--sim", "--session", "mine")["session"]
        self.assertEqual(check["values"]["path"], os.path.join(self.folder, "sublet-%d" % os.getuid(), "mine"))
        self.assertEqual(os.stat(check["values"]["path"]).st_mode & 0o777, 0o700)

    def name_that_is_not_utf8_still_gives_json(self):
        self.given_report("--sim", "--session", os.path.join(self.folder, "s\udcff"))

    def unknown_lookups_of_processes_are_summed(self):
        session = os.path.join(self.folder, "session")
        self.env["SUBLET_SESSION"] = session
        self.assertIn("no process", self.given_report("--sim")["unknown_lookups"]["found"])
        run = [harness.EXE, "run", "--session", session, "--", harness.PAGE_WRITER]
        for words, unknown in ((["unknown=0"], 0), (["unknown=3"], 3)):
            process = subprocess.Popen([*run, *words, "say=ready", "sleep=60000"], env=self.env, stdout=subprocess.PIPE,
                                       text=True)
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                check = self.given_report("--sim")["unknown_lookups"]
            finally:
                process.kill()
                process.communicate()
            self.assertEqual((check["state"], check["values"]["unknown"]), ("limited" if unknown else "ok", unknown))


class Words(Doctor):
    def text_has_a_line_for_every_check_and_reasons_for_those_not_ok(self):
        self.env["SUBLET_SIM_WITHOUT"] = "host_numa"
        got = self.sublet("doctor", "--sim")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        lines = got.stdout.splitlines()
        self.assertEqual([line.split()[1] for line in lines[:-2] if not line.startswith(" ")],
                         [name for name, _, _ in listed_checks()])
        at = next(i for i, line in enumerate(lines) if re.match("missing +host_numa ", line))
        lost = dict((name, text) for name, _, text in listed_checks())["host_numa"]
        self.assertEqual(lines[at + 1].strip(), "lost: " + lost)
        self.assertRegex(lines[at + 2].strip(), "^fix:  .")
        self.assertRegex(lines[-1], r"^\d+ ok, \d+ limited, \d+ missing; Sublet works here$")

    def wrong_words_exit_2(self):
        self.refuses(2, "unknown option '--jsn'; did you mean '--json'?", "doctor", "--jsn")
        self.refuses(2, "unknown option '-x'; see 'sublet doctor -h'", "doctor", "-x")
        self.refuses(2, "option '--sim' takes no value", "doctor", "--sim=8GiB")
        self.refuses(2, "takes options only, not 'now'", "doctor", "now")
        for time in ("0", "-1", "1s", "", "99999999999999999999"):
            self.refuses(2, "is no time from 1 to 3600 seconds", "doctor", "--timeout", time)

    def documentation_names_every_check(self):
        with open(os.path.join(harness.SOURCE, "docs/doctor.md")) as text:
            documented = re.findall(r"^\| `(\w+)` \|", text.read(), re.M)
        self.assertEqual(documented, [name for name, _, _ in listed_checks()])

    def probe_calls_have_as_many_parameters_as_the_list_says(self):
        """tools/ has no cuda.h to hold its prototypes against."""
        with open(os.path.join(harness.SOURCE, "shim/entries.def")) as text:
            rows = dict(re.findall(r'^\w+\((\w+), "\w+", .*,\n\s+\((.*)\),$', text.read(), re.M))
        with open(os.path.join(harness.SOURCE, "tools/probe.def")) as text:
            calls = re.findall(r"^PROBE_CALL\((\w+), \w+,\s+\((.*)\)\)$", text.read(), re.M)
        self.assertGreater(len(calls), 15)
        for symbol, parameters in calls:
            self.assertEqual(len(parameters.split(",")), len(rows[symbol].split(",")), symbol)


if __name__ == "__main__":
    harness.main()
