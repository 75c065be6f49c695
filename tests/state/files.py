#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of all kinds around a checkpoint: the image below the writable layer, a root that is written through, tmpfs,
bind mounts that the host changes meanwhile, and programs on terminals."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import (GUESTS, IMAGE, STATE, WORK, bundle, busybox_root, checkpoint, clean_up, debian, delete, go, hf,  # noqa: E402,F401
                    main, restore, run_detached, says, state, test, text, wait_for)

ROOT = os.path.join(WORK, "files-root")
HOST = os.path.join(WORK, "files-host")


def make_root():
    """A fresh root file system with the tree that guest_files changes, and a host directory to bind."""
    for d in (ROOT, HOST):
        shutil.rmtree(d, ignore_errors=True)
    shutil.copytree(busybox_root(), ROOT, symlinks=True)
    shutil.copy2(os.path.join(GUESTS, "guest_files"), ROOT + "/bin/guest_files")
    tree = ROOT + "/state-image"
    os.makedirs(tree + "/dir")
    for name in ("keep", "remove", "replace", "rename", "change", "untouched", "late"):
        with open(f"{tree}/{name}", "w") as f:
            f.write(name + "\n")
    with open(tree + "/dir/file", "w") as f:
        f.write("file\n")
    with open(tree + "/hard1", "w") as f:
        f.write("hard\n")
    os.link(tree + "/hard1", tree + "/hard2")
    os.link(tree + "/hard1", tree + "/hard3")
    os.makedirs(ROOT + "/host")
    os.makedirs(HOST)
    with open(HOST + "/file", "w") as f:
        f.write("hostfile\n")


def edit(conf, tmpfs=False):
    conf["root"]["path"] = ROOT
    caps = ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID", "CAP_DAC_OVERRIDE", "CAP_KILL"]
    conf["process"]["capabilities"] = {k: caps for k in ("bounding", "effective", "permitted", "inheritable")}
    conf["mounts"].append({"destination": "/host", "type": "bind", "source": HOST, "options": ["rbind", "rw"]})
    if tmpfs:
        conf["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["size=64m"]})


def begin(cid, overlay, args=("/bin/guest_files",), tmpfs=False):
    out = os.path.join(WORK, cid + ".out")
    make_root()
    with open(out, "wb") as f:
        s, err = run_detached(["run", "--detach", "--overlay", overlay, "--bundle",
                               bundle("b-" + cid, args, lambda c: edit(c, tmpfs)), cid], f)
    assert s == 0, err
    return out


def end(cid, out):
    go(cid)
    says(out, "DONE")
    bad = [line for line in text(out).splitlines() if line.startswith("FAIL")]
    assert not bad and "DONE 0" in text(out), "\n".join(bad)


@test
def writable_layer():
    layer("memory")


@test
def writable_layer_on_disk():
    layer("disk:1g")


def layer(overlay):
    says(begin("a", overlay), "READY")
    checkpoint("a")
    assert os.path.exists(ROOT + "/state-image/remove"), "the image was changed"
    end("b", restore("b"))
    with open(HOST + "/made") as f:
        assert f.read() == "made"
    end("c", restore("c"))
    delete("b", "c")


@test
def written_through():
    says(begin("a", "none"), "READY")
    checkpoint("a")
    assert not os.path.exists(ROOT + "/state-image/remove")
    restore("b")
    checkpoint("b", image=IMAGE + "2")
    end("c", restore("c", image=IMAGE + "2"))
    delete("c")


@test
def on_tmpfs():
    says(begin("a", "memory", tmpfs=True), "READY")
    checkpoint("a")
    end("b", restore("b"))
    delete("b")


def refused(cid, *words):
    s, _, err = hf("restore", "--detach", "--image-path", IMAGE, cid)
    assert s == 1 and all(w in err for w in words), err
    assert not os.path.isdir(os.path.join(STATE, cid)), "something is left"


SLEEP_ON_FILE = ("/bin/sh", "-c", "exec 3</host/file; echo READY; while ! [ -e /tmp/state/go ]; do sleep 0.05; done; "
                 "cat <&3; echo DONE 0")


@test
def host_file_is_gone():
    says(begin("a", "memory", SLEEP_ON_FILE), "READY")
    checkpoint("a")
    os.rename(HOST + "/file", HOST + "/elsewhere")
    refused("b", "file", "isn't there any more")
    with open(HOST + "/file", "w") as f:
        f.write("something else\n")
    refused("b", "file", "has been replaced")
    os.rename(HOST + "/elsewhere", HOST + "/file")
    out = restore("b")
    assert hf("exec", "b", "/bin/mkdir", "-p", "/tmp/state")[0] == 0
    end("b", out)
    assert "hostfile" in text(out)
    delete("b")


@test
def host_renamed_it_before():
    says(begin("a", "memory", SLEEP_ON_FILE), "READY")
    os.rename(HOST + "/file", HOST + "/elsewhere")
    s, _, err = hf("checkpoint", "--image-path", IMAGE + "x", "a")
    assert s == 1 and "renamed" in err and not os.path.exists(IMAGE + "x"), err
    assert state("a")["status"] == "running"
    delete("a")


@test
def changed_image_is_noticed():
    script = "echo READY; while ! [ -e /tmp/state/go ]; do sleep 0.05; done; cat /state-image/keep 2>&1; echo DONE 0"
    says(begin("a", "memory", ("/bin/sh", "-c", "exec 3</state-image/keep; " + script)), "READY")
    checkpoint("a")
    with open(ROOT + "/state-image/keep", "a") as f:
        f.write("more\n")
    out = restore("b")
    assert hf("exec", "b", "/bin/mkdir", "-p", "/tmp/state")[0] == 0
    go("b")
    says(out, "DONE")
    assert "Stale file handle" in text(out), text(out)
    delete("b")


@test
def looked_at_only():
    """What was only looked at isn't in the image."""
    def conf(c):
        c["root"]["path"] = debian()

    with open(os.path.join(WORK, "look.out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--overlay", "memory", "--bundle",
                               bundle("b-look", ("/bin/sleep", "1000"), conf), "look"], f)
    assert s == 0, err
    s, out, err = hf("exec", "look", "/usr/bin/find", "/usr", "-ls")
    assert s == 0 and len(out.splitlines()) > 10000, err
    s, numbers, err = hf("exec", "look", "/bin/ls", "-i", "/usr/bin/find", "/etc/passwd")
    assert s == 0, err
    checkpoint("look")
    assert os.path.getsize(IMAGE + "/state") < 500000, os.path.getsize(IMAGE + "/state")
    restore("look2")
    assert hf("exec", "look2", "/bin/ls", "-i", "/usr/bin/find", "/etc/passwd")[1] == numbers
    assert len(hf("exec", "look2", "/usr/bin/find", "/usr")[1].splitlines()) == len(out.splitlines())
    delete("look2")


@test
def vim_in_tmux():
    def conf(c):
        c["root"]["path"] = debian()
        c["process"]["env"] = ["PATH=/usr/bin:/bin", "TERM=xterm", "HOME=/tmp", "LANG=C.UTF-8"]

    def tmux(cid, *args):
        s, out, err = hf("exec", cid, "/usr/bin/tmux", "-S", "/tmp/tm", *args)
        assert s == 0, (args, err)
        return out

    def shows(cid, words):
        assert wait_for(lambda: words in tmux(cid, "capture-pane", "-p"), 20), tmux(cid, "capture-pane", "-p")

    out = os.path.join(WORK, "tm.out")
    with open(out, "wb") as f:
        s, err = run_detached(["run", "--detach", "--overlay", "memory", "--bundle",
                               bundle("b-tm", ("/bin/sleep", "1000"), conf), "tm"], f)
    assert s == 0, err
    tmux("tm", "new-session", "-d", "-x", "80", "-y", "24", "vim.tiny -n -u NONE /tmp/letter")
    tmux("tm", "send-keys", "ifirst line", "Enter", "half a li")
    shows("tm", "half a li")
    checkpoint("tm")
    restore("tm2")
    shows("tm2", "half a li")
    tmux("tm2", "send-keys", "ne", "Escape", ":w", "Enter")
    assert wait_for(lambda: hf("exec", "tm2", "/bin/cat", "/tmp/letter")[1] == "first line\nhalf a line\n", 20)
    tmux("tm2", "send-keys", ":q", "Enter")
    delete("tm2")


if __name__ == "__main__":
    main()
