"""Random packing problems, and an oracle that tries every offset."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

from hypothesis import strategies as st

from tapestry.planner.solvers.pack import Buffer


@st.composite
def problems(draw: st.DrawFn, most: int = 5) -> list[Buffer]:
    """A few small buffers: some aligned, some pinned, some that reuse an earlier one."""
    buffers: list[Buffer] = []
    for k in range(draw(st.integers(1, most))):
        lower = draw(st.integers(0, 4))
        upper = lower + draw(st.integers(1, 4))
        size = draw(st.integers(0, 4))
        alignment = draw(st.sampled_from([1, 1, 1, 2, 3]))
        offset = alignment * draw(st.integers(0, 2)) if draw(st.integers(0, 5)) == 0 else None
        dying = [b.name for b in buffers if b.lower <= lower < b.upper <= upper and size <= b.size]
        reuses = draw(st.sampled_from([None, *dying]))
        buffers.append(Buffer(f"b{k}", lower, upper, size, alignment, offset, reuses))
    return draw(st.permutations(buffers))


def compatible(a: Buffer, at: int, b: Buffer, bt: int) -> bool:
    """Whether two buffers may be where they are, in the words of the definition."""
    together = any(a.lower <= t < a.upper for t in range(b.lower, b.upper))
    shared = set(range(at, at + a.size)) & set(range(bt, bt + b.size))
    in_place = at == bt and (a.reuses == b.name or b.reuses == a.name)
    return not together or not shared or in_place


def some_packing(buffers: Sequence[Buffer], capacity: int) -> dict[str, int] | None:
    """Every offset of every buffer, tried."""

    def extend(done: list[int]) -> list[int] | None:
        if len(done) == len(buffers):
            return done
        b = buffers[len(done)]
        for at in range(0, capacity - b.size + 1, b.alignment):
            wanted = b.offset in (None, at)
            if wanted and all(compatible(b, at, a, x) for a, x in zip(buffers, done, strict=False)):
                found = extend([*done, at])
                if found is not None:
                    return found
        return None

    found = extend([])
    return None if found is None else {b.name: at for b, at in zip(buffers, found, strict=True)}


def least_capacity(buffers: Sequence[Buffer], at_most: int) -> int | None:
    """The smallest capacity that some packing keeps; None where none up to `at_most` does."""
    return next((c for c in range(at_most + 1) if some_packing(buffers, c) is not None), None)


def without_slack(seed: int, pieces: int, height: int = 64, width: int = 64) -> list[Buffer]:
    """A rectangle of time and memory, cut up: every instant is full, so a packing at `height` leaves no hole."""
    source = random.Random(seed)
    rectangles = [(0, width, 0, height)]
    numbers = count()
    while len(rectangles) < pieces:
        left, right, low, high = rectangles.pop(source.randrange(len(rectangles)))
        if source.random() < 0.5 and right - left > 1:
            cut = source.randrange(left + 1, right)
            rectangles += [(left, cut, low, high), (cut, right, low, high)]
        elif high - low > 1:
            cut = source.randrange(low + 1, high)
            rectangles += [(left, right, low, cut), (left, right, cut, high)]
        else:
            rectangles.append((left, right, low, high))
    return [Buffer(f"b{next(numbers)}", left, right, high - low) for left, right, low, high in rectangles]
