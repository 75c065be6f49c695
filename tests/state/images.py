#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images as files: modes, damage of every kind is refused in words, parents, replacing one."""
import os
import random
import shutil
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, WORK, checkpoint, delete, hf, main, restore, says, start, test  # noqa: E402

COUNT = "i=0; while true; do i=$((i+1)); echo n $i; sleep 0.05; done"
COPY = IMAGE + "-copy"


def counting(cid):
    out = start(cid, ["/bin/sh", "-c", COUNT])
    says(out, "n 3")
    return out


def image():
    """The path of an image, made once."""
    if not os.path.isdir(IMAGE):
        counting("i")
        checkpoint("i")
    return IMAGE


def refused(words, *options, path=COPY):
    s, _, err = hf("restore", "--detach", "--image-path", path, *options, "x")
    assert s == 1 and words in err and err.startswith("holdfast: "), (s, err)
    assert "x " not in hf("list")[1], "something is left"


def damaged(name, fn):
    """A copy of the image with @fn's change to the bytes of one file."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(image(), COPY)
    with open(f"{COPY}/{name}", "r+b") as f:
        b = bytearray(f.read())
        changed = fn(b)
        b = b if changed is None else changed
        f.seek(0)
        f.truncate()
        f.write(b)


@test
def only_its_owner_can_read_it():
    assert stat.S_IMODE(os.stat(image()).st_mode) == 0o700
    assert sorted(os.listdir(IMAGE)) == ["pages", "state"]
    for n in ("pages", "state"):
        assert stat.S_IMODE(os.stat(f"{IMAGE}/{n}").st_mode) == 0o600
    assert not [n for n in os.listdir(WORK) if n.endswith(".new")], "a draft is left"


@test
def it_is_restored_any_number_of_times():
    outs = [restore(f"r{i}", image=image()) for i in range(3)]
    for out in outs:
        says(out, "n ")
    delete("r0", "r1", "r2")


@test
def a_flipped_bit_anywhere_is_refused():
    size = os.path.getsize(image() + "/state")
    rnd = random.Random(1)
    for at in [*range(0, 144, 3), *(rnd.randrange(size) for _ in range(60)), size - 1]:
        bit = 1 << rnd.randrange(8)

        def flip(b, at=at, bit=bit):
            b[at] ^= bit
        damaged("state", flip)
        refused("holdfast: image")


@test
def a_short_file_is_refused():
    size = os.path.getsize(image() + "/state")
    for keep in (0, 1, 7, 8, 47, 48, 100, 144, size // 2, size - 1):
        damaged("state", lambda b, keep=keep: b[:keep])
        refused("cut short" if keep >= 8 else "not the state")
    damaged("state", lambda b: b + b"\0")
    refused("cut short, or has grown")
    damaged("pages", lambda b: b[:-4096])
    refused("page file is cut short")


@test
def another_version_is_named():
    def v9(b):
        b[8:12] = (9).to_bytes(4, "little")
    damaged("state", v9)
    refused("version 9 of the format; this holdfast reads version 1")


@test
def damaged_pages_are_found_when_asked():
    def flip(b):
        b[len(b) // 2] ^= 1
    damaged("pages", flip)
    refused("checksum of its pages", "--verify")


@test
def other_files_are_refused():
    shutil.rmtree(COPY, ignore_errors=True)
    refused("no such file")
    os.mkdir(COPY)
    refused("no such file")
    shutil.copy2(image() + "/state", COPY)
    os.mkfifo(COPY + "/pages")
    refused("invalid argument")


@test
def an_image_may_build_on_another():
    out = counting("p")
    shutil.rmtree(WORK + "/p1", ignore_errors=True)
    checkpoint("p", "--leave-running", image=WORK + "/p1")
    says(out, "n 8")
    checkpoint("p", "--parent-path", "../p1", image=WORK + "/p2")
    first, second = (os.path.getsize(f"{WORK}/{n}/pages") for n in ("p1", "p2"))
    assert second < first, (first, second)
    says(restore("q", image=WORK + "/p2"), "n 1")
    delete("q")
    shutil.rmtree(WORK + "/p1")
    refused("needs pages of image", path=WORK + "/p2")
    shutil.rmtree(WORK + "/p2")


@test
def a_new_image_replaces_an_old_one_and_nothing_else():
    counting("o")
    os.makedirs(WORK + "/precious", exist_ok=True)
    with open(WORK + "/precious/file", "w") as f:
        f.write("mine")
    s, _, err = hf("checkpoint", "--image-path", WORK + "/precious", "o")
    assert s == 1 and "is not an image" in err, err
    assert os.path.exists(WORK + "/precious/file")
    os.makedirs(WORK + "/empty", exist_ok=True)
    checkpoint("o", "--leave-running", image=WORK + "/empty")
    before = os.stat(WORK + "/empty/state").st_ino
    checkpoint("o", "--leave-running", image=WORK + "/empty")
    assert os.stat(WORK + "/empty/state").st_ino != before
    assert sorted(os.listdir(WORK + "/empty")) == ["pages", "state"]
    delete("o")


main()
