#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py HOLDFAST LTP_SOURCE OUTDIR [PATTERN]: the Linux Test Project's system call tests in sandboxes.

LTP is taken from /opt/ltp (see docs/ltp.md). The tests of runtest/syscalls whose names match PATTERN run
one after the other, 40 to a sandbox; OUTDIR/results gets a line "name status" for each (0 passed, 32 not
applicable here, 124 over time, "died": the sandbox ended or hung), OUTDIR/fail.NAME the output of what
failed. Names already in OUTDIR/results are not run again.

With FAKE_DISK=/opt/ltp/fake_disk.so in the environment, tests that want a block device get one that can't
be used, and tmpfs for the file system on it (tests/ltp/fake_disk.c).
"""
import json
import os
import re
import subprocess
import sys

BATCH = 40
TEST_SECONDS = 45
BATCH_SECONDS = 900


def wanted(source, pattern, results):
    done = {line.split()[0] for line in open(results)} if os.path.exists(results) else set()
    for line in open(os.path.join(source, "runtest/syscalls")):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, command = line.split(None, 1)
        if re.search(pattern, name) and name not in done:
            yield name, command


def script(tests):
    env = "PATH=/opt/ltp/testcases/bin:$PATH LTPROOT=/opt/ltp TMPDIR=/tmp LTP_TIMEOUT_MUL=1 HOME=/root"
    disk = os.environ.get("FAKE_DISK")
    if disk:
        env += f" LTP_DEV=/dev/ltpdisk LTP_SINGLE_FS_TYPE=tmpfs LTP_DEV_FS_TYPE=tmpfs LD_PRELOAD={disk}"
    lines = [f"export {env}; cd /tmp"]
    for name, command in tests:
        lines.append(f"timeout -k 5 {TEST_SECONDS} bash -c {json.dumps(command)} >/share/out.{name} 2>&1 </dev/null;"
                     f" echo {name} $? >>/share/res; rm -rf /tmp/LTP* 2>/dev/null")
    return "\n".join(lines) + "\n"


def bundle(holdfast, bundle_dir, rootfs, tests):
    share = os.path.join(bundle_dir, "share")
    subprocess.run(["rm", "-rf", bundle_dir], check=True)
    os.makedirs(share)
    subprocess.run([holdfast, "spec", "-b", bundle_dir], check=True)
    path = os.path.join(bundle_dir, "config.json")
    config = json.load(open(path))
    with open(os.path.join(share, "run.sh"), "w") as f:
        f.write(script(tests))
    config["process"].update(terminal=False, args=["/bin/bash", "/share/run.sh"], noNewPrivileges=False)
    config["process"].pop("capabilities", None)
    config["process"].pop("rlimits", None)
    config["root"] = {"path": rootfs, "readonly": False}
    config["mounts"] += [
        {"destination": "/opt/ltp", "type": "bind", "source": "/opt/ltp", "options": ["rbind", "ro"]},
        {"destination": "/share", "type": "bind", "source": share, "options": ["rbind", "rw"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
    ]
    json.dump(config, open(path, "w"))
    return share


def run_batch(holdfast, out, bundle_dir, name):
    base = [holdfast, "--root", out + "/state", "--log", out + "/log"]
    try:
        subprocess.run(base + ["run", "-b", bundle_dir, name], timeout=BATCH_SECONDS, capture_output=True,
                       stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        subprocess.run(base + ["delete", "--force", name])


def main():
    holdfast, source, out = os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3])
    pattern = sys.argv[4] if len(sys.argv) > 4 else ""
    here = os.path.dirname(os.path.abspath(__file__))
    rootfs = subprocess.run([here + "/../../tools/mkrootfs.sh", "test"], capture_output=True, text=True,
                            check=True, cwd=here + "/../..").stdout.strip()
    os.makedirs(out, exist_ok=True)
    tests = list(wanted(source, pattern, out + "/results"))
    i = 0
    while i < len(tests):
        batch = tests[i:i + BATCH]
        share = bundle(holdfast, out + "/bundle", rootfs, batch)
        run_batch(holdfast, out, out + "/bundle", f"ltp{os.getpid()}-{i}")
        got = []
        if os.path.exists(share + "/res"):
            got = [line.split() for line in open(share + "/res")]
        if len(got) < len(batch):
            got.append([batch[len(got)][0], "died"])
        with open(out + "/results", "a") as f:
            for name, status in got:
                f.write(f"{name} {status}\n")
                if status not in ("0", "32") and os.path.exists(f"{share}/out.{name}"):
                    os.rename(f"{share}/out.{name}", f"{out}/fail.{name}")
        i += len(got)
    status = [line.split()[1] for line in open(out + "/results")]
    print({s: status.count(s) for s in sorted(set(status))})


if __name__ == "__main__":
    main()
