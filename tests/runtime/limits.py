#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a sandbox bounds what a guest can make the host hold, whatever the memory is for."""
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ["TOP"], "tests/runtime"))
from _lib import STATE, TOP, bundle, hf, main, test

MIB = 1 << 20
LIMIT = 192 * MIB
PLATFORM = ["--platform", os.environ["HOLDFAST_TEST_PLATFORM"]] if "HOLDFAST_TEST_PLATFORM" in os.environ else []
LOG = ["--log", os.environ["HOLDFAST_TEST_LOG"]] if "HOLDFAST_TEST_LOG" in os.environ else []
DEBIAN = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], check=True, stdout=subprocess.PIPE,
                        text=True).stdout.strip()


def held_by(pid):
    """Bytes of a sandbox's memory files (all on one tmpfs), and of its sentry's heap; 0 when it is gone."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/m"):
                v = os.statvfs(f"/proc/{pid}/fd/{fd}")
                break
        else:
            return 0
        with open(f"/proc/{pid}/status") as f:
            heap = next(int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon"))
        return (v.f_blocks - v.f_bfree) * v.f_frsize + heap
    except (OSError, StopIteration):
        return 0


class Peak(threading.Thread):
    """The most that a sandbox held."""

    def __init__(self, cid):
        super().__init__(daemon=True)
        self.cid, self.peak, self.stop = cid, 0, False

    def run(self):
        pid = None
        while not self.stop:
            if pid:
                self.peak = max(self.peak, held_by(pid))
            else:
                try:
                    with open(os.path.join(STATE, self.cid, "state.json")) as f:
                        pid = json.load(f).get("sentry_pid")
                except (OSError, ValueError):
                    pass  # not there yet
            time.sleep(0.005)


def guest(name, script, limit=LIMIT, timeout=120, interpreter=("/usr/bin/python3", "-c")):
    """(status, output, peak of the host's memory files) of a script in a sandbox with that limit."""

    def edit(conf):
        conf["root"]["path"] = DEBIAN
        conf["process"]["user"] = {"uid": 0, "gid": 0}
        conf["process"].pop("rlimits", None)
        conf["linux"].setdefault("resources", {})["memory"] = {"limit": limit}

    d = bundle(name, [*interpreter, script], edit)
    p = Peak(name)
    p.start()
    s, out, err = hf(*LOG, *PLATFORM, "run", "--overlay", "memory", "--bundle", d, name, timeout=timeout)
    p.stop = True
    p.join()
    return s, out + err, p.peak


def bounded(peak, limit=LIMIT + 32 * MIB):
    assert peak > 8 * MIB, "not measured"
    assert peak < limit, f"the host held {peak / MIB:.0f} MiB for a limit of {limit / MIB:.0f}"


CHILD = """
import os, sys, signal
def take(n):
    b = bytearray(n)
    for i in range(0, n, 4096):
        b[i] = 121
    return b
def child(fn):
    pid = os.fork()
    if pid == 0:
        fn()
        os._exit(0)
    st = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(st) if os.WIFSIGNALED(st) else os.WEXITSTATUS(st)
"""


@test
def anonymous_memory():
    s, out, peak = guest("anon", CHILD + """
def hog():
    held = []
    while True:
        held.append(bytearray(b"x" * (1 << 20)))
for i in range(3):
    assert child(hog) == -9, "not killed"
b = bytearray(b"y" * (32 << 20))
events = "/sys/fs/cgroup/memory.events"
assert not os.path.exists(events) or "oom_kill 3" in open(events).read()
print("alive", os.listdir("/")[0] != "")
""")
    assert s == 0 and "alive True" in out, (s, out)
    bounded(peak)
    assert peak > LIMIT / 2, peak


@test
def anonymous_memory_of_many():
    """The largest dies, not the one that asks, and who has little gets on."""
    s, out, peak = guest("many", CHILD + """
import time
r, w = os.pipe()
kids = []
for i in range(6):
    pid = os.fork()
    if pid == 0:
        held = take((5 << 20) if i else (90 << 20))
        os.write(w, b"r")
        signal.pause()
    kids.append(pid)
got = 0
while got < 6:
    got += len(os.read(r, 6))
b = take(70 << 20)
time.sleep(0.5)
dead = [k for k in kids if os.waitpid(k, os.WNOHANG)[0]]
print("dead", [kids.index(k) for k in dead])
for k in kids:
    if k not in dead:
        os.kill(k, 9)
""")
    assert s == 0 and "dead [0]" in out, (s, out)
    bounded(peak)


@test
def kernel_copies_into_fresh_memory():
    """read(2) into pages that were never touched: the sentry's own copies hit the limit."""
    s, out, peak = guest("copies", CHILD + """
import mmap
def hog():
    m = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    f = open("/dev/zero", "rb", buffering=0)
    v = memoryview(m)
    for i in range(1024):
        n = f.readinto(v[i << 20:(i + 1) << 20])
        assert n == 1 << 20, n
assert child(hog) == -9
print("alive")
""")
    assert s == 0 and "alive" in out, (s, out)
    bounded(peak)


@test
def copy_on_write():
    s, out, peak = guest("cow", CHILD + """
import time
b = bytearray(b"x" * (80 << 20))
def writer():
    for i in range(0, len(b), 4096):
        b[i] = 1
    signal.pause()
kids = []
for i in range(3):
    pid = os.fork()
    if pid == 0:
        open("/proc/self/oom_score_adj", "w").write("500")
        writer()
    kids.append(pid)
time.sleep(4)
dead = [k for k in kids if os.waitpid(k, os.WNOHANG)[0]]
assert dead, "all of it fitted"
for k in kids:
    if k not in dead:
        os.kill(k, 9)
print("alive", len(b) >> 20, b[4096])
""")
    assert s == 0 and "alive 80 120" in out, (s, out)
    bounded(peak)


@test
def files_end_in_enospc():
    """A full disk kills nobody, and what is deleted comes back."""
    s, out, peak = guest("files", CHILD + """
import errno
for path in ("/root/f", "/dev/shm/f" if os.path.isdir("/dev/shm") else "/tmp/f"):
    for i in range(2):
        n = 0
        with open(path, "wb", buffering=0) as f:
            try:
                while True:
                    n += f.write(b"z" * (1 << 20))
            except OSError as e:
                assert e.errno == errno.ENOSPC, e
        assert (60 << 20) < n <= (192 << 20), n
        b = bytearray(b"y" * (4 << 20))
        os.unlink(path)
    print(path, n >> 20)
f = open("/root/g", "wb")
try:
    os.posix_fallocate(f.fileno(), 0, 1 << 40)
except OSError as e:
    assert e.errno == errno.ENOSPC, e
else:
    raise SystemExit("a terabyte")
os.truncate("/root/g", 1 << 40)
print("alive")
""")
    assert s == 0 and "alive" in out, (s, out)
    bounded(peak)


@test
def many_small_files_end_in_enospc():
    s, out, peak = guest("small", CHILD + """
import errno
os.mkdir("/root/d")
n = 0
try:
    while n < 200000:
        with open(f"/root/d/{n}", "wb", buffering=0) as f:
            f.write(b"z" * 5000)
        n += 1
except OSError as e:
    assert e.errno == errno.ENOSPC, e
else:
    raise SystemExit("no limit")
print("alive", n)
""")
    assert s == 0 and "alive" in out, (s, out)
    bounded(peak)


@test
def shared_memory():
    """memfd and MAP_SHARED: nobody's private memory."""
    s, out, peak = guest("memfd", CHILD + """
import mmap
def hog():
    fd = os.memfd_create("m")
    os.ftruncate(fd, 1 << 30)
    m = mmap.mmap(fd, 1 << 30)
    for i in range(0, 1 << 30, 4096):
        m[i] = 1
def hog2():
    m = mmap.mmap(-1, 1 << 30)
    for i in range(0, 1 << 30, 4096):
        m[i] = 1
print(child(hog), child(hog2), "alive")
""")
    assert s == 0 and "-9 -9 alive" in out, (s, out)
    bounded(peak)


@test
def buffers_of_the_kernel():
    """What is under way in pipes and sockets."""
    s, out, peak = guest("buffers", CHILD + """
import errno, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (60000, 60000))
block = b"x" * 65536
def fill(make, n):
    keep = []
    total = 0
    try:
        for i in range(n):
            total += make(keep)
    except OSError as e:
        if e.errno not in (errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC, errno.EMFILE, errno.ENFILE):
            raise
        return total, errno.errorcode[e.errno]
    return total, "all"
def pipe(keep):
    r, w = os.pipe()
    keep += [r, w]
    os.set_blocking(w, False)
    return os.write(w, block)
def stream(keep):
    a, b = socket.socketpair()
    keep += [a, b]
    a.setblocking(False)
    n = 0
    try:
        while True:
            n += a.send(block)
    except BlockingIOError:
        return n
def dgram(keep):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    keep += [a, b]
    a.setblocking(False)
    n = 0
    try:
        while True:
            n += a.send(block)
    except BlockingIOError:
        return n
for fn in (pipe, stream, dgram):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        got = fill(fn, 20000)
        os.closerange(w + 1, 60000)
        os.write(w, repr((fn.__name__,) + got).encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, fn
    print(os.read(r, 100).decode(), flush=True)
    os.close(r), os.close(w)
r, w = os.pipe()
os.set_blocking(w, False)
assert os.write(w, block) == 65536
print("alive")
""", timeout=240)
    assert s == 0 and "alive" in out, (s, out)
    for kind in ("pipe", "stream", "dgram"):
        line = next(x for x in out.splitlines() if x.startswith(f"('{kind}'"))
        assert "'all'" not in line, line
    bounded(peak, (64 + 160) * MIB)  # the least that buffers may take, and guests' and our own memory


@test
def open_files_of_all_processes():
    s, out, peak = guest("enfile", CHILD + """
import errno, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000))
n = 0
try:
    while n < 100000:
        os.eventfd(0)
        n += 1
except OSError as e:
    assert e.errno == errno.ENFILE, e
os.closerange(100, 100000)
print("alive", n, len(os.pipe()))
""")
    assert s == 0 and "alive 32" in out, (s, out)
    bounded(peak)


@test
def output_that_nobody_reads():
    """What is written to the standard output waits in the guest, not in the sentry."""
    r, w = os.pipe()
    d = bundle("flood", ["/bin/yes", "x" * 1000])
    p = subprocess.Popen([os.environ["HOLDFAST"], *PLATFORM, "--root", STATE, "run", "--bundle", d, "flood"],
                         stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.DEVNULL)
    os.close(w)
    watch = Peak("flood")
    watch.start()
    try:
        time.sleep(2)
        stuck = watch.peak
        end = time.monotonic() + 3
        total = 0
        while time.monotonic() < end:
            total += len(os.read(r, 1 << 20))
    finally:
        watch.stop = True
        hf("delete", "--force", "flood")
        os.close(r)
        p.wait(timeout=30)
        watch.join()
    assert total > 4 * MIB, total
    assert 0 < stuck < 48 * MIB and watch.peak < 48 * MIB, (stuck, watch.peak)


@test
def the_last_process_takes_the_sandbox_with_it():
    s, out, peak = guest("last", "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))")
    assert s == 137, (s, out)
    bounded(peak)


@test
def one_mapping_may_be_larger_than_the_limit():
    s, out, peak = guest("sparse", """
import mmap
m = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[1 << 29] = 1
print("alive")
""")
    assert s == 0 and "alive" in out, (s, out)
    assert peak < 64 * MIB, peak


@test
def guests_see_the_limit():
    s, out, _ = guest("seen", "grep MemTotal /proc/meminfo; free -b | awk '/Mem:/ { print $2 }'",
                      interpreter=("/bin/bash", "-c"))
    assert s == 0 and f"{LIMIT // 1024} kB" in out and str(LIMIT) in out, (s, out)


main()
