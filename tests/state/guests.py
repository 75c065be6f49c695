#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything comes back: each guest_* is saved when it is READY, and says in the restored sandbox, in the original
that went on, in a branch, and in one restored from an image of a restored one whether all is as it was."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _state import IMAGE, checkpoint, delete, go, guest, guests, hf, main, restore, says, start, test, text  # noqa: E402


def verdict(cid, out):
    go(cid)
    says(out, "DONE")
    bad = [line for line in text(out).splitlines() if line.startswith("FAIL")]
    assert not bad and "DONE 0" in text(out), "\n".join(bad)


def scenario(name):
    path = guest(name)

    def restored():
        says(start("a", [path]), "READY")
        checkpoint("a")
        assert "a " not in hf("list")[1], "it is still there"
        verdict("b", restore("b"))
        verdict("c", restore("c"))
        delete("b", "c")

    def goes_on():
        out = start("a", [path])
        says(out, "READY")
        checkpoint("a", "--leave-running")
        verdict("a", out)
        verdict("b", restore("b"))
        delete("a", "b")

    def twice():
        says(start("a", [path]), "READY")
        checkpoint("a")
        restore("b")
        checkpoint("b", image=IMAGE + "2")
        verdict("c", restore("c", image=IMAGE + "2"))
        delete("c")

    def branched():
        out = start("a", [path])
        says(out, "READY")
        s, ids, err = hf("fork", "a", "f")
        assert s == 0 and ids == "f\n", err
        verdict("a", out)
        go("f")
        s, said, err = hf("exec", "f", "/bin/sh", "-c", "while ! [ -e /tmp/state/done ]; do sleep 0.1; done; cat /tmp/state/done")
        assert s == 0 and said.strip() == "0", (said, err)
        delete("a", "f")

    for fn in (restored, goes_on, twice, branched):
        fn.__name__ = f"{name[6:]}_{fn.__name__}"
        test(fn)


for program in guests():
    scenario(program)
main()
