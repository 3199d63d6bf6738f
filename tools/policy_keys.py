#!/usr/bin/env python3
"""tools/policy_keys.py [--check]: writes the tables of docs/policy.md from policy/keys.def, types.def and words.def, so that
the page and the language cannot drift apart. --check changes nothing and exits 1 when the page is not up to date."""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "docs/policy.md")
PLACES = [("TOP", "The policy"), ("ROLE", "Each of `roles`"), ("PHASE", "Each of `phases`"), ("TRIGGER", "Each of `triggers`"),
          ("OBJECT", "Each of `objects`"), ("DEFAULTS", "`defaults`"), ("MATCH", "`match`, and each of `pinned`"),
          ("SHARE_GROUP", "Each of `share`"), ("BARRIER", "`barrier`")]


def rows(name, pattern):
    with open(os.path.join(ROOT, "policy", name)) as text:
        return [[c.replace('\\"', '"') for c in row] for row in re.findall(pattern, text.read(), re.M)]


def cell(text):
    return text.replace("|", "\\|")


def key_tables():
    keys = rows("keys.def", r'^KEY\(([A-Z_ |]+), (\w+), (\w+), (\w+), "(.*)"\)$')
    types = {name: written for name, written in rows("types.def", r'^TYPE\((\w+), "((?:[^"\\]|\\.)*)"')}
    lines = []
    for place, title in PLACES:
        lines += ["", "**%s**" % title, "", "| key | write | meaning |", "|---|---|---|"]
        for places, key, kind, need, sentence in keys:
            if place in places.split(" | "):
                lines.append("| `%s`%s | %s | %s |" % (key, " (needed)" if need == "REQUIRED" else "", cell(types[kind]),
                                                     cell(sentence)))
    return lines + [""]


def word_tables():
    lines = []
    for macro, title in (("CLASS", "class"), ("OTHERWISE", "otherwise")):
        lines += ["", "| `%s` | meaning |" % title, "|---|---|"]
        lines += ["| `%s` | %s |" % (word, cell(sentence)) for word, sentence in
                  rows("words.def", r'^%s\(\w+, "([^"]*)", "(.*)"\)$' % macro)]
    return lines + [""]


def filled(page):
    for name, table in (("keys", key_tables()), ("words", word_tables())):
        pattern = r"(<!-- %s: [^>]* -->\n).*?(<!-- end -->)" % name
        if not re.search(pattern, page, re.S):
            sys.exit("policy_keys: docs/policy.md has no place for %s" % name)
        page = re.sub(pattern, lambda m: m.group(1) + "\n".join(table) + "\n" + m.group(2), page, count=1, flags=re.S)
    return page


def main():
    with open(PAGE) as text:
        page = text.read()
    new = filled(page)
    if sys.argv[1:] == ["--check"]:
        if new != page:
            sys.exit("policy_keys: docs/policy.md is not up to date; run tools/policy_keys.py")
    else:
        with open(PAGE, "w") as to:
            to.write(new)


if __name__ == "__main__":
    main()
