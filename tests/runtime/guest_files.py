#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a hostile guest can do to the host's files through mounts, checked from outside."""
import os
import shutil
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import TOP, WORK, bundle, busybox_root, hf, main, test  # noqa: E402


def bind(dest, src, *options):
    return lambda c: c["mounts"].append({"destination": dest, "type": "bind", "source": src, "options": ["rbind", *options]})


def all_caps(c):
    caps = ["CAP_" + n for n in ("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID MKNOD SETFCAP SETUID SETGID SYS_ADMIN "
                                 "SYS_CHROOT").split()]
    c["process"]["capabilities"] = {k: caps for k in ("bounding", "effective", "permitted")}


def snapshot(d):
    """Everything below @d that a guest could have changed."""
    out = {}
    for base, dirs, files in os.walk(d):
        for n in [""] + dirs + files:
            p = os.path.join(base, n)
            st = os.lstat(p)
            text = open(p, "rb").read() if stat.S_ISREG(st.st_mode) else b""
            out[p] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, text, tuple(os.listxattr(p, follow_symlinks=False)))
    return out


@test
def symlink_swaps_never_leave_the_mount():
    share, outside = WORK + "/jail/share", WORK + "/jail/outside"
    os.makedirs(share)
    os.makedirs(outside)
    with open(outside + "/file", "w") as f:
        f.write("mine\n")
    # what the links lead to, were they followed on the host from the share
    os.symlink(outside, share + "/link2")
    before, etc = snapshot(outside), sorted(os.listdir("/etc"))
    shutil.copy(TOP + "/build/tests/escape/swapper", busybox_root() + "/bin/swapper")

    def edit(c):
        bind("/share", share, "rw")(c)
        all_caps(c)
    s, out, err = hf("run", "-b", bundle("b", ["/bin/swapper", "/share", "4"], edit), "s", timeout=60)
    assert s == 0, (s, out, err)
    assert snapshot(outside) == before
    assert sorted(os.listdir("/etc")) == etc
    assert not os.path.exists("/outside")
    assert not [n for n in os.listdir(WORK + "/jail") if n not in ("share", "outside")]


@test
def read_only_binds_and_roots_stay_read_only():
    ro = WORK + "/ro"
    os.makedirs(ro)
    with open(ro + "/f", "w") as f:
        f.write("keep\n")
    os.makedirs(busybox_root() + "/ro", exist_ok=True)
    before, root = snapshot(ro), snapshot(busybox_root())
    script = """
    for d in /ro /; do
        mount -o remount,rw $d; mount -o remount,bind,rw $d
        echo x > $d/f; echo x >> $d/etc/passwd; rm -f $d/f; mkdir $d/new; chmod 777 $d/f $d; touch $d/f
        mkdir -p /tmp/m; mount -o bind $d /tmp/m && { echo x > /tmp/m/f; mkdir /tmp/m/new; }
    done
    exit 0"""

    def edit(c):
        bind("/ro", ro, "ro")(c)
        all_caps(c)
        c["root"]["readonly"] = True
        c["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"})
    for overlay in ("none", "memory"):
        s, out, err = hf("run", "--overlay", overlay, "-b", bundle("b", ["/bin/sh", "-c", script], edit), "r")
        assert s == 0, (s, out, err)
        assert snapshot(ro) == before
        assert snapshot(busybox_root()) == root


@test
def no_devices_or_capabilities_reach_the_host():
    share = WORK + "/share"
    os.makedirs(share)
    script = """cd /share; cp /bin/busybox su; chmod 6755 su; chown 0:0 su; chmod 6755 su
    mknod mem c 1 1; mknod sda b 8 0; mkdir d; chmod 7777 d; exit 0"""
    busybox_root()
    for n in ("cp", "chmod", "chown", "mknod"):
        if not os.path.lexists(f"{WORK}/rootfs/bin/{n}"):
            os.symlink("busybox", f"{WORK}/rootfs/bin/{n}")

    def edit(c):
        bind("/share", share, "rw")(c)
        all_caps(c)
    s, out, err = hf("run", "-b", bundle("b", ["/bin/sh", "-c", script], edit), "u")
    assert s == 0, (s, out, err)
    for n in os.listdir(share):
        st = os.lstat(f"{share}/{n}")
        assert not stat.S_ISCHR(st.st_mode) and not stat.S_ISBLK(st.st_mode), n
        # set-user-id bits do, as under runc: runtime/README.md says what to do about it
        assert "security.capability" not in os.listxattr(f"{share}/{n}")


@test
def devices_in_an_image_are_not_the_hosts():
    root = busybox_root()
    for n, dev in (("mem", os.makedev(1, 1)), ("cuse", os.makedev(10, 203)), ("kvm", os.makedev(10, 232))):
        if not os.path.lexists(f"{root}/{n}"):
            os.mknod(f"{root}/{n}", 0o666 | stat.S_IFCHR, dev)
    if not os.path.lexists(root + "/fifo"):
        os.mkfifo(root + "/fifo")
    try:
        for n in ("mem", "cuse", "kvm"):
            s, out, _ = hf("run", "-b", bundle("b", ["/bin/sh", "-c", f"dd if=/{n} of=/dev/null bs=1 count=1"], all_caps), "d")
            assert s != 0, (n, out)
    finally:
        for n in ("mem", "cuse", "kvm", "fifo"):
            os.unlink(f"{root}/{n}")


main()
