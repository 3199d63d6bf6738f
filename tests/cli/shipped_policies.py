#!/usr/bin/env python3
"""The policies in examples/policies/ say of real allocations what they promise. Beside each is a table of allocations, as they
were recorded or read in the sources, tests/policy/objects/NAME.txt: blocks of an object's name and the facts."""
import fnmatch
import glob
import json
import os
import re

import harness

POLICIES = sorted(glob.glob(os.path.join(harness.SOURCE, "examples/policies/*.yaml")))
TABLES = os.path.join(harness.SOURCE, "tests/policy/objects")
PACKAGES = "/opt/venv/lib/python3.12/site-packages"  # what SITE stands for; any folder would do
LABELS = ["Start", "Run", "Read", "Allocator", "Adapt", "Remainder"]


def name_of(policy):
    return os.path.basename(policy)[:-len(".yaml")]


def cases(name):
    """(object, its facts, line) of each allocation of a table."""
    found, block = [], None
    with open(os.path.join(TABLES, name + ".txt")) as table:
        for number, line in enumerate(table, 1):
            line = line.rstrip("\n")
            if not line:
                block = None
            elif line.startswith("#"):
                continue
            elif block is None:
                block = []
                found.append((line, block, number))
            else:
                block.append(line.replace("SITE/", PACKAGES + "/"))
    return found


def head(policy):
    """The comment that opens a policy, as {label: text}."""
    parts, label = {}, None
    with open(policy) as text:
        for line in text:
            if not line.startswith("#"):
                break
            started = re.match(r"# (%s): +(.*)" % "|".join(LABELS), line)
            if started:
                label = started.group(1)
                parts[label] = started.group(2)
            elif label:
                parts[label] += " " + line[1:].strip()
    return parts


class Table(harness.Case):
    def given_winner(self, policy, facts):
        got = self.sublet("check", "--json", "--explain", " ".join(facts), policy)
        self.assertEqual((got.returncode, got.stderr), (0, ""), facts)
        return json.loads(got.stdout)[0]["explain"]["rule"]

    def every_policy_has_a_table_and_every_table_a_policy(self):
        self.assertEqual([name_of(p) for p in POLICIES],
                         sorted(f[:-len(".txt")] for f in os.listdir(TABLES)))
        self.assertEqual(len(POLICIES), 6)

    def every_allocation_of_the_tables_gets_its_object(self):
        for policy in POLICIES:
            found = cases(name_of(policy))
            self.assertGreater(len(found), 10, policy)
            for expected, facts, line in found:
                with self.subTest("%s.txt:%d" % (name_of(policy), line)):
                    self.assertGreater(len(facts), 0)
                    self.assertEqual(self.given_winner(policy, facts), {"(default)": "defaults", "(pinned)": "pinned"}.get(expected, expected))

    def every_object_and_every_pattern_of_a_policy_is_met_by_its_table(self):
        """A pattern that no recorded frame fits is a guess, and an object that nothing is expected in is untried."""
        for policy in POLICIES:
            name, found = name_of(policy), cases(name_of(policy))
            with open(policy) as text:
                rules = re.sub(r"^ *#.*$", "", text.read().split("objects:", 1)[1], flags=re.M)
            self.assertEqual(set(re.findall(r"^  - name: (\w+)", rules, re.M)) - {expected for expected, _, _ in found}, set(), name)
            frames = [fact.split("=", 1)[1] for _, facts, _ in found for fact in facts]
            patterns = re.findall(r'"([^"]*\*[^"]*)"', rules)
            self.assertGreater(len(patterns), 5, name)
            for pattern in patterns:
                self.assertTrue(any(fnmatch.fnmatchcase(frame, pattern) for frame in frames), "%s: %s" % (name, pattern))


class Head(harness.Case):
    def every_policy_says_in_the_same_form_what_was_run_and_what_was_read(self):
        for policy in POLICIES:
            with self.subTest(name_of(policy)):
                parts = head(policy)
                self.assertEqual([label for label in LABELS if label in parts], list(parts))
                self.assertEqual(set(LABELS) - set(parts) - {"Adapt"}, set())
                # a release or a commit, and the files
                self.assertRegex(parts["Read"], r"\d+\.\d+\.\d+|\b[0-9a-f]{9,}\b")
                self.assertRegex(parts["Read"], r"\w\.py\b")
                self.assertTrue(parts["Run"] == "nothing." or re.search(r"\d+\.\d+\.\d+", parts["Run"]), parts["Run"])
                self.assertIn("expandable_segments off", parts["Allocator"])

    def no_policy_discards_what_an_allocator_may_have_filled_with_something_else(self):
        for policy in POLICIES:
            with open(policy) as text:
                for line in text:
                    self.assertNotIn("otherwise: discard", line.split("#")[0], policy)


if __name__ == "__main__":
    harness.main()
