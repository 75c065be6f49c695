#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: the same work natively, under runc and in holdfast on each platform, in turn, as ratios to native.

usage: bench.py [--rounds N] [--only WORD] [--micro] [--whole] [--platforms] [--bwrap]
Times are medians of interleaved rounds; on a shared machine read the ratios, not the times.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOLDFAST = os.environ.get("HOLDFAST", os.path.join(TOP, "build/release/holdfast"))
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}

# Issue 3's bars for the trap platform, as ratios to native; whole programs: WHOLE_BAR.
BARS = {"getpid": 0.1, "getppid": 0.8, "umask": 0.8, "clock_gettime": 1.5, "read_zero": 1.0, "write_null": 1.0, "pread_rootfs": 1.2,
        "pread_layer": 1.0, "stat": 1.5, "open_close": 2, "pipe_pingpong": 1.5, "futex_pingpong": 1.5, "two_busy_threads": 1.15,
        "mmap_mib": 1.5, "thread_create_join": 2.5, "fork_exit_wait": 2.5, "fork_exec_wait": 2.5, "posix_spawn": 2.5}
WHOLE_BAR = 1.3

WHOLE = [
    ("run /bin/true to exit", "true"),
    ("python3 start with imports", "python3 -c 'import json, asyncio, subprocess, sqlite3, unittest, email, http.client'"),
    ("node start", "node -e 0"),
    ("python CPU-bound", "python3 -c 's=0\nfor i in range(40000000): s+=i*i'"),
    ("find / -xdev", "find / -xdev >/dev/null"),
    ("tar of /usr to /dev/null", "tar cf - /usr | cat >/dev/null"),
    ("git clone of a local repository", "cd /tmp && git init -q r && cd r && for i in $(seq 300); do seq $i 400 >f$i; done && "
     "git add . && git -c user.name=t -c user.email=t@t commit -qm one && git clone -q /tmp/r /tmp/c"),
    ("make -j2 of 50 C files", "mkdir /tmp/p && cd /tmp/p && for i in $(seq 50); do echo \"int f$i(int x) { return x + $i; }\" >f$i.c; done; "
     "printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n%%.o: %%.c\\n\\tgcc -O1 -c $<\\n' >Makefile; make -j2 >/dev/null"),
    ("sqlite 100,000 inserts", "cd /tmp && { echo 'create table t(a integer primary key, b text); begin;'; "
     "seq -f 'insert into t values(%.0f, 1);' 100000; echo 'commit;'; } | sqlite3 x.db"),
    ("redis, 20,000 SET and GET over a unix socket", "redis-server --port 0 --unixsocket /tmp/r.sock --save '' >/dev/null & "
     "while ! redis-cli -s /tmp/r.sock ping >/dev/null 2>&1; do sleep 0.05; done; redis-benchmark -s /tmp/r.sock -n 20000 -q "
     "-t set,get >/dev/null; redis-cli -s /tmp/r.sock shutdown nosave"),
    ("20,000 small files written and removed", "python3 -c \"import os\nfor d in range(200):\n os.makedirs(f'/tmp/t/{d}')\n "
     "for f in range(100):\n  open(f'/tmp/t/{d}/{f}', 'w').write('x' * 300)\" && rm -r /tmp/t"),
]


class Kinds:
    """How a shell command is run in each environment."""

    def __init__(self, work, rootfs, micro):
        self.work, self.rootfs, self.n = work, rootfs, 0
        self.bench = micro
        self.bundle = os.path.join(work, "bundle")
        os.makedirs(self.bundle)
        subprocess.run(["cp", micro, rootfs + "/usr/local/bin/holdfast-micro"], check=True)

    def native(self, cmd):
        tmp = tempfile.mkdtemp(dir=self.work)
        script = ('mount -t tmpfs none "$1" && mkdir "$1/u" "$1/w" "$1/r" && mount -t overlay none -o '
                  '"lowerdir=$2,upperdir=$1/u,workdir=$1/w" "$1/r" && mount -t proc p "$1/r/proc" && '
                  'mount --rbind /dev "$1/r/dev" && mount -t tmpfs t "$1/r/tmp" && exec chroot "$1/r" /bin/sh -c "$3"')
        return ["unshare", "-mpfiu", "sh", "-c", script, "_", tmp, self.rootfs, cmd]

    def runc(self, cmd):
        self.n += 1
        d = tempfile.mkdtemp(dir=self.work)
        subprocess.run(["runc", "spec", "--bundle", d], check=True)
        with open(d + "/config.json") as f:
            conf = json.load(f)
        conf["process"].update(terminal=False, args=["/bin/sh", "-c", cmd], env=[f"{k}={v}" for k, v in ENV.items()])
        conf["process"]["rlimits"] = []
        for caps in conf["process"]["capabilities"].values():
            caps += ["CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER"]
        conf["root"] = {"path": self.rootfs, "readonly": True}
        conf["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]})
        with open(d + "/config.json", "w") as f:
            json.dump(conf, f)
        return ["runc", "--root", self.work + "/runc", "run", "--bundle", d, f"bench{self.n}"]

    def bwrap(self, cmd):
        return ["bwrap", "--ro-bind", self.rootfs, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all",
                "/bin/sh", "-c", cmd]

    def holdfast(self, cmd):
        return [HOLDFAST, "--root", self.work + "/state", "do", "--rootfs", self.rootfs, "--cwd", "/", "/bin/sh", "-c", cmd]

    def trap(self, cmd):
        return self.holdfast(cmd)[:1] + ["--platform=trap"] + self.holdfast(cmd)[1:]

    def ptrace(self, cmd):
        return self.holdfast(cmd)[:1] + ["--platform=ptrace"] + self.holdfast(cmd)[1:]


def timed(argv):
    start = time.monotonic()
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV,
                       check=False)
    took = time.monotonic() - start
    if p.returncode:
        raise RuntimeError(p.stdout.decode(errors="replace")[-300:])
    return took, p.stdout


def row(name, unit, bar, kinds, names, rounds, measure):
    got = {k: [] for k in names}
    for _ in range(rounds):
        for k in names:
            try:
                got[k].append(measure(getattr(kinds, k)))
            except (RuntimeError, subprocess.TimeoutExpired, ValueError) as e:
                print(f"# {name}: {k}: {e}", file=sys.stderr)
    base = statistics.median(got["native"]) if got["native"] else None
    cells = []
    for k in names:
        if not got[k]:
            cells.append("failed")
        elif k == "native":
            cells.append(f"{base:.3g} {unit}")
        else:
            ratios = [a / b for a, b in zip(got[k], got["native"])]
            cells.append(f"{statistics.median(ratios):.2f}")
    print(f"| {name} | {bar} | " + " | ".join(cells) + " |", flush=True)


def idle_memory(kinds):
    """PSS of every process of a sandbox that holds `sleep`, in MiB."""
    p = subprocess.Popen(kinds.holdfast("exec sleep 60"), stdin=subprocess.DEVNULL, env=ENV, start_new_session=True)
    time.sleep(1.5)
    total, pids, family = 0, [], {p.pid}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        try:
            with open(f"/proc/{pid}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            if parent in family:
                family.add(pid)
                with open(f"/proc/{pid}/smaps_rollup") as f:
                    total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
                pids.append(pid)
        except OSError:
            pass
    p.kill()
    p.wait()
    for c in os.listdir(kinds.work + "/state"):
        subprocess.run([HOLDFAST, "--root", kinds.work + "/state", "delete", "--force", c], check=False)
    return total / 1024, len(pids)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--only", default="")
    ap.add_argument("--micro", action="store_true")
    ap.add_argument("--whole", action="store_true")
    ap.add_argument("--platforms", action="store_true", help="native and each platform, nothing else")
    ap.add_argument("--bwrap", action="store_true", help="bubblewrap, too")
    a = ap.parse_args()
    rootfs = subprocess.run([TOP + "/tools/mkrootfs.sh", "test"], check=True, capture_output=True).stdout.decode().strip()
    names = ["native"] + [n for n in ("runc",) if shutil.which(n) and not a.platforms]
    names += ["trap", "ptrace"]
    if a.bwrap and shutil.which("bwrap"):
        names.insert(-2, "bwrap")
    with tempfile.TemporaryDirectory() as work:
        micro = work + "/micro"
        subprocess.run(["gcc", "-O2", "-static", "-pthread", "-o", micro, TOP + "/tests/bench/micro.c"], check=True)
        kinds = Kinds(work, rootfs, micro)
        print("| work | bar | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2))
        if not a.whole:
            listed = subprocess.run([micro], check=False, capture_output=True).stdout.decode().split()
            for r in filter(lambda r: a.only in r, listed):
                row(r, "ns", BARS.get(r, ""), kinds, names, a.rounds,
                    lambda k, r=r: float(timed(k(f"exec /usr/local/bin/holdfast-micro {r}"))[1].split()[-1]))
        if not a.micro:
            for name, cmd in filter(lambda w: a.only in w[0], WHOLE):
                row(name, "s", WHOLE_BAR, kinds, names, a.rounds, lambda k, cmd=cmd: timed(k(cmd))[0])
            mib, n = idle_memory(kinds)
            print(f"| idle sandbox holding sleep, PSS of its {n} processes | 8 MiB |{' |' * (len(names) - 1)} {mib:.1f} MiB |")
        subprocess.run(["umount", "-R", work], check=False, capture_output=True)


if __name__ == "__main__":
    main()
