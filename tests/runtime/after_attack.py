#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a hostile guest breaks is its own: the sandbox, its other processes and the operator's commands go on."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import TOP, bundle, busybox_root, hf, main, state, test  # noqa: E402

ATTACKS = ("fuzz_calls", "races", "exec_mutants")


@test
def sandbox_goes_on_after_each_attack():
    for a in ATTACKS:
        shutil.copy(f"{TOP}/build/tests/escape/{a}", busybox_root() + "/bin/" + a)
    b = bundle("b", ["/bin/sh", "-c", "n=0; while true; do n=$((n+1)); sleep 0.1; done"])
    assert hf("run", "-d", "-b", b, "a")[0] == 0
    for a in ATTACKS:
        s, out, err = hf("exec", "--cwd", "/tmp", "a", "/bin/" + a, timeout=120)
        # Garbage may well be kill(-1, n), which takes the guest's own processes along but pid 1.
        assert s == 0 or (a == "fuzz_calls" and s > 128), (a, s, out, err)
        assert hf("exec", "a", "/bin/sh", "-c", "echo $((6*7)) | cat")[1] == "42\n", a
        assert state("a")["status"] == "running"
    assert hf("kill", "a", "KILL")[0] == 0
    assert hf("wait", "a")[0] == 137
    assert hf("delete", "a")[0] == 0


main()
