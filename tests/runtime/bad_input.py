#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad bundles, ids and directories: one clear line on stderr and in the log, nothing left behind."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _lib import STATE, WORK, bundle, hf, main, test  # noqa: E402


def refused(*args, words=(), status=1):
    log = WORK + "/log.json"
    if os.path.exists(log):
        os.unlink(log)
    s, out, err = hf("--log", log, "--log-format", "json", *args)
    assert s == status, (s, out, err)
    assert len(err.strip().splitlines()) == 1, err
    for w in words:
        assert w in err, (w, err)
    records = [json.loads(line) for line in open(log)]
    errors = [r for r in records if r["level"] == "error"]
    assert errors and all(w in errors[-1]["msg"] for w in words), records
    assert not os.path.isdir(STATE) or not os.listdir(STATE), os.listdir(STATE)


def raw(text):
    d = WORK + "/raw"
    os.makedirs(d, exist_ok=True)
    with open(d + "/config.json", "w") as f:
        f.write(text)
    return d


@test
def config_is_not_json():
    refused("run", "-b", raw("{ not json"), "x", words=["config.json", "not valid JSON"])


@test
def config_is_missing():
    os.makedirs(WORK + "/empty", exist_ok=True)
    refused("run", "-b", WORK + "/empty", "x", words=["config.json", "no such file"])


@test
def bundle_is_missing():
    refused("run", "-b", WORK + "/nowhere", "x", words=["nowhere", "no such file"])


@test
def fields_are_missing_or_of_the_wrong_type():
    for edit, word in (
            (lambda c: c.pop("process"), "process"),
            (lambda c: c.pop("root"), "root"),
            (lambda c: c.pop("ociVersion"), "ociVersion"),
            (lambda c: c.update(ociVersion="2.0"), "ociVersion"),
            (lambda c: c["process"].update(args=[]), "process.args"),
            (lambda c: c["process"].update(args="sh"), "process.args"),
            (lambda c: c["process"].update(cwd="relative"), "process.cwd"),
            (lambda c: c["process"].update(user={"uid": -1}), "process.user.uid"),
            (lambda c: c["process"].update(user={"uid": 1 << 40}), "process.user.uid"),
            (lambda c: c["process"].update(rlimits=[{"type": "RLIMIT_NONE", "soft": 1, "hard": 1}]), "rlimits"),
            (lambda c: c["process"].update(rlimits=[{"type": "RLIMIT_CPU", "soft": 2, "hard": 1}]), "rlimits"),
            (lambda c: c.update(hostname="x" * 100), "hostname"),
            (lambda c: c.update(mounts={"a": 1}), "mounts"),
            (lambda c: c["mounts"].append({"type": "tmpfs"}), "destination")):
        refused("run", "-b", bundle("bad", edit=edit), "x", words=["config.json", word])


@test
def rootfs_is_missing():
    refused("run", "-b", bundle("bad", edit=lambda c: c.update(root={"path": "/no/such/dir"})), "x",
            words=["/no/such/dir", "no such file"])


@test
def bind_source_is_missing():
    refused("run", "-b", bundle("bad", edit=lambda c: c["mounts"].append(
        {"destination": "/x", "type": "bind", "source": "/no/such", "options": ["bind"]})), "x",
        words=["/no/such", "no such file"])


@test
def program_is_missing():
    refused("run", "-b", bundle("bad", ["/no/such/program"]), "x", words=["/no/such/program", "no such file or directory"])
    refused("run", "-b", bundle("bad", ["nothere"]), "x", words=["nothere", "executable file not found"])


@test
def ids_are_checked():
    b = bundle("ok")
    for bad in ("a/b", "..", ".", "", "a b", "x" * 2000):
        refused("run", "-b", b, bad, words=["container id"])


@test
def unknown_ids_are_reported():
    for verb in ("state", "start", "kill", "delete", "ps", "wait"):
        refused(verb, "unknown", words=["does not exist"])
    refused("exec", "unknown", "true", words=["does not exist"], status=255)


@test
def duplicate_id():
    b = bundle("ok", ["/bin/sleep", "100"])
    assert hf("create", "-b", b, "dup")[0] == 0
    try:
        s, _, err = hf("create", "-b", b, "dup")
        assert s == 1 and "already exists" in err and len(err.strip().splitlines()) == 1
    finally:
        assert hf("delete", "--force", "dup")[0] == 0


@test
def unwritable_state_directory():
    s, _, err = hf("run", "-b", bundle("ok"), "x", root="/proc/nope")
    assert s == 1 and "/proc/nope" in err and len(err.strip().splitlines()) == 1, err


@test
def full_disk():
    os.makedirs(WORK + "/full", exist_ok=True)
    os.system(f"mount -t tmpfs -o size=4k none {WORK}/full && head -c 4096 /dev/zero > {WORK}/full/fill")
    try:
        s, _, err = hf("run", "-b", bundle("ok"), "x", root=WORK + "/full/state")
        assert s == 1 and "/full" in err and len(err.strip().splitlines()) == 1, err
        assert not os.path.exists(WORK + "/full/state/x")
    finally:
        os.system(f"umount {WORK}/full")


@test
def unknown_options_and_commands():
    assert hf("run", "--nonsense", "x")[0] == 1
    assert hf("nonsense")[0] == 1
    assert hf("run")[0] == 1


@test
def every_command_has_help():
    for verb in ("run", "create", "start", "exec", "state", "list", "ps", "kill", "delete", "wait", "spec", "features", "do"):
        s, out, _ = hf(verb, "--help")
        assert s == 0 and "SYNOPSIS" in out and verb in out


main()
