#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""export and import: whole, damaged, cut short, from a CPU that has more, as an OCI layout."""
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import HOLDFAST, STATE, WORK, bundle, delete, hf, main, start, state, test, wait_for  # noqa: E402

FILE = os.path.join(WORK, "export.tar.zst")
COPY = FILE + ".copy"
LAYOUT = os.path.join(WORK, "layout")
BALLAST = 3 << 20


def ok(*args):
    s, out, err = hf(*args)
    assert s == 0, (args, out, err)
    return out


def export(path, *args):
    with open(path, "wb") as f:
        p = subprocess.run([HOLDFAST, "--root", STATE, "export", *args], stdin=subprocess.DEVNULL, stdout=f,
                           stderr=subprocess.PIPE, timeout=60, check=False)
    assert p.returncode == 0, p.stderr


def import_(path, cid, *options):
    with open(path, "rb") as f:
        return hf("import", *(options or ["--trust-config"]), cid, stdin=f)


def refused(words, path=COPY):
    s, _, err = import_(path, "x")
    assert s == 1 and "cannot import" in err and words in err, (s, err)
    assert not os.path.exists(f"{STATE}/x"), "something is left"


def value(cid):
    return int(ok("exec", cid, "/bin/cat", "/n"))


def exported():
    """An export of a container that has parents to be flattened; made once."""
    if not os.path.exists(FILE):
        start("e", ["/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo $i > /n.new; mv /n.new /n; sleep 0.02; done"])
        assert wait_for(lambda: hf("exec", "e", "/bin/cat", "/n")[0] == 0)
        ok("exec", "e", "/bin/dd", "if=/dev/urandom", "of=/ballast", f"bs={BALLAST}", "count=1")
        ok("snapshot", "e", "first")
        ok("exec", "e", "/bin/sh", "-c", "md5sum /ballast > /sum || cat /ballast | wc -c > /sum")
        ok("snapshot", "e", "second")
        export(FILE, "e", "second")
    return FILE


def says_the_same(path):
    a, b = (subprocess.run(["zstd", "-dcq", p], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            for p in (exported(), path))
    return (b.returncode, b.stdout) == (0, a.stdout)


def recompressed(change):
    """COPY with @change made to the tar file inside."""
    raw = bytearray(subprocess.run(["zstd", "-dcq", exported()], stdout=subprocess.PIPE, check=True).stdout)
    raw = change(raw) or raw
    with open(COPY, "wb") as f:
        subprocess.run(["zstd", "-cq"], input=bytes(raw), stdout=f, check=True)


@test
def it_goes_on_elsewhere():
    size = os.path.getsize(exported())
    assert size > BALLAST, size
    s, _, err = import_(FILE, "there")
    assert s == 0, err
    assert state("there")["status"] == "suspended"
    n = value("there")
    assert state("there")["status"] == "running"
    assert wait_for(lambda: value("there") > n)
    assert ok("exec", "there", "/bin/wc", "-c", "/ballast").split()[0] == str(BALLAST)
    assert ok("exec", "there", "/bin/cat", "/sum") == ok("exec", "e", "/bin/cat", "/sum")
    assert state("e")["status"] == "running"
    delete("there")


@test
def a_pipe_will_do():
    p = subprocess.Popen([HOLDFAST, "--root", STATE, "export", "e"], stdout=subprocess.PIPE)
    s, _, err = hf("import", "--trust-config", "piped", stdin=p.stdout)
    p.stdout.close()
    assert p.wait(60) == 0 and s == 0, err
    assert value("piped") > 0
    ok("suspend", "piped")
    export(COPY, "piped")
    assert state("piped")["status"] == "suspended", "exporting has woken it"
    delete("piped")


@test
def standard_tools_can_look_at_it():
    raw = subprocess.run(["zstd", "-dcq", exported()], stdout=subprocess.PIPE, check=True).stdout
    names = subprocess.run(["tar", "t"], input=raw, stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert names == ["about.json", "pages", "state"], names
    about = json.loads(subprocess.run(["tar", "xO", "about.json"], input=raw, stdout=subprocess.PIPE, check=True).stdout)
    assert about["container"] == "e" and about["export"] == 1 and about["cpu"], about


@test
def a_strangers_configuration_is_not_asked():
    with open(exported(), "rb") as f:
        s, _, err = hf("import", "x", stdin=f)
    assert s == 1 and "--bundle" in err and not os.path.exists(f"{STATE}/x"), err
    hook = {"poststart": [{"path": "/bin/touch", "args": ["touch", WORK + "/hooked"]}]}
    start("h", ["/bin/sleep", "1000"], edit=lambda c: c.update(hooks=hook))
    assert os.path.exists(WORK + "/hooked")
    export(COPY, "h")
    delete("h")
    os.unlink(WORK + "/hooked")
    s, _, err = import_(COPY, "own", "--bundle", bundle("own", ["/bin/true"]))
    assert s == 0, err
    ok("wake", "own")
    assert "sleep" in ok("ps", "own") and not os.path.exists(WORK + "/hooked")
    delete("own")

    def through(c):
        c["annotations"] = {"org.holdfast.overlay": "none"}
    s, _, err = import_(COPY, "own", "--bundle", bundle("more", ["/bin/true"], through))
    assert s == 0, err
    s, _, err = hf("wake", "own")
    assert s == 1 and "--overlay memory" in err, err
    assert state("own")["status"] == "suspended"
    delete("own")


@test
def an_id_that_is_there_is_refused():
    s, _, err = import_(exported(), "e")
    assert s == 1 and "already exists" in err, err
    assert value("e") > 0


@test
def a_flipped_bit_anywhere_is_refused():
    with open(exported(), "rb") as f:
        whole = f.read()
    rnd = random.Random(4)
    for at in [0, 5, len(whole) - 1, *(rnd.randrange(len(whole)) for _ in range(20))]:
        b = bytearray(whole)
        b[at] ^= 1 << rnd.randrange(8)
        with open(COPY, "wb") as f:
            f.write(b)
        if not says_the_same(COPY):  # a few bits of zstd's framing mean nothing
            refused("")


@test
def a_short_one_is_refused():
    with open(exported(), "rb") as f:
        whole = f.read()
    for n in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        with open(COPY, "wb") as f:
            f.write(whole[:n])
        refused("")
    with open(COPY, "wb") as f:
        f.write(whole + b"x")
    refused("end is damaged")


@test
def damage_before_compression_is_refused_too():
    def pages(b):
        b[512 * 40] ^= 1
    recompressed(pages)
    refused("pages are not those")

    def state_file(b):
        b[b.index(b"HOLDFAST") + 8] = 9
    recompressed(state_file)
    refused("version 9")
    recompressed(lambda b: b[:-1024])
    refused("")


@test
def a_cpu_that_has_more_is_named():
    def cpu(b):
        at = b.index(b'"cpu":"') + 7
        b[at:at + 3] = b"zzz"
    recompressed(cpu)
    refused("this CPU lacks")
    refused("zzz")


@test
def a_name_does_not_reach_the_terminal():
    def cpu(b):
        at = b.index(b'"cpu":"') + 7
        b[at:at + 8] = b"\\u001b[2J"[:8]
    recompressed(cpu)
    refused("a format that this holdfast does not read")


@test
def a_layout_is_what_skopeo_copies():
    ok("export", "--oci", LAYOUT, "e", "second")
    src = LAYOUT
    if shutil.which("skopeo"):
        src = LAYOUT + "-copy"
        p = subprocess.run(["skopeo", "--insecure-policy", "copy", f"oci:{LAYOUT}:e", f"oci:{src}:e"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=60, check=False)
        assert p.returncode == 0, p.stdout
    ok("import", "--oci", src, "--trust-config", "pulled")
    assert value("pulled") > 0
    delete("pulled")


@test
def a_damaged_layout_is_refused():
    shutil.rmtree(LAYOUT, ignore_errors=True)
    ok("export", "--oci", LAYOUT, "e", "second")
    blobs = f"{LAYOUT}/blobs/sha256"
    for size_order in (0, -1):  # the smallest but the config, and the layer
        names = sorted((n for n in os.listdir(blobs) if os.path.getsize(f"{blobs}/{n}") > 2),
                       key=lambda n: os.path.getsize(f"{blobs}/{n}"))
        path = f"{blobs}/{names[size_order]}"
        with open(path, "r+b") as f:
            b = f.read(60)[-1]
            f.seek(59)
            f.write(bytes([b ^ 1]))
        s, _, err = hf("import", "--oci", LAYOUT, "--trust-config", "x")
        assert s == 1 and "cannot import" in err, err
        assert not os.path.exists(f"{STATE}/x")
        with open(path, "r+b") as f:
            f.seek(59)
            f.write(bytes([b]))


@test
def the_exported_one_has_noticed_nothing():
    n = value("e")
    assert wait_for(lambda: value("e") > n)
    delete("e")


main()
