#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where writes to the root file system go, and that a written-through one is coherent with its host's side."""
import os
import shutil
import threading

from _lib import WORK, bundle, busybox_root, hf, main, test

ROOT = os.path.join(WORK, "own-root")


def own_root():
    if not os.path.isdir(ROOT):
        shutil.copytree(busybox_root(), ROOT, symlinks=True)
    return ROOT


def edit(**annotations):
    def change(c):
        c["root"] = {"path": own_root(), "readonly": False}
        c["annotations"] = {k.replace("_", "."): v for k, v in annotations.items()}
    return change


def running(fn):
    def wrapped():
        b = bundle("rootfs", ("/bin/sleep", "1000"), edit())
        assert hf("create", "--bundle", b, "r")[0] == 0
        assert hf("start", "r")[0] == 0
        try:
            fn()
        finally:
            hf("delete", "--force", "r")
            shutil.rmtree(ROOT)
    wrapped.__name__ = fn.__name__
    return test(wrapped)


def guest(script):
    s, out, err = hf("exec", "r", "/bin/sh", "-c", script)
    assert s == 0, (script, s, out, err)
    return out


def host(path, text=None):
    if text is None:
        with open(ROOT + path) as f:
            return f.read()
    with open(ROOT + path, "w") as f:
        f.write(text)
    return None


@test
def default_of_create_and_of_run():
    own_root()
    for args, through in ((("run",), False), (("run", "--overlay", "none"), True), (("run", "--overlay", "memory"), False)):
        b = bundle("rootfs", ("/bin/touch", "/made"), edit())
        s, _, err = hf(*args, "--bundle", b, "r")
        assert s == 0, err
        assert os.path.exists(ROOT + "/made") == through, args
        if through:
            os.unlink(ROOT + "/made")
    for annotation, option, through in ((None, None, True), ("memory", None, False), ("none", None, True),
                                        ("memory", "none", True)):
        notes = {"org_holdfast_overlay": annotation} if annotation else {}
        b = bundle("rootfs", ("/bin/touch", "/made"), edit(**notes))
        assert hf("create", *(("--overlay", option) if option else ()), "--bundle", b, "r")[0] == 0
        assert hf("start", "r")[0] == 0 and hf("wait", "r")[0] == 0 and hf("delete", "r")[0] == 0
        assert os.path.exists(ROOT + "/made") == through, (annotation, option)
        if through:
            os.unlink(ROOT + "/made")
    s, _, err = hf("create", "--bundle", bundle("rootfs", edit=edit(org_holdfast_overlay="x")), "r")
    assert s == 1 and "unknown overlay mode" in err, err
    shutil.rmtree(ROOT)


@running
def guests_changes_are_on_the_host():
    guest("mkdir -p /a/b; echo hello > /a/b/f; ln -s f /a/b/l; ln /a/b/f /a/b/h; chmod 600 /a/b/f; mkfifo /a/p")
    assert host("/a/b/f") == "hello\n" and os.readlink(ROOT + "/a/b/l") == "f"
    st = os.stat(ROOT + "/a/b/f")
    assert st.st_mode & 0o777 == 0o600 and st.st_nlink == 2
    guest("echo more >> /a/b/f; mv /a/b/h /a/moved; rm /a/b/l")
    assert host("/a/moved") == "hello\nmore\n" and not os.path.lexists(ROOT + "/a/b/l")
    guest("rm -r /a")
    assert not os.path.exists(ROOT + "/a")


@running
def hosts_changes_are_in_the_guest():
    host("/new", "1\n")
    assert guest("cat /new; wc -c < /new") == "1\n2\n"
    host("/new", "22222\n")
    assert guest("cat /new; wc -c < /new") == "22222\n6\n"
    os.chmod(ROOT + "/new", 0o711)
    assert guest("ls -l /new").startswith("-rwx--x--x")
    os.rename(ROOT + "/new", ROOT + "/renamed")
    assert guest("ls /new 2>&1; cat /renamed") == "ls: /new: No such file or directory\n22222\n"
    os.unlink(ROOT + "/renamed")
    assert guest("ls /renamed 2>&1; true") == "ls: /renamed: No such file or directory\n"
    os.makedirs(ROOT + "/d/e")
    host("/d/e/f", "deep\n")
    assert guest("cat /d/e/f; ls /d/e") == "deep\nf\n"
    shutil.rmtree(ROOT + "/d")
    assert guest("ls /d 2>&1; true") == "ls: /d: No such file or directory\n"


@running
def names_that_were_missing():
    """A name that the guest asked for in vain exists as soon as the host makes it; and the other way round."""
    for i in range(5):
        assert guest(f"ls /later{i} 2>/dev/null; echo $?") == "1\n"
        host(f"/later{i}", "here\n")
        assert guest(f"cat /later{i}") == "here\n"
        os.unlink(f"{ROOT}/later{i}")
        os.symlink("/etc/passwd", f"{ROOT}/later{i}")
        assert "root" in guest(f"cat /later{i}")
        os.unlink(f"{ROOT}/later{i}")
        os.mkdir(f"{ROOT}/later{i}")
        assert guest(f"ls -d /later{i}/") == f"/later{i}/\n"


@running
def a_file_replaced_by_another():
    """What editors and docker cp do: a new file renamed over the old one."""
    host("/conf", "old\n")
    assert guest("cat /conf") == "old\n"
    for i in range(5):
        host("/conf.new", f"version {i}\n")
        os.rename(ROOT + "/conf.new", ROOT + "/conf")
        assert guest("cat /conf; wc -c < /conf") == f"version {i}\n{len('version 0') + 1}\n"


@running
def an_open_file_follows_the_host():
    host("/log", "one\n")
    script = "exec 3</log; cat <&3; touch /ready; while [ ! -e /go ]; do sleep 0.05; done; cat <&3"
    result = []
    t = threading.Thread(target=lambda: result.append(guest(script)))
    t.start()
    while not os.path.exists(ROOT + "/ready"):
        pass
    with open(ROOT + "/log", "a") as f:
        f.write("two\n")
    host("/go", "")
    t.join()
    assert result == ["one\ntwo\n"], result


@running
def both_sides_append():
    host("/both", "")
    for i in range(3):
        guest(f"echo guest{i} >> /both")
        with open(ROOT + "/both", "a") as f:
            f.write(f"host{i}\n")
    want = "".join(f"guest{i}\nhost{i}\n" for i in range(3))
    assert host("/both") == want and guest("cat /both") == want, host("/both")


@running
def programs_changed_by_the_host():
    assert guest("/bin/true; echo $?") == "0\n"
    host("/bin/prog", "#!/bin/sh\necho first\n")
    os.chmod(ROOT + "/bin/prog", 0o755)
    assert guest("prog") == "first\n"
    host("/bin/prog", "#!/bin/sh\necho second\n")
    assert guest("prog") == "second\n"


if __name__ == "__main__":
    main()
