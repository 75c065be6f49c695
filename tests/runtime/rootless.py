#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of a plain user, through user namespaces; without these, one clear line."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, WORK, busybox_root, main, test  # noqa: E402

UID = 65534
HOME = WORK + "/home"


def as_user(*args):
    """holdfast as a user without privileges; (status, stdout, stderr)."""
    if not os.path.isdir(HOME):
        os.makedirs(HOME)
        shutil.copy(HOLDFAST, HOME + "/holdfast")
        subprocess.run(["cp", "-a", busybox_root(), HOME + "/rootfs"], check=True)
        subprocess.run(["chown", "-R", f"{UID}:{UID}", HOME], check=True)
        os.chmod(WORK, 0o755)
    p = subprocess.run(["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", HOME + "/holdfast",
                        "--root", HOME + "/state", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=60, cwd=HOME)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def may_unshare():
    return subprocess.run(["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "unshare", "-Ur", "true"],
                          stderr=subprocess.DEVNULL).returncode == 0


@test
def do_as_a_plain_user():
    s, out, err = as_user("do", "--rootfs", HOME + "/rootfs", "/bin/sh", "-c", "id -u; echo x > /new && cat /new")
    if not may_unshare():
        assert s == 1 and "user namespaces" in err and len(err.strip().splitlines()) == 1, err
        return
    assert (s, out) == (0, "0\nx\n"), err
    assert not os.path.exists(HOME + "/rootfs/new")


@test
def files_of_others_stay_theirs():
    if not may_unshare():
        return
    with open(HOME + "/rootfs/secret", "w") as f:
        f.write("root's\n")
    os.chmod(HOME + "/rootfs/secret", 0o600)  # of root: the gofer is the user, and can't read it
    s, out, _ = as_user("do", "--rootfs", HOME + "/rootfs", "/bin/cat", "/secret")
    assert s != 0 and "root's" not in out, out


@test
def state_of_others_is_out_of_reach():
    s, _, err = as_user("--root", WORK + "/state", "do", "--rootfs", HOME + "/rootfs", "/bin/true")
    assert s == 1 and len(err.strip().splitlines()) == 1, err


main()
