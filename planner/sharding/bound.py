"""A lower bound on the makespan of every plan that the format can say; docs/planner.md has the proof.

Whatever the shards, the ranks that take part and the order: all tasks of an operation together evaluate each of its
points at least once, touch each element it reads and writes at least once, and are started at least once. A rank
computes one task at a time, so the busiest of P ranks takes at least the P-th part of the sum.
"""

from __future__ import annotations

from fractions import Fraction

from ...program import Operation, Program
from ...space import Grid, IntSet, Region
from ...space.projection import count_points, operand_images, write_image
from ..machine import Machine
from ..strategy.cost import compute_dtype, flops_per_point, kernel_class


def lower_bound_seconds(program: Program, machine: Machine, ranks: int) -> float:
    """No plan of the program on so many devices of the machine is simulated to take less."""
    known: dict[str, Fraction] = {}
    total = Fraction(0)
    for op in program.operations:
        key = program.graph.structure(op)
        if key not in known:
            known[key] = _least_work(op, program, machine)
        total += known[key]
    return float(total / ranks) * (1 - 1e-9)  # sums of floats are rounded, in a simulation too


def _least_work(op: Operation, program: Program, machine: Machine) -> Fraction:
    """Seconds that all tasks of an operation take together at least."""
    domain = Region.of(Grid(tuple(IntSet.interval(0, dim.extent) for dim in op.dims)))
    points = count_points(op, domain)
    if points.exact and not points.value:
        return Fraction(0)
    device = machine.device
    rate = Fraction(device.ops_per_s(kernel_class(op), compute_dtype(op, program)))
    arithmetic = points.value * flops_per_point(op) / rate if points.exact else Fraction(0)
    bandwidth = Fraction(device.compute_tier.read_gb_per_s) * 10**9
    return max(arithmetic, _least_bytes(op, program, domain) / bandwidth) + Fraction(device.launch_overhead_s)


def _least_bytes(op: Operation, program: Program, domain: Region) -> Fraction:
    """What is read and written at least once; what is known as a hull only does not count."""
    shapes = {name: program.tensor(name).shape for name in op.operands}
    total = 0
    for name, image in operand_images(op, shapes, domain).items():
        total += image.region.size * program.tensor(name).itemsize if image.exact else 0
    written = write_image(op, domain)
    if written.exact and not op.where:  # shards cover the points within `where`, maybe no others
        total += written.region.size * program.tensor(op.output).itemsize
    return Fraction(total)
