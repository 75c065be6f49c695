#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dockerd with holdfast as its default runtime: what `docker` can ask for."""
import json
import os
import re
import signal
import subprocess
import time

import _clients as c
from _clients import converse, Failed, test, Tty, wait_for, wait_size

SOCK = c.ROOM + "/docker.sock"
IMAGE = "box"
STATE = c.ROOM + "/docker-exec/runtime-runc/moby"
# what a client of 20.10 may use that Debian's default profile of newer kernels lacks
SECCOMP = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
           "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 44}]}
numbers = iter(range(1, 10000))


def docker(*args, **kw):
    return c.run("docker", "-H", "unix://" + SOCK, *args, **kw)


def fresh():
    return f"d{next(numbers)}"


def run(*cmd, flags=(), image=IMAGE, **kw):
    """`docker run --rm` of a command; its Result."""
    return docker("run", "--rm", "--network", "none", *flags, image, *cmd, **kw)


def start(*cmd, flags=(), network="none"):
    """A detached container; its name."""
    name = fresh()
    docker("run", "-d", "--name", name, "--network", network, *flags, IMAGE, *(cmd or ("sleep", "1000"))).ok()
    return name


def execute(name, *cmd, flags=(), **kw):
    return docker("exec", *flags, name, *cmd, **kw)


def inspect(name, what):
    return docker("inspect", "-f", "{{" + what + "}}", name).ok().strip()


def state(name):
    return inspect(name, ".State.Status")


def ended(name, seconds=20):
    wait_for(lambda: state(name) == "exited", seconds, f"{name} to end")
    return int(inspect(name, ".State.ExitCode"))


def start_dockerd():
    return c.start_daemon("dockerd", ["dockerd", "--config-file", c.ROOM + "/daemon.json"],
                          lambda: os.path.exists(SOCK) and docker("info").status == 0, 60)


def begin():
    bridges = c.run("iptables", "-t", "nat", "-L").status == 0
    conf = {"hosts": ["unix://" + SOCK], "data-root": c.ROOM + "/docker", "exec-root": c.ROOM + "/docker-exec",
            "pidfile": c.ROOM + "/docker.pid", "storage-driver": "overlay2", "oom-score-adjust": 0, "cgroup-parent": "/" + c.TAG,
            "runtimes": {"holdfast": {"path": c.RUNTIME}, "debugged": {"path": c.RUNTIME, "runtimeArgs": ["--debug"]}},
            "default-runtime": "holdfast", "iptables": bridges, "ip6tables": False, "bridge": "none",
            "exec-opts": ["native.cgroupdriver=cgroupfs"], "shutdown-timeout": 5}
    with open(c.ROOM + "/daemon.json", "w") as f:
        json.dump(conf, f)
    start_dockerd()
    docker("load", "-i", c.image()).ok()


def leftovers():
    found = [f"process {p}: {cmd}" for p, cmd in c.processes().items() if "containerd-shim" in cmd]
    found += [f"process {p}: {cmd}" for p, cmd in c.runtime_processes().items()]
    found += [f"{STATE}/{n}" for n in (os.listdir(STATE) if os.path.isdir(STATE) else [])]
    found += ["cgroup " + d for t in os.listdir(c.CGROUPS) for d in c.cgroup_dirs_in(f"{t}/{c.TAG}")]
    return found


def after():
    names = docker("ps", "-aq").out.split()
    if names:
        docker("rm", "-f", *names)
    c.nothing_left(leftovers)


# ---- run ----


@test
def run_passes_output_and_status():
    r = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (r.status, r.out, r.err) == (3, "out\n", "err\n"), r
    assert run("true").status == 0
    assert run("cat", flags=("-i",), stdin="in\n" * 30000).ok() == "in\n" * 30000


@test
def run_refuses_with_the_right_status():
    run("not-there").failed(127, 'exec: "not-there": executable file not found in')
    run("/not/there").failed(127, "no such file or directory")
    run("/etc/noexec").failed(126, "permission denied")
    run("true", flags=("--user", "nobody-here")).failed(125 if c.IS_RUNC else None, "unable to find user nobody-here")


@test
def run_interactive():
    t = Tty("docker", "-H", "unix://" + SOCK, "run", "--rm", "-it", "--network", "none", IMAGE, "sh", rows=31, cols=97)
    t.expect("# ")
    converse(t)


@test
def run_user_groups_and_environment():
    r = run("sh", "-c", "id; echo $A $HOME; hostname; pwd", flags=("-u", "user", "-e", "A=b", "-h", "named", "-w", "/data", "--group-add", "77"))
    assert r.ok().splitlines() == ["uid=1000(user) gid=1000(user) groups=77,1000(user),2000(extra)", "b /home/user", "named", "/data"], r


@test
def run_read_only_tmpfs_and_shm():
    r = run("sh", "-c", "touch /x; echo $?; touch /t/x && df -k /t | tail -1 | cut -c1-40; df -k /dev/shm | tail -1", flags=(
        "--read-only", "--tmpfs", "/t:size=1m", "--shm-size", "2m"))
    assert r.ok().startswith("1\n") and " 1024 " in r.out and " 2048 " in r.out, r


@test
def run_with_init():
    name = start("sh", "-c", "sleep 900 & exec sleep 901", flags=("--init",))
    assert "docker-init" in execute(name, "cat", "/proc/1/cmdline").ok()
    docker("stop", "-t", "5", name).ok()
    assert ended(name) == 143


@test
def the_runtime_is_ours():
    name = start()
    assert inspect(name, ".HostConfig.Runtime") == "holdfast"
    if not c.IS_RUNC:
        assert "holdfast" in c.runtime_processes().get(int(inspect(name, ".State.Pid")), "")


@test
def runtime_arguments():
    """runtimeArgs make dockerd wrap the runtime into a shell script."""
    r = docker("run", "--rm", "--network", "none", "--runtime", "debugged", IMAGE, "echo", "through a script")
    assert r.ok() == "through a script\n"


# ---- security options (section 8.8) ----


@test
def no_new_privileges_and_capabilities():
    show = ("grep", "-E", "NoNewPrivs|CapEff|CapBnd|CapPrm", "/proc/self/status")
    assert run(*show).ok() == "CapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\n"
    r = run(*show, flags=("--security-opt", "no-new-privileges", "--cap-drop", "ALL", "--cap-add", "NET_RAW"))
    assert r.ok() == "CapPrm:\t0000000000002000\nCapEff:\t0000000000002000\nCapBnd:\t0000000000002000\nNoNewPrivs:\t1\n", r
    assert run(*show, flags=("-u", "1000")).ok().splitlines()[1] == "CapEff:\t0000000000000000"


@test
def seccomp_profiles():
    path = c.ROOM + "/seccomp.json"
    with open(path, "w") as f:
        json.dump(SECCOMP, f)
    show = "grep ^Seccomp: /proc/self/status; mkdir /x"
    r = run("sh", "-c", show, flags=("--security-opt", "seccomp=" + path))
    assert r.out == "Seccomp:\t2\n" and r.status == 1 and "Channel number out of range" in r.err, r
    assert run("sh", "-c", show).ok() == "Seccomp:\t2\n"
    assert run("sh", "-c", show, flags=("--security-opt", "seccomp=unconfined")).ok() == "Seccomp:\t0\n"


@test
def ulimits():
    r = run("sh", "-c", "ulimit -n; ulimit -Hn; ulimit -c", flags=("--ulimit", "nofile=100:200", "--ulimit", "core=0"))
    assert r.ok() == "100\n200\n0\n", r


@test
def sysctls():
    r = run("cat", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/msgmax", "/proc/sys/fs/mqueue/msg_max",
            flags=("--sysctl", "kernel.shmmax=1234567", "--sysctl", "kernel.msgmax=4096", "--sysctl", "fs.mqueue.msg_max=20"))
    assert r.ok() == "1234567\n4096\n20\n", r


@test
def devices():
    r = run("sh", "-c", "head -c 4 /dev/seen | wc -c; stat -c %t:%T /dev/seen", flags=("--device", "/dev/zero:/dev/seen:r"))
    assert r.ok() == "4\n1:5\n", r
    if os.path.exists("/dev/loop-control"):
        r = run("sh", "-c", "test -c /dev/loop-control && cat /dev/loop-control", flags=("--device", "/dev/loop-control"))
        if not c.IS_RUNC:  # a name with nothing behind it: guests reach no device of the host
            r.failed(1, "No such device or address")


@test
def masked_and_read_only_paths():
    r = run("sh", "-c", "cat /proc/kcore | wc -c; ls /proc/acpi /sys/firmware | grep -c -v :; echo 1 >/proc/sys/kernel/hostname")
    assert r.out.startswith("0\n"), r
    assert "Read-only file system" in r.err or "Permission denied" in r.err, r


@test
def privileged():
    """Every capability, but of the sandbox's own kernel: runc needs the host to have them all, too."""
    if c.IS_RUNC and c.capabilities_missing():
        return
    r = run("sh", "-c", "grep -E 'CapEff|Seccomp:' /proc/self/status; mount -t tmpfs t /tmp && echo mounted; hostname changed && hostname",
            flags=("--privileged",))
    lines = r.ok().splitlines()
    assert lines[1:] == ["Seccomp:\t0", "mounted", "changed"] and int(lines[0].split()[1], 16) & 0x200000, r


# ---- resources ----


@test
def pids_limit_leaves_room_for_the_sandbox():
    """Section 8.2: the limit is the guest's, the sandbox's own threads don't count."""
    r = run("sh", "-c", "n=0; while [ $n -lt 12 ] && sleep 5 & do n=$((n+1)); done 2>/dev/null; jobs | wc -l", flags=("--pids-limit", "8"))
    assert "fork" in r.err or r.status, r
    r = run("sh", "-c", "for i in 1 2 3 4 5; do sleep 0.1 & done; wait; echo all", flags=("--pids-limit", "8"))
    assert r.ok() == "all\n", r
    name = start(flags=("--pids-limit", "3"))
    assert execute(name, "echo", "in").ok() == "in\n"


@test
def out_of_memory():
    """Section 8.2: 137 and OOMKilled."""
    name = start("tail", "/dev/zero", flags=("--memory", "32m"))
    assert ended(name) == 137
    assert inspect(name, ".State.OOMKilled") == "true"


@test
def limits_are_seen_inside():
    r = run("sh", "-c", "nproc; grep MemTotal /proc/meminfo", flags=("--cpus", "1", "--memory", "64m", "--cpuset-cpus", "0"))
    if not c.IS_RUNC:
        assert r.ok().split() == ["1", "MemTotal:", "65536", "kB"], r
    name = start(flags=("--memory", "64m", "--cpu-shares", "512"))
    path = next(p for p in (f"{c.CGROUPS}/memory{cgroup_of(name, 'memory')}/memory.limit_in_bytes",
                            f"{c.CGROUPS}{cgroup_of(name, '')}/memory.max") if os.path.exists(p))
    with open(path) as f:
        assert int(f.read()) >= 64 << 20


def cgroup_of(name, controller):
    with open(f"/proc/{inspect(name, '.State.Pid')}/cgroup") as f:
        for line in f:
            _, names, path = line.strip().split(":", 2)
            if names == controller:
                return path
    return ""


@test
def update_a_running_one():
    name = start(flags=("--memory", "64m"))
    docker("update", "--memory", "96m", "--memory-swap", "200m", "--cpu-shares", "300", "--pids-limit", "50", name).ok()
    assert execute(name, "echo", "alive").ok() == "alive\n"
    if not c.IS_RUNC:
        assert execute(name, "grep", "MemTotal", "/proc/meminfo").ok().split()[1] == str(96 << 10)


@test
def stats_and_top():
    name = start("sh", "-c", "sleep 900; true")
    r = docker("stats", "--no-stream", "--format", "{{.MemUsage}} {{.PIDs}}", name)
    assert re.match(r"[1-9][0-9.]*[kKM]iB / .* [1-9]", r.ok()), r
    assert len(docker("top", name).ok().splitlines()) >= 2


# ---- a container that runs ----


@test
def exec_with_and_without_terminal():
    name = start()
    r = execute(name, "sh", "-c", "echo out; echo err >&2; exit 4")
    assert (r.status, r.out, r.err) == (4, "out\n", "err\n"), r
    assert execute(name, "cat", flags=("-i",), stdin="through\n").ok() == "through\n"
    assert execute(name, "sh", "-c", "id -u; pwd; echo $V; grep CapEff /proc/self/status", flags=("-u", "1000", "-w", "/data", "-e", "V=1")).ok() == \
        "1000\n/data\n1\nCapEff:\t0000000000000000\n"
    if not (c.IS_RUNC and c.capabilities_missing()):
        r = execute(name, "grep", "CapEff", "/proc/self/status", flags=("--privileged",))
        assert int(r.ok().split()[1], 16) & 0x200000, r
    execute(name, "sleep", "800", flags=("-d",)).ok()
    wait_for(lambda: "sleep 800" in execute(name, "ps").out)
    t = Tty("docker", "-H", "unix://" + SOCK, "exec", "-it", name, "sh", rows=33, cols=99)
    t.expect("# ")
    wait_size(t, "33 99")
    t.send("exit 9\r")
    assert t.wait() == 9


@test
def failed_exec_leaves_it_usable():
    """Section 8.6."""
    name = start()
    execute(name, "not-there").failed(text="executable file not found in")
    execute(name, "/etc/noexec").failed(126, "permission denied")
    execute(name, "true", flags=("-u", "nobody-here")).failed(text="unable to find user nobody-here")
    assert execute(name, "echo", "usable").ok() == "usable\n"


@test
def logs_attach_and_wait():
    name = start("sh", "-c", "echo one; echo two >&2; read line; echo got $line; exit 5", flags=("-i",))
    wait_for(lambda: docker("logs", name).out == "one\n")
    assert docker("logs", name).err == "two\n"
    waiting = subprocess.Popen(["docker", "-H", "unix://" + SOCK, "wait", name], stdout=subprocess.PIPE, env=c.ENV)
    attached = subprocess.Popen(["docker", "-H", "unix://" + SOCK, "attach", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=c.ENV)
    time.sleep(0.3)  # so that it listens before there is an answer
    attached.stdin.write(b"hello\n")
    attached.stdin.flush()  # and left open: at its end docker doesn't wait for output
    assert attached.stdout.read() == b"got hello\n"
    assert attached.wait(20) == 5
    assert waiting.communicate(timeout=20)[0] == b"5\n"
    assert docker("logs", "--tail", "1", name).out == "got hello\n"


@test
def stop_and_kill():
    name = start("sh", "-c", "trap 'echo term; exit 3' TERM; while :; do sleep 0.05; done")
    time.sleep(0.3)
    docker("stop", name).ok()
    assert ended(name) == 3 and docker("logs", name).out == "term\n"
    name = start()  # pid 1 without a handler ignores TERM
    begun = time.monotonic()
    docker("stop", "-t", "1", name).ok()
    assert ended(name) == 137 and time.monotonic() - begun < 8
    name = start("sh", "-c", "trap 'echo usr1' USR1; while :; do sleep 0.05; done")
    time.sleep(0.3)
    docker("kill", "-s", "USR1", name).ok()
    wait_for(lambda: docker("logs", name).out == "usr1\n")
    docker("kill", name).ok()
    assert ended(name) == 137
    docker("kill", name).failed(1, "is not running")


@test
def pause():
    name = start("sh", "-c", "while :; do echo x; usleep 20000; done")
    wait_for(lambda: len(docker("logs", name).out) > 6)
    docker("pause", name).ok()
    assert state(name) == "paused"
    before = docker("logs", name).out
    time.sleep(0.3)
    assert docker("logs", name).out == before
    execute(name, "true").failed(text="is paused")
    docker("unpause", name).ok()
    wait_for(lambda: docker("logs", name).out != before)
    docker("pause", name).ok()
    docker("rm", "-f", name).ok()


@test
def restart_and_its_policies():
    name = start("sh", "-c", "echo run; sleep 1000")
    docker("restart", "-t", "0", name).ok()
    wait_for(lambda: docker("logs", name).out == "run\nrun\n")
    name = start("sh", "-c", "echo again; exit 2", flags=("--restart", "on-failure:2"))
    wait_for(lambda: inspect(name, ".RestartCount") == "2" and state(name) == "exited")
    assert docker("logs", name).out == "again\n" * 3
    name = start(flags=("--restart", "always"))
    pid = inspect(name, ".State.Pid")
    os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: inspect(name, ".State.Pid") not in (pid, "0"), why="a killed sandbox to be restarted")
    assert execute(name, "echo", "back").ok() == "back\n"


@test
def start_again_keeps_files():
    name = start("sh", "-c", "echo x >>/count; wc -l </count")
    assert ended(name) == 0
    docker("start", name).ok()
    wait_for(lambda: docker("logs", name).out == "1\n2\n")
    docker("rename", name, name + "-new").ok()
    assert docker("start", "-a", name + "-new").out == "3\n"


@test
def health_checks():
    name = start(flags=("--health-cmd", "test -e /healthy", "--health-interval", "1s", "--health-retries", "1"))
    wait_for(lambda: inspect(name, ".State.Health.Status") == "unhealthy")
    execute(name, "touch", "/healthy").ok()
    wait_for(lambda: inspect(name, ".State.Health.Status") == "healthy")


@test
def daemon_restart_with_live_restore():
    """Containers of a dockerd that goes away are found again."""
    _, p = c.daemons[-1]
    docker("info").ok()
    name = start("sh", "-c", "trap 'exit 6' TERM; while :; do sleep 0.1; done", flags=("--restart", "no"))
    with open(c.ROOM + "/daemon.json") as f:
        conf = json.load(f)
    conf["live-restore"] = True
    with open(c.ROOM + "/daemon.json", "w") as f:
        json.dump(conf, f)
    p.send_signal(signal.SIGHUP)
    wait_for(lambda: docker("info", "-f", "{{.LiveRestoreEnabled}}").out == "true\n")
    c.daemons.pop()
    p.terminate()
    p.wait(20)
    wait_for(lambda: not os.path.exists(c.ROOM + "/docker.pid"))
    start_dockerd()
    assert state(name) == "running"
    assert execute(name, "echo", "alive").ok() == "alive\n"
    docker("stop", name).ok()
    assert ended(name) == 6


# ---- files ----


@test
def volumes():
    docker("volume", "create", "vol").ok()
    run("sh", "-c", "echo kept >/v/f", flags=("-v", "vol:/v")).ok()
    assert run("cat", "/v/f", flags=("-v", "vol:/v:ro")).ok() == "kept\n"
    run("touch", "/v/x", flags=("-v", "vol:/v:ro")).failed(1, "Read-only")
    assert run("cat", "/data/file", flags=("-v", "filled:/data")).ok() == "from the image\n"
    a = start("sh", "-c", "while ! test -e /v/flag; do usleep 20000; done; echo seen", flags=("-v", "vol:/v"))
    run("touch", "/v/flag", flags=("-v", "vol:/v")).ok()
    assert ended(a) == 0
    docker("rm", "-f", a)
    docker("volume", "rm", "vol", "filled").ok()


@test
def cp_in_and_out_of_a_running_one():
    """Section 8.5: files change behind the sandbox's back, in both directions."""
    name = start()
    src = c.ROOM + "/cp"
    with open(src, "w") as f:
        f.write("first\n")
    execute(name, "ls", "/data").ok()  # so that a name could have been cached as absent
    execute(name, "cat", "/data/new").failed()
    docker("cp", src, name + ":/data/new").ok()
    assert execute(name, "cat", "/data/new").ok() == "first\n"
    with open(src, "w") as f:
        f.write("second, longer\n")
    docker("cp", src, name + ":/data/new").ok()
    assert execute(name, "cat", "/data/new").ok() == "second, longer\n"
    execute(name, "sh", "-c", "echo guest >/root/out; rm /data/file").ok()
    docker("cp", name + ":/root/out", c.ROOM + "/got").ok()
    with open(c.ROOM + "/got") as f:
        assert f.read() == "guest\n"
    docker("cp", name + ":/data/file", c.ROOM + "/got").failed()
    docker("cp", src, name + ":/data/file").ok()
    assert execute(name, "cat", "/data/file").ok() == "second, longer\n"


@test
def diff_and_commit():
    name = start("sh", "-c", "echo new >/added; rm /data/file; mkdir /dir; ln -s /added /dir/l; chmod 700 /home; sleep 1000")
    wait_for(lambda: "C /home" in docker("diff", name).out)
    assert {"A /added", "D /data/file", "A /dir", "A /dir/l", "C /home", "C /data"} <= set(docker("diff", name).ok().splitlines())
    docker("commit", "-m", "changed", name, "committed").ok()
    assert run("sh", "-c", "cat /dir/l; test -e /data/file || echo gone", image="committed").ok() == "new\ngone\n"
    docker("rmi", "committed").ok()


@test
def build():
    d = c.ROOM + "/build"
    os.makedirs(d, exist_ok=True)
    with open(d + "/Dockerfile", "w") as f:
        f.write("FROM box\nRUN echo built >/b && chown user /b\nUSER user\nWORKDIR /w\nRUN id -u >/tmp/id\nCMD cat /b /tmp/id\n")
    docker("build", "-q", "--network", "none", "-t", "built", d, timeout=120, env=dict(c.ENV, DOCKER_BUILDKIT="0")).ok()
    assert run(image="built").ok() == "built\n1000\n"
    docker("rmi", "-f", "built").ok()


# ---- network ----


@test
def bridge_network():
    """libnetwork's prestart hook finds the container's network namespace by the pid it is told."""
    if c.run("iptables", "-t", "nat", "-L").status:
        raise Failed("this machine has no iptables; nothing but --network none can be tested")
    docker("network", "create", "--subnet", "172.31.99.0/24", "br").ok()
    try:
        name = start(network="br")
        addr = inspect(name, ".NetworkSettings.Networks.br.IPAddress")
        assert addr.startswith("172.31.99."), addr
        pid = inspect(name, ".State.Pid")
        seen = c.run("nsenter", "-t", pid, "-n", "ip", "-o", "addr")
        if not c.IS_RUNC:
            # the namespace that the hook was given is kept by its bind mount, the sandbox's own is empty
            key = inspect(name, ".NetworkSettings.SandboxKey")
            seen = c.run("nsenter", "--net=" + key, "ip", "-o", "addr")
        assert addr in seen.ok(), seen
        assert execute(name, "cat", "/etc/resolv.conf").ok().count("127.0.0.11") == 1
        assert addr in execute(name, "cat", "/etc/hosts").ok()
        docker("rm", "-f", name).ok()
    finally:
        docker("network", "rm", "br")


if __name__ == "__main__":
    c.needs("dockerd", "docker", "containerd", "runc", "unshare", "ip", "iptables")
    c.enter()
    c.main(begin, after)
