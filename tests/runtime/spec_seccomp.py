#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""linux.seccomp: the profile is the guest's filter, for its first process and for exec."""
from _lib import bundle, hf, main, test

# what a static busybox's shell calls, up to fchmodat, and what came later
BASIC = ["execve", "brk", "arch_prctl", "set_tid_address", "set_robust_list", "readlink", "readlinkat", "mprotect", "mmap",
         "munmap", "read", "write", "open", "openat", "close", "fstat", "newfstatat", "stat", "lstat", "exit", "exit_group",
         "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "getuid", "getgid", "geteuid", "getegid", "getpid", "getppid",
         "fork", "vfork", "clone", "wait4", "fcntl", "dup2", "ioctl", "getcwd", "poll", "prctl", "lseek", "uname", "time",
         "gettimeofday", "clock_gettime", "sendfile", "fchmodat"]
NEW = ["prlimit64", "getrandom", "rseq"]
X86 = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]


def run(profile, script, status=0):
    b = bundle("seccomp", ("/bin/sh", "-c", script), lambda c: c["linux"].update(seccomp=profile))
    s, out, err = hf("run", "--bundle", b, "s")
    assert s == status, (s, out, err)
    return out if s == 0 else err


def deny(names, **more):
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": X86,
            "syscalls": [{"names": names, "action": "SCMP_ACT_ERRNO", **more}]}


@test
def errno_and_its_default():
    assert run(deny(["mkdir", "mkdirat"]), "mkdir /dev/shm/a 2>&1; grep Seccomp: /proc/self/status") == \
        "mkdir: can't create directory '/dev/shm/a': Operation not permitted\nSeccomp:\t2\n"
    out = run(deny(["mkdir", "mkdirat"], errnoRet=5), "mkdir /dev/shm/a 2>&1; true")
    assert "Input/output error" in out, out


@test
def allow_list_with_default_errno():
    p = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": X86,
         "syscalls": [{"names": BASIC + NEW, "action": "SCMP_ACT_ALLOW"}]}
    out = run(p, "echo fine; mkdir /dev/shm/a 2>&1; echo done")
    assert out == "fine\nmkdir: can't create directory '/dev/shm/a': Function not implemented\ndone\n", out


@test
def conditions_on_arguments():
    def rule(*args):
        return {"defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "args": list(args)}]}

    def done(p):
        return run(p, "cd /dev/shm; for m in 700 711 755; do touch f; chmod $m f 2>/dev/null && echo $m; done; true").split()
    eq = {"index": 1, "value": 0o700, "op": "SCMP_CMP_EQ"}
    assert done(rule(eq)) == ["711", "755"]
    both = done(rule(eq, {"index": 1, "value": 0o711, "op": "SCMP_CMP_EQ"}))
    assert both == ["755"], "two conditions on one argument are alternatives: " + str(both)
    masked = done(rule({"index": 1, "value": 0o070, "valueTwo": 0o050, "op": "SCMP_CMP_MASKED_EQ"}))
    assert masked == ["700", "711"], masked
    # conditions on two arguments must both hold; 64 bits are compared
    assert done(rule(eq, {"index": 0, "value": 0, "op": "SCMP_CMP_EQ"})) == ["700", "711", "755"]
    assert done(rule(eq, {"index": 0, "value": 18446744073709551615, "op": "SCMP_CMP_NE"})) == ["711", "755"]


@test
def killing_actions():
    p = deny(["mkdir"])
    for action in ("SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"):
        p["syscalls"][0]["action"] = action
        out = run(p, "mkdir /dev/shm/a 2>/dev/null; echo $?")
        assert out == "159\n", (action, out)
    p["syscalls"][0]["action"] = "SCMP_ACT_LOG"
    assert run(p, "mkdir /dev/shm/a; ls -d /dev/shm/a") == "/dev/shm/a\n"


@test
def of_exec_too():
    b = bundle("seccomp", ("/bin/sleep", "100"), lambda c: c["linux"].update(seccomp=deny(["mkdir"])))
    assert hf("run", "-d", "--bundle", b, "s")[0] == 0
    try:
        s, _, err = hf("exec", "s", "/bin/mkdir", "/dev/shm/a")
        assert s == 1 and "Operation not permitted" in err, (s, err)
    finally:
        hf("delete", "--force", "s")


@test
def root_cannot_get_rid_of_it():
    out = run(deny(["mkdir"]), "(exec /bin/sh -c 'mkdir /dev/shm/a 2>/dev/null; echo $?')")
    assert out == "1\n", out


@test
def calls_newer_than_the_profile_are_enosys():
    # the program's start calls those of NEW: killed if they were not ENOSYS, after which libc does without
    p = {"defaultAction": "SCMP_ACT_KILL_PROCESS", "syscalls": [{"names": BASIC, "action": "SCMP_ACT_ALLOW"}]}
    assert run(p, "echo fine") == "fine\n"


@test
def refused():
    notify = deny(["mkdir"])
    notify["syscalls"][0]["action"] = "SCMP_ACT_NOTIFY"
    for p, text in ((notify, "SCMP_ACT_NOTIFY, which is not supported"),
                    ({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x"}, "listenerPath is not supported"),
                    ({"defaultAction": "X"}, "defaultAction"), ({}, "defaultAction"),
                    (dict(deny(["mkdir"]), flags=["X"]), "linux.seccomp.flags"),
                    (dict(deny(["mkdir"]), architectures=["SCMP_ARCH_X"]), "linux.seccomp.architectures"),
                    (deny([]), "names is missing or empty"),
                    (deny(["mkdir"], args=[{"index": 6, "op": "SCMP_CMP_EQ"}]), "index is out of range"),
                    (deny(["mkdir"], args=[{"index": 0, "op": "X"}]), "no operator")):
        err = run(p, "true", 1)
        assert text in err, (p, err)


@test
def what_has_no_effect():
    p = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": X86, "flags": ["SECCOMP_FILTER_FLAG_LOG"], "syscalls": [
        {"names": ["no_such_call", "mkdir"], "action": "SCMP_ACT_ALLOW"}]}
    assert run(p, "mkdir /dev/shm/a && echo made") == "made\n"


if __name__ == "__main__":
    main()
