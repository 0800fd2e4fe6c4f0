"""Copies between arrays by a kernel: boxes of elements that lie evenly on both sides.

One thread an element; where elements next to one another come from one axis and go along another, as images whose
channels are first become ones whose channels are last, by way of tiles in shared memory, so that both sides are read
and written in whole lines.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from .machine import THREADS, Lines, Unit

# Axes that the copying kernel takes, the innermost included.
AXES = 6
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
_OTHERS = AXES - 2  # axes that the turning kernel takes beside the two of its tiles
_WORTH = 16  # elements of either axis from which on a tile is worth its barrier


class _Turn(NamedTuple):
    """The axes whose elements lie next to one another in the source and in the target."""

    source: int
    target: int


def copying_unit(lines: Lines) -> tuple[Unit, list[int]]:
    """The launch that copies at most so many axes as the kernel takes, and its arguments."""
    lines = joined(lines)
    turn = _turned(lines)
    if turn is not None:
        return _turning(lines, turn)
    count = prod(lines.extents)
    entry = f"copy_{lines.width}{'_wide' if count >= 1 << 31 else ''}"
    missing = AXES - len(lines.extents)
    extents = (*[1] * missing, *lines.extents)
    steps = [(*[0] * missing, *given) for given in (lines.source_steps, lines.target_steps)]
    arguments = [lines.source, lines.target, count, *extents[1:], *steps[0], *steps[1]]
    return Unit(copying_source(lines.width, entry), entry, -(-count // THREADS)), arguments


def joined(lines: Lines) -> Lines:
    """The same with axes made one where they follow one another on both sides; at least one axis is left.

    >>> joined(Lines(0, 0, 4, (2, 3, 5), (60, 20, 4), (12, 4, 24))).extents
    (6, 5)
    >>> joined(Lines(0, 0, 4, (2, 3, 5), (60, 20, 4), (60, 20, 4))).extents
    (30,)
    """
    axes: list[tuple[int, int, int]] = []
    for n, first, second in zip(lines.extents, lines.source_steps, lines.target_steps, strict=True):
        if axes and (axes[-1][1], axes[-1][2]) == (n * first, n * second):
            axes[-1] = (axes[-1][0] * n, first, second)
        else:
            axes.append((n, first, second))
    extents, source, target = (tuple(axis[k] for axis in axes) for k in range(3))
    return replace(lines, extents=extents, source_steps=source, target_steps=target)


def outermost(lines: Lines) -> list[Lines]:
    """A copy of many axes as copies of one less."""
    n, *extents = lines.extents
    (first, *from_), (second, *to) = lines.source_steps, lines.target_steps
    return [
        Lines(lines.source + k * first, lines.target + k * second, lines.width, tuple(extents), tuple(from_), tuple(to))
        for k in range(n)
    ]


def copying_source(width: int, entry: str) -> str:
    """The kernel that copies elements of so many bytes, one thread each."""
    word, index = _WORDS[width], "unsigned long long" if entry.endswith("_wide") else "unsigned"
    extents = ", ".join(f"const unsigned long long n{k}" for k in range(1, AXES))
    steps = ", ".join(f"const long long {side}{k}" for side in "ft" for k in range(AXES))
    lines = [
        f"const {index} i = {index}(blockIdx.x) * {THREADS}u + threadIdx.x;",
        "if (i >= count) return;",
        f"{index} left = i;",
    ]
    for k in range(AXES - 1, 0, -1):
        lines.append(f"const {index} i{k} = left % {index}(n{k}); left /= {index}(n{k});")
    lines.append(f"const {index} i0 = left;")
    at = {side: " + ".join(f"i{k} * {side}{k}" for k in range(AXES)) for side in "ft"}
    lines.append(f"*reinterpret_cast<{word}*>(to + {at['t']}) = *reinterpret_cast<const {word}*>(from + {at['f']});")
    body = "".join(f"    {line}\n" for line in lines)
    head = f'extern "C" __global__ void __launch_bounds__({THREADS})\n{entry}(const char* from, char* to, '
    return f"{head}const unsigned long long count, {extents}, {steps}) {{\n{body}}}\n"


# -- tiles -------------------------------------------------------------------------------------------------------------


def _turned(lines: Lines) -> _Turn | None:
    """None where elements that are neighbours on one side are so on the other, or there are too few of them, or too
    many axes."""
    pairs = list(zip(lines.extents, lines.source_steps, lines.target_steps, strict=True))
    source, target = (
        [k for k, axis in enumerate(pairs) if axis[side] == lines.width and axis[0] >= _WORTH] for side in (1, 2)
    )
    if len(source) != 1 or len(target) != 1 or source == target or len(pairs) > AXES:
        return None
    return _Turn(source[0], target[0])


def _turning(lines: Lines, turn: _Turn) -> tuple[Unit, list[int]]:
    """The launch that copies by tiles, and its arguments."""
    side, entry = _side(lines.width), f"turn_{lines.width}"
    others = [k for k in range(len(lines.extents)) if k not in turn]
    missing = _OTHERS - len(others)
    extents = [*[1] * missing, *(lines.extents[k] for k in others)]
    steps = [[*[0] * missing, *(given[k] for k in others)] for given in (lines.source_steps, lines.target_steps)]
    across, along = (lines.extents[k] for k in turn)
    blocks = prod(extents) * -(-across // side) * -(-along // side)
    apart = [lines.source_steps[turn.target], lines.target_steps[turn.source]]
    arguments = [lines.source, lines.target, across, along, *apart, *extents[1:], *steps[0], *steps[1]]
    return Unit(turning_source(lines.width, entry), entry, blocks), arguments


def _side(width: int) -> int:
    """Elements of a tile along either axis: so many that a line of it is a line of memory or near."""
    return 64 if width < 4 else 32


def turning_source(width: int, entry: str) -> str:
    """The kernel that copies tiles of elements of so many bytes; of ``across`` elements next to one another in the
    source, and ``along`` in the target."""
    word, side = _WORDS[width], _side(width)
    extents = ", ".join(f"const unsigned long long n{k}" for k in range(1, _OTHERS))
    steps = ", ".join(f"const long long {name}{k}" for name in "ft" for k in range(_OTHERS))
    lines = [
        f"__shared__ {word} tile[{side}][{side} + 1];",
        f"const unsigned wide = unsigned((across + {side - 1}) / {side});",
        f"const unsigned deep = unsigned((along + {side - 1}) / {side});",
        "unsigned left = blockIdx.x;",
        f"const unsigned long long a = (left % wide) * {side}ull; left /= wide;",
        f"const unsigned long long b = (left % deep) * {side}ull; left /= deep;",
        *(f"const unsigned i{k} = left % unsigned(n{k}); left /= unsigned(n{k});" for k in range(_OTHERS - 1, 0, -1)),
        "const unsigned i0 = left;",
        *(f"{name} += {' + '.join(f'i{k} * {name[0]}{k}' for k in range(_OTHERS))};" for name in ("from", "to")),
        f"const unsigned quick = threadIdx.x % {side}u, slow = threadIdx.x / {side}u;",
        f"for (unsigned k = slow; k < {side}u; k += {THREADS // side}u)",
        "    if (a + quick < across && b + k < along)",
        f"        tile[k][quick] = *reinterpret_cast<const {word}*>(from + (b + k) * fb + (a + quick) * {width});",
        "__syncthreads();",
        f"for (unsigned k = slow; k < {side}u; k += {THREADS // side}u)",
        "    if (a + k < across && b + quick < along)",
        f"        *reinterpret_cast<{word}*>(to + (a + k) * ta + (b + quick) * {width}) = tile[quick][k];",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    head = f'extern "C" __global__ void __launch_bounds__({THREADS})\n{entry}(const char* from, char* to, '
    given = "const unsigned long long across, const unsigned long long along, const long long fb, const long long ta"
    return f"{head}{given}, {extents}, {steps}) {{\n{body}}}\n"
