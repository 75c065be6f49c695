#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench, OCI part: what a caller of the runtime waits for, as ratios to runc in the same run.

usage: oci.py [--rounds N] [--only WORD]. Medians of interleaved rounds; the clients run in a room of their own (tests/oci/_clients.py).
"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("HOLDFAST", os.path.join(TOP, "build/release/holdfast"))
sys.path.insert(0, os.path.join(TOP, "tests/oci"))
import _clients as c  # noqa: E402: found by the path above
import containerd  # noqa: E402

RUNTIMES = {"runc": c.RUNC, "holdfast": c.HOLDFAST}
numbers = iter(range(1, 100000))


class Bundle:
    def __init__(self, runtime, *args):
        self.runtime, self.id = RUNTIMES[runtime], f"b{next(numbers)}"
        self.dir = f"{c.ROOM}/bench/{self.id}"
        os.makedirs(self.dir + "/rootfs")
        c.unpack(self.dir + "/rootfs")
        subprocess.run([c.RUNC, "spec", "--bundle", self.dir], check=True)
        with open(self.dir + "/config.json") as f:
            conf = json.load(f)
        conf["process"].update(args=list(args), terminal=False, rlimits=[])
        conf["root"]["readonly"] = False
        conf["linux"]["cgroupsPath"] = f"/{c.TAG}/{self.id}"
        with open(self.dir + "/config.json", "w") as f:
            json.dump(conf, f)

    def call(self, *args, stdout=subprocess.DEVNULL):
        subprocess.run([self.runtime, "--root", c.ROOM + "/bench-state", *args], check=True, stdin=subprocess.DEVNULL, stdout=stdout,
                       stderr=subprocess.DEVNULL)

    def create(self, **kw):
        self.call("create", "--bundle", self.dir, self.id, **kw)


def first_instruction(runtime):
    """create, start, and the first byte that the program writes."""
    b = Bundle(runtime, "echo", "x")
    r, w = os.pipe()
    begun = time.monotonic()
    b.create(stdout=w)
    b.call("start", b.id)
    os.close(w)
    os.read(r, 1)
    took = time.monotonic() - begun
    os.close(r)
    b.call("delete", "--force", b.id)
    return took


def execs(runtime):
    b = Bundle(runtime, "sleep", "1000")
    b.create()
    b.call("start", b.id)
    begun = time.monotonic()
    for _ in range(5):
        b.call("exec", b.id, "true")
    took = (time.monotonic() - begun) / 5
    b.call("delete", "--force", b.id)
    return took


def delete(runtime):
    b = Bundle(runtime, "true")
    b.create()
    b.call("start", b.id)
    c.wait_for(lambda: json.loads(subprocess.run([b.runtime, "--root", c.ROOM + "/bench-state", "state", b.id], capture_output=True,
                                                 check=True).stdout)["status"] == "stopped")
    begun = time.monotonic()
    b.call("delete", b.id)
    return time.monotonic() - begun


def ctr_run(runtime):
    c.RUNTIME = RUNTIMES[runtime]
    begun = time.monotonic()
    # With a timeout Python looks for the end in steps that double, up to 50 ms.
    containerd.run("true", timeout=None).ok()
    return time.monotonic() - begun


def fifty(runtime):
    """50 sandboxes by 8 callers at a time."""
    bundles = [Bundle(runtime, "sleep", "1000") for _ in range(50)]
    todo, failures = list(bundles), []

    def work():
        while todo:
            b = todo.pop()
            try:
                b.create()
                b.call("start", b.id)
            except subprocess.CalledProcessError as e:
                failures.append(e)
    begun = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took = time.monotonic() - begun
    for b in bundles:
        b.call("delete", "--force", b.id)
    if failures:
        raise c.Failed(f"{len(failures)} of 50 failed: {failures[0]}")
    return took


def idle_memory():
    """PSS of the processes that one idle container has beside containerd and its shim, in MiB."""
    c.RUNTIME = c.HOLDFAST
    cid = containerd.start()
    time.sleep(1)
    total = 0
    for pid in c.runtime_processes():
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    containerd.remove(cid)
    return total / 1024


ROWS = [("create and start to the first output", first_instruction, 0.6), ("ctr run --rm of true", ctr_run, 0.9),
        ("exec of true", execs, 0.5), ("delete", delete, 0.5), ("50 sandboxes by 8 callers", fifty, 1.0)]


def main():
    args = sys.argv[1:]
    rounds = int(args[args.index("--rounds") + 1]) if "--rounds" in args else 7
    only = args[args.index("--only") + 1] if "--only" in args else ""
    c.needs("containerd", "ctr", "runc")
    c.enter()
    containerd.begin()
    print("| OCI | runc | holdfast | bar |\n|---|---|---|---|", flush=True)
    for name, measure, bar in [r for r in ROWS if only in r[0]]:
        got = {k: [] for k in RUNTIMES}
        for _ in range(rounds if measure is not fifty else min(rounds, 3)):
            for k, values in got.items():
                values.append(measure(k))
        base = statistics.median(got["runc"])
        ratio = statistics.median(a / b for a, b in zip(got["holdfast"], got["runc"]))
        print(f"| {name} | {base * 1000:.0f} ms | {ratio:.2f} | {bar} |", flush=True)
    if only in "memory":
        print(f"| memory of an idle container under containerd, PSS | | {idle_memory():.1f} MiB | 8 MiB |", flush=True)
    for _, p in reversed(c.daemons):
        p.terminate()
        p.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
