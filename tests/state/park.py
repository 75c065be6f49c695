#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are suspended, woken by use, named, rolled back, branched, pruned, drawn."""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import STATE, delete, hf, main, start, state, test, wait_for  # noqa: E402

# Counts in a file of its writable layer: where it is can be asked with exec.
COUNT = "i=0; while true; do i=$((i+1)); echo $i > /n.new; mv /n.new /n; sleep 0.02; done"


def ok(*args):
    s, out, err = hf(*args)
    assert s == 0, (args, out, err)
    return out


def counter(cid):
    start(cid, ["/bin/sh", "-c", COUNT])
    assert wait_for(lambda: hf("exec", cid, "/bin/cat", "/n")[0] == 0), "it doesn't count"


def value(cid):
    return int(ok("exec", cid, "/bin/cat", "/n"))


def goes_on(cid):
    n = value(cid)
    assert wait_for(lambda: value(cid) > n), f"{cid} stands still at {n}"
    return n


def images(cid):
    return json.loads(ok("snapshots", "--format", "json", cid))


def names(cid):
    return [n for i in images(cid) for n in i["names"].split()]


def pid_of(cid):
    return state(cid)["pid"]


def status(cid):
    return state(cid)["status"]


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


@test
def a_suspended_one_is_listed_and_has_no_processes():
    counter("a")
    pid = pid_of("a")
    ok("suspend", "a")
    assert status("a") == "suspended" and pid_of("a") == 0
    assert wait_for(lambda: gone(pid)), "its sentry lives"
    assert "suspended" in [ln for ln in ok("list").splitlines() if ln.startswith("a ")][0]
    s, _, err = hf("suspend", "a")
    assert s == 0, err  # it is what was asked for
    s, _, err = hf("delete", "a")
    assert s == 1 and "suspended" in err, err


@test
def it_goes_on_when_it_is_woken():
    ok("wake", "a")
    assert status("a") == "running"
    n = goes_on("a")
    ok("wake", "a")
    assert value("a") >= n, "waking a running one took it back"


@test
def exec_wakes_it():
    ok("suspend", "a")
    created = state("a")["created"]
    assert value("a") > 0
    assert status("a") == "running" and state("a")["created"] == created
    goes_on("a")


@test
def fork_wakes_it():
    ok("suspend", "a")
    assert ok("fork", "a", "a-branch").strip() == "a-branch"
    goes_on("a-branch")
    goes_on("a")
    delete("a-branch")


@test
def many_that_wake_it_at_once_wake_it_once():
    import subprocess
    ok("suspend", "a")
    ps = [subprocess.Popen([os.environ["HOLDFAST"], "--root", STATE, "exec", "a", "/bin/true"], stdin=subprocess.DEVNULL)
          for _ in range(4)]
    assert [p.wait(60) for p in ps] == [0, 0, 0, 0]
    goes_on("a")
    delete("a")
    assert not os.path.exists(f"{STATE}/a"), "images are left"


@test
def rollback_goes_back_and_forth():
    counter("r")
    ok("exec", "r", "/bin/dd", "if=/dev/urandom", "of=/ballast", "bs=1M", "count=4")
    assert ok("snapshot", "r").strip() == "s1"
    ok("exec", "r", "/bin/touch", "/mark")
    assert ok("snapshot", "r", "marked").strip() == "marked"
    assert names("r") == ["s1", "marked"]
    ok("rollback", "r", "s1")
    assert hf("exec", "r", "/bin/ls", "/mark")[0] != 0, "the future is there"
    goes_on("r")
    ok("rollback", "r", "marked")
    ok("exec", "r", "/bin/ls", "/mark")
    s, _, err = hf("rollback", "r", "none")
    assert s == 1 and "no snapshot none" in err, err
    goes_on("r")
    ok("suspend", "r")
    ok("rollback", "r", "s1")
    assert status("r") == "running"


@test
def one_that_has_ended_is_rolled_back_and_not_woken():
    ok("kill", "r", "KILL")
    assert wait_for(lambda: status("r") == "stopped")
    s, _, err = hf("wake", "r")
    assert s == 1 and "has ended by itself" in err, err
    ok("rollback", "r", "marked")
    goes_on("r")


@test
def names_are_checked():
    for bad in ("..", "a/b", ".hidden", "x" * 300, "0123456789abcdef" * 2):
        s, _, err = hf("snapshot", "r", bad)
        assert s == 1 and "name" in err, (bad, err)
    assert sorted(names("r")) == ["marked", "s1"]


@test
def only_its_owner_can_read_them():
    for d, _, files in os.walk(f"{STATE}/r/images"):
        assert os.stat(d).st_mode & 0o7777 == 0o700, d
        for f in files:
            assert os.stat(f"{d}/{f}").st_mode & 0o7777 == 0o600, f


@test
def later_ones_have_only_what_changed():
    ok("snapshot", "r", "again")
    first, last = (next(i for i in images("r") if n in i["names"].split()) for n in ("s1", "again"))
    assert last["parents"] and first["bytes"] > 4 << 20 > 4 * last["bytes"], (first, last)


@test
def prune_keeps_what_others_need():
    last = next(i for i in images("r") if "again" in i["names"].split())
    ok("prune", "--remove", "r", "s1", "marked")
    assert names("r") == ["again"]
    have = {i["number"] for i in images("r")}
    assert set(last["parents"]) <= have, "pages of a named one are gone"
    ok("rollback", "r", "again")
    goes_on("r")
    s, _, err = hf("prune", "--remove", "r", "s1")
    assert s == 1 and "no snapshot s1" in err, err
    s, _, err = hf("prune", "r", "again")
    assert s == 1 and "--remove" in err, err


@test
def the_tree_shows_who_came_from_whom():
    ok("snapshot", "r", "later")
    ok("fork", "-n", "2", "r", "twig")
    ok("snapshot", "twig-1", "own")
    lines = ok("tree").splitlines()
    at = {w: next(i for i, ln in enumerate(lines) if w in ln) for w in ("r (running)", "again", "later", "twig-1", "own")}
    assert at["r (running)"] < at["again"] < at["later"] < at["twig-1"] < at["own"], lines
    indent = {w: len(lines[i]) - len(lines[i].lstrip("│├└─ ")) for w, i in at.items()}
    assert indent["later"] > indent["again"] and indent["own"] > indent["twig-1"] > indent["later"], lines
    assert ok("tree", "twig-1").splitlines()[0].startswith("twig-1 (running)")
    delete("twig-1", "twig-2")


@test
def after_a_kill_it_goes_on_from_its_newest_image():
    n = value("r")
    ok("snapshot", "r", "kept")
    os.kill(pid_of("r"), signal.SIGKILL)
    assert wait_for(lambda: status("r") == "stopped")
    s, _, err = hf("exec", "r", "/bin/true")
    assert s == 255, "what was lost must not be passed over in silence"
    s, _, err = hf("wake", "r")
    assert s == 0 and "as it was at 20" in err, err
    assert value("r") >= n
    goes_on("r")


@test
def a_damaged_image_is_passed_over():
    ok("snapshot", "r", "bad")
    path = f"{STATE}/r/images/bad/state"
    with open(path, "r+b") as f:
        f.seek(60)
        b = f.read(1)
        f.seek(60)
        f.write(bytes([b[0] ^ 1]))
    os.kill(pid_of("r"), signal.SIGKILL)
    assert wait_for(lambda: status("r") == "stopped")
    s, _, err = hf("wake", "r")
    assert s == 0 and "damaged" in err and "as it was at" in err, err
    goes_on("r")
    s, _, err = hf("rollback", "r", "bad")
    assert s == 1 and "image" in err, err
    goes_on("r")
    delete("r")


@test
def after_a_reboot_the_pid_is_somebody_elses():
    counter("b")
    ok("snapshot", "b")
    pid = pid_of("b")
    path = f"{STATE}/b/state.json"
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: gone(pid))
    with open(path) as f:
        st = json.load(f)
    st["pid"] = st["sentry_pid"] = os.getpid()  # ours now, and it must survive
    st["sentry_start"] = 1
    with open(path, "w") as f:
        json.dump(st, f)
    assert status("b") == "stopped"
    ok("wake", "b")
    goes_on("b")
    delete("b")


@test
def without_an_image_there_is_nothing_to_wake():
    start("w", ["/bin/sleep", "1000"])
    os.kill(pid_of("w"), signal.SIGKILL)
    assert wait_for(lambda: status("w") == "stopped")
    s, _, err = hf("wake", "w")
    assert s == 1 and "no image" in err, err
    delete("w")


main()
