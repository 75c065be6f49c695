#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`features` says what is built: everything that it lists is taken. And --pidfd-socket."""
import array
import json
import os
import select
import socket
import threading

from _lib import WORK, bundle, hf, main, state, test


def features():
    s, out, err = hf("features")
    assert s == 0, err
    return json.loads(out)


@test
def the_document():
    f = features()
    assert f["ociVersionMin"] == "1.0.0" and f["ociVersionMax"].startswith("1."), f
    assert f["hooks"] == ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
    assert set(f["linux"]["namespaces"]) == {"cgroup", "ipc", "mount", "network", "pid", "user", "uts"}
    assert "CAP_CHOWN" in f["linux"]["capabilities"] and len(f["linux"]["capabilities"]) == 41
    assert f["mountOptions"] == sorted(f["mountOptions"]) and {"rro", "rbind", "tmpcopyup"} <= set(f["mountOptions"])
    assert "idmap" not in f["mountOptions"] and f["linux"]["mountExtensions"]["idmap"]["enabled"] is False
    assert "SCMP_ACT_NOTIFY" not in f["linux"]["seccomp"]["actions"]
    assert f["linux"]["apparmor"]["enabled"] is False and f["linux"]["selinux"]["enabled"] is False


@test
def every_mount_option_is_taken():
    options = [o for o in features()["mountOptions"] if o not in ("bind", "rbind")]
    b = bundle("features", ("/bin/true",), lambda c: c["mounts"].append(
        {"destination": "/mnt", "type": "tmpfs", "source": "t", "options": options}))
    s, _, err = hf("run", "--bundle", b, "f")
    assert s == 0, err


@test
def everything_of_seccomp_is_taken():
    f = features()["linux"]["seccomp"]
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": f["archs"], "flags": f["supportedFlags"], "syscalls": [
        {"names": ["personality"], "action": a, "args": [{"index": 0, "value": 77 + i, "op": op}
                                                         for i, op in enumerate(f["operators"])]}
        for a in f["actions"] if a != "SCMP_ACT_ALLOW"]}
    s, _, err = hf("run", "--bundle", bundle("features", ("/bin/true",), lambda c: c["linux"].update(seccomp=profile)), "f")
    assert s == 0, err


def listen(path, got):
    """A thread that takes one message with a descriptor."""
    l = socket.socket(socket.AF_UNIX)
    l.bind(path)
    l.listen(1)

    def serve():
        c, _ = l.accept()
        _, anc, _, _ = c.recvmsg(100, 100)
        got.append(array.array("i", anc[0][2])[0])
        c.close()
        l.close()
    t = threading.Thread(target=serve, daemon=True)
    t.start()
    return t


@test
def pidfd_sockets():
    b = bundle("features", ("/bin/sleep", "1000"))
    got = []
    t = listen(WORK + "/p1", got)
    s, _, err = hf("create", "--pidfd-socket", WORK + "/p1", "--bundle", b, "f")
    assert s == 0, err
    try:
        t.join(10)
        assert hf("start", "f")[0] == 0
        with open(f"/proc/self/fdinfo/{got[0]}") as f:
            pid = [int(l.split()[1]) for l in f if l.startswith("Pid:")]
        assert pid == [state("f")["pid"]], pid
        t = listen(WORK + "/p2", got)
        assert hf("exec", "-d", "--pidfd-socket", WORK + "/p2", "f", "/bin/true")[0] == 0
        t.join(10)
        p = select.poll()
        p.register(got[1], select.POLLIN)
        assert p.poll(10000), "the pidfd of exec doesn't tell its end"
    finally:
        hf("delete", "--force", "f")
        for fd in got:
            os.close(fd)
    s, _, err = hf("create", "--pidfd-socket", WORK + "/none", "--bundle", b, "f")
    assert s == 1 and "pidfd socket" in err, err
    assert hf("state", "f")[0] == 1, "a failed create left a container"


if __name__ == "__main__":
    main()
