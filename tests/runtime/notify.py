#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NOTIFY_SOCKET is passed on as runc does it: the guest has a socket of its own, READY=1 reaches the host's."""
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, TOP, WORK, bundle, hf, main, state, test, wait_for  # noqa: E402

HOST = os.path.join(WORK, "notify.sock")
SAY = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
def say(text): s.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
"""


def listener(path=HOST):
    if path[0] == "/" and os.path.exists(path):
        os.unlink(path)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path if path[0] == "/" else "\0" + path[1:])
    s.settimeout(60)
    return s


def silent(s):
    s.setblocking(False)
    try:
        return s.recv(1000) and False
    except BlockingIOError:
        return True


def hf_with(path, *args):
    env = dict(os.environ, NOTIFY_SOCKET=path)
    with open(os.path.join(WORK, "out"), "wb") as out:
        p = subprocess.run([HOLDFAST, "--root", STATE, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=60,
                           check=False, env=env)
    with open(os.path.join(WORK, "out"), encoding="utf-8") as f:
        return p.returncode, f.read()


def python(cid, script, **more):
    root = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()

    def edit(c):
        c["root"]["path"] = root
        c["mounts"].append({"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]})
        c["process"].update(more)
    return bundle("notify-" + cid, ["/usr/bin/python3", "-c", SAY + script], edit)


@test
def start_waits_until_it_is_ready():
    s = listener()
    b = python("a", 'say("STATUS=soon\\nREADY=10"); time.sleep(0.3); say("X=1\\nREADY=1\\nMAINPID=77"); time.sleep(1000)')
    r, err = hf_with(HOST, "create", "--bundle", b, "a")
    assert r == 0, err
    assert silent(s)
    r, err = hf_with(HOST, "start", "a")
    assert r == 0, err
    s.settimeout(0.1)
    assert s.recv(1000).decode() == f"MAINPID={state('a')['pid']}\nREADY=1\n"
    assert silent(s)
    hf("delete", "--force", "a")


@test
def run_detached_does_so_too_and_abstract_names_work():
    s = listener("@holdfast-test-%d" % os.getpid())
    b = python("b", 'time.sleep(0.2); say("READY=1"); time.sleep(1000)')
    r, err = hf_with("@holdfast-test-%d" % os.getpid(), "run", "--detach", "--bundle", b, "b")
    assert r == 0, err
    s.settimeout(0.1)
    assert s.recv(1000).decode() == f"MAINPID={state('b')['pid']}\nREADY=1\n"
    # It goes on to say things, which aren't for the host, and can be saved.
    r, out, err = hf("exec", "b", "/usr/bin/python3", "-c",
                     'import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect("/run/notify/notify.sock");'
                     ' [s.send(b"WATCHDOG=1" * 100) for i in range(1000)]; print("sent")')
    assert (r, out) == (0, "sent\n"), err
    assert silent(s)
    r, _, err = hf("suspend", "b")
    assert r == 0, err
    r, out, err = hf("exec", "b", "/bin/ls", "/run/notify")
    assert (r, out) == (0, "notify.sock\n"), err
    hf("delete", "--force", "b")


@test
def run_tells_while_it_waits():
    s = listener()
    b = python("c", 'say("READY=1"); time.sleep(0.2); print("end")')
    r, out = hf_with(HOST, "run", "--bundle", b, "c")
    assert (r, out) == (0, "end\n"), out
    assert s.recv(1000).decode().endswith("\nREADY=1\n")


@test
def one_that_ends_first_is_nobodys_loss():
    s = listener()
    b = python("d", 'say("STATUS=failed"); sys.exit(3)')
    r, err = hf_with(HOST, "run", "--detach", "--bundle", b, "d")
    assert r == 0, err
    assert wait_for(lambda: state("d")["status"] == "stopped")
    assert silent(s)
    hf("delete", "--force", "d")


@test
def a_plain_user_inside_may_say_it():
    s = listener()
    b = python("e", 'say("READY=1"); time.sleep(1000)', user={"uid": 1000, "gid": 1000})
    r, err = hf_with(HOST, "run", "--detach", "--bundle", b, "e")
    assert r == 0, err
    s.settimeout(0.1)
    assert b"READY=1" in s.recv(1000)
    hf("delete", "--force", "e")


@test
def without_it_there_is_none():
    b = python("f", 'print(os.path.exists("/run/notify"), os.environ.get("NOTIFY_SOCKET"))')
    env = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
    p = subprocess.run([HOLDFAST, "--root", STATE, "run", "--bundle", b, "f"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       timeout=60, check=False, env=env)
    assert p.stdout == b"False None\n", p.stdout


main()
