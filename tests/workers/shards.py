"""An operation's points, one of its dimensions cut by a rule."""

from __future__ import annotations

from tapestry.program import Operation
from tapestry.space import CutBy, Partition, Region
from tapestry.space.cuts import Rule


def along(op: Operation, axis: int | str, rule: Rule) -> list[Region]:
    """A part a rank; the axis by its place or by its name."""
    place = axis if isinstance(axis, int) else [dim.name for dim in op.dims].index(axis)
    return Partition.product([dim.extent for dim in op.dims], (rule.parts,), [CutBy(place, rule)]).shards()
