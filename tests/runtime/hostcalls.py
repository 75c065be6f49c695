#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the host is asked for while a guest does what needs no host: `debug --stats` counts it.

A guest process does one thing N times between two moments at which nothing else happens in the sandbox. How a thread and
its sentry thread wait for each other (futexes), and where they run, is the hand-over's business and not counted here.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["TOP"], "tests/runtime"))
from _lib import HOLDFAST, STATE, TOP, bundle, hf, main, test, wait_for

N = 2000
SLACK = 40  # calls that have nothing to do with ours: start and end of the count, a timer
HAND_OVER = ("host.futex", "host.sched_setaffinity", "host.ptrace")
DEBIAN = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], check=True, stdout=subprocess.PIPE,
                        text=True).stdout.strip()
PLATFORM = ["--platform", os.environ["HOLDFAST_TEST_PLATFORM"]] if "HOLDFAST_TEST_PLATFORM" in os.environ else []

GUEST = """
import os, sys, select, socket, time, ctypes, threading
from os import O_CREAT, O_RDONLY, O_RDWR, O_WRONLY
%(setup)s
def work(n):
    for i in range(n):
        %(work)s
work(60)    # caches, call sites
open("/proc/self/comm").read()
print("ready", flush=True)
os.read(0, 1)
work(%(n)d)
print("done", flush=True)
os.read(0, 1)
"""


class Guest:
    """A sandbox whose process waits for a byte before each step."""

    def __init__(self, name, setup, work):
        def edit(conf):
            conf["root"]["path"] = DEBIAN
            conf["process"]["user"] = {"uid": 0, "gid": 0}
            conf["process"].pop("rlimits", None)

        self.name = name
        self.dir = bundle(name, ["/usr/bin/python3", "-c", GUEST % {"setup": setup, "work": work, "n": N}], edit)
        self.out = os.path.join(self.dir, "out")
        with open(self.out, "w") as out:
            self.p = subprocess.Popen([HOLDFAST, "--root", STATE, *PLATFORM, "run", "--overlay", "memory", "--bundle",
                                       self.dir, name], stdin=subprocess.PIPE, stdout=out, stderr=out)

    def said(self, word):
        def look():
            with open(self.out) as f:
                return word in f.read() or self.p.poll() is not None

        assert wait_for(look, 120) and self.p.poll() is None, open(self.out).read()

    def step(self):
        self.p.stdin.write(b"x")
        self.p.stdin.flush()

    def end(self):
        hf("delete", "--force", self.name)
        self.p.communicate(timeout=30)


def count(name, setup, work):
    """{counter: n} of N times @work, and {call: n}."""
    g = Guest("hostcalls-" + name, setup, work)
    try:
        g.said("ready")
        with subprocess.Popen([HOLDFAST, "--root", STATE, "debug", "--stats", "--format", "json", "--seconds", "0", g.name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as d:
            assert d.stderr.readline().strip() == b"counting"
            g.step()
            g.said("done")
            out = d.communicate(timeout=60)[0]
        assert d.returncode == 0, out
        rep = json.loads(out)
        return rep["counters"], rep["calls"]
    finally:
        g.end()


def expect(name, setup, work, allowed=None, calls=None):
    """@allowed: {counter: how many for each turn}; everything else of the host is to be near 0."""
    counters, seen = count(name, setup, work)
    for c in calls or ():
        assert seen.get(c, 0) >= N, f"{c}: {seen}"
    bad = {k: round(v / N, 3) for k, v in counters.items()
           if (k.startswith("host.") or k == "gofer.messages") and k not in HAND_OVER
           and v > (allowed or {}).get(k, 0) * N + SLACK}
    assert not bad, f"for each turn: {bad}"
    return counters


@test
def no_calls_of_the_sentry_alone():
    """umask: the sentry's, without any work."""
    expect("umask", "", "os.umask(18)", calls=["umask"])


@test
def tmpfs():
    setup = "f = os.open('/dev/shm/f', O_CREAT | O_RDWR)\nos.write(f, b'x' * 65536)"
    expect("tmpfs-io", setup, "os.pread(f, 4096, 8192), os.pwrite(f, b'y' * 4096, 4096)", calls=["pread64", "pwrite64"])
    expect("tmpfs-names", "", "os.close(os.open('/dev/shm/n', O_CREAT | O_RDWR)), os.stat('/dev/shm/n'), "
           "os.unlink('/dev/shm/n')", calls=["openat", "unlink"])


@test
def rootfs_read():
    """The data is in the host's page cache: one call that fetches it."""
    expect("root-pread", "f = os.open('/bin/bash', O_RDONLY)", "os.pread(f, 4096, 8192)", {"host.pread": 1}, ["pread64"])


@test
def rootfs_names():
    expect("root-stat", "", "os.stat('/usr/bin/env'), os.path.exists('/usr/bin/no-such-file'), os.readlink('/bin')",
           calls=["readlink"])
    expect("root-open", "", "os.close(os.open('/usr/bin/env', O_RDONLY))", calls=["openat"])
    expect("root-dir", "", "os.listdir('/usr/share')", calls=["getdents64"])


@test
def writable_layer():
    """What the guest has changed of its root file system is in the sentry's memory."""
    setup = "f = os.open('/root/f', O_CREAT | O_RDWR)\nos.write(f, b'x' * 65536)"
    expect("layer-io", setup, "os.pread(f, 4096, 8192), os.pwrite(f, b'y' * 4096, 4096)", calls=["pread64", "pwrite64"])
    expect("layer-names", "", "os.close(os.open('/root/n', O_CREAT | O_RDWR)), os.stat('/root/n'), os.unlink('/root/n')",
           calls=["openat", "unlink"])


@test
def pipes_and_sockets():
    expect("pipe", "r, w = os.pipe()", "os.write(w, b'x'), os.read(r, 1)", calls=["read", "write"])
    expect("unix", "a, b = socket.socketpair()", "a.send(b'x'), b.recv(1)")
    expect("eventfd", "f = os.eventfd(0)", "os.eventfd_write(f, 1), os.eventfd_read(f)")


@test
def epoll_on_pipes():
    expect("epoll", "r, w = os.pipe()\ne = select.epoll()\ne.register(r, select.EPOLLIN)",
           "os.write(w, b'x'), e.poll(0), os.read(r, 1), e.poll(0)", calls=["epoll_wait"])


@test
def futexes():
    setup = "libc = ctypes.CDLL(None)\nword = ctypes.c_int(1)\np = ctypes.byref(word)"
    expect("futex", setup, "libc.syscall(202, p, 129, 1, None, None, 0), libc.syscall(202, p, 128, 0, None, None, 0)",
           calls=["futex"])


@test
def clocks():
    expect("clock", "libc = ctypes.CDLL(None)\nts = ctypes.create_string_buffer(16)",
           "time.time(), time.monotonic(), libc.syscall(228, 1, ts)")


@test
def signals():
    expect("kill", "import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)", "os.kill(os.getpid(), signal.SIGUSR1)",
           calls=["kill"])


@test
def devices():
    expect("dev", "z, o = os.open('/dev/zero', O_RDONLY), os.open('/dev/null', O_WRONLY)", "os.read(z, 1), os.write(o, b'x')",
           calls=["read", "write"])


main()
