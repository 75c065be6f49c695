#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--platform=auto`, the default: the trap platform where it works, else ptrace with one line in the log.

Where it doesn't work is made here by filters around holdfast that refuse one call, each of which only stubs of
the trap platform need.
"""
import ctypes
import json
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import STATE, WORK, bundle, hf, main, process_tree, state, test  # noqa: E402

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
SIGALTSTACK, CLONE = 131, 56
STUB_MAPPER_FLAGS = 0x50b00
RET_ALLOW, RET_EPERM = 0x7fff0000, 0x00050001
LOAD, JEQ, RET = 0x20, 0x15, 0x06


def refuse(nr, arg0=None):
    """For preexec_fn: call @nr (with the first argument @arg0) fails with EPERM from here on."""
    tail = [(RET, 0, 0, RET_EPERM), (RET, 0, 0, RET_ALLOW)]
    prog = [(LOAD, 0, 0, 0), (JEQ, 0, 1 if arg0 is None else 3, nr)] + tail
    if arg0 is not None:
        prog[2:2] = [(LOAD, 0, 0, 16), (JEQ, 0, 1, arg0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in prog))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(prog), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)

    def install(_alive=code):
        if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog, 0, 0)):
            os._exit(99)
    return install


def warnings(log):
    if not os.path.exists(log):
        return []
    with open(log) as f:
        return [m["msg"] for m in map(json.loads, f) if m["level"] in ("warning", "error")]


def stubs(cid):
    """The processes of a sandbox that run guest code: children of the sentry other than the zygote."""
    with open(os.path.join(STATE, cid, "state.json")) as f:
        sentry = json.load(f)["sentry_pid"]
    return [p for p, parent in process_tree().items() if parent == sentry]


def traced(pid):
    with open(f"/proc/{pid}/status") as f:
        return any(line.startswith("TracerPid:") and int(line.split()[1]) for line in f)


def run(name, *args, **kw):
    """(status, output, whether its guest is traced, warnings) of a short life."""
    log = os.path.join(WORK, name + ".log")
    s, out, err = hf("--log", log, "--log-format", "json", *args, "run", "-d", "-b",
                     bundle(name, ["/bin/sh", "-c", "echo $((6*7)) >/tmp/out; exec sleep 1000"]), name, **kw)
    if s:
        return s, err, None, warnings(log)
    assert state(name)["status"] == "running"
    s, out, err = hf("exec", name, "/bin/sh", "-c", "while ! [ -s /tmp/out ]; do sleep 0.01; done; cat /tmp/out | cat")
    is_traced = any(traced(p) for p in stubs(name))
    hf("delete", "--force", name)
    return s, out, is_traced, warnings(log)


@test
def trap_is_the_default():
    assert run("plain") == (0, "42\n", False, [])
    assert run("named", "--platform=auto") == (0, "42\n", False, [])


@test
def ptrace_can_be_asked_for():
    assert run("ptrace", "--platform=ptrace") == (0, "42\n", True, [])


def falls_back(name, **kw):
    s, out, is_traced, warned = run(name, **kw)
    assert (s, out, is_traced) == (0, "42\n", True), (s, out, is_traced, warned)
    assert len(warned) == 1 and "platform trap doesn't work here" in warned[0], warned


@test
def falls_back_without_a_signal_stack():
    falls_back("nostack", preexec_fn=refuse(SIGALTSTACK))


@test
def falls_back_without_a_mapper():
    falls_back("nomapper", preexec_fn=refuse(CLONE, STUB_MAPPER_FLAGS))


@test
def trap_asked_for_by_name_fails_where_it_does_not_work():
    s, err, _, _ = run("strict", "--platform=trap", preexec_fn=refuse(SIGALTSTACK))
    assert s != 0 and "platform trap" in err, (s, err)


main()
