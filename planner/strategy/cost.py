"""How long a shard of an operation computes: what was measured of that very operation, else a roofline over the
machine's sustained rates, or over its measured curves and tables of shapes.

Grouped convolutions on a GPU we have kernels for are timed by the model that tunes those kernels, where it says more,
and blocks whose shard is several boxes box by box.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from ...blocks import BLOCKS, flops_of_block
from ...dtypes import DTYPES
from ...expr import FUNCTIONS, MONOIDS, Call, Read, walk
from ...program import Block, Operation, Program
from ...records import width_of
from ...space import Grid, IntSet, Region
from ...space.projection import Image, count_points, operand_images, write_image
from ..machine import DeviceModel, Machine
from . import convolution
from .windows import windows

FEW_QUERIES = 4  # of a head, which the device has a kernel for (`workers.cupy.few_queries`)


class Roof(NamedTuple):
    """Seconds that a task takes at least beyond its start; ``shape``: class and shape, where a table says so."""

    seconds: float
    shape: str = ""


class Touched(NamedTuple):
    """Points of a shard, what they read of each operand, and what they write.

    partial: what is written are contributions to a fold, whose records may be wider than elements. onto: the points are
    folded onto such records, which are read as well. boxes: points and written elements of the boxes that a block's
    shard consists of, where there are several.
    """

    points: int
    reads: Mapping[str, Image]
    written: Region
    partial: bool = False
    onto: bool = False
    boxes: tuple[tuple[int, int], ...] = ()


def touched(op: Operation, program: Program, region: Region, *, partial: bool = False, onto: bool = False) -> Touched:
    """What the points of a region of an operation touch."""
    shapes = {name: program.tensor(name).shape for name in op.operands}
    written, boxes = write_image(op, region).region, _boxes(op, region)
    return Touched(count_points(op, region).value, operand_images(op, shapes, region), written, partial, onto, boxes)


def _boxes(op: Operation, region: Region) -> tuple[tuple[int, int], ...]:
    """Points and written elements of every box of a block's shard, where there are several."""
    if not isinstance(op.body, Block):
        return ()
    boxes = [
        Region.of(Grid(tuple(IntSet((run,)) for run in runs)))
        for grid in region.grids
        for runs in product(*(axis.runs for axis in grid.axes))
    ]
    found = ((count_points(op, box).value, write_image(op, box).region.size) for box in boxes if len(boxes) > 1)
    return tuple((points, written) for points, written in found if points)


def compute_seconds(op: Operation, program: Program, machine: Machine, shard: Touched, ranks: int) -> float:
    """What the machine says, or the model of the kernel where that is more, with so many devices at work."""
    kernel = kernel_seconds(op, program, machine, shard)
    return max(machine_seconds(op, program, machine, shard, ranks), kernel or 0.0)


def kernel_seconds(op: Operation, program: Program, machine: Machine, shard: Touched) -> float | None:
    """What the model of the kernel says; None where there is none, or nothing to compute."""
    points, reads, written, *_ = shard
    if not points:
        return None
    if shard.boxes:
        return _box_by_box(op, program, machine, shard)
    return convolution.seconds(op, program, machine.device, points, reads, written)


def _box_by_box(op: Operation, program: Program, machine: Machine, shard: Touched) -> float | None:
    """A library's kernel has one box of a block at a time, each with a shape of its own; None where shapes were not
    measured.
    """
    table = machine.device.shaped(kernel_class(op), compute_dtype(op, program), 1)
    if table is None or few_queries(op):
        return None
    shapes = (task_shape(op, points, {}, written) for points, written in shard.boxes)
    return sum(table.at(*shape) for shape in shapes if shape is not None) + machine.device.start_s(1)


def machine_seconds(op: Operation, program: Program, machine: Machine, shard: Touched, ranks: int) -> float:
    """The highest of its roofs + start; 0 for no points."""
    if not shard.points:
        return 0.0
    highest = max(roof.seconds for roof in roofs(op, program, machine, shard, ranks))
    return highest + start_seconds(op, program, machine, ranks)


def start_seconds(op: Operation, program: Program, machine: Machine, ranks: int) -> float:
    """What a task of an operation takes to start."""
    device = machine.device
    return device.start_s(ranks, program.graph.digest(op) if device.paces else "")


def roofs(op: Operation, program: Program, machine: Machine, shard: Touched, ranks: int) -> list[Roof]:
    """The operation's own curve where it was measured, else what its arithmetic, its bytes, each element moved once,
    and, where the machine says so, its shape and the places that its points read take.

    Of a selection (`tapestry.selection`) the points that count are priced, and of what they alone say an element each.
    """
    device, (points, reads, written, partial, onto, _) = machine.device, shard
    measured = device.operation(program.graph.digest(op), ranks) if device.paces else None
    if measured is not None:
        return [Roof(measured.seconds(points))]
    width = width_of(program, op.output)
    moved = written.size * ((width.partial if partial else width.complete) + (width.partial if onto else 0))
    counting = -(-points // op.idle)
    for name, image in reads.items():
        size = min(image.region.size, counting) if name in op.data_dependent else image.region.size
        moved += size * program.tensor(name).itemsize
    if op.scan is not None:  # each result comes out of the one before
        elements = written.size + sum(image.region.size for image in reads.values())
        counting = -(-min(points, elements) // op.idle)
    kernel, dtype = kernel_class(op), compute_dtype(op, program)
    arithmetic = device.work(kernel, dtype, ranks).seconds(float(counting * flops_per_point(op)))
    found = [Roof(arithmetic), Roof(device.copying(ranks).seconds(moved))]
    places = places_per_point(op)
    reading = device.reading(dtype, ranks) if places else None
    if reading is not None:
        found.append(Roof(reading.seconds(float(counting * places))))
    table = device.shaped(kernel, dtype, ranks, window_places(op))
    if table is not None and not few_queries(op):
        shape = task_shape(op, counting, {name: image.region.size for name, image in reads.items()}, written.size)
        if shape is not None and table.covers(shape[-1]):
            says = " x ".join(f"{size:,.0f}" for size in shape)
            laid_out = sum(reads[name].region.size * program.tensor(name).itemsize for name in _laid_out(op))
            seconds = table.at(*shape) + (_gathering_seconds(device, ranks, laid_out) if laid_out else 0.0)
            found.append(Roof(seconds, f"{kernel} in {dtype}, {says}"))
    return found


def _gathering_seconds(device: DeviceModel, ranks: int, nbytes: int) -> float:
    """Of a kernel of its own that gathers so many bytes in short runs: half as quick as a copy (H200, six layers of
    2 x 2 to 16 x 16 windows: 19 to 280 us with their products come out within a tenth so, 39 as 32 and 10 as 8).
    """
    return device.start_s(ranks) + 2 * device.copying(ranks).seconds(2 * nbytes)


@lru_cache(maxsize=65536)
def _laid_out(op: Operation) -> tuple[str, ...]:
    """The operand whose windows are written out as a matrix before its product."""
    found = windows(op) if op.factors is not None and kernel_class(op) == "matmul" else None
    return tuple(name for name in op.operands if name != found.other) if found is not None and found.laid_out else ()


@lru_cache(maxsize=65536)
def few_queries(op: Operation) -> bool:
    """Whether a key of attention is seen by no more queries than the device's kernel for few of them takes, which is as
    quick as memory: tables are of many queries, blocks of which share the keys. Heads that all see the same keys count
    as queries."""
    if not isinstance(op.body, Block) or op.body.kernel != "attention":
        return False
    block, keys = BLOCKS[op.body.kernel], op.body.reads[1]
    seen = {name for row in keys.index for name in row.dims}
    queries = op.dims[: len(op.dims) - block.uncut - block.folded]
    return prod(dim.extent for dim in queries if dim.name not in seen) <= FEW_QUERIES


def task_shape(op: Operation, points: int, reads: Mapping[str, int], written: int) -> tuple[float, float, float] | None:
    """Rows, columns and what is folded (see `ShapeTable`), of a task of so many points that reads and writes so many
    elements: an element of the larger operand of a product is used once for every column. None of a convolution with
    groups.
    """
    if isinstance(op.body, Block):
        record = prod(dim.extent for dim in op.dims[len(op.dims) - BLOCKS[op.body.kernel].uncut :])
        return written / record, points / written, float(record)
    if kernel_class(op) == "conv":
        found = windows(op)
        return None if found is None else found.shape(points, reads, written)
    largest = max(1, *reads.values())
    return largest * written / points, points / largest, points / written


def window_places(op: Operation) -> int:
    """Of a dense convolution; 0 of anything else."""
    found = windows(op) if kernel_class(op) == "conv" else None
    return 0 if found is None else found.places


def compute_dtype(op: Operation, program: Program) -> str:
    """The widest operand type: the one whose rate counts."""
    names = [program.tensor(name).dtype for name in op.operands] or [program.tensor(op.output).dtype]
    if isinstance(op.body, Block):
        return names[0]
    return max(names, key=lambda name: DTYPES[name].rank)


@lru_cache(maxsize=65536)
def kernel_class(op: Operation) -> str:
    """matmul or conv for a sum of products of two reads, the block's own class, reduce, or elementwise. Windows that
    share no element are rows of a matrix."""
    if isinstance(op.body, Block):
        return BLOCKS[op.body.kernel].rate
    if op.factors is not None and all(isinstance(factor, Read) for factor in op.factors):
        reduced = set(op.reduce_dims)
        rows = [row for read in op.reads for row in read.index]
        windowed = any(len(row.dims) > 1 for row in rows)
        shared = all(any(reduced & row.dims for row in read.index) for read in op.reads)
        if windowed and shared:
            found = windows(op)
            return "matmul" if found is not None and found.apart else "conv"
        return "matmul" if shared else "reduce"
    return "reduce" if op.reduce_dims else "elementwise"


@lru_cache(maxsize=65536)
def places_per_point(op: Operation) -> int:
    """Elements that a point reads of operands of which it reads more than a pair, as windows written out do; 0 for
    products, whose kernels share what they read."""
    if isinstance(op.body, Block) or kernel_class(op) not in ("elementwise", "reduce"):
        return 0
    places = Counter(tensor for tensor, _ in {(read.tensor, read.index) for read in op.reads})
    return sum(count for count in places.values() if count > 2)


@lru_cache(maxsize=65536)
def flops_per_point(op: Operation) -> int | Fraction:
    """Operations per index point: the body's functions, and those that fold its value into a record."""
    if isinstance(op.body, Block):
        return flops_of_block(op, op.body.kernel)
    total = sum(FUNCTIONS[node.function].flops for node in walk(op.body) if isinstance(node, Call))
    return max(1, total + (MONOIDS[op.monoid].flops if op.monoid is not None else 0))
