#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a branch was made of is given back when it has ended: a sandbox whose memory is limited is branched again and again,
and changes all of what it has in between. If the old pages stayed, it would soon be out of memory."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import HOLDFAST, all_rights, debian, delete, go, hf, main, says, start, test, wait_for  # noqa: E402,F401

MIB = 1 << 20
FORKS = 30
# On each line of the FIFO: other contents for 64 MiB of private memory and 16 MiB in a file in memory.
GUEST = f"""
import mmap, os
os.mkfifo("/dev/shm/go")
m = mmap.mmap(-1, {64 * MIB}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
f = os.open("/dev/shm/file", os.O_RDWR | os.O_CREAT)
n = 0
def dirty():
    for at in range(0, len(m), 4096):
        m[at] = n % 250 + 1
    for at in range(16):
        os.pwrite(f, bytes([n % 250 + 1]) * {MIB}, at * {MIB})
dirty()
print("READY", flush=True)
while True:
    with open("/dev/shm/go") as go:
        for line in go:
            n += 1
            dirty()
            same = all(m[at] == n % 250 + 1 for at in range(0, len(m), 4096))
            print("DIRTY", n, same, flush=True)
"""


def limited(conf):
    all_rights(conf)
    conf["root"]["path"] = debian()
    conf["process"]["env"] = ["PATH=/usr/bin:/bin"]
    conf["linux"].setdefault("resources", {})["memory"] = {"limit": 400 * MIB}


def dirty(cid, out, n):
    s, _, err = hf("exec", cid, "/bin/sh", "-c", "echo > /dev/shm/go")
    assert s == 0, (n, err)
    says(out, f"DIRTY {n} True\n")


def fork(cid, new):
    s, _, err = hf("fork", cid, new)
    assert s == 0, err


@test
def ended_branches_take_nothing():
    out = start("br", ["/usr/bin/python3", "-c", GUEST], None, limited)
    says(out, "READY")
    for n in range(1, FORKS + 1):
        fork("br", "br-f")
        dirty("br", out, n)
        delete("br-f")
    delete("br")


@test
def a_branch_of_a_branch_goes_on():
    """Its pages are the first sandbox's, which doesn't take them back when only the one in between has ended."""
    out = start("br", ["/usr/bin/python3", "-c", GUEST], None, limited)
    says(out, "READY")
    fork("br", "br-f")
    fork("br-f", "br-g")
    delete("br-f")
    dirty("br", out, 1)
    s, said, err = hf("exec", "br-g", "/usr/bin/python3", "-c",
                      "print(set(open('/dev/shm/file', 'rb').read()))")
    assert s == 0 and said == "{1}\n", (said, err)
    s, said, err = hf("exec", "br-g", "/usr/bin/python3", "-c", f"""
import re
for line in open("/proc/1/maps"):
    a, b = (int(x, 16) for x in line.split()[0].split("-"))
    if b - a >= {64 * MIB}:
        with open("/proc/1/mem", "rb") as f:
            f.seek(b - {64 * MIB})
            print(set(f.read({64 * MIB})[::4096]))
""")
    assert s == 0 and "{1}" in said, (said, err)
    delete("br", "br-g")


main()
