#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calls of containerd's shim and of conmon, made one by one: what they rely on and no client's output shows."""
import ctypes
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import time

import _clients as c
from _clients import Failed, test, wait_for

ROOT = c.ROOM + "/state/" + c.TAG
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
libc = ctypes.CDLL(None)
numbers = iter(range(1, 10000))


class Container:
    """A bundle, and the runtime's calls on it as the shim makes them."""

    def __init__(self, *args, edit=None, **process):
        self.id = f"k{next(numbers)}"
        self.bundle = f"{c.ROOM}/bundles/{self.id}"
        self.rootfs = self.bundle + "/rootfs"
        self.log = self.bundle + "/log.json"
        self.pid_file = self.bundle + "/init.pid"
        os.makedirs(self.rootfs)
        c.unpack(self.rootfs)
        subprocess.run([c.RUNTIME, "spec", "--bundle", self.bundle], check=True)
        with open(self.bundle + "/config.json") as f:
            conf = json.load(f)
        conf["root"] = {"path": "rootfs", "readonly": False}
        conf["process"].update({"args": list(args) or ["sleep", "1000"], "terminal": False, "rlimits": [], **process})
        conf["linux"]["cgroupsPath"] = f"/{c.TAG}/{self.id}"
        conf["linux"]["resources"] = {}
        if edit:
            edit(conf)
        with open(self.bundle + "/config.json", "w") as f:
            json.dump(conf, f)

    def argv(self, *args):
        return [c.RUNTIME, "--root", ROOT, "--log", self.log, "--log-format", "json", *args]

    def call(self, *args, timeout=30, stdin=subprocess.DEVNULL):
        """A call whose output is one pipe that is read to its end, with the death signal of the shim's: status, output."""
        r, w = os.pipe()
        p = subprocess.Popen(self.argv(*args), stdin=stdin, stdout=w, stderr=w, cwd=self.bundle,
                             preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        os.close(w)
        out, end = b"", time.monotonic() + timeout
        while True:
            if not select.select([r], [], [], max(0, end - time.monotonic()))[0]:
                p.kill()
                raise Failed(f"{args}: its output has no end; so far: {out!r}")
            data = os.read(r, 65536)
            if not data:
                break
            out += data
        os.close(r)
        return p.wait(timeout), out.decode(errors="replace")

    def ok(self, *args, **kw):
        status, out = self.call(*args, **kw)
        if status:
            raise Failed(f"{args}: status {status}: {out}")
        return out

    def create(self, *flags, stdout=None):
        """As the shim: the container's stdio are pipes or files of its own."""
        with open(self.bundle + "/stderr", "ab") as err, open(self.bundle + "/stdout", "ab") as out:
            p = subprocess.Popen(self.argv("create", "--bundle", self.bundle, "--pid-file", self.pid_file, *flags, self.id),
                                 stdin=subprocess.DEVNULL, stdout=stdout or out, stderr=err, cwd=self.bundle)
            return p.wait(60)

    def created(self, *flags):
        if self.create(*flags):
            raise Failed(f"create: {self.error()}")
        return self

    def running(self):
        self.created().ok("start", self.id)
        return self

    def error(self):
        """The last error record of the log: what the shim reports."""
        msg = None
        with open(self.log) as f:
            for line in f:
                rec = json.loads(line)
                assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", rec["time"]) and isinstance(rec["msg"], str), rec
                if rec["level"] == "error":
                    msg = rec["msg"]
        return msg

    def pid(self):
        with open(self.pid_file) as f:
            return int(f.read())

    def state(self):
        return json.loads(self.ok("state", self.id))

    def status(self):
        return self.state()["status"]

    def output(self):
        with open(self.bundle + "/stdout") as f:
            return f.read()

    def delete(self, *flags):
        return self.ok("delete", *flags, self.id)

    def exec_status(self, path, pid_file, *flags):
        """A detached exec that has files for its standard descriptors, as the shim has FIFOs: the call's status."""
        with open(self.bundle + "/stderr", "ab") as err, open(self.bundle + "/stdout", "ab") as out:
            return subprocess.run(self.argv("exec", "--process", path, "--detach", "--pid-file", pid_file, *flags, self.id), check=False,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=30, cwd=self.bundle).returncode

    def exec(self, *args, **more):
        """Starts a detached exec; its pid."""
        path, pid_file = self.process(*args, **more), f"{self.bundle}/exec{next(numbers)}.pid"
        if self.exec_status(path, pid_file):
            raise Failed(f"exec {args}: {self.error()}")
        os.unlink(path)
        with open(pid_file) as f:
            return int(f.read())

    def process(self, *args, **more):
        """A file for exec --process."""
        with open(self.bundle + "/config.json") as f:
            process = json.load(f)["process"]
        path = f"{self.bundle}/process{next(numbers)}"
        with open(path, "w") as f:
            json.dump({**process, "args": list(args), **more}, f)
        return path


def wait_status(pid, seconds=20):
    """wait4(2) as the subreaper: the exit status as a shell has it."""
    def ended():
        got, status = os.waitpid(pid, os.WNOHANG)
        return [status] if got else None
    status = wait_for(ended, seconds, f"pid {pid} to end")[0]
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def begin():
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.makedirs(c.ROOM + "/bundles")


def leftovers():
    found = [f"process {p}: {cmd}" for p, cmd in c.runtime_processes().items()]
    found += [f"{ROOT}/{n}" for n in (os.listdir(ROOT) if os.path.isdir(ROOT) else [])]
    found += ["cgroup " + d for t in os.listdir(c.CGROUPS) for d in c.cgroup_dirs_in(f"{t}/{c.TAG}")]
    return found + ["mount " + m for m in c.container_mounts(c.ROOM + "/bundles")]


def reap():
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return


def after():
    for cid in os.listdir(ROOT) if os.path.isdir(ROOT) else []:
        p = subprocess.Popen([c.RUNTIME, "--root", ROOT, "delete", "--force", cid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while c.alive(p.pid):
            time.sleep(0.01)
            reap()
    reap()
    c.nothing_left(leftovers)


# ---- pids and statuses ----


@test
def the_pid_is_a_child_whose_status_is_the_containers():
    k = Container("sh", "-c", "exit 42").running()
    assert wait_status(k.pid()) == 42
    k = Container("sh", "-c", "sleep 1000").running()
    k.ok("kill", k.id, "9")
    assert wait_status(k.pid()) == 137
    k = Container().created()
    k.ok("kill", k.id, "9")
    assert wait_status(k.pid()) == 137


@test
def exec_pids_are_children_with_the_execs_status():
    k = Container().running()
    for args, expected in ((("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), 137), (("true",), 0)):
        assert wait_status(k.exec(*args)) == expected


@test
def signals_to_the_pid_do_what_they_do_to_a_process():
    k = Container("sh", "-c", "trap 'echo usr1' USR1; trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done").running()
    wait_for(lambda: k.output() == "up\n")
    k.ok("kill", k.id, "10")
    wait_for(lambda: k.output() == "up\nusr1\n")
    k.ok("kill", k.id, "SIGTERM")
    assert wait_status(k.pid()) == 5
    k.delete()
    k = Container().running()
    pid = k.exec("sh", "-c", "trap 'exit 6' TERM; echo ready >/ready; while :; do sleep 0.05; done")
    wait_for(lambda: os.path.exists(k.rootfs + "/ready"))
    os.kill(pid, signal.SIGTERM)
    assert wait_status(pid) == 6


@test
def a_killed_process_of_the_sandbox_is_noticed():
    k = Container().running()
    os.kill(k.pid(), signal.SIGKILL)
    assert wait_status(k.pid()) == 137
    assert k.status() == "stopped"
    k.delete()


# ---- section 8 of the contract ----


@test
def no_call_keeps_its_output_open():
    """8.1: what start, exec, and delete leave behind doesn't hold the pipe that the shim reads to its end."""
    k = Container().created()
    k.ok("start", k.id, timeout=10)
    for call in (("state", k.id), ("ps", "--format", "json", k.id), ("list", "--format", "json"), ("pause", k.id), ("resume", k.id),
                 ("kill", k.id, "9")):
        k.ok(*call, timeout=10)
    wait_status(k.pid())
    k.delete()


@test
def detached_exec_keeps_only_the_output_it_was_given():
    """8.1: with a console no descriptor of the call survives it."""
    k = Container().running()
    path = k.bundle + "/s"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen()
        proc = k.process("sh", "-c", "tty; exec sleep 900", terminal=True)
        k.ok("exec", "--process", proc, "--console-socket", path, "--detach", "--pid-file", k.bundle + "/e.pid", k.id, timeout=10)
        conn, _ = s.accept()
        data, fds, _, _ = socket.recv_fds(conn, 1024, 4)
        conn.close()
    assert data.startswith(b"/dev/") and len(fds) == 1, (data, fds)
    assert re.match(rb"/dev/(pts/\d|console)\r?\n", os.read(fds[0], 100))
    os.close(fds[0])


@test
def kill_in_state_created():
    """8.3: KILL ends a container that never started; so does --all."""
    for flags in ((), ("--all",)):
        k = Container("sh", "-c", "touch /ran").created()
        assert k.status() == "created"
        k.ok("kill", *flags, k.id, "9")
        wait_status(k.pid())
        wait_for(lambda: k.status() == "stopped")
        k.delete()
        assert not os.path.exists(k.rootfs + "/ran")


@test
def calls_on_stopped_and_unknown_ids():
    """8.3: texts that callers look for."""
    k = Container("true").running()
    wait_status(k.pid())
    assert k.call("kill", k.id, "15")[0] != 0
    assert re.search("container not running|no such process|process already finished", k.error()), k.error()
    k.call("kill", "--all", k.id, "9")  # an error or none, as long as it comes back
    assert k.exec_status(k.process("true"), k.bundle + "/e.pid") != 0
    assert re.search("stopped|not running", k.error()), k.error()
    k.delete()
    for call in (("state", k.id), ("kill", k.id, "9"), ("delete", k.id), ("start", k.id), ("pause", k.id), ("resume", k.id)):
        assert k.call(*call)[0] != 0, call
        assert "does not exist" in k.error(), k.error()
    k.call("delete", "--force", k.id)
    k.call("delete", "--force", "never-there")


@test
def delete_in_every_state():
    k = Container().running()
    assert k.call("delete", k.id)[0] != 0 and k.status() == "running"
    k.delete("--force")
    k = Container().created()
    k.delete("--force")
    k = Container().running()
    k.ok("pause", k.id)
    assert k.status() == "paused"
    k.delete("--force")
    k = Container("true").running()
    wait_status(k.pid())
    k.delete()


@test
def exec_dies_with_its_pid():
    """8.4: kill(2) with SIGKILL on the exec's pid kills the guest's process."""
    k = Container().running()
    pid = k.exec("sh", "-c", "while :; do date >/beat; usleep 20000; done")
    wait_for(lambda: os.path.exists(k.rootfs + "/beat"))
    os.kill(pid, signal.SIGKILL)
    assert wait_status(pid) == 137

    def quiet():
        before = os.stat(k.rootfs + "/beat").st_mtime_ns
        time.sleep(0.15)
        return os.stat(k.rootfs + "/beat").st_mtime_ns == before
    wait_for(quiet, why="the guest's process to end")


@test
def the_rootfs_is_shared_with_the_host():
    """8.5: what is created, changed, renamed and removed from outside is seen at once, and the other way."""
    k = Container("sh", "-c", "test -e /data/new || echo absent; cat /data/file; touch /ready; while ! test -e /go; do usleep 10000; done; "
                  "cat /data/new; cat /data/file; test -e /data/gone || echo gone; echo guest >/data/out; rm /go").running()
    with open(k.rootfs + "/data/gone", "w") as f:
        f.write("x")
    wait_for(lambda: os.path.exists(k.rootfs + "/ready"))
    with open(k.rootfs + "/data/.new", "w") as f:
        f.write("from outside\n")
    os.rename(k.rootfs + "/data/.new", k.rootfs + "/data/new")
    with open(k.rootfs + "/data/file", "w") as f:
        f.write("much longer than it was before\n")
    os.unlink(k.rootfs + "/data/gone")
    with open(k.rootfs + "/go", "w"):
        pass
    assert wait_status(k.pid()) == 0
    assert k.output() == "absent\nfrom the image\nfrom outside\nmuch longer than it was before\ngone\n", k.output()
    with open(k.rootfs + "/data/out") as f:
        assert f.read() == "guest\n"
    assert not os.path.exists(k.rootfs + "/go")


@test
def failed_create_leaves_nothing():
    """8.6: no state, process, cgroup or mount, and a message."""
    def mount(conf):
        conf["mounts"].append({"destination": "/x", "type": "bind", "source": "/not/there", "options": ["rbind"]})

    def root(conf):
        conf["root"]["path"] = "nowhere"
    cases = ((Container("/not/there"), "no such file or directory"), (Container("not-there"), "executable file not found in"),
             (Container("/etc/noexec"), "permission denied"), (Container(edit=mount), "no such file or directory"),
             (Container(edit=root), "no such file or directory"),
             (Container(terminal=True), "console|terminal|tty"))
    for k, text in cases:
        assert k.create() != 0, text
        assert re.search(text, k.error()), (text, k.error())
        c.nothing_left(leftovers)
        k.call("delete", "--force", k.id)


@test
def failed_exec_leaves_it_usable():
    """8.6"""
    k = Container().running()
    before = k.status()
    for args, more, text in ((["/not/there"], {}, "no such file or directory"), (["not-there"], {}, "executable file not found in"),
                             (["/etc/noexec"], {}, "permission denied"), (["true"], {"cwd": "/nowhere"}, "no such file or directory")):
        assert k.exec_status(k.process(*args, **more), k.bundle + "/e.pid") != 0 and re.search(text, k.error()), k.error()
        assert not os.path.exists(k.bundle + "/e.pid")
    assert k.status() == before
    assert wait_status(k.exec("touch", "/done")) == 0
    assert os.path.exists(k.rootfs + "/done")


@test
def failed_checkpoint_leaves_it_running():
    """8.7"""
    k = Container().running()
    blocker = k.bundle + "/file"
    with open(blocker, "w"):
        pass
    assert k.call("checkpoint", "--image-path", blocker + "/image", "--work-path", k.bundle + "/work", k.id)[0] != 0
    assert k.error()
    assert k.status() == "running"
    assert wait_status(k.exec("touch", "/alive")) == 0


# ---- what else they read ----


@test
def state_and_list():
    k = Container(edit=lambda conf: conf.update(annotations={"some.key": "value"})).running()
    s = k.state()
    assert s["id"] == k.id and s["status"] == "running" and s["pid"] == k.pid() and s["bundle"] == k.bundle, s
    assert s["annotations"] == {"some.key": "value"} and s["ociVersion"], s
    found = [e for e in json.loads(k.ok("list", "--format", "json")) if e["id"] == k.id]
    assert len(found) == 1 and found[0]["status"] == "running" and found[0]["pid"] == k.pid(), found
    assert json.loads(k.ok("ps", "--format", "json", k.id))[0] == k.pid()


@test
def the_cgroup_holds_the_pid():
    k = Container().created()
    with open(f"/proc/{k.pid()}/cgroup") as f:
        paths = [line.strip().split(":", 2)[2] for line in f]
    assert any(p.endswith(f"/{c.TAG}/{k.id}") for p in paths), paths


@test
def old_and_new_spec_versions():
    for version in ("1.0.0", "1.0.2-dev", "1.1.0", "1.2.1", "1.3.0"):
        k = Container("true", edit=lambda conf, v=version: conf.update(ociVersion=v)).running()
        assert wait_status(k.pid()) == 0
        k.delete()


@test
def rlimits_and_priorities_that_the_host_cannot_give():
    """Section 9: where the kernel is ours, a host that lacks CAP_SYS_RESOURCE is no reason to fail."""
    if c.IS_RUNC and c.capabilities_missing():
        return
    k = Container("sh", "-c", "ulimit -Hn; cat /proc/self/oom_score_adj", rlimits=[{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576}],
                  oomScoreAdj=-998).running()
    assert wait_status(k.pid()) == 0
    assert k.output() == "1048576\n-998\n", k.output()


@test
def calls_leak_no_descriptor():
    """A stray descriptor of the shim's (its listener) reaches no process that stays."""
    k = Container()
    r, w = os.pipe()
    p = subprocess.Popen(k.argv("create", "--bundle", k.bundle, "--pid-file", k.pid_file, k.id), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(w,))
    os.close(w)
    assert p.wait(30) == 0
    assert select.select([r], [], [], 10)[0] and os.read(r, 1) == b"", "the pipe is still held"
    os.close(r)


@test
def pid_file_appears_whole():
    k = Container().created()
    with open(k.pid_file) as f:
        assert re.fullmatch(r"\d+", f.read())
    assert [n for n in os.listdir(k.bundle) if "tmp" in n or n.startswith(".init")] == []


@test
def random_kills_leave_nothing():
    """Item 8 of what drop-ins owe: cycles of which half are killed somewhere in the middle."""
    if c.IS_RUNC:
        return  # it leaves cgroups
    rng = random.Random(5)
    for n in range(30):
        k = Container("true")
        victim = rng.choice(("none", "create", "container", "start"))
        p = subprocess.Popen(k.argv("create", "--bundle", k.bundle, "--pid-file", k.pid_file, k.id), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if victim == "create":
            time.sleep(rng.random() * 0.03)
            p.kill()
        p.wait(30)
        if victim != "create":
            if victim == "container":
                os.kill(k.pid(), signal.SIGKILL)
            s = subprocess.Popen(k.argv("start", k.id), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if victim == "start":
                time.sleep(rng.random() * 0.005)
                s.kill()
            s.wait(30)
        k.call("delete", "--force", k.id)


if __name__ == "__main__":
    c.needs("unshare", "ip", "runc")
    c.enter()
    c.main(begin, after)
