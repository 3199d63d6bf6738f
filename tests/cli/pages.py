#!/usr/bin/env python3
"""The files proc-<pid>.stats of a session (lifecycle/stats.h): whose they are, when they go, and what becomes of a follower
when somebody lays hands on them."""
import os
import re
import resource
import signal
import stat
import struct
import subprocess
import time

import harness

MIB = 1 << 20
YOUNG_SECONDS = 3.2  # files of the last two seconds are never swept
LOCKED_OFFSET = 48  # of `locked` in struct stats_page


class Pages(harness.Case):
    def setUp(self):
        super().setUp()
        self.session = os.path.join(self.folder, "session")

    def given_run(self, *words, follow=True, **more):
        options = ["--follow"] if follow else []
        return self.sublet("run", *options, "--session", self.session, *words, **more)

    def given_process(self, *words, follow=True, options=(), **more):
        options = (["--follow"] if follow else []) + list(options)
        more.setdefault("env", self.env)
        return subprocess.Popen([harness.EXE, "run", *options, "--session", self.session, "--", *words],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def given_files(self):
        return [n for n in os.listdir(self.session) if n.startswith("proc-")]

    def given_lines(self, text, kind):
        return [line for line in text.splitlines() if re.match(r"sublet: pid \d+ \(.*\) %s" % kind, line)]


class Follower(Pages):
    def survives_a_page_that_is_cut_short(self):
        process = self.given_process(harness.PAGE_WRITER, "managed=%d" % (64 * MIB), "say=up", "sleep=3000", "kill")
        self.assertEqual(process.stdout.readline(), "up\n")
        time.sleep(0.3)
        path = os.path.join(self.session, self.given_files()[0])
        os.chmod(path, 0o600)
        os.truncate(path, 0)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertTrue(self.given_lines(err, "ended")[0].endswith("ended: peak 64.00 MiB managed, 0 B native"), err)

    def is_not_held_up_by_what_only_has_the_name_of_a_page(self):
        os.mkdir(self.session, 0o700)
        os.mkfifo(os.path.join(self.session, "proc-7.stats"))
        os.mkdir(os.path.join(self.session, "proc-8.stats"))
        with open(os.path.join(self.session, "proc-9.stats"), "w") as text:
            text.write("SBLSTATS" * 1000)
        got = self.given_run("--", harness.PAGE_WRITER, "managed=%d" % MIB)
        self.assertEqual((got.returncode, len(self.given_lines(got.stderr, "ended"))), (0, 1), got)

    def tells_of_a_program_and_of_the_one_it_becomes(self):
        got = self.given_run("--", harness.PAGE_WRITER, "managed=%d" % (4 * MIB), "sleep=300", "exec",
                             "managed=%d" % (256 * MIB), "sleep=300")
        self.assertEqual(got.returncode, 0, got)
        ends = [line.split(" ended: ")[1] for line in self.given_lines(got.stderr, "ended")]
        self.assertEqual(ends, ["peak 4.00 MiB managed, 0 B native", "peak 256.00 MiB managed, 0 B native"], got.stderr)
        self.assertEqual(len(self.given_lines(got.stderr, "takes device memory")), 2, got.stderr)
        self.assertEqual(self.given_files(), [])

    def of_another_run_does_not_claim_short_processes(self):
        other = self.given_process("sleep", "60")
        try:
            for _ in range(10):
                got = self.given_run("--", "sh", "-c", "%s managed=%d; true" % (harness.PAGE_WRITER, MIB))
                self.assertEqual(len(self.given_lines(got.stderr, "ended")), 1, got.stderr)
        finally:
            other.terminate()
            _, err = other.communicate(timeout=30)
        self.assertEqual(err, "sublet: no process of this run started the driver\n")

    def tells_of_processes_without_the_mark_of_the_run_that_descend_from_it(self):
        got = self.given_run("--", "sh", "-c", "env -u SUBLET_RUN %s managed=%d sleep=400; true" %
                             (harness.PAGE_WRITER, MIB))
        self.assertEqual(len(self.given_lines(got.stderr, "ended")), 1, got.stderr)

    def of_a_run_around_another_tells_of_its_processes_too(self):
        got = self.given_run("--", harness.EXE, "run", "--follow", "--", harness.PAGE_WRITER, "managed=%d" % MIB, "sleep=400")
        self.assertEqual(len(self.given_lines(got.stderr, "ended")), 2, got.stderr)

    def shows_roles_and_names_without_control_characters(self):
        program = os.path.join(self.folder, "w\x1b[2J\nx")
        os.symlink(harness.PAGE_WRITER, program)
        got = self.given_run("--", program, "managed=%d" % MIB, "sleep=200", env=dict(self.env, SUBLET_ROLE="a\n\x1b]0;b\x07"))
        self.assertIn("(w?[2J?x, a??]0;b?) ended", got.stderr)
        self.assertFalse([c for c in got.stderr if c != "\n" and (ord(c) < 32 or ord(c) == 127)], got)


class Sweep(Pages):
    def given_old_file_of_a_killed_process(self):
        self.given_run("--", harness.PAGE_WRITER, "managed=5", "kill", follow=False)
        self.assertEqual(len(self.given_files()), 1)
        return os.path.join(self.session, self.given_files()[0])

    def given_sweep(self):
        time.sleep(YOUNG_SECONDS)
        self.assertEqual(self.given_run("--", "true", follow=False).returncode, 0)

    def given_process_of_another_pid_namespace(self, *words):
        base = ["unshare", "--fork", "--pid", "--kill-child"]
        for wall in (base, [*base, "--user", "--map-root-user"]):
            try:
                if subprocess.run([*wall, "true"], capture_output=True).returncode == 0:
                    return self.given_process(*wall, harness.PAGE_WRITER, *words, follow=False)
            except FileNotFoundError:
                break
        self.skipTest("no pid namespaces here")

    def leaves_the_page_of_a_living_process_in_another_pid_namespace(self):
        process = self.given_process_of_another_pid_namespace("managed=5", "say=up", "sleep=6000")
        self.assertEqual(process.stdout.readline(), "up\n")
        before = self.given_files()
        self.assertEqual(len(before), 1)
        self.given_sweep()
        self.assertEqual(self.given_files(), before)
        process.communicate(timeout=30)
        self.assertEqual(self.given_files(), [])

    def removes_the_page_of_a_killed_process_in_another_pid_namespace(self):
        process = self.given_process_of_another_pid_namespace("managed=5", "say=up", "sleep=60000")
        self.assertEqual(process.stdout.readline(), "up\n")
        process.kill()  # unshare, which takes the other with it; the first process of a namespace cannot kill itself
        process.communicate(timeout=30)
        self.assertEqual(len(self.given_files()), 1)
        self.given_sweep()
        self.assertEqual(self.given_files(), [])

    def leaves_the_page_of_a_living_process(self):
        process = self.given_process(harness.PAGE_WRITER, "say=up", "sleep=5000", follow=False)
        self.assertEqual(process.stdout.readline(), "up\n")
        self.given_sweep()
        self.assertEqual(self.given_files(), ["proc-%d.stats" % process.pid])
        process.communicate(timeout=30)

    def leaves_a_page_whose_file_system_has_no_locks(self):
        path = self.given_old_file_of_a_killed_process()
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(LOCKED_OFFSET)
            self.assertEqual(struct.unpack("<I", file.read(4)), (1,))
            file.seek(LOCKED_OFFSET)
            file.write(struct.pack("<I", 0))
        self.given_sweep()
        self.assertEqual(self.given_files(), [os.path.basename(path)])

    def leaves_the_page_of_another_version(self):
        path = self.given_old_file_of_a_killed_process()
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(8)
            file.write(struct.pack("<I", 1))
        self.given_sweep()
        self.assertEqual(self.given_files(), [os.path.basename(path)])


class Owner(Pages):
    """What the process itself does with its page."""

    def given_long_session(self, length):
        path = os.path.realpath(self.folder)
        while len(path) < length - 200:
            path = os.path.join(path, "n" * 150)
            os.mkdir(path, 0o700)
        path = os.path.join(path, "n" * (length - len(path) - 1))
        os.mkdir(path, 0o700)
        self.assertEqual(len(path), length)
        return path

    def page_cannot_be_opened_for_writing_by_accident(self):
        self.given_run("--", harness.PAGE_WRITER, "kill", follow=False)
        mode = os.stat(os.path.join(self.session, self.given_files()[0])).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o400)

    def session_path_that_leaves_no_room_for_the_page_exits_1(self):
        got = self.refuses(1, "has a path of 481 bytes, at most 480 can be used; choose another with --session DIR", "run",
                           "--session", self.given_long_session(481), "true")
        self.assertLess(len(got.stderr), 200)

    def session_path_that_just_leaves_room_for_the_page_has_one(self):
        session = self.given_long_session(480)
        got = self.sublet("run", "--session", session, "--", harness.PAGE_WRITER, "kill")
        self.assertEqual(got.returncode, -signal.SIGKILL, got)
        self.assertEqual(len(os.listdir(session)), 1)

    def session_path_without_room_is_said_by_the_library(self):
        session = self.given_long_session(481)
        got = subprocess.run([harness.PAGE_WRITER], env=dict(self.env, SUBLET_SESSION=session), capture_output=True, text=True)
        self.assertEqual((got.returncode, got.stderr.count("\n")), (99, 1), got)
        self.assertIn("counters stay private: the path of the session folder has more than 480 bytes", got.stderr)

    def session_folder_that_is_gone_is_said_by_the_library(self):
        got = subprocess.run([harness.PAGE_WRITER], env=dict(self.env, SUBLET_SESSION="/no/such"), capture_output=True, text=True)
        self.assertEqual((got.returncode, got.stderr.count("\n")), (99, 1), got)
        self.assertIn("counters stay private: No such file or directory in session folder '/no/such'", got.stderr)

    def limit_of_file_sizes_is_said_by_the_library_and_ends_nobody(self):
        """The kernel's answer to a file past it is a signal, which nobody here handles."""
        os.mkdir(self.session, 0o700)
        got = subprocess.run([harness.PAGE_WRITER], env=dict(self.env, SUBLET_SESSION=self.session), capture_output=True, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        self.assertEqual((got.returncode, got.stderr.count("\n")), (99, 1), got)
        self.assertIn("counters stay private: File too large", got.stderr)

    def given_sim_run(self, word, follow=True):
        got = self.given_run("--sim=1GiB", "--", harness.FORKER, word, follow=follow)
        self.assertEqual(got.returncode, 0, got)
        return got

    def child_without_fork_handlers_does_not_end_the_page_of_its_parent(self):
        for word in ("_Fork", "clone"):
            got = self.given_sim_run(word, follow=False)
            self.assertEqual(got.stdout, "parent has its page\n", word)
            got = self.given_sim_run(word)
            self.assertEqual(len(self.given_lines(got.stderr, "ended")), 1, got.stderr)

    def child_forked_before_the_start_has_a_page_of_its_own(self):
        got = self.given_sim_run("early-fork", follow=False)
        self.assertEqual(got.stdout, "child has its page\nparent has its page\n")
        got = self.given_sim_run("early-fork")
        ends = sorted(line.split(" ended: ")[1] for line in self.given_lines(got.stderr, "ended"))
        self.assertEqual(ends, ["peak 32.00 MiB managed, 0 B native", "peak 4.00 MiB managed, 0 B native"], got.stderr)

    def page_of_a_followed_process_stays_when_it_clears_its_environment(self):
        got = self.sublet("run", "--sim=1GiB", "--session", self.session, "--", harness.FORKER, "unsetenv",
                          env=dict(self.env, SUBLET_FOLLOW="1"))
        self.assertEqual((got.returncode, len(self.given_files())), (0, 1), got)


if __name__ == "__main__":
    harness.main()
