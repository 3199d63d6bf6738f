#!/usr/bin/env python3
"""Faults that Sublet had, one case each."""
import re

import neighbours
import harness


class Faults(neighbours.Case):
    def given_happened(self, *words, program="faults", **more):
        """What the program did inside Sublet's calls: how often, with Sublet."""
        said = self.same_with_and_without(program, *words, **more)
        return said, int(re.search(r"happened (\d+) times", self.stderr).group(1))

    def log_line_into_a_closed_pipe_kills_nobody(self):
        self.same_with_and_without("faults", "closed_pipe", SUBLET_LOG="*:debug")

    def fork_in_a_signal_handler_within_a_wrapper(self):
        """At each driver call that a wrapper makes, its own and those passed on; the child ends at once, or returns from
        the handler into the wrapper."""
        for symbol in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuCtxRecordEvent",
                       "cuEventQuery", "cuMemUnmap", "cuMemRelease"):
            for words in ([symbol], [symbol, "child_goes_on"]):
                # events are what tells an asynchronous free that all is done
                for free in ("async",) if "Event" in symbol else ("async", "sync"):
                    said, times = self.given_happened("fork_in_call", *words, SUBLET_FREE=free, SUBLET_CACHE="0")
                    self.assertIn("children that ended badly: 0", said)
                    # a child goes on in the program's thread only, and the pages of an asynchronous free are the helper's
                    if len(words) == 1 or symbol in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemSetAccess"):
                        self.assertGreater(times, 0, (symbol, free))
                    self.assertIn("0 B at the end", self.stderr)

    def fork_beside_another_threads_call(self):
        """The child goes on with its wrapper, without the thread that held locks, or that it waited for."""
        for way, free in (("locks", "async"), ("waits", "sync")):
            said, times = self.given_happened(way, program="forks", SUBLET_FREE=free, allocations=2)
            self.assertIn("children that ended badly: 0", said, way)
            self.assertEqual(times, 1, way)

    def driver_that_calls_back_into_the_program(self):
        for free in ("async", "sync"):
            said, times = self.given_happened("re_entry", SUBLET_FREE=free, allocations=4)
            self.assertIn("wrong answers inside: 0", said)
            self.assertGreater(times, 20)

    def pages_held_by_a_retained_handle_stay_the_holders(self):
        said, times = self.given_happened("retained_handle", allocations=9)
        self.assertIn("held pages changed, or lost: 0", said)
        self.assertEqual(times, 1)

    def free_on_a_stream_beside_a_capture(self):
        said = self.same_with_and_without("faults", "free_beside_capture", allocations=4)
        self.assertEqual(set(re.findall(r"cuMemFreeAsync (\d+)", said)), {"0"})

    def peer_whose_rights_are_refused_is_not_enabled(self):
        """Its kernels would have touched what they have no right to. Asked again the driver may have room."""
        self.same_with_and_without("faults", "peer_refused", allocations=2, SUBLET_SIM_DEVICES="2")
        self.assertIn("enabled 0\nrights 0 0\nagain 704\n", self.plain_stderr)
        self.assertIn("enabled 2\nrights 0 0\nagain 0\nrights 3 3\n", self.stderr)

    def dlerror_stays_clean_on_a_driver_that_lacks_names(self):
        said = self.same_with_and_without("names", "clean_dlerror", driver=self.path("old_driver"))
        self.assertIn("dlerror: nothing\na name that this driver lacks: no\n", said)

    def driver_opened_local_is_nobody_elses(self):
        said = self.same_with_and_without("names", "opened_locally")
        self.assertIn("cuInit of everybody: no\ndlerror says so: yes\ncuInit behind: no\n", said)

    def plugin_bound_past_the_preload(self):
        """RTLD_DEEPBIND. Its calls are the driver's own, and what it frees of Sublet's gets the driver's refusal; nothing
        else goes wrong, and it is said."""
        self.same_with_and_without("deepbind", self.path("libplugin.so"), allocations=7)
        self.assertIn("free of the program's memory by the plugin: 0\nby the program: 1\n", self.plain_stderr)
        self.assertIn("free of the program's memory by the plugin: 1\nby the program: 0\n", self.stderr)
        self.assertEqual(re.findall(r"framework: '(\S*)' is bound to the driver itself \(cu\w+, \d+ in all", self.stderr),
                         [self.path("libplugin.so")], self.stderr)

    def pointers_resolved_before_the_preload_was_asked_are_said(self):
        """A program whose cuInit came by a dlsym that nobody sees; what it does by way of Sublet is served."""
        self.same_with_and_without("deepbind", self.path("libplugin.so"), "init_past")
        self.assertIn("framework: cuInit was called past Sublet", self.stderr)

    def programs_that_call_through_sublet_hear_nothing(self):
        for words in (("linked",), ("work", "proc"), ("work", "old")):
            self.same_with_and_without(*words, SUBLET_LOG="stats:info,shim:warn")
            self.assertNotIn("framework:", self.stderr)


if __name__ == "__main__":
    harness.main()
