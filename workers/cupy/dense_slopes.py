"""The slopes of attention on a GPU by torch's products, of any types and masks: operands are made dense, box by box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ...dtypes import DTYPES, name_of
from ...expr import Affine, Bound, Floor, Read, Table, depends_on
from ...program import Block, Operation
from ...space import Region
from ..device import Evaluation, Runner, in_order
from .arrays import DeviceArray
from .cells import Runs, cells_of
from .declared import Launch, Take, dense, packed
from .machine import Machine
from .moving import bind_copy
from .slopes import Roles


def bind_products(machine: Machine, take: Take, launch: Launch, task: Evaluation) -> Runner:
    """Slopes of whatever operands, which are made dense, box by box of what is visible, and added up in the type that
    sums have."""
    found: list[Runner] = []
    for cell in cells_of(task.op, task.points):
        kept = [cell.kept[name] for name in task.op.parallel_dims]
        dtype = name_of(task.write.array.dtype)
        result, total = dense(take, kept, dtype), dense(take, kept, DTYPES[dtype].compute)
        found.append(partial(machine.fill, total.array, 0))
        for runs in cell.folds:
            for box in visible_boxes(task.op, {**cell.kept, **runs}):
                packing, operands = packed(take, task, box)
                places = tuple(_places(box[name], cell.kept[name]) for name in task.op.parallel_dims)
                added = _Added(machine, total.array, places, by_products(task.op, box), operands)
                found += [*map(launch, packing), machine.torch(added)]
        found.append(machine.torch(partial(_copied, machine, total.array, result.array)))
        found.append(bind_copy(machine, result, task.write, Region((result.grid,))))
    return in_order(found)


@dataclass(frozen=True)
class _Added:
    """What a function makes of operands is added to a part of an array."""

    machine: Machine
    total: DeviceArray
    places: tuple[slice, ...]
    function: Callable[..., Any]
    operands: tuple[DeviceArray, ...]

    def __call__(self) -> None:
        self.machine.tensor(self.total)[self.places] += self.function(*map(self.machine.tensor, self.operands))


def _copied(machine: Machine, source: DeviceArray, target: DeviceArray) -> None:
    machine.tensor(target).copy_(machine.tensor(source))


def _places(part: range, whole: range) -> slice:
    first = whole.index(part.start)
    return slice(first, first + len(part))


def visible_boxes(op: Operation, runs: Runs) -> Iterator[Runs]:
    """Boxes of a box with all visible pairs, of which each row and each key is in one: others may not be stored."""
    roles = Roles.of(op)
    told = [name for name in roles.batch if any(name in bound.expr.dims for bound in op.where)]
    for batch in product(*([runs[name][k : k + 1] for k in range(len(runs[name]))] for name in told)):
        here = {**runs, **dict(zip(told, batch, strict=True))}
        seen = visible(op.where, here, [*told, roles.row, roles.key]).reshape(
            len(here[roles.row]), len(here[roles.key])
        )
        for rows in _stretches(np.asarray(seen.any(axis=1))):
            for keys in _stretches(np.asarray(seen[rows].any(axis=0))):
                yield {**here, roles.row: here[roles.row][rows], roles.key: here[roles.key][keys]}


def _stretches(truths: np.ndarray) -> Iterator[slice]:
    """Where truths stand next to one another."""
    edges = np.flatnonzero(np.diff(truths.astype(np.int8), prepend=0, append=0))
    for first, end in edges.reshape(-1, 2).tolist():
        yield slice(first, end)


def by_products(op: Operation, runs: Runs) -> Callable[..., Any]:
    """The function that makes the slopes of a box of points from dense operands."""
    assert isinstance(op.body, Block)
    scale, roles = float(op.body.attrs["scale"]), Roles.of(op)
    reads, tables = op.body.reads, dict[Table, Any]()

    def made(*operands: Any) -> Any:
        import torch

        mask = visible_there(op.where, runs, [*roles.batch, roles.row, roles.key], operands[0].device, tables)
        wide = torch.float64 if operands[0].dtype is torch.float64 else torch.float32
        sides = [_whole(x.to(wide), op, read) for x, read in zip(operands, reads, strict=True)]
        if roles.keyed:  # [..., key, group, row, inner, element], 1 long where it is none of theirs
            q, result, slope, total, largest = (sides[n].squeeze(-5).flatten(-3, -2) for n in (0, 3, 4, 5, 6))
            k, v = (sides[n].squeeze(-3).squeeze(-2).transpose(-3, -2) for n in (1, 2))
            mask = mask.repeat_interleave(len(runs[roles.heads[1]]), -2)
        else:  # [..., row, head, key, element]
            q, result, slope, total, largest = (sides[n].squeeze(-2).transpose(-3, -2) for n in (0, 3, 4, 5, 6))
            k, v = (sides[n].squeeze(-4) for n in (1, 2))
        x = torch.where(mask.unsqueeze(-3), scale * (q @ k.transpose(-1, -2)) - largest, -torch.inf)
        p = x.exp() / total
        if roles.side == "v":
            return (p.transpose(-1, -2) @ slope).transpose(-3, -2)
        dx = scale * p * (slope @ v.transpose(-1, -2) - (slope * result).sum(-1, keepdim=True))
        return (dx @ k if roles.side == "q" else dx.transpose(-1, -2) @ q).transpose(-3, -2)

    return made


def _whole(x: Any, op: Operation, read: Read) -> Any:
    """An operand [kept ..., its own folded and made dimensions] with an axis for each dimension of an operation."""
    own, kept = depends_on(read), len(op.dims) - len(op.reduce_dims) - 1
    for place, name in enumerate((*op.reduce_dims, op.dims[-1].name), kept):
        x = x if name in own else x.unsqueeze(place)
    return x


def visible(where: Sequence[Bound], runs: Runs, names: Sequence[str]) -> np.ndarray:
    """Over some dimensions, whether all bounds hold."""
    index = np.ix_(*(np.array(runs[name]) for name in names))
    at = dict(zip(names, index, strict=True))
    found = np.ones([len(runs[name]) for name in names], dtype=bool)
    for bound in where:
        value = bound.expr.evaluate(at)
        if bound.lo is not None:
            found &= value >= bound.lo
        if bound.hi is not None:
            found &= value < bound.hi
    return found


def visible_there(
    where: Sequence[Bound], runs: Runs, names: Sequence[str], device: Any, tables: dict[Table, Any]
) -> Any:
    """The same as a tensor of torch, made where it is used: a graph holds nothing that comes from the host's memory.
    ``tables``: those of conditions, which are brought at the first call and kept.
    """
    import torch

    def along(place: int) -> Any:
        run = runs[names[place]]
        index = torch.arange(run.start, run.stop, run.step, device=device)
        return index.view([-1 if k == place else 1 for k in range(len(names))])

    def value(expr: Affine) -> Any:
        total: Any = expr.const
        for atom, factor in expr.terms:
            total = total + factor * (at[atom] if isinstance(atom, str) else inside(atom))
        return total

    def inside(atom: Floor | Table) -> Any:
        inner = value(atom.inner)
        if isinstance(inner, int) or not isinstance(atom, Table):
            return atom.value(inner)
        if atom not in tables:
            tables[atom] = torch.as_tensor(atom.values, device=device)
        return tables[atom][inner.clamp(0, len(atom.values) - 1)]

    at = {name: along(place) for place, name in enumerate(names)}
    found = torch.ones([len(runs[name]) for name in names], dtype=torch.bool, device=device)
    for bound in where:
        here = value(bound.expr)
        if bound.lo is not None:
            found = found & (here >= bound.lo)
        if bound.hi is not None:
            found = found & (here < bound.hi)
    return found
