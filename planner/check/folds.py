"""A fold is right when, for every element, the contributions of its parts make up its whole reduction exactly once.

One to a larger share may leave out points, but fold none twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from .algebra import EMPTY, Algebra
from .report import Code
from .shape import Shape


@dataclass(frozen=True)
class Contribution:
    """Elements that stand for the share ``points`` of their reduction (None: all of it), as part number ``part``."""

    part: int
    elements: int
    points: int | None


@dataclass(frozen=True)
class Fold:
    """Everything that decides whether a fold is right, so that repeated layers are decided once.

    ``onward``: what comes of it is a share of the reduction still.
    """

    shape: int
    given: frozenset[Contribution]
    onward: bool = False


def share_of(algebra: Algebra, shape: Shape, fold: Fold) -> tuple[tuple[int, int], ...]:
    """The elements of a fold, with the points of the share that its contributions to them make up."""
    given = sorted(fold.given, key=lambda c: (c.part, c.elements, c.points or EMPTY))
    return tuple(
        (elements, algebra.join(shape.domain if c.points is None else c.points for c in active))
        for elements, active in _classes(algebra, given)
    )


def fold_fault(algebra: Algebra, shape: Shape, fold: Fold) -> tuple[Code, str, int] | None:
    """None, or what is wrong and the elements it is wrong for."""
    given = sorted(fold.given, key=lambda c: (c.part, c.elements, c.points or EMPTY))
    for elements, active in _classes(algebra, given):
        for message, wrong in _faults(algebra, shape, active, fold.onward):
            if algebra.meet(wrong, elements) != EMPTY:
                return Code.PARTS, message, algebra.meet(wrong, elements)
    return None


def _classes(algebra: Algebra, given: list[Contribution]) -> list[tuple[int, list[Contribution]]]:
    """Disjoint sets of elements that the same contributions reach. Mostly contributions reach equal ones or disjoint
    ones, as their sizes show; only else are they taken apart.
    """
    equal: dict[int, list[Contribution]] = {}
    for contribution in given:
        equal.setdefault(contribution.elements, []).append(contribution)
    if sum(map(algebra.size, equal)) == algebra.size(algebra.join(equal)):
        return list(equal.items())
    classes: list[tuple[int, list[Contribution]]] = []
    for whole, contributions in equal.items():
        rest, split = whole, []
        for elements, active in classes:
            inside, outside = algebra.meet(elements, rest), algebra.minus(elements, rest)
            split += [(inside, [*active, *contributions])] if inside else []
            split += [(outside, active)] if outside else []
        fresh = algebra.minus(rest, algebra.join(elements for elements, _ in classes))
        classes = split + ([(fresh, contributions)] if fresh else [])
    return classes


def _faults(algebra: Algebra, shape: Shape, active: list[Contribution], onward: bool) -> Iterable[tuple[str, int]]:
    """(what is wrong, the elements it may be wrong for), the cheapest questions first."""
    shares = list(dict.fromkeys((c.part, shape.domain if c.points is None else c.points) for c in active))
    points = [share for _, share in shares]
    apart = sum(map(algebra.size, points)) == algebra.size(algebra.join(points))
    one_each = apart and len({part for part, _ in shares}) == len(shares)
    for (part, mine), (other, theirs) in () if one_each else combinations(sorted(shares), 2):
        if part == other:
            differing = algebra.join((algebra.minus(mine, theirs), algebra.minus(theirs, mine)))
            yield f"contributions with the number {part} stand for different shares", shape.reached(differing)
        else:
            yield (
                f"contributions {part} and {other} share points of the reduction",
                shape.reached(algebra.meet(mine, theirs)),
            )
    if onward:
        return
    yield "the contributions leave out points of the reduction", shape.reached(shape.left_out(algebra.join(points)))
