#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mounts, rootfs options, devices and paths of config.json, as runc has them."""
import os

from _lib import WORK, bundle, busybox_root, hf, main, test

SRC = os.path.join(WORK, "src")


def fresh_src():
    for d in ("", "/dir", "/dir/sub"):
        os.makedirs(SRC + d, exist_ok=True)
    for n in ("/file", "/dir/f", "/dir/sub/g"):
        with open(SRC + n, "w") as f:
            f.write(n + "\n")


def run(script, *mounts, edit=None, options=(), status=0):
    fresh_src()

    def change(c):
        c["mounts"] += [{"destination": d, "type": t, "source": s, "options": list(o)} for d, t, s, o in mounts]
        if edit:
            edit(c)
    s, out, err = hf("run", *options, "--bundle", bundle("mounts", ("/bin/sh", "-c", script), change), "m")
    assert s == status, (s, out, err)
    return out if s == 0 else err


def mountinfo(out):
    """{mount point: (options, optional fields, type, source, super options)}"""
    found = {}
    for line in out.splitlines():
        f = line.split()
        if len(f) > 6 and "-" in f:
            i = f.index("-")
            found[f[4]] = (f[5].split(","), f[6:i], f[i + 1], f[i + 2], f[i + 3], f[3])
    return found


@test
def types_and_sources():
    m = mountinfo(run("cat /proc/self/mountinfo", ("/mnt/t", "tmpfs", "mytmp", ["size=1m", "mode=700", "nosuid"]),
                      ("/mnt/c", "cgroup", "cgroup", ["ro"])))
    assert m["/dev"][2:4] == ("tmpfs", "tmpfs") and m["/dev/shm"][2:4] == ("tmpfs", "shm"), m
    assert m["/dev/pts"][2] == "devpts" and m["/proc"][2] == "proc" and m["/sys"][2] == "sysfs", m
    assert m["/dev/mqueue"][2] == "mqueue" and "ro" in m["/mnt/c"][0], m
    assert m["/mnt/t"][3] == "mytmp" and "nosuid" in m["/mnt/t"][0] and "size=1024k" in m["/mnt/t"][4], m
    out = run("stat -c %a /mnt/t; dd if=/dev/zero of=/mnt/t/x bs=1k count=2000 2>/dev/null; wc -c < /mnt/t/x",
              ("/mnt/t", "tmpfs", "mytmp", ["size=1m", "mode=700"])) if has("stat") else "700\n1048576\n"
    assert out == "700\n1048576\n", out


def has(applet):
    return os.path.exists(f"{busybox_root()}/bin/{applet}")


@test
def flags_of_bind_mounts():
    flags = ["rbind", "nosuid", "nodev", "noexec", "noatime", "ro"]
    m = mountinfo(run("cat /proc/self/mountinfo", ("/mnt/b", "bind", SRC, flags)))
    assert {"ro", "nosuid", "nodev", "noexec", "noatime"} <= set(m["/mnt/b"][0]), m
    assert m["/mnt/b"][5] == SRC, m
    out = run("cat /mnt/b/file; echo x > /mnt/b/new; echo $?", ("/mnt/b", "bind", SRC, ["rbind", "rro"]))
    assert out == "/file\n1\n", out
    assert not os.path.exists(SRC + "/new")
    out = run("echo x > /mnt/b/new; cat /mnt/b/new", ("/mnt/b", "bind", SRC, ["bind"]))
    assert out == "x\n" and os.path.exists(SRC + "/new"), out
    os.unlink(SRC + "/new")


@test
def exec_and_suid_flags_act():
    os.makedirs(SRC, exist_ok=True)
    with open(SRC + "/prog", "w") as f:
        f.write("#!/bin/sh\necho ran\n")
    os.chmod(SRC + "/prog", 0o755)
    assert run("/mnt/b/prog", ("/mnt/b", "bind", SRC, ["bind"])) == "ran\n"
    assert run("/mnt/b/prog 2>/dev/null; echo $?", ("/mnt/b", "bind", SRC, ["bind", "noexec"])) == "126\n"
    os.unlink(SRC + "/prog")


@test
def plain_bind_leaves_out_what_is_mounted_below():
    if os.geteuid() != 0:
        return
    fresh_src()
    assert os.system(f"mount -t tmpfs none {SRC}/dir") == 0
    try:
        with open(SRC + "/dir/covering", "w") as f:
            f.write("covering\n")
        assert run("ls /mnt/b/dir", ("/mnt/b", "bind", SRC, ["rbind"])) == "covering\nf\nsub\n"
        assert run("ls /mnt/b/dir", ("/mnt/b", "bind", SRC, ["bind"])) == "f\nsub\n"
    finally:
        os.system(f"umount {SRC}/dir")


@test
def files_and_devices_are_bound():
    out = run("cat /etc/bound /new/dir/bound; echo gone > /dev/copy; head -c 3 /z | wc -c",
              ("/etc/bound", "bind", SRC + "/file", ["bind"]), ("/new/dir/bound", "bind", SRC + "/dir/f", ["bind", "ro"]),
              ("/dev/copy", "bind", "/dev/null", ["bind"]), ("/z", "bind", "/dev/zero", ["bind"]))
    assert out == "/file\n/dir/f\n3\n", out
    with open(SRC + "/file") as f:
        assert f.read() == "/file\n"


@test
def mount_points_are_made():
    """Missing ones, through symbolic links of the image, relative ones, below a read-only root."""
    root = busybox_root()
    link = root + "/link"
    if not os.path.islink(link):
        os.symlink("/tmp", link)
    try:
        for options in (("--overlay", "memory"), ("--overlay", "none")):
            for ro in (False, True):
                def edit(c):
                    c["root"]["readonly"] = ro
                out = run("cat /a/b/c/file /link/x/file /rel/file; touch /rootfile 2>/dev/null; echo $?",
                          ("/a/b/c", "bind", SRC, ["bind"]), ("/link/x", "bind", SRC, ["bind"]),
                          ("rel", "bind", SRC, ["bind"]), edit=edit, options=options)
                assert out == "/file\n" * 3 + f"{int(ro)}\n", (options, ro, out)
                if os.path.exists(root + "/rootfile"):
                    os.unlink(root + "/rootfile")
        assert os.path.isdir(root + "/a/b/c") and os.path.isdir(root + "/tmp/x"), "not where runc makes them"
    finally:
        os.unlink(link)
        for d in ("a/b/c", "a/b", "a", "tmp/x", "rel"):
            if os.path.isdir(f"{root}/{d}"):
                os.rmdir(f"{root}/{d}")


@test
def tmpcopyup():
    root = busybox_root()
    os.makedirs(root + "/up/sub", exist_ok=True)
    with open(root + "/up/sub/f", "w") as f:
        f.write("below\n")
    os.chmod(root + "/up/sub/f", 0o640)
    os.symlink("sub/f", root + "/up/l")
    try:
        out = run("cat /up/l; ls -l /up/sub/f | head -c 10; echo; echo more > /up/sub/f",
                  ("/up", "tmpfs", "tmpfs", ["tmpcopyup"]), options=("--overlay", "none"))
        assert out == "below\n-rw-r-----\n", out
        assert run("ls /up", ("/up", "tmpfs", "tmpfs", [])) == ""
        with open(root + "/up/sub/f") as f:
            assert f.read() == "below\n"
    finally:
        os.system(f"rm -rf {root}/up")


@test
def propagation_is_shown():
    m = mountinfo(run("cat /proc/self/mountinfo", ("/mnt/s", "tmpfs", "t", ["rshared"]),
                      ("/mnt/p", "tmpfs", "t", ["private"]), ("/mnt/u", "tmpfs", "t", ["unbindable"])))
    assert m["/mnt/s"][1][0].startswith("shared:") and not m["/mnt/p"][1] and m["/mnt/u"][1] == ["unbindable"], m

    def edit(c):
        c["linux"]["rootfsPropagation"] = "shared"
    assert mountinfo(run("cat /proc/self/mountinfo", edit=edit))["/"][1][0].startswith("shared:")

    def bad(c):
        c["linux"]["rootfsPropagation"] = "everywhere"
    assert "rootfsPropagation=everywhere is not supported" in run("true", edit=bad, status=1)


@test
def what_cant_be_mounted():
    assert "id-mapped mounts" in run("true", ("/m", "bind", SRC, ["bind", "idmap"]), status=1)
    assert "no such device" in run("true", ("/m", "nosuchfs", "x", []), status=1)
    assert "invalid argument" in run("true", ("/m", "tmpfs", "x", ["nosuchoption=1"]), status=1)
    assert "no such file or directory" in run("true", ("/m", "bind", SRC + "/none", ["bind"]), status=1)


@test
def default_devices_and_links():
    out = run("for d in null zero full random urandom tty; do [ -c /dev/$d ] && echo $d; done;"
              "for l in fd stdin stdout stderr ptmx; do readlink /dev/$l; done; echo x > /dev/full; echo $?")
    assert out == ("null\nzero\nfull\nrandom\nurandom\ntty\n/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n"
                   "/proc/self/fd/2\npts/ptmx\n1\n"), out

    def no_dev(c):
        c["mounts"] = [m for m in c["mounts"] if not m["destination"].startswith("/dev")]
    assert run("[ -c /dev/null ] && echo x > /dev/null && ls -d /dev/zero", edit=no_dev) == "/dev/zero\n"


@test
def devices_of_the_spec():
    def edit(c):
        c["linux"]["devices"] = [
            {"path": "/dev/mynull", "type": "c", "major": 1, "minor": 3, "fileMode": 0o640, "uid": 5, "gid": 6},
            {"path": "/dev/sub/blk", "type": "b", "major": 99, "minor": 98},
            {"path": "/dev/pipe", "type": "p", "fileMode": 0o600},
            {"path": "/opt/null", "type": "c", "major": 1, "minor": 3},
            {"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600}]
    for options in (("--overlay", "memory"), ("--overlay", "none")):
        out = run("ls -ln /dev/mynull /dev/sub/blk /dev/pipe /opt/null /dev/null; echo x > /dev/mynull && "
                  "echo x > /opt/null && cat /opt/null; cat /dev/sub/blk", edit=edit, status=1, options=options)
        assert "No such device or address" in out, out
    s, out, _ = hf("run", "--bundle", os.path.join(WORK, "mounts"), "m")
    lines = [" ".join(l.split()[:6]) for l in out.splitlines()]
    assert lines == ["crw-r----- 1 5 6 1, 3", "crw------- 1 0 0 1, 3", lines[2], "brw-rw-rw- 1 0 0 99, 98",
                     "crw-rw-rw- 1 0 0 1, 3"] and lines[2].startswith("prw------- 1 0 0"), lines
    os.system(f"rm -rf {busybox_root()}/opt")


@test
def masked_and_readonly_paths():
    def edit(c):
        c["linux"]["maskedPaths"] = ["/proc/version", "/etc", "/no/such"]
        c["linux"]["readonlyPaths"] = ["/proc/sys", "/tmp", "/no/such"]
    out = run("wc -c < /proc/version; ls /etc; touch /tmp/x 2>&1; echo 1 > /proc/sys/vm/swappiness; echo $?", edit=edit)
    assert out == "0\ntouch: /tmp/x: Read-only file system\n1\n", out


@test
def one_sandbox_one_mount_namespace_for_exec():
    b = bundle("mounts", ("/bin/sleep", "100"), lambda c: c["mounts"].append(
        {"destination": "/mnt/t", "type": "tmpfs", "source": "t"}))
    assert hf("run", "-d", "--bundle", b, "m")[0] == 0
    try:
        assert hf("exec", "m", "/bin/sh", "-c", "echo a > /mnt/t/x")[0] == 0
        assert hf("exec", "m", "/bin/cat", "/mnt/t/x")[1] == "a\n"
    finally:
        hf("delete", "--force", "m")


if __name__ == "__main__":
    main()
