# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests that drive real OCI clients: daemons in a room of their own, images, TAP.

enter() puts the test into its own mount, network, pid and ipc namespaces: /run is empty, the network is lo alone, every
file of the daemons is on a tmpfs below /run that goes with the namespace, and so does every process, whatever a
client or a runtime forgot. Only cgroups would stay; all are made below names that hold TAG, and end() removes them.

The runtime under test is $HOLDFAST; RUNTIME=runc runs the same tests with runc, which is how they were written.
"""
import fcntl
import hashlib
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import time
import traceback

HOLDFAST = os.environ["HOLDFAST"]
RUNC = "/usr/sbin/runc"
RUNTIME = {"runc": RUNC}.get(os.environ.get("RUNTIME", ""), HOLDFAST)
IS_RUNC = RUNTIME == RUNC
TAG = f"hfoci{os.environ.get('HFOCI_PID', os.getpid())}"
ROOM = "/run/room"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Debian's clients, not what else /usr/local holds.
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": ROOM + "/home", "LC_ALL": "C"}
CGROUPS = "/sys/fs/cgroup"
tests = []
daemons = []
image_numbers = iter(range(1, 1000))


def test(fn):
    tests.append(fn)
    return fn


class Failed(Exception):
    pass


class Result:
    """What a command did: .status, .out, .err as text."""

    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    def __repr__(self):
        return f"{' '.join(self.argv)}: status {self.status}\nstdout: {self.out[-1500:]}\nstderr: {self.err[-1500:]}"

    def ok(self):
        if self.status:
            raise Failed(repr(self))
        return self.out

    def failed(self, status=None, text=None):
        if self.status == 0 or (status is not None and self.status != status):
            raise Failed(f"expected status {status if status is not None else 'not 0'}: {self!r}")
        if text is not None and not re.search(text, self.err + self.out):
            raise Failed(f"expected '{text}': {self!r}")
        return self.err


def run(*argv, timeout=60, stdin=None, env=None, cwd="/", **kw):
    """Runs a command to its end; what it leaves behind may keep its output open, so that goes to files."""
    argv = [str(a) for a in argv]
    with tempfile.TemporaryFile(dir=ROOM) as out, tempfile.TemporaryFile(dir=ROOM) as err:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE, stdout=out,
                             stderr=err, env=env or ENV, cwd=cwd, start_new_session=True, **kw)
        try:
            p.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            p.wait()
            p.returncode = -1
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode(errors="replace"))
    if p.returncode == -1:
        raise Failed(f"no end within {timeout} s: {Result(argv, None, *texts)!r}")
    return Result(argv, p.returncode, *texts)


class Tty:
    """A command on a terminal of its own."""

    def __init__(self, *argv, rows=24, cols=80, env=None):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir("/")
            os.execvpe(argv[0], [str(a) for a in argv], env or ENV)
        self.resize(rows, cols)

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern, timeout=20):
        """Reads until @pattern has come; the match. What came before it is forgotten."""
        end = time.monotonic() + timeout
        while True:
            m = re.search(pattern, self.text)
            if m:
                self.text = self.text[m.end():]
                return m
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise Failed(f"terminal: no '{pattern}' in {self.text!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise Failed(f"terminal: end before '{pattern}': {self.text!r}")
            self.text += data.decode(errors="replace")

    def wait(self, timeout=20):
        """The exit status, what was still written read and forgotten."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    time.sleep(0.02)
        os.kill(self.pid, 9)
        raise Failed(f"terminal: no end within {timeout} s: {self.text!r}")


def wait_size(t, size):
    """The size reaches the guest some time after the client heard of it."""
    for _ in range(30):
        t.send("stty size\r")
        if t.expect(r"\n(\d+ \d+)\r+\n")[1] == size:
            return
        t.expect("# ")
        time.sleep(0.05)
    raise Failed(f"the terminal didn't become {size}")


def resized(t, rows, cols):
    """The client's terminal gets another size, and it is told."""
    t.resize(rows, cols)
    os.kill(t.pid, signal.SIGWINCH)
    wait_size(t, f"{rows} {cols}")


def converse(t):
    """A shell on terminal @t of 31 rows and 97 columns that is at its prompt: its size, a change of it, echo, ^C, its status."""
    wait_size(t, "31 97")
    resized(t, 40, 120)
    t.send("echo g''o; cat\r")
    t.expect("\ngo\r+\n")
    t.send("hi\r")
    t.expect("hi\r+\nhi\r+\n")  # cat has the terminal now: busybox' shell loses a ^C that comes before that
    t.send("\x03")
    t.expect("# ")
    t.send("echo still $((20+1))\r")
    t.expect("still 21\r+\n")
    t.send("exit 7\r")
    assert t.wait() == 7


def wait_for(what, seconds=20.0, why="condition"):
    """Polls until what() is true; its value."""
    end = time.monotonic() + seconds
    while True:
        v = what()
        if v:
            return v
        if time.monotonic() > end:
            raise Failed(f"{why}: not within {seconds} s (last: {v!r})")
        time.sleep(0.03)


def skip_all(why):
    print(f"# {why}")
    sys.exit(77)


def capabilities_missing():
    """Whether root lacks one here: then runc can't make privileged containers."""
    with open("/proc/self/status") as f, open("/proc/sys/kernel/cap_last_cap") as last:
        effective = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff"))
        return effective != (2 << int(last.read())) - 1


# ---- the room ----


def needs(*programs):
    for p in programs:
        if not shutil.which(p, path=ENV["PATH"]):
            skip_all(f"{p} is not installed")
    if os.geteuid() != 0:
        skip_all("these tests need root")


def enter():
    """Into the room; returns in there, as a child of the namespaces' first process."""
    if os.environ.get("HFOCI_PID"):
        settle()
        return
    env = dict(os.environ, HFOCI_PID=str(os.getpid()))
    os.execvpe("unshare", ["unshare", "-mnpi", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
                           sys.executable, *sys.argv], env)


def settle():
    child = os.fork()
    if child:  # the first process: reaps whatever is orphaned
        while True:
            pid, status = os.wait()
            if pid == child:
                end_cgroups()
                os._exit(os.waitstatus_to_exitcode(status) & 0xff)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for d in (ROOM, ROOM + "/home", "/run/lock", "/run/netns"):
        os.makedirs(d)
    # shims and podman's locks: nothing of theirs in the host's directories
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm"], check=True)
    for d in ("/var/lib/cni", "/etc/cni/net.d", "/var/tmp"):
        if os.path.isdir(d):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "room", d], check=True)


def end_cgroups():
    """Removes the cgroups of the room; their names."""
    found = []
    for top in [CGROUPS] + [os.path.join(CGROUPS, d) for d in os.listdir(CGROUPS)]:
        if os.path.islink(top) or not os.path.isdir(top):
            continue
        for name in os.listdir(top):
            if TAG in name:
                for d, _, _ in os.walk(os.path.join(top, name), topdown=False):
                    found.append(d)
                    try:
                        os.rmdir(d)
                    except OSError:
                        pass  # the processes in it are going
    return found


def start_daemon(name, argv, ready, seconds=30):
    """Starts a daemon whose output goes to ROOM/NAME.log; its process."""
    log = open(f"{ROOM}/{name}.log", "ab")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENV, cwd="/",
                         start_new_session=True)
    log.close()
    daemons.append((name, p))

    def up():
        if p.poll() is not None:
            raise Failed(f"{name} ended with {p.returncode}:\n" + daemon_log(name))
        return ready()
    try:
        wait_for(up, seconds, name)
    except Failed as e:
        raise Failed(f"{e}\n{daemon_log(name)}") from None
    return p


def daemon_log(name, lines=15):
    try:
        with open(f"{ROOM}/{name}.log", errors="replace") as f:
            return "".join(f.readlines()[-lines:])
    except OSError:
        return ""


def alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes():
    """{pid: command line} of the room, without zombies and this test."""
    found = {}
    for p in os.listdir("/proc"):
        if not p.isdigit() or int(p) in (1, os.getpid()):
            continue
        try:
            if not alive(p):
                continue
            with open(f"/proc/{p}/cmdline", "rb") as f:
                found[int(p)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            pass
    return found


def runtime_processes():
    """Processes of the runtime: sentries, gofers, stubs, waiters, container processes of runc."""
    known = ("containerd", "dockerd", "podman", "conmon", "docker-proxy", "slirp4netns", "catatonit", "ctr ", "runc init")
    return {p: c for p, c in processes().items() if not any(k in c for k in known)}


def container_mounts(word):
    with open("/proc/self/mountinfo") as f:
        return [line.split()[4] for line in f if word in line.split()[4]]


def cgroup_dirs_in(path):
    """The cgroups below PATH of each hierarchy, itself not counted."""
    top = os.path.join(CGROUPS, path)
    return [os.path.join(d, n) for d, dirs, _ in os.walk(top) for n in dirs]


def nothing_left(leftovers):
    """Waits until leftovers() is empty; fails with what it names."""
    end = time.monotonic() + 8
    while True:
        found = leftovers()
        if not found:
            return
        if time.monotonic() > end:
            raise Failed("left behind: " + "; ".join(found))
        time.sleep(0.05)


# ---- images ----

APPLETS = ("sh ash cat echo ls sleep true false id env pwd touch rm mkdir rmdir kill ps mount umount grep sed head tail wc dd "
           "hostname stty tty readlink stat test printf seq cp mv ln chmod chown date sort tr cut expr find xargs awk free "
           "nproc ulimit nice yes mknod df du tar md5sum ip ping nc wget trap usleep uname sync timeout").split()


def add_file(tar, name, data=b"", mode=0o644, kind=tarfile.REGTYPE, link="", uid=0):
    t = tarfile.TarInfo(name)
    t.size, t.mode, t.type, t.linkname, t.uid, t.gid = len(data), mode, kind, link, uid, uid
    tar.addfile(t, io.BytesIO(data))


def layer(programs):
    """A layer: busybox, two users, @programs {name: path of a static program}."""
    buf = io.BytesIO()
    with tarfile.open(fileobj=buf, mode="w") as tar:
        for d in ("bin", "dev", "etc", "proc", "sys", "root", "run", "var", "home", "data", "usr", "usr/bin"):
            add_file(tar, d, mode=0o755, kind=tarfile.DIRTYPE)
        add_file(tar, "tmp", mode=0o1777, kind=tarfile.DIRTYPE)
        add_file(tar, "home/user", mode=0o755, kind=tarfile.DIRTYPE, uid=1000)
        with open("/bin/busybox", "rb") as f:
            add_file(tar, "bin/busybox", f.read(), 0o755)
        for a in APPLETS:
            add_file(tar, f"bin/{a}", mode=0o777, kind=tarfile.SYMTYPE, link="busybox")
        for name, path in programs.items():
            with open(path, "rb") as f:
                add_file(tar, f"bin/{name}", f.read(), 0o755)
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:u:/home/user:/bin/sh\n")
        add_file(tar, "etc/group", b"root:x:0:\nuser:x:1000:\nextra:x:2000:user\n")
        add_file(tar, "etc/noexec", b"#!/bin/sh\n", 0o644)
        add_file(tar, "data/file", b"from the image\n")
    return buf.getvalue()


def unpack(where):
    """The image's files into a directory."""
    with tarfile.open(fileobj=io.BytesIO(layer({}))) as tar:
        tar.extractall(where, numeric_owner=True)


def image(name="docker.io/library/box:latest", programs=None, **config):
    """An archive that `ctr image import`, `podman load` and `docker load` take; @config as in an image's "config"."""
    path = f"{ROOM}/image{next(image_numbers)}.tar"
    data = layer(programs or {})
    conf = json.dumps({
        "architecture": "amd64", "os": "linux", "created": "2024-01-01T00:00:00Z",
        "config": {"Env": ["PATH=" + PATH, "IMAGE=box"], "Cmd": ["/bin/sh"], "WorkingDir": "/", **config},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest()]},
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": "tests"}]}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        add_file(tar, "config.json", conf)
        add_file(tar, "layer.tar", data)
        add_file(tar, "manifest.json", manifest)
    return path


# ---- TAP ----


def main(begin, after=None):
    """Runs the tests whose names contain an argument; begin() starts the daemons, after(fn) cleans up after a test."""
    failed = 0
    chosen = [t for t in tests if len(sys.argv) < 2 or any(w in t.__name__ for w in sys.argv[1:])]
    begin()
    for n, fn in enumerate(chosen, 1):
        start = time.monotonic()
        try:
            fn()
            if after:
                after()
            print(f"ok {n} - {fn.__name__}", flush=True)
        except Exception:  # a test's failure is its message
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            print(f"not ok {n} - {fn.__name__}", flush=True)
            try:
                if after:
                    after()
            except Exception as e:
                print(f"# cleaning up: {e}")
        if os.environ.get("TIMES"):
            print(f"# {time.monotonic() - start:.2f} s", flush=True)
    print(f"1..{len(chosen)}")
    for _, p in reversed(daemons):
        if p.poll() is None:
            p.terminate()
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
    sys.stdout.flush()
    os._exit(failed != 0)
