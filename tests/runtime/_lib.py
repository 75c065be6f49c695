# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the command line: bundles, sandboxes, TAP."""
import json
import os
import subprocess
import sys
import traceback

HOLDFAST = os.environ["HOLDFAST"]
TOP = os.environ["TOP"]
WORK = os.environ["WORK"]
STATE = os.path.join(WORK, "state")
tests = []


def test(fn):
    tests.append(fn)
    return fn


def hf(*args, timeout=60, stdin=subprocess.DEVNULL, **kw):
    """Runs holdfast; (status, stdout, stderr) as text."""
    p = subprocess.run([HOLDFAST, "--root", STATE, *args], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=timeout, **kw)
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def busybox_root():
    """A root file system with a static busybox and its applets as links."""
    root = os.path.join(WORK, "rootfs")
    if not os.path.isdir(root):
        for d in ("bin", "dev", "etc", "proc", "sys", "tmp", "root"):
            os.makedirs(os.path.join(root, d))
        box = next(p for p in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(p))
        subprocess.run(["cp", box, root + "/bin/busybox"], check=True)
        for a in ("sh", "ls", "cat", "sleep", "echo", "true", "false", "id", "stty", "env", "touch", "kill", "ps", "pwd",
                  "grep", "hostname", "mount", "tty", "dd", "readlink", "wc", "head", "yes", "rm", "mkdir"):
            os.symlink("busybox", f"{root}/bin/{a}")
        with open(root + "/etc/passwd", "w") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\n")
    return root


def bundle(name, args=("/bin/true",), edit=None):
    """A bundle directory whose config.json is `holdfast spec`'s, changed by @edit."""
    d = os.path.join(WORK, name)
    os.makedirs(d, exist_ok=True)
    path = os.path.join(d, "config.json")
    if os.path.exists(path):
        os.unlink(path)
    s, _, err = hf("spec", "--bundle", d)
    assert s == 0, err
    with open(path) as f:
        conf = json.load(f)
    conf["process"]["terminal"] = False
    conf["process"]["args"] = list(args)
    conf["root"] = {"path": busybox_root(), "readonly": False}
    if edit:
        edit(conf)
    with open(path, "w") as f:
        json.dump(conf, f)
    return d


def state(cid):
    s, out, err = hf("state", cid)
    assert s == 0, err
    return json.loads(out)


def main():
    failed = 0
    for n, fn in enumerate(tests, 1):
        try:
            fn()
            print(f"ok {n} - {fn.__name__}", flush=True)
        except Exception:  # a test's failure is its message
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            print(f"not ok {n} - {fn.__name__}", flush=True)
    print(f"1..{len(tests)}")
    sys.exit(failed != 0)
