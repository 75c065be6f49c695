#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hooks: order, state on standard input, environment, time-outs, what a failing one does."""
import json
import os

from _lib import STATE, WORK, alive, bundle, hf, main, state, test, wait_for

LOG = os.path.join(WORK, "hooks.log")
KINDS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


def hook(script, **more):
    return {"path": "/bin/sh", "args": ["sh", "-c", script], **more}


def with_hooks(**hooks):
    def edit(c):
        c["hooks"] = hooks
    return edit


def log_lines():
    if not os.path.exists(LOG):
        return []
    with open(LOG) as f:
        return f.read().split("\n")[:-1]


def fresh():
    if os.path.exists(LOG):
        os.unlink(LOG)


@test
def order_and_state():
    fresh()
    hooks = {k: [hook(f"echo {k} $(cat) >> {LOG}")] for k in KINDS if k != "startContainer"}
    hooks["startContainer"] = [hook("cat > /started.json")]
    b = bundle("hooks", ("/bin/cat", "/started.json"), with_hooks(**hooks))
    s, _, err = hf("create", "--bundle", b, "h1")
    assert s == 0, err
    names = [l.split()[0] for l in log_lines()]
    assert names == ["prestart", "createRuntime", "createContainer"], names
    st = json.loads(log_lines()[1].split(" ", 1)[1])
    assert st["id"] == "h1" and st["status"] == "creating" and st["bundle"] == b and st["ociVersion"], st
    assert st["pid"] == state("h1")["pid"], st
    s, _, err = hf("start", "h1")
    assert s == 0, err
    name, text = log_lines()[3].split(" ", 1)
    assert name == "poststart" and json.loads(text)["status"] == "running", log_lines()
    assert hf("wait", "h1")[0] == 0
    s, _, err = hf("delete", "h1")
    assert s == 0, err
    name, text = log_lines()[4].split(" ", 1)
    st = json.loads(text)
    assert name == "poststop" and st["status"] == "stopped" and not st.get("pid"), log_lines()


@test
def start_container_hook_is_in_the_container():
    b = bundle("hooks", ("/bin/cat", "/from-hook"), with_hooks(startContainer=[
        hook("cat > /from-hook; echo $A >> /from-hook; readlink /proc/self/exe >> /from-hook", env=["A=b"])]))
    s, out, err = hf("run", "--bundle", b, "h2")
    assert s == 0, err
    lines = out.replace("}", "}\n", 1).split()
    st = json.loads(lines[0])
    assert st["status"] == "created" and st["pid"] == 1, st
    assert lines[1:] == ["b", "/bin/busybox"], lines


@test
def failing_hooks_of_create():
    for kind in ("prestart", "createRuntime", "createContainer"):
        fresh()
        b = bundle("hooks", edit=with_hooks(**{kind: [hook("echo out; echo err >&2; exit 3"), hook(f"echo no >> {LOG}")]},
                                            poststop=[hook(f"echo poststop >> {LOG}")]))
        s, _, err = hf("create", "--bundle", b, "h3")
        assert s == 1, kind
        assert "error running hook #0: error running hook: exit status 3, stdout: out\n, stderr: err\n" in err, err
        assert log_lines() == ["poststop"], (kind, log_lines())
        assert not os.path.exists(os.path.join(STATE, "h3")), kind


@test
def failing_hooks_of_start():
    for kind in ("startContainer", "poststart"):
        b = bundle("hooks", ("/bin/sleep", "100"), with_hooks(**{kind: [hook("exit 4")]}))
        s, _, err = hf("create", "--bundle", b, "h4")
        assert s == 0, err
        pid = state("h4")["pid"]
        s, _, err = hf("start", "h4")
        assert s == 1 and "error running hook #0" in err and "exit status 4" in err, (kind, err)
        assert wait_for(lambda: not alive(pid)), f"the container outlived its {kind} hook"
        assert state("h4")["status"] == "stopped"
        assert hf("delete", "h4")[0] == 0


@test
def failing_poststop_hooks_are_logged_only():
    fresh()
    b = bundle("hooks", edit=with_hooks(poststop=[hook("exit 5"), hook(f"echo second >> {LOG}")]))
    s, _, err = hf("run", "--bundle", b, "h5")
    assert s == 0, err
    assert log_lines() == ["second"], log_lines()


@test
def a_hook_that_takes_too_long():
    b = bundle("hooks", edit=with_hooks(createRuntime=[hook("sleep 100", timeout=1)]))
    s, _, err = hf("create", "--bundle", b, "h6")
    assert s == 1 and "hook ran past specified timeout of 1.0s" in err, err
    b = bundle("hooks", ("/bin/true",), with_hooks(startContainer=[
        {"path": "/bin/sleep", "args": ["sleep", "100"], "timeout": 1}]))
    s, _, err = hf("run", "--bundle", b, "h6")
    assert s == 1 and "hook ran past specified timeout of 1.0s" in err, err
    hf("delete", "--force", "h6")


@test
def hooks_that_cant_be_run():
    for path, text in (("/no/such/hook", "no such file or directory"), ("/etc/passwd", "permission denied")):
        b = bundle("hooks", edit=with_hooks(prestart=[{"path": path}]))
        s, _, err = hf("create", "--bundle", b, "h7")
        assert s == 1 and text in err, err
    b = bundle("hooks", edit=with_hooks(startContainer=[{"path": "/no/such/hook"}]))
    s, _, err = hf("run", "--bundle", b, "h7")
    assert s == 1 and "/no/such/hook" in err, err
    hf("delete", "--force", "h7")
    b = bundle("hooks", edit=with_hooks(prestart=[{"path": "bin/sh"}]))
    s, _, err = hf("create", "--bundle", b, "h7")
    assert s == 1 and "hooks.prestart[].path is not an absolute path" in err, err


@test
def environment_of_hooks():
    fresh()
    b = bundle("hooks", edit=with_hooks(
        createRuntime=[hook(f"echo $PWD $A $B >> {LOG}", env=["A=1"]), hook(f"echo $B >> {LOG}")]))
    s, _, err = hf("run", "--bundle", b, "h8", env={**os.environ, "B": "2"})
    assert s == 0, err
    assert log_lines() == [f"{b} 1", "2"], log_lines()


@test
def hooks_have_the_network_namespace():
    """What dockerd's hook does: /proc/PID/ns/net of the state is a real one, and not the host's."""
    fresh()
    b = bundle("hooks", edit=with_hooks(
        prestart=[hook(f"p=$(sed 's/.*\"pid\": *//;s/,.*//'); readlink /proc/$p/ns/net >> {LOG}")],
        createContainer=[hook(f"readlink /proc/self/ns/net >> {LOG}")]))
    s, _, err = hf("run", "--bundle", b, "h9")
    assert s == 0, err
    a, c = log_lines()
    assert a == c and a.startswith("net:[") and a != os.readlink("/proc/self/ns/net"), log_lines()


@test
def mounts_of_a_hook_are_the_containers():
    if os.geteuid() != 0:
        return
    src = os.path.join(WORK, "hook-src")
    os.makedirs(src, exist_ok=True)
    with open(src + "/file", "w") as f:
        f.write("mounted by a hook\n")

    def edit(c):
        root = c["root"]["path"]
        c["hooks"] = {"createContainer": [hook(f"mkdir -p {root}/hooked && mount --bind {src} {root}/hooked")]}
    b = bundle("hooks", ("/bin/cat", "/hooked/file"), edit)
    s, out, err = hf("run", "--overlay", "none", "--bundle", b, "h10")
    assert s == 0 and out == "mounted by a hook\n", (out, err)
    with open("/proc/self/mountinfo") as f:
        assert "/hooked " not in f.read(), "the mount is visible on the host"


@test
def state_while_creating():
    fresh()
    hfbin, st = os.environ["HOLDFAST"], STATE
    b = bundle("hooks", edit=with_hooks(createRuntime=[
        hook(f"{hfbin} --root {st} state h11 | grep status >> {LOG}; cat > /dev/null", timeout=20)]))
    s, _, err = hf("run", "--bundle", b, "h11")
    assert s == 0, err
    assert "creating" in log_lines()[0], log_lines()


if __name__ == "__main__":
    main()
