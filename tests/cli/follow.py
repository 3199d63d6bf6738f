#!/usr/bin/env python3
"""`sublet run --follow`: exit status, signals, stops, and what it says about the processes of the run. The pages are
written by page_writer, so that no driver is needed; tests/sim follows real programs."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import harness

MIB = 1 << 20


class Follow(harness.Case):
    def setUp(self):
        super().setUp()
        self.session = os.path.join(self.folder, "session")

    def given_run(self, *words, **more):
        return self.sublet("run", "--follow", "--session", self.session, *words, **more)

    def given_process(self, *words, **more):
        return subprocess.Popen([harness.EXE, "run", "--follow", "--session", self.session, "--", *words], env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def exit_status_is_what_a_shell_would_give(self):
        for status in (0, 1, 2, 77, 255):
            self.assertEqual(self.given_run("--", "sh", "-c", "exit %d" % status).returncode, status)
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            got = self.given_run("--", "sh", "-c", "kill -%d $$" % number)
            self.assertEqual(got.returncode, 128 + number, got)

    def streams_and_words_are_the_programs_own(self):
        got = self.given_run("--", "sh", "-c", "echo out; echo err >&2; ls /proc/self/fd")
        self.assertEqual(got.stdout.split(), ["out", "0", "1", "2", "3"])
        self.assertEqual(got.stderr, "err\nsublet: no process of this run started the driver\n")

    def signals_of_others_reach_the_program(self):
        script = "trap 'echo got %s; exit 5' %s; echo ready; while :; do sleep 0.05; done"
        for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
            process = self.given_process("sh", "-c", script % (name, name))
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(getattr(signal, "SIG" + name))
            out, _ = process.communicate(timeout=30)
            self.assertEqual((out, process.returncode), ("got %s\n" % name, 5), name)

    def signal_that_ends_the_program_is_in_the_status(self):
        process = self.given_process("sh", "-c", "echo ready; exec sleep 60")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def program_sees_the_signal_state_it_would_have_alone(self):
        show = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
        plain = subprocess.run(show, env=self.env, capture_output=True, text=True).stdout
        self.assertEqual(self.given_run("--", *show).stdout, plain)

        def ignoring():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        plain = subprocess.run(show, env=self.env, capture_output=True, text=True, preexec_fn=ignoring).stdout
        got = self.given_run("--", *show, preexec_fn=ignoring)
        self.assertEqual((got.stdout, got.returncode), (plain, 0))

    def program_lives_on_when_its_follower_is_killed(self):
        done = os.path.join(self.folder, "done")
        process = self.given_process("sh", "-c", "echo ready; sleep 0.5; echo x > %s" % done)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.kill()
        process.wait()
        deadline = time.time() + 20
        while not os.path.exists(done) and time.time() < deadline:
            time.sleep(0.05)
        self.assertTrue(os.path.exists(done))

    def closed_stderr_does_not_end_the_run(self):
        reader, writer = os.pipe()
        os.close(reader)
        got = subprocess.run([harness.EXE, "run", "--follow", "--session", self.session, "--", harness.PAGE_WRITER,
                              "managed=5", "sleep=300", "say=end", "exit=6"], env=self.env, stdout=subprocess.PIPE,
                             stderr=writer, text=True, timeout=60)
        os.close(writer)
        self.assertEqual((got.returncode, got.stdout), (6, "end\n"))


class Terminal(harness.Case):
    """Job control as a shell on a terminal does it: follower and program are one foreground group."""

    def given_terminal(self, script):
        """Runs bash with job control on a new terminal; returns (pid, master fd)."""
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-c", "set -m\n" + script], self.env)
        return pid, master

    def given_output_until(self, master, text, seconds=30):
        seen, deadline = "", time.time() + seconds
        while text not in seen:
            if not select.select([master], [], [], max(0, deadline - time.time()))[0]:
                self.fail("no %r in %r" % (text, seen))
            try:
                seen += os.read(master, 4096).decode()
            except OSError:
                self.fail("no %r in %r at the end" % (text, seen))
        return seen

    def interrupt_key_reaches_the_program_once(self):
        count = os.path.join(self.folder, "count")
        program = "trap 'echo x >> %s' INT; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 3" % count
        pid, master = self.given_terminal("%s run --follow -- sh -c \"%s\"; echo status $?" % (harness.EXE, program))
        self.given_output_until(master, "ready")
        os.write(master, b"\x03")
        self.given_output_until(master, "status 3")
        os.waitpid(pid, 0)
        os.close(master)
        with open(count) as lines:
            self.assertEqual(len(lines.readlines()), 1)

    def stop_key_stops_both_and_fg_continues_both(self):
        # not a shell: one whose child stops between vfork and exec cannot stop itself, with or without sublet
        program = harness.PAGE_WRITER + " say=ready sleep=900 say=over exit=4"
        pid, master = self.given_terminal("%s run --follow -- %s; echo stopped $?; fg; echo status $?" %
                                          (harness.EXE, program))
        self.given_output_until(master, "ready")
        os.write(master, b"\x1a")
        self.given_output_until(master, "stopped %d" % (128 + signal.SIGTSTP))
        seen = self.given_output_until(master, "status 4")
        self.assertIn("over", seen)
        os.waitpid(pid, 0)
        os.close(master)


    def continue_by_fg_reaches_the_program_once(self):
        count = os.path.join(self.folder, "count")
        program = os.path.join(self.folder, "program.py")
        with open(program, "w") as text:
            text.write("import signal, time\n"
                       "signal.signal(signal.SIGCONT, lambda *_: open('%s', 'a').write('x'))\n"
                       "print('ready', flush=True)\n"
                       "end = time.time() + 2.5\nwhile time.time() < end: time.sleep(0.05)\n" % count)
        pid, master = self.given_terminal("%s run --follow -- %s %s; echo stopped $?; fg; echo status $?" %
                                          (harness.EXE, sys.executable, program))
        self.given_output_until(master, "ready")
        os.write(master, b"\x1a")
        self.given_output_until(master, "status 0")
        os.waitpid(pid, 0)
        os.close(master)
        with open(count) as text:
            self.assertEqual(text.read(), "x")

    def continue_of_the_follower_alone_continues_the_program(self):
        # by another program than the shell, which continues its job's whole group
        program = harness.PAGE_WRITER + " say=ready sleep=700 say=over exit=4"
        pid, master = self.given_terminal("%s run --follow -- %s; follower=$(jobs -p); %s -c \"import os; "
                                          "os.kill($follower, 18)\"; wait $follower; echo status $?" %
                                          (harness.EXE, program, sys.executable))
        self.given_output_until(master, "ready")
        os.write(master, b"\x1a")
        seen = self.given_output_until(master, "status 4")
        self.assertIn("over", seen)
        os.waitpid(pid, 0)
        os.close(master)


class Report(Follow):
    def given_lines(self, got, kind):
        return [line for line in got.stderr.splitlines() if re.match(r"sublet: pid \d+ \(.*\) %s" % kind, line)]

    def first_memory_and_end_are_said_once_and_summed_up(self):
        got = self.given_run("--role", "train", "--", harness.PAGE_WRITER, "managed=%d" % (64 * MIB), "sleep=250",
                             "managed=%d" % (32 * MIB), "small=4096", "pinned=%d" % MIB, "sleep=250",
                             "free=%d" % (64 * MIB), "exit=3")
        self.assertEqual((got.returncode, got.stdout), (3, ""), got)
        takes, ended = self.given_lines(got, "takes device memory"), self.given_lines(got, "ended")
        self.assertEqual(len(takes), 1, got.stderr)
        self.assertRegex(takes[0], r"^sublet: pid \d+ \(page_writer, train\) takes device memory: 64.00 MiB managed, 0 B native$")
        self.assertEqual(len(ended), 1, got.stderr)
        self.assertTrue(ended[0].endswith("ended: peak 96.00 MiB managed, 4.00 KiB native"), got.stderr)
        row = got.stderr.splitlines()[-1]
        self.assertRegex(row, r"^ *\d+  page_writer +train +96.00 MiB +4.00 KiB +1.00 MiB  ended +small, pinned$|"
                              r"^ *\d+  page_writer +train +96.00 MiB +4.00 KiB +1.00 MiB  ended +small$")

    def every_process_of_the_run_is_told(self):
        script = "%(w)s managed=%(a)d sleep=300 & (setsid %(w)s managed=%(b)d sleep=300 &) ; wait; sleep 0.5; true"
        got = self.given_run("--", "sh", "-c", script % {"w": harness.PAGE_WRITER, "a": MIB, "b": 2 * MIB})
        self.assertEqual(len(self.given_lines(got, "takes device memory")), 2, got.stderr)
        self.assertEqual(len(self.given_lines(got, "ended")), 2, got.stderr)

    def short_lived_process_is_told(self):
        for _ in range(10):
            got = self.given_run("--", "sh", "-c", "%s managed=%d; true" % (harness.PAGE_WRITER, MIB))
            self.assertEqual(len(self.given_lines(got, "takes device memory")), 1, got.stderr)
            self.assertEqual(len(self.given_lines(got, "ended")), 1, got.stderr)

    def killed_process_has_ended(self):
        got = self.given_run("--", harness.PAGE_WRITER, "managed=%d" % MIB, "sleep=200", "kill")
        self.assertEqual(got.returncode, 128 + signal.SIGKILL)
        self.assertEqual(len(self.given_lines(got, "ended")), 1, got.stderr)

    def process_that_outlives_the_command_is_running_in_the_table(self):
        got = self.given_run("--", "sh", "-c", "%s managed=%d sleep=1500 >/dev/null 2>&1 & sleep 0.4" %
                             (harness.PAGE_WRITER, MIB))
        self.assertEqual(got.returncode, 0)
        self.assertRegex(got.stderr.splitlines()[-1], r" running ")

    def other_runs_of_the_session_are_not_told(self):
        other = subprocess.Popen([harness.EXE, "run", "--session", self.session, "--role", "other", "--",
                                  harness.PAGE_WRITER, "managed=%d" % MIB, "say=up", "sleep=1500"], env=self.env,
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(other.stdout.readline(), "up\n")
        got = self.given_run("--", harness.PAGE_WRITER, "managed=%d" % MIB, "sleep=300")
        other.communicate(timeout=30)
        self.assertNotIn("other", got.stderr)
        self.assertEqual(len(self.given_lines(got, "takes device memory")), 1, got.stderr)

    def process_without_device_memory_is_not_told(self):
        got = self.given_run("--", harness.PAGE_WRITER, "pinned=%d" % MIB)
        self.assertEqual(got.stderr, "sublet: no process of this run took device memory\n")

    def files_of_the_run_are_gone_afterwards(self):
        self.given_run("--", harness.PAGE_WRITER, "managed=%d" % MIB, "kill")
        self.assertEqual([n for n in os.listdir(self.session) if n.startswith("proc-")], [])

    def files_of_dead_processes_are_swept_by_a_later_run(self):
        self.sublet("run", "--session", self.session, "--", harness.PAGE_WRITER, "managed=5", "kill")
        left = [n for n in os.listdir(self.session) if n.startswith("proc-")]
        self.assertEqual(len(left), 1)
        # a younger file may still be wanted by the follower of another run
        time.sleep(3.2)
        self.sublet("run", "--session", self.session, "--", "true")
        self.assertEqual([n for n in os.listdir(self.session) if n.startswith("proc-")], [])


if __name__ == "__main__":
    harness.main()
