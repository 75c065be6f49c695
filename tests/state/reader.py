#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader, written from docs/image-format.md and docs/image-types.md, reads real images to their last byte; and
what it writes, holdfast reads or refuses in words that reach the user, whatever the bytes."""
import glob
import os
import random
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _read_image as read_image  # noqa: E402
from _state import (GUESTS, IMAGE, TOP, WORK, all_rights, bundle, busybox_root, checkpoint, delete, guest, guests, hf,  # noqa: E402
                    main, on_terminal, reads, restore, says, start, test, wait_for)

# Lines of docs/image-types.md that no image below needs, as Types.where() names them, and why. None; but on a CPU that has no
# state beyond SSE there is none to be saved.
NEVER_MET = set()
with open("/proc/cpuinfo", encoding="ascii") as cpuinfo:
    if " avx " not in cpuinfo.read():
        NEVER_MET |= {"fpstate: size   u32", "fpstate: state  bytes size"}

MARK = b"a-mark-that-is-nowhere-else"
COPY = IMAGE + "-written"


def image():
    """An image of a shell that has MARK on its stack, and a child; read by the other reader."""
    if not os.path.isdir(IMAGE):
        out = start("i", ["/bin/sh", "-c", "echo READY; i=0; while sleep 0.1; do i=$((i+1)); echo n $i; done", MARK.decode()])
        says(out, "n 2")
        checkpoint("i")
    return read_image.Image(IMAGE)


def written(**changes):
    shutil.rmtree(COPY, ignore_errors=True)
    os.mkdir(COPY, 0o700)
    img = image()
    shutil.copy(IMAGE + "/pages", COPY)
    img.write_state(COPY + "/state", **changes)


def refused(words):
    s, out, err = hf("restore", "--detach", "--image-path", COPY, "x")
    assert s == 1 and words in err and err.startswith("holdfast: "), (s, out, err)
    assert all(c == "\n" or " " <= c <= "~" for c in err), repr(err)


@test
def all_of_an_image_can_be_read():
    img = image()
    img.verify_pages()
    assert img.meta["container"] == "i" and img.meta["purpose"] == "wake"
    assert [img.objects[r - 1].type for r in img.roots] == [read_image.KERNEL, read_image.VFS, read_image.CONTAINER]
    names = img.sections[read_image.OBJECTS]
    assert len(img.of_type(read_image.TASK)) >= 1 and b"sh" in names


@test
def memory_is_found_by_the_tables():
    img = image()
    found = [m for o in img.of_type(read_image.MM) for m in img.address_space(o)
             for _, data in img.mapped(m) if MARK in data]
    assert found, "the stack of the shell isn't there"
    assert all(m.prot & 2 for m in found), found


# ---- every type, by the document ----

def source():
    for path in glob.glob(TOP + "/sentry/**/*.[ch]", recursive=True) + glob.glob(TOP + "/runtime/*.c"):
        with open(path, encoding="utf-8") as f:
            yield os.path.relpath(path, TOP), f.read()


def enum(text, name, prefix):
    """{small name without @prefix: number} of an enum that counts up from the numbers in it."""
    body = re.sub(r"/\*.*?\*/", "", re.search(rf"enum {name} \{{(.*?)\}};", text, re.S)[1], flags=re.S)
    numbers, n = {}, -1
    for entry in filter(None, (e.strip() for e in body.split(","))):
        word, _, value = entry.partition(" = ")
        n = int(value) if value else n + 1
        numbers[word.removeprefix(prefix).lower()] = n
    return numbers


@test
def the_document_has_every_type_as_the_source_does():
    types, files = read_image.types(), dict(source())
    ids = enum(files["sentry/state/state.h"], "state_type_id", "STATE_")
    in_page = {t.name: t.number for t in types.by_number.values()}
    assert in_page == {k: v for k, v in ids.items() if k not in ("none", "type_end")}, set(ids.items()) ^ set(in_page.items())
    found = {}
    for path, text in files.items():
        for m in re.finditer(r"\.id = STATE_(\w+),\s*\.version = (\d+),", text):
            found[m[1].lower()] = int(m[2])
            section = types.by_number[ids[m[1].lower()]].text
            assert os.path.basename(path) in section, f"{path} has type {m[1].lower()}, and its section doesn't say so"
    documented = {t.name: t.version for t in types.by_number.values() if t.version}
    assert found == documented, set(found.items()) ^ set(documented.items())


@test
def the_document_has_every_kind_of_file():
    files = dict(source())
    ids = enum(files["sentry/vfs/vfs_state.h"], "file_state_id", "FILE_")
    with_fields = set()
    for text in files.values():
        for m in re.finditer(r"struct file_state \w+ = \{([^}]*)\}", text):
            if ".fields" in m[1]:
                with_fields.add(ids[re.search(r"\.id = FILE_(\w+)", m[1])[1].lower()])
    types = read_image.types()
    cases = {int(n) for line in types.by_number[ids_of_types()["file"]].body if line.text.startswith("if kind = ")
             for n in line.text[len("if kind = "):-1].split("|")}
    assert cases == with_fields, cases ^ with_fields


def ids_of_types():
    return {t.name: t.number for t in read_image.types().by_number.values()}


def read_all(path):
    """Every object of an image, by the document; made again, it has the same bytes."""
    img, types = read_image.Image(path), read_image.types()
    for o in img.objects:
        assert types.write(o.type, o.version, img.fields(o)) == o.fields, f"object {o.number} of type {o.type}"
    assert len(img.objects) > 50, len(img.objects)


def of_guests():
    """An image of each program that sets things up for the tests of restoring."""
    for program in guests():
        says(start("a", [guest(program)]), "READY")
        checkpoint("a", image=IMAGE + program)
        yield IMAGE + program


def of_terminals_and_binds():
    """A first process and one of `exec` on terminals; a bind mount; files of the image with several names."""
    root, host = WORK + "/reader-root", WORK + "/reader-host"
    shutil.copytree(busybox_root(), root, symlinks=True)
    for d in (root + "/several", root + "/host", host):
        os.mkdir(d)
    for path in (root + "/several/one", host + "/file", host + "/another", host + "/third"):
        with open(path, "w", encoding="ascii") as f:
            f.write("hostfile\n")
    os.link(root + "/several/one", root + "/several/two")
    shutil.copy2(os.path.join(GUESTS, "guest_open"), root + "/bin")

    def edit(conf):
        all_rights(conf)
        conf["root"]["path"] = root
        conf["process"]["terminal"] = True
        conf["mounts"].append({"destination": "/host", "type": "bind", "source": host, "options": ["rbind", "rw"]})

    fds = [on_terminal("run", "--guest-snapshots", "1", "--bundle", bundle("rich", ["/bin/guest_open"], edit), "rich")]
    assert wait_for(lambda: hf("exec", "rich", "/bin/true")[0] == 0), "it doesn't run"
    fds.append(on_terminal("exec", "-t", "rich", "/bin/sh", "-c", "echo hello; touch /tmp/state/shell; exec cat"))
    assert wait_for(lambda: hf("exec", "rich", "/bin/ls", "/tmp/state/shell")[0] == 0), "no shell on the terminal"
    reads(fds[0], b"READY")
    checkpoint("rich", image=IMAGE + "rich")
    for fd in fds:
        os.close(fd)
    yield IMAGE + "rich"


@test
def every_record_is_read_to_its_last_byte():
    for path in [*of_guests(), *of_terminals_and_binds()]:
        read_all(path)
    types = read_image.types()
    missed = {types.where(n) for n in set(types.lines) - types.met if types.lines[n].text != "else:"}
    assert missed == NEVER_MET, f"no image has {missed - NEVER_MET}, there is one with {NEVER_MET - missed}"


# ---- what the other reader writes ----

@test
def what_it_writes_unchanged_is_restored():
    written(objects=image().objects)
    says(restore("r", image=COPY), "n ")
    delete("r")


@test
def objects_with_right_checksums_and_wrong_contents():
    objects = image().objects
    task = image().of_type(read_image.TASK)[0]
    written(objects=[o._replace(fields=o.fields[:-1]) if o.number == task.number else o for o in objects])
    refused("cannot restore from the image: ")
    written(objects=[o._replace(fields=o.fields + b"\0") if o.number == task.number else o for o in objects])
    refused("bytes too many")
    written(objects=[o._replace(type=159) if o.number == task.number else o for o in objects])
    refused("objects of type 159 are unknown to this version")
    written(objects=[o._replace(version=99) if o.number == task.number else o for o in objects])
    refused("task objects of version 99")
    written(meta=dict(image().meta, cpu="sse2 \x1b[2J"))
    refused("description is malformed")
    written(meta=dict(image().meta, cpu="sse2 warp9"))
    refused("this CPU lacks what its programs may be using: warp9")
    written(meta=b"[1, 2]")
    refused("description is malformed")
    written(table=b"\1\0\0\0")
    refused("table of its pages")


@test
def names_that_are_no_text_reach_the_user_as_words():
    """A file system's name of bytes that are neither ASCII nor UTF-8, and an escape sequence."""
    objects = image().objects
    evil = b"\x1b[2J\xff"
    assert any(b"tmpfs" in o.fields for o in objects)
    changed = [o._replace(fields=o.fields.replace(b"\5\0\0\0tmpfs", b"\5\0\0\0" + evil)) for o in objects]
    written(objects=changed)
    refused('there is no file system "?[2J?"')


@test
def random_damage_behind_checksums_never_kills_the_sentry():
    objects = image().objects
    rnd = random.Random(4)
    for _ in range(40):
        victim = rnd.choice(objects)
        if not victim.fields:
            continue
        b = bytearray(victim.fields)
        for _ in range(1 + rnd.randrange(3)):
            at = rnd.randrange(len(b))
            b[at:at + 4] = rnd.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1\0\0\0", b"\0\0\0\x80"))[:len(b) - at]
        written(objects=[o._replace(fields=bytes(b)) if o.number == victim.number else o for o in objects])
        s, _, err = hf("restore", "--detach", "--image-path", COPY, "x")
        assert s == 0 or err.startswith("holdfast: cannot restore from the image: "), \
            f"object {victim.number} of type {victim.type}: {s} {err!r}; the image is {COPY}"
        if s == 0:
            delete("x")


@test
def a_restored_container_may_have_another_hostname():
    def hostname(cid):
        return hf("exec", cid, "/bin/hostname")[1].strip()

    image()
    restore("same", image=IMAGE)
    was = hostname("same")
    assert was not in ("", "other")
    delete("same")
    restore("b", "--hostname", "other", image=IMAGE)
    assert hostname("b") == "other", hostname("b")
    s, _, err = hf("fork", "--hostname", "third", "b", "c")
    assert s == 0 and hostname("c") == "third" and hostname("b") == "other", err
    delete("b", "c")
    s, _, err = hf("restore", "--detach", "--hostname", "n" * 65, "--image-path", IMAGE, "x")
    assert s == 1 and "1 to 64 bytes" in err, err


main()
