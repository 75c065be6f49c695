#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench, state: saving, restoring, branching and parking sandboxes of several sizes.

usage: state.py [--sizes MIB,...] [--rounds N] [--branches N] [--holdfast FILE]
R is `runc run` of /bin/true in the same run. Medians; the pause is what the sentry measured.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILL = "import os,sys,time; b=bytearray(os.urandom(1<<20)*%d); open('/ready','w').close()\nwhile True: time.sleep(1000)"
LAYER = "import os,time; f=open('/big','wb'); b=os.urandom(1<<20)\nfor _ in range(%d): f.write(b)\nf.close(); open('/ready','w').close()\n" \
        "while True: time.sleep(1000)"
# Touches every page when told to, and says how long that took.
TOUCH = "import os,time; b=bytearray(os.urandom(1<<20)*%d); open('/ready','w').close()\nwhile not os.path.exists('/go'): time.sleep(0.01)\n" \
        "t=time.monotonic(); s=sum(b[::4096]); d=time.monotonic()-t; open('/took.new','w').write(str(d)); os.rename('/took.new','/took')\n" \
        "while True: time.sleep(1000)"


class Bench:
    def __init__(self, work, rootfs, binary):
        self.work, self.rootfs, self.binary = work, rootfs, binary
        self.log = work + "/log"
        self.state = work + "/state"

    def hf(self, *args):
        with tempfile.TemporaryFile() as out:  # a restored container keeps it: a pipe would have no end
            # No timeout: with one Python looks for the end in steps that double, up to 50 ms.
            p = subprocess.run([self.binary, "--root", self.state, "--log", self.log, "--debug", *args], stdin=subprocess.DEVNULL,
                               stdout=out, stderr=subprocess.STDOUT, check=False)
            out.seek(0)
            text = out.read().decode()
        if p.returncode:
            raise RuntimeError(f"{args}: {text}")
        return text

    def bundle(self, args, runtime):
        d = tempfile.mkdtemp(dir=self.work)
        subprocess.run([runtime, "spec", "--bundle", d], check=True)
        with open(d + "/config.json") as f:
            conf = json.load(f)
        conf["process"].update(terminal=False, args=args)
        conf["root"] = {"path": self.rootfs, "readonly": runtime == "runc"}
        with open(d + "/config.json", "w") as f:
            json.dump(conf, f)
        return d

    def start(self, cid, args):
        """Output must not be ours: the container keeps it."""
        with open(os.devnull, "w") as null:
            subprocess.run([self.binary, "--root", self.state, "run", "--detach", "--bundle", self.bundle(args, self.binary), cid],
                           stdin=null, stdout=null, stderr=null, check=True)

    def start_python(self, cid, text):
        self.start(cid, ["/usr/bin/python3", "-c", text])
        self.until(cid, "/ready")

    def until(self, cid, path):
        while subprocess.run([self.binary, "--root", self.state, "exec", cid, "/usr/bin/test", "-e", path], check=False,
                             stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.05)

    def delete(self, *cids):
        for cid in cids:
            self.hf("delete", "--force", cid)

    def pause_ms(self):
        """The last one that the log tells."""
        with open(self.log, errors="replace") as f:
            return int(re.findall(r"stood still for (\d+) us", f.read())[-1]) / 1000

    def runc(self):
        d = self.bundle(["/bin/true"], "runc")
        return timed(lambda: subprocess.run(["runc", "--root", self.work + "/runc", "run", "--bundle", d, "r"], check=True,
                                            stdin=subprocess.DEVNULL))

    def pids(self, cid):
        return json.loads(self.hf("ps", "--format", "json", cid))


def timed(fn):
    t = time.monotonic()
    fn()
    return time.monotonic() - t


def available_mib():
    with open("/proc/meminfo") as f:
        return int(next(ln for ln in f if ln.startswith("MemAvailable")).split()[1]) / 1024


def private_mib(pids):
    total = 0
    for p in pids:
        with open(f"/proc/{p}/smaps_rollup") as f:
            total += sum(int(ln.split()[1]) for ln in f if ln.startswith("Private_"))
    return total / 1024


def report(what, text):
    print(f"| {what} | {text} |", flush=True)


def one_size(b, what, text, rounds, r):
    """All that must not depend on the size, for one sandbox."""
    image = b.work + "/image"
    fork, restore, pf, ps = [], [], [], []
    b.start_python("s", text)
    b.hf("snapshot", "s")
    for i in range(rounds):
        fork.append(timed(lambda i=i: (b.hf("fork", "s", f"f{i}"), b.hf("exec", f"f{i}", "/bin/true"))))
        pf.append(b.pause_ms())
        b.delete(f"f{i}")
        b.hf("snapshot", "s", "n")
        ps.append(b.pause_ms())
    suspend = statistics.median(timed(lambda: b.hf("suspend", "s")) for _ in range(rounds) if b.hf("exec", "s", "/bin/true") == "")
    wake = timed(lambda: b.hf("exec", "s", "/bin/true"))
    b.hf("checkpoint", "--image-path", image, "s")
    for i in range(rounds):
        restore.append(timed(lambda i=i: (b.hf("restore", "--detach", "--image-path", image, f"r{i}"),
                                          b.hf("exec", f"r{i}", "/bin/true"))))
        b.delete(f"r{i}")
    shutil.rmtree(image)
    m = statistics.median
    report(what, f"fork+exec {m(fork) * 1e3:.0f} ms ({m(fork) / r:.2f} R) | pause of fork {m(pf):.1f} ms, of snapshot {m(ps):.1f} ms | "
           f"restore+exec {m(restore) * 1e3:.0f} ms ({m(restore) / r:.2f} R) | suspend {suspend * 1e3:.0f} ms ({suspend / r:.2f} R) | "
           f"wake by exec {wake * 1e3:.0f} ms")


def touching(b, mib):
    """After a restore, against reading the page file."""
    image = b.work + "/image"
    b.start_python("t", TOUCH % mib)
    b.hf("checkpoint", "--image-path", image, "t")
    b.hf("restore", "--detach", "--image-path", image, "t2")
    b.hf("exec", "t2", "/usr/bin/touch", "/go")
    b.until("t2", "/took")
    took = float(b.hf("exec", "t2", "/bin/cat", "/took"))
    read = timed(lambda: subprocess.run(["cat", image + "/pages"], stdout=subprocess.DEVNULL, check=True))
    b.delete("t2")
    shutil.rmtree(image)
    report(f"touching every page of {mib} MiB after a restore", f"{took * 1e3:.0f} ms; cat of its page file {read * 1e3:.0f} ms")


def branches(b, mib, n):
    b.start_python("m", FILL % mib)
    before = available_mib()
    ids = b.hf("fork", "-n", str(n), "m", "br").split()
    for i in ids:
        b.hf("exec", i, "/bin/true")
    time.sleep(1)
    each = (before - available_mib()) / n
    private = statistics.median(private_mib(b.pids(i)) for i in ids)
    b.delete("m", *ids)
    report(f"{n} idle branches of {mib} MiB", f"{each:.1f} MiB each of the host's memory; {private:.1f} MiB private to its processes")


def idle_shell(b):
    b.start("i", ["/bin/sh", "-c", "touch /ready; while :; do sleep 1000; done"])
    b.until("i", "/ready")
    image = b.work + "/image"
    b.hf("checkpoint", "--image-path", image, "i")
    size = sum(os.path.getsize(f"{image}/{n}") for n in os.listdir(image))
    shutil.rmtree(image)
    report("image of an idle shell", f"{size / (1 << 20):.2f} MiB")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sizes", default="64,1024,4096")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--branches", type=int, default=20)
    ap.add_argument("--holdfast", default=TOP + "/build/release/holdfast")
    a = ap.parse_args()
    rootfs = subprocess.run([TOP + "/tools/mkrootfs.sh", "test"], check=True, capture_output=True).stdout.decode().strip()
    with tempfile.TemporaryDirectory() as work:
        b = Bench(work, rootfs, a.holdfast)
        r = statistics.median(b.runc() for _ in range(a.rounds))
        print("| state | |\n|---|---|")
        report("R, runc run /bin/true", f"{r * 1e3:.0f} ms")
        try:
            idle_shell(b)
            for mib in map(int, a.sizes.split(",")):
                if available_mib() < 3.5 * mib:  # it, its image, and a whole second copy while python makes it
                    report(f"{mib} MiB in python", "left out: the host has too little memory")
                    continue
                one_size(b, f"{mib} MiB in python", FILL % mib, a.rounds, r)
                b.hf("prune")
            mib = 1024 if available_mib() > 4096 else 64
            one_size(b, f"{mib} MiB in the writable layer", LAYER % mib, a.rounds, r)
            touching(b, mib)
            branches(b, mib, a.branches)
        finally:
            for c in os.listdir(b.state) if os.path.isdir(b.state) else []:
                subprocess.run([a.holdfast, "--root", b.state, "delete", "--force", c], check=False)


if __name__ == "__main__":
    sys.exit(main())
