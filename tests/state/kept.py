#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kept.tar.zst, a sandbox that an earlier version has exported, goes on in this one, and everything in it is as it was.

It was made by

    HOLDFAST=build/release/holdfast TOP=$PWD WORK=$(mktemp -d) python3 tests/state/kept.py --regenerate

out of kept_guest.c, kept_files.c and kept_kernel.c. Don't as long as it is loaded: that is what it is for. When the
programs are to hold more, rename it to kept-N.tar.zst first: all are tested, and make_root() goes on making what they need.

Any machine must be able to load it, so the lists of CPU features in it, which had all that the machine had that made it,
are cut to what each x86-64 has (and XSAVE, without which nothing runs): the program is compiled for no more, has no libc
that would ask, and asks for none itself. This is done here and not by an option of `checkpoint`, since guests execute
CPUID natively: an operator can't know what a program has found. It was written by _read_image.py, so holdfast reads what
another program has made from docs/image-types.md.
"""
import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _read_image as read_image  # noqa: E402
from _state import (HOLDFAST, STATE, TOP, WORK, Skip, all_rights, bundle, delete, hf, main, on_terminal, reads,  # noqa: E402
                    run_detached, test, wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = [os.path.join(HERE, f"kept_{part}.c") for part in ("guest", "files", "kernel")]
KEPT = sorted(glob.glob(HERE + "/kept*.tar.zst"))
ROOT = os.path.join(WORK, "kept-root")
BOUND = os.path.join(WORK, "kept-bound")
BASELINE = "fpu cx8 cmov mmx fxsr sse sse2 xsave".split()  # as /proc/cpuinfo has them
BASELINE_RECORD = ["xsave"]                                # as the kernel's record has them, which leaves out the oldest
NEVER_CHANGED = 1000000000                                 # mtime of what the image's files are


def make_root():
    """What the root file system is to have: directories, and the files of /image as they were."""
    shutil.rmtree(ROOT, ignore_errors=True)
    for d in ("bind", "dev", "etc", "image", "mnt", "proc", "run", "sys", "tmp"):
        os.makedirs(os.path.join(ROOT, d))
    shutil.rmtree(BOUND, ignore_errors=True)
    os.mkdir(BOUND)
    files = {f"{ROOT}/image/{name}": name for name in ("open", "changed", "removed", "unseen", "one")}
    files |= {f"{BOUND}/{name}": "bound" for name in ("file", "other")}
    for path, contents in files.items():
        with open(path, "w", encoding="ascii") as f:
            f.write(contents + "\n")
        os.utime(path, (NEVER_CHANGED, NEVER_CHANGED))
    os.link(ROOT + "/image/one", ROOT + "/image/two")


def edit(conf):
    all_rights(conf)
    conf["root"]["path"] = ROOT
    conf["mounts"].append({"destination": "/bind", "type": "bind", "source": BOUND, "options": ["rbind", "rw"]})


def kept_bundle(name):
    make_root()
    return bundle(name, ["/kept"], edit)


def unpacked(archive):
    """The image in @archive: a directory."""
    into = os.path.join(WORK, os.path.basename(archive) + ".image")
    if not os.path.isdir(into):
        os.mkdir(into, 0o700)
        raw = subprocess.run(["zstd", "-dcq", archive], stdout=subprocess.PIPE, check=True, timeout=60).stdout
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            for member in tar:
                with open(os.path.join(into, member.name), "wb") as f:
                    f.write(tar.extractfile(member).read())
    return into


def possible(status, err):
    """The test is skipped where the CPU lacks something that the image names."""
    if status and "this CPU lacks" in err:
        raise Skip("lacks" + err.partition("this CPU lacks")[2].partition(":")[2].rstrip())
    assert status == 0, err


def answers(cid):
    s, out, err = hf("exec", cid, "/run/kept", "go")
    assert (s, out) == (0, "kept: ok\n"), (s, out, err)


def scenarios(archive):
    name = os.path.basename(archive).partition(".")[0]

    def is_imported():
        directory = kept_bundle("b-imported")
        with open(archive, "rb") as f:
            s, _, err = hf("import", "--bundle", directory, name, stdin=f)
        possible(s, err)
        answers(name)
        terminal = on_terminal("attach", name)
        reads(terminal, b"in a session")
        os.close(terminal)
        delete(name)

    def is_restored():
        directory = kept_bundle("b-restored")
        with open(os.devnull, "wb") as out:
            s, err = run_detached(["restore", "--detach", "--bundle", directory, "--image-path", unpacked(archive), name], out)
        possible(s, err)
        answers(name)
        delete(name)

    def is_read_by_the_document():
        img = read_image.Image(unpacked(archive))
        img.verify_pages()
        for o in img.objects:
            img.fields(o)
        have = {read_image.types().by_number[o.type].name for o in img.objects}
        assert {"inode_pseudo", "sock_unix", "tty", "epoll", "lower", "inode_mqueue", "sysv_sem"} <= have, have

    for fn in (is_imported, is_restored, is_read_by_the_document):
        fn.__name__ = f"{name}_{fn.__name__}"
        test(fn)


# ---- making it ----

def plain_registers(fields):
    """Drops vector components that are in their initial state: no other CPU need have them."""
    for fp in (fields["fp"], fields.get("stop_fp")):
        if not fp or not fp["any"]:
            continue
        numbers = [b for b in range(2, 32) if fp["have"] >> b & 1]
        for number, component in zip(numbers, list(fp["components"])):
            keys = number == 9 and component["state"] == bytes.fromhex("5455555500000000")
            if any(component["state"]) and not keys:
                raise SystemExit(f"the guest has used vector component {number}")
            fp["have"] &= ~(1 << number)
        fp["components"] = []


def for_any_cpu(path):
    """The image in @path, whose lists of features are cut."""
    img, types = read_image.Image(path), read_image.types()
    objects = []
    for o in img.objects:
        fields = img.fields(o)
        if o.type == read_image.KERNEL:
            fields["features"] = [f for f in fields["features"] if f["name"].decode() in BASELINE_RECORD]
        if o.type == read_image.TASK:
            plain_registers(fields)
        objects.append(o._replace(fields=types.write(o.type, o.version, fields)))
    meta = dict(img.meta, cpu=" ".join(f for f in img.meta["cpu"].split() if f in BASELINE))
    # Of the machine that made it, nothing: a restore goes by the bundle that it is given (whose hostname is the same).
    meta["config"] = {k: meta["config"][k] for k in ("ociVersion", "hostname")}
    meta["extra"] = {}
    img.write_state(path + "/state", objects=objects, meta=meta)
    return meta["cpu"]


def pack(path, cpu, into):
    with open(path + "/about.json", encoding="utf-8") as f:
        about = dict(json.load(f), cpu=cpu)
    with open(path + "/about.json", "w", encoding="utf-8") as f:
        json.dump(about, f)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("about.json", "pages", "state"):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = os.path.getsize(f"{path}/{name}"), 0o600, about["time"]
            with open(f"{path}/{name}", "rb") as f:
                tar.addfile(info, f)
    data = raw.getvalue().rstrip(b"\0")
    data += bytes(-len(data) % 512 + 1024)
    subprocess.run(["zstd", "-19", "-q", "-f", "--check", "-o", into], input=data, check=True, timeout=60)


def regenerate(into):
    flags = "-std=gnu17 -D_GNU_SOURCE -O1 -march=x86-64 -Wall -Wextra -ffreestanding -fno-stack-protector -fno-pie -no-pie " \
            "-nostdlib -static -s"
    directory = kept_bundle("b-made")
    subprocess.run(["gcc", *flags.split(), "-o", ROOT + "/kept", "-I" + TOP, *SOURCES], check=True)
    with open(os.devnull, "wb") as out:
        s, err = run_detached(["run", "--detach", "--overlay", "memory", "--guest-snapshots", "1", "--bundle",
                               directory, "made"], out)
    assert s == 0, err
    assert wait_for(lambda: hf("exec", "made", "/run/kept", "ready")[0] == 0), "it doesn't start"
    terminal = on_terminal("exec", "-t", "made", "/run/kept", "session")
    reads(terminal, b"in a session")
    archive = os.path.join(WORK, "made.tar.zst")
    with open(archive, "wb") as f:
        p = subprocess.run([HOLDFAST, "--root", STATE, "export", "made"], stdout=f, stderr=subprocess.PIPE, check=False)
    assert p.returncode == 0, p.stderr
    delete("made")
    os.close(terminal)
    path = unpacked(archive)
    pack(path, for_any_cpu(path), into)
    print(f"{into}: {os.path.getsize(into)} bytes")


if sys.argv[1:] == ["--regenerate"]:
    regenerate(HERE + "/kept.tar.zst")
else:
    for kept in KEPT:
        scenarios(kept)
    main()
