#!/usr/bin/env python3
"""Traces: what `sublet run --trace` writes and `sublet trace` says of it. Every number of a summary is computed once more from the events
by this test. The reader alone, on files of every kind, is tested in tests/unit/test_trace.c."""
import glob
import json
import os
import re
import signal

import harness
import session
from session import MIB

PLACES = ["device", "parked", "host", "empty"]
ROW_BYTES, HEADER_BYTES, TEXTS_BYTES = 64, 4096, 1 << 20  # lifecycle/trace_format.h


class Replay:
    """The events once more, by hand: bytes over time for each phase, role and object."""

    def __init__(self, events):
        self.phase, self.live, self.bytes, self.since = {}, {}, {}, {}
        self.area, self.time, self.peak, self.moved, self.count = {}, {}, {}, {}, {}
        self.device, self.native, self.device_peak, self.device_peak_ns = 0, {}, 0, 0
        self.holders, self.over = {}, set()
        self.events = {}
        self.now = 0
        for event in events:
            self.now = event["time_ns"]
            self.events[event["event"]] = self.events.get(event["event"], 0) + 1
            self.take(event)
        for key in list(self.bytes):
            self.settle(key)

    def settle(self, key):
        """Up to now series `key` (pid, role, object) was as it was."""
        pid, role, name = key
        where = (self.phase.get(pid), role, name)
        took = 0 if pid in self.over else self.now - self.since.get(key, self.now)
        self.time[where] = self.time.get(where, 0) + took
        area = self.area.setdefault(where, dict.fromkeys(PLACES, 0))
        for place in PLACES:
            area[place] += self.bytes[key][place] * took
        self.since[key] = self.now

    def reach(self, key):
        where = (self.phase.get(key[0]), *key[1:])
        peak = self.peak.setdefault(where, dict.fromkeys(PLACES, 0))
        for place in PLACES:
            peak[place] = max(peak[place], self.bytes[key][place])

    def change(self, key, size, come, go):
        if key not in self.bytes:
            self.bytes[key], self.since[key] = dict.fromkeys(PLACES, 0), self.now
        self.settle(key)
        for place, way in ((go, -1), (come, 1)):
            if place:
                self.bytes[key][place] += way * size
                self.device += way * size if place == "device" else 0
        self.reach(key)
        self.top()

    def top(self):
        if self.device + sum(self.native.values()) > self.device_peak:
            self.device_peak, self.device_peak_ns = self.device + sum(self.native.values()), self.now
            self.holders = {(key[0], key[2]): b["device"] for key, b in self.bytes.items() if b["device"]}

    def take(self, event):
        kind, pid = event["event"], event["pid"]
        key = (pid, event["role"], event["object"])
        one = (pid, event["allocation"])
        if kind == "phase":
            mine = [k for k in self.bytes if k[0] == pid]
            for k in mine:
                self.settle(k)
            self.phase[pid] = event["phase"]
            for k in mine:
                self.reach(k)
        elif kind == "allocate":
            self.live[one] = (key, event["bytes"], event["to"])
            self.change(key, event["bytes"], event["to"], None)
            where = (self.phase.get(pid), *key[1:])
            self.count[where] = self.count.get(where, 0) + 1
        elif kind == "free":
            key, size, place = self.live.pop(one)
            self.change(key, size, None, place)
        elif kind == "move":
            _, size, place = self.live[one]
            assert place == event["from"], event
            self.live[one] = (key, size, event["to"])
            self.change(key, size, event["to"], place)
            route = (self.phase.get(pid), *key[1:], event["from"], event["to"])
            count, total = self.moved.get(route, (0, 0))
            self.moved[route] = (count + 1, total + size)
        elif kind == "native":
            self.native[pid] = event["bytes"]
            self.top()
        elif kind == "end" or kind == "death":
            gone = pid if kind == "end" else event["allocation"]
            for k in [k for k in self.bytes if k[0] == gone]:
                for place in PLACES:
                    if self.bytes[k][place]:
                        self.change(k, self.bytes[k][place], None, place)
                self.settle(k)
            self.over.add(gone)
            self.native.pop(gone, None)


# Allocates, frees, and has memory that is too small to be managed.
PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *words):
    result = getattr(cuda, name)(*words)
    assert result == 0, (name, result)
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
def allocate(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address
small = allocate(65536)
kept = allocate(5 << 20)
for _ in range(3):
    gone = allocate((8 << 20) + 1)
    call("cuMemFree_v2", gone)
call("cuMemFree_v2", small)
"""


class TraceCase(session.Case):
    def setUp(self):
        super().setUp()
        self.trace = os.path.join(self.folder, "t.trace")

    def given_events(self, *words):
        got = self.sublet("trace", "cat", "--json", *words, self.trace)
        self.assertEqual(got.returncode, 0, got)
        return [json.loads(line) for line in got.stdout.splitlines()]

    def given_summary(self):
        got = self.sublet("trace", "summary", "--json", self.trace)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return json.loads(got.stdout)

    def given_run(self):
        """Two programs that trade the device twice; everything is over at the end."""
        rollout = self.given_holder((64, 16, 16, 4), "--policy", self.policy, "--trace", self.trace, "--role", "rollout")
        train = self.given_holder((96,), "--trace", self.trace, "--role", "train", "--callers")
        for phase in ("decode", "update", "decode"):
            got = self.sublet("phase", phase)
            self.assertEqual(got.returncode, 0, got)
            self.assertEqual(rollout.say("alloc"), "allocated")
        self.assertEqual((rollout.end(), train.end()), (0, 0))
        self.sublet("ctl", "stop")
        self.eventually(lambda: self.given_events("--event", "stopped"), "the end of the coordinator")
        return rollout.pid, train.pid

    def files(self, kind="proc"):
        return sorted(glob.glob(os.path.join(self.trace, kind + "-*.trace")))

    def given_spoilt(self, path, offset, data):
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def given_program(self, *options, env=None, program=PROGRAM):
        path = os.path.join(self.folder, "program.py")
        with open(path, "w") as text:
            text.write(program)
        got = self.sublet("run", "--trace", self.trace, "--sim=1GiB", *options, "--", "python3", path, env=env or self.env)
        self.assertEqual(got.returncode, 0, got)
        return got


class Written(TraceCase):
    def run_makes_a_folder_with_manifest_and_a_file_for_each_process(self):
        pids = self.given_run()
        with open(os.path.join(self.trace, "manifest.json")) as text:
            manifest = json.load(text)
        self.assertEqual(sorted(int(os.path.basename(f).split("-")[1]) for f in self.files()), sorted(pids))
        self.assertEqual(len(self.files("coordinator")), 1)
        self.assertEqual(manifest["policy"]["text"], session.POLICY)
        self.assertEqual(manifest["policy"]["roles"], ["train", "rollout"])
        self.assertEqual(manifest["policy"]["phases"], ["decode", "update"])
        self.assertIn({"name": "kv_cache", "class": "regenerable"}, manifest["policy"]["objects"])
        self.assertEqual(manifest["session"], self.session)
        self.assertEqual(manifest["clock"]["source"], "CLOCK_MONOTONIC")
        self.assertEqual(os.stat(self.trace).st_mode & 0o777, 0o700)
        for file in self.files():
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o400)
            self.assertEqual(os.stat(file).st_size, HEADER_BYTES + TEXTS_BYTES + (8 << 20))

    def run_without_trace_leaves_no_file(self):
        self.given_holder((4,)).end()
        self.assertFalse([f for _, _, names in os.walk(self.folder) for f in names if f.endswith(".trace")])

    def size_of_the_ring_is_set_by_a_variable_and_the_lost_are_counted(self):
        env = dict(self.env, SUBLET_TRACE_SIZE="4KiB")
        program = PROGRAM.replace("range(3)", "range(40)")
        self.given_program(env=env, program=program)
        got = self.sublet("trace", "summary", "--json", self.trace)
        lost = json.loads(got.stdout)["processes"][0]["lost_events"]
        self.assertGreater(lost, 40)
        self.assertIn("first %d events are overwritten" % lost, got.stderr)
        self.assertEqual(len(self.given_events()), 64)

    def folder_of_another_session_is_refused(self):
        self.given_program()
        other = os.path.join(self.folder, "other")
        os.mkdir(other, 0o700)
        got = self.refuses(1, "name another folder", "run", "--session", other, "--trace", self.trace, "--sim=1GiB", "--", "true")
        self.assertIn("trace of session '%s'" % self.session, got.stderr)

    def folder_that_cannot_be_made_is_refused(self):
        self.refuses(1, "name one whose parent is there", "run", "--trace", "/nonexistent/x/y", "--sim=1GiB", "--", "true")

    def size_that_is_none_is_refused(self):
        self.refuses(1, "is not a size", "run", "--trace", self.trace, "--sim=1GiB", "--", "true",
                     env=dict(self.env, SUBLET_TRACE_SIZE="many"))

    def folder_that_goes_before_a_process_starts_costs_one_line(self):
        env = dict(self.env, SUBLET_TRACE="/nonexistent/trace")
        program = os.path.join(self.folder, "program.py")
        with open(program, "w") as text:
            text.write(PROGRAM)
        got = self.sublet("run", "--sim=1GiB", "--", "env", "SUBLET_TRACE=/nonexistent/trace", "python3", program)
        self.assertEqual(got.returncode, 0, got)
        self.assertEqual(got.stderr.count("nothing is traced"), 1, got.stderr)

    def forked_child_leaves_the_trace_of_its_parent_alone(self):
        holder = self.given_holder((8,), "--trace", self.trace)
        self.assertTrue(holder.say("fork"))
        self.assertEqual(holder.end(), 0)
        self.assertEqual({event["pid"] for event in self.given_events()}, {holder.pid})
        self.assertEqual(len(self.files()), 1)

    def killed_process_leaves_a_trace_that_is_read(self):
        holder = self.given_holder((64, 8), "--policy", self.policy, "--trace", self.trace, "--role", "rollout")
        self.assertEqual(self.sublet("phase", "update").returncode, 0)
        holder.child.send_signal(signal.SIGKILL)
        holder.child.wait()
        self.eventually(lambda: "death" in {e["event"] for e in self.given_events()}, "its death in the coordinator's file")
        summary = self.given_summary()
        mine = [p for p in summary["processes"] if p["pid"] == holder.pid][0]
        self.assertEqual(mine["damaged_events"], 0)
        self.assertEqual(summary["events"].get("end", 0), 0)
        self.assertEqual(summary["deaths"], 1)
        self.assertEqual(summary["events"]["allocate"], 2)


class Summary(TraceCase):
    def given_agreement(self, events, summary):
        """Each number of the summary, from the events."""
        mine = Replay(events)
        for row in summary["objects"]:
            where = (row["phase"], row["role"], row["object"])
            self.assertEqual(row["time_ns"], mine.time[where], where)
            for place in PLACES:
                mean = mine.area[where][place] / row["time_ns"] if row["time_ns"] else row["peak_bytes"][place]
                self.assertLessEqual(abs(row["mean_bytes"][place] - mean), 1 + mean * 1e-9, (where, place))
                self.assertEqual(row["peak_bytes"][place], mine.peak.get(where, {}).get(place, 0), (where, place))
            self.assertEqual(row["allocated"], mine.count.get(where, 0), where)
            told = {(m["from"], m["to"]): (m["count"], m["bytes"]) for m in row["moved"]}
            self.assertEqual(told, {k[3:]: v for k, v in mine.moved.items() if k[:3] == where}, where)
        self.assertEqual({(r["phase"], r["role"], r["object"]) for r in summary["objects"]}, set(mine.time))
        self.assertEqual(summary["events"], mine.events)
        (device,) = summary["devices"]
        self.assertEqual((device["peak_bytes"], device["peak_at_ns"]), (mine.device_peak, mine.device_peak_ns))
        holders = {(h["pid"], h["object"]): h["bytes"] for h in device["holders"] if h["object"] != "native"}
        self.assertEqual(holders, mine.holders)
        self.assertEqual(sum(h["bytes"] for h in device["holders"]), device["peak_bytes"])
        return mine

    def run_of_two_roles_is_summed_up_as_the_events_say(self):
        rollout, train = self.given_run()
        events, summary = self.given_events(), self.given_summary()
        mine = self.given_agreement(events, summary)
        # and as the policy has it
        moved = {(k[0], k[2], k[3], k[4]): v for k, v in mine.moved.items()}
        self.assertEqual(moved[("decode", "kv_cache", "device", "empty")], (1, 64 * MIB))
        self.assertEqual(moved[("update", "kv_cache", "empty", "device")], (1, 64 * MIB))
        self.assertEqual(moved[("decode", "scratch", "device", "parked")], (2, 32 * MIB))
        self.assertGreaterEqual(mine.device_peak, (64 + 32 + 4 + 96) * MIB)
        barriers = {b["phase"]: b for b in summary["barriers"]}
        self.assertEqual({phase: b["count"] for phase, b in barriers.items()}, {"decode": 2, "update": 1})
        for name, barrier in barriers.items():
            whole = [e["duration_ns"] for e in events if e["event"] == "barrier" and e["phase"] == name]
            self.assertEqual((barrier["sum_ns"], barrier["most_ns"]), (sum(whole), max(whole)))
            parts = sum(e["duration_ns"] for e in events if e["event"] == "barrier step" and e["phase"] == name)
            self.assertEqual(sum(barrier["steps_ns"].values()), parts)
            self.assertLessEqual(parts, sum(whole))
        self.assertIn({"role": "train", "object": "defaults", "peak_bytes": 96 * MIB}, summary["never_moved"])
        self.assertEqual({p["pid"] for p in summary["processes"] if not p["coordinator"]}, {rollout, train})
        self.assertEqual(summary["met_late"], 0)

    def program_that_frees_is_summed_up_as_the_events_say(self):
        self.given_program()
        events = self.given_events()
        mine = self.given_agreement(events, self.given_summary())
        self.assertEqual((mine.events["allocate"], mine.events["free"]), (4, 3))
        big = [e for e in events if e["event"] == "allocate"][-1]
        self.assertEqual((big["bytes"], big["bytes"] - big["extra"]), (10 * MIB, 8 * MIB + 1))
        self.assertIn(65536, [e["bytes"] for e in events if e["event"] == "native"])
        self.assertEqual(mine.native, {})

    def waits_are_those_of_the_gate(self):
        self.given_run()
        events, summary = self.given_events(), self.given_summary()
        for field, event in (("held_ns", "held"), ("shut_ns", "opened"), ("waited_ns", "waited")):
            self.assertEqual(sum(w[field] for w in summary["waits"]), sum(e["duration_ns"] for e in events if e["event"] == event), field)
        self.assertGreater(sum(w["shut_ns"] for w in summary["waits"]), 0)

    def text_names_phases_objects_and_holders(self):
        self.given_run()
        got = self.sublet("trace", "summary", env=dict(self.env, SUBLET_TRACE=self.trace))
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for part in ("phase decode\n", "kv_cache", "device -> empty: 64.00 MiB in 1 move", "barriers\n", "never moved\n", ": peak "):
            self.assertIn(part, got.stdout)

    def trace_is_read_while_it_is_written(self):
        holder = self.given_holder((8,), "--trace", self.trace)
        self.assertEqual(self.given_summary()["events"]["allocate"], 1)
        self.assertEqual(holder.say("alloc"), "allocated")
        self.assertEqual(self.given_summary()["events"]["allocate"], 2)
        holder.end()


class Cat(TraceCase):
    def filters_leave_what_they_name(self):
        rollout, train = self.given_run()
        every = self.given_events()
        self.assertEqual([e["time_ns"] for e in every], sorted(e["time_ns"] for e in every))
        half = every[len(every) // 2]["time_ns"] / 1e9
        for words, holds in ((["--role", "train"], lambda e: e["role"] == "train"),
                             (["--pid", str(rollout)], lambda e: e["pid"] == rollout),
                             (["--object", "scratch"], lambda e: e["object"] == "scratch"),
                             (["--event", "barrier-step"], lambda e: e["event"] == "barrier step"),
                             (["--since", "%.9f" % half], lambda e: e["time_ns"] / 1e9 >= float("%.9f" % half)),
                             (["--until", "%.9f" % half], lambda e: e["time_ns"] / 1e9 <= float("%.9f" % half))):
            chosen = self.given_events(*words)
            self.assertEqual(chosen, [e for e in every if holds(e)], words)
            self.assertTrue(0 < len(chosen) < len(every), words)
        text = self.sublet("trace", "cat", self.trace).stdout.splitlines()
        self.assertEqual(len(text), len(every))

    def events_are_listed_and_slips_refused(self):
        self.given_program()
        listed = self.sublet("trace", "cat", "--event", "help").stdout.split("\n")
        self.assertIn("soft service", listed)
        self.refuses(2, "no event 'moove'", "trace", "cat", "--event", "moove", self.trace)
        self.refuses(2, "no process id", "trace", "cat", "--pid", "me", self.trace)
        self.refuses(2, "did you mean 'summary'", "trace", "sumary", self.trace)
        self.refuses(2, "which trace?", "trace", "cat")
        self.refuses(2, "one too many", "trace", "cat", self.trace, self.trace)
        self.refuses(2, "trace what?", "trace")


class Words(harness.Case):
    def help_of_each_word_follows_the_house_style(self):
        with open(os.path.join(harness.SOURCE, "tools/cmd_trace.c")) as text:
            words = re.findall(r'\{"(\w+)", trace_\w+\}', text.read())
        self.assertGreaterEqual(len(words), 4)
        for word in words:
            got = self.sublet("trace", word, "--help")
            self.assertEqual((got.returncode, got.stderr), (0, ""), word)
            lines = got.stdout.splitlines()
            self.assertTrue(lines[0].startswith("usage: sublet trace %s" % word), lines)
            self.assertTrue(lines[2].endswith("."), lines)
            for part in ("options:", "environment:", "example:"):
                self.assertIn(part, lines)
            self.assertLessEqual(max(map(len, lines)), 130, word)
            with open(os.path.join(harness.SOURCE, "tools/trace_%s.c" % word)) as text:
                for option in re.findall(r'\{"([a-z-]+)", (?:no|required|optional)_argument', text.read()):
                    self.assertIn("--" + option, got.stdout)
            self.assertEqual(self.sublet("trace", word, "--nonsense").returncode, 2)


class Objects(TraceCase):
    def groups_are_those_of_size_and_caller(self):
        self.given_program("--callers", "--role", "train")
        got = self.sublet("trace", "objects", "--json", self.trace)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        groups = {g["size_bytes"]: g for g in json.loads(got.stdout)}
        big, kept = groups[8 * MIB + 1], groups[5 * MIB]
        self.assertEqual((big["made"], big["freed"], big["peak_live"], big["live_at_end"]), (3, 3, 1, 0))
        self.assertEqual((kept["made"], kept["freed"], kept["peak_live"]), (1, 0, 1))
        self.assertGreater(big["freed_lived_ns"], 0)
        self.assertTrue(any(line.startswith("thread: ") for line in kept["caller"]), kept)

    def suggestion_is_a_policy_that_check_takes(self):
        self.given_program("--callers", "--role", "train")
        got = self.sublet("trace", "objects", "--suggest", self.trace)
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("\nobjects:\n", got.stdout)
        suggested = os.path.join(self.folder, "suggested.yaml")
        with open(suggested, "w") as text:
            text.write(got.stdout)
        checked = self.sublet("check", suggested)
        self.assertEqual(checked.returncode, 0, checked)
        self.assertIn("role: train", got.stdout)

    def suggestion_from_nothing_is_refused(self):
        self.given_program(program=PROGRAM.split("small =")[0])
        self.refuses(1, "nothing was allocated", "trace", "objects", "--suggest", self.trace)


class Perfetto(TraceCase):
    def given_export(self):
        path = os.path.join(self.folder, "out.json")
        got = self.sublet("trace", "export", "--perfetto", "-o", path, self.trace)
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""), got)
        with open(path) as text:
            return json.load(text)

    def export_has_the_fields_that_the_format_requires(self):
        """Trace Event Format: each event has ph, pid, tid, ts, name; X a duration; C numbers; B and E match; s and f pair."""
        rollout, train = self.given_run()
        events = self.given_export()["traceEvents"]
        open_slices, flows, until = {}, {}, {}
        for event in events:
            for field, kind in (("ph", str), ("pid", int), ("tid", int), ("ts", (int, float)), ("name", str)):
                self.assertIsInstance(event.get(field), kind, event)
            self.assertGreaterEqual(event["ts"], 0)
            track = (event["pid"], event["tid"])
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0, event)
                self.assertGreaterEqual(event["ts"], until.get(track, 0) - 1e-3, event)
                until[track] = event["ts"] + event["dur"]
            elif event["ph"] == "C":
                self.assertTrue(event["args"], event)
                for value in event["args"].values():
                    self.assertIsInstance(value, int, event)
                    self.assertGreaterEqual(value, 0, event)
            elif event["ph"] == "B":
                open_slices.setdefault(track, []).append(event["name"])
            elif event["ph"] == "E":
                self.assertEqual(open_slices[track].pop(), event["name"])
            elif event["ph"] in "sf":
                flows.setdefault(event["id"], []).append(event["ph"])
                self.assertIn("cat", event)
            else:
                self.assertIn(event["ph"], "Mi", event)
                if event["ph"] == "M":
                    self.assertIsInstance(event["args"]["name"], str)
        self.assertEqual([names for names in open_slices.values() if names], [])
        moves = [e for e in self.given_events("--event", "move")]
        self.assertEqual(list(flows.values()), [["s", "f"]] * len(moves))
        self.assertTrue(moves)
        begun = [e["name"] for e in events if e["ph"] == "B" and e["pid"] == rollout]
        self.assertEqual(begun, ["decode", "update", "decode"])
        # what counters end with is what the model ends with: all is gone
        last = {(e["pid"], e["name"]): e["args"]["bytes"] for e in events if e["ph"] == "C" and ": " in e["name"]}
        self.assertEqual(set(last.values()), {0})
        most = max(e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == train and e["name"] == "device: all")
        self.assertEqual(most, 96 * MIB)

    def export_asks_for_the_form(self):
        self.refuses(2, "--perfetto", "trace", "export", self.trace)


class Damaged(TraceCase):
    def nothing_is_refused_with_the_next_step(self):
        os.mkdir(self.trace)
        self.refuses(1, "sublet run --trace", "trace", "summary", self.trace)
        self.refuses(1, "No such file", "trace", "summary", os.path.join(self.folder, "nowhere"))

    def foreign_file_is_refused(self):
        self.refuses(1, "no trace file of Sublet", "trace", "summary", self.policy)

    def newer_file_is_refused_and_the_others_read(self):
        self.given_run()
        newer, other = self.files()
        self.given_spoilt(newer, 8, (99).to_bytes(4, "little"))
        self.refuses(1, "of trace version 99", "trace", "cat", newer)
        got = self.sublet("trace", "summary", "--json", self.trace)
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("warning: '%s' is of trace version 99" % newer, got.stderr)
        self.assertEqual(len([p for p in json.loads(got.stdout)["processes"] if not p["coordinator"]]), 1)

    def file_cut_short_gives_what_is_left(self):
        self.given_program()
        (file,) = self.files()
        whole = self.given_events()
        os.chmod(file, 0o600)
        os.truncate(file, HEADER_BYTES + TEXTS_BYTES + 4 * ROW_BYTES + 5)
        got = self.sublet("trace", "cat", "--json", self.trace)
        self.assertEqual(got.returncode, 0, got)
        self.assertEqual(got.stdout.count("\n"), 4)
        self.assertIn("%d events are damaged" % (len(whole) - 4), got.stderr)
        os.truncate(file, 100)
        self.refuses(1, "cut short", "trace", "cat", file)

    def damaged_rows_are_left_out_and_counted(self):
        self.given_program()
        (file,) = self.files()
        whole = self.given_events()
        for row in (2, 5):
            self.given_spoilt(file, HEADER_BYTES + TEXTS_BYTES + row * ROW_BYTES + 20, b"\xff\x17")
        got = self.sublet("trace", "cat", "--json", self.trace)
        self.assertEqual(got.stdout.count("\n"), len(whole) - 2)
        self.assertIn("2 events are damaged", got.stderr)
        self.assertEqual(self.sublet("trace", "summary", self.trace).returncode, 0)

    def every_page_of_garbage_is_survived(self):
        """Pages of the file, one after the other, overwritten with noise."""
        self.given_run()
        (file, _) = self.files()
        with open(file, "rb") as text:
            good = text.read()
        os.chmod(file, 0o600)
        noise = bytes((i * 197 + (i >> 3) * 31) & 255 for i in range(4096))
        for offset in (64, 256, 1024, HEADER_BYTES, HEADER_BYTES + 100, HEADER_BYTES + TEXTS_BYTES, HEADER_BYTES + TEXTS_BYTES + 777):
            with open(file, "wb") as to:
                to.write(good[:offset] + noise + good[offset + len(noise):])
            for words in (["summary"], ["summary", "--json"], ["cat"], ["objects"], ["export", "--perfetto"]):
                got = self.sublet("trace", *words, self.trace, errors="replace")
                self.assertIn(got.returncode, (0, 1), (offset, words, got.stderr[-500:]))


if __name__ == "__main__":
    harness.main()
