#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cp: into a container, out of it, as a stream; what a hostile one sends stays where it was asked for."""
import os
import shutil
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import WORK, all_rights, bundle, debian, delete, hf, main, run_detached, state, test  # noqa: E402

HERE = os.path.join(WORK, "here")


def ok(*args):
    s, out, err = hf(*args)
    assert s == 0, (args, out, err)
    return out


def sh(script, cid="c"):
    return ok("exec", cid, "/bin/bash", "-c", script)


def write(path, words, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(words)
    os.chmod(path, mode)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def begin():
    def edit(c):
        all_rights(c)
        c["root"]["path"] = debian()
        c["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"})
    shutil.rmtree(HERE, ignore_errors=True)
    os.makedirs(HERE)
    with open(os.path.join(WORK, "c.out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--bundle", bundle("b-c", ["/bin/sleep", "10000"], edit), "c"], f)
    assert s == 0, err


@test
def a_file_in_and_out():
    begin()
    write(f"{HERE}/-odd & name.*", "words\n", 0o640)
    ok("cp", f"{HERE}/-odd & name.*", "c:/tmp")
    assert sh("cat '/tmp/-odd & name.*'; stat -c '%a %u %g' '/tmp/-odd & name.*'") == "words\n640 0 0\n"
    ok("cp", f"{HERE}/-odd & name.*", "c:/tmp/other&")
    assert sh("cat '/tmp/other&'") == "words\n"
    sh("echo changed > '/tmp/other&'; chown 1000:1000 '/tmp/other&'; chmod 4755 '/tmp/other&'")
    ok("cp", "c:/tmp/other&", HERE)
    ok("cp", "c:tmp/other&", f"{HERE}/third")
    for name in ("other&", "third"):
        st = os.stat(f"{HERE}/{name}")
        assert (read(f"{HERE}/{name}"), st.st_uid, st.st_mode & 0o7000) == ("changed\n", os.getuid(), 0), name
    ok("cp", "c:/tmp/other&", f"{HERE}/third")  # over a file
    ok("cp", "-a", "c:/tmp/other&", f"{HERE}/kept")
    st = os.stat(f"{HERE}/kept")
    assert (st.st_uid, st.st_mode & 0o7777) == (1000, 0o4755)


@test
def trees_by_docker_s_rules():
    write(f"{HERE}/tree/a/b", "deep\n")
    os.symlink("a/b", f"{HERE}/tree/link")
    os.link(f"{HERE}/tree/a/b", f"{HERE}/tree/hard")
    ok("cp", f"{HERE}/tree", "c:/tmp")            # into a directory
    ok("cp", f"{HERE}/tree", "c:/tmp/new")        # as a new one
    ok("cp", f"{HERE}/tree/.", "c:/tmp/contents")  # what is in it, as a new one
    sh("mkdir /tmp/merge; echo stays > /tmp/merge/stays")
    ok("cp", f"{HERE}/tree/.", "c:/tmp/merge")    # what is in it, into one
    assert sh("cat /tmp/tree/a/b /tmp/new/a/b /tmp/contents/a/b /tmp/merge/a/b /tmp/merge/stays; readlink /tmp/new/link") == \
        "deep\n" * 4 + "stays\na/b\n"
    ok("cp", "c:/tmp/merge", f"{HERE}/back")
    ok("cp", "c:/tmp/merge/.", HERE)
    assert read(f"{HERE}/back/a/b") == read(f"{HERE}/a/b") == read(f"{HERE}/link") == "deep\n"
    assert os.stat(f"{HERE}/back/hard").st_nlink == 2


@test
def a_stream_each_way():
    with open(f"{WORK}/s.tar", "wb") as f:
        s, err = run_detached(["cp", "c:/tmp/tree", "-"], f)
    assert s == 0, err
    names = subprocess.run(["tar", "tf", f"{WORK}/s.tar"], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert "tree/a/b" in names, names
    sh("mkdir /tmp/stream")
    with open(f"{WORK}/s.tar", "rb") as f:
        s, _, err = hf("cp", "-", "c:/tmp/stream", stdin=f)
    assert s == 0, err
    assert sh("cat /tmp/stream/tree/a/b") == "deep\n"


@test
def a_suspended_one_wakes():
    ok("suspend", "c")
    ok("cp", "c:/tmp/new/a/b", f"{HERE}/awake")
    assert read(f"{HERE}/awake") == "deep\n" and state("c")["status"] == "running"


@test
def what_is_not_there_is_said():
    for args in (("c:/nowhere", HERE), (f"{HERE}/nowhere", "c:/tmp"), (f"{HERE}/tree", "c:/no/where"), ("c:/tmp/new", f"{HERE}/no/where"),
                 ("c:/tmp/new/a/b", f"{HERE}/missing/"), ("x:/a", HERE), (HERE, HERE), ("c:/a", "c:/b"), ("c:/tmp/..", HERE)):
        s, _, err = hf("cp", *args)
        assert s == 1 and "holdfast: " in err, (args, s, err)


@test
def a_hostile_tar_stays_where_it_was_asked_for():
    """The guest's tar is the guest's."""
    out = f"{HERE}/jail"
    os.makedirs(out)
    write(f"{HERE}/victim", "untouched\n")
    evil = f"{WORK}/evil"
    write(f"{evil}/make.py", f"""
import sys, tarfile, io
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
def add(name, type=tarfile.REGTYPE, link="", data=b"evil\\n", **kw):
    i = tarfile.TarInfo(name); i.type, i.linkname, i.size, i.mode = type, link, len(data) if type == tarfile.REGTYPE else 0, 0o4777
    for k, v in kw.items(): setattr(i, k, v)
    t.addfile(i, io.BytesIO(data))
add("../victim"); add("asked/../../victim"); add("{HERE}/victim"); add(".bashrc")
add("asked", tarfile.DIRTYPE)
add("asked/up", tarfile.SYMTYPE, "../.."); add("asked/up/victim")
add("asked/abs", tarfile.SYMTYPE, "{HERE}"); add("asked/abs/victim")
add("asked/hard", tarfile.LNKTYPE, "../victim"); add("asked/hard")
add("asked/hard2", tarfile.LNKTYPE, "{HERE}/victim"); add("asked/hard2")
add("asked/disk", tarfile.BLKTYPE, devmajor=254, devminor=0); add("asked/null", tarfile.CHRTYPE, devmajor=1, devminor=3)
add("asked/suid")
t.close()
""")
    ok("cp", f"{evil}/make.py", "c:/make.py")
    sh("cp /bin/tar /bin/tar.real; printf '#!/bin/sh\\ncase $1 in --help) exit 0;; esac\\nexec /usr/bin/python3 /make.py\\n' > /usr/bin/tar;"
       " chmod 755 /usr/bin/tar")
    s, _, _ = hf("cp", "c:/asked", out)
    assert s == 1
    assert read(f"{HERE}/victim") == "untouched\n" and os.listdir(out) in ([], ["asked"]), os.listdir(out)
    for name in os.listdir(f"{out}/asked"):
        st = os.lstat(f"{out}/asked/{name}")
        assert not stat.S_ISBLK(st.st_mode) and not stat.S_ISCHR(st.st_mode) and not st.st_mode & 0o7000, name
    assert os.stat(f"{out}/asked/suid").st_uid == os.getuid()
    delete("c")


@test
def without_a_tar_it_says_so():
    root = os.path.join(WORK, "bare")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root + "/bin")
    shutil.copy2("/bin/busybox", root + "/bin/sleep")

    def edit(c):
        c["root"]["path"] = root
    with open(os.path.join(WORK, "n.out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--bundle", bundle("b-n", ["/bin/sleep", "10000"], edit), "n"], f)
    assert s == 0, err
    s, _, err = hf("cp", f"{HERE}/victim", "n:/")
    assert s == 1 and "no tar in the container" in err, err
    delete("n")


main()
