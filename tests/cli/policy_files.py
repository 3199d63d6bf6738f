#!/usr/bin/env python3
"""The policy language by example: every rejected form with its expected text beside it, every leniency, every shipped
example; and the JSON Schema, asked through a validator that is not ours.

After a change of wording: SUBLET_TEST_REWRITE=1 rewrites the expected texts; read the difference before you commit it."""
import glob
import json
import os
import re

import harness

FOLDER = os.path.join(harness.SOURCE, "tests/policy")
EXAMPLES = sorted(glob.glob(os.path.join(harness.SOURCE, "examples/**/*.yaml"), recursive=True))


def files(kind):
    found = sorted(glob.glob(os.path.join(FOLDER, kind, "*.yaml")))
    assert found, kind
    return found


def messages():
    with open(os.path.join(harness.SOURCE, "policy/source/messages.def")) as text:
        return re.findall(r'^(ERROR|WARNING)\(\w+, "([a-z-]+)", "(.+)"\)$', text.read(), re.M)


class Files(harness.Case):
    def given_answer(self, file, *words):
        # run beside the file, so that the expected text has no path in it
        return self.sublet("check", *words, os.path.basename(file), cwd=os.path.dirname(file))

    def given_diagnostics(self, kind):
        """Of all files of a kind in one run: (word the file is named for, its diagnostics)."""
        names = [os.path.basename(f) for f in files(kind)]
        got = self.sublet("check", "--json", *names, cwd=os.path.join(FOLDER, kind))
        answers = json.loads(got.stdout)
        self.assertEqual([a["file"] for a in answers], names)
        return [(a["file"][:-len(".yaml")].split("_")[0], a["diagnostics"]) for a in answers]

    def given_answer_as_expected(self, file, status):
        got = self.given_answer(file)
        expected = file[:-len(".yaml")] + ".expected"
        self.assertEqual((got.returncode, got.stderr), (status, ""), file)
        if os.environ.get("SUBLET_TEST_REWRITE"):
            with open(expected, "w") as to:
                to.write(got.stdout)
        with open(expected) as text:
            self.assertEqual(got.stdout, text.read(), file)
        return got

    def every_rejected_form_is_refused_with_its_text(self):
        for file in files("rejected"):
            with self.subTest(os.path.basename(file)):
                got = self.given_answer_as_expected(file, 1)
                self.assertIn(" error: ", got.stdout)

    def every_questionable_form_is_warned_about_with_its_text(self):
        for file in files("warned"):
            with self.subTest(os.path.basename(file)):
                got = self.given_answer_as_expected(file, 0)
                self.assertIn(" warning: ", got.stdout)
                self.assertEqual(self.given_answer(file, "--strict").returncode, 1)

    def every_leniency_is_accepted_without_a_word(self):
        for file in files("accepted"):
            with self.subTest(os.path.basename(file)):
                got = self.given_answer(file, "--strict")
                self.assertEqual((got.returncode, got.stderr, got.stdout.count("\n")), (0, "", 1), got)

    def every_kind_of_complaint_has_a_file_named_for_it(self):
        names = {kind: {os.path.basename(f)[:-len(".yaml")].split("_")[0] for f in files(folder)}
                 for kind, folder in (("ERROR", "rejected"), ("WARNING", "warned"))}
        self.assertGreater(len(messages()), 30)
        for kind, word, _ in messages():
            self.assertIn(word, names[kind])

    def a_file_named_for_a_kind_gets_that_kind(self):
        words = {word for _, word, _ in messages()}
        for folder in ("rejected", "warned"):
            for word, diagnostics in self.given_diagnostics(folder):
                if word in words:
                    self.assertIn(word, [d["kind"] for d in diagnostics])

    def every_complaint_names_a_fix(self):
        """After `; ` in its text, or in a note."""
        for folder in ("rejected", "warned"):
            for word, diagnostics in self.given_diagnostics(folder):
                for d in diagnostics:
                    with self.subTest(word):
                        self.assertTrue("; " in d["text"] or d["notes"], d["text"])

    def complaints_follow_the_house_style(self):
        for folder in ("rejected", "warned"):
            for _, diagnostics in self.given_diagnostics(folder):
                for text in [d["text"] for d in diagnostics] + [n["text"] for d in diagnostics for n in d["notes"]]:
                    self.assertFalse(text.endswith((".", " ")), text)
                    self.assertFalse(text[0].isupper(), text)

    def complaints_come_in_the_order_of_the_file(self):
        for folder in ("rejected", "warned"):
            for word, diagnostics in self.given_diagnostics(folder):
                places = [(d["line"], d["column"]) for d in diagnostics]
                self.assertEqual(places, sorted(places), word)

    def every_example_passes_without_a_warning(self):
        self.assertGreaterEqual(len(EXAMPLES), 13)
        for file in EXAMPLES:
            with self.subTest(os.path.basename(file)):
                got = self.given_answer(file, "--strict")
                self.assertEqual((got.returncode, got.stderr, got.stdout.count("\n")), (0, "", 1), got.stdout)

    def every_example_starts_with_what_it_is_for(self):
        for file in EXAMPLES:
            with open(file) as text:
                head = text.read().split("version: 1")[0].splitlines()
            self.assertGreaterEqual(len(head), 4, file)
            self.assertTrue(all(not line or line.startswith("#") for line in head), file)
            self.assertTrue(any("sublet run --policy %s" % os.path.basename(file) in line for line in head), file)


class Schema(harness.Case):
    def given_validator(self):
        try:
            import jsonschema
            import yaml
        except ImportError as missing:
            self.skipTest("%s; install python3-jsonschema and python3-yaml" % missing)
        schema = json.loads(self.sublet("check", "--schema").stdout)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)

        def wrong(file):
            with open(file, "rb") as text:
                return [e.message for e in validator.iter_errors(yaml.safe_load(text.read()))]
        return wrong

    def every_example_and_leniency_is_valid_for_another_validator(self):
        wrong = self.given_validator()
        for file in EXAMPLES + files("accepted") + files("warned"):
            with self.subTest(os.path.basename(file)):
                self.assertEqual(wrong(file), [])

    def shapes_that_check_refuses_are_refused_by_the_schema_too(self):
        wrong = self.given_validator()
        for name in ("unknown-key_near", "unknown-key_in_match", "missing-key_class", "missing-key_version", "type_list_for_size",
                     "type_mapping_for_objects", "value_size_unit", "value_class", "value_otherwise", "version_newer",
                     "name_characters", "value_duration_without_unit", "value_quorum_zero", "type_version_quoted"):
            with self.subTest(name):
                self.assertNotEqual(wrong(os.path.join(FOLDER, "rejected", name + ".yaml")), [])

    def schema_has_every_key_of_the_list_with_its_sentence(self):
        with open(os.path.join(harness.SOURCE, "policy/keys.def")) as text:
            rows = re.findall(r"^KEY\(([A-Z_ |]+), (\w+), \w+, (\w+), \"(.*)\"\)$", text.read(), re.M)
        self.assertGreater(len(rows), 50)
        definitions = json.loads(self.sublet("check", "--schema").stdout)["$defs"]
        names = {"TOP": "policy"}
        for places, key, need, sentence in rows:
            for place in places.split(" | "):
                mapping = definitions[names.get(place, place.lower())]
                self.assertEqual(mapping["properties"][key]["description"], sentence.replace('\\"', '"'))
                self.assertEqual(key in mapping.get("required", []), need == "REQUIRED", key)


class Library(harness.Case):
    def policy_library_calls_nothing_but_string_functions(self):
        """What goes into other people's processes: no heap, no stdio, no locale, no YAML."""
        import subprocess
        archive = os.path.join(harness.BUILD, "../../policy/libsublet_policy.a")
        undefined = subprocess.run(["nm", "-u", archive], stdout=subprocess.PIPE, text=True, check=True).stdout
        defined = subprocess.run(["nm", "--defined-only", archive], stdout=subprocess.PIPE, text=True, check=True).stdout
        called = set(re.findall(r" U (\w+)", undefined)) - set(re.findall(r" [TDRBtdrb] (\w+)", defined))
        called = {name for name in called if not name.startswith(("__asan", "__ubsan", "__stack_chk", "_GLOBAL_OFFSET"))}
        self.assertEqual(called - {"errinfo_set", "memcmp", "memcpy", "memset", "strchr", "strcmp", "strcspn", "strlen", "strncmp",
                                   "strpbrk", "strstr"}, set())


class Page(harness.Case):
    """docs/policy.md: what it shows must be so."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(harness.SOURCE, "docs/policy.md")) as text:
            self.page = text.read()
        # the first block is the line for editors; the others are one policy, step by step
        blocks = re.findall(r"^```yaml\n(.*?)^```", self.page, re.S | re.M)[1:]
        self.assertGreater(len(blocks), 4)
        with open(os.path.join(self.folder, "grpo.yaml"), "w") as to:
            to.write("".join(blocks))

    def the_policy_of_the_page_passes(self):
        got = self.sublet("check", "--strict", "grpo.yaml")
        self.assertEqual((got.returncode, got.stdout), (0, "grpo.yaml: good: 2 roles, 3 phases, 5 objects\n"))

    def the_explanation_on_the_page_is_what_is_printed(self):
        facts, shown = re.search(r"`sublet check --explain '([^']+)' grpo.yaml`\n\n```\n(.*?)```", self.page, re.S).groups()
        self.assertEqual(self.sublet("check", "--explain", facts, "grpo.yaml").stdout, shown)

    def the_tables_of_the_page_are_made_from_the_lists(self):
        import subprocess
        import sys
        got = subprocess.run([sys.executable, os.path.join(harness.SOURCE, "tools/policy_keys.py"), "--check"],
                             stderr=subprocess.PIPE, text=True)
        self.assertEqual((got.returncode, got.stderr), (0, ""))

    def every_key_of_the_language_is_read(self):
        """A key that the reader forgets would be accepted and change nothing: each, with a value of no type, is refused."""
        with open(os.path.join(harness.SOURCE, "policy/keys.def")) as text:
            rows = re.findall(r"^KEY\(([A-Z_ |]+), (\w+), (\w+),", text.read(), re.M)
        templates = {"TOP": "%s", "ROLE": "roles: {r: {%s}}", "PHASE": "phases: [{%s}]", "TRIGGER": "triggers: [{%s}]",
                     "OBJECT": "objects: [{%s}]", "MATCH": "pinned: [{%s}]", "SHARE_GROUP": "share: [{%s}]",
                     "BARRIER": "barrier: {%s}", "DEFAULTS": "defaults: {%s}"}
        # what no type takes: a mapping in a list
        names, text = [], []
        for places, key, _ in rows:
            for place in places.split(" | "):
                body = templates[place] % ("%s: [{x: [y]}]" % key)
                name = "%s-%s.yaml" % (place, key)
                with open(os.path.join(self.folder, name), "w") as to:
                    to.write(body if key == "version" and place == "TOP" else "version: 1\n" + body)
                names.append(name)
        for answer in json.loads(self.sublet("check", "--json", *names).stdout):
            kinds = {d["kind"] for d in answer["diagnostics"]} - {"missing-key", "trigger-source"}
            self.assertTrue(kinds, answer["file"])


if __name__ == "__main__":
    harness.main()
