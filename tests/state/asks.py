#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--guest-snapshots: a guest asks for a snapshot of its own sandbox."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import STATE, WORK, alive, all_rights, bundle, delete, guest, hf, main, run_detached, says, state, test, text, wait_for  # noqa: E402


def run(cid, words, *options, edit=all_rights):
    out = os.path.join(WORK, cid + ".out")
    with open(out, "wb") as f:
        s, err = run_detached(["run", "--detach", *options, "--bundle", bundle("a-" + cid, [guest("guest_asks"), *words], edit), cid], f)
    assert s == 0, err
    return out


def names(cid):
    s, out, err = hf("snapshots", "--format", "json", cid)
    assert s == 0, err
    return sorted(n for i in json.loads(out) for n in i["names"].split())


@test
def it_goes_on_on_both_sides():
    out = run("a", ["before", "after\n"], "--guest-snapshots", "5")
    says(out, "done")
    assert text(out).splitlines() == ["asked for before: ok", "asked for after", ": ok", "done"], text(out)
    assert names("a") == ["guest-after", "guest-before"]
    # An image that it asked for goes on in the middle of asking.
    s, listing, err = hf("snapshots", "--format", "json", "a")
    number = next(i["number"] for i in json.loads(listing) if "guest-before" in i["names"].split())
    assert s == 0, err
    again = os.path.join(WORK, "again.out")
    with open(again, "wb") as f:
        s, err = run_detached(["restore", "--detach", "--image-path", f"{STATE}/a/images/{number}", "again"], f)
    assert s == 0, err
    says(again, "done")
    assert text(again).splitlines()[0] == "came back from before: ok", text(again)
    delete("again")


@test
def rolled_back_it_comes_back_too():
    s, _, err = hf("rollback", "a", "guest-before")
    assert s == 0, err
    # Its output leads nowhere now; it asks for the second one again.
    assert wait_for(lambda: state("a")["status"] == "running")
    s, out, err = hf("exec", "a", "/bin/cat", "/proc/holdfast/generation")
    assert (s, out) == (0, "2\n"), (out, err)
    delete("a")


@test
def there_are_at_most_so_many():
    out = run("m", ["one", "two", "three", "one"], "--guest-snapshots", "2")
    says(out, "done")
    assert text(out).splitlines() == ["asked for one: ok", "asked for two: ok",
                                      "asked for three: No space left on device", "asked for one: ok", "done"], text(out)
    assert names("m") == ["guest-one", "guest-two"]
    delete("m")


@test
def without_the_option_it_may_not():
    out = run("n", ["x"])
    says(out, "open: Operation not permitted")
    delete("n")


@test
def only_root_may():
    def plain(c):
        c["process"]["user"] = {"uid": 1000, "gid": 1000}
    out = run("p", ["x"], "--guest-snapshots", "1", edit=plain)
    says(out, "open: Permission denied")
    delete("p")


@test
def without_its_server_it_fails():
    out = run("k", ["first"], "--guest-snapshots", "3")
    says(out, "done")
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[1:5] == [b"--root", STATE.encode(), b"keep", b"k"]:
            os.kill(int(p), 9)
            assert wait_for(lambda p=p: not alive(int(p)))
    s, _, err = hf("exec", "k", "/bin/sh", "-c", "echo later > /proc/holdfast/snapshot")
    assert s == 1 and "Input/output error" in err, (s, err)
    delete("k")


@test
def nonsense_is_refused():
    def edit(c):
        c["annotations"] = {"org.holdfast.guest-snapshots": "many"}
    s, _, err = hf("run", "--bundle", bundle("n", ["/bin/true"], edit), "n")
    assert s == 1 and "no number" in err, err


main()
