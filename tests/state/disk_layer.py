#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A writable layer on disk: it isn't memory, it is bounded, what is deleted is given back, nothing of it is left; and it
branches, parks, rolls back and moves like one in memory."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import STATE, WORK, bundle, debian, delete, hf, main, run_detached, state, test, wait_for  # noqa: E402

LAYER = os.path.join(WORK, "layer")
MIB = 1 << 20
BIG = 160  # MiB, more than twice the memory limit


def ok(*args):
    s, out, err = hf(*args)
    assert s == 0, (args, out, err)
    return out


def sh(cid, script):
    return ok("exec", cid, "/bin/bash", "-c", script)


def edit(c):
    c["root"]["path"] = debian()
    c["linux"].setdefault("resources", {})["memory"] = {"limit": 64 * MIB}
    c["process"]["env"] = ["PATH=/usr/bin:/bin:/usr/sbin:/sbin"]


def begin(cid, size="600m"):
    os.makedirs(LAYER, exist_ok=True)
    with open(os.path.join(WORK, cid + ".out"), "wb") as f:
        s, err = run_detached(["run", "--detach", "--overlay", "disk:" + size, "--overlay-dir", LAYER, "--bundle",
                               bundle("b-" + cid, ["/bin/sleep", "10000"], edit), cid], f)
    assert s == 0, err


def held(cid):
    """Bytes on disk of the unlinked files that the sandbox holds in LAYER."""
    pid, sizes = state(cid)["pid"], {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            where = os.readlink(f"/proc/{pid}/fd/{fd}")
            st = os.stat(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if LAYER in where:
            sizes[st.st_ino] = st.st_blocks * 512
    return sum(sizes.values())


def digest(cid, path="/big"):
    return sh(cid, f"sha1sum < {path}").split()[0]


@test
def it_holds_more_than_memory_does():
    begin("d")
    assert "600M" in sh("d", "df -h /")
    sh("d", f"head -c {BIG}M /dev/urandom > /big; cp /big /again; cmp /big /again")
    assert held("d") >= 2 * BIG * MIB, held("d")
    assert int(sh("d", "cat /sys/fs/cgroup/memory.max 2>/dev/null || echo 0")) in (0, 64 * MIB)
    assert not os.listdir(LAYER), "files have names"


@test
def what_is_deleted_is_given_back():
    before = held("d")
    sh("d", "rm /again")
    assert wait_for(lambda: held("d") < before - (BIG - 8) * MIB), (before, held("d"))


@test
def it_is_full_at_its_size():
    s, _, err = hf("exec", "d", "/bin/bash", "-c", "head -c 2G /dev/zero > /full")
    assert s == 1 and "No space left" in err, err
    assert held("d") <= 620 * MIB, held("d")
    sh("d", "rm /full; echo more > /more; cat /more")


@test
def programs_in_it_run():
    assert sh("d", "cp /bin/bash /own; /own -c 'echo from /own'; cat > /s.c <<< 'int main(void){return 7;}';"
              " cp /usr/lib/x86_64-linux-gnu/libc.so.6 /libc.so.6; LD_LIBRARY_PATH=/ /own -c 'echo with it'") == "from /own\nwith it\n"


@test
def mapped_files_are_on_it():
    assert sh("d", """python3 -c '
import mmap
n = 100 << 20
f = open("/mapped", "w+b"); f.truncate(n); m = mmap.mmap(f.fileno(), n)
for i in range(0, n, 4096): m[i] = i >> 12 & 255
m.flush(); f.seek(0); print(sum(sum(f.read(1 << 20)[::4096]) for i in range(100)))'""") == f"{sum(i & 255 for i in range(100 << 8))}\n"
    sh("d", "rm /mapped")


@test
def it_is_parked_and_goes_on():
    d = digest("d")
    ok("suspend", "d")
    assert digest("d") == d
    sh("d", "echo changed | dd of=/big conv=notrunc status=none")
    assert digest("d") != d
    ok("snapshot", "d", "changed")
    d = digest("d")
    sh("d", "rm /big; echo small > /big")
    ok("rollback", "d", "changed")
    assert digest("d") == d


@test
def branches_go_their_own_ways():
    d = digest("d")
    ok("fork", "d", "twig")
    sh("d", "echo main > /big")
    assert digest("twig") == d
    sh("twig", "echo twig >> /big; echo own > /own-file")
    assert sh("d", "cat /big; ls /own-file 2>&1 || true").startswith("main\n")
    delete("d")
    assert sh("twig", "tail -c 5 /big; cat /own-file") == "twig\nown\n"


@test
def it_moves():
    d, file = digest("twig"), os.path.join(WORK, "moved")
    with open(file, "wb") as f:
        s, err = run_detached(["export", "twig"], f)
    assert s == 0, err
    with open(file, "rb") as f:
        s, _, err = hf("import", "--trust-config", "there", stdin=f)
    assert s == 0, err
    assert digest("there") == d
    delete("twig", "there")


@test
def nothing_is_left():
    assert not os.listdir(LAYER) and not os.path.exists(f"{STATE}/d")


@test
def a_full_disk_is_an_error():
    """Of the host's: the guest's write fails, its program lives."""
    import subprocess
    small = os.path.join(WORK, "small")
    os.makedirs(small, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", small], check=True)
    try:
        global LAYER
        keep, LAYER = LAYER, small
        begin("f", "1g")
        s, _, err = hf("exec", "f", "/bin/bash", "-c", "head -c 200M /dev/zero > /full")
        assert s == 1 and "No space left" in err, err
        s, out, _ = hf("exec", "f", "/usr/bin/python3", "-c", """
import mmap, signal, os
f = open("/m", "w+b"); f.truncate(1 << 30); m = mmap.mmap(f.fileno(), 1 << 30)
for i in range(0, 1 << 30, 4096): m[i] = 1
""")
        assert s == 135, (s, out)  # SIGBUS
        sh("f", "rm /full /m; echo fine > /x; cat /x")
        delete("f")
        LAYER = keep
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@test
def nonsense_is_refused():
    for mode in ("disk:", "disk:12q", "disk:-1", "disk:99999999999t", "disk:1", "tape"):
        s, _, err = hf("run", "--overlay", mode, "--bundle", bundle("n", ["/bin/true"]), "n")
        assert s == 1 and "unknown overlay mode" in err, (mode, err)
    s, _, err = hf("run", "--overlay", "disk", "--overlay-dir", WORK + "/nowhere", "--bundle", bundle("n", ["/bin/true"]), "n")
    assert s == 1 and "nowhere" in err, err


main()
