#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""update: limits of a running container change at once, for the host and inside; events and stats tell them."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, alive, bundle, hf, main, state, test, wait_for  # noqa: E402

MIB = 1 << 20


def started(cid, script="sleep 1000", **res):
    def edit(c):
        c["linux"].setdefault("resources", {}).update(res)
        if not any(m["destination"] == "/sys/fs/cgroup" for m in c["mounts"]):
            c["mounts"].append({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                                "options": ["ro", "nosuid"]})
        c["mounts"].append({"destination": "/shm", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "size=1g"]})
    s, _, err = hf("run", "-d", "-b", bundle("b", ["/bin/sh", "-c", script], edit), cid)
    assert s == 0, err


def inside(cid, *files):
    s, out, err = hf("exec", cid, "/bin/cat", *["/sys/fs/cgroup/" + f for f in files])
    assert s == 0, err
    return out.splitlines()


def stats(cid):
    s, out, err = hf("events", "--stats", cid)
    assert s == 0, err
    j = json.loads(out)
    assert j["type"] == "stats" and j["id"] == cid
    return j["data"]


@test
def options_change_what_the_container_sees():
    started("u1", memory={"limit": 100 * MIB}, pids={"limit": 50})
    s, _, err = hf("update", "--memory", "200m", "--pids-limit", "70", "--cpu-quota", "50000", "--cpu-period", "100000", "u1")
    assert s == 0, err
    assert inside("u1", "memory.max", "pids.max", "cpu.max") == [str(200 * MIB), "70", "50000 100000"]
    assert hf("exec", "u1", "/bin/grep", "-c", "^processor", "/proc/cpuinfo")[1] == "1\n"
    assert stats("u1")["memory"]["usage"]["limit"] == 200 * MIB
    assert stats("u1")["pids"]["limit"] == 70
    s, _, err = hf("update", "--cpu-quota", "-1", "--pids-limit", "-1", "u1")
    assert s == 0, err
    assert inside("u1", "cpu.max")[0].startswith("max ")
    assert hf("exec", "u1", "/bin/grep", "-c", "^processor", "/proc/cpuinfo")[1] == f"{len(os.sched_getaffinity(0))}\n"
    assert hf("delete", "--force", "u1")[0] == 0


@test
def resources_come_from_standard_input():
    started("u2", memory={"limit": 100 * MIB})
    p = subprocess.run([HOLDFAST, "--root", STATE, "update", "--resources", "-", "u2"], text=True, timeout=60,
                       input=json.dumps({"memory": {"limit": 64 * MIB}, "pids": {"limit": 33}, "cpu": {}, "blockIO": {}}),
                       capture_output=True)
    assert p.returncode == 0, p
    assert inside("u2", "memory.max", "pids.max") == [str(64 * MIB), "33"]
    for bad in ("[]", "{", ""):
        p = subprocess.run([HOLDFAST, "--root", STATE, "update", "--resources=-", "u2"], text=True, timeout=60, input=bad,
                           capture_output=True)
        assert p.returncode == 1 and p.stderr.startswith("holdfast: "), p
    assert hf("delete", "--force", "u2")[0] == 0


@test
def more_memory_can_be_used_at_once():
    started("u3", memory={"limit": 32 * MIB})
    fill = ["/bin/dd", "if=/dev/zero", "of=/shm/f", "bs=1M", "count=60"]
    assert hf("exec", "u3", *fill)[0] != 0, "60 MiB don't fit into 32"
    assert hf("exec", "u3", "/bin/rm", "/shm/f")[0] == 0
    s, _, err = hf("update", "--memory", "128MiB", "u3")
    assert s == 0, err
    s, _, err = hf("exec", "u3", *fill)
    assert s == 0, err
    # and less than is used is refused, without any change
    s, _, err = hf("update", "--memory", "40m", "u3")
    assert s == 1 and f"unable to set memory limit to {40 * MIB} (current usage: " in err, err
    assert inside("u3", "memory.max") == [str(128 * MIB)]
    assert hf("exec", "u3", "/bin/rm", "/shm/f")[0] == 0
    s, _, err = hf("update", "--memory", "40m", "u3")
    assert s == 0, err
    assert hf("exec", "u3", *fill)[0] != 0
    assert hf("delete", "--force", "u3")[0] == 0


@test
def fewer_processes_hold_at_once():
    started("u4", pids={"limit": 100})
    assert hf("update", "--pids-limit", "5", "u4")[0] == 0
    s, out, _ = hf("exec", "u4", "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; echo all")
    assert "all" not in out, out
    assert hf("delete", "--force", "u4")[0] == 0


@test
def bad_updates_are_refused():
    started("u5")
    for args, words in ((["--memory", "12x"], "memory.limit"), (["--cpuset-cpus", "4000"], "cpuset.cpus")):
        s, _, err = hf("update", *args, "u5")
        assert s == 1 and words in err, (args, err)
    assert hf("kill", "u5", "KILL")[0] == 0
    assert hf("wait", "u5")[0] == 137
    s, _, err = hf("update", "--pids-limit", "5", "u5")
    assert s == 1 and "container not running" in err, err
    assert hf("delete", "u5")[0] == 0
    for cmd in ("update", "events"):
        s, _, err = hf(cmd, "u5")
        assert s == 1 and "does not exist" in err, err


@test
def statistics_are_the_containers():
    started("u6", "dd if=/dev/zero of=/shm/f bs=1M count=40 2>/dev/null; sleep 1000 & sleep 1000 & wait",
            memory={"limit": 100 * MIB})
    assert wait_for(lambda: stats("u6")["pids"]["current"] == 3), stats("u6")["pids"]
    a = stats("u6")
    if a["memory"].get("raw"):  # the host has a memory controller
        assert 40 * MIB < a["memory"]["usage"]["usage"] < 200 * MIB, a["memory"]
    if a["cpu"]["usage"]["total"]:
        hf("exec", "u6", "/bin/sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
        assert stats("u6")["cpu"]["usage"]["total"] > a["cpu"]["usage"]["total"]
    for key in ("cpu", "memory", "pids", "blkio"):
        assert key in a, a
    assert hf("delete", "--force", "u6")[0] == 0


@test
def events_follow_until_the_end():
    started("u7")
    with open(WORK + "/events", "w") as f:
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "events", "--interval", "20ms", "u7"], stdout=f,
                             stdin=subprocess.DEVNULL)
    assert wait_for(lambda: open(WORK + "/events").read().count("\n") > 2)
    assert hf("kill", "u7", "KILL")[0] == 0
    assert p.wait(timeout=30) == 0
    with open(WORK + "/events") as f:
        assert all(json.loads(line)["type"] == "stats" for line in f)
    assert hf("delete", "--force", "u7")[0] == 0


@test
def events_tell_of_memory_running_out():
    hog = "dd if=/dev/zero of=/dev/null bs=150M count=1"
    started("u8", f"while [ ! -e /shm/go ]; do sleep 0.1; done; {hog}; sleep 1000", memory={"limit": 48 * MIB})
    with open(WORK + "/events", "w") as f:
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "events", "--interval", "20ms", "u8"], stdout=f,
                             stdin=subprocess.DEVNULL)
    assert wait_for(lambda: open(WORK + "/events").read())
    assert hf("exec", "u8", "/bin/touch", "/shm/go")[0] == 0
    assert wait_for(lambda: '"oom"' in open(WORK + "/events").read(), 30)
    assert hf("delete", "--force", "u8")[0] == 0
    assert p.wait(timeout=30) == 0


@test
def without_a_limit_any_more_nothing_is_taken_from_the_host():
    """A killed process once, the limit gone since: that the first one is killed now is no lack of memory to tell the host of."""
    started("u9", memory={"limit": 48 * MIB})
    s, _, err = hf("exec", "u9", "/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=150M", "count=1")
    assert s == 137, (s, err)
    s, _, err = hf("update", "--memory", "-1", "--memory-swap", "-1", "u9")
    assert s == 0, err
    pid = state("u9")["pid"]
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as f:
        groups = dict(line.split(":", 2)[1:] for line in f.read().splitlines())
    peak = f"/sys/fs/cgroup/memory{groups['memory']}/memory.max_usage_in_bytes" if "memory" in groups else \
        f"/sys/fs/cgroup{groups['']}/memory.peak"
    assert hf("kill", "u9", "KILL")[0] == 0
    assert wait_for(lambda: not alive(pid), 60)
    if os.path.exists(peak):
        with open(peak, encoding="utf-8") as f:
            assert int(f.read()) < 300 * MIB
    assert hf("delete", "--force", "u9")[0] == 0


main()
