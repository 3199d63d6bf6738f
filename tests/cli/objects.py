#!/usr/bin/env python3
"""Objects told apart by who allocates: rules that ask for library, thread, tag and Python frames in an unmodified program, what
`sublet ctl objects --allocations` shows of each allocation, and the policy that `--suggest` makes of them."""
import json
import os
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile

import harness
import protocol
import session
from protocol import CLIENT, Peer, message
from session import MIB

HERE = os.path.dirname(os.path.abspath(__file__))
RULES = """version: 1
roles: [train]
phases: [run]
triggers: [{enter: run, command: true}]
objects:
"""


def rule(name, match):
    return "  - {name: %s, match: %s, class: permanent, resident: all}\n" % (name, match)


class Maker:
    """maker.py under `sublet run`."""

    def __init__(self, case, *options, env=None):
        words = [harness.EXE, "run", "--session", case.session, "--sim=1GiB", "--role", "train", *options, "--", sys.executable,
                 os.path.join(HERE, "maker.py"), os.environ["SUBLET_TEST_LOCKER"]]
        self.child = subprocess.Popen(words, env=env or case.env, cwd=case.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=open(os.path.join(case.folder, "maker.err"), "a"), text=True)
        self.pid = self.child.pid
        case.children.append(self.child)
        self.first = self.child.stdout.readline().strip()

    def makes(self, word):
        """Addresses of what it made."""
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().split()


class Case(session.Case):
    def given_rules(self, *rules):
        with open(self.policy, "w") as text:
            text.write(RULES + "".join(rules))
        self.given_served()

    def given_maker(self, *options, env=None):
        maker = Maker(self, *options, env=env)
        self.assertEqual(maker.first, "ready")
        return maker

    def given_allocations(self, *words):
        """Rows by address."""
        client, = self.given_json("objects", "--allocations", *words)
        return {row["address"]: row for row in client["allocations"]}

    def given_said(self):
        with open(os.path.join(self.folder, "maker.err")) as text:
            return text.read()

    def given_objects_of(self, addresses):
        rows = self.given_allocations()
        return [rows[address]["object"] for address in addresses]


class Matches(Case):
    def python_frame(self):
        self.given_rules(rule("kv_cache", "{python: '*maker.py:*allocate_kv_cache'}"), rule("weights", "{python: '*load_weights'}"))
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("load_weights")), ["weights"] * 3)
        self.assertEqual(self.given_objects_of(maker.makes("allocate_kv_cache")), ["kv_cache"] * 2)
        self.assertEqual(self.given_objects_of(maker.makes("untagged")), ["defaults"])
        self.assertEqual(self.given_said(), "")
        made = maker.makes("allocate_kv_cache")
        row = self.given_allocations()[made[0]]
        functions = [frame.rsplit(":", 1) for frame in row["python"]]
        self.assertTrue(all(file == os.path.join(HERE, "maker.py") for file, _ in functions), row)
        self.assertEqual([function.rsplit(".", 1)[-1] for _, function in functions],
                         ["allocate", "allocate_kv_cache", "main", "<module>"])

    def python_frame_with_a_mutex_held_here_and_the_gil_held_by_who_waits_for_it(self):
        self.given_rules(rule("locked", "{python: '*Engine.locked*run'}" if sys.version_info >= (3, 11) else "{python: '*:run'}"))
        maker = self.given_maker()
        maker.child.stdin.write("locked\n")
        maker.child.stdin.flush()
        self.assertTrue(select.select([maker.child.stdout], [], [], 60)[0], "a deadlock")
        self.assertEqual(self.given_objects_of(maker.child.stdout.readline().split()), ["locked"])

    def native_frame(self):
        self.given_rules(rule("of_ffi", "{stack: 'libffi*:ffi_call*'}"))
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("untagged")), ["of_ffi"])
        row, = self.given_allocations().values()
        self.assertFalse([frame for frame in row["stack"] if frame.startswith("libsublet")])

    def library_that_calls_the_driver(self):
        self.given_rules(rule("by_ffi", "{library: '*/libffi.so*'}"))
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("untagged")), ["by_ffi"])
        row, = self.given_allocations().values()
        self.assertRegex(row["library"][0], r"^/.*/libffi\.so")

    def thread_by_its_name(self):
        self.given_rules(rule("backward", "{thread: 'pt_autograd_*'}"))
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("worker") + maker.makes("untagged")), ["backward", "defaults"])

    def tag_that_the_program_sets_and_ends(self):
        self.given_rules(rule("boundary", "{tag: 'boundary_kv*'}"))
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("tag") + maker.makes("untagged")), ["boundary", "defaults"])

    def rules_of_other_roles_cost_this_one_nothing(self):
        with open(self.policy, "w") as text:
            text.write(RULES.replace("[train]", "[train, other]") + rule("other", "{role: other, python: '*', thread: '*'}"))
        self.given_served()
        maker = self.given_maker()
        self.assertEqual(self.given_objects_of(maker.makes("untagged")), ["defaults"])
        row, = self.given_allocations().values()
        self.assertEqual((row["thread"], row["python"]), (None, []))

    def decision_is_kept_when_a_later_policy_finds_what_was_kept(self):
        """Allocated without a policy, with callers kept; then one comes that asks for them."""
        maker = None
        self.given_served(policy=False)
        maker = self.given_maker("--callers")
        made = maker.makes("allocate_kv_cache") + maker.makes("untagged")
        self.assertEqual(self.given_objects_of(made), [None] * 3)
        self.assertEqual(self.sublet("ctl", "stop").returncode, 0)
        self.given_rules(rule("kv_cache", "{python: '*allocate_kv_cache'}"))
        self.eventually(lambda: self.given_status()["clients"])
        self.assertEqual(self.given_objects_of(made), ["kv_cache"] * 2 + ["defaults"])

    def nothing_is_looked_for_that_no_rule_asks_for(self):
        self.given_rules(rule("large", "{size: '>=16MiB'}"))
        maker = self.given_maker()
        maker.makes("load_weights")
        for row in self.given_allocations().values():
            self.assertEqual((row["library"], row["thread"], row["tag"], row["stack"], row["python"]), ([], None, None, [], []))


class Shows(Case):
    def each_allocation_with_its_residency_and_order(self):
        self.given_rules(rule("large", "{size: '>=20MiB'}"))
        maker = self.given_maker("--callers=python")
        made = maker.makes("allocate_kv_cache")
        self.given_json("park", "large")
        rows = self.given_allocations()
        self.assertEqual([rows[address]["residency"] for address in made], ["device", "parked"])
        self.assertEqual([(rows[address]["bytes"], rows[address]["device"]) for address in made], [(16 * MIB, 0), (24 * MIB, 0)])
        self.assertEqual([rows[address]["order"] for address in made], [1, 2])
        text = self.sublet("ctl", "objects", "--allocations").stdout
        self.assertRegex(text, r"(?m)^pid %d \(python3?[\d.]*, train\)$" % maker.pid)
        self.assertRegex(text, r"(?m)^ +2  %s +24\.00 MiB  parked +large +/\S+/maker.py:\S*allocate\S*$" % made[1])

    def two_processes_and_a_filter(self):
        self.given_served(policy=False)
        one, other = self.given_maker(), self.given_maker()
        one.makes("untagged")
        self.assertEqual({client["pid"] for client in self.given_json("objects", "--allocations")}, {one.pid, other.pid})
        client, = self.given_json("objects", "--allocations", "--pid", str(one.pid))
        self.assertEqual((client["pid"], len(client["allocations"]), client["answered"]), (one.pid, 1, True))

    def process_that_does_not_answer_is_named(self):
        self.given_served(policy=False)
        peer = Peer(self.session)
        peer.join(peer=CLIENT)
        client, = self.given_json("objects", "--allocations")
        self.assertEqual((client["answered"], client["allocations"]), (False, []))
        self.assertIn("it does not say in time what it has", self.sublet("ctl", "objects", "--allocations").stdout)
        peer.close()

    def list_that_is_nonsense_is_refused(self):
        self.given_served(policy=False)
        peer = Peer(self.session)
        peer.join(peer=CLIENT)
        child = subprocess.Popen([harness.EXE, "ctl", "objects", "--allocations"], env=self.env, cwd=self.folder, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        asked = protocol.HEADER.unpack_from(peer.socket.recv(65536))
        while protocol.NAMES[asked[2]] != "TELL":
            asked = protocol.HEADER.unpack_from(peer.socket.recv(65536))
        with open(os.path.join(self.folder, "nonsense"), "w+b") as file:
            file.write(b"x" * 200)
            file.flush()
            peer.send(message("TOLD", (200).to_bytes(8, "little"), serial=asked[5]), [file.fileno()])
        out, err = child.communicate(timeout=30)
        self.assertEqual((child.returncode, out), (1, ""))
        self.assertRegex(err, r"^sublet: error: the list of pid \d+: no list of allocations of Sublet's\n$")
        peer.close()

    def wrong_words(self):
        self.given_served(policy=False)
        self.refuses(2, "'--allocations' goes with 'sublet ctl objects', not with 'status'", "ctl", "status", "--allocations")
        self.refuses(2, "'--suggest' goes with 'sublet ctl objects', not with 'park'", "ctl", "park", "--all", "--suggest")
        self.refuses(2, "'--suggest' prints a policy; leave out '--json'", "ctl", "objects", "--suggest", "--json")
        self.refuses(1, "no process of the session has allocated anything yet; ask again when one has", "ctl", "objects", "--suggest")
        self.refuses(2, "'pyhton' is no list of what to keep; write '--callers', or words of library, thread, tag, stack, python "
                     "with commas between", "run", "--callers=pyhton", "--", "true")


class Suggests(Case):
    def given_suggested(self, words=("load_weights", "allocate_kv_cache", "forward", "worker", "tag"), callers="all", policy=False):
        self.given_served(policy=policy)
        maker = self.given_maker("--callers=" + callers) if callers else self.given_maker()
        made = {word: maker.makes(word) for word in words}
        got = self.sublet("ctl", "objects", "--suggest")
        self.assertEqual(got.returncode, 0, got)
        return maker, made, got

    def policy_that_is_good_and_takes_what_it_was_made_from(self):
        maker, made, got = self.given_suggested()
        self.assertEqual(got.stderr, "")
        with open(self.policy, "w") as text:
            text.write(got.stdout)
        checked = self.sublet("check", self.policy)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""), got.stdout)
        names = re.findall(r"^  - name: (\S+)$", got.stdout, re.M)
        self.assertEqual(set(names), {"load_weights", "allocate_kv_cache", "forward", "run", "boundary_kv_layer_3"}, got.stdout)
        self.sublet("ctl", "stop")
        self.given_served()
        self.eventually(lambda: self.given_status()["clients"])
        for word, name in (("load_weights", "load_weights"), ("allocate_kv_cache", "allocate_kv_cache"), ("worker", "run"),
                           ("tag", "boundary_kv_layer_3")):
            self.assertEqual(set(self.given_objects_of(made[word])), {name}, got.stdout)

    def sizes_alone_where_callers_were_not_kept(self):
        _, _, got = self.given_suggested(callers=None)
        self.assertIn("start the processes with 'sublet run --callers' to tell more apart", got.stderr)
        self.assertEqual(set(re.findall(r'size: "(\w+)"', got.stdout)), {"16MiB", "24MiB", "4MiB", "8MiB", "12MiB"})

    def how_many_how_large_and_how_long(self):
        _, _, got = self.given_suggested(words=("forward", "forward", "load_weights"))
        self.assertRegex(got.stdout, r"(?s)# 4 allocations, 0 B now, 8.00 MiB at most; order 1..4; 4 freed, after [\d.]+ [um]?s on "
                                     r"average\n  # sizes: 4.00 MiB x 2\n  - name: forward\n")
        self.assertIn("# 3 allocations, 48.00 MiB now, 48.00 MiB at most; order 5..7\n  # sizes: 16.00 MiB x 3\n", got.stdout)

    def only_objects_where_the_session_has_a_policy(self):
        _, _, got = self.given_suggested(policy=True)
        self.assertRegex(got.stdout, r"\A# [^\n]*\nobjects:\n")


NONE = 0xFFFFFFFF
KEYS = ("library", "thread", "tag", "stack", "python")


def inventory(groups):
    """A process's list as lifecycle/inventory.h has it: `size`, and of KEYS what is known (texts, lists of them)."""
    offsets, texts, frames, sites, rows, allocations = {}, b"", [], b"", b"", b""

    def offset(text):
        nonlocal texts
        if text is None:
            return NONE
        if text not in offsets:
            offsets[text] = len(texts)
            texts += (text if isinstance(text, bytes) else text.encode()) + b"\0"
        return offsets[text]

    for number, group in enumerate(groups):
        known = any(key in group for key in KEYS)
        site = len(sites) // 32 if known else NONE
        allocations += struct.pack("<5Q4I", MIB * number, group["size"], group["size"], number + 1, 1, 0, NONE, 0, site)
        rows += struct.pack("<10Q2I", group["size"], 1, 1, 1, number + 1, number + 1, 1, 1, 0, 0, 0, site)
        if known:
            stacks = group.get("stack", []) + group.get("python", [])
            libraries = (group.get("library", []) + [None, None])[:2]
            sites += struct.pack("<8I", *map(offset, libraries), offset(group.get("thread")), offset(group.get("tag")), len(frames),
                                 len(group.get("stack", [])), len(group.get("python", [])), 0)
            frames += map(offset, stacks)
    body = allocations + rows + sites + struct.pack("<%dI" % len(frames), *frames) + texts
    return struct.pack("<QIIQQQ6I", 0x59524E54564E4953, 1, 64, 64 + len(body), 1, 0, 31, len(groups), len(groups), len(sites) // 32, len(frames),
                       len(texts)) + body


class SuggestsOfOddThings(Case):
    """From lists written by hand: what a policy is suggested of is checked, and asked whom it takes."""

    def given_told(self, how, *clients, roles=(b"",)):
        lists = [inventory(groups) for groups in clients]  # before anybody waits for them
        self.given_served(policy=False)
        peers = [Peer(self.session) for _ in clients]
        for peer, role in zip(peers, list(roles) * len(peers)):
            peer.join(peer=CLIENT, role=role)
        child = subprocess.Popen([harness.EXE, "ctl", "objects", how], env=self.env, cwd=self.folder, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        for peer, data in zip(peers, lists):
            asked = protocol.HEADER.unpack_from(peer.socket.recv(65536))
            while protocol.NAMES[asked[2]] != "TELL":
                asked = protocol.HEADER.unpack_from(peer.socket.recv(65536))
            # one file each: they are read when all have come
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.flush()
                peer.send(message("TOLD", len(data).to_bytes(8, "little"), serial=asked[5]), [file.fileno()])
        out, err = child.communicate(timeout=60)
        for peer in peers:
            peer.close()
        self.assertEqual((child.returncode, err), (0, ""), out)
        return out

    def given_suggested(self, *clients, roles=(b"",)):
        out = self.given_told("--suggest", *clients, roles=roles)
        with open(self.policy, "w") as text:
            text.write(out)
        checked = self.sublet("check", self.policy)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""), out)
        return out

    def given_rule_of(self, group, *more):
        facts = ["size=%dB" % group["size"], *more]
        for key in KEYS:
            values = group.get(key, [])
            facts += [key + "=" + shlex.quote(value) for value in (values if isinstance(values, list) else [values])]
        got = self.sublet("check", "--json", "--explain", " ".join(facts), self.policy)
        self.assertEqual(got.returncode, 0, (facts, got))
        return json.loads(got.stdout)[0]["explain"]["rule"]

    def given_each_taken_as_its_own(self, *groups):
        """Each group falls under a rule, and no two under one."""
        out = self.given_suggested(list(groups))
        rules = [self.given_rule_of(group) for group in groups]
        self.assertEqual(len(set(rules)), len(groups), (rules, out))
        self.assertNotIn("defaults", rules, out)
        return rules

    def frames_without_a_folder(self):
        self.given_each_taken_as_its_own({"size": MIB, "python": ["<string>:load"]}, {"size": MIB, "python": ["train.py:main"]},
                                   {"size": MIB, "library": ["[program]"]})

    def letters_that_have_a_meaning_in_patterns_and_in_yaml(self):
        self.given_each_taken_as_its_own(*({"size": MIB, "tag": tag} for tag in (
            'a"b', "a\\b", "a[b]", "a*b", "a?b\\", "#: {x}, [y]", "'", "\\", "~", "yes", "null", "0x10", "- a", "1e3", "\u540d\u524d")),
                                   {"size": MIB, "python": ["/a/b.py:f[*]"]}, {"size": MIB, "stack": ["lib[x].so:operator[]"]})

    def letters_that_yaml_refuses(self):
        tags = (b"new\nline", b"escape\x1b[31m", b"no utf-8 \xff\xfe", b"c1 \xc2\x9b", b"cut \xe5\x90", b"\xef\xbb\xbf bom", b"\xed\xa0\x80")
        out = self.given_suggested([{"size": MIB, "tag": tag} for tag in tags])
        self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), out)
        rules = [self.given_rule_of({"size": MIB, "tag": os.fsdecode(tag)}) for tag in tags]
        self.assertEqual(len(set(rules)), len(tags), (rules, out))
        self.assertNotIn("defaults", rules, out)

    def letters_that_command_a_terminal(self):
        out = self.given_told("--allocations", [{"size": MIB, "thread": b"\x1b[31m\xc2\x9b31m\xc3\xa4"}])
        self.assertRegex(out, r"  \?\[31m\?\?31m\u00e4\n$")

    def names_that_a_policy_does_not_have(self):
        self.given_each_taken_as_its_own(*({"size": MIB, "tag": tag} for tag in ("all", "none", "demand", "default", "null", "7", "-", ".a", "___")),
                                   {"size": MIB, "python": ["/a.py:null"]})

    def texts_longer_than_a_pattern(self):
        self.given_each_taken_as_its_own({"size": MIB, "tag": "\u540d" * 600}, {"size": MIB, "tag": "[" * 600},
                                   {"size": MIB, "python": ["/a.py:" + "f" * 900]}, {"size": MIB, "thread": "9" * 15, "tag": "x" * 511})

    def same_names_in_two_roles(self):
        group = {"size": MIB, "python": ["/a.py:load"]}
        out = self.given_suggested([group], [group], roles=(b"train", b"rollout"))
        self.assertNotEqual(self.given_rule_of(group, "role=train"), self.given_rule_of(group, "role=rollout"), out)

    def role_that_no_policy_can_have(self):
        out = self.given_suggested([{"size": MIB, "tag": "x"}], [{"size": MIB, "tag": "y"}], roles=(b"a: [b", b"all"))
        self.assertEqual(self.given_rule_of({"size": MIB, "tag": "y"}), "y", out)

    def threads_and_sizes_take_nothing_from_functions_that_call_each_other(self):
        one, other = ({"size": MIB, "thread": "worker7", "python": ["/a.py:%s" % name for name in names]} for names in ("ab", "ba"))
        groups = [one, other, {"size": MIB, "thread": "worker8"}, {"size": MIB}, {"size": 5 * MIB, "thread": "9"}]
        out = self.given_suggested(groups)
        rules = [self.given_rule_of(group) for group in groups]
        self.assertEqual(rules[2:4], ["worker", "of_1MiB"], out)
        self.assertFalse({rules[0], rules[1]} & {*rules[2:], "defaults"}, (rules, out))

    def thousands_of_sizes_take_seconds(self):
        out = self.given_suggested([{"size": MIB + number} for number in range(8000)])
        self.assertIn("# and 7960 more", out)


if __name__ == "__main__":
    harness.main()
