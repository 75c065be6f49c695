#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes and many processes in one: nothing is left behind. CYCLES=200 is the full version."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, alive, bundle, hf, main, process_tree, state, test, wait_for  # noqa: E402

CYCLES = int(os.environ.get("CYCLES", "12"))
EXECS = int(os.environ.get("EXECS", "40"))


def ours():
    """Processes of sandboxes whose log or state is below WORK: by what they hold open."""
    found = set()
    for p in process_tree():
        try:
            fds = os.listdir(f"/proc/{p}/fd")
        except OSError:
            continue
        for fd in fds:
            try:
                if os.readlink(f"/proc/{p}/fd/{fd}").startswith(WORK + "/"):
                    found.add(p)
            except OSError:
                pass
    return found - {os.getpid()}


def mounts():
    with open("/proc/mounts") as f:
        return sorted(f)


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def settled(fn):
    """The value of fn() once it stays the same."""
    last, same = fn(), 0
    for _ in range(100):
        time.sleep(0.05)
        v = fn()
        same = same + 1 if v == last else 0
        last = v
        if same >= 6:
            break
    return last


@test
def create_start_kill_delete():
    before = mounts()
    b = bundle("b", ["/bin/sleep", "1000"])
    pids = set()
    for i in range(CYCLES):
        cid = f"c{i}"
        assert hf("create", "-b", b, "--pid-file", WORK + "/pid", cid)[0] == 0
        pid = int(open(WORK + "/pid").read())
        assert alive(pid)
        pids |= set(process_tree(pid)) | ours()
        how = i % 4
        if how != 3:
            assert hf("start", cid)[0] == 0
        assert hf("kill", cid, ("9", "KILL", "SIGKILL", "kill")[how])[0] == 0
        assert hf("wait", cid)[0] == 137
        assert wait_for(lambda: not alive(pid)), "the pid in the pid file must end with the container"
        assert hf("delete", cid)[0] == 0
    assert not os.listdir(STATE)
    assert mounts() == before
    assert wait_for(lambda: not ours()), ours()
    assert wait_for(lambda: not [p for p in pids if alive(p)]), [p for p in pids if alive(p)]


@test
def killed_sentries_take_everything_with_them():
    b = bundle("b", ["/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait"])
    for i in range(max(2, CYCLES // 6)):
        assert hf("run", "-d", "-b", b, "k")[0] == 0
        pid = state("k")["pid"]
        pids = set(process_tree(pid)) | ours()
        assert len(pids) >= 4, pids
        os.kill(pid, 9)
        assert wait_for(lambda: not [p for p in pids if alive(p)]), [p for p in pids if alive(p)]
        s = state("k")
        assert (s["status"], s["pid"]) == ("stopped", 0), s
        assert hf("exec", "k", "/bin/true")[0] == 255
        assert hf("kill", "k")[0] == 1
        assert hf("delete", "k")[0] == 0
    assert not os.listdir(STATE)


@test
def execs_leave_nothing_in_the_sentry():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "e")[0] == 0
    pid = state("e")["pid"]
    for _ in range(8):  # caches fill
        assert hf("exec", "e", "/bin/true")[0] == 0
    first = settled(lambda: (fds(pid), threads(pid), len(process_tree(pid))))
    for i in range(EXECS):
        s = hf("exec", "e", "/bin/sh", "-c", f"exit {i % 200}")[0]
        assert s == i % 200
    for _ in range(3):
        assert hf("exec", "e", "/no/such")[0] == 255
        assert hf("exec", "--cwd", "/no/dir", "e", "/bin/true")[0] == 255
    last = settled(lambda: (fds(pid), threads(pid), len(process_tree(pid))))
    assert all(b <= a + 2 for a, b in zip(first, last)), (first, last)
    assert hf("delete", "--force", "e")[0] == 0


@test
def failed_starts_leave_nothing():
    before = mounts()
    for args in (["/no/such"], ["nothere"], ["/etc/passwd"]):
        s, _, err = hf("run", "-b", bundle("bad", args), "f")
        assert s == 1 and args[0] in err, err
    s, _, err = hf("create", "-b", bundle("b"), "--pid-file", "/no/dir/pid", "f")
    assert s == 1 and "/no/dir/pid" in err, err
    assert not os.listdir(STATE), os.listdir(STATE)
    assert mounts() == before
    assert wait_for(lambda: not ours()), ours()


@test
def launcher_killed_at_any_time_leaves_nothing_unseen():
    """Whatever is left of a killed `run` is in the state directory, and delete ends it."""
    b = bundle("b", ["/bin/sleep", "1000"])
    for i in range(max(8, CYCLES // 4)):
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "run", "-b", b, "x"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(i * 0.012)
        p.kill()
        p.wait()
        hf("delete", "--force", "x")
        assert wait_for(lambda: not ours(), 5), (i, ours())
        assert not os.listdir(STATE)


main()
