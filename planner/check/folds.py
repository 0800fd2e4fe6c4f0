"""A fold is right when, for every element, the contributions of its parts make up its whole reduction exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from .algebra import EMPTY, Algebra, Shape
from .report import Code


@dataclass(frozen=True)
class Contribution:
    """Elements that stand for the share ``points`` of their reduction (None: all of it), as part number ``part``."""

    part: int
    elements: int
    points: int | None


@dataclass(frozen=True)
class Fold:
    """Everything that decides whether a fold is right, so that repeated layers are decided once."""

    shape: int
    given: frozenset[Contribution]


def fold_fault(algebra: Algebra, shape: Shape, fold: Fold) -> tuple[Code, str, int] | None:
    """None, or what is wrong and the elements it is wrong for."""
    given = sorted(fold.given, key=lambda c: (c.part, c.elements, c.points or EMPTY))
    for elements, active in _classes(algebra, given):
        for message, wrong in _faults(algebra, shape, active):
            if algebra.meet(wrong, elements) != EMPTY:
                return Code.PARTS, message, algebra.meet(wrong, elements)
    return None


def _classes(algebra: Algebra, given: list[Contribution]) -> list[tuple[int, list[Contribution]]]:
    """Disjoint sets of elements that the same contributions reach."""
    classes: list[tuple[int, list[Contribution]]] = []
    for contribution in given:
        rest, split = contribution.elements, []
        for elements, active in classes:
            inside, outside = algebra.meet(elements, rest), algebra.minus(elements, rest)
            split += [(inside, [*active, contribution])] if inside else []
            split += [(outside, active)] if outside else []
        seen = algebra.join(elements for elements, _ in classes)
        fresh = algebra.minus(rest, seen)
        classes = split + ([(fresh, [contribution])] if fresh else [])
    return classes


def _faults(algebra: Algebra, shape: Shape, active: list[Contribution]) -> Iterable[tuple[str, int]]:
    """(what is wrong, the elements it may be wrong for), the cheapest questions first."""
    points = [shape.domain if c.points is None else c.points for c in active]
    for (a, mine), (b, theirs) in combinations(zip(active, points, strict=True), 2):
        if a.part == b.part:
            differing = algebra.join((algebra.minus(mine, theirs), algebra.minus(theirs, mine)))
            yield f"contributions with the number {a.part} stand for different shares", shape.reached(differing)
        else:
            yield (
                f"contributions {a.part} and {b.part} share points of the reduction",
                shape.reached(algebra.meet(mine, theirs)),
            )
    yield "the contributions leave out points of the reduction", shape.reached(shape.left_out(algebra.join(points)))
