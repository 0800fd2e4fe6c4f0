"""Text that comes again and again, written once: from one copy to the next numbers count along, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 8  # copies that are worth a line of their own
_NUMBER = re.compile(r"(0|[1-9]\d*)")
Item = Sequence[str]


@dataclass(frozen=True)
class Run:
    """Items start .. start + period * count - 1 are ``count`` copies of ``period`` items."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def rolled(items: Sequence[Item], indent: str = "  ") -> list[str]:
    """The lines of all items; a stretch of them that comes again stands once, with k for the copy.

    >>> rolled([(f"  w{n}: f32",) for n in range(1, 10)])
    ['  repeat k in 0:9', '    w{k+1}: f32']
    """
    parts = [_NUMBER.split("\n".join(item)) for item in items]
    # Braces are how k is written: text that has some of its own (a string) stands as it is.
    shapes = [f"{{{n}" if any("{" in line for line in items[n]) else "#".join(p[::2]) for n, p in enumerate(parts)]
    following = _following(shapes)
    lines: list[str] = []
    at = 0
    while at < len(items):
        run = _longest(shapes, parts, following, at)
        if run is None:
            lines += items[at]
            at += 1
            continue
        lines.append(f"{indent}repeat k in 0:{run.count}")
        for n in range(run.start, run.start + run.period):
            text = _counted(parts[n], parts[n + run.period])
            lines += [f"  {line}" for line in text.split("\n")]
        at = run.stop
    return lines


def _following(shapes: Sequence[str]) -> list[int]:
    """For each item the next one that is alike but for numbers; 0 where there is none."""
    found, last = [0] * len(shapes), dict[str, int]()
    for n in reversed(range(len(shapes))):
        found[n] = last.get(shapes[n], 0)
        last[shapes[n]] = n
    return found


def _longest(shapes: Sequence[str], parts: Sequence[list[str]], following: Sequence[int], at: int) -> Run | None:
    """The run from here on that covers most items; None where there is none of so many copies."""
    best: Run | None = None
    later = at
    for _ in range(4):  # the distances to the next items that are alike: periods are among the first
        later = following[later]
        if not later:
            break
        run = Run(at, later - at, _copies(shapes, parts, at, later - at))
        if run.count >= FEWEST and (best is None or run.stop > best.stop):
            best = run
    return best


def _copies(shapes: Sequence[str], parts: Sequence[list[str]], at: int, period: int) -> int:
    """How many copies of a stretch follow one another, every number in them counting along."""
    count = 1
    while True:
        first = at + count * period
        if first + period > len(shapes):
            return count
        for n in range(first, first + period):
            if shapes[n] != shapes[n - period] or not _goes_on(parts, n, period, at + 2 * period <= n):
                return count
        count += 1


def _goes_on(parts: Sequence[list[str]], n: int, period: int, known: bool) -> bool:
    """Whether each number of an item is as far from the copy before as that one is from the one before it."""
    if not known:
        return True
    here, once, twice = (parts[n - k * period][1::2] for k in range(3))
    return all(int(a) - int(b) == int(b) - int(c) for a, b, c in zip(here, once, twice, strict=True))


def _counted(first: Sequence[str], second: Sequence[str]) -> str:
    """The text of the first copy, numbers that are others in the second written by k."""
    found = []
    for n, (a, b) in enumerate(zip(first, second, strict=True)):
        step = int(b) - int(a) if n % 2 else 0
        found.append(_term(step, int(a)) if step else a)
    return "".join(found)


def _term(step: int, start: int) -> str:
    factor = "k" if step == 1 else f"{step}*k"
    return f"{{{factor}+{start}}}" if start else f"{{{factor}}}"
