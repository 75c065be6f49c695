#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the live processes of a sandbox may do, read from the host's /proc.

The launcher gets junk descriptors (a secret file, a socket, a pipe, a terminal) and a controlling terminal: nothing
of it may arrive in any process of the sandbox.
"""
import fcntl
import os
import pty
import resource
import socket
import subprocess
import sys
import termios

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import WORK, alive, bundle, hf, main, process_tree, state, test, wait_for  # noqa: E402

GOFER_CAPS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # chown, dac_override, dac_read_search, fowner, fsetid
NAMESPACES = ("user", "pid", "net", "ipc", "mnt", "uts", "cgroup")


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def limits(pid):
    with open(f"/proc/{pid}/limits") as f:
        return {line[:26].strip(): line[26:].split()[:2] for line in f}


def thread_descriptors(pid):
    """{tid: number of descriptors}: threads may have tables of their own."""
    d = f"/proc/{pid}/task"
    return {int(t): len(os.listdir(f"{d}/{t}/fd")) for t in os.listdir(d)}


def stat_fields(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().split("\0")
    except OSError:
        return []


def descriptors(pid):
    """{fd: (link, (device, inode))}"""
    d = f"/proc/{pid}/fd"
    out = {}
    for fd in os.listdir(d):
        st = os.stat(f"{d}/{fd}")
        out[int(fd)] = (os.readlink(f"{d}/{fd}"), (st.st_dev, st.st_ino))
    return out


class Sandbox:
    def __enter__(self):
        self.master, self.slave = pty.openpty()
        self.name = os.ttyname(self.slave)
        self.secret = WORK + "/secret"
        with open(self.secret, "w") as f:
            f.write("secret\n")
        sock = socket.socketpair()
        pipe = os.pipe()
        junk = [os.open(self.secret, os.O_RDWR), sock[0].fileno(), pipe[0], pipe[1], self.slave]
        junk += [fcntl.fcntl(junk[0], fcntl.F_DUPFD, n) for n in (10, 11, 63, 200, 1000)]
        self.junk = {(os.fstat(f).st_dev, os.fstat(f).st_ino) for f in junk}

        def session():
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            os.umask(0)

        s, _, err = hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "p", pass_fds=junk, preexec_fn=session)
        assert s == 0, err
        for f in junk + [pipe[0]]:
            try:
                os.close(f)
            except OSError:
                pass
        self.sentry = state("p")["pid"]
        self.children = [p for p in process_tree(self.sentry) if p != self.sentry]
        gofers = [p for p in process_tree() if len(cmdline(p)) > 1 and cmdline(p)[1] == "gofer-role"]
        rootfs = os.stat(WORK + "/rootfs")
        self.gofer = next(p for p in gofers if (rootfs.st_dev, rootfs.st_ino) in [i for _, i in descriptors(p).values()])
        return self

    def __exit__(self, *exc):
        hf("delete", "--force", "p")


def readable_as(uid, path):
    """Whether a process of the same user, without capabilities, may open it: not for one that is not dumpable."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid) if uid else os.setresuid(65534, 65534, 65534)
            os.open(path, os.O_RDONLY)
            os._exit(1)
        except OSError:
            os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


def check_common(pid, caps):
    s = status(pid)
    for c in ("CapEff", "CapPrm"):
        assert int(s[c], 16) == caps, (pid, c, s[c])
    for c in ("CapInh", "CapBnd", "CapAmb"):
        assert int(s[c], 16) == 0, (pid, c, s[c])
    assert s["NoNewPrivs"] == "1"
    assert s["Seccomp"] == "2"
    assert limits(pid)["Max core file size"] == ["0", "0"], limits(pid)
    assert os.listdir(f"/proc/{pid}/root") == []
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert stat_fields(pid)[4] == "0", "has a controlling terminal"
    assert not readable_as(int(s["Uid"].split()[0]), f"/proc/{pid}/mem"), "dumpable"
    with open(f"/proc/{pid}/environ") as f:
        assert f.read() == ""


def check_namespaces(pid, names):
    for n in names:
        assert os.readlink(f"/proc/{pid}/ns/{n}") != os.readlink(f"/proc/self/ns/{n}"), (pid, n)


def check_descriptors(sb, pid, paths):
    """No file of the host but of the container's own root, and @paths; no terminal; nothing of the launcher's."""
    null = (os.stat("/dev/null").st_dev, os.stat("/dev/null").st_ino)
    for fd, (link, ino) in descriptors(pid).items():
        assert ino not in sb.junk, (pid, fd, link)
        assert not link.startswith(("/dev/pts", "/dev/tty", "/dev/ptmx")), (pid, fd, link)
        if link.startswith(("socket:", "pipe:", "anon_inode:", "/memfd:")) or ino == null or "(deleted)" in link:
            continue
        if link in paths or any(link.startswith(p + "/") for p in paths if p != "/"):
            continue
        st = os.stat(WORK + "/rootfs" + link)  # paths of a detached mount start at its root
        assert (st.st_dev, st.st_ino) == ino, (pid, fd, link)


@test
def sentry():
    with Sandbox() as sb:
        check_common(sb.sentry, 0)
        assert int(status(sb.sentry)["Uid"].split()[0]) >= 0x70000000
        assert int(status(sb.sentry)["Gid"].split()[0]) >= 0x70000000
        assert status(sb.sentry)["Groups"].strip() == ""
        check_namespaces(sb.sentry, NAMESPACES)
        check_descriptors(sb, sb.sentry, [WORK + "/state"])
        assert stat_fields(sb.sentry)[3] == str(sb.sentry), "no session of its own"


@test
def gofer():
    with Sandbox() as sb:
        check_common(sb.gofer, GOFER_CAPS)
        check_namespaces(sb.gofer, [n for n in NAMESPACES if n != "user"])
        check_descriptors(sb, sb.gofer, [WORK + "/state", "/"])


@test
def stubs():
    with Sandbox() as sb:
        assert len(sb.children) >= 2, "a zygote and a stub"
        for pid in sb.children:
            check_common(pid, 0)
            check_namespaces(pid, NAMESPACES)
            check_descriptors(sb, pid, [])
            assert int(limits(pid)["Max open files"][1]) <= 16384
            assert limits(pid)["Max processes"][1] != "unlimited" and int(limits(pid)["Max processes"][1]) < 1 << 20
            held = thread_descriptors(pid)
            if len(held) > 1:  # not the zygote: the mapper holds all, guest threads none
                assert held[pid] == 0 and sum(n > 0 for n in held.values()) == 1, held
            for line in open(f"/proc/{pid}/maps"):
                assert "[vdso]" not in line and "[vvar]" not in line, line
                # nothing of the launcher's or the sentry's image
                assert "holdfast" not in line, line


def check_waiter(pid):
    assert wait_for(lambda: status(pid)["Seccomp"] == "2"), "it isn't confined"  # it may be on its way when the command returns
    st = status(pid)
    for c in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        assert int(st[c], 16) == 0, (pid, c, st[c])
    assert st["NoNewPrivs"] == "1", st
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert limits(pid)["Max core file size"] == ["0", "0"]


@test
def waiters():
    """A process of `exec --detach`, and one that carries a terminal's bytes."""
    with Sandbox() as sb:
        path = WORK + "/tty.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        for n, extra in enumerate(([], ["--tty", "--console-socket", path])):
            s, _, err = hf("exec", "--detach", "--pid-file", f"{WORK}/pid{n}", *extra, "p", "/bin/sleep", "1000")
            assert s == 0, err
            with open(f"{WORK}/pid{n}") as f:
                pid = int(f.read())
            check_waiter(pid)
            for fd, (link, ino) in descriptors(pid).items():
                assert ino not in sb.junk and not link.startswith("/tmp"), (pid, fd, link)
            os.kill(pid, 15)  # passed on
            wait_for(lambda pid=pid: not alive(pid))
        listener.close()


@test
def relay():
    """What `create --console-socket` leaves behind."""
    path = WORK + "/tty2.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)

    def tty(c):
        c["process"]["terminal"] = True
    before = set(process_tree())
    s, _, err = hf("create", "-b", bundle("b4", ["/bin/sleep", "1000"], tty), "--console-socket", path, "t")
    assert s == 0, err
    try:
        left = [p for p in set(process_tree()) - before if "create" in cmdline(p)]
        assert len(left) == 1, [cmdline(p) for p in set(process_tree()) - before]
        check_waiter(left[0])
    finally:
        hf("delete", "--force", "t")
        listener.close()


@test
def files_are_only_for_who_enters_from_outside():
    """podman cp enters the mount namespace of the pid; the sentry and its stubs, in the same one, see nothing of it."""
    s, _, err = hf("create", "-b", bundle("b3"), "r")
    assert s == 0, err
    try:
        pid = state("r")["pid"]
        for p in process_tree(pid):
            assert os.listdir(f"/proc/{p}/root/..") == []
            with open(f"/proc/{p}/mountinfo") as f:
                assert f.read() == ""
        inside = subprocess.run(["nsenter", "-m", "-t", str(pid), "/bin/busybox", "ls", "/", "/proc"], capture_output=True, text=True, timeout=30)
        assert "busybox" in os.listdir(WORK + "/rootfs/bin") and "etc\n" in inside.stdout and "1\n" in inside.stdout, inside
    finally:
        hf("delete", "--force", "r")


@test
def sandboxes_run_as_different_users():
    with Sandbox() as sb:
        assert hf("create", "-b", bundle("b2"), "q")[0] == 0
        try:
            other = state("q")["pid"]
            assert status(sb.sentry)["Uid"] != status(other)["Uid"]
            for n in NAMESPACES:
                assert os.readlink(f"/proc/{sb.sentry}/ns/{n}") != os.readlink(f"/proc/{other}/ns/{n}")
        finally:
            hf("delete", "--force", "q")


main()
