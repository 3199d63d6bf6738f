#!/usr/bin/env python3
"""The command's front: help of every command, and what each wrong word on the command line gets for an answer."""
import os
import re

import harness


def listed_commands():
    with open(os.path.join(harness.SOURCE, "tools/commands.def")) as text:
        return re.findall(r'^COMMAND\((\w+), \w+, "(.+)"\)$', text.read(), re.M)


class Help(harness.Case):
    def help_of_every_command_follows_the_house_style(self):
        commands = listed_commands()
        self.assertGreaterEqual(len(commands), 3)
        for name, _ in commands:
            for word in ("-h", "--help"):
                got = self.sublet(name, word)
                self.assertEqual((got.returncode, got.stderr), (0, ""), name)
                lines = got.stdout.splitlines()
                self.assertTrue(lines[0].startswith("usage: sublet %s" % name), got.stdout)
                self.assertEqual(lines[1], "", got.stdout)
                self.assertTrue(lines[2].endswith("."), got.stdout)
                for part in ("options:", "environment:", "example:"):
                    self.assertTrue(any(line.startswith(part) for line in lines), "%s lacks %s" % (name, part))
                self.assertLessEqual(max(map(len, lines)), 120, name)

    def help_of_a_command_names_every_option_it_takes(self):
        for name, _ in listed_commands():
            shown = set(re.findall(r"--[a-z]+", self.sublet(name, "-h").stdout))
            file = "tools/sublet.c" if name == "help" else "tools/cmd_%s.c" % name
            with open(os.path.join(harness.SOURCE, file)) as text:
                known = set(re.findall(r'\{"([a-z-]+)", (?:no|required|optional)_argument', text.read()))
            self.assertTrue(known, name)
            self.assertEqual({"--" + k for k in known} - shown, set(), name)

    def help_command_says_what_the_option_says(self):
        for name, _ in listed_commands():
            self.assertEqual(self.sublet("help", name).stdout, self.sublet(name, "-h").stdout)

    def help_lists_every_command_with_its_sentence(self):
        for words in (["help"], ["-h"], ["--help"]):
            got = self.sublet(*words)
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            for name, sentence in listed_commands():
                self.assertRegex(got.stdout, r"(?m)^  %s +%s$" % (name, re.escape(sentence)))

    def help_wins_over_other_options(self):
        self.assertEqual(self.sublet("run", "--sim=1GiB", "-h").returncode, 0)

    def version_is_the_projects(self):
        with open(os.path.join(harness.SOURCE, "meson.build")) as text:
            version = re.search(r"version: '([^']+)'", text.read()).group(1)
        self.assertEqual(self.sublet("--version").stdout, "sublet %s\n" % version)


class BadInput(harness.Case):
    def no_words_print_the_help_and_exit_2(self):
        got = self.sublet()
        self.assertEqual((got.returncode, got.stdout), (2, ""))
        self.assertTrue(got.stderr.startswith("usage: sublet"))

    def unknown_command_near_a_known_one_is_suggested(self):
        self.refuses(2, "unknown command 'entrys'; did you mean 'sublet entries'?", "entrys")
        self.refuses(2, "did you mean 'sublet run'?", "rnu")

    def unknown_command_that_is_a_program_points_at_run(self):
        self.refuses(2, "'sublet run -- python3'", "python3")

    def unknown_option_before_the_command_exits_2(self):
        self.refuses(2, "unknown option '--sim'; the command comes first", "--sim", "run", "true")

    def unknown_options_of_commands_exit_2(self):
        self.refuses(2, "unknown option '--folow'; did you mean '--follow'?", "run", "--folow", "true")
        self.refuses(2, "unknown option '--zzzzzz'; see 'sublet run -h'", "run", "--zzzzzz", "true")
        self.refuses(2, "unknown option '-x'; see 'sublet run -h'", "run", "-x", "true")
        self.refuses(2, "unknown option '--warpped'; did you mean '--wrapped'?", "entries", "--warpped")
        self.refuses(2, "unknown option '--all'", "help", "--all")

    def option_without_its_value_exits_2(self):
        for option in ("--session", "--role", "--log"):
            self.refuses(2, "option '%s' needs a value" % option, "run", option)

    def option_with_a_value_it_does_not_take_exits_2(self):
        self.refuses(2, "option '--follow' takes no value", "run", "--follow=yes", "true")

    def help_of_unknown_command_exits_2(self):
        self.refuses(2, "did you mean 'sublet run'?", "help", "runn")

    def help_of_two_commands_exits_2(self):
        self.refuses(2, "explains one command", "help", "run", "entries")

    def a_newline_in_a_word_keeps_the_answer_on_one_line(self):
        self.refuses(2, "unknown command", "ru\nn\nx")

    def control_characters_in_a_word_do_not_reach_the_terminal(self):
        got = self.refuses(2, "unknown command 'r?[31mu\u00e9n?'", "r\x1b[31mu\u00e9n\x07", env=dict(self.env, LC_ALL="C.UTF-8"))
        self.assertFalse([c for c in got.stderr[:-1] if ord(c) < 32 or ord(c) == 127], got)

    def a_full_disk_under_the_result_exits_1(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        import subprocess
        with open("/dev/full", "w") as full:
            got = subprocess.run([harness.EXE, "entries"], stdout=full, stderr=subprocess.PIPE, text=True, env=self.env)
        self.assertEqual(got.returncode, 1)
        self.assertIn("sublet: error: cannot write the result", got.stderr)


if __name__ == "__main__":
    harness.main()
