# SPDX-License-Identifier: Apache-2.0
"""The notation of docs/image-types.md: reads that page, and by it takes records apart and makes them. Nothing here knows
any type: what the page leaves out or has wrong, this can't read.

    types = Types()
    fields = types.read(object, objects)      a dict; lists and dicts of them for lines that hold others
    types.write(number, version, fields)      bytes

types.met is the set of lines of the page that were needed for something so far; types.where(line) names one.
"""
import os
import re
import struct

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/image-types.md")
HEADING = re.compile(r"## (\d+) (\w+)(?:, version (\d+))?$")
CONDITION = re.compile(r"(not )?([\w.]+)(?: & (\w+))?(?: (=|<|>=|is) ([\w|]+))?$")
LOOP = re.compile(r"(\w+)\[(.*)\]$")
INTEGERS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i16": "h", "i32": "i", "i64": "q"}


class Wrong(Exception):
    """A record that isn't what the page says, or a page that isn't in its own notation."""


class Type:
    def __init__(self, number, name, version, line):
        self.number, self.name, self.version, self.line, self.body, self.text = number, name, version, line, [], ""


class Line:
    """One line of the notation: a field, or one that holds others (`body`; of an if: `other` is its else's)."""

    def __init__(self, number, owner, text):
        self.number, self.owner, self.text, self.body, self.other = number, owner, text, [], []
        self.holds = text.endswith(":")
        if self.holds:
            self.loop = LOOP.match(text[:-1])
            self.condition = CONDITION.match(text[3:-1]) if text.startswith("if ") else None
            if not self.loop and not self.condition and text != "else:":
                raise Wrong(f"line {number}: {text!r}")
        else:
            self.name, self.kind, *self.args = text.split()


class Reading:
    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, n, _):
        if n > len(self.data) - self.at:
            raise Wrong("cut short")
        self.at += n
        return self.data[self.at - n:self.at]

    def num(self, fmt, _):
        return struct.unpack("<" + fmt, self.bytes(struct.calcsize("<" + fmt), None))[0]

    def sized(self, fmt, _, plus=0):
        """Bytes behind their length, which is larger by @plus; None for a length of 0 then."""
        n = self.num(fmt, None)
        return None if n < plus else self.bytes(n - plus, None)

    @staticmethod
    def get(_fields, _name):
        return None

    @staticmethod
    def elements(n, fields, name):
        fields[name] = [{} for _ in range(n)]
        return fields[name]


class Writing:
    def __init__(self):
        self.data = bytearray()

    def bytes(self, n, value):
        if len(value) != n:
            raise Wrong(f"{len(value)} bytes for {n}")
        self.data += value
        return value

    def num(self, fmt, value):
        self.data += struct.pack("<" + fmt, value)
        return value

    def sized(self, fmt, value, plus=0):
        self.num(fmt, 0 if value is None else len(value) + plus)
        return None if value is None else self.bytes(len(value), value)

    @staticmethod
    def get(fields, name):
        return fields[name]

    @staticmethod
    def elements(n, fields, name):
        if n != len(fields[name]):
            raise Wrong(f"{len(fields[name])} elements of {name} for {n}")
        return fields[name]


def number(text):
    return 2 ** 63 - 1 if text == "max" else int(text, 0)


def look(scopes, name):
    """A field by name, innermost first; "a.b" is field b of part a."""
    first, *rest = name.split(".")
    for scope in reversed(scopes):
        if first in scope:
            value = scope[first]
            for part in rest:
                value = value[part]
            return value
    raise Wrong(f"no field {name} before this")


class Walk:
    """One record, in either direction."""

    def __init__(self, types, io, version, objects):
        self.types, self.io, self.version, self.objects = types, io, version, objects

    def block(self, lines, fields, scopes):
        scopes = scopes + [fields]
        for line in lines:
            self.types.met.add(line.number)
            try:
                if not line.holds:
                    fields[line.name] = self.field(line, self.io.get(fields, line.name), scopes)
                elif line.loop:
                    self.repeat(line, fields, scopes)
                else:
                    self.block(line.body if self.holds(line.condition, scopes) else line.other, fields, scopes)
            except Wrong as e:
                raise Wrong(str(e) if "image-types.md:" in str(e) else f"image-types.md:{line.number}: {line.text}: {e}") from e

    def holds(self, condition, scopes):
        negated, name, mask, relation, wanted = condition.groups()
        value = self.version if name == "version" else look(scopes, name)
        if mask:
            value &= number(mask)
        if relation == "is":
            return (value is None) == (wanted == "none")
        if relation == "<":
            return value < number(wanted)
        if relation == ">=":
            return value >= number(wanted)
        if relation == "=":
            return value in [number(w) for w in wanted.split("|")]
        return bool(value) != bool(negated)

    def repeat(self, line, fields, scopes):
        name, count = line.loop.groups()
        old = self.io.get(fields, name)
        bits = re.match(r"bits (\d+)\.\.(\d+) of (\w+)$", count)
        if not count:
            n = self.io.num("I", len(old) if old is not None else None)
        elif bits:
            first, last, mask = int(bits[1]), int(bits[2]), look(scopes, bits[3])
            n = sum(mask >> b & 1 for b in range(first, last + 1))
        elif count.endswith(" + 1"):
            n = look(scopes, count[:-4]) + 1
        else:
            n = int(count) if count.isdigit() else look(scopes, count)
        for element in self.io.elements(n, fields, name):
            self.block(line.body, element, scopes)

    def field(self, line, old, scopes):
        kind, args, io = line.kind, line.args, self.io
        if kind in self.types.parts:
            inner = {} if old is None else old
            self.block(self.types.parts[kind], inner, scopes)
            return inner
        if kind == "ref":
            return self.reference(args, io.num("I", old))
        if kind in INTEGERS:
            return self.integer(args, io.num(INTEGERS[kind], old))
        if kind == "bool":
            return self.integer(["0..1"], io.num("B", old))
        if kind == "bytes":
            return io.bytes(int(args[0]) if args[0].isdigit() else look(scopes, args[0]), old)
        if kind in ("str", "counted"):
            return self.text(kind == "str", io.sized("I", old))
        if kind in ("heapstr", "blob"):
            return self.text(kind == "heapstr", io.sized("Q", old, 1))
        if kind == "pages":
            return tuple(io.num(f, v) for f, v in zip("IQQ", old or (None, None, None)))
        raise Wrong(f"unknown notation {kind}")

    @staticmethod
    def text(plain, value):
        if plain and value and 0 in value:
            raise Wrong("a string with a NUL inside")
        return value

    @staticmethod
    def integer(args, value):
        if args:
            low, high = args[0].split("..")
            if not number(low) <= value <= number(high):
                raise Wrong(f"{value}")
        return value

    def reference(self, args, n):
        wanted = self.types.families.get(args[0], [args[0]])
        if not n and args[1:] != ["or", "0"]:
            raise Wrong("0")
        if n and self.objects is not None:
            if n > len(self.objects):
                raise Wrong(f"there is no object {n}")
            found = self.types.by_number[self.objects[n - 1].type].name
            if found not in wanted:
                raise Wrong(f"object {n} is a {found}")
        return n


class Types:
    def __init__(self, page=PAGE):
        self.by_number, self.parts, self.families, self.met, self.lines = {}, {}, {}, set(), {}
        with open(page, encoding="utf-8") as f:
            self.parse(f.read().splitlines())
        self.check_names()

    def parse(self, lines):
        owner, inside = None, False
        stack = []
        for n, text in enumerate(lines, 1):
            heading = HEADING.match(text)
            if text.startswith("```"):
                inside, stack = not inside, []
            elif inside:
                self.parse_line(n, text.split("#")[0].rstrip(), owner, stack)
            elif heading:
                owner = Type(int(heading[1]), heading[2], int(heading[3] or 0), n)
                if owner.number in self.by_number:
                    raise Wrong(f"line {n}: type {owner.number} twice")
                self.by_number[owner.number] = owner
            elif text.startswith("## "):
                owner = None
            elif owner:
                owner.text += text + "\n"

    def parse_line(self, n, text, owner, stack):
        """@stack: the lists of lines that are around this one."""
        depth, words = (len(text) - len(text.lstrip())) // 4, text.split()
        if not words:
            return
        if words[0] == "family":
            self.families[words[1].rstrip(":")] = words[2:]
            return
        if words[0] == "part":
            stack[:] = [self.parts.setdefault(words[1].rstrip(":"), [])]
            self.part = words[1].rstrip(":")
            return
        if not stack:
            if owner is None:
                raise Wrong(f"line {n}: of which type is this?")
            self.part = owner.name
            stack.append(owner.body)
        in_part = stack[0] is not (owner.body if owner else None)
        del stack[depth + (0 if in_part else 1):]
        line = Line(n, self.part, text.strip())
        self.lines[n] = line
        if text.strip() == "else:":
            stack.append(stack[-1][-1].other)
            return
        stack[-1].append(line)
        if line.holds:
            stack.append(line.body)

    def check_names(self):
        names = {t.name for t in self.by_number.values()}
        for family, members in self.families.items():
            if set(members) - names:
                raise Wrong(f"family {family}: {set(members) - names}")
        for line in self.lines.values():
            if not line.holds and line.kind == "ref" and line.args[0] not in names | set(self.families):
                raise Wrong(f"line {line.number}: there is no type {line.args[0]}")

    def where(self, line):
        return f"{self.lines[line].owner}: {self.lines[line].text}"

    def body(self, kind, version):
        t = self.by_number.get(kind)
        if not t or not t.body or not 1 <= version <= t.version:
            raise Wrong(f"image-types.md: no type {kind} of version {version}")
        return t.body

    def read(self, obj, objects=None):
        """The fields of a record; with @objects references are checked as well."""
        io, fields = Reading(obj.fields), {}
        Walk(self, io, obj.version, objects).block(self.body(obj.type, obj.version), fields, [])
        if io.at != len(obj.fields):
            raise Wrong(f"object {obj.number}, a {self.by_number[obj.type].name}: {len(obj.fields) - io.at} bytes too many")
        return fields

    def write(self, kind, version, fields):
        io = Writing()
        Walk(self, io, version, None).block(self.body(kind, version), fields, [])
        return bytes(io.data)
