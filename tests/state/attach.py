#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attach: terminals whose client has gone, was replaced, or never was there since the sandbox woke."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, bundle, checkpoint, delete, hf, main, state, test, wait_for  # noqa: E402
from _term import Term, set_size  # noqa: E402

SHELL = ("/bin/sh", "-c", "PS1='$ ' exec sh")
LEAVE = "\x1d"


def shell(cid):
    """A container with a shell on a terminal, and its client."""
    b = bundle("t-" + cid, SHELL, lambda c: c["process"].update(terminal=True))
    t = Term("run", "--keep", "--bundle", b, cid)
    t.expect("$ ")
    return t


def end(t):
    os.kill(t.pid, signal.SIGKILL)
    t.wait()
    t.close()


@test
def it_reconnects_after_the_client_has_died():
    t = shell("a")
    t.send("X=kept; echo be''fore\r")
    t.expect("before")
    end(t)
    t = Term("attach", "a")
    t.expect("before")  # of the scrollback
    t.send("echo $X-and-here\r")
    t.expect("kept-and-here")
    t.send(LEAVE)
    assert t.wait() == 0 and not t.raw()
    t.close()
    assert state("a")["status"] == "running"


@test
def a_second_client_takes_over():
    one = Term("attach", "a")
    one.expect("kept-and-here")
    two = Term("attach", "a")
    two.expect("kept-and-here")
    assert one.wait() == 255
    assert "somebody else" in one.out.decode(), one.out
    two.send("echo st''ill\r")
    two.expect("still")
    end(two)
    one.close()


@test
def its_size_follows_the_new_client():
    t = Term("attach", "a", rows=33, cols=77)
    t.send("stty size\r")
    t.expect("33 77")
    set_size(t.fd, 20, 60)
    os.kill(t.pid, signal.SIGWINCH)
    t.send("while [ \"$(stty size)\" != '20 60' ]; do :; done; echo co''me\r")
    t.expect("come")
    end(t)


@test
def the_last_64_kib_are_kept():
    t = Term("attach", "a")
    t.send("i=0; while [ $i -lt 9000 ]; do i=$((i+1)); echo line-$i-; done; echo fin''ished\r")
    t.expect("finished", 60)
    end(t)
    t = Term("attach", "a")
    before = t.expect("line-9000-")
    assert "line-1-" not in before and 40000 < len(before) <= 65536, len(before)
    end(t)


@test
def attaching_wakes_it_and_the_scrollback_is_there():
    s, _, err = hf("suspend", "a")
    assert s == 0, err
    t = Term("attach", "a")
    t.expect("line-9000-")
    t.send("echo $X-again\r")
    t.expect("kept-again")
    t.send("exit 7\r")
    assert t.wait() == 7
    t.close()
    delete("a")


@test
def sessions_of_exec_are_there_after_a_restore():
    t = shell("s")
    e = Term("exec", "-t", "s", "/bin/sh", "-c", "Y=second; echo se''ssion; PS1='> ' exec sh")
    e.expect("session")
    e.expect("> ")
    checkpoint("s")
    for c in (t, e):
        c.wait()
        c.close()
    delete("s")
    s, _, err = hf("restore", "--detach", "--image-path", IMAGE, "s")
    assert s == 0, err
    a = Term("attach", "s", "1")
    a.expect("session")
    a.send("echo still-$0\r")
    a.expect("still-")
    a.send("exit 3\r")
    assert a.wait() == 3
    a.close()
    s, _, err = hf("exec", "s", "/bin/true")
    assert s == 0, err


@test
def what_is_not_there_is_said():
    t = Term("attach", "s", "9")
    assert t.wait() == 255
    assert "no such session" in t.out.decode() and "there are: 0" in t.out.decode(), t.out
    t.close()
    s, _, err = hf("attach", "s")
    assert s == 255 and "terminal" in err, err
    delete("s")
    assert wait_for(lambda: hf("state", "s")[0] != 0)


main()
