# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of checkpoints: guests that set something up, are saved, and look afterwards."""
import glob
import os
import pty
import select
import shutil
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "runtime"))
from _lib import HOLDFAST, Skip, STATE, TOP, WORK, alive, bundle, busybox_root, clean_up, hf, main, state, test, wait_for  # noqa: E402,F401

GUESTS = os.path.join(TOP, "build/tests/state")
IMAGE = os.path.join(WORK, "image")


CAPS = ["CAP_" + c for c in """AUDIT_WRITE CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE
    MKNOD NET_ADMIN NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_CHROOT SYS_NICE SYS_PTRACE
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG""".split()]


def all_rights(conf):
    """Guests try what only root may."""
    conf["process"]["capabilities"] = {k: CAPS for k in ("bounding", "effective", "permitted")}
    conf["process"]["noNewPrivileges"] = False


def start(cid, args, name=None, edit=all_rights):
    """A running container of @args; the file its output goes to."""
    out = os.path.join(WORK, cid + ".out")
    with open(out, "wb") as f:
        s, err = run_detached(["run", "--detach", "--bundle", bundle(name or "b-" + cid, args, edit), cid], f)
    assert s == 0, err
    return out


def run_detached(args, out):
    """holdfast with its output in a file that the container keeps."""
    err = os.path.join(WORK, "stderr")
    with open(err, "w+b") as e:
        p = subprocess.run([os.environ["HOLDFAST"], "--root", STATE, *args], stdin=subprocess.DEVNULL, stdout=out,
                           stderr=e, timeout=60, check=False)
        e.seek(0)
        return p.returncode, e.read().decode(errors="replace")


def on_terminal(*args):
    """A holdfast command on a terminal of its own: our end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(os.environ["HOLDFAST"], ["holdfast", "--root", STATE, *args])
    return fd


def reads(fd, words, seconds=15.0):
    """Until a terminal has shown @words."""
    out, end = b"", time.monotonic() + seconds
    while words not in out and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                out += os.read(fd, 4096)
            except OSError:
                break
    assert words in out, out


def debian():
    """The Debian root file system of the tests."""
    p = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], stdout=subprocess.PIPE, check=True, timeout=600)
    return p.stdout.decode().strip()


def guest(name):
    """Puts test program @name into the root file system; its path there."""
    shutil.copy2(os.path.join(GUESTS, name), busybox_root() + "/bin/" + name)
    return "/bin/" + name


def guests():
    """The programs that set something up, say READY, and look at it afterwards."""
    for path in sorted(glob.glob(os.path.join(TOP, "tests/state/guest_*.c"))):
        if '#include "tests/state/guest.h"' in text(path):
            yield os.path.basename(path)[:-2]


def text(path):
    with open(path, "rb") as f:
        return f.read().decode(errors="replace")


def says(path, words, seconds=30.0):
    assert wait_for(lambda: words in text(path), seconds), f"no {words!r} in {text(path)!r}"


def checkpoint(cid, *options, image=IMAGE):
    s, _, err = hf("checkpoint", "--image-path", image, *options, cid)
    assert s == 0, err


def restore(cid, *options, image=IMAGE):
    """The file that the output of restored @cid goes to."""
    out = os.path.join(WORK, cid + ".out")
    with open(out, "wb") as f:
        s, err = run_detached(["restore", "--detach", "--image-path", image, *options, cid], f)
    assert s == 0, err
    return out


def delete(*cids):
    for cid in cids:
        hf("delete", "--force", cid)


def go(cid):
    s, _, err = hf("exec", cid, "/bin/touch", "/tmp/state/go")
    assert s == 0, err
