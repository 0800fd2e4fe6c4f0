"""Regions read naively, as sets of tuples: the tests' own reading of the format, apart from `tapestry.space`."""

from __future__ import annotations

from functools import cache
from itertools import product

Point = tuple[int, ...]


def _axis(text: str) -> list[range]:
    runs = []
    for run in text.split("|"):
        if run != "-":
            runs.append(range(*(int(number) for number in run.split(":"))))
    return runs


def _grids(text: str) -> list[list[list[range]]]:
    if text == "empty":
        return []
    return [[] if grid == "()" else [_axis(axis) for axis in grid.split(",")] for grid in text.split(" + ")]


@cache
def points(text: str) -> tuple[Point, ...]:
    """All tuples of a region, sorted."""
    found: set[Point] = set()
    for grid in _grids(text):
        found.update(product(*([value for run in axis for value in run] for axis in grid)))
    return tuple(sorted(found))


@cache
def stored(text: str) -> tuple[tuple[int, ...], ...]:
    """Per axis the coordinates that a dense buffer for the region stores: runs filled from first to last."""
    grids = _grids(text)
    if not grids:
        return ()
    axes = []
    for k in range(len(grids[0])):
        values: set[int] = set()
        for grid in grids:
            for run in grid[k]:
                values.update(range(run[0], run[-1] + 1))
        axes.append(tuple(sorted(values)))
    return tuple(axes)


@cache
def places(text: str) -> dict[Point, int]:
    """Row-major position of every stored tuple."""
    return {} if not points(text) else {point: k for k, point in enumerate(product(*stored(text)))}


def write(chosen: set[Point] | frozenset[Point]) -> str:
    """Any set of tuples as region text: one grid a tuple."""
    grids = (",".join(f"{x}:{x + 1}" for x in point) if point else "()" for point in sorted(chosen))
    return " + ".join(grids) or "empty"
