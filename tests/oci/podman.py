#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""podman and conmon with holdfast as the runtime, as root and as a plain user."""
import json
import os
import re
import signal
import subprocess
import time

import _clients as c
from _clients import converse, test, Tty, wait_for, wait_size

IMAGE = "localhost/box"
USER, UID = "hfuser", 5555
BUNDLES = c.ROOM + "/podman-root"
numbers = iter(range(1, 10000))


def environment(home):
    return dict(c.ENV, HOME=home, CONTAINERS_CONF=home + "/containers.conf", CONTAINERS_STORAGE_CONF=home + "/storage.conf",
                CONTAINERS_REGISTRIES_CONF=home + "/registries.conf", XDG_RUNTIME_DIR=home + "/run", TMPDIR=home + "/tmp")


ROOT_ENV = environment(c.ROOM + "/podman-home")
USER_ENV = dict(environment(c.ROOM + "/user-home"), USER=USER, LOGNAME=USER)


def podman(*args, **kw):
    return c.run("podman", *args, **dict({"env": ROOT_ENV}, **kw))


def as_user(*args, **kw):
    """Rootless podman: in a user namespace that it makes itself."""
    return c.run("setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "podman", *args, env=USER_ENV, cwd=USER_ENV["HOME"], **kw)


def fresh():
    return f"p{next(numbers)}"


def run(*cmd, flags=(), image=IMAGE, call=podman, **kw):
    """`podman run --rm` of a command; its Result."""
    return call("run", "--rm", "--network", "none", *place(call), *flags, image, *cmd, **kw)


def place(call):
    return () if call is as_user else ("--cgroup-parent", "/" + c.TAG)


def start(*cmd, flags=(), call=podman):
    """A detached container; its name."""
    name = fresh()
    call("run", "-d", "--name", name, "--network", "none", *place(call), *flags, IMAGE, *(cmd or ("sleep", "1000"))).ok()
    return name


def execute(name, *cmd, flags=(), call=podman, **kw):
    return call("exec", *flags, name, *cmd, **kw)


def inspect(name, what, call=podman):
    return call("inspect", "-f", "{{" + what + "}}", name).ok().strip()


def ended(name, call=podman):
    wait_for(lambda: inspect(name, ".State.Status", call) == "exited", why=f"{name} to end")
    return int(inspect(name, ".State.ExitCode", call))


def configure(home, uid, driver):
    for d in ("", "/run", "/tmp", "/.config/containers"):
        os.makedirs(home + d, mode=0o700, exist_ok=True)
    files = {"containers.conf": f"""[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "holdfast"
init_path = "/usr/bin/catatonit"
[engine.runtimes]
holdfast = ["{c.RUNTIME}"]
[containers]
log_driver = "k8s-file"
""", "storage.conf": f"""[storage]
driver = "{driver}"
runroot = "{home}/run/storage"
graphroot = "{home}/storage"
rootless_storage_path = "{home}/storage"
""", "registries.conf": "", ".config/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}'}
    for name, text in files.items():
        with open(f"{home}/{name}", "w") as f:
            f.write(text)
    for d, _, names in os.walk(home):
        for n in (d, *(os.path.join(d, n) for n in names)):
            os.chown(n, uid, uid)


def add_user():
    """A plain user with subordinate ids, in this room only."""
    for path, line in (("/etc/passwd", f"{USER}:x:{UID}:{UID}::{USER_ENV['HOME']}:/bin/sh"), ("/etc/group", f"{USER}:x:{UID}:"),
                       ("/etc/subuid", f"{USER}:600000:65536"), ("/etc/subgid", f"{USER}:600000:65536")):
        copy = c.ROOM + "/" + os.path.basename(path)
        with open(path) as f, open(copy, "w") as to:
            to.write(f.read() + line + "\n")
        subprocess.run(["mount", "--bind", copy, path], check=True)


def begin():
    add_user()
    configure(ROOT_ENV["HOME"], 0, "overlay")
    configure(USER_ENV["HOME"], UID, "vfs")
    archive = c.image("localhost/box:latest")
    podman("load", "-q", "-i", archive).ok()
    as_user("load", "-q", "-i", archive).ok()


def leftovers():
    found = [f"process {p}: {cmd}" for p, cmd in c.processes().items() if "conmon" in cmd]
    found += [f"process {p}: {cmd}" for p, cmd in c.runtime_processes().items()]
    state = "/run/runc" if c.IS_RUNC else "/run/holdfast"
    found += [f"{state}/{n}" for n in (os.listdir(state) if os.path.isdir(state) else [])]
    return found + ["cgroup " + d for t in os.listdir(c.CGROUPS) for d in c.cgroup_dirs_in(f"{t}/{c.TAG}") if "libpod-" in d]


def after():
    for call in (podman, as_user) if as_user_ran else (podman,):
        call("rm", "-f", "-t", "0", "-a")
    c.nothing_left(leftovers)


as_user_ran = []


# ---- rootful ----


@test
def info_names_the_runtime():
    info = json.loads(podman("info", "--format", "json").ok())
    assert info["host"]["ociRuntime"]["path"] == c.RUNTIME, info["host"]["ociRuntime"]
    if not c.IS_RUNC:
        assert "holdfast version" in info["host"]["ociRuntime"]["version"]


@test
def run_passes_output_and_status():
    r = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (r.status, r.out, r.err) == (3, "out\n", "err\n"), r
    assert run("cat", flags=("-i",), stdin="in\n" * 30000).ok() == "in\n" * 30000
    assert run("sh", "-c", "sh -c 'kill -9 $$'; exit $?").status == 137


@test
def run_refuses_with_the_right_status():
    run("not-there").failed(127, "executable file")
    run("/not/there").failed(127, "[Nn]o such file or directory")
    run("/etc/noexec").failed(126, "[Pp]ermission denied")
    run("true", flags=("--no-such-option",)).failed(125)


@test
def run_interactive():
    t = Tty("podman", "run", "--rm", "-it", "--network", "none", IMAGE, "sh", rows=31, cols=97, env=ROOT_ENV)
    t.expect("# ")
    converse(t)


@test
def run_user_environment_and_hostname():
    r = run("sh", "-c", "id; echo $A $HOME; hostname; pwd", flags=("--user", "user", "-e", "A=b", "-h", "named", "-w", "/data", "--group-add", "77"))
    assert r.ok().splitlines() == ["uid=1000(user) gid=1000(user) groups=77,1000(user),2000(extra)", "b /home/user", "named", "/data"], r


@test
def run_read_only_and_tmpfs():
    r = run("sh", "-c", "touch /x; echo $?; touch /t/x && df -k /t | tail -1", flags=("--read-only", "--tmpfs", "/t:size=1m"))
    assert r.ok().startswith("1\n") and " 1024 " in r.out, r


@test
def run_with_init():
    name = start("sh", "-c", "sleep 900 & exec sleep 901", flags=("--init",))
    assert "init" in execute(name, "cat", "/proc/1/cmdline").ok()
    podman("stop", "-t", "5", name).ok()
    assert ended(name) == 143


@test
def volumes_and_mounts():
    src = c.ROOM + "/pod-src"
    os.makedirs(src, exist_ok=True)
    run("sh", "-c", "echo kept >/v/f; echo there >/m/g", flags=("-v", "vol:/v", "-v", src + ":/m")).ok()
    assert run("cat", "/v/f", "/m/g", flags=("-v", "vol:/v:ro", "-v", src + ":/m:ro")).ok() == "kept\nthere\n"
    run("touch", "/m/x", flags=("-v", src + ":/m:ro")).failed(1, "Read-only")
    podman("volume", "rm", "vol").ok()


@test
def limits():
    r = run("sh", "-c", "nproc; grep MemTotal /proc/meminfo", flags=("--cpus", "1", "--memory", "64m"))
    if not c.IS_RUNC:
        assert r.ok().split() == ["1", "MemTotal:", "65536", "kB"], r
    r = run("sh", "-c", "for i in 1 2 3 4 5; do sleep 0.1 & done; wait; echo all", flags=("--pids-limit", "8"))
    assert r.ok() == "all\n", r
    r = run("sh", "-c", "n=0; while [ $n -lt 12 ]; do sleep 5 & n=$((n+1)); done", flags=("--pids-limit", "8"))
    assert "fork" in r.err, r
    if not (c.IS_RUNC and c.capabilities_missing()):  # podman asks for more processes than root may have then
        assert run("sh", "-c", "ulimit -n", flags=("--ulimit", "nofile=100:100")).ok() == "100\n"


@test
def out_of_memory():
    """Section 8.2. podman's OOMKilled stays false with cgroups of version 1, with runc, too."""
    name = start("tail", "/dev/zero", flags=("--memory", "32m"))
    assert ended(name) == 137


@test
def exec_with_and_without_terminal():
    name = start()
    r = execute(name, "sh", "-c", "echo out; echo err >&2; exit 4")
    assert (r.status, r.out, r.err) == (4, "out\n", "err\n"), r
    assert execute(name, "cat", flags=("-i",), stdin="through\n").ok() == "through\n"
    assert execute(name, "sh", "-c", "id -u; pwd; echo $V", flags=("--user", "1000", "-w", "/data", "-e", "V=1")).ok() == "1000\n/data\n1\n"
    execute(name, "sleep", "800", flags=("-d",)).ok()
    wait_for(lambda: "sleep 800" in execute(name, "ps").out)
    t = Tty("podman", "exec", "-it", name, "sh", rows=33, cols=99, env=ROOT_ENV)
    t.expect("# ")
    wait_size(t, "33 99")
    t.send("exit 9\r")
    assert t.wait() == 9


@test
def failed_exec_leaves_it_usable():
    name = start()
    execute(name, "not-there").failed(127, "executable file")
    execute(name, "/etc/noexec").failed(126, "[Pp]ermission denied")
    execute(name, "true", flags=("-w", "/nowhere")).failed(127 if c.IS_RUNC else None)
    assert execute(name, "echo", "usable").ok() == "usable\n"


@test
def stop_and_kill():
    name = start("sh", "-c", "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    wait_for(lambda: podman("logs", name).out == "up\n")
    podman("stop", name).ok()
    assert ended(name) == 3 and podman("logs", name).out == "up\nterm\n"
    name = start()
    podman("stop", "-t", "1", name).ok()
    assert ended(name) == 137
    name = start("sh", "-c", "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done")
    wait_for(lambda: podman("logs", name).out == "up\n")
    podman("kill", "-s", "USR1", name).ok()
    wait_for(lambda: podman("logs", name).out == "up\nusr1\n")
    podman("kill", name).ok()
    assert ended(name) == 137


@test
def pause():
    name = start("sh", "-c", "while :; do echo x; usleep 20000; done")
    wait_for(lambda: len(podman("logs", name).out) > 6)
    podman("pause", name).ok()
    assert inspect(name, ".State.Status") == "paused"
    before = podman("logs", name).out
    time.sleep(0.3)
    assert podman("logs", name).out == before
    podman("unpause", name).ok()
    wait_for(lambda: podman("logs", name).out != before)


@test
def create_start_and_start_again():
    name = fresh()
    podman("create", "--name", name, "--network", "none", *place(podman), IMAGE, "sh", "-c", "echo x >>/count; wc -l </count").ok()
    podman("init", name).ok()  # the state "created" of the runtime
    podman("start", name).ok()
    assert ended(name) == 0
    assert podman("start", "-a", name).out == "2\n"
    created = fresh()
    podman("create", "--name", created, "--network", "none", *place(podman), IMAGE, "true").ok()
    podman("init", created).ok()
    podman("rm", "-f", "-t", "0", created).ok()


@test
def health_checks():
    name = start(flags=("--health-cmd", "test -e /healthy", "--health-interval", "disable", "--health-retries", "1"))
    podman("healthcheck", "run", name).failed(1)
    execute(name, "touch", "/healthy").ok()
    podman("healthcheck", "run", name).ok()


@test
def top_and_stats():
    name = start("sh", "-c", "sleep 900; true")
    assert len(podman("top", name, "pid", "comm").ok().splitlines()) >= 2  # the host's processes: the sentry's, not the guest's
    assert "sleep 900" in podman("top", name, "-ef").ok()  # what podman doesn't know itself is an exec of ps
    stats = json.loads(podman("stats", "--no-stream", "--format", "json", name).ok())[0]
    assert re.match(r"[1-9][0-9.]*[kM]B", stats["mem_usage"]), stats
    assert int(stats["pids"]) >= 1, stats


@test
def cp_with_a_running_one():
    """Section 8.5: podman enters the mount namespace of the container's pid."""
    src, got, vol = c.ROOM + "/pod-cp", c.ROOM + "/pod-got-dir", c.ROOM + "/pod-vol"
    os.makedirs(vol, exist_ok=True)
    with open(src, "w") as f:
        f.write("first\n")
    name = start(flags=("-v", vol + ":/v", "-v", vol + ":/ro:ro", "--tmpfs", "/t"))
    for to in ("/data/new", "/v/new"):
        podman("cp", src, f"{name}:{to}").ok()
        assert execute(name, "cat", to).ok() == "first\n"
    assert os.path.exists(vol + "/new") and execute(name, "cat", "/ro/new").ok() == "first\n"
    podman("cp", src, name + ":/ro/other").failed(text="read-only")
    if not c.IS_RUNC:
        podman("cp", src, name + ":/t/new").failed(text="read-only")  # the guest's own: refused, not lost
    execute(name, "sh", "-c", "mkdir /root/d; echo guest >/root/d/out; ln -s /v /root/d/link; ln -s ../../../../etc/passwd /root/l").ok()
    podman("cp", name + ":/root/d", got).ok()
    with open(got + "/out") as f:
        assert f.read() == "guest\n" and os.readlink(got + "/link") == "/v"
    podman("cp", name + ":/root/d/link/new", c.ROOM + "/pod-got").ok()
    with open(c.ROOM + "/pod-got") as f:
        assert f.read() == "first\n"


@test
def cp_with_a_read_only_one():
    src = c.ROOM + "/pod-cp"
    with open(src, "w") as f:
        f.write("first\n")
    name = start(flags=("--read-only",))
    podman("cp", src, name + ":/data/new").failed(text="read-only")


@test
def cp_in_and_out():
    """The same with a container that doesn't run."""
    name = start("sh", "-c", "test -e /data/new && exec cat /data/new; echo guest >/root/out; test -e /data/new || echo absent")
    assert ended(name) == 0 and podman("logs", name).out == "absent\n"
    src = c.ROOM + "/pod-cp"
    with open(src, "w") as f:
        f.write("first\n")
    podman("cp", src, name + ":/data/new").ok()
    podman("cp", name + ":/root/out", c.ROOM + "/pod-got").ok()
    with open(c.ROOM + "/pod-got") as f:
        assert f.read() == "guest\n"
    assert podman("start", "-a", name).out == "first\n"


@test
def mounted_root_is_shared_with_a_running_one():
    """Section 8.5: what `podman mount` shows is what the guest has, both ways and at once."""
    name = start()
    root = podman("mount", name).ok().strip()
    execute(name, "cat", "/data/new").failed()
    for text in ("first\n", "second, longer\n"):
        with open(root + "/data/new", "w") as f:
            f.write(text)
        assert execute(name, "cat", "/data/new").ok() == text
    execute(name, "sh", "-c", "echo guest >/root/out; rm /data/file").ok()
    with open(root + "/root/out") as f:
        assert f.read() == "guest\n"
    assert not os.path.exists(root + "/data/file")
    podman("unmount", name).ok()


@test
def diff_and_commit():
    name = start("sh", "-c", "echo new >/added; rm /data/file; mkdir /dir; ln -s /added /dir/l; chmod 700 /home; sleep 1000")
    wait_for(lambda: "C /home" in podman("diff", name).out)
    assert {"A /added", "D /data/file", "A /dir", "A /dir/l"} <= set(podman("diff", name).ok().splitlines())
    podman("commit", "-q", name, "committed").ok()
    assert run("sh", "-c", "cat /dir/l; test -e /data/file || echo gone", image="localhost/committed").ok() == "new\ngone\n"
    podman("rmi", "-f", "committed").ok()


def build_with(call, home, flags=()):
    d = home + "/build"
    os.makedirs(d, exist_ok=True)
    with open(d + "/Dockerfile", "w") as f:
        f.write("FROM localhost/box\nRUN echo built >/b && chown user /b\nUSER user\nWORKDIR /w\nRUN id -u >/tmp/id\nCMD cat /b /tmp/id\n")
    with open(d + "/fails", "w") as f:
        f.write("FROM localhost/box\nRUN exit 3\n")
    call("build", "-q", "--isolation", "oci", "--network", "none", *flags, "-t", "built", d, timeout=120).ok()
    assert run(image="localhost/built", call=call).ok() == "built\n1000\n"
    call("build", "--isolation", "oci", "--network", "none", *flags, "-f", d + "/fails", d).failed(
        text="exit status 3")
    call("rmi", "-f", "built").ok()


@test
def build():
    build_with(podman, ROOT_ENV["HOME"])


@test
def dead_sandbox_is_noticed():
    name = start()
    os.kill(int(inspect(name, ".State.Pid")), signal.SIGKILL)
    assert ended(name) == 137


@test
def eight_at_once():
    ps = [subprocess.Popen(["podman", "run", "--rm", "--network", "none", *place(podman), IMAGE, "sh", "-c", f"echo {n}; exit {n}"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ROOT_ENV) for n in range(8)]
    for n, p in enumerate(ps):
        assert p.communicate(timeout=60)[0] == f"{n}\n".encode() and p.returncode == n


# ---- rootless ----


@test
def rootless_run_exec_and_stop():
    as_user_ran.append(True)
    r = run("sh", "-c", "id -u; echo err >&2; exit 3", call=as_user)
    assert (r.status, r.out, r.err) == (3, "0\n", "err\n"), r
    name = start("sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done", call=as_user)
    assert execute(name, "sh", "-c", "touch /f && stat -c %u /f; id -un", call=as_user).ok() == "0\nroot\n"
    assert execute(name, "cat", flags=("-i",), call=as_user, stdin="through\n").ok() == "through\n"
    as_user("stop", name).ok()
    assert ended(name, as_user) == 3


@test
def rootless_files_of_several_owners():
    r = run("sh", "-c", "touch /home/user/f && chown 1000:1000 /home/user/f && stat -c '%u %g' /home/user /home/user/f", call=as_user)
    assert r.ok() == "1000 1000\n1000 1000\n", r
    r = run("sh", "-c", "id -u; touch /home/user/g && stat -c %u /home/user/g; touch /root/x || echo refused", call=as_user, flags=("--user", "user"))
    assert r.ok() == "1000\n1000\nrefused\n", r


@test
def rootless_volumes_tmpfs_and_limits():
    run("sh", "-c", "echo kept >/v/f; df /t | grep -c tmpfs; touch /x", call=as_user, flags=("-v", "uvol:/v", "--tmpfs", "/t", "--read-only")).failed(1)
    assert run("cat", "/v/f", call=as_user, flags=("-v", "uvol:/v")).ok() == "kept\n"
    as_user("volume", "rm", "uvol").ok()


@test
def rootless_build():
    build_with(as_user, USER_ENV["HOME"])


@test
def rootless_interactive():
    t = Tty("setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "podman", "run", "--rm", "-it", "--network", "none", IMAGE, "sh",
            rows=31, cols=97, env=USER_ENV)
    t.expect("# ")
    wait_size(t, "31 97")
    t.send("exit 7\r")
    assert t.wait() == 7


# ---- checkpoint ----


@test
def checkpoint_is_podmans_to_refuse():
    """podman looks for CRIU's library before it asks the runtime; without it a container just goes on."""
    name = start()
    podman("container", "checkpoint", name).failed(text="(?i)criu")
    assert execute(name, "echo", "alive").ok() == "alive\n"


if __name__ == "__main__":
    c.needs("podman", "conmon", "runc", "setpriv", "newuidmap", "unshare", "ip")
    c.enter()
    c.main(begin, after)
