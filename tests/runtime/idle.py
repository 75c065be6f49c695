#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sandbox in which nothing happens uses no CPU: all its processes, over five seconds.

The time in /proc/PID/stat comes in ticks of 10 ms, and a loop that polls fifty times a second doesn't show in it. So
context switches are counted, too, of each thread: who isn't switched to does nothing.
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["TOP"], "tests/runtime"))
from _lib import HOLDFAST, STATE, TOP, bundle, hf, main, test, wait_for

SECONDS = 5
TICKS = 2      # of 10 ms in all: rounding, and being looked at
SWITCHES = 10  # of all threads in all; a poll of once a second would be 5 with each handing over
TMUX = "tmux -f /dev/null new-session -d -x 80 -y 24 "
DEBIAN = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], check=True, stdout=subprocess.PIPE,
                        text=True).stdout.strip()


def cpu_of(pid):
    """Ticks of a process; threads that have ended are in it. None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            v = f.read().rpartition(")")[2].split()
        return int(v[11]) + int(v[12])
    except OSError:
        return None


def switches(pids):
    """{(pid, tid): context switches}"""
    found = {}
    for p in pids:
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{t}/status") as f:
                    found[p, t] = sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
        except OSError:
            pass
    return found


def sandbox_processes(cid):
    """The sentry, everything in its pid namespace or below it (stubs), and the gofer."""
    with open(os.path.join(STATE, cid, "state.json")) as f:
        sentry = json.load(f)["sentry_pid"]
    ns = os.stat(f"/proc/{sentry}/ns/pid").st_ino
    session = {sentry}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                # a stub's namespace may be below the sentry's: the sentry's is what its status lists on the way
                with open(f"/proc/{p}/stat") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
                if os.stat(f"/proc/{p}/ns/pid").st_ino == ns or parent in session:
                    session.add(int(p))
            except OSError:
                pass
    # spawned by the same launcher, right after the sentry
    for p in (sentry + 1, sentry + 2, sentry + 3):
        try:
            with open(f"/proc/{p}/cmdline") as f:
                if "gofer-role" in f.read():
                    session.add(p)
        except OSError:
            pass
    return session


def use(pids):
    return {p: t for p, t in ((p, cpu_of(p)) for p in pids) if t is not None}


def idle(name, script, ready, interpreter=("/bin/bash", "-c"), settle=1.5):
    """Runs @script, waits until it has written @ready to its output, and measures."""

    def edit(conf):
        conf["root"]["path"] = DEBIAN
        conf["process"].pop("rlimits", None)
        conf["process"]["env"].append("TERM=xterm")

    d = bundle(name, [*interpreter, script], edit)
    path = os.path.join(d, "out")
    with open(path, "w") as out:
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "run", "--overlay", "memory", "--bundle", d, name],
                             stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        def is_ready():
            with open(path) as f:
                return ready in f.read()

        assert wait_for(is_ready, 60), open(path).read()
        time.sleep(settle)
        pids = sandbox_processes(name)
        assert len(pids) >= 3, pids  # sentry, gofer, a stub at least
        before, switched = use(pids), switches(pids)
        time.sleep(SECONDS)
        after, switched_after = use(pids), switches(pids)
        assert set(before) == set(after) and set(switched) == set(switched_after), "a process or thread ended"
        spent = {p: after[p] - before[p] for p in before if after[p] != before[p]}
        woken = {k: n - switched[k] for k, n in switched_after.items() if n != switched[k]}
        assert sum(spent.values()) <= TICKS, f"ticks: {spent}"
        assert sum(woken.values()) <= SWITCHES, f"context switches: {woken}"
    finally:
        hf("delete", "--force", name)
        p.wait(timeout=30)


@test
def one_sleeper():
    idle("idle-sleep", "echo ready; exec sleep 100", "ready")


@test
def two_hundred_sleeping_threads():
    idle("idle-threads", "import threading, time\nfor i in range(200):\n"
         "    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
         "print('ready', flush=True)\ntime.sleep(100)", "ready", ("/usr/bin/python3", "-c"))


@test
def many_ways_of_waiting():
    idle("idle-waits", """
import os, select, signal, socket, threading, time
def start(fn, *args):
    threading.Thread(target=fn, args=args, daemon=True).start()
r, w = os.pipe()
start(os.read, r, 1)
a, b = socket.socketpair()
start(a.recv, 1)
e = select.epoll()
e.register(b.fileno(), select.EPOLLIN)
start(e.poll)
start(select.select, [b], [], [])
p = select.poll()
p.register(b, select.POLLIN)
start(p.poll)
lock = threading.Lock()
lock.acquire()
start(lock.acquire)
if os.fork() == 0:
    signal.pause()
start(os.wait)
print("ready", flush=True)
time.sleep(100)
""", "ready", ("/usr/bin/python3", "-c"))


@test
def tmux_with_a_shell():
    idle("idle-tmux", TMUX + "'exec bash --norc'; tmux set -g status off; sleep 1; "
         "echo ready; exec sleep 100", "ready")


@test
def vim_on_a_terminal():
    # Four seconds after the last key vim writes its swap file, once ('updatetime'): that is before we look.
    idle("idle-vim", TMUX + "'exec vim.tiny -u NONE /tmp/f'; tmux set -g status off; sleep 1; "
         "echo ready; exec sleep 100", "ready", settle=6)


main()
