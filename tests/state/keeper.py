#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--idle-suspend and --checkpoint-every: what the process beside a sandbox does."""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import STATE, WORK, alive, bundle, delete, hf, main, run_detached, state, test, wait_for  # noqa: E402


def run(cid, args, *options):
    with open(os.path.join(WORK, cid + ".out"), "wb") as f:
        s, err = run_detached(["run", "--detach", *options, "--bundle", bundle("k-" + cid, args), cid], f)
    assert s == 0, err


def status(cid):
    return state(cid)["status"]


def images(cid):
    s, out, err = hf("snapshots", "--format", "json", cid)
    assert s == 0, err
    return json.loads(out)


def keepers(cid):
    found = []
    for p in os.listdir("/proc"):
        try:
            with open(f"/proc/{p}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if p.isdigit() and words[1:5] == [b"--root", STATE.encode(), b"keep", cid.encode()]:
            found.append(int(p))
    return found


@test
def an_idle_one_is_parked_and_wakes():
    run("i", ["/bin/sleep", "10000"], "--idle-suspend", "1")
    assert wait_for(lambda: len(keepers("i")) == 1), "no keeper"
    assert wait_for(lambda: status("i") == "suspended", 60), "it is awake"
    assert wait_for(lambda: not keepers("i")), "the keeper is left"
    s, out, err = hf("exec", "i", "/bin/echo", "here")
    assert (s, out) == (0, "here\n"), err
    assert wait_for(lambda: status("i") == "suspended", 60), "it is awake the second time"
    delete("i")


@test
def a_busy_one_is_not():
    run("b", ["/bin/sh", "-c", "while true; do :; done"], "--idle-suspend", "1", "--checkpoint-every", "1")
    assert wait_for(lambda: images("b"), 60), "no image"
    first = images("b")[-1]["number"]
    assert wait_for(lambda: images("b")[-1]["number"] != first, 60), "no second image"
    assert status("b") == "running"
    ks = keepers("b")
    delete("b")
    assert wait_for(lambda: not any(alive(k) for k in ks)), "the keeper outlives its sandbox"


@test
def one_in_use_is_not():
    """Somebody waits for the end of `exec`: two intervals of the other sandbox's are over, and it is awake."""
    import subprocess
    run("u", ["/bin/sleep", "10000"], "--idle-suspend", "1")
    p = subprocess.Popen([os.environ["HOLDFAST"], "--root", STATE, "exec", "u", "/bin/sleep", "10000"],
                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run("v", ["/bin/sleep", "10000"], "--idle-suspend", "2")
    assert wait_for(lambda: status("v") == "suspended", 60)
    assert status("u") == "running"
    p.kill()
    p.wait()
    assert wait_for(lambda: status("u") == "suspended", 60), "it is awake after its user has gone"
    delete("u", "v")


@test
def after_a_kill_there_is_an_image():
    run("c", ["/bin/sh", "-c", "echo here > /f; while true; do :; done"], "--checkpoint-every", "1")
    assert wait_for(lambda: images("c"), 60), "no image"
    os.kill(state("c")["pid"], signal.SIGKILL)
    assert wait_for(lambda: status("c") == "stopped")
    s, _, err = hf("wake", "c")
    assert s == 0 and "as it was at 20" in err, err
    s, out, err = hf("exec", "c", "/bin/cat", "/f")
    assert (s, out) == (0, "here\n"), err
    assert wait_for(lambda: len(keepers("c")) == 1), "a woken one has no keeper"
    delete("c")


@test
def nonsense_is_refused():
    def edit(c):
        c["annotations"] = {"org.holdfast.idle-suspend": "soon"}
    s, _, err = hf("run", "--bundle", bundle("n", ["/bin/true"], edit), "n")
    assert s == 1 and "no number of seconds" in err, err


main()
