#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Terminals, driven through real ptys: run, exec -t, do -t, --console-socket."""
import array
import os
import signal
import socket
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, alive, bundle, busybox_root, hf, main, state, test, wait_for  # noqa: E402
from _term import Term, set_size  # noqa: E402


def tty_bundle(name, *args):
    return bundle(name, args, lambda c: c["process"].update(terminal=True))


SHELL = ("/bin/sh", "-c", "PS1='$ ' exec sh")


@test
def run_gives_a_terminal_and_restores_ours():
    t = Term("run", "-b", tty_bundle("t", *SHELL), "t1")
    t.expect("$ ")
    assert t.raw()
    t.send("tty; stty size\n")
    t.expect("/dev/pts/0")
    t.expect("30 100")
    t.send("exit 5\n")
    assert t.wait() == 5
    assert termios.tcgetattr(t.fd) == t.before
    assert not os.path.exists(STATE + "/t1")
    t.close()


@test
def size_changes_arrive_with_sigwinch():
    t = Term("run", "-b", tty_bundle("t", "/bin/sh", "-c", "trap 'echo winch; stty size; exit 4' WINCH; echo ready; "
                                     "while true; do sleep 0.1; done"), "t2")
    t.expect("ready")
    set_size(t.fd, 41, 123)
    t.expect("winch")
    t.expect("41 123")
    assert t.wait() == 4
    t.close()


@test
def keys_interrupt_suspend_and_end():
    t = Term("run", "-b", tty_bundle("t", *SHELL), "t3")
    t.expect("$ ")
    t.send("sleep 1000\n")
    time.sleep(0.5)
    t.send("\x03")
    t.expect("$ ")
    t.send("echo st=$?\n")
    t.expect("st=130")
    t.expect("$ ")
    t.send("sleep 1000\n")
    time.sleep(0.5)
    t.send("\x1a")
    t.expect("Stopped")
    t.send("jobs; fg\n")
    t.expect("Stopped")
    t.expect("sleep 1000\r\n")
    time.sleep(0.3)
    t.send("\x1c")
    t.expect("$ ")
    t.send("cat\n")
    time.sleep(0.5)
    t.send("line\n")
    t.expect("line\r\nline")
    t.send("\x04")
    t.expect("$ ")
    t.send("\x04")
    t.wait()
    assert termios.tcgetattr(t.fd) == t.before
    t.close()


@test
def do_t_and_its_exit_status():
    t = Term("do", "-t", "--rootfs", busybox_root(), "/bin/sh", "-c", "stty size; tty; exit 9", rows=17, cols=61)
    assert t.wait() == 9
    assert b"17 61" in t.out and b"/dev/pts/0" in t.out, t.out
    assert termios.tcgetattr(t.fd) == t.before
    t.close()


@test
def much_output_arrives_whole():
    t = Term("do", "-t", "--rootfs", busybox_root(), "/bin/sh", "-c", "yes 0123456789 | head -20000; echo end")
    assert t.wait(60) == 0
    assert (t.out.count(b"0123456789\r\n"), t.out[-5:]) == (20000, b"end\r\n")
    t.close()


@test
def guest_that_does_not_read_does_not_block_its_output():
    t = Term("do", "-t", "--rootfs", busybox_root(), "/bin/sh", "-c", "stty raw -echo; echo go; sleep 2; echo still; sleep 1")
    t.expect("go")
    for _ in range(30):
        t.send("x" * 1000)
    t.expect("still")
    assert t.wait() == 0
    t.close()


@test
def exec_t_in_a_running_container():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "t4")[0] == 0
    t = Term("exec", "-t", "t4", "/bin/sh", "-c", "PS1='$ ' exec sh", rows=22, cols=77)
    t.expect("$ ")
    t.send("stty size; tty\n")
    t.expect("22 77")
    t.expect("/dev/pts/")
    set_size(t.fd, 23, 78)
    wait_for(lambda: False, 0.3)
    t.send("stty size\n")
    t.expect("23 78")
    t.send("exit 3\n")
    assert t.wait() == 3
    assert termios.tcgetattr(t.fd) == t.before
    t.close()
    # ttys are given back
    for _ in range(5):
        t = Term("exec", "-t", "t4", "/bin/tty")
        assert t.wait() == 0
        assert b"/dev/pts/0" in t.out, t.out
        t.close()
    assert hf("delete", "--force", "t4")[0] == 0


@test
def console_device_is_the_containers_terminal():
    t = Term("run", "-b", tty_bundle("t", "/bin/sh", "-c", "echo by-console > /dev/console; sleep 0.2"), "t5")
    t.wait()
    assert b"by-console" in t.out, t.out
    t.close()


@test
def terminal_is_restored_when_the_client_is_ended():
    for sig in (signal.SIGTERM, signal.SIGHUP):
        t = Term("run", "-b", tty_bundle("t", *SHELL), "t6")
        t.expect("$ ")
        os.kill(t.pid, sig)
        assert t.wait() == -sig
        assert termios.tcgetattr(t.fd) == t.before
        t.close()
        assert state("t6")["status"] == "running"
        assert hf("exec", "t6", "/bin/echo", "alive")[1] == "alive\n"
        assert hf("delete", "--force", "t6")[0] == 0


@test
def sandbox_survives_kill_9_of_its_client():
    t = Term("run", "-b", tty_bundle("t", "/bin/sh", "-c", "echo up; while true; do echo x; sleep 0.1; done"), "t7")
    t.expect("up")
    os.kill(t.pid, 9)
    assert t.wait() == -9
    t.close()
    time.sleep(0.5)
    assert state("t7")["status"] == "running"
    assert hf("exec", "t7", "/bin/true")[0] == 0
    assert hf("delete", "--force", "t7")[0] == 0


@test
def no_terminal_is_an_error_in_one_line():
    s, _, err = hf("run", "-b", tty_bundle("t", *SHELL), "t8")
    assert s == 1 and "terminal" in err and len(err.strip().splitlines()) == 1, err
    s, _, err = hf("run", "-d", "-b", tty_bundle("t", *SHELL), "t8")
    assert s == 1 and "--console-socket" in err, err


@test
def console_socket_gets_the_master():
    path = WORK + "/console.sock"
    srv = socket.socket(socket.AF_UNIX)
    srv.bind(path)
    srv.listen()
    b = tty_bundle("t", *SHELL)
    p = subprocess.Popen([HOLDFAST, "--root", STATE, "create", "-b", b, "--console-socket", path, "t9"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    conn = srv.accept()[0]
    msg, anc, _, _ = conn.recvmsg(256, 256)
    assert msg.startswith(b"/dev/pts/"), msg
    master = array.array("i", anc[0][2])[0]
    assert p.wait(20) == 0
    assert hf("start", "t9")[0] == 0
    t = Term.__new__(Term)
    t.fd, t.out = master, b""
    t.expect("$ ")
    set_size(master, 33, 99)  # what the caller does on a resize
    time.sleep(0.3)
    t.send("stty size\n")
    t.expect("33 99")
    os.close(master)
    time.sleep(0.2)
    assert state("t9")["status"] in ("running", "stopped")  # the shell gets SIGHUP
    assert hf("delete", "--force", "t9")[0] == 0
    srv.close()


@test
def signals_reach_the_guest_without_a_terminal():
    b = bundle("b", ["/bin/sh", "-c", "trap 'echo got; exit 6' TERM; echo up; while true; do sleep 0.1; done"])
    with open(WORK + "/out", "wb") as out:
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "run", "-b", b, "s1"], stdout=out, stdin=subprocess.DEVNULL)
    wait_for(lambda: "up" in open(WORK + "/out").read())
    p.terminate()
    assert p.wait(15) == 6
    assert open(WORK + "/out").read() == "up\ngot\n"


@test
def interrupted_or_killed_do_leaves_no_sandbox():
    for sig in (signal.SIGINT, signal.SIGKILL):
        with open(WORK + "/out", "wb") as out:
            p = subprocess.Popen([HOLDFAST, "--root", STATE, "do", "--rootfs", busybox_root(), "/bin/sh", "-c",
                                  "echo up; sleep 1000"], stdout=out, stdin=subprocess.DEVNULL)
        wait_for(lambda: "up" in open(WORK + "/out").read())
        cid = os.listdir(STATE)[0]
        sentry = state(cid)["pid"]
        p.send_signal(sig)
        assert p.wait(15) == (130 if sig == signal.SIGINT else -9)
        assert wait_for(lambda: not alive(sentry))
        assert sig == signal.SIGKILL or not os.listdir(STATE)
        hf("delete", "--force", cid)


main()
