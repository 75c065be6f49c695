#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the live processes of a sandbox may do, read from the host's /proc."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import WORK, bundle, hf, main, state, test  # noqa: E402

GOFER_CAPS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # chown, dac_override, dac_read_search, fowner, fsetid
NAMESPACES = ("user", "pid", "net", "ipc", "mnt", "uts", "cgroup")


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().split("\0")
    except OSError:
        return []


def ppid(pid):
    try:
        return int(status(pid)["PPid"])
    except (OSError, KeyError):
        return -1


class Sandbox:
    def __enter__(self):
        assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "p")[0] == 0
        self.sentry = state("p")["pid"]
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
        self.children = [p for p in pids if ppid(p) == self.sentry]
        ours = [p for p in pids if len(cmdline(p)) > 1 and cmdline(p)[1] == "gofer-role"]
        self.gofer = max(ours)
        return self

    def __exit__(self, *exc):
        hf("delete", "--force", "p")


def check_common(pid, caps):
    s = status(pid)
    for c in ("CapEff", "CapPrm"):
        assert int(s[c], 16) == caps, (pid, c, s[c])
    for c in ("CapInh", "CapBnd", "CapAmb"):
        assert int(s[c], 16) == 0, (pid, c, s[c])
    assert s["NoNewPrivs"] == "1"
    assert s["Seccomp"] == "2"


def check_namespaces(pid, names):
    for n in names:
        assert os.readlink(f"/proc/{pid}/ns/{n}") != os.readlink(f"/proc/self/ns/{n}"), (pid, n)


def check_descriptors(pid):
    """Nothing that leads to a host file or terminal outside what a sandbox needs."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        t = os.readlink(f"/proc/{pid}/fd/{fd}")
        ok = (t.startswith(("socket:", "pipe:", "anon_inode:", "/memfd:")) or t == "/dev/null" or "(deleted)" in t
              or t.startswith(WORK) or t.startswith("/") and t.count("/") == 1)
        assert ok, (pid, fd, t)


@test
def sentry():
    with Sandbox() as sb:
        check_common(sb.sentry, 0)
        assert int(status(sb.sentry)["Uid"].split()[0]) >= 0x70000000
        assert status(sb.sentry)["Groups"].strip() == ""
        check_namespaces(sb.sentry, NAMESPACES)
        assert os.listdir(f"/proc/{sb.sentry}/root") == []
        check_descriptors(sb.sentry)
        # not dumpable: its /proc files belong to root
        assert os.stat(f"/proc/{sb.sentry}/mem").st_uid == 0
        assert "Max core file size         0" in open(f"/proc/{sb.sentry}/limits").read()


@test
def gofer():
    with Sandbox() as sb:
        check_common(sb.gofer, GOFER_CAPS)
        check_namespaces(sb.gofer, [n for n in NAMESPACES if n != "user"])
        assert os.listdir(f"/proc/{sb.gofer}/root") == []
        assert "Max core file size         0" in open(f"/proc/{sb.gofer}/limits").read()


@test
def stubs():
    with Sandbox() as sb:
        assert sb.children
        for pid in sb.children:
            check_common(pid, 0)
            check_namespaces(pid, NAMESPACES)
            assert os.listdir(f"/proc/{pid}/root") == []
            check_descriptors(pid)
            assert os.stat(f"/proc/{pid}/mem").st_uid == 0
            for line in open(f"/proc/{pid}/maps"):
                assert "[vdso]" not in line and "[vvar]" not in line, line


main()
