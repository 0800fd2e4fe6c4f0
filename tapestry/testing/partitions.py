"""Random partitions of programs: for every operation a region of its index space per rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, Literal, overload

from hypothesis import strategies as st

from ..program import Operation, Program
from ..space import Grid, IntSet, Region
from .choices import Choices, Draw

CutKind = Literal["block", "zigzag", "explicit", "cyclic"]
KINDS: tuple[CutKind, ...] = ("block", "block", "zigzag", "explicit", "cyclic")


@overload
def partitions(
    of: Program, ranks: int, kinds: Sequence[CutKind] = KINDS
) -> st.SearchStrategy[dict[str, list[Region]]]: ...


@overload
def partitions(of: Operation, ranks: int, kinds: Sequence[CutKind] = KINDS) -> st.SearchStrategy[list[Region]]: ...


def partitions(of: Program | Operation, ranks: int, kinds: Sequence[CutKind] = KINDS) -> st.SearchStrategy[Any]:
    """For an operation one region of its index space per rank, for a program these by the names of its operations.

    They are rank-major over a random mesh of that many ranks, the same one for all operations of a program.

    Along each mesh axis an operation is cut along one dimension that may be cut (reduction dimensions too) or
    replicated: ranks with equal regions compute the same. Cuts are equal blocks, zigzag (r and 2P - 1 - r of 2P
    blocks), explicit (anywhere, so that shards are uneven or empty) or cyclic (every P-th element).
    """
    program = of if isinstance(of, Program) else Program(of.name, (), (of,), ())
    found = _partitions(program, ranks, tuple(kinds))
    return found if isinstance(of, Program) else found.map(lambda shards: shards[of.name])


@st.composite
def _partitions(draw: Draw, program: Program, ranks: int, kinds: tuple[CutKind, ...]) -> dict[str, list[Region]]:
    ch = Choices(draw)
    mesh = ch.pick(_meshes(ranks))
    return {op.name: _shards(ch, op, mesh, kinds) for op in program.operations}


@lru_cache
def _meshes(ranks: int) -> list[tuple[int, ...]]:
    """The ranks in a row, and every mesh of two axes."""
    return [(ranks,), *((k, ranks // k) for k in range(2, ranks) if ranks % k == 0)]


def _shards(ch: Choices, op: Operation, mesh: tuple[int, ...], kinds: tuple[CutKind, ...]) -> list[Region]:
    able = [k for k, dim in enumerate(op.dims) if dim.cut]
    shards = [[IntSet.interval(0, dim.extent) for dim in op.dims]]
    for parts in mesh:
        k = ch.pick([*able, -1]) if able else -1
        if k < 0:
            shards = [shard for shard in shards for _ in range(parts)]
            continue
        cut = _cut(ch, op.dims[k].extent, parts, ch.pick(kinds))
        shards = [[*shard[:k], shard[k] & piece, *shard[k + 1 :]] for shard in shards for piece in cut]
    assert len(shards) == prod(mesh)
    return [Region.of(Grid(tuple(shard))) for shard in shards]


def _cut(ch: Choices, extent: int, parts: int, kind: CutKind) -> list[IntSet]:
    """Disjoint sets that make up 0, ..., extent - 1."""
    if kind == "cyclic":
        return [IntSet.of(range(r, extent, parts)) for r in range(parts)]
    if kind == "zigzag":
        blocks = _blocks([r * extent // (2 * parts) for r in range(2 * parts + 1)])
        return [blocks[r] | blocks[2 * parts - 1 - r] for r in range(parts)]
    if kind == "explicit":
        return _blocks([0, *sorted(ch.integer(0, extent) for _ in range(parts - 1)), extent])
    return _blocks([r * extent // parts for r in range(parts + 1)])


def _blocks(bounds: list[int]) -> list[IntSet]:
    return [IntSet.interval(a, b) for a, b in pairwise(bounds)]
