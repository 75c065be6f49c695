#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that a compiler doesn't know: layering, banned calls, guest pointers, licence heads, sizes, saved
types without documentation."""
import glob
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Whose headers a folder may include, beside its own.
LAYERS = {
    "base": set(),
    "platform": {"base"},
    "netstack": {"base"},
    "gofer": {"base"},
    "sentry": {"base", "platform", "netstack", "gofer"},
    "syscalls": {"base", "platform", "sentry"},
    "runtime": {"base", "platform", "sentry", "syscalls", "gofer"},
}
# Single headers that cross a layer, each with its reason.
CROSSINGS = {
    ("platform", "sentry/mm/mfile.h"): "what a mapping maps: descriptors and offsets, no sentry state",
    ("platform", "sentry/mm/safecopy.h"): "the fault handler that reads of stub memory rely on",
}
GOFER_SHARED = {"gofer/wire.h"}  # all that the sentry may see of the gofer
BANNED = {
    "strcpy": "no bound", "strcat": "no bound", "sprintf": "no bound", "vsprintf": "no bound",
    "strtok": "hidden state", "gets": "no bound", "alloca": "unbounded stack", "atoi": "no errors",
    "atol": "no errors", "malloc": "base/alloc.h", "calloc": "base/alloc.h", "realloc": "base/alloc.h",
    "strdup": "base/alloc.h", "strndup": "base/alloc.h", "system": "runs a shell", "popen": "runs a shell",
}
MAX_LINES = 1000
problems = []


def problem(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def strip(src):
    """Source without comments and string contents, lines kept."""
    src = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), src, flags=re.S)
    src = re.sub(r"//[^\n]*", "", src)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', src)


def check_includes(path, src):
    layer = path.split("/")[0]
    if layer not in LAYERS:
        return
    for m in re.finditer(r'^#\s*include "([^"]+)"', src, re.M):
        target = m[1].split("/")[0]
        line = src[:m.start()].count("\n") + 1
        if target == layer or target not in LAYERS or (layer, m[1]) in CROSSINGS:
            continue
        if target not in LAYERS[layer]:
            problem(path, line, f"{layer}/ must not include {m[1]}")
        elif layer == "sentry" and target == "gofer" and m[1] not in GOFER_SHARED:
            problem(path, line, f"the sentry sees only {sorted(GOFER_SHARED)} of the gofer, not {m[1]}")


def check_code(path, src):
    code = strip(src)
    if not path.startswith(("base/alloc.c", "tests/", "platform/stub/")):
        for m in re.finditer(r"(?<![\w.>])(\w+)\s*\(", code):
            if m[1] in BANNED:
                problem(path, code[:m.start()].count("\n") + 1, f"{m[1]}() is banned: {BANNED[m[1]]}")
    if not path.startswith(("base/gaddr.h", "sentry/mm/", "platform/", "tests/")):
        for m in re.finditer(r"[.>]va\b", code):
            problem(path, code[:m.start()].count("\n") + 1, "guest addresses are opaque here: use gaddr.h")


def check_head(path, src):
    first = src.split("\n", 2)[:2]
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in first):
        problem(path, 1, "no SPDX line")
    if src.count("\n") > MAX_LINES:
        problem(path, MAX_LINES, f"more than {MAX_LINES} lines: split by concept")


def check_mode(full, path, src):
    """What the test runner starts is executable."""
    if src.startswith("#!") and not os.access(full, os.X_OK):
        problem(path, 1, "has an interpreter line, but is not executable")


def documented_types():
    """(name, version) of the saved types that docs/image-types.md has."""
    with open(f"{TOP}/docs/image-types.md", encoding="utf-8") as f:
        return set(re.findall(r"^## \d+ (\w+), version (\d+)$", f.read(), re.M))


def check_saved_types(path, src, documented):
    for m in re.finditer(r"\.id = STATE_(\w+),\s*\.version = (\d+),", src):
        if (m[1].lower(), m[2]) not in documented:
            problem(path, src[:m.start()].count("\n") + 1,
                    f"docs/image-types.md has no version {m[2]} of type {m[1].lower()}: its fields belong there")


def sources():
    for layer in list(LAYERS) + ["tests", "tools"]:
        for ext in ("c", "h", "S", "py", "sh", "def"):
            yield from glob.glob(f"{TOP}/{layer}/**/*.{ext}", recursive=True)


def main():
    n, documented = 0, documented_types()
    for full in sorted(sources()):
        path = os.path.relpath(full, TOP)
        with open(full, encoding="utf-8") as f:
            src = f.read()
        n += 1
        check_head(path, src)
        check_mode(full, path, src)
        if path.endswith((".c", ".h")):
            check_includes(path, src)
            check_code(path, src)
            check_saved_types(path, src, documented)
    for p in problems:
        print(p)
    print(f"lint: {n} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
