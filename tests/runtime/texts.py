#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words and exit statuses that containerd, Docker and Podman look for: beside runc's where there is one."""
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, bundle, hf, main, state, test, wait_for  # noqa: E402

LOG = WORK + "/log.json"
TOOLS = {"holdfast": [HOLDFAST, "--root", STATE]}
if shutil.which("runc"):
    TOOLS["runc"] = ["runc", "--root", WORK + "/runc"]


def call(tool, *args):
    """(status, message of the last error record, standard output)"""
    if os.path.exists(LOG):
        os.unlink(LOG)
    with open(WORK + "/out", "w+") as out:
        p = subprocess.run([*TOOLS[tool], "--log", LOG, "--log-format", "json", *args], stdin=subprocess.DEVNULL, stdout=out,
                           stderr=subprocess.DEVNULL, timeout=60)
        out.seek(0)
        text = out.read()
    message = None
    if os.path.exists(LOG):
        with open(LOG) as f:
            for line in f:
                r = json.loads(line)
                assert set(r) >= {"level", "msg", "time"}, r
                if r["level"] == "error":
                    message = r["msg"]
    return p.returncode, message, text


def same(words, *args, status=1):
    """Every tool fails with @status, and @words in its message; with None it succeeds."""
    for tool in TOOLS:
        s, message, _ = call(tool, *args)
        assert s == (status if words else 0) and (not words or words in (message or "")), (tool, args, s, message)


def on_both(args):
    for tool in TOOLS:
        s, message, _ = call(tool, *args)
        assert s == 0, (tool, args, message)


def status_is(cid, want):
    for tool in TOOLS:
        assert wait_for(lambda: json.loads(call(tool, "state", cid)[2])["status"] == want), (tool, cid, want)


def clean(cid):
    for tool in TOOLS:
        call(tool, "delete", "--force", cid)


@test
def an_unknown_container():
    for cmd in ("state", "start", "kill", "pause", "resume", "ps", "events", "update", "delete"):
        same("does not exist", cmd, "nobody")
    same("does not exist", "exec", "nobody", "/bin/true", status=255)
    same(None, "delete", "--force", "nobody")


@test
def a_created_container():
    b = bundle("b", ["/bin/sleep", "1000"])
    on_both(["create", "-b", b, "t1"])
    status_is("t1", "created")
    same("exist", "create", "-b", b, "t1")
    same(None, "kill", "t1", "TERM")
    status_is("t1", "stopped")
    same("container not running", "kill", "t1", "9")
    same(None, "kill", "--all", "t1", "9")
    same(None, "delete", "t1")
    on_both(["create", "-b", b, "t2"])
    same(None, "kill", "--all", "t2", "9")
    status_is("t2", "stopped")
    same(None, "delete", "t2")
    on_both(["create", "-b", b, "t3"])
    same(None, "delete", "--force", "t3")


@test
def a_running_container():
    on_both(["run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "t4"])
    same("cannot start an already running container", "start", "t4")
    same("that is not stopped", "delete", "t4")
    same("unknown signal", "kill", "t4", "NOSUCH")
    same("container not paused", "resume", "t4")
    same(None, "kill", "t4", "0")
    on_both(["kill", "t4", "SIGKILL"])
    status_is("t4", "stopped")
    same("container not running", "kill", "t4")
    same("container not running", "pause", "t4")
    same("cannot exec in a stopped container", "exec", "t4", "/bin/true", status=255)
    for tool in TOOLS:
        assert json.loads(call(tool, "state", "t4")[2])["pid"] == 0
    clean("t4")


@test
def a_program_that_is_not_there():
    for args, words in ((["/no/such"], "no such file or directory"), (["nosuch"], "executable file not found"),
                        (["/etc/passwd"], "permission denied")):
        same(words, "create", "-b", bundle("b", args), "t5")
        same("does not exist", "state", "t5")


@test
def exec_statuses():
    on_both(["run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "t6"])
    same("no such file or directory", "exec", "t6", "/no/such", status=255)
    same("executable file not found", "exec", "t6", "nosuch", status=255)
    for tool in TOOLS:
        assert call(tool, "exec", "t6", "/bin/sh", "-c", "exit 9")[0] == 9
        assert call(tool, "exec", "t6", "/bin/sh", "-c", "kill -9 $$")[0] == 137
    clean("t6")


@test
def list_has_the_same_columns():
    on_both(["create", "-b", bundle("b", ["/bin/true"]), "t7"])
    columns = [call(t, "list")[2].splitlines()[0].split() for t in TOOLS]
    assert all(c == columns[0] for c in columns), columns
    keys = [set(json.loads(call(t, "list", "--format", "json")[2])[0]) for t in TOOLS]
    assert all(k <= keys[0] for k in keys), keys
    clean("t7")



@test
def the_pid_in_the_pid_file_stands_for_the_container():
    """As a shim does it: a subreaper that signals and waits for the pid, never asking the runtime."""
    assert subprocess.run([sys.executable, "-c", SHIM, HOLDFAST, STATE, WORK, bundle("b", ["/bin/sh", "-c", TRAP])],
                          timeout=100).returncode == 0


TRAP = "trap 'exit 5' TERM; trap 'exit 6' USR1; touch /tmp/up; while true; do sleep 0.05; done"
SHIM = r"""
import ctypes, os, signal, subprocess, sys, time
holdfast, root, work, bundle = sys.argv[1:]
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
def hf(*a, status=0):
    p = subprocess.run([holdfast, "--root", root, *a], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert p.returncode == status, (a, p)
def pid(name):
    return int(open(work + "/" + name).read())
def up(cid):
    while subprocess.run([holdfast, "--root", root, "exec", cid, "/bin/ls", "/tmp/up"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        time.sleep(0.05)
def ended(p):
    while True:
        q, st = os.waitpid(-1, 0)
        if q == p:
            return os.waitstatus_to_exitcode(st)
for sig, want in ((signal.SIGTERM, 5), (signal.SIGUSR1, 6), (signal.SIGKILL, -9)):
    hf("create", "-b", bundle, "--pid-file", work + "/pid", "shim")
    hf("start", "shim")
    up("shim")
    p = pid("pid")
    os.kill(p, sig)
    got = ended(p)
    assert got == want, (sig, got)
    hf("delete", "shim")
hf("create", "-b", bundle, "--pid-file", work + "/pid", "shim")
p = pid("pid")
os.kill(p, signal.SIGTERM)
assert ended(p) == 128 + 15
hf("delete", "shim")
hf("run", "-d", "-b", bundle, "shim")
for script, sig, want in (("exit 4", None, 4), ("trap 'exit 8' TERM; touch /tmp/e; while true; do sleep 0.05; done", signal.SIGTERM, 8),
                          ("sleep 1000", signal.SIGKILL, -9)):
    hf("exec", "--detach", "--pid-file", work + "/epid", "shim", "/bin/sh", "-c", script)
    p = pid("epid")
    if sig == signal.SIGTERM:
        while subprocess.run([holdfast, "--root", root, "exec", "shim", "/bin/ls", "/tmp/e"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.05)
    if sig:
        os.kill(p, sig)
    got = ended(p)
    assert got == want, (script, got)
hf("delete", "--force", "shim")
"""

main()
