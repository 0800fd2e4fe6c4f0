"""How long a shard of an operation computes: what was measured of that very operation, else a roofline over the
machine's sustained rates, or over its measured curves.

Grouped convolutions on a GPU we have kernels for are timed by the model that tunes those kernels, where it says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from ...blocks import BLOCKS, flops_of_block
from ...dtypes import DTYPES
from ...expr import FUNCTIONS, MONOIDS, Call, Read, walk
from ...program import Block, Operation, Program
from ...records import width_of
from ...space import Region
from ...space.projection import Image
from ..machine import Machine
from . import convolution


def compute_seconds(
    op: Operation,
    program: Program,
    machine: Machine,
    points: int,
    reads: Mapping[str, Image],
    written: Region,
    *,
    ranks: int,
    partial: bool,
    onto: bool = False,
) -> float:
    """What the machine says, or what the model of the kernel says where that is more; 0 for no points.

    ranks: how many devices are at work. partial: what is written are contributions to a fold, whose records may be
    wider than elements. onto: the points are folded onto such records, which are read as well.
    """
    kernel = convolution.seconds(op, program, machine.device, points, reads, written) if points else None
    least = machine_seconds(op, program, machine, points, reads, written, ranks=ranks, partial=partial, onto=onto)
    return max(least, kernel or 0.0)


def machine_seconds(
    op: Operation,
    program: Program,
    machine: Machine,
    points: int,
    reads: Mapping[str, Image],
    written: Region,
    *,
    ranks: int,
    partial: bool,
    onto: bool = False,
) -> float:
    """The operation's own curve + start where it was measured, else max(operations' time, bytes' time) + start; 0 for
    no points. Each element moves once.

    Of a selection (`tapestry.selection`) the points that count are priced, and of what they alone say an element each.
    """
    if not points:
        return 0.0
    device = machine.device
    measured = device.operation(program.graph.digest(op), ranks) if device.paces else None
    if measured is not None:
        return measured.seconds(points) + device.start_s(ranks)
    width = width_of(program, op.output)
    moved = written.size * ((width.partial if partial else width.complete) + (width.partial if onto else 0))
    counting = -(-points // op.idle)
    for name, image in reads.items():
        size = min(image.region.size, counting) if name in op.data_dependent else image.region.size
        moved += size * program.tensor(name).itemsize
    if op.scan is not None:  # each result comes out of the one before
        elements = written.size + sum(image.region.size for image in reads.values())
        counting = -(-min(points, elements) // op.idle)
    work = device.work(kernel_class(op), compute_dtype(op, program), ranks)
    arithmetic = work.seconds(float(counting * flops_per_point(op)))
    return max(arithmetic, device.copying(ranks).seconds(moved)) + device.start_s(ranks)


def compute_dtype(op: Operation, program: Program) -> str:
    """The widest operand type: the one whose rate counts."""
    names = [program.tensor(name).dtype for name in op.operands] or [program.tensor(op.output).dtype]
    if isinstance(op.body, Block):
        return names[0]
    return max(names, key=lambda name: DTYPES[name].rank)


@lru_cache(maxsize=65536)
def kernel_class(op: Operation) -> str:
    """matmul or conv for a sum of products of two reads, the block's own class, reduce, or elementwise."""
    if isinstance(op.body, Block):
        return BLOCKS[op.body.kernel].rate
    if op.factors is not None and all(isinstance(factor, Read) for factor in op.factors):
        reduced = set(op.reduce_dims)
        rows = [row for read in op.reads for row in read.index]
        windowed = any(len(row.dims) > 1 for row in rows)
        shared = all(any(reduced & row.dims for row in read.index) for read in op.reads)
        return "conv" if windowed and shared else "matmul" if shared else "reduce"
    return "reduce" if op.reduce_dims else "elementwise"


@lru_cache(maxsize=65536)
def flops_per_point(op: Operation) -> int | Fraction:
    """Operations per index point: the body's functions, and those that fold its value into a record."""
    if isinstance(op.body, Block):
        return flops_of_block(op, op.body.kernel)
    total = sum(FUNCTIONS[node.function].flops for node in walk(op.body) if isinstance(node, Call))
    return max(1, total + (MONOIDS[op.monoid].flops if op.monoid is not None else 0))
