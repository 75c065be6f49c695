#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exec: identity, environment, capabilities, exit statuses, pid files."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, alive, bundle, busybox_root, hf, main, test, wait_for  # noqa: E402


def container(fn):
    def run():
        with open(busybox_root() + "/etc/passwd", "w") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\nbob:x:1000:1001:Bob:/tmp:/bin/sh\n")
        with open(busybox_root() + "/etc/group", "w") as f:
            f.write("root:x:0:\nbob:x:1001:\nextra:x:2000:alice,bob\nother:x:2001:alice\n")
        assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "e")[0] == 0
        try:
            fn()
        finally:
            hf("delete", "--force", "e")
    run.__name__ = fn.__name__
    return test(run)


def sh(script, *options):
    return hf("exec", *options, "e", "/bin/sh", "-c", script)


@container
def users_by_number_and_name():
    assert sh("id -u; id -g", "--user", "1000")[1] == "1000\n0\n"
    assert sh("id -u; id -g", "--user", "1000:50")[1] == "1000\n50\n"
    assert sh("id -u; id -g; id -G", "--user", "bob")[1] == "1000\n1001\n1001 2000\n"
    assert sh("id -u; id -g", "--user", "bob:other")[1] == "1000\n2001\n"
    assert sh("id -G", "--user", "1000:50", "-g", "7", "-g", "8")[1] == "50 7 8\n"
    s, _, err = sh("id", "--user", "nobodyknows")
    assert s == 255 and "nobodyknows" in err and len(err.strip().splitlines()) == 1, err


@container
def environment_is_the_containers_with_changes():
    assert sh("echo $TERM $A", "-e", "A=1", "-e", "TERM=dumb", "-e", "A=2")[1] == "dumb 2\n"
    assert "/bin" in sh("echo $PATH")[1]


@container
def missing_directory_is_an_error_in_one_line():
    s, _, err = sh("pwd", "--cwd", "/no/dir")
    assert s == 255 and "/no/dir" in err and len(err.strip().splitlines()) == 1, err


@container
def capabilities():
    cap = "grep CapEff /proc/self/status"
    base = int(sh(cap)[1].split()[1], 16)
    assert base == 1 << 29 | 1 << 5 | 1 << 10, hex(base)
    assert int(sh(cap, "--cap", "CAP_SYS_ADMIN")[1].split()[1], 16) == base | 1 << 21
    assert int(sh(cap, "--user", "1000")[1].split()[1], 16) == 0
    assert int(sh("grep CapBnd /proc/self/status", "--user", "1000")[1].split()[1], 16) == base
    assert "NoNewPrivs:\t1" in sh("grep NoNewPrivs /proc/self/status", "--no-new-privs")[1]


@container
def statuses():
    assert sh("exit 0")[0] == 0
    assert sh("exit 255")[0] == 255
    assert sh("kill -TERM $$")[0] == 143
    assert sh("/no/such")[0] == 127
    assert sh("/etc/passwd")[0] == 126
    for args, word in ((["/no/such"], "no such file or directory"), (["nothere"], "executable file not found in $PATH"),
                       (["/etc/passwd"], "permission denied")):
        s, _, err = hf("exec", "e", *args)
        assert s == 255 and word in err and args[0] in err, err
    s, _, err = hf("exec", "e")
    assert s == 255 and err


@container
def process_object_from_a_file():
    with open(WORK + "/proc.json", "w") as f:
        json.dump({"args": ["/bin/sh", "-c", "echo $X; pwd; id -u"], "env": ["X=y", "PATH=/bin"], "cwd": "/tmp",
                   "user": {"uid": 5, "gid": 6}}, f)
    assert hf("exec", "--process", WORK + "/proc.json", "e")[1] == "y\n/tmp\n5\n"
    for bad in ("{", "[]", '{"args": []}', '{"args": ["x"], "cwd": "rel"}'):
        with open(WORK + "/proc.json", "w") as f:
            f.write(bad)
        s, _, err = hf("exec", "--process", WORK + "/proc.json", "e")
        assert s == 255 and len(err.strip().splitlines()) == 1, err


# prctl(PR_SET_CHILD_SUBREAPER): as containerd's shim and conmon, whoever waits is not who called.
SUBREAPER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
pid = int(open(sys.argv[1]).read())
print("pid", pid, flush=True)
while True:
    p, st = os.wait()
    if p == pid:
        print("status", os.waitstatus_to_exitcode(st))
        break
"""


def reaped(pid_file, *args):
    return subprocess.Popen([sys.executable, "-c", SUBREAPER, pid_file, HOLDFAST, "--root", STATE, *args],
                            stdout=subprocess.PIPE, text=True)


@container
def pid_file_names_a_process_that_ends_with_the_status():
    p = reaped(WORK + "/pid", "exec", "-d", "--pid-file", WORK + "/pid", "e", "/bin/sh", "-c", "sleep 0.3; exit 33")
    out, _ = p.communicate(timeout=20)
    assert out.splitlines()[-1] == "status 33", out


@container
def killing_the_pid_kills_the_process():
    for sig, script, want in ((signal.SIGKILL, "sleep 1000", -9), (signal.SIGTERM, "trap 'exit 9' TERM; while :; do sleep 0.1; done", 9)):
        p = reaped(WORK + "/pid", "exec", "-d", "--pid-file", WORK + "/pid", "e", "/bin/sh", "-c", script)
        pid = int(p.stdout.readline().split()[1])
        wait_for(lambda: False, 0.3)
        assert alive(pid)
        os.kill(pid, sig)
        out, _ = p.communicate(timeout=20)
        assert out.splitlines()[-1] == f"status {want}", out
        assert wait_for(lambda: hf("ps", "e")[1].count("sh") == 0), hf("ps", "e")


@test
def containers_pid_ends_with_its_status():
    b = bundle("b", ["/bin/sh", "-c", "sleep 0.3; exit 44"])
    p = reaped(WORK + "/pid", "run", "-d", "-b", b, "--pid-file", WORK + "/pid", "w")
    out, _ = p.communicate(timeout=20)
    assert out.splitlines()[-1] == "status 44", out
    assert hf("wait", "w")[0] == 44
    assert hf("delete", "w")[0] == 0


main()
