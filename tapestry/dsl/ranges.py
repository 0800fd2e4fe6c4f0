"""The ranges of indices. Those of folds are said, or read off the axes that they run along; they are never cut short.

The range of a folded index is the extent told to `indices`, or that of its name in the signature, or the extent of the
axes that it reads alone (``w[s]``), which must agree. The range of an output index is said in the first two ways, or
derived by `tapestry.dsl.outputs`. Then every unguarded read is proved to stay inside its tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bounds import escape, out_of_bounds
from ..errors import UsageError
from ..space.polyhedral import within_limit
from .caller import located
from .element import Element
from .index import Given
from .outputs import derive
from .scopes import Fold, Site, Survey, letter_of, survey


@dataclass(frozen=True)
class Extents:
    """The extents of an operation's indices: those of the output, and those of each fold by the fold's key."""

    out: dict[str, int]
    folds: dict[str, dict[str, int]]


def solve(name: str, body: Element, out: Sequence[str], named: Mapping[str, int]) -> Extents:
    """Extents of all indices of ``name[out] = body``; ``named`` are those of names in the signature.

    Raises UsageError where nothing, or more than one thing, says what a range is, ReadOutOfBounds where a read leaves
    its tensor; both name the line of the expression.
    """
    found = survey(body, out)
    ranges: dict[str, tuple[int, int]] = {}
    folds: dict[str, dict[str, int]] = {}
    for fold in found.folds:
        own = {dim: _fold_extent(name, dim, fold, found, named) for dim in fold.reduction.dims}
        folds[fold.reduction.key] = own
        ranges |= {fold.symbols[dim]: (0, extent) for dim, extent in own.items()}
    ranges |= {dim: (0, extent) for dim, extent in _said(name, body.given, out, named).items()}
    ranges |= derive(name, found, [dim for dim in out if dim not in ranges], ranges)
    check(name, found.reads, ranges)
    return Extents({dim: ranges[dim][1] for dim in out}, folds)


def _said(name: str, given: Given, dims: Sequence[str], named: Mapping[str, int], place: str = "") -> dict[str, int]:
    """Extents that are given or named; UsageError where the two contradict."""
    said = {}
    for dim in dims:
        if dim in given and named.get(dim, given[dim]) != given[dim]:
            sides = {"given": f"tp.indices({dim}={given[dim]})", "signature": f"{dim}={named[dim]}"}
            what = f"the index {dim} has two extents, {given[dim]} and {named[dim]}"
            raise UsageError(what, where=located(name, place), sides=sides, hint="give one of them another name")
        if dim in given or dim in named:
            said[dim] = given[dim] if dim in given else named[dim]
    return said


def _fold_extent(name: str, dim: str, fold: Fold, found: Survey, named: Mapping[str, int]) -> int:
    """The extent of one folded index."""
    reduction, symbol = fold.reduction, fold.symbols[dim]
    place = located(name, reduction.place)
    said = _said(name, reduction.given, [dim], named, reduction.place)
    alone = [(site, axis) for site in found.reads for axis in site.alone(symbol)]
    extents = {site.shape[axis] for site, axis in alone}
    if dim in reduction.given:
        return said[dim]
    if dim in said:
        longer = [pair for pair in alone if pair[0].shape[pair[1]] > said[dim]]
        if longer:
            what = f"the fold index {dim} is {said[dim]} in the signature, and shorter than an axis it reads"
            raise UsageError(what, where=place, sides=_axes_read(longer), hint=_ways(dim, said[dim]))
        return said[dim]
    if not alone:
        sides = _axes_read([(site, k) for site in found.sites for k, e in enumerate(site.index) if symbol in e.dims])
        hint = f"give its extent: tp.indices({dim}=...), or name an axis of the signature {dim}"
        raise UsageError(f"nothing gives the extent of the fold index {dim}", where=place, sides=sides, hint=hint)
    if len(extents) > 1:
        what = f"the fold index {dim} reads axes of different extents"
        raise UsageError(what, where=place, sides=_axes_read(alone), hint=_ways(dim, min(extents)))
    return extents.pop()


def _ways(dim: str, extent: int) -> str:
    return f"give its extent: tp.indices({dim}={extent}), or slice the longer tensor, as in x[:{extent}]"


def _axes_read(pairs: Sequence[tuple[Site, int]]) -> dict[str, object]:
    """Accesses as the user wrote them, beside the axis, its extent and the line."""
    rows: dict[str, object] = {}
    for site, axis in pairs:
        tensor, place = site.access.tensor, site.access.place
        rows.setdefault(str(site.access), f"axis {tensor.axes[axis]}={site.shape[axis]}  ({place})")
    return rows


def check(name: str, reads: Sequence[Site], ranges: Mapping[str, tuple[int, int]]) -> None:
    """ReadOutOfBounds for the first read that leaves its tensor; TooHard where that is not decided in time."""
    if not reads:
        return
    first = located(name, reads[0].access.place)
    with within_limit(f"{first}: whether {name} stays inside its tensors", len(ranges)):
        for site in reads:
            found = escape(site.index, site.shape, ranges, site.conditions)
            if found:
                place, tensor = located(name, site.access.place), site.access.tensor
                described = tensor.trace.describe(tensor)
                raise out_of_bounds(place, described, tensor.axes, site.shape, site.index, found, ranges, letter_of)
