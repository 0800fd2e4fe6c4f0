"""The range of an output index without an extent: the largest for which every unguarded read stays inside.

A row is one axis of one read: ``0 <= expr < extent`` must hold at every point where the read happens. Over the folded
indices and the conditions of the folds, rows give the exact set of admissible values of the output index. It must be
0:e for one e >= 1 (or e = 0 where the axis read is empty); else there is more than one way to read the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bounds import escape_of, out_of_bounds
from ..errors import UsageError
from ..expr import Affine, Bound
from ..space.polyhedral import affine_text, bound_text, names_of, read_set, set_text, within_limit
from .caller import located
from .scopes import Site, Survey, letter_of

if TYPE_CHECKING:
    import islpy

Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One axis of one read."""

    site: Site
    axis: int

    @property
    def expr(self) -> Affine:
        return self.site.index[self.axis]

    @property
    def extent(self) -> int:
        return self.site.shape[self.axis]

    def conditions(self, dim: str) -> tuple[Bound, ...]:
        """The conditions that speak of its indices or of ``dim``, directly or through one another."""
        dims, found = {*self.expr.dims, dim}, list[Bound]()
        left = list(self.site.conditions)
        while near := [bound for bound in left if bound.expr.dims & dims]:
            found += near
            left = [bound for bound in left if bound not in near]
            dims.update(*(bound.expr.dims for bound in near))
        return tuple(found)

    def dims(self, dim: str) -> frozenset[str]:
        """All indices that decide, together with ``dim``, whether it holds."""
        return self.expr.dims.union(*(bound.expr.dims for bound in self.conditions(dim)))

    def holds(self, ranges: Ranges) -> bool:
        """Whether it holds by its own indices alone, whatever the conditions."""
        if not self.expr.dims <= ranges.keys():
            return False
        lo, hi = self.expr.bounds(ranges)
        return lo >= 0 and hi <= self.extent

    def __str__(self) -> str:
        tensor = self.site.access.tensor
        return f"axis {tensor.axes[self.axis]}={self.extent}  ({self.site.access.place})"


def derive(name: str, found: Survey, missing: Sequence[str], ranges: Ranges) -> dict[str, tuple[int, int]]:
    """The ranges of output indices that nothing says; ``ranges`` are those known.

    An index is derived from the rows in which all others are known; what is derived then counts as known. Raises
    UsageError for an index that no row bounds and for one with two readings, ReadOutOfBounds where index 0 is outside.
    """
    if not missing:
        return {}
    rows = [Row(site, axis) for site in found.reads for axis in range(len(site.index))]
    known, left = dict(ranges), list(missing)
    while left:
        limits = {dim: _limit(name, dim, _deciding(dim, rows, known), known) for dim in left}
        solved = {dim: (0, limit) for dim, limit in limits.items() if limit is not None}
        if not solved:
            raise _unbounded(name, left, found, known)
        if len(solved) > 1:
            _check_together(name, rows, solved, known)
        known |= solved
        left = [dim for dim in left if dim not in solved]
    return {dim: known[dim] for dim in missing}


def _deciding(dim: str, rows: Iterable[Row], known: Ranges) -> list[Row]:
    """The rows in which everything but one index is known, and happens at some point."""
    found = [row for row in rows if dim in row.dims(dim) and row.dims(dim) - {dim} <= known.keys()]
    happening = [row for row in found if all(known[other][1] > 0 for other in row.dims(dim) - {dim})]
    return [row for row in happening if not row.holds(known)]


def _limit(name: str, dim: str, rows: Sequence[Row], ranges: Ranges) -> int | None:
    """The largest extent of one index; None when no row bounds it. Raises where there is more than one reading."""
    extents: list[int] = []
    hard: list[Row] = []
    for row in rows:
        extent = _by_bisection(dim, row, ranges)
        extents, hard = ([*extents, extent], hard) if extent else (extents, [*hard, row])
    if not hard:
        return min(extents, default=None)
    return _by_sets(name, dim, hard, min(extents, default=None), ranges)


def _by_bisection(dim: str, row: Row, ranges: Ranges) -> int | None:
    """The largest extent, where intervals are exact: no conditions, each index once, so that the row is monotone.

    None where they are not, and where the row fails for index 0 already.
    """
    occurrences = list(_occurrences(row.expr))
    if row.conditions(dim) or len(set(occurrences)) < len(occurrences):
        return None

    def fits(extent: int) -> bool:
        lo, hi = row.expr.bounds({**ranges, dim: (0, extent)})
        return lo >= 0 and hi <= row.extent

    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def _occurrences(expr: Affine) -> Iterable[str]:
    for atom, _ in expr.terms:
        yield from [atom] if isinstance(atom, str) else _occurrences(atom.inner)


def _by_sets(name: str, dim: str, rows: Sequence[Row], below: int | None, ranges: Ranges) -> int | None:
    """The largest extent of an index by integer sets, ``below`` being a limit known already."""
    with within_limit(f"the range of {dim} in {name}", 1 + max(len(row.dims(dim)) for row in rows)):
        return _least_wrong(name, dim, rows, below, ranges)


def _least_wrong(name: str, dim: str, rows: Sequence[Row], below: int | None, ranges: Ranges) -> int | None:
    wrong = [_violations(dim, row, ranges) for row in rows]
    bad = wrong[0]
    for more in wrong[1:]:
        bad = bad.union(more)
    box = read_set(set_text(["c0"], "0 <= c0" + ("" if below is None else f" < {below}")))
    bad = bad.intersect(box)
    if bad.is_empty():
        return below
    first = _least(bad)
    culprit = next(
        r for r, points in zip(rows, wrong, strict=True) if not points.is_empty() and _least(points) == first
    )
    beyond = box.subtract(bad).intersect(read_set(set_text(["c0"], f"c0 > {first}")))
    if not beyond.is_empty():
        raise _two_readings(name, dim, culprit, first, beyond)
    if first == 0 and culprit.extent:
        raise _outside_at_once(name, dim, culprit, ranges)
    return first


def _violations(dim: str, row: Row, ranges: Ranges) -> islpy.Set:
    """Values >= 0 of one index for which the row fails at some point where the read happens."""
    import islpy

    order = [dim, *sorted(row.dims(dim) - {dim})]
    alias = dict(zip(order, names_of(len(order)), strict=True))
    text = affine_text(row.expr, alias)
    box = ["0 <= c0", *(f"{ranges[other][0]} <= {alias[other]} < {ranges[other][1]}" for other in order[1:])]
    held = [
        *box,
        *(bound_text(bound, alias) for bound in row.conditions(dim)),
        f"({text} < 0 or {text} >= {row.extent})",
    ]
    points = read_set(set_text(list(alias.values()), " and ".join(held)))
    return points.project_out(islpy.dim_type.set, 1, len(order) - 1)


def _least(points: islpy.Set) -> int:
    return int(points.dim_min_val(0).to_python())


def _interval(dim: str, points: islpy.Set) -> str:
    """``p in [2, 7]``, or ``p from 2 on``."""
    first, last, letter = _least(points), points.dim_max_val(0), letter_of(dim)
    return f"{letter} in [{first}, {int(last.to_python())}]" if last.is_int() else f"{letter} from {first} on"


def _two_readings(name: str, dim: str, row: Row, first: int, beyond: islpy.Set) -> UsageError:
    """The admissible values are not 0:e."""
    one = f"{dim} in [0, {first - 1}]" if first else f"nothing, as {dim}=0 reads outside"
    sides = {str(row.site.access): str(row), "one": one, "other": _interval(dim, beyond)}
    shift = f"shift the index so that its range starts at 0, or guard the read ({_guarded(row)}) and "
    hint = f"{'' if first else shift}give its extent: tp.indices({dim}={first or '...'})"
    what = f"the range of the output index {dim} has two readings"
    return UsageError(what, where=located(name, row.site.access.place), sides=sides, hint=hint)


def _guarded(row: Row) -> str:
    return str(row.site.access).replace("[", ".get[", 1)


def _outside_at_once(name: str, dim: str, row: Row, ranges: Ranges) -> UsageError:
    """A row that fails wherever the index starts: a window wider than its image."""
    point = {**ranges, dim: (0, 1)}
    found = escape_of(row.axis, row.expr, row.extent, point, row.conditions(dim))
    assert found is not None
    access = row.site.access
    where = located(name, access.place)
    return out_of_bounds(where, access.tensor.trace.describe(access.tensor), access.tensor.axes, row.site.shape,
                         row.site.index, found, point, letter_of)  # fmt: skip


def _check_together(name: str, rows: Sequence[Row], solved: Ranges, known: Ranges) -> None:
    """Indices derived apart must fit together: where they do not, one could be shortened or the other."""
    ranges = {**known, **solved}
    for row in rows:
        joint = [dim for dim in solved if dim in row.dims(dim)]
        if len(joint) < 2 or not row.dims(joint[0]) <= ranges.keys():
            continue
        if escape_of(row.axis, row.expr, row.extent, ranges, row.conditions(joint[0])):
            readings = [_one_after_another(name, order, rows, known) for order in (joint, joint[::-1])]
            sides = {str(row.site.access): str(row), "one": readings[0], "other": readings[1]}
            what = f"the ranges of the output indices {' and '.join(joint)} have two readings"
            hint = f"give one of them an extent: tp.indices({joint[0]}=...)"
            raise UsageError(what, where=located(name, row.site.access.place), sides=sides, hint=hint)


def _one_after_another(name: str, order: Sequence[str], rows: Sequence[Row], known: Ranges) -> str:
    """The reading in which the first index is as large as it can be, and then the next."""
    ranges, found = dict(known), dict[str, int]()
    for dim in order:
        try:
            found[dim] = _limit(name, dim, _deciding(dim, rows, ranges), ranges) or 0
        except UsageError:
            found[dim] = 0
        ranges[dim] = (0, found[dim])
    return " ".join(f"{dim}={found[dim]}" for dim in sorted(order))


def _unbounded(name: str, missing: Sequence[str], found: Survey, known: Ranges) -> UsageError:
    """Nothing bounds an index: every read of it is guarded, or inside whatever it is, or has another unknown."""
    sides: dict[str, object] = {}
    place = ""
    for site in found.sites:
        for axis in range(len(site.index)):
            row = Row(site, axis)
            for dim in missing:
                if dim in row.dims(dim):
                    sides.setdefault(str(site.access), f"{row}: {_why_free(dim, row, known)}")
                    place = place or site.access.place
    hint = (
        f"give an extent: tp.indices({missing[0]}=...), an axis {missing[0]}=... after ->, or a setting {missing[0]}; "
        "or read a tensor with it alone"
    )
    return UsageError(
        f"nothing bounds the index {' '.join(missing)}", where=located(name, place), sides=sides, hint=hint
    )


def _why_free(dim: str, row: Row, known: Ranges) -> str:
    unknown = sorted(row.dims(dim) - {dim} - known.keys())
    if unknown:
        return f"depends on {' '.join(map(letter_of, unknown))} too"
    inside = read_set("{ [c0] : 0 <= c0 }").subtract(_violations(dim, row, known))
    if row.site.access.guarded and not inside.is_empty():
        return f"inside for {_interval(dim, inside)}, its fill elsewhere"
    return f"{'outside' if inside.is_empty() else 'inside'} for every {dim}"
