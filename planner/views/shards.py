"""Which rank owns which elements of a tensor, and what it needs beyond that: the facts behind a shard map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...drawing.folding import anonymous
from ...program import Tensor
from ...space import Region
from ...space.projection import write_image
from ..format import Compute, Resolved, Transfer
from ..format.document import Copy


@dataclass(frozen=True)
class ShardMap:
    """One tensor, or several of repeated layers that lie alike (``names``).

    home    per rank what it has before anything is moved: what it starts with, or what its shard writes
    extra   per rank what it needs and does not have
    monoid  set where the homes are contributions to be folded
    moves   kinds of the transfers
    chosen  whether an operation reads it at places that the data say: what ranks need is a hull
    """

    tensor: Tensor
    names: tuple[str, ...]
    home: tuple[Region, ...]
    extra: tuple[Region, ...]
    monoid: str | None
    moves: tuple[str, ...]
    tier: str
    chosen: bool = False

    @property
    def name(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{anonymous(self.names[0])}  × {len(self.names)}"

    @cached_property
    def owners(self) -> tuple[tuple[Region, tuple[int, ...]], ...]:
        """Distinct homes with the ranks that have them."""
        found: dict[Region, list[int]] = {}
        for rank, region in enumerate(self.home):
            if region:
                found.setdefault(region, []).append(rank)
        return tuple((region, tuple(ranks)) for region, ranks in found.items())

    @cached_property
    def copies(self) -> float:
        """Ranks that own an element, on average."""
        return sum(region.size for region in self.home) / max(1, self.tensor.size)

    @property
    def replicated(self) -> bool:
        """Every rank owns all of it."""
        return len(self.owners) == 1 and len(self.owners[0][1]) == len(self.home) > 1 and self.monoid is None

    @cached_property
    def halo(self) -> tuple[tuple[int, int], ...]:
        """Per axis how far the widest halo reaches below and above a home; a gather counts as a wide one."""
        reach = [(0, 0)] * len(self.tensor.shape)
        for home, extra in zip(self.home, self.extra, strict=True):
            if home and extra:
                inner, outer = home.hull(), (home | extra).hull()
                steps = zip(inner.lo, outer.lo, inner.hi, outer.hi, strict=True)
                now = [(a - b, d - c) for a, b, c, d in steps]
                reach = [(max(p, a), max(q, b)) for (p, q), (a, b) in zip(reach, now, strict=True)]
        return tuple(reach)

    @property
    def thin(self) -> bool:
        """There are halos, each less than a third of what its rank owns."""
        pairs = [(h.size, e.size) for h, e in zip(self.home, self.extra, strict=True) if e]
        return bool(pairs) and all(3 * extra < home for home, extra in pairs)

    def axes(self, background: tuple[int, int] | None = None) -> tuple[int, ...]:
        """The one or two axes to draw: those of the background if they fit, else those that are cut, else the last
        long ones."""
        shape = self.tensor.shape
        for k in range(len(shape) - 1):
            if background is not None and shape[k : k + 2] == background:
                return k, k + 1
        cut = [k for k in range(len(shape)) if self._differ(k)]
        rest = [k for k in range(len(shape)) if k not in cut]
        rest.sort(key=lambda k: (shape[k] > 4, k), reverse=True)
        return tuple(sorted((cut + rest)[:2]))

    def _differ(self, axis: int) -> bool:
        regions = [r for r in (*self.home, *self.extra) if r]
        sets = {tuple(grid.axes[axis] for grid in region.grids) for region in regions}
        return len(sets) > 1


# What ranks need beyond their homes, by the homes and by (layout, ranks) of the moves: layers that lie alike ask alike.
_Extras = dict[tuple[tuple[Region, ...], tuple[tuple[str, tuple[int, ...] | None], ...]], tuple[Region, ...]]


def shard_maps(resolved: Resolved) -> list[ShardMap]:
    """One per tensor in the program's order; tensors of repeated layers that lie alike are one."""
    folded: dict[object, ShardMap] = {}
    for found in _maps(resolved):
        tensor = found.tensor
        key = (anonymous(tensor.name), tensor.shape, tensor.dtype, found.home, found.extra, found.monoid, found.tier)
        known = folded.get(key)
        folded[key] = replace(known, names=(*known.names, tensor.name)) if known else found
    return list(folded.values())


def _maps(resolved: Resolved) -> Iterator[ShardMap]:
    moves: dict[str, list[Transfer | Copy]] = {}
    for task in resolved.document.tasks:
        if not isinstance(task, Compute):
            moves.setdefault(task.tensor, []).append(task)
    computes = {resolved.program.op_by_name[op].output: tasks[0] for op, tasks in resolved.computing.items()}
    starts = {buffer.tensor: buffer for buffer in resolved.document.buffers if buffer.initial is not None}
    known: _Extras = {}
    for tensor in resolved.program.tensors:
        start, compute = starts.get(tensor.name), computes.get(tensor.name)
        if start is not None and start.initial is not None:
            home, tier = resolved.regions(start.initial), start.tier
        elif compute is not None:
            home, tier = _written(resolved, compute), resolved.buffers[compute.write].tier
        else:
            continue
        yield _map(resolved, tensor, home, tier, moves.get(tensor.name, []), known)


def _map(
    resolved: Resolved, tensor: Tensor, home: tuple[Region, ...], tier: str, moves: Sequence[Transfer | Copy],
    known: _Extras,
) -> ShardMap:  # fmt: skip
    key = home, tuple(dict.fromkeys((task.need, task.ranks) for task in moves))
    if key not in known:
        known[key] = _extra(resolved, home, moves)
    monoids = [task.monoid for task in moves if isinstance(task, Transfer) and task.monoid]
    kinds = dict.fromkeys("copy" if isinstance(task, Copy) else task.kind for task in moves)
    chosen = any(tensor.name in op.data_dependent for op in resolved.program.consumers[tensor.name])
    return ShardMap(tensor, (tensor.name,), home, known[key], next(iter(monoids), None), tuple(kinds), tier, chosen)


def _extra(resolved: Resolved, home: tuple[Region, ...], moves: Sequence[Transfer | Copy]) -> tuple[Region, ...]:
    """Per rank what the moves bring that it does not have."""
    needed = [Region()] * resolved.size
    for task in moves:
        regions = resolved.regions(task.need)
        for rank in resolved.participants(task):
            needed[rank] = needed[rank] | regions[rank]
    return tuple(need - own for need, own in zip(needed, home, strict=True))


def _written(resolved: Resolved, task: Compute) -> tuple[Region, ...]:
    op = resolved.program.op_by_name[task.op]
    shards = resolved.computed(op.name)
    images = {shard: write_image(op, shard).region if shard else Region() for shard in dict.fromkeys(shards)}
    return tuple(images[shard] for shard in shards)
