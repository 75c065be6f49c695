#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests and counts them. usage: run.py quick|all|SUITE... [-k WORD]

Suites: lint unit fuzz native syscalls trap rootfs asan escape runtime programs oci. A test program prints TAP; anything else
counts by its exit status. The last line is `N passed, N failed, N skipped`.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(TOP, "build/release/holdfast")
ASAN_BIN = os.path.join(TOP, "build/asan/holdfast")
GUESTS = os.path.join(TOP, "build/tests")
TAP = re.compile(r"^(ok|not ok) \d+ - (\S+)(?: # SKIP ?(.*))?")

totals = {"passed": 0, "failed": 0, "skipped": 0}
failures = []
only = None


def count(suite, name, result, detail=""):
    totals[result] += 1
    if result != "passed":
        line = f"{result.upper():7} {suite}: {name}"
        print(line, flush=True)
        if result == "failed":
            failures.append(f"{suite}: {name}")
            for text in detail.splitlines()[-25:]:
                print("    | " + text, flush=True)


def run(cmd, timeout, **kw):
    """(exit status or None after a time-out, output)"""
    p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         start_new_session=True, **kw)
    try:
        out, _ = p.communicate(timeout=timeout)
        return p.returncode, out.decode(errors="replace")
    except subprocess.TimeoutExpired:
        try:
            os.killpg(p.pid, 9)
        except ProcessLookupError:
            pass
        try:
            out, _ = p.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            out = b""
        return None, out.decode(errors="replace") + f"\n(no end within {timeout} s)"


def wanted(name):
    return only is None or only in name


def tap(suite, program, status, out):
    """Counts a TAP run; returns {test: ok}."""
    results = {}
    for line in out.splitlines():
        m = TAP.match(line)
        if m:
            results[m[2]] = "skip" if "# SKIP" in line else m[1]
    for test, r in results.items():
        count(suite, f"{program}/{test}", {"ok": "passed", "skip": "skipped"}.get(r, "failed"), out)
    plan = re.search(r"^1\.\.(\d+)$", out, re.M)
    if not plan or int(plan[1]) != len(results):
        count(suite, f"{program} (did not finish: {status})", "failed", out)
    return results


def programs_in(folder):
    d = os.path.join(GUESTS, folder)
    return [n for n in sorted(os.listdir(d)) if wanted(n)] if os.path.isdir(d) else []


def suite_lint():
    s, out = run([sys.executable, "tools/lint.py"], 120, cwd=TOP)
    count("lint", "lint.py", "passed" if s == 0 else "failed", out)


def suite_unit():
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="print_stacktrace=1")
    base = os.path.join(TOP, "build/asan/tests/unit")
    for d, _, files in sorted(os.walk(base)):
        for f in sorted(files):
            p = os.path.join(d, f)
            if f.startswith("test_") and "." not in f and wanted(f):
                for args in [["ptrace"], ["trap"]] if f == "test_ptrace" else [[]]:  # the platform contract
                    s, out = run([p] + args, 120, env=env, cwd=TOP)
                    name = " ".join([os.path.relpath(p, base)] + args)
                    count("unit", name, "passed" if s == 0 else "failed", out)


def suite_fuzz():
    base = os.path.join(TOP, "build/asan/tests/fuzz")
    for f in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        if not f.startswith("fuzz_") or "." in f or not wanted(f):
            continue
        corpus = os.path.join(TOP, "tests/fuzz/corpus", f)
        s, out = run([os.path.join(base, f), corpus], 300, env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
        count("fuzz", f, "passed" if s == 0 else "failed", out)


def native(folder, program):
    """A guest test on the host's own kernel, in namespaces of its own."""
    with tempfile.TemporaryDirectory() as tmp:
        return run(["unshare", "-mpfiu", "--mount-proc", os.path.join(GUESTS, folder, program)], 300, cwd=tmp)


def suite_native():
    for p in programs_in("syscalls"):
        s, out = native("syscalls", p)
        tap("native", p, s, out)


def test_root(tmp):
    """A root file system that holds the guest tests and nothing else."""
    root = os.path.join(tmp, "root")
    for d in ("tmp", "proc", "sys", "dev", "etc", "run"):
        os.makedirs(os.path.join(root, d))
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    for d in ("syscalls", "escape"):
        if os.path.isdir(os.path.join(GUESTS, d)):
            shutil.copytree(os.path.join(GUESTS, d), os.path.join(root, d))
    return root


def sandboxed(suite, binary, platform, folder, timeout=300):
    with tempfile.TemporaryDirectory() as tmp:
        root = test_root(tmp)
        for p in programs_in(folder):
            s, out = run([binary, "--root", tmp + "/state", "--platform", platform, "do", "--rootfs", root, "--cwd",
                          "/tmp", f"/{folder}/{p}"], timeout)
            tap(suite, p, s, out)


def suite_syscalls():
    sandboxed("syscalls/ptrace", BIN, "ptrace", "syscalls")


# of tests/syscalls: files, mappings of them, and names
FILE_TESTS = ("dir_read", "dnotify_basic", "exec_edges", "file_open", "inotify_events", "lock_files", "mm_map", "mount_tree",
              "path_names", "splice_basic", "tmpfs_files", "unix_basic", "xattr_calls")


def bundle_for(tmp, program):
    """A bundle in which /tmp is on the root file system."""
    subprocess.run([BIN, "spec", "--bundle", tmp], check=True)
    with open(tmp + "/config.json") as f:
        conf = json.load(f)
    conf["root"] = {"path": "root", "readonly": False}
    conf["process"].update(terminal=False, args=[program], cwd="/tmp", noNewPrivileges=False)
    for k in ("capabilities", "rlimits"):
        del conf["process"][k]
    with open(tmp + "/config.json", "w") as f:
        json.dump(conf, f)


def suite_rootfs():
    """Files on the root file system: written through to the host, and in the sandbox's writable layer in memory and on disk."""
    for mode in ("none", "memory", "disk:8g"):
        with tempfile.TemporaryDirectory() as tmp:
            test_root(tmp)
            for p in FILE_TESTS:
                if wanted(p) and os.path.exists(os.path.join(GUESTS, "syscalls", p)):
                    bundle_for(tmp, f"/syscalls/{p}")
                    s, out = run([BIN, "--root", tmp + "/state", "run", "--overlay", mode, "--overlay-dir", tmp, "--bundle", tmp, "t"],
                                 300)
                    tap(f"rootfs/{mode.split(':')[0]}", p, s, out)
                    os.unlink(tmp + "/config.json")


def suite_asan():
    sandboxed("asan/auto", ASAN_BIN, "auto", "syscalls", 600)


def suite_trap():
    """The default platform."""
    sandboxed("syscalls/trap", BIN, "trap", "syscalls")
    sandboxed("escape/trap", BIN, "trap", "escape")


def suite_escape():
    sandboxed("escape/ptrace", BIN, "ptrace", "escape")


def scripts(suite, folder, timeout, binary=BIN, names=None):
    d = os.path.join(TOP, "tests", folder)
    for f in names or sorted(os.listdir(d)) if os.path.isdir(d) else []:
        if not f.endswith((".sh", ".py")) or f.startswith("_") or f == "lib.sh" or not wanted(f):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            env = dict(os.environ, HOLDFAST=binary, TOP=TOP, WORK=tmp)
            s, out = run([os.path.join(d, f)], timeout, env=env, cwd=tmp)
        if TAP.search(out) or re.search(r"^1\.\.", out, re.M):
            tap(suite, f, s, out)
        else:
            result = "passed" if s == 0 else "skipped" if s == 77 else "failed"
            why = (out.strip().splitlines() or [""])[-1].lstrip("# ")
            count(suite, f"{f}: {why}" if result == "skipped" else f, result, out)


def suite_runtime():
    scripts("runtime", "runtime", 300)


def suite_state():
    """And what is in guests once more: on the other platform, and with a sentry that watches itself."""
    scripts("state", "state", 900)
    scripts("state/asan", "state", 900, ASAN_BIN, ["guests.py"])
    with tempfile.TemporaryDirectory() as tmp:
        wrapper = os.path.join(tmp, "holdfast")
        with open(wrapper, "w") as f:
            f.write(f'#!/bin/sh\nexec {BIN} --platform=ptrace "$@"\n')
        os.chmod(wrapper, 0o755)
        scripts("state/ptrace", "state", 900, wrapper, ["guests.py"])


def suite_programs():
    scripts("programs", "programs", 900)


def suite_oci():
    """Real clients (Debian's containerd, podman, dockerd) that have holdfast as their runtime."""
    scripts("oci", "oci", 300)


SUITES = {n[6:]: f for n, f in globals().items() if n.startswith("suite_")}
SETS = {"quick": ["lint", "unit", "fuzz", "trap", "rootfs", "runtime"],
        "all": ["lint", "unit", "fuzz", "native", "syscalls", "trap", "rootfs", "asan", "escape", "runtime", "programs", "oci", "state"]}


def main(argv):
    global only
    if "-k" in argv:
        i = argv.index("-k")
        only = argv[i + 1]
        argv = argv[:i] + argv[i + 2:]
    names = [s for a in (argv or ["quick"]) for s in SETS.get(a, [a])]
    for n in names:
        start = time.time()
        print(f"--- {n}", flush=True)
        SUITES[n]()
        print(f"    {n}: {time.time() - start:.0f} s", flush=True)
    for f in failures:
        print("failed:", f)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**totals))
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
