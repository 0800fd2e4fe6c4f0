"""Copies between arrays by a kernel: boxes of elements that lie evenly on both sides, one thread an element."""

from __future__ import annotations

from math import prod

from .machine import THREADS, Lines, Unit

# Axes that the copying kernel takes, the innermost included.
AXES = 6
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}


def copying_unit(lines: Lines) -> tuple[Unit, list[int]]:
    """The launch that copies at most so many axes as the kernel takes, and its arguments."""
    count = prod(lines.extents)
    entry = f"copy_{lines.width}{'_wide' if count >= 1 << 31 else ''}"
    missing = AXES - len(lines.extents)
    extents = (*[1] * missing, *lines.extents)
    steps = [(*[0] * missing, *given) for given in (lines.source_steps, lines.target_steps)]
    arguments = [lines.source, lines.target, count, *extents[1:], *steps[0], *steps[1]]
    return Unit(copying_source(lines.width, entry), entry, -(-count // THREADS)), arguments


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
