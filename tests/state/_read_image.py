#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader of images, written from docs/image-format.md alone: what the document leaves out, this can't read.
The fields of objects are read by the notation of docs/image-types.md (_image_types.py).

    python3 _read_image.py DIRECTORY            checks all checksums and prints what is in it
    python3 _read_image.py DIRECTORY NUMBER...  prints the fields of these objects

As a module: Image(directory) has `id`, `meta`, `files` (the table of pages), `objects` and `roots`;
Image.fields(object) takes any of them apart, Image.address_space() one into its mappings. Image.write_state() makes a
`state` of changed objects, with its checksums right: how tests reach the readers behind them.
"""
import collections
import ctypes
import functools
import json
import os
import pprint
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _image_types as image_types  # noqa: E402

PAGE = 4096
HEAD = struct.Struct("<8sII16sQQ")
SECTION = struct.Struct("<IIQQQ")
EXTENT = struct.Struct("<QQIQ")
RECORD = struct.Struct("<HHII")
DESCRIPTION, PAGES, OBJECTS = 1, 2, 3
KERNEL, TASK, CONTAINER, MM, VFS = 1, 2, 20, 51, 70

Object = collections.namedtuple("Object", "type version number fields")
Extent = collections.namedtuple("Extent", "off len src src_off")
Mapping = collections.namedtuple("Mapping", "start end prot flags off name file kind pieces")


class Refused(Exception):
    pass


def need(what, why):
    if not what:
        raise Refused(why)


def xxh3(data):
    fn = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    fn.restype, fn.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
    return fn(bytes(data), len(data))


@functools.lru_cache(maxsize=None)
def types():
    return image_types.Types()


class Cursor:
    """What the tables of an image are made of."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, n):
        need(n <= len(self.data) - self.at, "cut short")
        self.at += n
        return self.data[self.at - n:self.at]

    def num(self, fmt):
        return struct.unpack("<" + fmt, self.bytes(struct.calcsize("<" + fmt)))[0]

    def u32(self):
        return self.num("I")

    def u64(self):
        return self.num("Q")

    def end(self):
        need(self.at == len(self.data), "bytes too many")


def align8(n):
    return n + 7 & ~7


def read_sections(data):
    need(len(data) >= HEAD.size, "cut short")
    magic, version, n, number, size, checksum = HEAD.unpack_from(data)
    need(magic == b"HOLDFAST" and version == 1 and n == 3 and size == len(data), "header")
    end = HEAD.size + n * SECTION.size
    need(xxh3(data[:40] + bytes(8) + data[48:end]) == checksum, "checksum of the header")
    sections = {}
    for i in range(n):
        kind, zero, off, length, digest = SECTION.unpack_from(data, HEAD.size + i * SECTION.size)
        need(kind in (DESCRIPTION, PAGES, OBJECTS) and kind not in sections and not zero and off == end, "section table")
        sections[kind] = data[off:off + length]
        end = align8(off + length)
        need(end <= len(data) and not any(data[off + length:end]), "section table")
        need(xxh3(sections[kind]) == digest, f"checksum of section {kind}")
    need(end == len(data), "data after the last section")
    return number, sections


def read_table(data, sizes):
    c = Cursor(data)
    files = []
    for _ in range(c.u32()):
        need(c.u32() == 0, "kind of file")
        extents, last = [], 0
        for _ in range(c.u32()):
            e = Extent(*EXTENT.unpack(c.bytes(EXTENT.size)))
            need(not (e.off | e.len | e.src_off) % PAGE and e.len and e.off >= last and e.off + e.len <= 1 << 47, "extent")
            need(e.src > 0 or e.src_off + e.len <= sizes[0], "extent beyond the page file")
            last = e.off + e.len
            extents.append(e)
        files.append(extents)
    c.end()
    return files


def read_objects(data):
    c = Cursor(data)
    nobjects, nroots = c.u32(), c.u32()
    roots = [c.u32() for _ in range(nroots)]
    objects = []
    for i in range(nobjects):
        kind, version, number, length = RECORD.unpack(c.bytes(RECORD.size))
        need(number == i + 1 and version > 0, "framing of objects")
        objects.append(Object(kind, version, number, c.bytes(length)))
    c.end()
    need(all(1 <= r <= nobjects for r in roots), "roots")
    return objects, roots


class Image:
    def __init__(self, path):
        self.path = path
        with open(os.path.join(path, "state"), "rb") as f:
            self.id, self.sections = read_sections(f.read())
        self.meta = json.loads(self.sections[DESCRIPTION])
        self.page_bytes = os.path.getsize(os.path.join(path, "pages"))
        need(self.page_bytes == self.meta["pages"]["bytes"], "length of the page file")
        self.files = read_table(self.sections[PAGES], [self.page_bytes])
        self.objects, self.roots = read_objects(self.sections[OBJECTS])

    def verify_pages(self):
        with open(os.path.join(self.path, "pages"), "rb") as f:
            need(xxh3(f.read()) == int(self.meta["pages"]["xxh3"], 16), "checksum of the pages")

    def memory(self, file, off, length):
        """The bytes of a range of memory; of images without parents."""
        out = bytearray(length)
        with open(os.path.join(self.path, "pages"), "rb") as f:
            for e in self.files[file]:
                a, b = max(e.off, off), min(e.off + e.len, off + length)
                if a >= b:
                    continue
                need(e.src == 0, "pages of a parent")
                f.seek(e.src_off + a - e.off)
                out[a - off:b - off] = f.read(b - a)
        return bytes(out)

    def of_type(self, kind):
        return [o for o in self.objects if o.type == kind]

    def fields(self, obj):
        """The fields of an object by name, as docs/image-types.md has them; references lead to what it says."""
        return types().read(obj, self.objects)

    def address_space(self, obj):
        """The mappings of an object of type 51."""
        need(obj.type == MM, "not an address space")
        mappings = []
        for m in self.fields(obj)["mappings"]:
            pieces = [(p["piece"]["at"], p["piece"]["len"], *p["piece"]["where"]) for p in m["private"]]
            need(m["start"] < m["end"] and not (m["start"] | m["end"]) % PAGE, "mapping")
            mappings.append(Mapping(*(m[k] for k in ("start", "end", "prot", "flags", "off", "name", "file", "kind")), pieces))
        return mappings

    def mapped(self, mapping):
        """[(address, bytes)] of a mapping's private pages."""
        return [(start, self.memory(file, off, length)) for start, length, file, off, _ in mapping.pieces]

    def write_state(self, path, objects=None, meta=None, table=None):
        """A `state` with these in place of its own."""
        sections = dict(self.sections)
        if objects is not None:
            head = struct.pack(f"<II{len(self.roots)}I", len(objects), len(self.roots), *self.roots)
            sections[OBJECTS] = head + b"".join(
                RECORD.pack(o.type, o.version, o.number, len(o.fields)) + o.fields for o in objects)
        if meta is not None:
            sections[DESCRIPTION] = json.dumps(meta).encode() if isinstance(meta, dict) else meta
        if table is not None:
            sections[PAGES] = table
        with open(path, "wb") as f:
            f.write(assemble(self.id, sections))


def assemble(number, sections):
    at = HEAD.size + len(sections) * SECTION.size
    table, body = b"", b""
    for kind in sorted(sections):
        data = sections[kind]
        table += SECTION.pack(kind, 0, at + len(body), len(data), xxh3(data))
        body += data + bytes(align8(at + len(body) + len(data)) - at - len(body) - len(data))
    parts = (b"HOLDFAST", 1, len(sections), number, at + len(body))
    return HEAD.pack(*parts, xxh3(HEAD.pack(*parts, 0) + table)) + table + body


def main():
    image = Image(sys.argv[1])
    image.verify_pages()
    for number in map(int, sys.argv[2:]):
        print(f"object {number}, a {types().by_number[image.objects[number - 1].type].name}:")
        pprint.pprint(image.fields(image.objects[number - 1]), sort_dicts=False, width=120)
    if sys.argv[2:]:
        return
    print(f"image {image.id.hex()} of {image.meta['container']}, made by holdfast {image.meta['holdfast']}")
    print(f"{image.page_bytes} bytes of pages, {len(image.files)} memory files, {len(image.objects)} objects")
    for kind, n in sorted(collections.Counter((o.type, o.version) for o in image.objects).items()):
        print(f"  type {kind[0]:3} version {kind[1]}: {n} {types().by_number[kind[0]].name}")
    for mm in image.of_type(MM):
        print(f"address space {mm.number}:")
        for m in image.address_space(mm):
            private = sum(p[1] for p in m.pieces)
            print(f"  {m.start:012x}-{m.end:012x} {m.prot} {private:8} {(m.name or b'').decode(errors='replace')}")


if __name__ == "__main__":
    main()
