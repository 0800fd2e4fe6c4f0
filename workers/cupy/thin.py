"""Products of a few rows: the wide matrix is read once, at the rate of the memory, which libraries do not reach.

    out[m, n] = sum[k] thin[m, k] wide[k, n]

Weights of 14,336 columns that lie together are read on an H200 at 4.1 TB/s, by cuBLASLt at 3.6; those of 1,024 columns
at 1.1 and 0.7 (2026-11-22). Copies reach 4.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ...dtypes import name_of
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from .arrays import DeviceArray
from .machine import Matrices, Product, Unit
from .writing import Written

# Rows that are few; elements of a wide matrix whose lines are columns from which on a library reads them as quickly.
FEW, LONG = 8, 1 << 10
KNOWN = ("bf16", "f16", "f32")
BYTES = 16
# Multiprocessors to be kept busy; threads of a block; vectors asked for ahead, in all for the rows. Of 256 to 1,024
# threads and 4 to 16 vectors these are the quickest for the products of a Llama layer (H200, 2026-11-22).
BLOCKS, THREADS, AHEAD = 132, 1024, 4
FEWER = 512  # threads where sums of several rows need registers and shared memory
LINES = 4
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


def thin_product(product: Product) -> Written | None:
    """The kernel of a product with few rows, or few columns; None where another is better, or it does not lie so."""
    found = _thin(product)
    if found is None:
        return None
    return _across(found) if found.across else _along(found)


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
    if name_of(x.out.array.dtype) not in KNOWN or 1 not in (x.wide.row, x.wide.column):
        return False
    together, line = (x.columns, x.wide.row) if x.across else (x.product.folded, x.wide.column)
    if not x.across and (x.thin.column != 1 or (x.product.batches == 1 and x.product.folded > LONG)):
        return False
    itemsize = x.wide.array.dtype.itemsize
    aligned = (x.wide.array.pointer + x.wide.offset * itemsize) % BYTES == 0
    sizes = [part.array.size for part in (x.thin, x.wide, x.out)]
    return aligned and not any(n % x.vector for n in (together, line, x.wide.batch)) and max(sizes) < LARGEST


def _across(x: Thin) -> Written:
    """A block has some columns; fewer where there would not be blocks enough."""
    vectors = x.columns // x.vector
    wide = 8
    while wide > 2 and -(-vectors // wide) * x.product.batches < BLOCKS:
        wide //= 2
    tiles, threads = -(-vectors // wide), THREADS if x.rows == 1 else FEWER
    part = f"__shared__ float part[{threads // 32 * x.rows * wide * x.vector}];"
    call = f"thin_across<{x.rows}, {wide}, {threads}, {max(2, AHEAD // x.rows)}>"
    return _written(x, tiles, threads, [part], call, f"int(blockIdx.x) % {tiles}, part")


def _along(x: Thin) -> Written:
    lanes = 32
    while lanes > 1 and lanes * x.vector > x.product.folded:
        lanes //= 2
    threads = 256
    groups = threads // lanes
    tiles = -(-x.columns // (groups * LINES))
    first = f"(int(blockIdx.x) % {tiles} * {groups} + int(threadIdx.x) / {lanes}) * {LINES}"
    return _written(x, tiles, threads, [], f"thin_along<{x.rows}, {lanes}, {LINES}>", first)


def _written(x: Thin, tiles: int, threads: int, declared: Sequence[str], call: str, last: str) -> Written:
    sides = [x.thin, x.wide, *(() if x.added is None else (x.added,)), x.out]
    names = ["thin", "wide", *(() if x.added is None else ("added",)), "out"]
    stored = [ELEMENT_TYPES[name_of(side.array.dtype)].stored for side in sides]
    constant = [f"const {kind}*" for kind in stored[:-1]]
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip([*constant, f"{stored[-1]}*"], names, strict=True))
    batch = f"const Int batch = blockIdx.x / {tiles}u;"
    at = {name: f"{name} + ({side.offset} + batch * {side.batch})" for name, side in zip(names, sides, strict=True)}
    added = at.get("added", f"static_cast<const {stored[-1]}*>(nullptr)")
    line = x.wide.row if x.across else x.wide.column
    steps = ", ".join(map(str, (x.thin.row, x.thin.column, line, x.out.row, x.out.column)))
    lines = [
        *declared,
        batch,
        f"{call}({at['thin']}, {at['wide']}, {added}, {at['out']}, ThinSteps{{{steps}}}, {x.product.folded}, "
        f"{x.columns}, {last});",
    ]
    head = f'{HEADER}extern "C" __global__ void __launch_bounds__({threads})\n'
    source = f"{head}NAME({parameters}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"
    blocks = tiles * x.product.batches
    entry = f"thin_{hashlib.sha256(f'{blocks} {source}'.encode()).hexdigest()[:16]}"
    arrays: list[DeviceArray] = [side.array for side in sides]
    return Written(Unit(source.replace("NAME(", f"{entry}(", 1), entry, blocks, threads, exact=False), tuple(arrays))
