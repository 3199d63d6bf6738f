#!/usr/bin/env python3
"""`sublet check`: files, standard input, explanations, JSON. What it says about policies is tested in policy_files.py."""
import json
import os

import harness

POLICY = """\
version: 1
roles: [train, rollout]
phases:
  - {name: decode, roles: [rollout]}
  - {name: update, roles: [train], idle: [rollout]}
triggers:
  - {enter: decode, command: true}
  - {enter: update, role: train, kernel: '*adam*'}
pinned:
  - {library: '*libnccl*'}
objects:
  - name: weights
    match: {role: rollout, size: '>=1GiB'}
    class: permanent
    resident: [decode]
    otherwise: offload
  - name: kv_cache
    match: {role: rollout, python: '*allocate_kv_cache*'}
    class: phase-local
    resident: [decode]
    otherwise: discard
    exclusive: true
  - name: rollout_rest
    match: {role: rollout}
    class: permanent
    resident: [decode]
  - name: optimizer
    match: {role: train, python: ['*adam*', '*optimizer*']}
    class: permanent
    resident: {update: demand}
    window: 4GiB
"""

EXPLAINED = """\
'kv_cache' (grpo.yaml:17) wins, class phase-local
  role is rollout, the rule asks for rollout
  python is 'llm.py:allocate_kv_cache', the rule asks for '*allocate_kv_cache*'
earlier rules do not match
  'pinned' (grpo.yaml:10): library is not given, the rule asks for '*libnccl*'
  'weights' (grpo.yaml:12): size is 464.00 MiB, the rule asks for >= 1.00 GiB
later rules would match too, but come too late
  'rollout_rest' (grpo.yaml:23)
in phase
  decode  device  'resident' says so
  update  empty   'otherwise' says so
"""


class PolicyCase(harness.Case):
    def given_file(self, name="grpo.yaml", text=POLICY):
        with open(os.path.join(self.folder, name), "w") as to:
            to.write(text)
        return name


class Check(PolicyCase):
    def good_file_gets_one_line_and_status_0(self):
        got = self.sublet("check", self.given_file())
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "grpo.yaml: good: 2 roles, 2 phases, 4 objects\n", ""))

    def several_files_are_all_checked_and_one_bad_one_exits_1(self):
        self.given_file("bad.yaml", "version: 1\nsesion: x\n")
        got = self.sublet("check", "bad.yaml", self.given_file())
        self.assertEqual(got.returncode, 1)
        self.assertIn("bad.yaml:2:1: error: a policy has no key 'sesion'\n  sesion: x\n  ^^^^^^\nnote: did you mean 'session'?\n",
                      got.stdout)
        self.assertIn("grpo.yaml: good", got.stdout)

    def standard_input_is_a_file_called_stdin(self):
        import subprocess
        got = subprocess.run([harness.EXE, "check", "-"], input="version: 3\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=self.env, timeout=60)
        self.assertEqual(got.returncode, 1)
        self.assertTrue(got.stdout.startswith("stdin:1:10: error: version 3 is not known here"), got.stdout)

    def missing_file_exits_1_and_the_others_are_checked(self):
        got = self.sublet("check", "missing.yaml", self.given_file())
        self.assertEqual(got.returncode, 1)
        self.assertEqual(got.stderr, "sublet: error: cannot read policy file 'missing.yaml': No such file or directory; check its name and mode\n")
        self.assertIn("grpo.yaml: good", got.stdout)

    def folder_is_no_policy_file(self):
        self.refuses(1, "cannot read policy file '.': Is a directory", "check", ".")

    def huge_file_is_refused_by_size(self):
        got = self.sublet("check", self.given_file("huge.yaml", "#" * (5 << 20)))
        self.assertEqual(got.returncode, 1)
        self.assertIn("huge.yaml: error: the file has", got.stdout)

    def no_file_exits_2(self):
        self.refuses(2, "no policy file; try 'sublet check grpo.yaml'", "check")

    def schema_with_a_file_exits_2(self):
        self.refuses(2, "'--schema' takes no file", "check", "--schema", "grpo.yaml")

    def file_name_with_an_escape_sequence_is_shown_without_it(self):
        name = self.given_file("a\x1b[31m\nb.yaml", "version: 2\n")
        got = self.sublet("check", name)
        self.assertTrue(got.stdout.startswith("a?[31m?b.yaml:1:10: error: version 2"), got.stdout)
        self.assertEqual(json.loads(self.sublet("check", "--json", name).stdout)[0]["file"], name)

    def strict_makes_warnings_count(self):
        self.given_file("warned.yaml", "version: 1\nphases: [a, b]\n")
        self.assertEqual(self.sublet("check", "warned.yaml").returncode, 0)
        self.assertEqual(self.sublet("check", "--strict", "warned.yaml").returncode, 1)

    def warnings_are_counted_in_the_last_line(self):
        self.given_file("warned.yaml", "version: 1\nphases: [a, b]\n")
        self.assertTrue(self.sublet("check", "warned.yaml").stdout.endswith(
            "warned.yaml: good: 0 roles, 2 phases, 0 objects, 2 warnings\n"))


class Explain(PolicyCase):
    def explain_says_who_wins_who_does_not_and_what_happens(self):
        got = self.sublet("check", "--explain", "role=rollout size=464MiB python=llm.py:allocate_kv_cache", self.given_file())
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertEqual(got.stdout, EXPLAINED)

    def explain_of_demand_names_the_window(self):
        got = self.sublet("check", "--explain", "role=train python=optimizer.py:step", self.given_file())
        self.assertIn("update  parked  'resident' says so, through the window on touch", got.stdout)
        self.assertIn("decode  parked  'resident' does not list the phase", got.stdout)

    def explain_of_what_no_rule_takes_is_the_default(self):
        got = self.sublet("check", "--explain", "role=train", self.given_file())
        self.assertTrue(got.stdout.startswith("the built-in default wins, class permanent\n"), got.stdout)
        self.assertIn("'optimizer' (grpo.yaml:27): python is not given, the rule asks for '*adam*' or '*optimizer*'", got.stdout)

    def explain_with_wrong_facts_exits_2_and_says_which(self):
        self.given_file()
        self.refuses(2, "'--explain': the policy has no role 'rolout'; did you mean 'rollout'?", "check", "--explain",
                     "role=rolout", "grpo.yaml")
        self.refuses(2, "there is no fact 'sise'; did you mean 'size'?", "check", "--explain", "sise=1", "grpo.yaml")

    def explain_of_a_bad_file_shows_its_errors(self):
        got = self.sublet("check", "--explain", "role=x", self.given_file("bad.yaml", "version: 2\n"))
        self.assertEqual((got.returncode, got.stderr), (1, ""))
        self.assertIn("bad.yaml: 1 error", got.stdout)

    def explain_of_a_long_policy_shows_the_rules_next_to_the_winner(self):
        text = "version: 1\nobjects:\n" + "".join(
            "  - {name: o%d, match: {tag: 'tag%d'}, class: permanent}\n" % (i, i) for i in range(300))
        got = self.sublet("check", "--explain", "tag=tag299", self.given_file("long.yaml", text))
        self.assertIn("(279 rules before these)", got.stdout)
        self.assertIn("'o298'", got.stdout)
        self.assertLess(got.stdout.count("\n"), 30)


class Json(PolicyCase):
    def json_has_one_entry_per_file(self):
        self.given_file("bad.yaml", "version: 1\nroles: [\"a\\tb\"]\n")
        got = self.sublet("check", "--json", "bad.yaml", "missing.yaml", self.given_file())
        self.assertEqual(got.returncode, 1)
        bad, good = json.loads(got.stdout)
        self.assertEqual((bad["file"], bad["good"], bad["errors"], bad["warnings"]), ("bad.yaml", False, 1, 0))
        complaint = bad["diagnostics"][0]
        self.assertEqual((complaint["line"], complaint["column"], complaint["length"], complaint["severity"], complaint["kind"]),
                         (2, 9, 6, "error", "name"))
        self.assertEqual((good["file"], good["good"], good["diagnostics"]), ("grpo.yaml", True, []))

    def json_of_no_readable_file_is_an_empty_list(self):
        self.assertEqual(json.loads(self.sublet("check", "--json", "missing.yaml").stdout), [])

    def json_explains_too(self):
        got = self.sublet("check", "--json", "--explain", "role=rollout size=464MiB python=x:allocate_kv_cache", self.given_file())
        said = json.loads(got.stdout)[0]["explain"]
        self.assertEqual((said["rule"], said["line"], said["class"]), ("kv_cache", 17, "phase-local"))
        self.assertEqual([(p["phase"], p["residency"]) for p in said["phases"]], [("decode", "device"), ("update", "empty")])
        self.assertEqual([(a["rule"], a["key"]) for a in said["against"]],
                         [("pinned", "library"), ("weights", "size"), ("optimizer", "role")])


if __name__ == "__main__":
    harness.main()
