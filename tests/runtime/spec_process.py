#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The process object of config.json, and descriptors passed on."""
import json
import os
import socket
import subprocess
import threading

from _lib import HOLDFAST, STATE, TOP, WORK, bundle, hf, main, test


def run(script, edit=None, status=0, options=(), **kw):
    def change(c):
        c["process"].pop("rlimits", None)
        if edit:
            edit(c["process"])
    s, out, err = hf("run", *options, "--bundle", bundle("process", ("/bin/sh", "-c", script), change), "p", **kw)
    assert s == status, (s, out, err)
    return out if s == 0 else err


def status_of(out):
    return {k: v.split() for k, _, v in (l.partition(":") for l in out.splitlines())}


@test
def user_and_groups():
    def edit(p):
        p["user"] = {"uid": 1000, "gid": 1001, "additionalGids": [2000, 5], "umask": 0o27}
    st = status_of(run("cat /proc/self/status; umask > /dev/shm/u", edit))
    assert st["Uid"] == ["1000"] * 4 and st["Gid"] == ["1001"] * 4, st
    assert sorted(st["Groups"]) == ["2000", "5"] and st["Umask"] == ["0027"], st


@test
def capabilities():
    def edit(p):
        p["capabilities"] = {"bounding": ["CAP_CHOWN", "CAP_KILL", "CAP_NO_SUCH"], "permitted": ["CAP_CHOWN", "CAP_KILL"],
                             "effective": ["CAP_KILL"], "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL"]}
        p["user"] = {"uid": 7, "gid": 7}
    st = status_of(run("cat /proc/self/status", edit))
    assert st["CapBnd"] == ["0000000000000021"] and st["CapInh"] == ["0000000000000020"], st
    assert st["CapAmb"] == ["0000000000000020"] and st["CapEff"] == ["0000000000000020"], st


@test
def limits_and_flags():
    def edit(p):
        p["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
                        {"type": "RLIMIT_CORE", "soft": 0, "hard": 18446744073709551615}]
        p["noNewPrivileges"] = True
        p["oomScoreAdj"] = 123
    out = run("grep -E 'open files|core file' /proc/self/limits; grep NoNewPrivs /proc/self/status; "
              "cat /proc/self/oom_score_adj", edit)
    assert " ".join(out.split()) == ("Max core file size 0 unlimited bytes Max open files 100 200 files NoNewPrivs: 1 123"), out
    assert "RLIMIT_TEST" in run("true", lambda p: p.update(rlimits=[{"type": "RLIMIT_TEST", "soft": 1, "hard": 1}]), 1)


@test
def scheduling():
    def edit(p):
        p["scheduler"] = {"policy": "SCHED_RR", "priority": 5, "flags": ["SCHED_FLAG_RESET_ON_FORK"]}
        p["ioPriority"] = {"class": "IOPRIO_CLASS_IDLE", "priority": 3}
        p["args"] = ["/bin/cat", "/proc/self/stat"]
    f = run("", edit).rpartition(")")[2].split()
    assert f[37] == "5" and f[38] == "2", f  # fields 40 and 41: rt_priority, policy

    def nice(p):
        p["scheduler"] = {"policy": "SCHED_BATCH", "nice": 7}
        p["args"] = ["/bin/cat", "/proc/self/stat"]
    f = run("", nice).rpartition(")")[2].split()
    assert f[16] == "7" and f[38] == "3", f
    for bad, text in (({"scheduler": {"policy": "SCHED_DEADLINE"}}, "SCHED_DEADLINE is not supported"),
                      ({"scheduler": {"policy": "SCHED_OTHER", "priority": 3}}, "does not fit the policy"),
                      ({"ioPriority": {"class": "X"}}, "process.ioPriority.class"),
                      ({"execCPUAffinity": {"initial": "1-"}}, "is no list of CPUs"),
                      ({"selinuxLabel": "a:b:c"}, "selinux label is specified")):
        err = run("true", lambda p: p.update(bad), 1)
        assert text in err, (bad, err)


@test
def affinity_of_exec():
    def edit(c):
        c["process"]["execCPUAffinity"] = {"initial": "0-1", "final": "0"}
    b = bundle("process", ("/bin/sleep", "100"), edit)
    assert hf("run", "-d", "--bundle", b, "p")[0] == 0
    try:
        out = hf("exec", "p", "/bin/grep", "Cpus_allowed_list", "/proc/self/status")[1]
        assert out.split() == ["Cpus_allowed_list:", "0"], out
    finally:
        hf("delete", "--force", "p")


@test
def apparmor_is_a_warning():
    log = os.path.join(WORK, "log.json")
    b = bundle("process", ("/bin/true",), lambda c: c["process"].update(apparmorProfile="docker-default"))
    s, _, err = hf("--log", log, "--log-format", "json", "run", "--bundle", b, "p")
    assert s == 0, err
    with open(log) as f:
        text = f.read()
    assert "docker-default" in text and '"warn' in text, text


@test
def limits_without_a_number_are_refused():
    for limit in ({"soft": 10}, {"hard": 10}, {"soft": "10", "hard": 20}, {"soft": 10, "hard": None}):
        err = run("true", lambda p, x=limit: p.update(rlimits=[{"type": "RLIMIT_NOFILE", **x}]), 1)
        assert "process.rlimits" in err, (limit, err)


@test
def directory_and_environment():
    def edit(p):
        p["cwd"] = "/new/dir"
        p["env"] = ["PATH=/bin", "A=1", "A=2"]
    assert run("pwd; echo $A", edit) == "/new/dir\n2\n"


def run_with_fds(args, fds, env=None, keeps=False):
    """Runs holdfast with descriptors 3, 4 ... and LISTEN_PID its own pid. @keeps: the container keeps its output."""
    def setup():
        for i, fd in enumerate(fds):
            os.dup2(fd, 100 + i)
        for i in range(len(fds)):
            os.dup2(100 + i, 3 + i)
            os.close(100 + i)
        if env:
            os.environ["LISTEN_PID"] = str(os.getpid())
    script = 'export LISTEN_PID=$$; exec "$@"' if env else 'exec "$@"'
    script += " >/dev/null 2>&1" if keeps else ""
    p = subprocess.run(["/bin/sh", "-c", script, "sh", HOLDFAST, "--root", STATE, *args], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60, close_fds=False, preexec_fn=setup,
                       env={**os.environ, **(env or {})})
    return p.returncode, p.stdout, p.stderr


@test
def preserved_descriptors():
    a, b = os.path.join(WORK, "fd-a"), os.path.join(WORK, "fd-b")
    with open(a, "w") as f:
        f.write("first\n")
    d = bundle("process", ("/bin/sh", "-c", "cat <&3; echo second >&4; ls /proc/self/fd | wc -l; env | grep LISTEN"))
    with open(a) as fa, open(b, "w") as fb:
        fds = (fa.fileno(), fb.fileno())
        s, out, err = run_with_fds(["run", "--preserve-fds", "2", "--bundle", d, "p"], fds)
        assert out == "first\n6\n", (s, out, err)
        with open(b) as f:
            assert f.read() == "second\n"
        s, out, err = run_with_fds(["run", "--bundle", d, "p"], fds)
        assert "first" not in out, "descriptors that nobody asked for are in the container"
        fa.seek(0)
        s, out, err = run_with_fds(["run", "--preserve-fds", "1", "--bundle", d, "p"], fds, {"LISTEN_FDS": "1"})
        assert out == "first\n6\nLISTEN_FDS=1\nLISTEN_PID=1\n", (s, out, err)
    s, _, err = run_with_fds(["run", "--preserve-fds", "1", "--bundle", d, "p"], ())
    assert s == 1 and "unable to stat preserved-fd" in err, err


SERVER = """
import os, select, socket, sys
assert (os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"]) == ("1", "1")
s = socket.socket(fileno=3)
assert s.type == socket.SOCK_STREAM and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
print(s.family.name, flush=True)
e = select.epoll(); e.register(s, select.EPOLLIN)
for i in range(3):
    assert e.poll()[0][0] == 3
    c, _ = s.accept()
    while True:
        b = c.recv(100)
        if not b: break
        c.sendall(b.upper())
    c.shutdown(socket.SHUT_WR); c.close()
s.setblocking(False)
try: s.accept()
except BlockingIOError: print("none", flush=True)
to = "/elsewhere" if s.family == socket.AF_UNIX else ("127.0.0.1", 1)
for call in (lambda: s.send(b"x"), lambda: s.sendto(b"x", to), lambda: s.connect(to), lambda: s.bind(to)):
    try: call()
    except OSError: continue
    print("reaches more than its clients")
"""


@test
def a_listening_socket_is_accepted_from():
    """Socket activation: LISTEN_FDS with a unix socket, and one of the loopback network."""
    root = subprocess.run([os.path.join(TOP, "tools/mkrootfs.sh"), "test"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()

    def edit(c):
        c["root"]["path"] = root
    d = bundle("listen", ("/usr/bin/python3", "-c", SERVER), edit)
    path = os.path.join(WORK, "activated")
    for family, name, where in ((socket.AF_UNIX, "AF_UNIX", path), (socket.AF_INET, "AF_INET", ("127.0.0.1", 0))):
        server = socket.socket(family)
        server.bind(where)
        server.listen(5)
        result = []
        th = threading.Thread(target=lambda s=server: result.append(run_with_fds(["run", "--bundle", d, "l"], (s.fileno(),), {"LISTEN_FDS": "1"})))
        th.start()
        for i in range(3):
            c = socket.socket(family)
            c.connect(server.getsockname())
            c.sendall(b"words " * (i * 10000 + 1))
            c.shutdown(socket.SHUT_WR)
            got = b""
            while b := c.recv(65536):
                got += b
            assert got == b"WORDS " * (i * 10000 + 1), len(got)
            c.close()
        th.join(60)
        assert result and result[0][:2] == (0, f"{name}\nnone\n"), result
        server.close()


@test
def with_a_listening_socket_it_is_not_saved():
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.join(WORK, "kept"))
    server.listen(1)
    d = bundle("listen2", ("/bin/sleep", "1000"))
    s, _, err = run_with_fds(["create", "--bundle", d, "k"], (server.fileno(),), {"LISTEN_FDS": "1"}, keeps=True)
    assert s == 0, err
    assert hf("start", "k")[0] == 0
    s, _, err = hf("checkpoint", "--image-path", os.path.join(WORK, "kept-image"), "k")
    assert s == 1 and "a kind of socket that can't be saved" in err, err
    assert hf("exec", "k", "/bin/true")[0] == 0
    hf("delete", "--force", "k")
    server.close()


@test
def preserved_descriptors_of_exec():
    d = bundle("process", ("/bin/sleep", "100"))
    assert hf("run", "-d", "--bundle", d, "p")[0] == 0
    r, w = os.pipe()
    try:
        s, _, err = run_with_fds(["exec", "--preserve-fds", "1", "p", "/bin/sh", "-c", "echo piped >&3"], (w,))
        assert s == 0, err
        os.close(w)
        w = -1
        assert os.read(r, 100) == b"piped\n" and os.read(r, 100) == b"", "the pipe has no end"
    finally:
        os.close(r)
        if w >= 0:
            os.close(w)
        hf("delete", "--force", "p")


@test
def process_documents_of_exec():
    d = bundle("process", ("/bin/sleep", "100"))
    assert hf("run", "-d", "--bundle", d, "p")[0] == 0
    path = os.path.join(WORK, "proc.json")
    try:
        with open(path, "w") as f:
            json.dump({"args": ["/bin/sh", "-c", "id -u; pwd; echo $X; grep -E 'CapEff|NoNew' /proc/self/status"],
                       "cwd": "/tmp", "env": ["X=y", "PATH=/bin"], "user": {"uid": 9, "gid": 9},
                       "capabilities": {"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"],
                                        "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL"]},
                       "noNewPrivileges": True, "apparmorProfile": "x"}, f)
        s, out, err = hf("exec", "--process", path, "p")
        assert out.split() == ["9", "/tmp", "y", "CapEff:", "0000000000000020", "NoNewPrivs:", "1"], (out, err)
    finally:
        hf("delete", "--force", "p")


if __name__ == "__main__":
    main()
