#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sandbox whose guests sleep uses no CPU: counted in the host's clock ticks over all its processes."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import bundle, hf, main, state, test  # noqa: E402

SECONDS = 5
SLEEPERS = "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait"


def family(root):
    """The sandbox's processes: its sentry, their children, and the gofers that run now."""
    parents = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                parents[int(p)] = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    return [p for p in parents if p == root or parents[p] == root]


def ticks(pids):
    total = 0
    for p in pids:
        with open(f"/proc/{p}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total


def idle(script):
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sh", "-c", script]), "i")[0] == 0
    try:
        time.sleep(3)
        pids = family(state("i")["pid"])
        before = ticks(pids)
        time.sleep(SECONDS)
        assert family(state("i")["pid"]) == pids
        return ticks(pids) - before
    finally:
        hf("delete", "--force", "i")


@test
def one_sleeper():
    assert idle("sleep 1000") <= 1


@test
def hundred_sleepers():
    assert idle(SLEEPERS) <= 1


@test
def blocked_readers():
    assert idle("mkfifo /tmp/f; cat /tmp/f & cat /tmp/f & wait") <= 1


main()
