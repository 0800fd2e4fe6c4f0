"""Attention of few queries by a kernel of its own: many blocks share the keys, which libraries leave to one a head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...dtypes import name_of
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from .arrays import DeviceArray, apart
from .machine import WARP, Attention, Machine, Unit
from .writing import Written

# Rows of queries that are few; queries of a block, whose states its threads hold.
ROWS, QUERIES = 4, 8
WIDTHS = (32, 64, 128, 256)
# Threads of a block, and keys that each asks for ahead: of 128 and 256 threads, 1 to 4 keys and 1 to 4 blocks for each
# multiprocessor the quickest, or nearly, from 1,024 to 65,536 keys of 8 or 32 groups of heads (H200, 2026-11-23).
THREADS, AHEAD = 256, 4
PARTS = 64
# Widths of vectors of 16-bit elements that fragments are made of; keys that a warp has at a time. 65,536 keys of 8
# groups of 128 elements take 73 us, 116 without fragments (a copy of as many bytes takes 64), and 90 with two blocks
# for each multiprocessor, 82 with two of 128 threads (H200, 2026-11-23).
FRAGMENT, WHOLE = (64, 128), 16
HEADER = "#include <tapestry/few_queries.cuh>\n\nnamespace tapestry {\n"
FLOATS, COUNTS = np.dtype(np.float32), np.dtype(np.uint32)
Take = Callable[[int, np.dtype[np.float32]], DeviceArray]


@dataclass(frozen=True)
class Limit:
    """Only the first keys are seen: as many as an integer of an array says, and ``more``; never more than there are."""

    array: DeviceArray
    offset: int
    more: int


@dataclass(frozen=True)
class _Shape:
    """How the queries are shared out: heads of a block, blocks along heads and batches, blocks that share the keys."""

    heads: int
    groups: int
    parts: int

    @staticmethod
    def of(a: Attention, machine: Machine) -> _Shape:
        ratio = a.heads // a.groups
        heads = max(n for n in range(1, ratio + 1) if ratio % n == 0 and n * a.rows <= QUERIES)
        groups = a.batches * (a.heads // heads)
        keys = sum(part.count for part in a.parts)
        lanes = a.width * a.query.array.dtype.itemsize // 16
        step = THREADS // WARP * WHOLE if _by_fragments(a) else THREADS // lanes * AHEAD
        wanted = max(1, machine.multiprocessors // groups)
        return _Shape(heads, groups, min(wanted, -(-keys // step), PARTS))


def all_few(calls: Sequence[Attention]) -> bool:
    """Whether attention is for this kernel: few rows, vectors that lie so, and no product that is to read it.

    A result that lies over an operand has to be all that its array holds.
    """
    operands = [x for a in calls for x in (a.query, a.key, a.value)]
    steps = [(x, n) for x in operands for n in (x.offset, x.batch, x.row, x.head)]
    if any((x.array.pointer + n * x.array.dtype.itemsize) % 16 for x, n in steps):
        return False
    arrays = [x.array for x in operands]
    return all(a.rows <= ROWS and a.read_by is None and (_whole(a) or apart(a.state.array, arrays)) for a in calls)


def _whole(a: Attention) -> bool:
    return a.state.array.size == a.batches * a.rows * a.heads * (a.width if a.finished else a.width + 2)


def _by_fragments(a: Attention) -> bool:
    """Whether scores and values are products of fragments: then all queries see the same keys, as those that one does
    not see would still be multiplied by 0.
    """
    same = a.rows == 1 or not a.parts[-1].causal
    return same and a.width in FRAGMENT and a.query.array.dtype.itemsize == 2


def few_queries(machine: Machine, a: Attention, take: Take, limit: Limit | None = None) -> Written:
    """The kernel; ``take`` gives memory of its own while it runs."""
    shape = _Shape.of(a, machine)
    blocks, count = shape.groups * shape.parts, a.rows * shape.heads
    arrays = [a.query.array, a.key.array, a.value.array, a.state.array]
    if shape.parts > 1:
        arrays.append(take(blocks * count * (a.width + 2), FLOATS))
        arrays.append(machine.zeros(shape.groups, COUNTS))
    if limit is not None:
        arrays.append(limit.array)
    source = _source(a, shape, limit)
    entry = f"few_queries_{hashlib.sha256(f'{blocks} {source}'.encode()).hexdigest()[:16]}"
    unit = Unit(source.replace("NAME(", f"{entry}(", 1), entry, blocks, THREADS, exact=False, follows=True)
    return Written(unit, tuple(arrays))


def _source(a: Attention, shape: _Shape, limit: Limit | None) -> str:
    kind, stored = (ELEMENT_TYPES[name_of(x.array.dtype)].stored for x in (a.query, a.state))
    parameters = [f"const {kind}* q", f"const {kind}* k", f"const {kind}* v", f"{stored}* out"]
    parameters += ["float* left", "unsigned* done"] if shape.parts > 1 else []
    parameters += [] if limit is None else [f"const {ELEMENT_TYPES[name_of(limit.array.dtype)].stored}* limit"]
    count, beside = a.rows * shape.heads, a.heads // shape.heads
    more = int(a.parts[-1].causal)
    keys = sum(part.count for part in a.parts) - more * (a.rows - 1)
    seen = (
        f"{keys}ll"
        if limit is None
        else f"minimum({keys}ll, maximum(0ll, widen(limit[{limit.offset}]) + {limit.more}ll))"
    )
    head = f"h * {shape.heads}"
    group = f"h * {shape.heads} / {a.heads // a.groups}"
    at = {
        "q": f"q + ({a.query.offset} + b * {a.query.batch} + {head} * {a.query.head})",
        "k": f"k + ({a.key.offset} + b * {a.key.batch} + {group} * {a.key.head})",
        "v": f"v + ({a.value.offset} + b * {a.value.batch} + {group} * {a.value.head})",
        "out": f"out + ({a.state.offset} + b * {a.state.batch} + {head} * {a.state.head})",
    }
    size = shape.parts * count * (a.width + 2)
    own = (f"left + group * {size}ll", "done + group") if shape.parts > 1 else ("nullptr", "nullptr")
    given = [
        at["q"], f"{a.query.row}", f"{a.query.head}", at["k"], f"{a.key.row}", at["v"], f"{a.value.row}",
        at["out"], f"{a.state.row}", f"{a.state.head}", f"{count}", f"{shape.heads}", seen, f"{more}",
        f"{a.scale!r}f" if "." in repr(a.scale) or "e" in repr(a.scale) else f"{a.scale!r}.0f",
        "part", f"{shape.parts}", *own,
    ]  # fmt: skip
    truths = ", ".join(str(truth).lower() for truth in (a.finished, _by_fragments(a)))
    numbers = f"{count}, {a.width}, {THREADS}, {AHEAD}, {truths}"
    lines = [
        "follow();",
        f"__shared__ float room[{THREADS // 32}][{count}][{a.width + 2}];",
        "__shared__ bool last;",
        f"const int part = int(blockIdx.x % {shape.parts}u);",
        f"const Int group = blockIdx.x / {shape.parts}u, b = group / {beside}, h = group % {beside};",
        f"const FewQueries<{kind}, {stored}> asked = {{{', '.join(given)}}};",
        f"few_queries<{numbers}>(asked, room, &last);",
    ]
    start = f'{HEADER}extern "C" __global__ void __launch_bounds__({THREADS}, 1)\n'
    return f"{start}NAME({', '.join(parameters)}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"
