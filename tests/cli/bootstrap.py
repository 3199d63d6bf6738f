#!/usr/bin/env python3
"""tools/bootstrap's search for the CUDA headers, and what it says when it cannot go on. The file is sourced and given a
made-up system: nothing is installed and no network is used."""
import os
import platform
import subprocess
import zipfile

import harness

# Stand-ins for what must not happen here; a case may define its own after them.
GUARD = """
install_packages() { shift; [ $# -eq 0 ] || { echo "INSTALL $*" >&2; exit 9; }; }
fetch_headers() { echo FETCH >&2; mkdir -p "$1"; }
"""


class Bootstrap(harness.Case):
    def setUp(self):
        super().setUp()
        self.build, self.system = os.path.join(self.folder, "build"), os.path.join(self.folder, "system")
        os.mkdir(self.build)
        for name in list(self.env):
            if name.startswith(("CUDA_", "PIP_")):
                del self.env[name]

    def given_headers(self, *path, version=13000):
        folder = os.path.join(self.folder, *path)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "cuda.h"), "w") as text:
            text.write("/* made up */\n#define CUDA_VERSION %d\n" % version)
        return folder

    def given_run(self, script, guard=GUARD, **environment):
        text = 'source "%s/tools/bootstrap"\nbuild=%s log=%s/log system=%s\n%s\n%s' % (
            harness.SOURCE, self.build, self.build, self.system, guard, script)
        return subprocess.run(["bash", "-c", text], env=dict(self.env, **environment), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)

    def given_search_finds(self, folder, said="", **environment):
        got = self.given_run("find_headers", **environment)
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, folder + "\n", said))

    def headers_of_cuda_home_come_first(self):
        home = self.given_headers("home/include")
        self.given_headers("path/include")
        self.given_headers("system/usr/local/cuda/include")
        self.given_search_finds(home, CUDA_HOME=self.folder + "/home", CUDA_PATH=self.folder + "/path")

    def headers_of_cuda_path_come_second(self):
        path = self.given_headers("path/include")
        self.given_headers("system/usr/local/cuda/include")
        self.given_search_finds(path, CUDA_PATH=self.folder + "/path")

    def headers_of_usr_local_come_before_the_distributions(self):
        local = self.given_headers("system/usr/local/cuda/include")
        self.given_headers("system/usr/include")
        self.given_search_finds(local)

    def headers_of_the_distribution_come_before_the_wheel(self):
        self.given_headers("build/cuda-headers")
        for path in ("lib/nvidia-cuda-toolkit/include", "lib/cuda/include", "include"):
            self.given_search_finds(self.given_headers("system/usr", path))

    def headers_fetched_earlier_come_before_the_network(self):
        self.given_search_finds(self.given_headers("build/cuda-headers"))

    def headers_nowhere_are_fetched(self):
        self.given_search_finds(self.build + "/cuda-headers", said="FETCH\n")

    def headers_below_targets_count(self):
        machine = {"aarch64": "sbsa"}.get(platform.machine(), platform.machine())
        self.given_search_finds(self.given_headers("conda/targets/%s-linux/include" % machine), CUDA_HOME=self.folder + "/conda")

    def cuda_home_without_headers_is_said_and_passed_over(self):
        path = self.given_headers("path/include")
        home = os.path.join(self.folder, "home")
        self.given_search_finds(path, "bootstrap: no usable CUDA headers where CUDA_HOME is (%s); looking elsewhere\n" % home,
                   CUDA_HOME=home, CUDA_PATH=self.folder + "/path")

    def old_headers_are_said_and_passed_over(self):
        old = self.given_headers("system/usr/local/cuda/include", version=12040)
        new = self.given_headers("system/usr/include")
        self.given_search_finds(new, "bootstrap: passing over %s/cuda.h: CUDA 12.4, 13.0 or later is needed\n" % old)

    def folder_with_a_blank_is_found(self):
        self.given_search_finds(self.given_headers("my cuda/include"), CUDA_HOME=self.folder + "/my cuda")

    def folder_given_relatively_is_found_from_where_the_caller_stands(self):
        home = self.given_headers("home/include")
        got = self.given_run("find_headers", CUDA_HOME=os.path.relpath(self.folder + "/home"))
        self.assertEqual((got.returncode, got.stdout), (0, home + "\n"), got)

    def given_fetch(self, **environment):
        if subprocess.run(["python3", "-m", "pip", "--version"], capture_output=True, env=self.env).returncode:
            self.skipTest("no pip")
        # the certificates that a network would need are no matter here
        got = self.given_run('fetch_headers "$build/cuda-headers"', guard="install_packages() { :; }",
                             PIP_CONFIG_FILE="/dev/null", **environment)
        return got

    def wheel_without_a_network_is_one_clear_line(self):
        # nothing listens on the discard port; where even the loopback device is down, the kernel finds no way there
        got = self.given_fetch(PIP_INDEX_URL="http://127.0.0.1:9/simple", http_proxy="", https_proxy="", no_proxy="*")
        lines = got.stderr.splitlines()
        self.assertEqual((got.returncode, got.stdout, len(lines)), (1, "", 2), got.stderr)
        self.assertRegex(lines[1], r"cannot be fetched \(\[Errno (111\] Connection refused|101\] Network is unreachable)\);")
        self.assertIn("set CUDA_HOME", lines[1])
        self.assertFalse(os.path.exists(self.build + "/cuda-headers"))

    def given_wheel(self, name, **files):
        """In self.folder/wheels; @files are texts by path."""
        os.makedirs(os.path.join(self.folder, "wheels"), exist_ok=True)
        file = name.replace("-", "_") + "-13.0.0"
        with zipfile.ZipFile(os.path.join(self.folder, "wheels", file + "-py3-none-any.whl"), "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
            wheel.writestr(file + ".dist-info/METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: 13.0.0\n" % name)
            wheel.writestr(file + ".dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(file + ".dist-info/RECORD", "")

    def given_unpacked(self):
        got = self.given_fetch(PIP_NO_INDEX="1", PIP_FIND_LINKS=os.path.join(self.folder, "wheels"))
        self.assertEqual(got.returncode, 0, got.stderr)
        found = sorted(os.path.relpath(os.path.join(place, f), self.folder) for place, _, files in os.walk(self.folder)
                       for f in files if f.endswith((".h", ".so")))
        return found, got.stderr

    def wheels_give_their_include_folders_and_nothing_beside_them(self):
        self.given_wheel("nvidia-cuda-runtime", **{"nvidia/cu13/include/cuda.h": "#define CUDA_VERSION 13000\n",
                                                   "nvidia/cu13/include/crt/host.h": "",
                                                   "nvidia/cu13/include/../../../../../outside.h": "",
                                                   "nvidia/cu13/lib/libcudart.so": ""})
        self.given_wheel("nvidia-nvtx", **{"nvidia/cu13/include/nvtx3/nvToolsExt.h": "", "nvidia/cu13/lib/libnvtx3interop.so": ""})
        found, said = self.given_unpacked()
        self.assertEqual(found, ["build/cuda-headers/" + f for f in ("crt/host.h", "cuda.h", "nvtx3/nvToolsExt.h")])
        self.assertNotIn("no NVTX", said)

    def wheel_of_nvtx_that_cannot_be_had_is_said_and_done_without(self):
        self.given_wheel("nvidia-cuda-runtime", **{"nvidia/cu13/include/cuda.h": "#define CUDA_VERSION 13000\n"})
        found, said = self.given_unpacked()
        self.assertEqual(found, ["build/cuda-headers/cuda.h"])
        self.assertEqual(said.count("no NVTX headers, so that the tests of NVTX ranges are left out"), 1)


class Refusals(Bootstrap):
    """Each is one line that names what to do."""

    def given_commands(self, **scripts):
        """A folder for PATH with programs of these names and texts."""
        folder = os.path.join(self.folder, "bin")
        os.mkdir(folder)
        for name, text in dict({"apt-get": "exit 0", "id": "echo 1000"}, **scripts).items():
            path = os.path.join(folder, name)
            with open(path, "w") as out:
                out.write("#!/bin/sh\n%s\n" % text)
            os.chmod(path, 0o755)
        for name in ("bash", "sh", "tail", "dirname", "env"):
            if not os.path.exists(os.path.join(folder, name)):
                os.symlink(os.path.realpath(subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()),
                           os.path.join(folder, name))
        return folder

    def given_refusal(self, text, **scripts):
        path = self.given_commands(**scripts)
        got = self.given_run('PATH=%s; install_packages "the build" gcc meson' % path, guard="")
        self.assertEqual((got.returncode, got.stdout, got.stderr.count("\n")), (1, "", 1), got.stderr)
        self.assertIn("as root run 'apt-get install gcc meson'", got.stderr)
        self.assertIn(text, got.stderr)

    def without_root_and_sudo_the_packages_are_named(self):
        self.given_refusal("nor is there sudo")

    def with_a_sudo_that_refuses_the_packages_are_named(self):
        self.given_refusal("(sudo: a password is required)", sudo="echo 'sudo: a password is required' >&2; exit 1")

    def command_or_word_too_many_is_refused(self):
        for words, text in ((["bild"], "unknown command 'bild'"), (["build", "now"], "'build' takes no more words")):
            got = subprocess.run([os.path.join(harness.SOURCE, "tools/bootstrap"), *words], env=self.env,
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual((got.returncode, got.stdout, got.stderr.count("\n")), (2, "", 1), got.stderr)
            self.assertIn(text, got.stderr)

    def build_folder_that_cannot_be_made_is_named(self):
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        got = subprocess.run([os.path.join(harness.SOURCE, "tools/bootstrap"), "build"], capture_output=True, text=True,
                             env=dict(self.env, SUBLET_BUILD=blocked + "/build"), timeout=60)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("bootstrap: error: cannot make the build folder '%s/build'" % blocked, got.stderr)


if __name__ == "__main__":
    harness.main()
