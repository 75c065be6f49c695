#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""create, start, kill, delete, again and again, half of them with something killed at a random point: nothing is left.

HOLDFAST_CHURN is the number of cycles (default 60; the acceptance run has 500), HOLDFAST_SEED the random seed.
"""
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, bundle, hf, main, test, wait_for  # noqa: E402

CYCLES = int(os.environ.get("HOLDFAST_CHURN", "60"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
GROUP = f"hfchurn{os.getpid()}"


def ours():
    """{pid: command} of processes of this test's sandboxes and commands."""
    found = {}
    for p in os.listdir("/proc"):
        if not p.isdigit():
            continue
        try:
            exe = os.readlink(f"/proc/{p}/exe")
            with open(f"/proc/{p}/cgroup") as f:
                mine = GROUP in f.read()
            with open(f"/proc/{p}/cmdline") as f:
                cmd = f.read().replace("\0", " ")
            with open(f"/proc/{p}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] in "ZX":
                    continue
        except OSError:
            continue
        if mine or (STATE in cmd and os.path.samefile(exe, HOLDFAST) if os.path.exists(exe) else False):
            found[int(p)] = cmd
    return found


def kept():
    """What a sandbox could leave beside processes: mounts, groups, sockets, state."""
    with open("/proc/self/mountinfo") as f:
        mounts = sorted(line for line in f if WORK in line or "holdfast" in line)
    groups = sorted(d for d, _, _ in os.walk("/sys/fs/cgroup") if GROUP in d)
    with open("/proc/net/unix") as f:
        sockets = sorted(line.split()[-1] for line in f if STATE in line)
    return mounts, groups, sockets, os.listdir(STATE) if os.path.isdir(STATE) else []


def run(*args, kill_after=None):
    """A command; with @kill_after seconds, it is killed then."""
    p = subprocess.Popen([HOLDFAST, "--root", STATE, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    if kill_after is not None:
        try:
            p.wait(timeout=kill_after)
        except subprocess.TimeoutExpired:
            p.kill()
    return p.wait(timeout=60)


def kill_one(rng, cid):
    """One process of the sandbox: the sentry, the gofer, a stub, a waiter; or two of them."""
    try:
        pids = json.loads(hf("ps", "--format", "json", cid)[1] or "[]")
    except ValueError:
        pids = []
    for p in rng.sample(pids, min(len(pids), rng.choice((1, 1, 2)))):
        try:
            os.kill(p, 9)
        except ProcessLookupError:
            pass


def cycle(rng, b, cid):
    """A container's life; with an accident in one of its stages."""
    accident = rng.choice(("none", "none", "none", "none", "create", "start", "delete", "member", "exec"))
    late = rng.random() * 0.08
    run("create", "-b", b, "--pid-file", WORK + "/pid", cid, kill_after=late if accident == "create" else None)
    if accident != "create":
        run("start", cid, kill_after=late / 4 if accident == "start" else None)
    if accident == "exec":
        run("exec", "--detach", "--pid-file", WORK + "/epid", cid, "/bin/sleep", "1000", kill_after=late)
    if accident in ("member", "exec"):
        kill_one(rng, cid)
    run("kill", cid, "KILL")
    if accident == "delete":
        run("delete", "--force", cid, kill_after=late / 8)
    assert hf("delete", "--force", cid, timeout=30)[0] == 0
    return accident


@test
def nothing_is_left_after_many_lives():
    rng = random.Random(SEED)

    def edit(c):
        c["linux"]["cgroupsPath"] = "/" + GROUP
        c["linux"].setdefault("resources", {})["pids"] = {"limit": 100}
    b = bundle("b", ["/bin/sleep", "1000"], edit)
    before = kept()
    assert before[1:] == ([], [], []), before
    for i in range(CYCLES):
        accident = cycle(rng, b, f"churn{i}")
        assert wait_for(lambda: not ours(), 10), (SEED, i, accident, ours())
        now = kept()
        assert now == before, (SEED, i, accident, before, now)


main()
