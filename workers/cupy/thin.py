"""Products of a few rows: the wide matrix is read once, at the rate of the memory, which libraries do not reach.

    out[m, n] = sum[k] thin[m, k] wide[k, n]

Weights of 4,096 lines of 14,336 columns are read on an H200 at 3.9 TB/s, by cuBLASLt at 3.6; 14,336 lines of 4,096
columns at 4.0, of which the first are asked for while the kernel ahead runs; 4,096 lines of 4,096 and 1,024 columns at
3.5 and 2.3 (2026-11-22). Copies reach 4.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...dtypes import name_of
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from .arrays import DeviceArray
from .machine import WARP, Machine, Matrices, Product, Unit
from .writing import Written

# Rows that are few; elements of a wide matrix whose lines are columns from which on a library reads them as quickly.
FEW, LONG = 8, 1 << 10
KNOWN = ("bf16", "f16", "f32")
BYTES = 16
# Vectors of a line that a block has; threads of a block; vectors asked for ahead, in all for the rows. Of 2 to 16
# vectors, 1 to 8 blocks, 256 to 1,024 threads and 4 or 8 ahead these are the quickest, or within a tenth of them, for
# the products of a Llama layer (H200, 2026-11-22).
WIDE, THREADS, AHEAD = 8, 1024, 4
MOST_BLOCKS = 8  # of a cluster: what every GPU that has clusters takes
# Vectors for each thread of a block for each multiprocessor, with fewer than which smaller blocks are the quicker; and
# their threads, which is also where sums of several rows need registers and shared memory.
LEAST, FEWER = 8, 512
LINES = 4
# Elements of each row that a block holds beside its lines, and its warps; the lines, of which a warp has `LINES`, that
# keep multiprocessors busy.
DEPTH, WARPS, MANY = 1024, 8, 1 << 11
# Where many lines are quicker than by a library: rows at most, by the bytes of an element; elements of a line for each
# row, as adding up across a warp takes most of the time of shorter ones; lines for each of their elements, of several
# rows and of one. Of 2,048 to 65,536 lines of 16 to 4,096 elements, 1 to 16 rows: 65,536 lines of 1,024 f32 by 8 rows
# take 82 us, 192 by the library; of bf16 by 4 rows 40 and 51, by 8 rows 66 and 35, by 16 rows 186 and 35 (H200,
# 2026-11-23).
FEWEST, SHORT, TALL, ALONE = {2: 4, 4: 8}, 32, 2, 8
LARGEST = 1 << 31
HEADER = "#include <tapestry/thin.cuh>\n\nnamespace tapestry {\n"


@dataclass(frozen=True)
class Thin:
    """A product with the thin matrix on the left; one of wide's steps is 1."""

    product: Product
    thin: Matrices
    wide: Matrices
    out: Matrices
    added: Matrices | None
    rows: int
    columns: int

    @property
    def vector(self) -> int:
        """Elements of 16 bytes."""
        return BYTES // self.wide.array.dtype.itemsize

    @property
    def across(self) -> bool:
        """Whether columns lie together, and not what is folded."""
        return self.wide.column == 1

    @property
    def many(self) -> bool:
        """Whether there are many lines, each a column of out, and several rows to multiply them by."""
        return not self.across and self.product.batches == 1 and self.rows > 1 and self.columns >= MANY


def thin_product(product: Product, machine: Machine, steady: Collection[DeviceArray] = ()) -> Written | None:
    """The kernel of a product with few rows, or few columns; None where another is better, or it does not lie so.

    ``steady``: arrays that nothing changes while the plan runs.
    """
    found = _thin(product)
    if found is None:
        return None
    if found.across:
        return _across(found, machine, early=found.wide.array in steady)
    return _lines(found) if found.many else _along(found)


def _thin(product: Product) -> Thin | None:
    if product.rows <= product.columns:
        found = Thin(
            product, product.left, product.right, product.out, product.added, product.rows, product.columns
        )  # fmt: skip
    else:
        thin, wide, out = (_turned(x) for x in (product.right, product.left, product.out))
        added = None if product.added is None else _turned(product.added)
        found = Thin(product, thin, wide, out, added, product.columns, product.rows)
    return found if _taken(found) else None


def _turned(x: Matrices) -> Matrices:
    return Matrices(x.array, x.offset, x.batch, x.column, x.row)


def _taken(x: Thin) -> bool:
    """Whether the kernels take it as it lies, 16 bytes at a time, and it is worth it."""
    names = {name_of(part.array.dtype) for part in (x.thin, x.wide)}
    if x.rows > FEW or x.columns < 2 * FEW or len(names) != 1 or names - {*KNOWN}:
        return False
    if not _long_enough(x):
        return False
    if x.product.positive:
        return False
    if name_of(x.out.array.dtype) not in KNOWN or 1 not in (x.wide.row, x.wide.column):
        return False
    together, line = (x.columns, x.wide.row) if x.across else (x.product.folded, x.wide.column)
    alone = x.product.batches == 1 and x.product.folded > LONG
    if not (x.across or x.many) and (x.thin.column != 1 or alone):
        return False
    itemsize = x.wide.array.dtype.itemsize
    aligned = (x.wide.array.pointer + x.wide.offset * itemsize) % BYTES == 0
    sizes = [part.array.size for part in (x.thin, x.wide, x.out)]
    return aligned and not any(n % x.vector for n in (together, line, x.wide.batch)) and max(sizes) < LARGEST


def _long_enough(x: Thin) -> bool:
    """Whether lines that are columns of the result are of lengths of which a library is not quicker."""
    if x.across or x.product.batches > 1:
        return True
    if x.rows == 1:
        return x.columns >= ALONE * x.product.folded
    few = x.rows <= FEWEST[x.wide.array.dtype.itemsize]
    return not x.many or (few and SHORT * x.rows <= x.product.folded <= x.columns // TALL)


@dataclass(frozen=True)
class _Shape:
    """Vectors of a line that a block has, blocks that share its lines, threads of each."""

    wide: int
    blocks: int
    threads: int

    @staticmethod
    def of(x: Thin, machine: Machine) -> _Shape:
        """About one block of many threads for each multiprocessor: there is room for the next kernel's beside it."""
        processors, vectors = machine.multiprocessors, x.columns // x.vector
        tiles = -(-vectors // WIDE) * x.product.batches
        blocks = 1
        while machine.clusters and blocks < MOST_BLOCKS and 10 * tiles * blocks < 9 * processors:
            blocks *= 2
        if x.rows > 1:
            return _Shape(WIDE, blocks, FEWER)
        if vectors * x.product.folded < LEAST * processors * THREADS:
            return _Shape(WIDE // 2, blocks, FEWER)
        return _Shape(WIDE, blocks, FEWER if processors < tiles * blocks < 1.6 * processors else THREADS)


def _across(x: Thin, machine: Machine, *, early: bool) -> Written:
    """A block has some columns, a cluster of them some lines each where there would not be blocks enough."""
    shape = _Shape.of(x, machine)
    tiles, size = -(-(x.columns // x.vector) // shape.wide), x.rows * shape.wide * x.vector
    declared = [
        f"__shared__ float part[{shape.threads // WARP * size}];",
        f"__shared__ Shares<{size}, {shape.blocks}> shares;",
    ]
    ahead = max(2, AHEAD // x.rows)
    numbers = f"{x.rows}, {shape.wide}, {shape.threads}, {ahead}, {shape.blocks}, {str(early).lower()}"
    last = f"int(blockIdx.x) / {shape.blocks} % {tiles}, part, &shares"
    return _written(x, tiles, shape.threads, declared, f"thin_across<{numbers}>", last, shape.blocks)


def _along(x: Thin) -> Written:
    lanes = 32
    while lanes > 1 and lanes * x.vector > x.product.folded:
        lanes //= 2
    threads = 256
    groups = threads // lanes
    tiles = -(-x.columns // (groups * LINES))
    first = f"(int(blockIdx.x) % {tiles} * {groups} + int(threadIdx.x) / {lanes}) * {LINES}"
    return _written(x, tiles, threads, [], f"thin_along<{x.rows}, {lanes}, {LINES}>", first)


def _lines(x: Thin) -> Written:
    """Every block has all rows, a part of them at a time, beside its lines."""
    block = WARPS * LINES
    tiles = -(-x.columns // block)
    first = f"int(blockIdx.x) * {block} + int(threadIdx.x) / {WARP} * {LINES}, factors"
    declared = [f"alignas(16) __shared__ float factors[{x.rows}][{DEPTH} + 4];"]
    call = f"thin_lines<{x.rows}, {LINES}, {DEPTH}, {WARPS * WARP}>"
    return _written(x, tiles, WARPS * WARP, declared, call, first)


def _written(
    x: Thin, tiles: int, threads: int, declared: Sequence[str], call: str, last: str, split: int = 1
) -> Written:
    sides = [x.thin, x.wide, *(() if x.added is None else (x.added,)), x.out]
    names = ["thin", "wide", *(() if x.added is None else ("added",)), "out"]
    stored = [ELEMENT_TYPES[name_of(side.array.dtype)].stored for side in sides]
    constant = [f"const {kind}*" for kind in stored[:-1]]
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip([*constant, f"{stored[-1]}*"], names, strict=True))
    batch = f"const Int batch = blockIdx.x / {tiles * split}u;"
    at = {name: f"{name} + ({side.offset} + batch * {side.batch})" for name, side in zip(names, sides, strict=True)}
    added = at.get("added", f"static_cast<const {stored[-1]}*>(nullptr)")
    line = x.wide.row if x.across else x.wide.column
    steps = ", ".join(map(str, (x.thin.row, x.thin.column, line, x.out.row, x.out.column)))
    lines = [
        *([] if x.across else ["follow();"]),
        *declared,
        batch,
        f"{call}({at['thin']}, {at['wide']}, {added}, {at['out']}, ThinSteps{{{steps}}}, {x.product.folded}, "
        f"{x.columns}, {last});",
    ]
    cluster = f"__cluster_dims__({split}, 1, 1) " if split > 1 else ""
    head = f'{HEADER}extern "C" __global__ void {cluster}__launch_bounds__({threads})\n'
    source = f"{head}NAME({parameters}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"
    blocks = tiles * x.product.batches * split
    entry = f"thin_{hashlib.sha256(f'{blocks} {source}'.encode()).hexdigest()[:16]}"
    arrays: list[DeviceArray] = [side.array for side in sides]
    unit = Unit(
        source.replace("NAME(", f"{entry}(", 1), entry, blocks, threads, exact=False, cluster=split, follows=True
    )
    return Written(unit, tuple(arrays))
