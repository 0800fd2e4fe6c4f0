"""How a loop runs on the GPU: elements per thread, how each read is fetched, whether a tile is transposed.

A thread computes vectors of ``vector`` consecutive elements of the output, ``unroll`` of them, all loads first. A read
is

    vector   consecutive elements, up to 16 bytes an access
    uniform  one element for the whole vector (a broadcast)
    gather   one access an element (strided, reversed, guarded along the vector)
    tile     consecutive along another dimension than the output: fetched in that order, turned in shared memory

Where much of a body is the same along a dimension (`steady`), a thread goes along it, and computes that part once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Literal

from ...expr import Affine, Bound, Read, reads
from ..cost.gpu import tuned_gpu
from ..errors import WrongValue
from .loop import Loop, one_dimension
from .steady import WORTH, taken_apart
from .types import ELEMENT_TYPES, Layout

ACCESS = 16  # bytes of the widest load
IN_FLIGHT = 32  # bytes that a thread asks for before it waits: with 2,048 threads, 64 KiB a multiprocessor
TILE_BYTES, TILE_LINES = 256, 128  # a tile: bytes along the operand's dimension, elements along the output's
TILE_SHARED = 40 << 10  # bytes of all tiles of a block
TILE_THREADS = 256
SMALL = 16 * tuned_gpu().sms  # blocks from which on more work a thread does not leave multiprocessors idle
FEWEST = 4 * tuned_gpu().sms  # blocks that keep multiprocessors busy whose threads go along a dimension


@dataclass(frozen=True)
class Load:
    """How one read is fetched: ``width`` elements an access; ``stream`` if every element is read once."""

    read: Read
    layout: Layout
    kind: Literal["vector", "uniform", "gather", "tile"]
    width: int = 1
    stream: bool = False

    @property
    def offset(self) -> Affine:
        return self.read.index[0]


@dataclass(frozen=True)
class Tile:
    """The two dimensions that are turned, and the extents of a tile along them. ``along`` runs in the operands.

    ``columns``: elements along it that a thread takes together, so that small ones are read a word at a time.
    """

    along: str
    across: str
    wide: int
    high: int
    columns: int


@dataclass(frozen=True)
class Along:
    """A dimension that a thread goes along, so many values of it: what is the same for all of them is computed once."""

    dim: str
    times: int


@dataclass(frozen=True)
class Plan:
    """All that the source depends on."""

    loop: Loop
    vector: int
    unroll: int
    loads: tuple[Load, ...]
    store: int
    tile: Tile | None = None
    threads: int = 128
    along: Along | None = None

    @property
    def inner(self) -> tuple[str, int]:
        return self.loop.dims[-1]

    @property
    def ragged(self) -> bool:
        """Whether the last vector of the only dimension is cut short."""
        return self.inner[1] % self.vector != 0

    @property
    def vectors(self) -> int:
        return prod(n for _, n in self.loop.dims[:-1]) * -(-self.inner[1] // self.vector)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        if self.along is not None:
            return -(-self.vectors // (self.threads * self.along.times))
        if self.tile is None:
            return -(-self.vectors // (self.threads * self.unroll))
        extents = dict(self.loop.dims)
        across, along = -(-extents[self.tile.across] // self.tile.high), -(-extents[self.tile.along] // self.tile.wide)
        others = prod(n for d, n in self.loop.dims if d not in (self.tile.across, self.tile.along))
        return across * along * others


def make_plan(loop: Loop, *, vector: int | None = None, unroll: int | None = None, tiled: bool = True) -> Plan:
    """The plan for a normalised loop with points. ``vector`` and ``unroll`` override the choice (powers of two);
    ``tiled`` False never turns tiles.
    """
    for name, value in (("vector", vector), ("unroll", unroll)):
        if value is not None and (value < 1 or value & (value - 1) or value > 32):
            raise WrongValue(name, expected="1, 2, 4, 8, 16 or 32", came=value)
    if not loop.dims:
        loop = replace(loop, dims=(("d0", 1),))
    tile = _tile(loop) if tiled else None
    wanted = vector or preferred_vector(loop)
    if tile is None:
        loop = _evened(loop, wanted)
    width = _vector(loop, wanted, ragged=tile is None)
    loads = tuple(classify(loop, read, width, tile) for read in reads(loop.body))
    store = access_width(loop.out, loop.dims[-1][0], width, loop.output)
    plan = Plan(loop, width, 1, loads, store, tile, TILE_THREADS if tile else Plan.threads)
    if tile is not None:
        return replace(plan, unroll=_tile_unroll(plan, tile))
    along = _along(plan)
    if along is None:
        return replace(plan, unroll=unroll or _unroll(plan))
    return replace(plan, unroll=gcd(unroll or max(2, _unroll(plan)), along.times), along=along)


def preferred_vector(loop: Loop) -> int:
    """Elements of the widest type among output and consecutive reads that fill one access."""
    name = loop.dims[-1][0]
    unit = [loop.layouts[r.tensor].type.bytes for r in reads(loop.body) if r.index[0].coefficient(name) == 1]
    return ACCESS // max([loop.output.type.bytes, *unit])


def _vector(loop: Loop, wanted: int, *, ragged: bool) -> int:
    name, extent = loop.dims[-1]
    if loop.out.coefficient(name) != 1 and extent > 1:
        return 1
    return wanted if ragged and len(loop.dims) == 1 else gcd(wanted, extent)


def _evened(loop: Loop, wanted: int) -> Loop:
    """One dimension instead of several where the rows do not divide into vectors but the whole does."""
    if loop.dims[-1][1] % wanted == 0:
        return loop
    flat = one_dimension(loop)
    if flat is None or any(_large_gather(flat, read) for read in reads(flat.body)):
        return loop
    return flat


def _large_gather(loop: Loop, read: Read) -> bool:
    """An operand as large as the output that a vector of the loop does not find in consecutive elements."""
    name = loop.dims[-1][0]
    return loop.layouts[read.tensor].elements * 4 > loop.points and not consecutive(read, name)


def depends(bounds: Sequence[Bound], name: str) -> bool:
    """Whether a condition varies along a dimension."""
    return any(name in bound.expr.dims for bound in bounds)


def consecutive(read: Read, name: str) -> bool:
    """Whether a read's offset grows with a dimension one by one, and its guard does not vary along it."""
    row = read.index[0]
    inside = any(name in atom.inner.dims for atom in row.compound)
    return row.coefficient(name) == 1 and not inside and not depends(read.guard, name)


def classify(loop: Loop, read: Read, vector: int, tile: Tile | None = None) -> Load:
    """How a read is fetched for vectors along the last dimension."""
    name, layout = loop.dims[-1][0], loop.layouts[read.tensor]
    every = {dim for dim, _ in loop.dims} <= read.index[0].dims
    if name not in read.index[0].dims and not depends((*read.guard, *loop.where), name):
        return Load(read, layout, "uniform")
    if consecutive(read, name) and not depends(loop.where, name):
        return Load(read, layout, "vector", access_width(read.index[0], name, vector, layout), every)
    if tile is not None and consecutive(read, tile.along) and not depends(read.guard, name):
        width = access_width(read.index[0], tile.along, ACCESS // layout.type.bytes, layout)
        return Load(read, layout, "tile", gcd(width, dict(loop.dims)[tile.along]), every)
    return Load(read, layout, "gather")


def access_width(row: Affine, name: str, vector: int, layout: Layout) -> int:
    """Elements that one access may take: the address is aligned to them wherever the vector starts at a multiple."""
    step = gcd(row.const, *(factor for atom, factor in row.terms if atom != name))
    most = max(1, min(ACCESS, layout.alignment) // layout.type.bytes)
    return gcd(vector, most, step) if row.coefficient(name) == 1 else 1


def _unroll(plan: Plan) -> int:
    """Vectors a thread: enough bytes in flight, but no more than leave blocks for every multiprocessor."""
    flowing = sum(plan.vector * load.layout.type.bytes for load in plan.loads if load.kind == "vector" and load.stream)
    single = sum(plan.vector for load in plan.loads if load.kind == "gather")
    most = IN_FLIGHT // max(flowing, ACCESS // 2)
    if single:
        most = min(most, max(1, 16 // single))
    most = max(1, min(8, most))
    while most > 1 and plan.vectors < plan.threads * most * SMALL:
        most //= 2
    return 1 << (most.bit_length() - 1)


def _along(plan: Plan) -> Along | None:
    """The dimension along which a thread saves most, of those that leave enough threads."""
    most = plan.vectors // (plan.threads * FEWEST)
    found = []
    for dim, extent in plan.loop.dims[:-1]:
        times = max((n for n in range(1, min(most, extent) + 1) if extent % n == 0), default=1)
        saved = taken_apart(plan.loop.body, dim).flops * (times - 1) / times
        found.append((saved, Along(dim, times)))
    saved, along = max(found, key=lambda pair: pair[0], default=(0, None))
    return along if saved >= WORTH else None


# -- tiles -----------------------------------------------------------------------------------------------------------


def _tile(loop: Loop) -> Tile | None:
    """The dimensions to turn, if some large read runs along another dimension than the output."""
    across, high = loop.dims[-1]
    if loop.out.coefficient(across) != 1 or loop.where:
        return None
    for read in reads(loop.body):
        for along, wide in loop.dims[:-1]:
            size = _size(loop, read)
            fits = wide * size >= 32 and high >= 8 and abs(read.index[0].coefficient(across)) > 1
            if fits and _turns(read, along, across):
                return _sized(loop, along, across, TILE_BYTES // size)
    return None


def _sized(loop: Loop, along: str, across: str, wide: int) -> Tile | None:
    """As many lines as there is room for, of all reads that are turned."""
    sizes = [_size(loop, read) for read in reads(loop.body) if _turns(read, along, across)]
    high = TILE_LINES
    while high * wide * sum(sizes) > TILE_SHARED:
        high //= 2
    return Tile(along, across, wide, high, max(1, 4 // min(sizes))) if high >= ACCESS else None


def _size(loop: Loop, read: Read) -> int:
    return ELEMENT_TYPES[loop.layouts[read.tensor].dtype].bytes


def _turns(read: Read, along: str, across: str) -> bool:
    inside = any(across in atom.inner.dims for atom in read.index[0].compound)
    return consecutive(read, along) and not depends(read.guard, across) and not inside


def _tile_unroll(plan: Plan, tile: Tile) -> int:
    """Vectors of a tile for each thread: of whole groups of columns."""
    return -(-tile.wide * tile.high // (plan.vector * plan.threads * tile.columns)) * tile.columns
