#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image goes on under another specification: hostname, machine id, environment of later processes, bind mounts that
are somewhere else now, in another order, and new."""
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, WORK, bundle, busybox_root, checkpoint, delete, hf, main, restore, run_detached, test  # noqa: E402

OLD, NEW, EXTRA = (os.path.join(WORK, "respec-" + n) for n in ("old", "new", "extra"))
SCRIPT = "exec 3</mnt/held; while [ ! -e /go ]; do sleep 0.1; done; head -1 <&3 > /said; sleep 1000"


def ok(*args):
    s, out, err = hf(*args)
    assert s == 0, err
    return out


def bind(dest, source):
    return {"destination": dest, "type": "bind", "source": source, "options": ["rbind", "rw"]}


def conf(mounts, **more):
    def edit(c):
        c["mounts"] += mounts
        c["process"]["env"] = more.get("env", c["process"]["env"])
        c["hostname"] = more.get("hostname", "first")
    return edit


def write(path, words):
    with open(path, "w") as f:
        f.write(words + "\n")


def begin(cid):
    for d in (OLD, NEW, EXTRA):
        shutil.rmtree(d, ignore_errors=True)
        os.makedirs(d)
    write(OLD + "/held", "held")
    write(EXTRA + "/file", "extra")
    b = bundle("respec-1", ["/bin/sh", "-c", SCRIPT], conf([bind("/mnt", OLD), bind("/b", EXTRA)]))
    with open(os.path.join(WORK, cid + ".out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--bundle", b, cid], f)
    assert s == 0, err
    checkpoint(cid, "--leave-running")


@test
def everything_may_be_somewhere_else():
    begin("one")
    delete("one")
    shutil.rmtree(NEW)
    shutil.copytree(OLD, NEW)  # times as well: it is the same file
    write(NEW + "/more", "new place")
    tmpfs = {"destination": "/fresh", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]}
    b = bundle("respec-2", ["/bin/ignored"], conf([bind("/added", EXTRA), bind("/b", EXTRA), bind("/mnt", NEW), tmpfs],
                                                  env=["PATH=/bin", "WHO=second"], hostname="second"))
    restore("two", "--bundle", b)
    assert ok("exec", "two", "/bin/sh", "-c", "echo $WHO; hostname; cat /mnt/more /added/file /b/file; mount | grep -c /fresh") == \
        "second\nsecond\nnew place\nextra\nextra\n1\n"
    ok("exec", "two", "/bin/sh", "-c", "echo here > /added/written; echo x > /fresh/x; touch /go")
    with open(EXTRA + "/written", encoding="utf-8") as f:
        assert f.read() == "here\n"
    assert ok("exec", "two", "/bin/sh", "-c", "while [ ! -s /said ]; do sleep 0.1; done; cat /said") == "held\n"


@test
def what_it_is_now_is_saved_again():
    ok("suspend", "two")
    assert ok("exec", "two", "/bin/sh", "-c", "echo $WHO; hostname; cat /mnt/more /added/file /fresh/x") == \
        "second\nsecond\nnew place\nextra\nx\n"
    delete("two")


@test
def a_bind_mount_that_is_missing_is_named():
    b = bundle("respec-3", ["/bin/ignored"], conf([bind("/b", EXTRA)]))
    s, _, err = hf("restore", "--detach", "--image-path", IMAGE, "--bundle", b, "three")
    assert s == 1 and "a bind mount on /mnt" in err, err


@test
def a_file_in_use_that_is_missing_is_named():
    os.makedirs(NEW + "/empty")
    b = bundle("respec-4", ["/bin/ignored"], conf([bind("/mnt", NEW + "/empty"), bind("/b", EXTRA)]))
    s, _, err = hf("restore", "--detach", "--image-path", IMAGE, "--bundle", b, "four")
    assert s == 1 and "held" in err, err


@test
def branches_are_other_machines():
    begin("m")
    first = "0123456789abcdef0123456789abcdef"
    ok("exec", "m", "/bin/sh", "-c", f"mkdir -p /etc; echo {first}-and-longer > /etc/machine-id")
    ids = set()
    for cid in ok("fork", "--machine-id", "random", "-n", "2", "m", "twin").split():
        text = ok("exec", cid, "/bin/cat", "/etc/machine-id")
        assert re.fullmatch("[0-9a-f]{32}\n", text), text
        ids.add(text)
    assert len(ids) == 2 and ok("exec", "m", "/bin/cat", "/etc/machine-id") == first + "-and-longer\n"
    ok("suspend", "twin-1")
    ok("exec", "twin-1", "/bin/sh", "-c", "echo mine > /etc/machine-id")
    ok("suspend", "twin-1")
    assert ok("exec", "twin-1", "/bin/cat", "/etc/machine-id") == "mine\n", "it is written again at each wake"
    restore("other", "--machine-id", first)
    assert ok("exec", "other", "/bin/cat", "/etc/machine-id") == first + "\n"
    delete("m", "twin-1", "twin-2", "other")


@test
def nonsense_is_refused():
    for words, args in (("32 hexadecimal digits", ["--machine-id", "xyz"]),):
        s, _, err = hf("restore", "--detach", "--image-path", IMAGE, *args, "n")
        assert s == 1 and words in err, err
    through = os.path.join(WORK, "respec-root")
    shutil.rmtree(through, ignore_errors=True)
    shutil.copytree(busybox_root(), through, symlinks=True)

    def edit(c):
        c["root"]["path"] = through
    with open(os.path.join(WORK, "t.out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--overlay", "none", "--bundle", bundle("respec-5", ["/bin/sleep", "1000"], edit), "t"], f)
    assert s == 0, err
    s, _, err = hf("fork", "--machine-id", "random", "t", "t2")
    assert s == 1 and "go through" in err, err
    delete("t")


main()
