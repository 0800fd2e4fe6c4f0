"""The kernels in a compiled image and the sizes of their parameters: read from the image itself.

A cubin is an ELF file with a section `.nv.info.KERNEL` for each kernel, a list of attributes. An attribute is
`format, code, value` in four bytes, except format 4, whose value is a length and that many bytes. Read are a parameter
(0x17: index u32, ordinal u16, offset u16, then the size in bits 18-31; of kernels with more than 4 KB of them, for
which those bits do not suffice, 0x45: the same with the size in all 32 bits) and the declared block size (0x05).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SIZED, _PARAMETER, _LONG_PARAMETER, _MAX_THREADS = 4, 0x17, 0x45, 0x05
_INFO = ".nv.info."


@dataclass(frozen=True)
class Entry:
    """One kernel: its name in the image, its parameters' sizes in bytes in order, the most threads a block may have.

    `threads` is 0 where the kernel declares no bound.
    """

    name: str
    parameters: tuple[int, ...]
    threads: int = 0


def entries(image: bytes) -> dict[str, Entry]:
    """The kernels of a cubin or of portable assembly, by name."""
    found = _cubin_entries(image) if image.startswith(b"\x7fELF") else _assembly_entries(image.decode("ascii"))
    return {entry.name: entry for entry in found}


def _cubin_entries(image: bytes) -> Iterator[Entry]:
    for name, body in _sections(image):
        if name.startswith(_INFO):
            yield _entry(name.removeprefix(_INFO), body)


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + index * size) for index in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, length in headers:
        start = strings + name
        yield image[start : image.index(b"\0", start)].decode("ascii"), image[offset : offset + length]


def _entry(name: str, attributes: bytes) -> Entry:
    sizes: dict[int, int] = {}
    threads = 0
    for code, value in _attributes(attributes):
        if code in (_PARAMETER, _LONG_PARAMETER):
            _, ordinal, _, bits = struct.unpack_from("<IHHI", value)
            sizes[ordinal] = bits >> 18 if code == _PARAMETER else bits
        elif code == _MAX_THREADS:
            x, y, z = struct.unpack_from("<III", value)
            threads = x * y * z
    return Entry(name, tuple(sizes[ordinal] for ordinal in sorted(sizes)), threads)


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 4 <= len(body):
        form, code, short = struct.unpack_from("<BBH", body, place)
        place += 4
        if form == _SIZED:
            yield code, body[place : place + short]
            place += short


_ASSEMBLY_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)((?:\s*\.\w+[^\n{]*)*)")
_ASSEMBLY_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)\s[^,\[]*(?:\[(\d+)\])?")
_ASSEMBLY_THREADS = re.compile(r"\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?")


def _assembly_entries(text: str) -> Iterator[Entry]:
    for name, parameters, directives in _ASSEMBLY_ENTRY.findall(text):
        sizes = tuple(int(bits) // 8 * int(count or 1) for bits, count in _ASSEMBLY_PARAMETER.findall(parameters))
        bound = _ASSEMBLY_THREADS.search(directives)
        threads = int(bound[1]) * int(bound[2] or 1) * int(bound[3] or 1) if bound else 0
        yield Entry(name, sizes, threads)
