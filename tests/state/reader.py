#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader, written from docs/image-format.md, reads a real image; and what it writes, holdfast reads or refuses
in words that reach the user, whatever the bytes."""
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _read_image as read_image  # noqa: E402
from _state import IMAGE, checkpoint, delete, hf, main, restore, says, start, test  # noqa: E402

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
