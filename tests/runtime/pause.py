#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pause and resume; kill and exec on a paused container."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import WORK, bundle, hf, main, state, test, wait_for  # noqa: E402

COUNT = "i=0; while true; do i=$((i+1)); echo $i > /share/n; sleep 0.05; done"


def running(cid, script):
    os.makedirs(WORK + "/share", exist_ok=True)

    def edit(c):
        c["mounts"].append({"destination": "/share", "type": "bind", "source": WORK + "/share", "options": ["rbind", "rw"]})
    s, _, err = hf("run", "-d", "-b", bundle("b", ["/bin/sh", "-c", script], edit), cid)
    assert s == 0, err


def text(name):
    try:
        with open(f"{WORK}/share/{name}") as f:
            return f.read().strip()
    except OSError:
        return ""


def failed(words, *args):
    s, _, err = hf(*args)
    assert s != 0 and words in err, (args, s, err)


@test
def a_paused_container_stands_still_and_goes_on():
    running("p1", COUNT)
    assert wait_for(lambda: text("n"))
    assert hf("pause", "p1")[0] == 0
    assert state("p1")["status"] == "paused"
    assert " paused " in hf("list")[1]
    n = text("n")
    time.sleep(0.4)
    assert text("n") == n, "it went on"
    failed("container not running", "pause", "p1")
    assert hf("resume", "p1")[0] == 0
    assert state("p1")["status"] == "running"
    assert wait_for(lambda: text("n") not in (n, ""))
    failed("container not paused", "resume", "p1")
    assert hf("delete", "--force", "p1")[0] == 0


@test
def a_busy_container_can_be_paused():
    running("p2", "while true; do :; done")
    assert hf("pause", "p2")[0] == 0
    pid = state("p2")["pid"]

    def ticks():
        total = 0
        for p in [pid, *[int(x) for x in hf("ps", "--format", "json", "p2")[1].strip("[]\n").split(",")]]:
            with open(f"/proc/{p}/stat") as f:
                v = f.read().rpartition(")")[2].split()
            total += int(v[11]) + int(v[12])
        return total
    a = ticks()
    time.sleep(0.3)
    assert ticks() - a <= 2, "a paused container uses CPU"
    assert hf("delete", "--force", "p2")[0] == 0


@test
def exec_is_refused_unless_told():
    running("p3", "sleep 1000")
    assert hf("pause", "p3")[0] == 0
    s, _, err = hf("exec", "p3", "/bin/true")
    assert s == 255 and "cannot exec in a paused container (use --ignore-paused to override)" in err, err
    s, _, err = hf("exec", "--ignore-paused", "--detach", "--pid-file", WORK + "/pid", "p3", "/bin/sh", "-c",
                   "echo ran > /share/exec")
    assert s == 0, err
    time.sleep(0.2)
    assert text("exec") == ""
    assert hf("resume", "p3")[0] == 0
    assert wait_for(lambda: text("exec") == "ran")
    assert hf("delete", "--force", "p3")[0] == 0


@test
def signals_wait_for_resume():
    running("p4", "trap 'echo term > /share/term; exit 7' TERM; echo up > /share/up; while true; do sleep 0.05; done")
    assert wait_for(lambda: text("up"))
    assert hf("pause", "p4")[0] == 0
    assert hf("kill", "p4", "TERM")[0] == 0
    time.sleep(0.2)
    assert text("term") == "" and state("p4")["status"] == "paused"
    failed("cannot delete container p4 that is not stopped: paused", "delete", "p4")
    failed("cannot start a container in the paused state", "start", "p4")
    assert hf("resume", "p4")[0] == 0
    assert wait_for(lambda: text("term") == "term")
    assert hf("wait", "p4")[0] == 7
    assert hf("delete", "p4")[0] == 0


@test
def a_paused_container_can_be_killed_and_deleted():
    running("p5", "sleep 1000")
    assert hf("pause", "p5")[0] == 0
    assert hf("kill", "p5", "KILL")[0] == 0
    hf("resume", "p5")  # the host's freezer would need it; here it may have ended before
    assert hf("wait", "p5")[0] == 137
    assert hf("delete", "p5")[0] == 0
    running("p6", "sleep 1000")
    assert hf("pause", "p6")[0] == 0
    assert hf("delete", "--force", "p6")[0] == 0
    failed("does not exist", "pause", "p6")
    failed("does not exist", "resume", "p6")


@test
def a_created_container_can_be_paused():
    assert hf("create", "-b", bundle("b", ["/bin/true"]), "p7")[0] == 0
    assert hf("pause", "p7")[0] == 0
    assert state("p7")["status"] == "paused"
    assert hf("resume", "p7")[0] == 0
    assert state("p7")["status"] == "created"
    assert hf("start", "p7")[0] == 0
    assert hf("wait", "p7")[0] == 0
    assert hf("delete", "p7")[0] == 0


main()
