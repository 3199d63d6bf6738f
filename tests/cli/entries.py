#!/usr/bin/env python3
"""`sublet entries` against the lists it is built from."""
import json
import os
import re

import harness


def listed():
    with open(os.path.join(harness.SOURCE, "shim/entries.def")) as text:
        rows = re.findall(r'^(WRAP|GATED|PASS)\((\w+), "(\w+)", (\d+), (\w+), (\w+), (\w+),', text.read(), re.M)
    return rows


class Entries(harness.Case):
    def given_json(self, *words):
        got = self.sublet("entries", "--json", *words)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        return json.loads(got.stdout)

    def json_has_every_row_of_the_list_in_order(self):
        rows, got = listed(), self.given_json()
        self.assertGreater(len(rows), 500)
        self.assertEqual(len(got), len(rows))
        for (kind, symbol, base, since, stream, need, why), entry in zip(rows, got):
            self.assertEqual(entry["symbol"], symbol)
            self.assertEqual(entry["base"], base)
            self.assertEqual(entry["since"], "%d.%d" % (int(since) // 1000, int(since) % 1000 // 10))
            self.assertEqual(entry["stream"], stream.lower().replace("_", "-"))
            self.assertEqual(entry["need"], need.lower())
            self.assertEqual(entry["what"], kind.lower())
            self.assertEqual(entry["group"], why.lower().replace("_", "-"))

    def required_rows_are_those_sublet_calls_itself(self):
        """Without one of them it stays off: the list of its own calls says the same of each."""
        with open(os.path.join(harness.SOURCE, "lifecycle/driver.def")) as text:
            calls = dict(re.findall(r"^DRIVER_CALL\((\w+), \w+, (\w+)\)", text.read(), re.M))
        needs = {row[1]: row[5] for row in listed()}
        self.assertGreater(len(calls), 20)
        self.assertEqual({symbol: needs.get(symbol) for symbol in calls}, calls)
        others = {row[1]: row[0] for row in listed() if row[5] == "REQUIRED" and row[1] not in calls}
        self.assertEqual(set(others.values()) - {"WRAP"}, set(), "required, but neither called nor wrapped: %s" % others)

    def versions_are_those_of_the_typedefs(self):
        """cudaTypedefs.h has one type per base name, stream variant and version of the ABI, which is what
        cuGetProcAddress is asked for."""
        header = next((h for h in (os.path.join(d, "cudaTypedefs.h") for d in (os.environ["SUBLET_TEST_HEADERS"],
                                   "/usr/local/cuda/include", "/usr/include")) if os.path.exists(h)), None)
        if not header:
            self.skipTest("no cudaTypedefs.h here")
        with open(header) as text:
            types = re.findall(r"\bPFN_(cu[A-Za-z0-9]+)_v(\d+)(?:_ptsz|_ptds)?\)", text.read())
        self.assertGreater(len(types), 400)
        wanted, got = {}, {}
        for base, version in types:
            wanted.setdefault(base, set()).add(int(version))
        for _, _, base, since, _, _, _ in listed():
            got.setdefault(base, set()).add(int(since))
        self.assertEqual({b: v for b, v in got.items() if b in wanted and wanted[b] != v}, {}, wanted)
        self.assertEqual(set(wanted) - set(got), set())

    def every_row_says_why(self):
        for entry in self.given_json():
            self.assertGreater(len(entry["because"]), 10, entry)

    def table_has_one_line_per_row_and_a_head(self):
        got = self.sublet("entries")
        lines = got.stdout.splitlines()
        self.assertEqual(len(lines), len(listed()) + 1)
        self.assertEqual(lines[0].split()[:3], ["symbol", "base", "since"])
        row = next(line for line in lines if line.startswith("cuMemAlloc_v2 ")).split()
        self.assertEqual(row[:7], ["cuMemAlloc_v2", "cuMemAlloc", "3.2", "legacy", "required", "wrap", "memory"])

    def wrapped_gated_and_passed_split_the_list(self):
        parts = {what: self.given_json(word) for what, word in (("wrap", "--wrapped"), ("gated", "--gated"), ("pass", "--passed"))}
        for what, rows in parts.items():
            self.assertEqual({e["what"] for e in rows}, {what})
        self.assertEqual(sum(map(len, parts.values())), len(listed()))

    def what_makes_the_device_touch_memory_is_gated(self):
        """By name, so that a row of a later CUDA is not passed on unseen. Those of the 32-bit era see no managed address."""
        touches = re.compile(r"cu(LaunchKernel|LaunchCooperative|LaunchGrid|Launch$|GraphLaunch|Memcpy|Memset|Stream(Wait|Write)Value"
                             r"|StreamBatchMemOp|MemPrefetch|MemBatchDecompress|MemDiscard)")
        for entry in self.given_json():
            if touches.match(entry["base"]) and entry["group"] != "abi32":
                self.assertEqual(entry["what"], "gated", entry)

    def glob_matches_symbol_or_base(self):
        self.assertEqual({e["symbol"] for e in self.given_json("cuMemFree")}, {"cuMemFree", "cuMemFree_v2"})
        self.assertEqual([e["symbol"] for e in self.given_json("cuMemFree_v2")], ["cuMemFree_v2"])
        self.assertTrue(all("Ipc" in e["symbol"] for e in self.given_json("cuIpc*")))

    def glob_without_a_match_exits_1(self):
        self.refuses(1, "no entry point matches 'cudaMalloc'", "entries", "cudaMalloc")

    def two_parts_at_once_exit_2(self):
        self.refuses(2, "'--wrapped', '--gated' and '--passed'", "entries", "--wrapped", "--passed")

    def two_patterns_exit_2(self):
        self.refuses(2, "one pattern at most", "entries", "cuMemAlloc", "cuMemFree")


if __name__ == "__main__":
    harness.main()
