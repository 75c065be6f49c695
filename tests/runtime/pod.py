#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pods: containers that join a sandbox by the annotations of Kubernetes' callers."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import STATE, WORK, alive, bundle, busybox_root, hf, main, process_tree, state, test, wait_for  # noqa: E402

CRI = "io.kubernetes.cri."
NUMBERS = iter(range(1, 1000))


def annotate(conf, kind, sandbox):
    conf.setdefault("annotations", {}).update({CRI + "container-type": kind, CRI + "sandbox-id": sandbox})


def own_root(name):
    root = os.path.join(WORK, "root-" + name)
    if not os.path.isdir(root):
        subprocess.run(["cp", "-a", busybox_root(), root], check=True)
    return root


class Pod:
    """A sandbox with `sleep` in it, and what joins it."""

    def __init__(self, edit=None):
        self.id = f"pod{next(NUMBERS)}"
        self.shm = os.path.join(WORK, self.id + "-shm")
        os.makedirs(self.shm)

        def first(conf):
            annotate(conf, "sandbox", self.id)
            conf["hostname"] = "the-pod"
            self.share(conf)
            if edit:
                edit(conf)
        s, _, err = hf("create", "-b", bundle(self.id, ["/bin/sh", "-c", "sleep 10000"], first), self.id)
        assert s == 0, err
        assert hf("start", self.id)[0] == 0
        self.pid = state(self.id)["pid"]

    def share(self, conf):
        conf["mounts"] = [m for m in conf["mounts"] if m["destination"] != "/dev/shm"]
        conf["mounts"].append({"destination": "/dev/shm", "type": "bind", "source": self.shm, "options": ["rbind", "rw"]})

    def create(self, name, *args, edit=None, log=None, **kw):
        cid = f"{self.id}-{name}"

        def join(conf):
            annotate(conf, "container", self.id)
            conf["root"]["path"] = own_root(name)
            conf.pop("hostname", None)
            for n in conf["linux"]["namespaces"]:
                if n["type"] in ("network", "ipc", "uts"):
                    n["path"] = f"/proc/{self.pid}/ns/{'net' if n['type'] == 'network' else n['type']}"
            self.share(conf)
            if edit:
                edit(conf)
        argv = ["create", "-b", bundle(cid, args, join), "--pid-file", WORK + "/pid-" + cid, cid]
        s, _, err = hf(*argv, **kw)
        return cid if s == 0 else err

    def start(self, name, *args, **kw):
        cid = self.create(name, *args, **kw)
        s, _, err = hf("start", cid)
        assert s == 0, cid + err
        return cid

    def end(self):
        for cid in os.listdir(STATE):
            if cid.startswith(self.id):
                assert hf("delete", "--force", cid)[0] == 0
        assert not os.listdir(STATE)


def sh(cid, script):
    s, out, err = hf("exec", cid, "/bin/sh", "-c", script)
    assert s == 0, (s, out, err)
    return out


def status(cid):
    return state(cid)["status"]


@test
def two_containers_share_what_a_pod_shares():
    pod = Pod()
    a, b = pod.start("a", "/bin/sleep", "1000"), pod.start("b", "/bin/sleep", "1000")
    assert sh(a, "hostname") == sh(b, "hostname") == "the-pod\n"
    links = {c: dict(x.split(" ", 1) for x in sh(c, "for i in net ipc uts pid mnt; do echo $i $(readlink /proc/self/ns/$i); done")
                     .splitlines()) for c in (pod.id, a, b)}
    for kind in ("net", "ipc", "uts"):
        assert len({links[c][kind] for c in links}) == 1, links
    for kind in ("pid", "mnt"):
        assert len({links[c][kind] for c in links}) == 3, links
    sh(a, "echo from-a >/dev/shm/x; touch /only-a")
    assert sh(b, "cat /dev/shm/x") == "from-a\n"
    assert sh(b, "ls /only-a 2>&1; true").startswith("ls:")
    assert sh(a, "ps").count("sleep 1000") == 1, "its own, not the other's"
    pod.end()


@test
def a_container_has_its_own_process_tree():
    pod = Pod()
    a, b = pod.start("a", "/bin/sh", "-c", "sleep 501 & sleep 502; exit"), pod.start("b", "/bin/sleep", "601")
    for cid, want, others in ((a, 3, "601"), (b, 1, "50")):
        s, out, _ = hf("ps", cid)
        rows = out.splitlines()[1:]
        assert s == 0 and len(rows) == want and rows[0].split()[0] == "1", out
        assert others not in sh(cid, "ps")
    s, out, _ = hf("ps", pod.id)
    assert s == 0 and len(out.splitlines()) == 2, out
    data = json.loads(hf("events", "--stats", a)[1])["data"]
    assert data["pids"]["current"] == 3, data["pids"]
    assert sh(a, "ls /proc | grep -c '^[0-9]'") in ("4\n", "5\n", "6\n")
    pod.end()


@test
def state_names_the_sandbox_and_the_waiter_is_the_callers_child():
    pod = Pod()
    cid = pod.start("a", "/bin/sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.1; done")
    st = state(cid)
    assert st["sandbox"] == pod.id and st["status"] == "running", st
    assert st["pid"] == int(open(WORK + "/pid-" + cid).read()) != pod.pid
    assert os.readlink(f"/proc/{st['pid']}/ns/net") == os.readlink(f"/proc/{pod.pid}/ns/net")
    assert process_tree()[st["pid"]] == process_tree()[pod.pid]  # whoever reaps the orphans of `create`
    wait_for(lambda: "trap" not in sh(cid, "cat /proc/1/comm"))
    os.kill(st["pid"], signal.SIGTERM)
    assert hf("wait", cid)[0] == 5
    assert wait_for(lambda: not alive(st["pid"]))
    assert status(cid) == "stopped" and status(pod.id) == "running"
    pod.end()


@test
def exit_statuses_are_each_containers_own():
    pod = Pod()
    for n, (script, want) in enumerate((("exit 7", 7), ("sleep 1000", 137), ("exit 0", 0))):
        cid = pod.start(f"x{n}", "/bin/sh", "-c", script)
        if want == 137:
            assert hf("kill", cid, "KILL")[0] == 0
        assert hf("wait", cid)[0] == want
        assert wait_for(lambda: status(cid) == "stopped")
        assert hf("kill", cid, "TERM")[0] == 1
        assert hf("delete", cid)[0] == 0
    assert status(pod.id) == "running" and os.listdir(STATE) == [pod.id]
    pod.end()


@test
def killing_the_waiter_kills_the_container_alone():
    pod = Pod()
    a, b = pod.start("a", "/bin/sleep", "1000"), pod.start("b", "/bin/sleep", "1000")
    os.kill(state(a)["pid"], signal.SIGKILL)
    assert hf("wait", a)[0] == 137
    assert sh(b, "echo alive") == "alive\n"
    pod.end()


@test
def kill_all_is_the_containers():
    pod = Pod()
    a, b = pod.start("a", "/bin/sh", "-c", "sleep 701 & sleep 702 & wait"), pod.start("b", "/bin/sleep", "801")
    assert hf("kill", "--all", a, "KILL")[0] == 0
    assert hf("wait", a)[0] == 137
    assert status(b) == status(pod.id) == "running"
    pod.end()


@test
def the_sandbox_ends_them_all_created_ones_too():
    pod = Pod()
    a = pod.start("a", "/bin/sleep", "1000")
    b = pod.create("b", "/bin/sleep", "1000")
    assert status(b) == "created"
    pids = [state(c)["pid"] for c in (a, b, pod.id)]
    assert hf("kill", pod.id, "KILL")[0] == 0
    assert wait_for(lambda: not any(alive(p) for p in pids)), "something goes on"
    for cid in (a, b, pod.id):
        assert status(cid) == "stopped"
        assert hf("delete", cid)[0] == 0
    assert not os.listdir(STATE)


@test
def a_killed_sentry_ends_the_waiters():
    pod = Pod()
    a = pod.start("a", "/bin/sleep", "1000")
    pid = state(a)["pid"]
    os.kill(pod.pid, signal.SIGKILL)
    assert wait_for(lambda: not alive(pid)) and status(a) == "stopped"
    pod.end()


@test
def deletes_give_gofers_and_mounts_back():
    pod = Pod()
    before = len(os.listdir(f"/proc/{pod.pid}/fd")), len(process_tree(1))
    for n in range(5):
        cid = pod.start("again", "/bin/true")
        assert hf("wait", cid)[0] == 0
        assert hf("delete", cid)[0] == 0
    after = wait_for(lambda: (len(os.listdir(f"/proc/{pod.pid}/fd")) <= before[0] + 2) or None)
    assert after, (before, os.listdir(f"/proc/{pod.pid}/fd"))
    pod.end()


@test
def a_failed_create_leaves_the_pod_alone():
    pod = Pod()
    err = pod.create("bad", "/not/there")
    assert "no such file or directory" in err, err
    err = pod.create("bad", "/bin/true", edit=lambda c: c["mounts"].append(
        {"destination": "/x", "type": "bind", "source": "/not/there", "options": ["bind"]}))
    assert "/not/there" in err, err
    assert os.listdir(STATE) == [pod.id] and status(pod.id) == "running"
    assert pod.start("good", "/bin/true")
    pod.end()
    err = pod.create("late", "/bin/true")
    assert "does not exist" in err, err
    assert not os.listdir(STATE)


@test
def the_pid_namespace_of_the_pod_or_of_another_container():
    pod = Pod()

    def with_pids_of(pid):
        def edit(conf):
            next(n for n in conf["linux"]["namespaces"] if n["type"] == "pid")["path"] = f"/proc/{pid}/ns/pid"
        return edit
    a = pod.start("a", "/bin/sh", "-c", "sleep 901 & wait", edit=with_pids_of(pod.pid))
    own = pod.start("own", "/bin/sleep", "902")
    debug = pod.start("debug", "/bin/sleep", "903", edit=with_pids_of(state(own)["pid"]))
    assert "sleep 901" in sh(pod.id, "ps") and "sleep 10000" in sh(a, "ps")
    assert "sleep 902" in sh(debug, "ps") and "sleep 903" in sh(own, "ps") and "901" not in sh(own, "ps")
    assert hf("kill", a, "KILL")[0] == 0
    assert hf("wait", a)[0] == 137
    assert wait_for(lambda: "sleep 901" not in sh(pod.id, "ps")), "its other processes go with the first"
    err = pod.create("none", "/bin/true", edit=with_pids_of(1))
    assert "is of no container" in err, err
    pod.end()


@test
def pause_and_save_are_the_sandboxes():
    pod = Pod()
    a = pod.start("a", "/bin/sleep", "1000")
    s, _, err = hf("pause", a)
    assert s == 1 and f"pause its sandbox, {pod.id}" in err, err
    assert hf("pause", pod.id)[0] == 0
    assert status(a) == status(pod.id) == "paused"
    assert hf("resume", pod.id)[0] == 0
    assert status(a) == "running"
    for cid in (a, pod.id):
        s, _, err = hf("checkpoint", "--image-path", WORK + "/img-" + cid, cid)
        assert s == 1 and "several containers" in err, err
    assert status(pod.id) == "running"
    pod.end()


@test
def volumes_are_one_file_system_for_all():
    vol = os.path.join(WORK, "vol")
    os.makedirs(vol)
    pod = Pod()

    def mounted(*options):
        return lambda c: c["mounts"].append({"destination": "/vol", "type": "bind", "source": vol, "options": ["rbind", *options]})
    a = pod.start("a", "/bin/sleep", "1000", edit=mounted("rw"))
    b = pod.start("b", "/bin/sleep", "1000", edit=mounted("rw"))
    reader = pod.start("r", "/bin/sleep", "1000", edit=mounted("ro"))
    sh(a, "mkfifo /vol/p; (echo to-reader >/vol/p) >/dev/null 2>&1 </dev/null &")
    assert sh(reader, "cat /vol/p; touch /vol/x 2>&1; true") == "to-reader\ntouch: /vol/x: Read-only file system\n"
    assert len({sh(c, "stat -c %d:%i /vol/p 2>/dev/null || busybox stat -c %d:%i /vol/p") for c in (a, b, reader)}) == 1
    assert hf("delete", "--force", a)[0] == 0
    assert sh(b, "echo on >/vol/f; cat /vol/f; rm /vol/p") == "on\n" and sh(reader, "cat /vol/f") == "on\n"
    fds = len(os.listdir(f"/proc/{pod.pid}/fd"))
    for cid in (b, reader):
        assert hf("delete", "--force", cid)[0] == 0
    assert wait_for(lambda: len(os.listdir(f"/proc/{pod.pid}/fd")) < fds - 6), "the last one gives it back"
    pod.end()


@test
def limits_of_the_pod_are_the_sandboxes():
    def sized(conf):
        conf["annotations"].update({CRI + "sandbox-memory": str(256 << 20), CRI + "sandbox-cpu-quota": "100000",
                                    CRI + "sandbox-cpu-period": "100000"})
    pod = Pod(sized)
    a = pod.start("a", "/bin/sleep", "1000")
    assert sh(a, "grep MemTotal /proc/meminfo").split()[1] == str(256 << 10)
    assert sh(a, "grep -c ^processor /proc/cpuinfo") == "1\n"
    assert hf("update", "--pids-limit", "50", a)[0] == 0  # of its cgroup on the host
    assert json.loads(hf("events", "--stats", a)[1])["data"]["pids"]["limit"] > 50
    pod.end()


@test
def statistics_are_each_containers_own():
    pod = Pod()
    busy = pod.start("a", "/bin/sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch /done; sleep 1000")
    idle = pod.start("b", "/bin/sleep", "1000")
    assert wait_for(lambda: hf("exec", busy, "/bin/ls", "/done")[0] == 0, 60)
    got = {cid: json.loads(hf("events", "--stats", cid)[1])["data"] for cid in (busy, idle)}
    cpu = {cid: got[cid]["cpu"]["usage"]["total"] for cid in got}
    assert cpu[busy] > 4 * cpu[idle] > 0, cpu
    assert all(0 < got[cid]["memory"]["usage"]["usage"] < 64 << 20 for cid in got), got
    pod.end()


@test
def output_and_input_are_taken_at_create():
    pod = Pod()
    out = WORK + "/out"
    import _lib
    with open(out, "w") as f, open("/dev/null") as null:
        cid = pod.id + "-io"
        conf = bundle(cid, ["/bin/sh", "-c", "echo out; echo err >&2"], lambda c: (annotate(c, "container", pod.id),
                      c["root"].update(path=own_root("io"))))
        subprocess.run([_lib.HOLDFAST, "--root", STATE, "create", "-b", conf, cid], stdin=null, stdout=f, stderr=f, check=True)
    assert hf("start", cid)[0] == 0
    assert hf("wait", cid)[0] == 0
    assert open(out).read() == "out\nerr\n"
    pod.end()


if __name__ == "__main__":
    time.tzset()
    main()
