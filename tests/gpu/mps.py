"""A daemon of NVIDIA's Multi-Process Service of our own: every CUDA process started meanwhile is its client, also plain ones. Its
folders are private, so another one on the machine is left alone."""

import os
import shutil
import subprocess
import tempfile

import steps

CONTROL = "nvidia-cuda-mps-control"


def why_not():
    """None, or why there is none."""
    return None if shutil.which(CONTROL) else f"no '{CONTROL}'"


class Mps:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sublet-mps-")  # short: sockets will live in it
        self.log, self.started = "", False
        self.names = {}
        for name in ("PIPE", "LOG"):
            path = os.path.join(self.folder, name.lower())
            os.mkdir(path, 0o700)
            self.names[f"CUDA_MPS_{name}_DIRECTORY"] = path

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.names}
        os.environ.update(self.names)  # of all that is started from here on
        # not through pipes, which the daemon would keep open
        nothing = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
        told = subprocess.run([CONTROL, "-d"], timeout=30, check=False, **nothing)
        self.started = told.returncode == 0
        if not self.started:
            self.__exit__()
            raise OSError(f"'{CONTROL} -d' ends with {told.returncode}")
        return self

    def clients(self):
        """What the daemon knows of servers, as text: empty where nobody has come."""
        return self.say("get_server_list").strip()

    def say(self, words):
        return subprocess.run([CONTROL], input=words + "\n", capture_output=True, text=True, timeout=30, check=False).stdout

    def __exit__(self, *_):
        try:
            if self.started:
                self.say("quit")
        except subprocess.TimeoutExpired:
            self.log += f"'{CONTROL}' does not quit within 30 s\n"
        for name, value in self.before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        for name in ("control.log", "server.log"):
            try:
                with open(os.path.join(self.folder, "log", name), encoding="utf-8", errors="replace") as file:
                    self.log += f"{name}:\n{file.read()[-20000:]}"
            except OSError:
                pass
        steps.drop_dir(self.folder)
