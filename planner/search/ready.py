"""A program made ready for a machine: cleaned, and fused where the planner's own cost model says that it is quicker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...program import Operation, Program
from ...rewrites import Match, Rewritten, apply, improve
from ..machine import Machine
from ..simulate import PriceBook
from ..strategy.cost import kernel_class
from ..strategy.mesh import Mesh
from ..strategy.strategies import StrategyTable

CLEANING = ("dead_values", "common_subexpressions")
FUSION = ("compose_views", "fold_into_view", "fuse_pointwise", "fuse_into_all")
# Seconds; what gains less is not worth another form of the program.
LEAST = 1e-9


def made_ready(program: Program, machine: Machine, mesh: Mesh) -> Rewritten:
    """What is planned in place of a program; its inputs, params, states and outputs stay as they are."""
    seconds = _seconds(machine, mesh)
    cleaned = apply(program, *CLEANING)
    return cleaned.then(improve(cleaned.program, FUSION, seconds, least=LEAST, wanted=_keeps_its_kernel))


def operation_seconds(machine: Machine, mesh: Sequence[int]) -> Callable[[Program, Operation], float]:
    """The planner's own model of what an operation takes, its work shared equally by the devices of a mesh: a cost for
    `tapestry.rewrites.improve`.

    In seconds, of a program and one of its operations; what moves between devices is no part of it.

    >>> import tapestry as tp
    >>> from tapestry.planner import load_machine
    >>> @tp.program
    ... def net(x: tp.f32[tp.Tensor, "n"]) -> tp.Tensor:
    ...     return tp.exp(x)
    >>> program = net.bind(n=1 << 20)
    >>> seconds = [operation_seconds(load_machine("cpu-4"), (n,))(program, program.operations[0]) for n in (1, 4)]
    >>> seconds[0] > seconds[1] > 0
    True
    """
    return _seconds(machine, Mesh.of(tuple(mesh), machine.device_count))


def _seconds(machine: Machine, mesh: Mesh) -> Callable[[Program, Operation], float]:
    book = PriceBook(_without_operations(machine), mesh)
    start = book.machine.device.start_s(mesh.size)

    def seconds(beside: Program, op: Operation) -> float:
        """An operation's time where its work is shared equally by the devices."""
        table = StrategyTable(beside, mesh, book.works, book.layouts)
        alone = table.strategy(op, (None,) * len(mesh.shape)).slowest
        return start + (alone - start) / mesh.size if alone else 0.0

    return seconds


def _without_operations(machine: Machine) -> Machine:
    """The machine without what single operations were measured to take, which says nothing of others to compare."""
    paces = tuple(replace(pace, operations=()) for pace in machine.device.paces)
    return replace(machine, device=replace(machine.device, paces=paces))


def _keeps_its_kernel(program: Program, match: Match) -> bool:
    """Whether what is folded is folded by the same class of kernels still: the libraries' own know no other bodies."""
    return all(
        op.monoid is None or kernel_class(op) == kernel_class(program.op_by_name[op.name]) for op in match.change.added
    )
