#!/usr/bin/env python3
"""Signals under `sublet run --follow`: the program gets each exactly once, whoever sends it to whom, as it would without
--follow. follow.py has the keys of a terminal."""
import os
import re
import signal
import subprocess
import sys
import time

import harness

# Blocks all signals and prints the number of each that comes, until none has come for a while.
RECEIVER = """
import signal, sys
every = set(signal.Signals) | set(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print("ready", flush=True)
quiet = 20
while True:
    info = signal.sigtimedwait(every, quiet)
    if info is None:
        break
    print(int(info.si_signo), flush=True)
    quiet = 1.0
"""

# SIGCHLD is a parent's own news; the other two nobody can hold back.
SENT = sorted(set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


class Signals(harness.Case):
    def given_process(self, *words, **more):
        words = words or (sys.executable, "-c", RECEIVER)
        process = subprocess.Popen([harness.EXE, "run", "--follow", "--", *words], env=self.env, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   **more)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def given_numbers(self, process):
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        return [int(word) for word in out.split()]

    def given_children(self, process):
        """(the program, the witness)"""
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            children = [int(word) for word in file.read().split()]
        names = {}
        for child in children:
            with open("/proc/%d/comm" % child) as file:
                names[file.read().strip() == "witness"] = child
        self.assertEqual(len(names), 2, names)
        return names[False], names[True]


    def given_alive(self, pid):
        """A zombie is not: its new parent may be slow."""
        try:
            with open("/proc/%d/stat" % pid) as file:
                return not re.search(r"\) Z ", file.read())
        except OSError:
            return False


class Once(Signals):
    def every_signal_sent_to_the_follower_reaches_the_program_once(self):
        process = self.given_process()
        for number in SENT:
            process.send_signal(number)
            time.sleep(0.03)
        self.assertEqual(sorted(self.given_numbers(process)), SENT)

    def every_signal_sent_to_the_group_reaches_the_program_once(self):
        for more in ({"start_new_session": True}, {"preexec_fn": os.setpgrp}):
            process = self.given_process(**more)
            for number in SENT:
                os.killpg(process.pid, number)
                time.sleep(0.03)
            self.assertEqual(sorted(self.given_numbers(process)), SENT)

    def signal_sent_to_the_follower_right_after_one_to_the_group_is_another(self):
        process = self.given_process(start_new_session=True)
        os.killpg(process.pid, signal.SIGUSR1)
        time.sleep(0.2)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.given_numbers(process), [signal.SIGUSR1] * 2)

    def queued_signals_keep_their_number(self):
        process = self.given_process()
        for _ in range(3):
            process.send_signal(signal.SIGRTMIN + 1)
        self.assertEqual(self.given_numbers(process), [signal.SIGRTMIN + 1] * 3)

    def signal_a_program_sends_its_own_group_reaches_it_once(self):
        program = ("import os, signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('got', flush=True))\n"
                   "print('ready', flush=True)\ntime.sleep(0.3)\nos.killpg(0, signal.SIGUSR1)\ntime.sleep(0.4)\n")
        process = self.given_process(sys.executable, "-c", program, start_new_session=True)
        self.assertEqual(process.communicate(timeout=60)[0], "got\n")

    def signal_sent_to_each_process_of_a_container_reaches_the_program_once(self):
        process = self.given_process()
        program, witness = self.given_children(process)
        for pid in (witness, process.pid, program):
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(self.given_numbers(process), [signal.SIGTERM])

    def alarm_set_before_the_start_reaches_the_program_once(self):
        process = self.given_process(preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 4))
        self.assertEqual(self.given_numbers(process), [signal.SIGALRM])

    def children_of_the_program_get_what_the_group_gets(self):
        started = time.time()
        got = subprocess.run(["timeout", "1", harness.EXE, "run", "--follow", "--", "sh", "-c", "sleep 60; true"],
                             env=self.env, cwd=self.folder, capture_output=True, timeout=50)
        self.assertEqual(got.returncode, 124, got)
        self.assertLess(time.time() - started, 30)  # the pipe was closed: no sleep is left


class Witness(Signals):
    """The process that sits in the group beside the program."""

    def has_the_words_of_the_program_and_nothing_of_sublet(self):
        process = self.given_process()
        _, witness = self.given_children(process)
        with open("/proc/%d/cmdline" % witness, "rb") as file:
            words = file.read().rstrip(b"\0")
        self.assertEqual(words, b"\0".join(map(os.fsencode, (sys.executable, "-c", RECEIVER))))
        process.terminate()
        self.assertEqual(self.given_numbers(process), [signal.SIGTERM])

    def that_was_killed_costs_no_signal(self):
        process = self.given_process()
        _, witness = self.given_children(process)
        os.kill(witness, signal.SIGKILL)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        self.assertEqual(self.given_numbers(process), [signal.SIGTERM] * 2)

    def that_is_stopped_is_continued(self):
        process = self.given_process()
        _, witness = self.given_children(process)
        os.kill(witness, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.given_numbers(process), [signal.SIGTERM])

    def is_gone_with_the_follower(self):
        for end in (signal.SIGTERM, signal.SIGKILL):
            process = self.given_process()
            program, witness = self.given_children(process)
            process.send_signal(end)
            if end == signal.SIGKILL:
                process.wait(timeout=60)
                os.kill(program, signal.SIGKILL)
            process.communicate(timeout=60)
            deadline = time.time() + 20
            while self.given_alive(witness) and time.time() < deadline:
                time.sleep(0.02)
            self.assertFalse(self.given_alive(witness))


if __name__ == "__main__":
    harness.main()
