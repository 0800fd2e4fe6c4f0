"""Strategies: the ways to shard one operation over the mesh, and the operand layouts they imply.

A strategy gives each mesh axis one dimension of the operation to cut (parallel or reduction), or none: then the work is
done redundantly along it. Everything else follows from the projections: what each rank reads, writes, computes, and how
long that takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...program import Operation, Program
from ...records import free_axes, width_of
from ...space import Grid, IntSet, Region
from ...space.cuts import KINDS, CutKind
from ...space.partition import NamedCut, Partition
from ...space.projection import count_points, operand_images, write_image, write_projection
from .boxes import boxes
from .carried import zigzag_dims
from .columns import Columns, column
from .images import image_columns, read_columns
from .layouts import Layout, Layouts
from .mesh import Cut, Mesh, Shards, choices_per_axis
from .turns import Turns
from .work import Works

Cuts = tuple[Cut | None, ...]


@dataclass(frozen=True, eq=False)
class Strategy:
    """One way to run an operation.

    domain     per rank the points it computes: a layout of the index space
    needs      per operand (order of Operation.operands) the layout it reads
    writes     the layout it leaves, with part numbers when a reduction is cut
    seconds    per rank; ``exact`` False where some need is a labelled superset of what is read
    turns      the points one part of the reduction after another; ``needs`` is then what the first of them reads
    """

    cuts: Cuts
    domain: Layout
    needs: tuple[Layout, ...]
    writes: Layout
    seconds: tuple[float, ...]
    points: tuple[int, ...]
    exact: bool
    turns: Turns | None = None

    @property
    def shards(self) -> tuple[Region, ...]:
        """Per rank the points it computes."""
        return self.domain.regions

    @cached_property
    def slowest(self) -> float:
        return max(self.seconds)

    @cached_property
    def busy(self) -> int:
        """Ranks that compute any point."""
        return sum(1 for points in self.points if points)

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Those with a shard; None: all."""
        return self.domain.ranks

    @cached_property
    def alike(self) -> bool:
        """All ranks compute the same points."""
        cut = self.domain.by_axes
        return len(set(self.shards)) == 1 if cut is None else all(len(axis.sets) == 1 for axis in cut)

    def __str__(self) -> str:
        turns = "" if self.turns is None else f" in {len(self.turns.each)} turns"
        if not any(self.cuts) and not self.alike:
            return "(otherwise)" + turns
        return "(" + ", ".join("-" if c is None else str(c) for c in self.cuts) + ")" + turns


class StrategyTable:
    """All strategies of all operations of a program, computed once per structure: repeated layers cost nothing.

    ``whole``: by operation a dimension that no mesh axis cuts. ``boxed``: the share of what ranks receive on the best
    grid that unequal boxes are offered for; 0: none are.
    """

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        works: Works,
        layouts: Layouts,
        whole: Mapping[str, str] | None = None,
        *,
        boxed: float = 0.0,
    ) -> None:
        self.program, self.mesh, self.works, self.layouts = program, mesh, works, layouts
        self.whole, self.boxed = whole or {}, boxed
        self._zigzag = zigzag_dims(program)
        self._unevens: dict[tuple[str, str, bool], bool] = {}
        self._known: dict[tuple[str, Cuts], Strategy] = {}
        self._given: dict[tuple[str, tuple[Region, ...]], Strategy] = {}
        self.turned: dict[tuple[Strategy, int | None], tuple[Strategy, ...]] = {}
        self._pieces: dict[tuple[str, Columns | tuple[Region, ...], tuple[int, ...] | None], Strategy] = {}
        self._proved: set[tuple[str, Cuts]] = set()

    def signature(self, op: Operation) -> str:
        """The operation without its names: equal for the same operation in another layer."""
        return self.program.graph.structure(op)

    def candidates(self, op: Operation) -> list[Cuts]:
        """All cuts that leave no rank without work, most cut first; pins are applied elsewhere."""
        found = [c for c in choices_per_axis([*self.offered(op), None], self.mesh) if self._fills(op, c)]
        return sorted(found, key=lambda cuts: sum(c is None for c in cuts))

    def offered(self, op: Operation) -> tuple[Cut, ...]:
        """What an axis of the mesh may cut."""
        options: list[Cut] = []
        for dim in op.dims:
            if dim.cut and dim.extent > 1 and dim.name != self.whole.get(op.name):
                options.append(Cut(dim.name))
                if (op.name, dim.name) in self._zigzag:
                    options.append(Cut(dim.name, "zigzag"))
                if self._uneven(op, dim.name):
                    options.append(Cut(dim.name, "balanced"))
                if self.mesh.weights:
                    options.append(Cut(dim.name, "proportional"))
        return tuple(options)

    def _uneven(self, op: Operation, dim: str) -> bool:
        """Whether parts of equal work are worth a look: they can be told, as the points of each are known exactly, and
        neither equal parts of a dimension nor pairs of chunks are within a hundredth of an equal share."""
        if not any(dim in bound.expr.dims for bound in op.where):
            return False
        pairs = (op.name, dim) in self._zigzag
        key = (self.signature(op), dim, pairs)
        if key not in self._unevens:
            self._unevens[key] = self._off(op, dim, "block") and (not pairs or self._off(op, dim, "zigzag"))
        return self._unevens[key]

    def _off(self, op: Operation, dim: str, kind: CutKind) -> bool:
        """Whether as many parts as there are ranks differ in work by more than a hundredth, exactly counted."""
        extents = tuple(op.extents.values())
        parts = min(self.mesh.size, op.extents[dim])
        cut = Partition.by_kinds(extents, (parts,), [NamedCut(list(op.extents).index(dim), kind, (0,))])
        counts = [count_points(op, shard) for shard in cut.shards()]
        most, every = max(count.value for count in counts), sum(count.value for count in counts)
        return all(count.exact for count in counts) and 100 * parts * most > 101 * every

    def _fills(self, op: Operation, cuts: Cuts) -> bool:
        parts: dict[str, int] = {}
        for axis, chosen in enumerate(cuts):
            if chosen is not None:
                parts[chosen.dim] = parts.get(chosen.dim, chosen.chunks) * self.mesh.shape[axis]
        if not all(op.extents[dim] >= count for dim, count in parts.items()):
            return False
        weighed = any(chosen is not None and KINDS[chosen.kind].weighed for chosen in cuts)
        return not weighed or all(Shards.of(self.mesh, op.extents, cuts, op.where).regions)

    def prove(self, op: Operation, cuts: Cuts) -> None:
        """Raise PartitionError unless the shards of these cuts are a partition of the operation's index space."""
        key = (self.signature(op), cuts)
        if key not in self._proved:
            Shards.of(self.mesh, op.extents, cuts, op.where).partition.prove()
            self._proved.add(key)

    def knows(self, op: Operation, cuts: Cuts) -> bool:
        """Whether a strategy is there without evaluating it."""
        return (self.signature(op), cuts) in self._known

    def strategy(self, op: Operation, cuts: Cuts) -> Strategy:
        key = (self.signature(op), cuts)
        if key not in self._known:
            self._known[key] = self._evaluate(op, cuts)
        return self._known[key]

    def explicit(self, op: Operation, given: Iterable[Region]) -> Strategy:
        """The strategy of explicit shards; parts are numbered by the reduction share they stand for."""
        key = (self.signature(op), tuple(given))
        if key not in self._given:
            parts = reduction_parts(op, key[1])
            self._given[key] = self._from_shards(op, (None,) * len(self.mesh.shape), _points(op, key[1]), parts)
        return self._given[key]

    def in_boxes(self, op: Operation) -> list[Strategy]:
        """In boxes that are no grid, where those move less."""
        if not self.boxed:
            return []
        widths = {name: width_of(self.program, name).complete for name in (*op.operands, op.output)}
        found = (each.shards(op.extents) for each in boxes(op, self.mesh.size, widths, self.boxed))
        return [self.explicit(op, shards) for shards in found if shards is not None]

    def piece(self, op: Operation, of: Strategy, points: Layout) -> Strategy:
        """Some of a strategy's points on every rank, along parallel dimensions: the shares of a reduction stay whose
        they are."""
        key = (self.signature(op), points.by_axes or points.regions, of.writes.parts)
        if key not in self._pieces:
            self._pieces[key] = self._from_shards(op, of.cuts, points, of.writes.parts)
        return self._pieces[key]

    def turn(
        self, op: Operation, whole: Strategy, regions: tuple[Region, ...], *, onto: bool, partial: bool
    ) -> Strategy:
        """Some of the points of a strategy; ``onto``: folded onto partial results. ``partial``: into such."""
        points = _points(op, regions)
        return self._from_shards(op, whole.cuts, points, whole.writes.parts, onto=onto, partial=partial)

    def _evaluate(self, op: Operation, cuts: Cuts) -> Strategy:
        shards, extents = Shards.of(self.mesh, op.extents, cuts, op.where), tuple(op.extents.values())
        by_axes = shards.columns(extents)
        points = _points(op, shards.regions) if by_axes is None else Layout(extents, None, None, by_axes)
        axes = [axis for axis, c in enumerate(cuts) if c is not None and c.dim in op.reduce_dims]
        count, numbers = self.mesh.shard_index(axes)
        return self._from_shards(op, cuts, points, tuple(numbers) if count > 1 else None)

    def _from_shards(
        self,
        op: Operation,
        cuts: Cuts,
        points: Layout,
        parts: tuple[int, ...] | None,
        *,
        onto: bool = False,
        partial: bool | None = None,
    ) -> Strategy:
        partial = parts is not None if partial is None else partial
        work = self.works.each(op, self.program, points, partial=partial, onto=onto)
        needs = [self._read(op, name, points) for name in op.operands]
        return Strategy(
            cuts,
            points,
            tuple(layout for layout, _ in needs),
            self._written(op, points, parts),
            tuple(shard.seconds for shard in work),
            tuple(shard.points for shard in work),
            all(exact for _, exact in needs),
        )

    def _read(self, op: Operation, name: str, points: Layout) -> tuple[Layout, bool]:
        """What ranks read of an operand for some points, and whether that is exact."""
        shape = self.program.tensor(name).shape
        found = None if points.by_axes is None else read_columns(op, name, points.by_axes)
        if found is not None:
            return self.layouts.of_columns(shape, self._in_whole_records(name, found)), True
        images = {region: operand_images(op, {name: shape}, region)[name] for region in dict.fromkeys(points.regions)}
        read = [self._whole_records(name, images[region].region) for region in points.regions]
        return self.layouts.of(shape, read), all(image.exact for image in images.values())

    def _written(self, op: Operation, points: Layout, parts: tuple[int, ...] | None) -> Layout:
        shape = self.program.tensor(op.output).shape
        found = None if points.by_axes is None else image_columns(write_projection(op), points.by_axes)
        if found is not None:
            return self.layouts.of_columns(shape, found, parts)
        images = {region: write_image(op, region).region for region in dict.fromkeys(points.regions)}
        return self.layouts.of(shape, [images[region] for region in points.regions], parts)

    def _in_whole_records(self, name: str, cut: Columns) -> Columns:
        """The same of all ranks."""
        shape = self.program.tensor(name).shape
        if free_axes(self.program, name) == len(shape):
            return cut
        whole = [IntSet.interval(0, shape[-1]) if values else values for values in cut[-1].sets]
        return (*cut[:-1], column(whole, cut[-1].codes))

    def _whole_records(self, name: str, region: Region) -> Region:
        """Elements of a state tensor are only moved (and folded) as whole records along its last axis."""
        shape = self.program.tensor(name).shape
        if free_axes(self.program, name) == len(shape):
            return region
        return Region.of(*(Grid((*grid.axes[:-1], IntSet.interval(0, shape[-1]))) for grid in region.grids))


def _points(op: Operation, regions: tuple[Region, ...]) -> Layout:
    """Shards as a layout of the index space."""
    return Layout(tuple(op.extents.values()), regions)


def reduction_parts(op: Operation, regions: tuple[Region, ...]) -> tuple[int, ...] | None:
    """Number the distinct shares of the reduction among shards that are single grids; None when nobody cuts it."""
    axes = [k for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims]
    shares = [tuple(region.grids[0].axes[k] for k in axes) if region else None for region in regions]
    order = sorted({share for share in shares if share is not None}, key=lambda share: [axis.lo for axis in share])
    if len(order) <= 1:
        return None
    number = {share: k for k, share in enumerate(order)}
    return tuple(number[share] if share is not None else 0 for share in shares)


def pin_allows(cuts: Cuts, mesh: Mesh, wanted: Mapping[str, str | None], kind: str) -> bool:
    """Whether cuts respect a pin: mesh axis (or ``*`` for every axis not named) -> dimension (or None: not cut)."""
    for axis, name in enumerate(mesh.axes):
        if name in wanted or "*" in wanted:
            chosen = cuts[axis]
            asked = wanted[name] if name in wanted else wanted["*"]
            if (chosen.dim if chosen else None) != asked or (chosen is not None and chosen.kind != kind):
                return False
    return True
