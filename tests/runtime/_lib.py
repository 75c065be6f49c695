# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the command line: bundles, sandboxes, TAP."""
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

HOLDFAST = os.environ["HOLDFAST"]
TOP = os.environ["TOP"]
WORK = os.environ["WORK"]
STATE = os.path.join(WORK, "state")
tests = []


class Skip(Exception):
    """What this machine has not, in a word or two: the test says so and goes on to the next."""


def test(fn):
    tests.append(fn)
    return fn


def hf(*args, timeout=60, stdin=subprocess.DEVNULL, root=None, **kw):
    """Runs holdfast; (status, stdout, stderr) as text.

    Output goes to files, since the containers that `create` and `run -d` make keep what they were given as standard
    output: a pipe would have no end before they are gone.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.run([HOLDFAST, "--root", root or STATE, *args], stdin=stdin, stdout=out, stderr=err,
                           timeout=timeout, **kw)
        out.seek(0)
        err.seek(0)
        return p.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace")


def process_tree(root=None):
    """{pid: parent} of the host, of @root's descendants only if given."""
    parents = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                with open(f"/proc/{p}/stat") as f:
                    parents[int(p)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                pass
    if root is None:
        return parents
    found = {root}
    while True:
        more = {p for p, pp in parents.items() if pp in found} - found
        if not more:
            return {p: parents[p] for p in found if p in parents}
        found |= more


def alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(what, seconds=10.0):
    """Polls until what() is true; its value."""
    end = time.monotonic() + seconds
    while True:
        v = what()
        if v or time.monotonic() > end:
            return v
        time.sleep(0.02)


def busybox_root():
    """A root file system with a static busybox and its applets as links."""
    root = os.path.join(WORK, "rootfs")
    if not os.path.isdir(root):
        for d in ("bin", "dev", "etc", "proc", "sys", "tmp", "root"):
            os.makedirs(os.path.join(root, d))
        box = next(p for p in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(p))
        subprocess.run(["cp", box, root + "/bin/busybox"], check=True)
        for a in ("sh", "ls", "cat", "sleep", "echo", "true", "false", "id", "stty", "env", "touch", "kill", "ps", "pwd",
                  "grep", "hostname", "mount", "tty", "dd", "readlink", "wc", "head", "yes", "rm", "mkdir", "mkfifo"):
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


def clean_up():
    """Whatever a failed test left: no sandbox outlives the tests."""
    for cid in os.listdir(STATE) if os.path.isdir(STATE) else []:
        hf("delete", "--force", cid)


def main():
    failed = 0
    chosen = [t for t in tests if len(sys.argv) < 2 or sys.argv[1] in t.__name__]
    for n, fn in enumerate(chosen, 1):
        try:
            fn()
            print(f"ok {n} - {fn.__name__}", flush=True)
        except Skip as e:
            print(f"ok {n} - {fn.__name__} # SKIP {e}", flush=True)
        except Exception:  # a test's failure is its message
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            print(f"not ok {n} - {fn.__name__}", flush=True)
            clean_up()
    print(f"1..{len(chosen)}")
    sys.exit(failed != 0)
