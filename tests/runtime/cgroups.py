#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The host's control groups: where a sandbox's processes sit, what limits they get, that they go away."""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, bundle, hf, main, process_tree, state, test, wait_for  # noqa: E402

MIB = 1 << 20
V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
NAME = f"hf{os.getpid()}"
# The first line on a host where no group can be made: everything else is about groups.
USABLE = os.geteuid() == 0 and os.access("/sys/fs/cgroup", os.W_OK)


def groups(pid):
    """{controller: path} of a process, "" for v2."""
    out = {}
    with open(f"/proc/{pid}/cgroup") as f:
        for line in f:
            _, names, path = line.rstrip("\n").split(":", 2)
            for n in names.split(","):
                out[n] = path
    return out


def where(controller, path):
    """The directory of a group."""
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, right = line.split(" - ")
            kind, _, options = right.split()[:3]
            root, point = left.split()[3:5]
            if kind == "cgroup2" and (V2 or controller == "") or \
               kind == "cgroup" and not V2 and controller in options.split(","):
                return point + path[len(root.rstrip("/")):]
    return None


def read(pid, controller, v1, v2):
    """A file of the group of @pid; None where the host lacks the controller."""
    g = groups(pid)
    key = "" if V2 else controller
    if key not in g:
        return None
    path = os.path.join(where(key, g[key]), v2 if V2 else v1)
    if not os.path.exists(path):
        return None
    with open(path) as f:
        return f.read().strip()


def left_over(name):
    return [d for d, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(d) == name]


def resources(**kw):
    def edit(c):
        c["linux"]["cgroupsPath"] = "/" + NAME
        c["linux"].setdefault("resources", {}).update(kw)
    return edit


def check(value, want):
    assert value is None or value == want, (value, want)


@test
def every_process_is_in_the_containers_group():
    b = bundle("b", ["/bin/sh", "-c", "sleep 1000 & sleep 1000"], resources())
    assert hf("create", "-b", b, "g1")[0] == 0
    pid = state("g1")["pid"]
    before = groups(pid)
    assert all(p == "/" + NAME for k, p in before.items() if where(k, "/")), before
    assert hf("start", "g1")[0] == 0
    s, _, err = hf("exec", "--detach", "--pid-file", WORK + "/execpid", "g1", "/bin/sleep", "1000")
    assert s == 0, err
    waiter = int(open(WORK + "/execpid").read())
    assert groups(waiter) == before
    pids = json.loads(hf("ps", "--format", "json", "g1")[1])
    assert pid in pids and waiter in pids
    for p in process_tree(pid):
        assert p in pids and groups(p) == before, (p, groups(p))
    assert hf("delete", "--force", "g1")[0] == 0
    assert not left_over(NAME)


@test
def default_path_is_the_id_below_the_callers_group():
    own = groups("self")
    assert hf("create", "-b", bundle("b", ["/bin/sleep", "1000"]), NAME + "d")[0] == 0
    for k, path in groups(state(NAME + "d")["pid"]).items():
        if not where(k, "/") or (V2 and k):
            continue
        parent = os.path.dirname(own[k]) if V2 else own[k]
        assert path == parent.rstrip("/") + "/" + NAME + "d", (k, path, own[k])
    assert hf("delete", NAME + "d")[0] == 0, "a created one may be deleted without force, as with runc"
    assert not left_over(NAME + "d")


@test
def limits_are_on_the_group_with_room_for_the_sandbox():
    quota = {"shares": 512, "quota": 50000, "period": 100000, "cpus": "0"}
    b = bundle("b", ["/bin/sleep", "1000"], resources(memory={"limit": 100 * MIB}, pids={"limit": 50}, cpu=quota))
    s, _, err = hf("run", "-d", "-b", b, "g2")
    assert s == 0, err
    pid = state("g2")["pid"]
    check(read(pid, "cpu", "cpu.shares", "cpu.weight"), "20" if V2 else "512")
    check(read(pid, "cpu", "cpu.cfs_quota_us", "cpu.max"), "50000 100000" if V2 else "50000")
    check(read(pid, "cpuset", "cpuset.cpus", "cpuset.cpus"), "0")
    mem = read(pid, "memory", "memory.limit_in_bytes", "memory.max")
    assert mem is None or 150 * MIB <= int(mem) <= 300 * MIB, mem
    pids = read(pid, "pids", "pids.max", "pids.max")
    assert pids is None or 100 <= int(pids) < 1000, pids
    assert hf("delete", "--force", "g2")[0] == 0


@test
def the_guest_sees_its_limits():
    show = "nproc; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max; head -1 /proc/meminfo"

    def edit(c):
        resources(memory={"limit": 100 * MIB}, pids={"limit": 50}, cpu={"quota": 70000, "period": 100000})(c)
        os.path.exists(WORK + "/rootfs/bin/nproc") or os.symlink("busybox", WORK + "/rootfs/bin/nproc")
        if not any(m["destination"] == "/sys/fs/cgroup" for m in c["mounts"]):
            c["mounts"].append({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                                "options": ["ro", "nosuid"]})
    s, out, err = hf("run", "-b", bundle("b", ["/bin/sh", "-c", show], edit), "g3")
    assert s == 0, err
    lines = out.splitlines()
    assert lines[:4] == ["1", "70000 100000", str(100 * MIB), "50"], out
    assert int(lines[4].split()[1]) == 100 * 1024, out


@test
def a_small_pids_limit_leaves_room_for_the_sandbox():
    b = bundle("b", ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; echo done"],
               resources(pids={"limit": 12}))
    s, out, err = hf("run", "-b", b, "g4")
    assert (s, out) == (0, "done\n"), (s, out, err)
    assert not left_over(NAME)


@test
def a_failed_create_leaves_no_group():
    for edit, words in ((resources(cpu={"cpus": "4000"}), "cpuset.cpus"), (None, "no such file")):
        def no_program(c):
            resources()(c)
            c["process"]["args"] = ["/no/such"]
        s, _, err = hf("create", "-b", bundle("b", ["/bin/true"], edit or no_program), "g5")
        assert s == 1 and (words in err or words == "cpuset.cpus"), err
        assert not left_over(NAME), left_over(NAME)
        assert "g5" not in os.listdir(STATE)


@test
def deleting_a_frozen_container_thaws_it():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"], resources()), "g6")[0] == 0
    pid = state("g6")["pid"]
    key = "" if V2 else "freezer"
    if key in groups(pid):
        file = os.path.join(where(key, groups(pid)[key]), "cgroup.freeze" if V2 else "freezer.state")
        with open(file, "w") as f:
            f.write("1" if V2 else "FROZEN")
        assert wait_for(lambda: state("g6")["status"] == "paused"), "state must not hang"
    assert hf("delete", "--force", "g6", timeout=20)[0] == 0
    assert not left_over(NAME)


@test
def killing_the_sentry_leaves_a_container_that_delete_cleans():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"], resources()), "g7")[0] == 0
    os.kill(state("g7")["pid"], 9)
    assert wait_for(lambda: state("g7")["status"] == "stopped")
    assert hf("delete", "g7")[0] == 0
    assert not left_over(NAME)


@test
def killing_the_gofer_ends_the_container():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"], resources()), "g10")[0] == 0
    pid = state("g10")["pid"]
    for p in json.loads(hf("ps", "--format", "json", "g10")[1]):
        with open(f"/proc/{p}/cmdline") as f:
            gofer = "gofer-role" in f.read()
        if gofer:
            os.kill(p, 9)
            break  # the others end at once
    assert wait_for(lambda: state("g10")["status"] == "stopped")
    assert wait_for(lambda: not os.path.exists(f"/proc/{pid}/exe"))
    assert hf("delete", "g10")[0] == 0
    assert not left_over(NAME)


@test
def what_the_hosts_oom_killer_ends_has_status_137():
    """The group's limit lowered behind our back, so that the sandbox can't end one process of the guest itself."""
    script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; exec dd if=/dev/zero of=/dev/null bs=150M count=3"
    b = bundle("b", ["/bin/sh", "-c", script], resources(memory={"limit": 400 * MIB}))
    p = subprocess.Popen([HOLDFAST, "--root", STATE, "run", "-b", b, "g11"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(lambda: hf("exec", "g11", "/bin/true")[0] == 0)
    pid = state("g11")["pid"]
    key = "" if V2 else "memory"
    path = os.path.join(where(key, groups(pid)[key]), "memory.max" if V2 else "memory.limit_in_bytes")
    if os.path.exists(path):
        with open(path, "w") as f:
            f.write(str(64 * MIB))
        assert hf("exec", "g11", "/bin/touch", "/tmp/go")[0] == 0
        assert p.wait(timeout=60) == 137
    hf("delete", "--force", "g11")
    p.wait(timeout=60)
    assert not left_over(NAME)


@test
def where_no_group_can_be_made_there_is_one_warning():
    """The same mounts, read-only."""
    b = bundle("b", ["/bin/echo", "hello"], resources(memory={"limit": 100 * MIB}))
    mounts = [line.split()[1] for line in open("/proc/mounts") if line.split()[2] in ("cgroup", "cgroup2")]
    script = "".join(f"mount -o remount,bind,ro {m} && " for m in mounts) + 'exec "$@"'
    p = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", HOLDFAST, "--root", STATE, "run", "-b", b, "g8"],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (p.returncode, p.stdout) == (0, "hello\n"), p
    assert p.stderr.count("warning") == 1, p.stderr


@test
def runc_puts_a_container_into_the_same_place():
    """The outside check: same path, same values that neither of us changes."""
    if not shutil.which("runc"):
        return
    got = {}
    cpu = {"shares": 300, "quota": 30000, "period": 60000}
    for name, cmd in (("holdfast", [HOLDFAST, "--root", STATE]), ("runc", ["runc", "--root", WORK + "/runc"])):
        b = bundle("b", ["/bin/sleep", "1000"], resources(cpu=cpu))
        subprocess.run([*cmd, "create", "-b", b, "g9"], check=True, timeout=60, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            st = json.loads(subprocess.run([*cmd, "state", "g9"], check=True, timeout=60, stdout=subprocess.PIPE).stdout)
            pid = st["pid"]
            got[name] = (st["status"], groups(pid), read(pid, "cpu", "cpu.shares", "cpu.weight"),
                         read(pid, "cpu", "cpu.cfs_quota_us", "cpu.max"),
                         sorted((read(pid, "devices", "devices.list", "none") or "").splitlines()))
        finally:
            subprocess.run([*cmd, "delete", "--force", "g9"], timeout=60)
    for a, r in zip(got["holdfast"][:4], got["runc"]):
        assert a == r, got
    # runc always allows tun on top
    assert set(got["runc"][4]) - set(got["holdfast"][4]) <= {"c 10:200 rwm"}, got
    assert wait_for(lambda: not left_over(NAME))


if USABLE:
    main()
print("1..0 # no cgroup can be made here")
