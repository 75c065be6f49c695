#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""create, start, exec, kill, wait, delete and what they leave behind."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import HOLDFAST, STATE, WORK, bundle, hf, main, state, test, wait_for  # noqa: E402


@test
def run_returns_the_guests_exit_status():
    assert hf("run", "-b", bundle("b", ["/bin/true"]), "c1")[0] == 0
    assert hf("run", "-b", bundle("b", ["/bin/sh", "-c", "exit 42"]), "c1")[0] == 42
    # a child dies of a signal; the first process of a pid namespace can't kill itself (man 7 pid_namespaces)
    assert hf("run", "-b", bundle("b", ["/bin/sh", "-c", "sh -c 'kill -9 $$'; exit $?"]), "c1")[0] == 137
    assert hf("run", "-b", bundle("b", ["/bin/sh", "-c", "kill -9 $$; exit 3"]), "c1")[0] == 3
    assert not os.listdir(STATE)


@test
def stdio_is_the_callers():
    p = subprocess.run([HOLDFAST, "--root", STATE, "run", "-b", bundle("b", ["/bin/sh", "-c", "cat; echo err >&2"]), "c2"],
                       input=b"hello\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert (p.returncode, p.stdout, p.stderr) == (0, b"hello\n", b"err\n"), p


@test
def create_start_state_kill_delete():
    b = bundle("b", ["/bin/sleep", "1000"])
    assert hf("create", "-b", b, "--pid-file", WORK + "/pid", "c3")[0] == 0
    assert state("c3")["status"] == "created"
    assert int(open(WORK + "/pid").read()) == state("c3")["pid"]
    assert hf("start", "c3")[0] == 0
    assert state("c3")["status"] == "running"
    s, _, err = hf("delete", "c3")
    assert s == 1 and "not stopped" in err
    s, _, err = hf("start", "c3")
    assert s == 1, "a second start must fail"
    s, out, _ = hf("ps", "c3")
    assert s == 0 and "sleep" in out
    assert hf("kill", "c3", "KILL")[0] == 0
    assert hf("wait", "c3")[0] == 137
    assert state("c3")["status"] == "stopped"
    s, _, err = hf("kill", "c3", "TERM")
    assert s == 1 and "container not running" in err, err
    assert hf("delete", "c3")[0] == 0
    s, _, err = hf("state", "c3")
    assert s == 1 and "does not exist" in err


@test
def detached_sandbox_outlives_its_launcher():
    b = bundle("b", ["/bin/sleep", "1000"])
    subprocess.run(["setsid", HOLDFAST, "--root", STATE, "run", "-d", "-b", b, "c4"], check=True, timeout=60,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert state("c4")["status"] == "running"
    assert hf("delete", "--force", "c4")[0] == 0
    assert not os.listdir(STATE)


@test
def exec_has_its_own_status_environment_directory_and_user():
    b = bundle("b", ["/bin/sleep", "1000"])
    assert hf("run", "-d", "-b", b, "c5")[0] == 0
    try:
        assert hf("exec", "c5", "/bin/sh", "-c", "exit 7")[0] == 7
        assert hf("exec", "-e", "A=b", "c5", "/bin/sh", "-c", "echo $A")[1] == "b\n"
        assert hf("exec", "--cwd", "/etc", "c5", "/bin/pwd")[1] == "/etc\n"
        assert hf("exec", "--user", "1000:1000", "c5", "/bin/id", "-u")[1] == "1000\n"
        s, _, err = hf("exec", "c5", "/no/such/program")
        assert s == 255 and "no such file" in err, err
    finally:
        hf("delete", "--force", "c5")


@test
def exec_says_that_the_sandbox_was_killed():
    assert hf("run", "-d", "-b", bundle("b", ["/bin/sleep", "1000"]), "c5")[0] == 0
    with open(WORK + "/exec.err", "wb") as err:
        p = subprocess.Popen([HOLDFAST, "--root", STATE, "exec", "c5", "/bin/sh", "-c", "touch /tmp/up; sleep 1000"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
    assert wait_for(lambda: hf("exec", "c5", "/bin/ls", "/tmp/up")[0] == 0)
    os.kill(state("c5")["pid"], signal.SIGKILL)
    status = p.wait(timeout=30)
    with open(WORK + "/exec.err") as f:
        said = f.read()
    hf("delete", "--force", "c5")
    assert status == 255 and "the sandbox ended" in said, (status, said)


@test
def bind_mounts_are_shared_and_the_root_is_not():
    os.makedirs(WORK + "/share", exist_ok=True)

    def edit(c):
        c["mounts"].append({"destination": "/share", "type": "bind", "source": WORK + "/share", "options": ["rbind", "rw"]})
    b = bundle("b", ["/bin/sh", "-c", "echo x > /share/f; echo y > /new; cat /share/g"], edit)
    with open(WORK + "/share/g", "w") as f:
        f.write("from the host\n")
    s, out, err = hf("run", "-b", b, "c6")
    assert (s, out) == (0, "from the host\n"), err
    assert open(WORK + "/share/f").read() == "x\n"
    assert not os.path.exists(WORK + "/rootfs/new")


@test
def write_through_root_is_the_bundles():
    b = bundle("b", ["/bin/sh", "-c", "echo y > /through"])
    s, _, err = hf("run", "--overlay", "none", "-b", b, "c7")
    assert s == 0, err
    assert open(WORK + "/rootfs/through").read() == "y\n"


@test
def do_discards_writes():
    s, out, err = hf("do", "--rootfs", WORK + "/rootfs", "/bin/sh", "-c", "echo hi > /etc/hi && cat /etc/hi")
    assert (s, out) == (0, "hi\n"), err
    assert not os.path.exists(WORK + "/rootfs/etc/hi")


@test
def pids_limit_stops_a_fork_bomb():
    def edit(c):
        c["linux"].setdefault("resources", {})["pids"] = {"limit": 50}
    bomb = "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; echo survived"
    b = bundle("b", ["/bin/sh", "-c", f"({bomb}) 2>/dev/null; echo alive"], edit)
    s, out, err = hf("run", "-b", b, "p1")
    assert s == 0 and out.splitlines()[-1] == "alive" and "survived" not in out, (s, out, err)
    assert not os.listdir(STATE)


@test
def list_shows_all_containers():
    for c in ("l1", "l2"):
        assert hf("create", "-b", bundle("b"), c)[0] == 0
    assert hf("list", "-q")[1].split() == ["l1", "l2"]
    for c in ("l1", "l2"):
        assert hf("delete", "--force", c)[0] == 0


@test
def nothing_is_left_of_a_killed_sandbox():
    b = bundle("b", ["/bin/sleep", "1000"])
    assert hf("run", "-d", "-b", b, "k1")[0] == 0
    pid = state("k1")["pid"]
    os.kill(pid, 9)
    for _ in range(100):
        if state("k1")["status"] == "stopped":
            break
        time.sleep(0.05)
    assert state("k1")["status"] == "stopped"
    assert hf("delete", "k1")[0] == 0
    assert not os.listdir(STATE)


main()
