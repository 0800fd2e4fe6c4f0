"""What a task leaves that folds its points onto partial results that are there.

    onto   holds a share of the reduction: points S of each element of a piece
    task   folds its points P onto it: right where no point is in both that the element is made of
    write  holds the share S and P, and is complete where that is the whole reduction

Regions, points and pieces are numbers of the algebra and of `Memories`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .algebra import EMPTY
from .held import Memories
from .shape import Shape, Share


def pieces(region: int, held: int, points: int, shape: Shape, memories: Memories) -> int:
    """What ``region`` stands for after the points were folded onto what was held of it."""
    return memories.number_of_pieces(tuple(_joined(region, held, points, shape, memories)))


def complete(region: int, held: int, points: int, shape: Shape, memories: Memories) -> int:
    """The elements of ``region`` whose whole reduction is folded then, those among them that were finished before."""
    algebra = memories.algebra
    joined = [*_joined(region, held, points, shape, memories)]
    whole = [algebra.minus(part, shape.reached(shape.left_out(share.points))) for part, share in joined]
    before = algebra.minus(memories.complete(held), algebra.join(part for part, _ in joined))
    return algebra.join((*whole, algebra.meet(before, region)))


def unfinished(region: int, whole: int, given: int, memories: Memories) -> int:
    """The pieces of which not all is complete."""
    algebra = memories.algebra
    left = ((part, share) for part, share in memories.pieces(given) if algebra.minus(part, whole) != EMPTY)
    return memories.number_of_pieces(() if whole == region else tuple(left))


def folded_twice(region: int, held: int, points: int, shape: Shape, memories: Memories) -> int:
    """Elements of a share that has some of the points already."""
    algebra, found = memories.algebra, []
    for part, share in memories.pieces(memories.cut(held, region)):
        common = algebra.meet(share.points, points)
        found.append(algebra.meet(part, shape.reached(common)) if common != EMPTY else EMPTY)
    return algebra.join(found)


def finished(region: int, held: int, points: int, shape: Shape, memories: Memories) -> int:
    """Elements that some of the points are part of, although they were complete without being a share."""
    algebra = memories.algebra
    whole = algebra.minus(memories.complete(held), memories.reach(memories.cut(held, region)))
    return algebra.meet(algebra.meet(whole, region), shape.reached(points)) if whole != EMPTY else EMPTY


def _joined(region: int, held: int, points: int, shape: Shape, memories: Memories) -> Iterator[tuple[int, Share]]:
    for part, share in memories.pieces(memories.cut(held, region)):
        yield part, Share(shape.number, memories.algebra.join((share.points, points)))
