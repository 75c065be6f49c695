#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/syscalls.md from syscalls/table.def: what is served, where, and which tests call it."""
import glob
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Tests call these through libc names that differ from the system call's.
ALIASES = {"newfstatat": ["fstatat", "stat"], "rt_sigaction": ["sigaction", "signal"], "rt_sigprocmask": ["sigprocmask"],
           "exit_group": ["_exit"], "wait4": ["waitpid", "wait4"], "pread64": ["pread"], "pwrite64": ["pwrite"],
           "rt_sigsuspend": ["sigsuspend"], "rt_sigtimedwait": ["sigtimedwait", "sigwaitinfo"], "rt_sigpending": ["sigpending"],
           "rt_sigqueueinfo": ["sigqueue"], "getdents64": ["readdir", "getdents64"], "pselect6": ["pselect"], "umount2": ["umount"],
           "signalfd4": ["signalfd"], "eventfd2": ["eventfd"], "prlimit64": ["prlimit"], "mq_timedsend": ["mq_send", "mq_timedsend"],
           "mq_timedreceive": ["mq_receive"], "faccessat2": ["faccessat"], "rt_sigreturn": ["sigaction"], "mq_getsetattr": ["mq_getattr"],
           "uname": ["uname"], "getcwd": ["getcwd"], "fcntl": ["fcntl"]}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def main():
    handlers, tests = {}, {}
    for path in glob.glob(TOP + "/syscalls/sys_*.c"):
        for m in re.finditer(r"^long sys_(\w+)\(|^XATTR_CALL\((\w+)", read(path), re.M):
            handlers[m[1] or m[2]] = os.path.relpath(path, TOP)
    sources = {os.path.basename(p): read(p) for p in glob.glob(TOP + "/tests/syscalls/*.c") + glob.glob(TOP + "/tests/escape/*.c")}
    rows, served = [], 0
    for m in re.finditer(r"^(SYSCALL|NOSYS)\((\d+), (\w+)", read(TOP + "/syscalls/table.def"), re.M):
        name = m[3]
        words = [f"SYS_{name}", *ALIASES.get(name, [name])]
        pattern = re.compile(r"\b(" + "|".join(words) + r")\b")
        tests[name] = [t for t, src in sorted(sources.items()) if pattern.search(src)]
        if m[1] == "SYSCALL":
            served += 1
            shown = ", ".join(tests[name][:3]) + (", ..." if len(tests[name]) > 3 else "")
            rows.append(f"| {m[2]} | {name} | {handlers.get(name, '**missing**')} | {shown or 'whole programs only'} |")
        else:
            rows.append(f"| {m[2]} | {name} | ENOSYS | |")
    untested = [n for n in tests if n in handlers and not tests[n]]
    with open(TOP + "/docs/syscalls.md", "w", encoding="utf-8") as f:
        f.write("# System calls\n\nMade by `make docs` from `syscalls/table.def`; don't edit.\n\n"
                f"{served} calls are served, {len(rows) - served} answer ENOSYS as a kernel built without them. "
                f"{len(untested)} served ones are exercised by whole programs only.\n\n"
                "| nr | call | handler | tests that call it |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
