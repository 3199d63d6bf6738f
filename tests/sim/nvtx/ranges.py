#!/usr/bin/env python3
"""NVTX ranges under Sublet: ranges.c, with the real headers of NVTX, prints the same with and without it and with a tool (tool.c)
behind it, and the triggers of the policy are seen in the log. An argument is the case to run."""
import ctypes
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SUBLET_TEST_SOURCE"], "tests/cli"))
import harness  # noqa: E402 (found by the line above)
import session  # noqa: E402

FOLDER = os.environ["SUBLET_TEST_NVTX"]
TOOL = os.path.join(FOLDER, "libtool.so")

POLICY = """version: 1
roles: [a, b]
phases: [opened, ended, other]
triggers:
  - {enter: other, role: b, nvtx_push: "*"}
  - {enter: opened, nvtx_push: "gen*"}
  - {enter: ended, nvtx_pop: "gen*"}
"""
QUIET = POLICY.split("triggers")[0] + "triggers: [{enter: opened, command: true}]\n"


def pairs(*names):
    """What a range that nothing stands in begins, for each name."""
    return [event for name in names for event in (("opened", name), ("ended", name))]


class Ranges(session.Case):
    def setUp(self):
        super().setUp()
        self.env.pop("NVTX_INJECTION64_PATH", None)
        self.given_policy(POLICY)

    def given_policy(self, text):
        with open(self.policy, "w") as file:
            file.write(text)

    def given_run(self, *parts, before=(), role="a", tool=None, **environment):
        """With Sublet: (what the program prints, phases that begin with the name of the range)."""
        env = dict(self.env, COPIES=FOLDER, **environment)
        if tool is not None:
            env["NVTX_INJECTION64_PATH"] = tool
        got = subprocess.run([harness.EXE, "run", "--sim=64MiB", "--policy", self.policy, "--role", role, "--log", "session:debug",
                              "--", *before, os.path.join(FOLDER, "ranges"), *parts], env=env, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(got.returncode, 0, got)
        self.stderr = got.stderr
        return got.stdout, self.given_events(got.stderr)

    def given_events(self, text):
        return re.findall(r"phase '(\w+)' begins: NVTX range '([^']*)' (?:is opened|ends)$", text, re.M)

    def given_plain(self, *parts, **environment):
        env = dict(self.env, COPIES=FOLDER, LD_LIBRARY_PATH=harness.SIM_FOLDER, **environment)
        env.pop("SUBLET_SESSION")
        got = subprocess.run([os.path.join(FOLDER, "ranges"), *parts], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60, cwd=self.folder)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return got.stdout

    def given_same(self, *parts, **more):
        """The same prints with and without Sublet, and behind it with a tool; the phases, which are the same both times."""
        self.assertEqual(self.given_plain(*parts), self.given_run(*parts, **more)[0])
        said, events = self.given_run(*parts, tool=TOOL, **more)
        self.assertEqual(self.given_plain(*parts, NVTX_INJECTION64_PATH=TOOL), said)
        self.assertRegex(said, r"tool: copies [1-9]")
        self.assertEqual(self.given_run(*parts, **more)[1], events)
        return events

    def ranges_of_every_kind_of_text_begin_phases(self):
        self.assertEqual(self.given_same("init", "plain"), pairs("gen ascii", "gen w\u00efde \U0001f600"))
        self.assertEqual(self.given_same("init", "ex"), [("opened", "gen ex"), ("opened", "gen ex wide"), ("ended", "gen ex wide"),
                                                         ("ended", "gen ex")])

    def nesting_decides_which_range_ends(self):
        self.assertEqual(self.given_same("init", "nested"), pairs("gen inner", "gen after"))

    def domains_nest_apart(self):
        self.assertEqual(self.given_same("init", "domains"),
                         [("opened", "gen one"), ("opened", "gen two"), ("opened", "gen default"), ("ended", "gen one"),
                          ("ended", "gen two"), ("ended", "gen default")])

    def registered_strings_have_their_names(self):
        self.assertEqual(self.given_same("init", "registered"), pairs("gen registered", "gen registered wide"))

    def started_ranges_end_on_any_thread_and_once(self):
        self.assertEqual(self.given_same("init", "started"),
                         [("opened", "gen start"), ("opened", "gen start ex"), ("opened", "gen start w"), ("ended", "gen start"),
                          ("ended", "gen start w"), ("ended", "gen start ex")])

    def threads_nest_apart(self):
        self.assertEqual(self.given_same("init", "threads"),
                         [("opened", "gen main"), ("opened", "gen thread"), ("opened", "gen left open"), ("ended", "gen main")])

    def attributes_of_other_versions_and_wild_handles_harm_nobody(self):
        self.assertEqual(self.given_same("init", "odd"), pairs("gen of version 1"))

    def each_copy_of_nvtx_is_seen(self):
        events = [("opened", "gen of the program"), *[("opened", "gen of a copy")] * 4, *[("ended", "gen of a copy")] * 4,
                  ("ended", "gen of the program")]
        self.assertEqual(self.given_same("init", "copies"), events)

    def tool_that_differs_by_copy_keeps_its_functions_apart(self):
        plain = self.given_plain("init", "copies", TOOL="other", NVTX_INJECTION64_PATH=TOOL)
        said, events = self.given_run("init", "copies", tool=TOOL, TOOL="other")
        self.assertEqual(plain, said)
        self.assertIn("others 1 3", said)
        self.assertEqual(events.count(("opened", "gen of a copy")), 4)

    def tool_that_takes_little_gets_that_and_the_rest_is_seen(self):
        plain = self.given_plain("init", "plain", "registered", "started", TOOL="few", NVTX_INJECTION64_PATH=TOOL)
        said, events = self.given_run("init", "plain", "registered", "started", tool=TOOL, TOOL="few")
        self.assertEqual(plain, said)
        self.assertIn(" pushes 1 ", said)
        self.assertEqual(len(events), 4 + 4 + 6)

    def tool_that_refuses_is_called_no_more(self):
        plain = self.given_plain("init", "plain", "domains", TOOL="refuse", NVTX_INJECTION64_PATH=TOOL)
        said, events = self.given_run("init", "plain", "domains", tool=TOOL, TOOL="refuse")
        # plainly it is unloaded, so that it tells nothing
        self.assertEqual(plain + "tool: copies 1 extensions 0 marks 0 pushes 0 pops 0 starts 0 ends 0 strings 0 others 0 0\n", said)
        self.assertEqual(len(events), 4 + 6)

    def tool_that_cannot_be_had_is_one_line_and_triggers_work(self):
        for tool, why in (("/nonexistent/tool.so", "cannot be loaded"), (os.path.join(FOLDER, "libno_tool.so"), "is no NVTX tool")):
            said, events = self.given_run("init", "copies", tool=tool)
            self.assertEqual(len(events), 10)
            self.assertEqual(self.stderr.count("'%s', which NVTX_INJECTION64_PATH named, %s: it sees no NVTX ranges" % (tool, why)), 1)

    def tool_switched_off_is_not_said(self):
        _, events = self.given_run("init", "plain", tool="./.")
        self.assertEqual(len(events), 4)
        self.assertNotIn("NVTX_INJECTION64_PATH", self.stderr)

    def extension_of_the_tool_is_the_tools(self):
        self.given_same("init", "extension")
        said, _ = self.given_run("init", "extension", "enabled", tool=TOOL)
        self.assertEqual(said, self.given_plain("init", "extension", "enabled", NVTX_INJECTION64_PATH=TOOL))
        self.assertIn("schema 55\nenabled 33\n", said)
        self.assertIn("extensions 1 ", said)

    def programs_that_ask_whether_ranges_are_wanted_hear_yes(self):
        """Some make none else. With a tool that has no extension, NVTX says so itself."""
        self.assertEqual(self.given_run("init", "extension", "enabled")[0], "schema 0\nenabled 1\n")
        self.assertTrue(self.given_run("init", "extension", "enabled", tool=TOOL, TOOL="refuse")[0].startswith("schema 0\nenabled 1\n"))

    def role_decides(self):
        _, events = self.given_run("init", "plain", role="b")
        self.assertEqual([phase for phase, _ in events], ["other", "ended"] * 2)

    def policy_without_such_triggers_lets_all_pass(self):
        self.given_policy(QUIET)
        self.assertEqual(self.given_same("init", "plain", "started", "domains", "registered"), [])

    def range_that_was_open_before_the_join_is_seen_to_end(self):
        self.assertEqual(self.given_same("before", "init", "pop", "plain"),
                         [("opened", "gen open before cuInit"), *pairs("gen over before cuInit"), ("ended", "gen open before cuInit"),
                          *pairs("gen ascii", "gen w\u00efde \U0001f600")])

    def process_that_never_initialises_the_driver_begins_phases_and_is_as_plain(self):
        """Where a framework's phases live may be a process without a GPU."""
        events = self.given_same("plain", "started", "domains", "registered", "threads", "copies", "fork")
        self.assertEqual(events[:4], pairs("gen ascii", "gen w\u00efde \U0001f600"))

    def forked_child_begins_no_phase(self):
        self.assertEqual(self.given_same("init", "fork"), pairs("gen before the fork"))

    def two_runs_inside_each_other_keep_the_tool(self):
        inner = [harness.EXE, "run", "--sim=64MiB", "--"]
        said, events = self.given_run("init", "plain", before=inner, tool=TOOL)
        self.assertEqual(said, self.given_plain("init", "plain", NVTX_INJECTION64_PATH=TOOL))
        self.assertEqual(len(events), 4)

    def variable_that_is_empty_finds_the_preloaded_library(self):
        _, events = self.given_run("init", "plain", before=["env", "NVTX_INJECTION64_PATH="])
        self.assertEqual(len(events), 4)
        self.assertNotIn("waits for NVTX ranges", self.stderr)

    def variable_taken_by_another_is_said_where_the_policy_waits_for_ranges(self):
        said, events = self.given_run("init", "plain", before=["env", "NVTX_INJECTION64_PATH=" + TOOL])
        self.assertEqual(said.splitlines()[-1], "tool: copies 1 extensions 0 marks 1 pushes 2 pops 2 starts 0 ends 0 strings 0 others 0 0")
        self.assertEqual(events, [])
        self.assertEqual(self.stderr.count("the policy waits for NVTX ranges, and NVTX_INJECTION64_PATH is '%s'" % TOOL), 1)
        self.given_run("init", "plain", before=["env", "-u", "NVTX_INJECTION64_PATH"])
        self.assertIn("NVTX_INJECTION64_PATH is not set", self.stderr)
        self.given_policy(QUIET)
        self.sublet("ctl", "stop")
        self.given_run("init", "plain", before=["env", "-u", "NVTX_INJECTION64_PATH"])
        self.assertNotIn("NVTX_INJECTION64_PATH", self.stderr)

    def process_outside_a_session_has_its_tool_alone(self):
        """The variables of a session that is not meant for it, as a child with a cleaned environment has them."""
        for more in ({}, {"SUBLET_NVTX_NEXT": TOOL}):
            said = self.given_plain("init", "plain", "registered", LD_PRELOAD=harness.LIBRARY, NVTX_INJECTION64_PATH=harness.LIBRARY,
                                    **more)
            tools = {"NVTX_INJECTION64_PATH": TOOL} if more else {}
            self.assertEqual(said, self.given_plain("init", "plain", "registered", **tools))

    def library_that_is_loaded_by_the_variable_alone_harms_nobody(self):
        said, events = self.given_run("init", "plain", "domains", before=["env", "-u", "LD_PRELOAD"])
        self.assertEqual(said, self.given_plain("init", "plain", "domains"))
        # to its session it is one without a GPU: it has none of its memory in Sublet's hands
        self.assertEqual(events[:4], pairs("gen ascii", "gen w\u00efde \U0001f600"))

    def given_python(self, program, env):
        """The phases that a program in Python begins."""
        got = subprocess.run([harness.EXE, "run", "--sim=64MiB", "--policy", self.policy, "--role", "a", "--log", "session:debug", "--",
                              sys.executable, "-c", "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n" + program],
                             env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(got.returncode, 0, got)
        return self.given_events(got.stderr)

    def library_of_version_2_is_seen(self):
        path = os.environ.get("SUBLET_TEST_NVTX_2", "libnvToolsExt.so.1")
        try:
            ctypes.CDLL(path)
        except OSError:
            raise unittest.SkipTest("no libnvToolsExt.so.1; CUDA up to 12 has it, or name it in SUBLET_TEST_NVTX_2")
        events = self.given_python("nvtx = ctypes.CDLL('%s')\nnvtx.nvtxRangePushA(b'gen 2')\nnvtx.nvtxRangePop()\n"
                                   "nvtx.nvtxRangeStartA.restype = ctypes.c_uint64\n"
                                   "nvtx.nvtxRangeEnd(ctypes.c_uint64(nvtx.nvtxRangeStartA(b'gen 2 start')))\n" % path, self.env)
        self.assertEqual(events, pairs("gen 2", "gen 2 start"))

    def python_package_is_seen(self):
        path = os.environ.get("SUBLET_TEST_PYTHON_NVTX", "")
        env = dict(self.env, PYTHONPATH=path) if path else self.env
        if subprocess.run([sys.executable, "-c", "import nvtx"], env=env, capture_output=True).returncode:
            raise unittest.SkipTest("no Python package nvtx; pip has it, or name its folder in SUBLET_TEST_PYTHON_NVTX")
        events = self.given_python("import nvtx\nwith nvtx.annotate('gen annotate', domain='mine'):\n    nvtx.push_range('other')\n"
                                   "    nvtx.pop_range()\nnumber = nvtx.start_range('gen start')\nnvtx.end_range(number)\n", env)
        self.assertEqual(events, pairs("gen annotate", "gen start"))


if __name__ == "__main__":
    harness.main()
