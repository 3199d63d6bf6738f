#!/usr/bin/env python3
"""Events of programs that begin phases: NVTX ranges, launches of kernels, environment variables; who waits for what they begin, who does
not, and how each wait ends. The processes are Python programs on the simulated driver, one of them without a GPU."""
import os
import select
import signal
import subprocess
import sys
import threading
import time

import harness
import session

HERE = os.path.dirname(os.path.abspath(__file__))
POLICY = """version: 1
host_pool: 1GiB
roles: [train, rollout, controller]
phases:
  - {name: rollout, roles: [rollout, controller]}
  - {name: train, roles: [train]}
  - {name: update, roles: [train]}
  - {name: sync, roles: [train]}
triggers:
  - {enter: train, nvtx_push: train}
  - {enter: update, nvtx_push: update}
  - {enter: update, role: train, kernel: "*noop*"}
  - {enter: sync, environment: {STEP: "sync*"}}
  - {enter: rollout, command: true}
  - {enter: sync, role: controller, command: true}
barrier: {timeout: TIMEOUT}
objects:
  - {name: train_state, match: {role: train}, class: permanent, resident: [train, update, sync], otherwise: offload}
"""
BRIEF = 0.4  # who has not answered by then waits


class Program:
    """tests/cli/eventer.py under `sublet run`."""

    def __init__(self, case, role, *words, env=None):
        command = [harness.EXE, "run", "--session", case.session, "--sim=1GiB", *(["--role", role] if role else []), "--"]
        self.log = os.path.join(case.folder, "eventer.%d.err" % len(case.children))
        self.child = subprocess.Popen([*command, sys.executable, os.path.join(HERE, "eventer.py")],
                                      env={**(env or case.env), "SUBLET_LOG": "session:debug"}, cwd=case.folder,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.log, "w"), text=True)
        case.children.append(self.child)
        self.case = case
        case.assertEqual(self.child.stdout.readline().strip(), "ready")
        for word in words:
            self.say(word)

    def tell(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def waits(self, seconds=BRIEF):
        return not select.select([self.child.stdout], [], [], seconds)[0]

    def answer(self, seconds=60):
        self.case.assertFalse(self.waits(seconds), "no answer within %d s" % seconds)
        return self.child.stdout.readline().strip()

    def say(self, line, seconds=60):
        self.tell(line)
        return self.answer(seconds)

    def pid(self):
        return self.child.pid

    def said(self):
        with open(self.log) as text:
            return text.read()


class Case(session.Case):
    timeout = "60s"

    def setUp(self):
        super().setUp()
        self.given_policy(POLICY.replace("TIMEOUT", self.timeout))
        self.given_served()

    def given_policy(self, text):
        with open(self.policy, "w") as file:
            file.write(text)

    def given_program(self, role="train", *words, **more):
        return Program(self, role, *(words or ("init",)), **more)

    def given_pair(self):
        """Two ranks that have both triggered once, so that they wait for each other."""
        one, other = self.given_program(), self.given_program()
        for line in ("phase rollout", "push train", "set"):
            for program in (one, other):
                program.say(line)
        self.assertEqual(self.given_phase(), "train")
        return one, other

    def given_phase(self):
        return self.given_status()["phase"]


class Ranges(Case):
    def next_call_belongs_to_the_new_phase(self):
        """However long the phase takes to begin: the calls after the event find it in force, and so for each of twenty."""
        program = self.given_program()
        for i in range(20):
            program.say("push " + ("train", "update")[i % 2])
            program.say("set")
            self.assertEqual(self.given_phase(), ("train", "update")[i % 2])
        self.assertEqual(self.given_status()["phases_begun"], 20)

    def calls_of_other_threads_wait_too_and_allocations_do_not(self):
        one, other = self.given_pair()
        one.say("push update")
        one.say("alloc 8")
        one.tell("set_elsewhere")
        self.assertTrue(one.waits())
        other.say("push update")
        self.assertEqual((one.answer(), other.say("set")), ("done", "done"))
        self.assertEqual(self.given_phase(), "update")

    def two_arrivals_without_a_call_between_them_both_count(self):
        program = self.given_program()
        begun = self.given_status()["phases_begun"]
        program.say("push train")
        program.say("push update")
        program.say("set")
        status = self.given_status()
        self.assertEqual((status["phase"], status["phases_begun"]), ("update", begun + 2))

    def two_arrivals_wait_for_the_others_at_each(self):
        one, other = self.given_pair()
        one.say("push update")
        one.say("push train")
        one.tell("set")
        other.say("push update")
        other.say("set")
        self.assertTrue(one.waits())
        self.assertEqual(self.given_phase(), "update")
        other.say("push train")
        self.assertEqual(one.answer(), "done")
        self.assertEqual(self.given_phase(), "train")

    def phase_in_force_is_not_waited_for(self):
        program = self.given_program()
        program.say("push train")
        program.say("set")
        begun = self.given_status()["phases_begun"]
        for _ in range(50):
            program.say("push train")
            program.say("set")
        self.assertEqual(self.given_status()["phases_begun"], begun)

    def rank_in_a_long_phase_on_the_cpu_is_waited_for(self):
        one, other = self.given_pair()
        one.say("push update")
        one.tell("set")
        self.assertTrue(one.waits(2))
        other.say("push update")
        self.assertEqual(one.answer(), "done")
        self.assertEqual(self.given_phase(), "update")

    def helper_that_inherits_the_role_and_never_triggers_is_not_waited_for(self):
        helper, program = self.given_program(), self.given_program()
        program.say("push train")
        self.assertEqual(program.say("set"), "done")
        self.assertEqual(self.given_phase(), "train")
        self.assertEqual(helper.say("set"), "done")

    def call_in_a_host_function_does_not_wait(self):
        one, other = self.given_pair()
        self.assertEqual(one.say("queue_push_in_callback update"), "done")
        one.tell("set")
        self.assertTrue(one.waits())
        other.say("push update")
        self.assertEqual(one.answer(), "done")


class Kernels(Case):
    def launch_waits_for_what_it_begins(self):
        """Once per change of the phase, by whichever name the launch goes by."""
        program = self.given_program()
        for _ in range(3):
            self.assertEqual(program.say("phase rollout"), "0")
            program.say("set")
            self.assertEqual(self.given_phase(), "rollout")
            for _ in range(3):
                program.say("launch sim_noop")
                self.assertEqual(self.given_phase(), "update")
        self.assertEqual(self.given_status()["phases_begun"], 6)

    def launch_of_other_kernels_and_of_other_roles_begins_nothing(self):
        program, other = self.given_program(), self.given_program("rollout")
        self.assertEqual(program.say("phase rollout"), "0")
        program.say("launch sim_busy")
        other.say("launch sim_noop")
        self.assertEqual(self.given_phase(), "rollout")
        self.assertNotIn("kernel '", other.said())

    def ranks_wait_at_the_launch(self):
        one, other = self.given_pair()
        one.tell("launch sim_noop")
        self.assertTrue(one.waits())
        self.assertEqual(other.say("launch sim_noop"), "done")
        self.assertEqual(one.answer(), "done")
        self.assertEqual(self.given_phase(), "update")

    def handle_that_is_used_again_is_asked_for_its_name_again(self):
        """Modules that are unloaded and loaded: handles come again, for kernels of other names."""
        program = self.given_program()
        for _ in range(20):
            self.assertEqual(program.say("phase rollout"), "0")
            program.say("reload sim_busy")
            program.say("launch sim_busy")
            self.assertEqual(self.given_phase(), "rollout")
            program.say("reload sim_noop")
            program.say("launch sim_noop")
            self.assertEqual(self.given_phase(), "update")

    def launch_that_is_captured_begins_nothing(self):
        program = self.given_program()
        self.assertEqual(program.say("phase rollout"), "0")
        program.say("capture sim_noop")
        self.assertEqual(self.given_phase(), "rollout")


class Environment(Case):
    def value_that_the_program_sets_begins_a_phase(self):
        """Seen within a tenth of a second; what is called after that waits. Once per change of what it asks for."""
        program = self.given_program()
        self.assertEqual(program.say("phase rollout"), "0")
        program.say("env STEP=other")
        time.sleep(BRIEF)
        self.assertEqual(self.given_phase(), "rollout")
        for value in ("sync", "sync_again"):
            program.say("env STEP=" + value)
            self.eventually(lambda: self.given_phase() == "sync")
        self.assertEqual(self.given_status()["phases_begun"], 2)
        self.assertEqual(program.say("phase rollout"), "0")
        time.sleep(BRIEF)
        self.assertEqual(self.given_phase(), "rollout")
        program.say("unset STEP")
        time.sleep(BRIEF)
        program.say("env STEP=sync")
        self.eventually(lambda: self.given_phase() == "sync")

    def value_that_is_there_at_the_join_begins_it_before_the_first_call(self):
        program = self.given_program(env={**self.env, "STEP": "sync"})
        program.say("set")
        self.assertEqual(self.given_phase(), "sync")

    def environment_that_grows_and_shrinks_meanwhile_is_read_all_the_same(self):
        program = self.given_program()
        self.assertEqual(program.say("churn 2"), "done")
        self.assertEqual(self.given_phase(), None)
        program.say("env STEP=sync")
        self.eventually(lambda: self.given_phase() == "sync")


class WithoutGpu(Case):
    def given_controller(self, role="controller", **more):
        return Program(self, role, **more)

    def driver_process_begins_phases_of_others(self):
        """It joins at its first event or word, moves nothing, and loads no driver."""
        train, controller = self.given_program(), self.given_controller()
        self.assertEqual(len(self.given_status()["clients"]), 1)
        self.assertEqual(controller.say("phase rollout"), "0")
        self.assertEqual(self.given_objects()["train_state"]["bytes"]["host"], 16 << 20)
        self.assertEqual(controller.say("push train"), "done")
        self.eventually(lambda: self.given_phase() == "train")
        self.assertEqual(self.given_objects()["train_state"]["bytes"]["device"], 16 << 20)
        self.assertEqual(controller.say("loads_driver"), "False")
        self.assertEqual({(row["role"], row["pid"]) for row in self.given_status()["clients"]},
                         {("train", train.pid()), ("controller", controller.pid())})

    def its_first_range_counts(self):
        controller = self.given_controller()
        controller.say("push train")
        self.eventually(lambda: self.given_phase() == "train")

    def it_waits_for_no_rank_and_no_rank_for_it(self):
        one, other = self.given_pair()
        controller = self.given_controller("train")
        controller.say("push update")
        self.eventually(lambda: self.given_phase() == "update")
        one.say("push train")
        other.say("push train")
        self.assertEqual([one.say("set"), other.say("set"), self.given_phase()], ["done", "done", "train"])

    def its_orders_are_the_policys(self):
        controller = self.given_controller()
        self.assertEqual(controller.say("phase train"), "1")
        self.assertIn("no trigger of the policy lets this role begin 'train'", controller.said())
        self.assertEqual(controller.say("phase sync"), "0")

    def it_is_asked_for_nothing_else(self):
        controller = self.given_controller()
        controller.say("phase rollout")
        for verb in ("offload", "park", "restore"):
            self.assertEqual(self.sublet("ctl", verb, "train_state").returncode, 1)
        self.assertEqual(self.sublet("ctl", "objects", "--allocations").returncode, 0)
        self.assertEqual(controller.say("phase sync"), "0")

    def one_that_has_a_gpu_after_all_joins_anew(self):
        """And then waits, and is waited for, as any rank."""
        late = self.given_controller("train")
        late.say("push train")
        self.eventually(lambda: self.given_phase() == "train")
        late.say("init")
        self.assertEqual(late.say("set"), "done")
        self.assertEqual([row["role"] for row in self.given_status()["clients"]], ["train"])
        self.assertEqual(self.given_objects()["train_state"]["bytes"]["device"], 16 << 20)
        late.say("push update")
        self.assertEqual(late.say("set"), "done")
        self.assertEqual(self.given_phase(), "update")

    def child_that_is_forked_from_it_is_one_of_its_own(self):
        controller = self.given_controller()
        controller.say("push train")
        self.eventually(lambda: self.given_phase() == "train")
        self.assertEqual(controller.say("fork_and push update"), "0")
        self.assertEqual(self.given_phase(), "update")
        self.assertEqual(controller.say("phase sync"), "0")

    def child_that_is_forked_while_it_joins_is_one_of_its_own(self):
        """By another thread than the one that joins, which is not in the child."""
        coordinator = self.given_status()["coordinator"]
        controller = self.given_controller()
        os.kill(coordinator, signal.SIGSTOP)
        try:
            controller.say("begin_push train")
            controller.tell("fork_and push update")
        finally:
            os.kill(coordinator, signal.SIGCONT)
        self.assertEqual(controller.answer(), "0")
        self.eventually(lambda: self.given_phase() == "update")

    def session_without_coordinator_costs_it_nothing(self):
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        controller = self.given_controller()
        begun = time.monotonic()
        controller.say("push train")
        self.assertEqual(controller.say("phase sync"), "1")
        self.assertLess(time.monotonic() - begun, 10)
        self.given_served()
        self.eventually(lambda: self.given_status()["clients"])
        self.assertEqual(controller.say("phase sync"), "0")

    def process_that_triggers_nothing_joins_nothing(self):
        got = self.sublet("run", "--session", self.session, "--sim=1GiB", "--", "/bin/true")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertNotIn("joins", self.given_log())


class Ends(Case):
    def coordinator_that_goes_ends_the_wait(self):
        one, _ = self.given_pair()
        one.say("push update")
        one.tell("set")
        self.assertTrue(one.waits())
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        self.assertEqual(one.answer(), "done")

    def rank_that_dies_ends_the_wait(self):
        one, other = self.given_pair()
        one.say("push update")
        one.tell("set")
        self.assertTrue(one.waits())
        other.child.kill()
        other.child.wait()
        self.assertEqual(one.answer(), "done")
        self.assertEqual(self.given_phase(), "update")

    def process_that_ends_meanwhile_ends(self):
        one, _ = self.given_pair()
        one.say("push update")
        one.child.stdin.close()
        self.assertEqual(one.child.wait(timeout=60), 0)


class Late(Case):
    timeout = "2s"

    def ranks_that_wait_for_each_other_go_on_after_the_timeout(self):
        """A rank of a pipeline that comes to its trigger only when the other's next call has been made."""
        one, other = self.given_pair()
        one.say("push update")
        begun = time.monotonic()
        one.tell("set")
        self.assertEqual(one.answer(), "done")
        self.assertGreater(time.monotonic() - begun, 1.5)
        self.assertEqual(self.given_phase(), "train")
        self.eventually(lambda: "phase 'update', which an event of the program begins, has not begun within 2.0 s" in one.said())
        self.assertEqual(one.say("set"), "done")
        other.say("push update")
        other.say("set")
        self.eventually(lambda: self.given_phase() == "update")


class Stuck(Case):
    timeout = "30s"

    def call_that_a_drain_waits_for_goes_on_at_the_second_opening(self):
        """What runs ends only with the next launch, as between two ranks of a collective; the launch waits for the phase."""
        program = self.given_program()
        program.say("push train")
        program.say("set")
        self.assertEqual(self.sublet("phase", "rollout").returncode, 0)
        program.say("spin")
        program.say("push train")
        begun = time.monotonic()
        self.assertEqual(program.say("set_and_release"), "done")
        self.assertLess(time.monotonic() - begun, 25)
        self.eventually(lambda: self.given_phase() in ("train", "update"))


if __name__ == "__main__":
    harness.main()
