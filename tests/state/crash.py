#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost: whoever saves is killed at many points, the disk is full at many sizes; the sandbox goes on, and a
directory with an image's name is a whole image."""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, STATE, WORK, delete, hf, main, restore, says, start, state, test, text, wait_for  # noqa: E402

COUNT = "i=0; while true; do i=$((i+1)); echo n $i; sleep 0.02; done"
POINTS = int(os.environ.get("CRASH_POINTS", "100"))
SIZES = 20


def last(out):
    lines = [x for x in text(out).splitlines() if x.startswith("n ") and x[2:].isdigit()]
    return int(lines[-1][2:]) if lines else 0


def goes_on(out):
    n = last(out)
    assert wait_for(lambda: last(out) > n, 15), "it stands still"


def whole(path):
    """Nothing, or an image that can be restored."""
    if os.path.isdir(path):
        out = restore("w", "--verify", image=path)
        says(out, "n ")
        delete("w")


def began(cid, *options):
    return subprocess.Popen([os.environ["HOLDFAST"], "--root", STATE, "checkpoint", "--image-path", IMAGE, *options, cid],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@test
def a_client_killed_at_any_moment_harms_nobody():
    out = start("c", ["/bin/sh", "-c", COUNT])
    says(out, "n 5")
    begin = time.monotonic()
    assert began("c", "--leave-running").wait() == 0
    took = time.monotonic() - begin
    rnd = random.Random(2)
    for i in range(POINTS):
        leave = ["--leave-running"] if i % 2 else []
        p = began("c", *leave)
        time.sleep(rnd.random() * took * 1.2)
        p.kill()
        if p.wait() == 0 and not leave:  # too late: it is saved, and gone
            delete("c")
            out = restore("c")
        elif not hf("list")[1].count("c "):
            out = restore("c")
        elif state("c")["status"] != "running":  # killed between saving and the end
            delete("c")
            out = restore("c")
        goes_on(out)
        if i % 10 == 0:
            whole(IMAGE)
    whole(IMAGE)
    assert hf("checkpoint", "--leave-running", "--image-path", IMAGE, "c")[0] == 0
    assert not [n for n in os.listdir(WORK) if n.endswith(".new")], "drafts of the killed ones are left"
    delete("c")


@test
def a_sandbox_killed_while_it_is_saved_leaves_no_half_image():
    rnd = random.Random(3)
    for i in range(10):
        out = start("k", ["/bin/sh", "-c", COUNT])
        says(out, "n 3")
        pid = state("k")["sentry_pid"] if "sentry_pid" in state("k") else state("k")["pid"]
        shutil.rmtree(IMAGE, ignore_errors=True)
        p = began("k", "--leave-running")
        time.sleep(rnd.random() * 0.05)
        os.kill(pid, signal.SIGKILL)
        p.wait()
        whole(IMAGE)
        delete("k")


def image_size(cid):
    s, _, err = hf("checkpoint", "--leave-running", "--image-path", IMAGE, cid)
    assert s == 0, err
    return sum(os.path.getsize(os.path.join(IMAGE, n)) for n in os.listdir(IMAGE))


@test
def a_full_disk_leaves_the_sandbox_running_and_nothing_else():
    disk = os.path.join(WORK, "disk")
    os.makedirs(disk, exist_ok=True)
    start("g", ["/bin/sh", "-c", "while true; do :; done"])
    need = image_size("g") * 3 // 4  # that of the other is larger, mostly by its `sleep`
    delete("g")
    out = start("f", ["/bin/sh", "-c", COUNT])
    says(out, "n 3")
    for i in range(SIZES):
        size = max(4096, need * i // SIZES // 4096 * 4096)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
        try:
            s, _, err = hf("checkpoint", "--image-path", disk + "/image", "f")
            assert s == 1 and "no space left" in err.lower(), (size, s, err)
            assert os.listdir(disk) == [], os.listdir(disk)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)  # the sentry closes its files after it has answered
        goes_on(out)
    delete("f")


main()
