"""Ninth proof: operations are sharded as the plan says, and as the program's pins ask.

A stated sharding gives mesh axes to dimensions. What that means is computed again, rank by rank, from the rules by
which dimensions are cut, and compared with what the tasks compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import prod

from ...program import Operation, Pin, Tensor
from ..format.document import Compute, Sharding
from .algebra import EMPTY
from .case import Case
from .cells import NOTHING, Form, Runs
from .report import Code, Findings

KINDS = ("block", "zigzag", "cyclic", "balanced", "proportional")
UNCUT = ("replicated", "explicit")
NO_AXIS = "it names a mesh axis that is not there"
ALONE = "@0"  # in a pin of a tensor: on the first rank of a mesh axis alone; "@1" on the second, and so on

Column = tuple[int, ...]
Cuts = Mapping[str, tuple[str, str]]
"""Mesh axis -> the dimension that it cuts (or the coordinate that is ALONE), and how."""


def prove(case: Case, findings: Findings) -> None:
    """Findings SHARDING and PIN."""
    shards = Shards(case)
    computed, stated = _computed(case), case.document.shardings
    for name in sorted({*stated} ^ {*case.program.op_by_name}):
        missing = "there is no such operation" if name in stated else "the plan does not say how it is sharded"
        findings.add(Code.SHARDING, f"operation {name}: {missing}")
    for op in case.program.operations:
        cuts = _sharding(shards, op, stated[op.name], computed[op.name], findings) if op.name in stated else None
        for pin in case.program.pins:
            fault = _op_fault(shards, pin, cuts) if pin.target == "op" and fnmatchcase(op.name, pin.pattern) else None
            if fault:
                findings.add(Code.PIN, f"operation {op.name}: {fault}")
    for pin in case.program.pins:
        if pin.target == "tensor":
            for tensor in case.program.tensors:
                if fnmatchcase(tensor.name, pin.pattern) and (fault := _tensor_fault(shards, pin, tensor, computed)):
                    findings.add(Code.PIN, fault, tensor=tensor.name)


class Shards:
    """What cuts of an index space give each rank; equal questions are answered once."""

    def __init__(self, case: Case) -> None:
        self.case, document = case, case.document
        self.axes = dict(zip(document.mesh_axes, document.mesh, strict=True))
        self.places = [dict(zip(self.axes, at, strict=True)) for at in product(*map(range, document.mesh))]
        self.weights = tuple(document.weights or ())
        self._known: dict[object, Column] = {}
        self.verdicts: dict[object, str | Cuts] = {}

    def of(self, extents: Mapping[str, int], cuts: Cuts, op: Operation | None = None) -> Column:
        """Per rank its region. ``op``: of its index space, within its conditions."""
        space = None if op is None or not op.where else self.case.shape(op).number
        key = (tuple(extents.items()), tuple(sorted(cuts.items())), space)
        if key not in self._known:
            self._known[key] = self._regions(extents, cuts, op)
        return self._known[key]

    def _regions(self, extents: Mapping[str, int], cuts: Cuts, op: Operation | None) -> Column:
        found = []
        alone = {axis: int(dim[1:]) for axis, (dim, _) in cuts.items() if dim.startswith("@")}
        by_dim = {dim: [axis for axis in self.axes if cuts.get(axis, ("",))[0] == dim] for dim in extents}
        kinds = dict(cuts.values())
        below = {dim: self._below(op, k) for k, dim in enumerate(extents)}
        parts: dict[object, Runs] = {}
        for place in self.places:
            grid = []
            for dim, extent in extents.items():
                index, count = 0, 1
                for axis in by_dim[dim]:
                    index, count = index * self.axes[axis] + place[axis], count * self.axes[axis]
                if (dim, index) not in parts:
                    weights = self._weights(by_dim[dim], count) if kinds.get(dim) == "proportional" else ()
                    parts[dim, index] = part(kinds.get(dim, "block"), index, count, extent, below[dim], weights)
                grid.append(parts[dim, index])
            empty = any(place[axis] != at for axis, at in alone.items()) or not all(grid)
            found.append(self.case.algebra.stated(NOTHING if empty else Form((tuple(grid),))))
        return tuple(found)

    def _weights(self, axes: Sequence[str], count: int) -> tuple[int, ...]:
        """Of the parts that mesh axes number, those of their ranks together; none where ranks are alike."""
        found = [0] * count
        for place, weight in zip(self.places, self.weights, strict=bool(self.weights)):
            index = 0
            for axis in axes:
                index = index * self.axes[axis] + place[axis]
            found[index] += weight
        return tuple(found) if self.weights else ()

    def _below(self, op: Operation | None, axis: int) -> Callable[[int], int] | None:
        """How many points of the domain lie below a cut of a dimension; None: as many at every index."""
        if op is None or not op.where:
            return None
        extents, shape = [dim.extent for dim in op.dims], self.case.shape(op)

        def below(cut: int) -> int:
            return shape.count(self.case.algebra.whole([cut if k == axis else n for k, n in enumerate(extents)]))

        return below

    def same(self, one: Column, other: Column) -> bool:
        algebra = self.case.algebra
        return all(a == b or (algebra.within(a, b) and algebra.within(b, a)) for a, b in zip(one, other, strict=True))


def part(
    kind: str, index: int, count: int, extent: int, below: Callable[[int], int] | None, weights: Sequence[int] = ()
) -> Runs:
    """Indices of one of ``count`` parts of 0:extent.

    block: from ⌊index·extent/count⌋ on. zigzag: chunks index and 2·count-1-index of twice as many. cyclic: every
    count-th. balanced: cut where the points of the domain below are nearest to each share of all, if they are not even.
    proportional: the same, where the shares are in proportion to weights, if there are any.
    """
    if kind == "proportional" and weights:
        shares = [sum(weights[:k]) for k in (index, index + 1)]
        low, high = (_balanced_cut(share, sum(weights), extent, below or (lambda cut: cut)) for share in shares)
        return (range(low, high),) if low < high else ()
    if kind == "cyclic":
        return (range(index, extent, count),) if index < extent else ()
    if kind == "zigzag":
        return (*_block(index, 2 * count, extent), *_block(2 * count - 1 - index, 2 * count, extent))
    if kind in ("balanced", "proportional") and below is not None:
        low, high = (_balanced_cut(k, count, extent, below) for k in (index, index + 1))
        return (range(low, high),) if low < high else ()
    return _block(index, count, extent)


def _block(index: int, count: int, extent: int) -> Runs:
    found = range(index * extent // count, (index + 1) * extent // count)
    return (found,) if found else ()


def _balanced_cut(k: int, count: int, extent: int, below: Callable[[int], int]) -> int:
    """The least cut with a share of k / count of the points below it, or the one before where that is nearer to it."""
    if k in (0, count):
        return 0 if k == 0 else extent
    low, high, share = 0, extent, k * below(extent)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count * below(middle) >= share else (middle + 1, high)
    if low and share - count * below(low - 1) < count * below(low) - share:
        return low - 1
    return low


def _computed(case: Case) -> dict[str, Column]:
    """Per operation and rank the points that its tasks compute."""
    found: dict[str, Column] = {op.name: (EMPTY,) * case.ranks for op in case.program.operations}
    for task in case.tasks:
        if isinstance(task, Compute):
            mine, members = case.layouts[task.shards], set(case.participants(task))
            if any(found[task.op]) or len(members) < case.ranks:
                both = zip(found[task.op], mine, strict=True)
                mine = tuple(case.algebra.join(pair) if r in members else pair[0] for r, pair in enumerate(both))
            found[task.op] = mine
    return found


def _sharding(shards: Shards, op: Operation, stated: Sharding, column: Column, findings: Findings) -> Cuts | None:
    """The cuts that the plan states, where the tasks compute what they say; a finding where they do not."""
    only = tuple((stated.only or {}).items())
    key = (shards.case.shape(op).number, tuple(stated.partition.items()), stated.kind, stated.ranks, only, column)
    if key not in shards.verdicts:
        shards.verdicts[key] = _resolved(shards, op, stated, column)
    found = shards.verdicts[key]
    if isinstance(found, str):
        findings.add(Code.SHARDING, f"operation {op.name}: {found}")
        return None
    return found if stated.kind != "explicit" else None


def _resolved(shards: Shards, op: Operation, stated: Sharding, column: Column) -> str | Cuts:
    """The cuts, or what is wrong."""
    shape = shards.case.shape(op)
    busy = sum(shape.count(points) > 0 for points in column)
    if stated.ranks != busy:
        return f"{stated.ranks} ranks are stated; {busy} compute points of it"
    only = stated.only or {}
    axes = [*only, *(axis for text in stated.partition.values() for axis in text.split(","))]
    extents = {dim.name: dim.extent for dim in op.dims}
    if {*axes} - {*shards.axes} or len({*axes}) < len(axes) or {*stated.partition} - {*extents}:
        return f"{stated.partition} does not give mesh axes, each once, to dimensions of it"
    if stated.kind not in (KINDS if stated.partition or only else UNCUT):
        return f"{stated.partition} is not cut in the kind {stated.kind}"
    if not all(0 <= at < shards.axes[axis] for axis, at in only.items()):
        return f"{only} does not give coordinates of mesh axes"
    if stated.kind == "explicit":
        return {}
    for kinds in product(dict.fromkeys(("block", stated.kind)), repeat=len(stated.partition)):
        if stated.kind in (*kinds, "replicated") or not kinds:
            by_dim = dict(zip(stated.partition, kinds, strict=True))
            cuts = {axis: (dim, by_dim[dim]) for dim, text in stated.partition.items() for axis in text.split(",")}
            cuts |= {axis: (f"@{at}", "block") for axis, at in only.items()}
            if shards.same(shards.of(extents, cuts, op), column):
                return cuts
    said = ", ".join(f"{dim} over {text}" for dim, text in stated.partition.items()) or "not cut"
    said += "".join(f", on {axis} = {at} alone" for axis, at in only.items())
    return f"{said} ({stated.kind}) is not what its tasks compute"


def _asked(shards: Shards, pin: Pin) -> dict[str, str | None] | None:
    """Per mesh axis that a pin speaks of what it asks; None where it speaks of an axis that is not there."""
    wanted = dict(pin.cuts)
    if {*wanted} - {"*", *shards.axes}:
        return None
    return {axis: wanted.get(axis, wanted.get("*")) for axis in shards.axes if axis in wanted or "*" in wanted}


def _op_fault(shards: Shards, pin: Pin, cuts: Cuts | None) -> str | None:
    asked = _asked(shards, pin)
    if pin.forbid:
        same = asked is not None and cuts is not None and all(_dim(cuts, axis) == dim for axis, dim in asked.items())
        return f"it is cut as {pin.pattern!r} forbids" if same else None
    if asked is None or cuts is None:
        return f"the pin {pin.pattern!r} is not kept: {NO_AXIS if asked is None else 'its shards are no cut of it'}"
    for axis, dim in asked.items():
        found = cuts.get(axis)
        if found != (None if dim is None else (dim, pin.kind)):
            wants = f"{dim} in the kind {pin.kind}" if dim is not None else "nothing"
            return f"the pin {pin.pattern!r} is not kept: {axis} is to cut {wants}"
    return None


def _dim(cuts: Cuts, axis: str) -> str | None:
    return cuts[axis][0] if axis in cuts else None


def _tensor_fault(shards: Shards, pin: Pin, tensor: Tensor, computed: Mapping[str, Column]) -> str | None:
    """Some layout that the pin allows must be where the tensor starts, or what its operation writes, whole."""
    home, asked = _home(shards.case, tensor, computed), _asked(shards, pin)
    if pin.forbid:
        lies = asked is not None and home is not None and _lies(shards, pin, tensor, asked, home)
        return f"it lies as {pin.pattern!r} forbids" if lies else None
    if asked is None or home is None:
        return f"the pin {pin.pattern!r} is not kept: {NO_AXIS if asked is None else 'it is nowhere whole'}"
    if not _lies(shards, pin, tensor, asked, home):
        wants = ", ".join(f"{axis} = {name or 'not cut'}" for axis, name in asked.items())
        return f"the pin {pin.pattern!r} is not kept: it asks for {wants} ({pin.kind})"
    return None


def _lies(shards: Shards, pin: Pin, tensor: Tensor, asked: Mapping[str, str | None], home: Column) -> bool:
    """Whether it is where some of these cuts lay it; what is forbidden is so in any kind."""
    extents = {str(axis): extent for axis, extent in enumerate(tensor.shape)}
    kinds = KINDS if pin.forbid else (pin.kind,)
    choices = (cuts for kind in kinds for cuts in _choices(shards, kind, tensor, asked))
    return any(shards.same(shards.of(extents, cuts), home) for cuts in choices)


def _choices(shards: Shards, kind: str, tensor: Tensor, asked: Mapping[str, str | None]) -> Iterator[Cuts]:
    """All cuts that a pin on a tensor allows; mesh axes that it does not name are free."""
    numbers = {name: str(axis) for axis, name in enumerate(tensor.axes)}
    free: Sequence[str | None] = (*map(str, range(len(tensor.shape))), ALONE, None)
    options = [[numbers.get(asked[axis] or "", asked[axis])] if axis in asked else free for axis in shards.axes]
    shards.case.algebra.budget.spend(prod(map(len, options)) * shards.case.ranks, "layouts that a pin allows")
    for choice in product(*options):
        if all(dim is None or dim == ALONE or dim in map(str, range(len(tensor.shape))) for dim in choice):
            pairs = zip(shards.axes, choice, strict=True)
            yield {axis: (dim, kind) for axis, dim in pairs if dim is not None}


def _home(case: Case, tensor: Tensor, computed: Mapping[str, Column]) -> Column | None:
    """Per rank where it starts, or what its operation writes, unless a part of a reduction is missing."""
    producer = case.program.producer.get(tensor.name)
    if producer is None:
        starts = [case.layouts[b.initial] for b in case.document.buffers if b.tensor == tensor.name and b.initial]
        return tuple(map(case.algebra.join, zip(*starts, strict=True))) if starts else None
    shape = case.shape(producer)
    written = [shape.written(points) for points in computed[producer.name]]
    return None if any(w.complete != w.image for w in written) else tuple(w.image for w in written)
