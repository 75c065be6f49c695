#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--systemd-cgroup: without systemd a clear error; with one the calls it gets, as a stand-in for it receives them.

The stand-in speaks D-Bus on the service manager's private socket in a /run of its own, makes no group itself (so
holdfast does) and ends every job at once.
"""
import os
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, bundle, hf, main, test  # noqa: E402

SLICE, UNIT = "hf-test.slice", f"libpod-hf{os.getpid()}.scope"


def padded(b, n):
    return b + b"\0" * (-len(b) % n)


def text(s):
    return struct.pack("<I", len(s)) + s.encode() + b"\0"


class Manager(threading.Thread):
    """Answers calls; self.calls has (member, body) of each."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.calls = []
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(path)
        self.sock.listen()

    def run(self):
        while True:
            c, _ = self.sock.accept()
            with c, c.makefile("rb") as f:
                if f.read(1) != b"\0" or not f.readline().startswith(b"AUTH EXTERNAL "):
                    continue
                c.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
                f.readline()  # BEGIN
                while self.answer(c, f):
                    pass

    @staticmethod
    def message(kind, fields, sig, body, serial):
        f = b""
        for code, t, v in fields + [(8, "g", sig)]:
            f = padded(f, 8) + bytes([code, 1]) + t.encode() + b"\0"
            if t == "u":
                f = padded(f, 4) + struct.pack("<I", v)
            else:
                f += bytes([len(v)]) + v.encode() + b"\0" if t == "g" else text(v)
        return padded(b"l" + bytes([kind, 0, 1]) + struct.pack("<III", len(body), serial, len(f)) + f, 8) + body

    def answer(self, c, f):
        head = f.read(16)
        if len(head) < 16:
            return False
        body_len, serial, fields_len = struct.unpack("<III", head[4:])
        fields = f.read((fields_len + 7) // 8 * 8)
        body = f.read(body_len)
        member = next(m for m in ("StartTransientUnit", "StopUnit", "ResetFailedUnit", "Get") if m.encode() + b"\0" in fields)
        self.calls.append((member, body))
        job = "/org/freedesktop/systemd1/job/7"
        if member == "StartTransientUnit":
            removed = padded(padded(struct.pack("<I", 7) + text(job), 4) + text(UNIT), 4) + text("done")
            c.sendall(self.message(2, [(5, "u", serial)], "o", text(job), 1))
            c.sendall(self.message(4, [(1, "o", "/org/freedesktop/systemd1"), (2, "s", "org.freedesktop.systemd1.Manager"),
                                       (3, "s", "JobRemoved")], "uoss", removed, 2))
        elif member == "Get":
            c.sendall(self.message(2, [(5, "u", serial)], "v", b"\1s\0\0" + text("/"), 3))
        else:
            c.sendall(self.message(3, [(4, "s", "org.freedesktop.systemd1.NoSuchUnit"), (5, "u", serial)], "s",
                                   text("not loaded"), 4))
        return True


def with_manager(fn):
    """Runs @fn in a child with a /run of its own, where the stand-in listens."""
    script = ("import os, sys; sys.path.insert(0, sys.argv[1]); import subprocess; "
              "subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', '/run'], check=True); "
              "os.makedirs('/run/systemd/system'); sys.argv = [sys.argv[1] + '/systemd.py', '--inside', sys.argv[2]]; "
              "exec(open(sys.argv[0]).read(), {'__file__': sys.argv[0], '__name__': 'inside'})")
    p = subprocess.run(["unshare", "-m", sys.executable, "-c", script, os.path.dirname(os.path.abspath(__file__)), fn],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stdout + p.stderr


def make(path):
    def edit(c):
        c["linux"]["cgroupsPath"] = path
        c["linux"]["resources"] = {"memory": {"limit": 100 << 20}, "pids": {"limit": 40}}
    return bundle("b", ["/bin/sleep", "1000"], edit)


def scope_lifecycle():
    m = Manager("/run/systemd/private")
    m.start()
    name = UNIT[len("libpod-"):-len(".scope")]
    s, _, err = hf("--systemd-cgroup", "run", "-d", "-b", make(f"{SLICE}:libpod:{name}"), "s1")
    assert s == 0, err
    member, body = m.calls[0]
    assert member == "StartTransientUnit" and body.startswith(text(UNIT)), m.calls
    for word in (SLICE, "Delegate", "PIDs", "TasksMax", "MemoryAccounting"):
        assert text(word) in body, (word, body)
    with open(f"{STATE}/s1/state.json") as f:
        pid = f.read().split('"sentry_pid":')[1].split(",")[0].strip()
    with open(f"/proc/{pid}/cgroup") as f:
        groups = f.read()
    assert f"/hf.slice/{SLICE}/{UNIT}\n" in groups, groups
    s, _, err = hf("--systemd-cgroup", "delete", "--force", "s1")
    assert s == 0 and "StopUnit" in [c[0] for c in m.calls], (err, m.calls)
    left = [d for d, _, _ in os.walk("/sys/fs/cgroup") if UNIT in d]
    assert not left, left
    for d, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if d.endswith((".slice")) and "/hf" in d:
            os.rmdir(d)


def bad_paths():
    m = Manager("/run/systemd/private")
    m.start()
    for path, words in (("/not/a/slice", "slice:prefix:name"), ("a:b:c:d", "slice:prefix:name"),
                        ("nosuffix:b:c", "invalid slice name"), ("a/b.slice:b:c", "invalid slice name")):
        s, _, err = hf("--systemd-cgroup", "create", "-b", make(path), "s2")
        assert s == 1 and words in err, (path, err)
    assert not m.calls and not os.path.exists(STATE + "/s2")


@test
def without_systemd_there_is_an_error():
    if os.path.isdir("/run/systemd/system"):
        return
    s, _, err = hf("--systemd-cgroup", "create", "-b", make("a.slice:b:c"), "s0")
    assert s == 1 and "systemd not running on this host" in err, err
    assert not os.path.exists(STATE + "/s0")


@test
def a_container_gets_a_scope_in_its_slice():
    with_manager("scope_lifecycle")


@test
def paths_that_are_no_scope_are_refused():
    with_manager("bad_paths")


if "--inside" in sys.argv:
    globals()[sys.argv[2]]()
elif os.geteuid() == 0:
    main()
else:
    print("1..0 # needs root")
