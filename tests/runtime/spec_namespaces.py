#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Namespaces, id mappings, names, sysctls, and what is refused by name."""
import os
import socket
import subprocess

from _lib import WORK, bundle, busybox_root, hf, main, state, test


def run(script, edit=None, status=0, options=()):
    s, out, err = hf("run", *options, "--bundle", bundle("ns", ("/bin/sh", "-c", script), edit), "n")
    assert s == status, (s, out, err)
    return out if s == 0 else err


def without(kind):
    def edit(c):
        c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] != kind]
    return edit


def net_of(edit):
    """The network namespace of the container's pid on the host."""
    assert hf("create", "--bundle", bundle("ns", ("/bin/true",), edit), "n")[0] == 0
    try:
        return os.readlink(f"/proc/{state('n')['pid']}/ns/net")
    finally:
        hf("delete", "--force", "n")


@test
def network_namespaces():
    if os.geteuid() != 0:
        return
    own = os.readlink("/proc/self/ns/net")
    assert net_of(None) != own
    assert net_of(without("network")) == own
    p = subprocess.Popen(["unshare", "-n", "sleep", "100"])
    try:
        path = f"/proc/{p.pid}/ns/net"
        while os.readlink(path) == own:
            pass

        def by_path(c):
            without("network")(c)
            c["linux"]["namespaces"].append({"type": "network", "path": path})
        assert net_of(by_path) == os.readlink(path)
        assert os.readlink("/proc/self/ns/net") == own

        def wrong(c):
            without("ipc")(c)
            c["linux"]["namespaces"].append({"type": "ipc", "path": path})
        assert "is no ipc namespace" in run("true", wrong, 1)
    finally:
        p.kill()
        p.wait()


@test
def bad_namespaces():
    for ns, text in (([{"type": "x"}], 'namespace "x" does not exist'),
                     ([{"type": "ipc"}, {"type": "ipc"}], 'duplicated ns "ipc"'),
                     ([{"type": "network", "path": "/no/such"}], "no such file or directory"),
                     ([{"type": "network", "path": "rel"}], "is not an absolute path"),
                     ([{"type": "user"}], "user namespaces enabled, but no mappings found")):
        err = run("true", lambda c: c["linux"].update(namespaces=ns), 1)
        assert text in err, (ns, err)


@test
def names():
    def edit(c):
        c["hostname"], c["domainname"] = "a-host", "a.domain"
    assert run("hostname; cat /proc/sys/kernel/domainname", edit) == "a-host\na.domain\n"

    def host(c):
        without("uts")(c)
        del c["hostname"]
    assert run("hostname", host) == socket.gethostname() + "\n"


def mapped(c):
    c["linux"]["namespaces"].append({"type": "user"})
    c["linux"]["uidMappings"] = [{"containerID": 0, "hostID": 10000, "size": 1000}]
    c["linux"]["gidMappings"] = [{"containerID": 0, "hostID": 20000, "size": 1000}]


@test
def id_mappings():
    if os.geteuid() != 0:
        return
    root = busybox_root()
    d = root + "/mapped"
    os.makedirs(d, exist_ok=True)
    os.chown(d, 10000, 20000)
    try:
        for options in (("--overlay", "none"), ("--overlay", "memory")):
            def edit(c):
                mapped(c)
                c["mounts"].append({"destination": "/tmp/t", "type": "tmpfs", "source": "t", "options": ["uid=3", "gid=4"]})
                for k in ("bounding", "effective", "permitted"):
                    c["process"]["capabilities"][k].append("CAP_CHOWN")
            out = run("cat /proc/self/uid_map /proc/self/gid_map; id -u; echo x > /mapped/f; ls -lnd /mapped/f /bin /tmp/t "
                      "/dev/null; chown 5:6 /mapped/f; echo y > /bin/denied; ls -n /mapped",
                      edit, options=options)
            f = [" ".join(l.split()) for l in out.splitlines()]
            assert f[:3] == ["0 10000 1000", "0 20000 1000", "0"], f
            assert sorted(l.split()[2:4] for l in f[3:7]) == [["0", "0"], ["0", "0"], ["3", "4"], ["65534", "65534"]], f
            assert f[-1].split()[2:4] == ["5", "6"], f
            assert not os.path.exists(root + "/bin/denied")
            if "none" in options:
                st = os.stat(d + "/f")
                assert (st.st_uid, st.st_gid) == (10005, 20006), st
                os.unlink(d + "/f")
    finally:
        os.system(f"rm -rf {d}")


@test
def mapped_root_is_not_the_kernels():
    if os.geteuid() != 0:
        return

    def edit(c):
        mapped(c)
        c["process"]["capabilities"] = {k: ["CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_DAC_OVERRIDE"] for k in
                                        ("bounding", "effective", "permitted")}
    out = run("mount -t tmpfs t /tmp && echo mounted; echo 1 > /proc/sys/vm/swappiness; echo $?; touch /bin/x; echo $?", edit)
    assert out == "mounted\n1\n1\n", out


@test
def bad_mappings():
    for uid, text in (([{"containerID": 0, "hostID": 1, "size": 0}], "out of range"),
                      ([{"containerID": 0, "hostID": 1, "size": 9}, {"containerID": 5, "hostID": 50, "size": 9}], "overlap")):
        def edit(c):
            mapped(c)
            c["linux"]["uidMappings"] = uid
        assert text in run("true", edit, 1), uid

    def no_ns(c):
        mapped(c)
        without("user")(c)
    assert "user namespace isn't enabled" in run("true", no_ns, 1)


@test
def sysctls():
    def edit(c):
        c["linux"]["sysctl"] = {"net.ipv4.ip_forward": "1", "net/core/somaxconn": "77", "kernel.msgmax": "9999",
                                "net.ipv4.ping_group_range": "0 2147483647", "kernel.domainname": "from.sysctl"}
    out = run("cd /proc/sys; cat net/ipv4/ip_forward net/core/somaxconn kernel/msgmax kernel/domainname", edit)
    assert out == "1\n77\n9999\nfrom.sysctl\n", out
    for name, value, text in (("vm.swappiness", "1", "is not in a separate kernel namespace"),
                              ("kernel.hostname", "x", "is not in a separate kernel namespace"),
                              ("net.no.such", "1", "no such setting"), ("net.ipv4.ip_forward", "x", "invalid argument")):
        err = run("true", lambda c: c["linux"].update(sysctl={name: value}), 1)
        assert f'sysctl "{name}"' in err and text in err, err

    def shared(c):
        without("network")(c)
        c["linux"]["sysctl"] = {"net.ipv4.ip_forward": "1"}
    assert "is not in a separate kernel namespace" in run("true", shared, 1)


@test
def personality():
    assert run("cat /proc/self/personality", lambda c: c["linux"].update(personality={"domain": "LINUX32"})) == "00000008\n"
    for p in ({"domain": "X"}, {"domain": "LINUX", "flags": ["Y"]}):
        assert "personality" in run("true", lambda c: c["linux"].update(personality=p), 1)


@test
def refused_by_name():
    for key, value in (("intelRdt", {"closID": "x"}), ("netDevices", {"eth0": {}}),
                       ("memoryPolicy", {"mode": "MPOL_BIND"}), ("timeOffsets", {"monotonic": {"secs": 5}})):
        err = run("true", lambda c: c["linux"].update({key: value}), 1)
        assert f"linux.{key}" in err, err


@test
def unknown_fields_are_ignored():
    def edit(c):
        c["ociVersion"] = "1.3.0-dev"
        c["whatever"] = {"a": 1}
        c["linux"]["whatever"] = [1]
        c["process"]["whatever"] = "x"
        c["linux"]["mountLabel"] = "system_u:object_r:svirt_sandbox_file_t:s0:c715,c811"
        c["linux"]["intelRdt"] = {}
    assert run("echo fine", edit) == "fine\n"


if __name__ == "__main__":
    main()
