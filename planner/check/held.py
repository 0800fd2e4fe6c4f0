"""What a buffer holds on one rank, as a number: what follows from equal memories is asked once."""

from __future__ import annotations

from typing import NamedTuple

from .algebra import EMPTY, Algebra
from .shape import Share

Pieces = tuple[tuple[int, Share], ...]
"""Elements that stand for a share of a reduction each."""


class Held(NamedTuple):
    """Elements with their final value, and pieces that stand for a share of a reduction.

    ``lost`` is what was there until another buffer was written over it.
    """

    complete: int = EMPTY
    pieces: Pieces = ()
    lost: int = EMPTY


class Memories:
    """What buffers hold, and pieces, by number; 0 holds nothing. Regions are numbers of the algebra."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self._held: list[Held] = [Held()]
        self._held_numbers: dict[Held, int] = {Held(): 0}
        self._pieces: list[Pieces] = [()]
        self._piece_numbers: dict[Pieces, int] = {(): 0}

    def held(self, number: int) -> Held:
        return self._held[number]

    def _number(self, held: Held) -> int:
        found = self._held_numbers.setdefault(held, len(self._held))
        if found == len(self._held):
            self._held.append(held)
            self.algebra.budget.spend(1 + len(held.pieces), "what ranks hold")
        return found

    def pieces(self, number: int) -> Pieces:
        return self._pieces[number]

    def number_of_pieces(self, pieces: Pieces) -> int:
        found = self._piece_numbers.setdefault(pieces, len(self._pieces))
        if found == len(self._pieces):
            self._pieces.append(pieces)
        return found

    def occupied(self, held: int) -> int:
        """Not 0 where there is anything."""
        return int(self._held[held].complete != EMPTY or bool(self._held[held].pieces))

    def hit(self, held: int, region: int) -> int:
        """Not 0 where a write of ``region`` to another buffer at the same place destroys something."""
        return int(region != EMPTY and bool(self.occupied(held)))

    def complete(self, held: int) -> int:
        return self._held[held].complete

    def shares(self, held: int) -> int:
        """The elements that stand for some share of a reduction."""
        return self.reach(self.number_of_pieces(self._held[held].pieces))

    def reach(self, pieces: int) -> int:
        return self.algebra.join(region for region, _ in self._pieces[pieces])

    def cut(self, held: int, region: int) -> int:
        """The pieces of what is held within a region."""
        found = ((self.algebra.meet(piece, region), share) for piece, share in self._held[held].pieces)
        return self.number_of_pieces(tuple((piece, share) for piece, share in found if piece != EMPTY))

    def written(self, held: int, region: int, complete: int, pieces: int) -> int:
        """After a write of ``region``, of which ``complete`` has its final value and ``pieces`` are shares."""
        if region == EMPTY:
            return held
        algebra, before = self.algebra, self._held[held]
        kept = ((algebra.minus(piece, region), share) for piece, share in before.pieces)
        left = tuple((piece, share) for piece, share in kept if piece != EMPTY)
        whole = algebra.join((algebra.minus(before.complete, region), complete))
        lost = algebra.minus(before.lost, region)
        return self._number(Held(whole, left + self._pieces[pieces], lost))

    def overwritten(self, held: int, region: int) -> int:
        """After a write of ``region`` (nothing, where that is empty) to another buffer at the same place."""
        if not self.hit(held, region):
            return held
        before = self._held[held]
        there = self.algebra.join((before.complete, *(piece for piece, _ in before.pieces)))
        return self._number(Held(lost=self.algebra.join((before.lost, there))))
