"""Launches of the forward kernel: tensor maps, grid and arguments of one pass over the rows of an image."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from .configuration import ForwardConfiguration, footprint
from .problem import ConvolutionProblem

SWIZZLES = {128: "128B", 64: "64B", 32: "32B", 16: "none"}


@dataclass(frozen=True)
class Taps:
    """Which taps of a stored filter a pass uses: its tap (r, s) is the stored (first + r * step) both ways."""

    rows: int
    columns: int
    row_first: int = 0
    row_step: int = 1
    column_first: int = 0
    column_step: int = 1


@dataclass(frozen=True)
class View:
    """A channels-last tensor in memory: extents (n, h, w, c) and strides in elements; c is dense."""

    pointer: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    dtype: str

    @classmethod
    def dense(cls, pointer: int, shape: tuple[int, int, int, int], dtype: str) -> View:
        return cls(pointer, shape, (prod(shape[1:]), prod(shape[2:]), shape[3]), dtype)


@dataclass(frozen=True)
class Rows:
    """The output rows of a launch, and the input rows beyond the middle buffer: how many lie in the upper one."""

    begin: int
    end: int
    above: int = 0


def tensor_map(view: View, box: tuple[int, int, int], channels: int) -> Any:
    """The map of `view` for boxes of (images, columns) x channels: one row at a time."""
    from ..runtime.tensor_map import TensorMap

    n, h, w, c = view.shape
    images, _, columns = box
    strides = tuple(2 * stride for stride in reversed(view.strides))
    return TensorMap.tiled(
        view.pointer, view.dtype, (c, w, h, n), strides, (channels, columns, 1, images), swizzle=SWIZZLES[2 * channels]
    )


@dataclass(frozen=True)
class Grid:
    """How a launch is cut: blocks of the grid, items of a channel block, and tiles of rows and columns."""

    blocks: int
    channel_blocks: int
    items: int
    row_tiles: int
    column_tiles: int


def grid(problem: ConvolutionProblem, cut: ForwardConfiguration, rows: Rows, sms: int) -> Grid:
    """A persistent grid: each block keeps its channels and takes every so-manieth item."""
    channel_blocks = ceil(problem.c / cut.channels)
    row_tiles, column_tiles = ceil((rows.end - rows.begin) / cut.rows), ceil(problem.q / (8 * cut.units))
    items = ceil(problem.n / cut.images) * row_tiles * column_tiles
    each = min(items, max(1, sms * cut.blocks // channel_blocks))
    return Grid(each * channel_blocks, channel_blocks, items, row_tiles, column_tiles)


def arguments(
    problem: ConvolutionProblem,
    cut: ForwardConfiguration,
    cells: Grid,
    rows: Rows,
    taps: Taps,
    inputs: tuple[View, View, View],
    output: View,
    residual: View | None,
    pointers: tuple[int, int, int],
) -> list[Any]:
    """The kernel's arguments in order; `inputs` are the upper halo, the middle and the lower halo."""
    taken = footprint(problem, cut)
    box = (cut.images, 1, taken.box_x)
    out_box = (cut.images, 1, 8 * cut.units)
    upper, middle, lower = (tensor_map(view, box, cut.channels) for view in inputs)
    target = tensor_map(output, out_box, cut.channels)
    added = tensor_map(residual, out_box, cut.channels) if residual else target
    return [
        upper, middle, lower, target, added, *pointers, problem.c,
        cells.channel_blocks, cells.items, cells.row_tiles, cells.column_tiles,
        rows.begin, rows.end, cut.rows, problem.padding[0], problem.padding[2], rows.above, inputs[1].shape[1],
        taps.rows, taps.columns, taps.row_first, taps.row_step, taps.column_first, taps.column_step,
    ]  # fmt: skip
