"""Launches of the forward kernel: tensor maps, grid and arguments of one pass over the rows of an image."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..cost.columns import Number, ceil, pick, smaller
from .configuration import RESERVED_SHARED, ForwardConfiguration, footprint, pitch
from .divisor import packed as packed_divisor
from .problem import ConvolutionProblem

if TYPE_CHECKING:
    from ..cost.gpu import Gpu
    from ..runtime.device import DeviceProperties

SWIZZLES = {128: "128B", 64: "64B", 32: "32B", 16: "none"}


@dataclass(frozen=True)
class TapLine:
    """Which taps, of `stored` along one direction of a filter, a pass meets.

    At place `t` of the window the output of parity `a` of a cell meets the tap (first + t * step + a * skew) / unit,
    and none where that is no tap.
    """

    stored: int
    first: int = 0
    step: int = 1
    skew: int = 0
    unit: int = 1

    def tap(self, parity: int, place: int) -> int | None:
        """The stored tap, if there is one."""
        number, rest = divmod(self.first + place * self.step + parity * self.skew, self.unit)
        return number if rest == 0 and 0 <= number < self.stored else None


@dataclass(frozen=True)
class Taps:
    """Which taps of a stored filter a pass meets, both ways."""

    rows: TapLine
    columns: TapLine

    @classmethod
    def plain(cls, rows: int, columns: int) -> Taps:
        """All of them, in order."""
        return cls(TapLine(rows), TapLine(columns))

    @classmethod
    def flipped(cls, rows: int, columns: int) -> Taps:
        """All of them, last first."""
        return cls(TapLine(rows, rows - 1, -1), TapLine(columns, columns - 1, -1))


class Every(NamedTuple):
    """Every `step`-th row or column, from `first` on."""

    step: int = 1
    first: int = 0

    def of(self, extent: int) -> int:
        """How many there are."""
        return -(-(extent - self.first) // self.step)


ALL = Every()


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

    def rows_outermost(self) -> View:
        """The tensor with images within rows, so that a row of all images of a box lies together in shared memory."""
        (n, h, w, c), (image, row, column) = self.shape, self.strides
        return View(self.pointer, (h, n, w, c), (row, image, column), self.dtype)

    def every(self, rows: Every, columns: Every) -> View:
        """Some rows and columns, as a tensor."""
        (n, h, w, c), (image, row, column) = self.shape, self.strides
        start = self.pointer + 2 * (rows.first * row + columns.first * column)
        return View(
            start, (n, rows.of(h), columns.of(w), c), (image, rows.step * row, columns.step * column), self.dtype
        )


@dataclass(frozen=True)
class Launch:
    """One kernel's grid, threads, arguments, dynamic shared memory, and blocks of a cluster.

    `residents` blocks of it are to share a multiprocessor; 0 where as many may as fit.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared: int = 0
    cluster: tuple[int, ...] = (1,)
    residents: int = 0


SHARED_UNIT, MOST_RESIDENTS = 128, 32  # bytes that shared memory is dealt in; blocks of a multiprocessor


def uncrowded(shared: int, residents: int, blocks: int, gpu: DeviceProperties | Gpu) -> int:
    """Shared memory to launch `blocks` blocks with that need `shared`: no more are on a multiprocessor than are to be.

    That are `residents`, or as many as all of the grid are then. Where more fit, those of a kernel that starts while
    the one ahead ends crowd onto the multiprocessors that end first, and the others stay idle.
    """
    most = max(residents, -(-blocks // gpu.sms))
    if not residents or most > MOST_RESIDENTS:
        return shared
    beyond = (gpu.shared_per_sm // (most + 1) // SHARED_UNIT + 1) * SHARED_UNIT  # so that one more is too many
    return max(shared, min(beyond - RESERVED_SHARED, gpu.shared_per_block))


@dataclass(frozen=True)
class Walk:
    """A pass as the forward kernel makes it: a convolution, the taps that its outputs meet, and the input it reads."""

    problem: ConvolutionProblem
    taps: Taps
    rows: Every = ALL
    columns: Every = ALL

    def read(self, x: View) -> View:
        """The rows and columns of the input that are read, as a tensor."""
        return x.every(self.rows, self.columns)


@dataclass(frozen=True)
class Rows:
    """The rows of cells of a launch, and how many input rows lie in the upper and lower halo buffers."""

    begin: int
    end: int
    above: int = 0
    below: int = 0


def tensor_map(view: View, box: tuple[int, int, int], channels: int, swizzled: bool = True) -> Any:
    """The map of `view` for boxes of (images, rows, columns) x channels, in the narrowest swizzle that has room."""
    from ..runtime.tensor_map import TensorMap

    n, h, w, c = view.shape
    images, rows, columns = box
    strides = tuple(2 * stride for stride in reversed(view.strides))
    return TensorMap.tiled(
        view.pointer,
        view.dtype,
        (c, w, h, n),
        strides,
        (channels, columns, rows, images),
        swizzle=SWIZZLES[2 * int(pitch(channels))] if swizzled else "none",
    )


def lines(view: View) -> bytes:
    """`Lines` of lines.cuh: a tensor of which whole rows are copied."""
    (n, h, w, c), (image, row, _) = view.shape, view.strides
    return struct.pack("<Q2q4i", view.pointer, 2 * image, 2 * row, n, h, 2 * w * c, 0)


def in_lines(*views: View | None) -> bool:
    """Whether the columns of tensors lie side by side, all channels of each, so that a row is one stretch of memory."""
    return all(view.strides[2] == view.shape[3] for view in views if view is not None)


@dataclass(frozen=True)
class Grid:
    """How a launch is cut: blocks of the grid, and the blocks of channels, images and columns that they share out."""

    blocks: Number
    channel_blocks: Number
    image_blocks: Number
    column_tiles: Number
    chunk: Number
    line: Number  # rows of all images and columns

    @property
    def chunks(self) -> Number:
        """Items of work: `chunk` rows of the line in one block of channels."""
        return self.channel_blocks * ceil(self.line / self.chunk)


def grid(problem: ConvolutionProblem, cut: ForwardConfiguration, rows: Rows, sms: int) -> Grid:
    """A persistent grid whose blocks take the chunks of rows in turn.

    Where that idles few multiprocessors it is a multiple of the channel blocks, so that all of them sweep the same
    pixels at the same time and a block never changes its weights.
    """
    channel_blocks = ceil(problem.c / cut.channels)
    image_blocks, column_tiles = ceil(problem.n / cut.images), ceil(problem.q / (8 * cut.units))
    line = image_blocks * column_tiles * (rows.end - rows.begin)
    chunks = channel_blocks * ceil(line / cut.chunk)
    slots = sms * cut.blocks
    even = slots // channel_blocks * channel_blocks
    blocks = pick(cut.dynamic, chunks, pick(20 * even >= 19 * slots, even, slots))
    return Grid(smaller(chunks, blocks), channel_blocks, image_blocks, column_tiles, cut.chunk, line)


def arguments(
    problem: ConvolutionProblem,
    cut: ForwardConfiguration,
    cells: Grid,
    rows: Rows,
    inputs: tuple[View, View, View],
    output: View,
    residual: View | None,
    pointers: tuple[int, int, int],
    whole: bool = False,
) -> list[Any]:
    """The kernel's arguments in order; `inputs` are the upper halo, the middle and the lower halo.

    `whole`: rows come and leave as they lie in memory.
    """
    taken, height = footprint(problem, cut), inputs[1].shape[1]
    box = (cut.images, 1, taken.box_x)
    out_box = (cut.images, problem.cell[0], 8 * cut.units * problem.cell[1])

    def described(view: View, box: tuple[int, int, int]) -> Any:
        return lines(view) if whole else tensor_map(view, box, cut.channels, not cut.flat)

    upper, middle, lower = (described(view, box) for view in inputs)
    target = described(output, out_box)
    added = described(residual, out_box) if residual else target
    existing = struct.pack("<4i", problem.padding[0], -rows.above, height + rows.below, height)
    return [
        upper, middle, lower, target, added, *pointers,
        _work(cells, rows), existing, problem.c, problem.padding[2],
    ]  # fmt: skip


def _work(cells: Grid, rows: Rows) -> bytes:
    """`Work` of forward.cu."""
    divisors = (cells.channel_blocks, cells.column_tiles, rows.end - rows.begin)
    numbers = struct.pack("<4i", rows.begin, cells.line, cells.chunk, cells.chunks)
    return b"".join([*map(packed_divisor, divisors), numbers])
