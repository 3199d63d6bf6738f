"""What Sublet adds to pushing and popping an NVTX range, which programs believe to be nearly free. The first argument is the command,
the second nvtx_ranges.c compiled, the third the folder of the simulated driver. Exit 0: the bar was met."""

import os
import subprocess
import sys
import tempfile

BAR_NS = 20  # a pair, when no trigger asks

HEAD = "version: 1\nroles: [a]\nphases: [opened, ended]\ntriggers:\n"
CASES = [
    ("without Sublet", None, "step"),
    ("no trigger asks", "  - {enter: opened, command: true}\n", "step"),
    ("asked at push, no match", '  - {enter: opened, nvtx_push: "*generate*"}\n', "step"),
    ("asked at pop, no match", '  - {enter: ended, nvtx_pop: "*generate*"}\n', "step"),
    ("asked at both, a phase each", '  - {enter: opened, nvtx_push: "gen*"}\n  - {enter: ended, nvtx_pop: "gen*"}\n', "generate"),
]


def measure(command, program, sim, folder, triggers, name):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SUBLET_") and k != "NVTX_INJECTION64_PATH"}
    words = [program, name]
    if triggers is None:
        env["LD_LIBRARY_PATH"] = sim
    else:
        session = os.path.join(folder, "session")
        policy = os.path.join(folder, "policy.yaml")
        os.makedirs(session, mode=0o700, exist_ok=True)
        with open(policy, "w") as text:
            text.write(HEAD + triggers)
        words = [command, "run", "--sim=64MiB", "--session", session, "--policy", policy, "--role", "a", "--", *words]
    got = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    if triggers is not None:
        subprocess.run([command, "ctl", "stop", "--session", session], env=env, capture_output=True, timeout=60)
    if got.returncode:
        sys.exit("%s: exit %d\n%s" % (name, got.returncode, got.stderr))
    return float(got.stdout)


def main():
    command, program, sim = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = {what: min(measure(command, program, sim, folder, triggers, name) for _ in range(3)) for what, triggers, name in CASES}
    for what, ns in found.items():
        print("push + pop, %-28s %7.1f ns" % (what + ":", ns))
    added = found["no trigger asks"] - found["without Sublet"]
    print("no trigger asks: %+.1f ns a pair (bar: %d)" % (added, BAR_NS))
    return added > BAR_NS


if __name__ == "__main__":
    sys.exit(main())
