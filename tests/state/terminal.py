#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A shell on a terminal is saved, and goes on at the terminal of whoever restores it."""
import os
import pty
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, STATE, bundle, checkpoint, hf, main, reads, test  # noqa: E402


def client(*args):
    """A holdfast command on a terminal of its own: pid and our end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(os.environ["HOLDFAST"], ["holdfast", "--root", STATE, *args])
    return pid, fd


def ends(pid, fd):
    """Its status; what it still says is read, or it would wait for us."""
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        pass
    status = os.waitpid(pid, 0)[1]
    os.close(fd)
    return os.waitstatus_to_exitcode(status)


@test
def a_shell_goes_on_at_another_terminal():
    def terminal(c):
        c["process"]["terminal"] = True
    pid, fd = client("run", "--bundle", bundle("tty", ["/bin/sh", "-i"], terminal), "t")
    os.write(fd, b"x=41; echo is $((x))\n")
    reads(fd, b"is 41")
    checkpoint("t")
    ends(pid, fd)
    for n in range(2):
        pid, fd = client("restore", "--image-path", IMAGE, "t2")
        os.write(fd, b"echo is $((x+1)) on $(tty)\n")
        reads(fd, b"is 42 on /dev/pts/0")
        os.write(fd, b"stty size; exit %d\n" % n)
        reads(fd, b"exit")
        assert ends(pid, fd) == n
    assert "t2" not in hf("list")[1]


@test
def a_branch_has_a_terminal_with_nobody_at_it():
    def terminal(c):
        c["process"]["terminal"] = True
    pid, fd = client("run", "--bundle", bundle("tty", ["/bin/sh", "-i"], terminal), "t")
    os.write(fd, b"x=6; echo is $((x))\n")
    reads(fd, b"is 6")
    s, out, err = hf("fork", "t")
    assert s == 0 and out == "t-1\n", (out, err)
    s, out, err = hf("exec", "t-1", "/bin/sh", "-c", "echo $PPID; ls /dev/pts")
    assert s == 0 and "0" in out.split(), (out, err)
    hf("delete", "--force", "t-1")
    os.write(fd, b"echo is $((x*7)); exit 4\n")
    reads(fd, b"is 42")
    assert ends(pid, fd) == 4


main()
