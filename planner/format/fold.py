"""Folding of repeated stretches in a JSON list: what differs between layers are numbers that grow by a constant.

An item's compact JSON text is split into numbers and the rest. A stretch of items whose texts equal those one period
earlier, but for numbers that grew by the same amounts as one period before, is written once:

    {"repeat": 31, "items": [...first period...], "step": [[0, 12], ...]}

where ``step`` has one list per item, an increment per number (zeros at the end left out). Folding is lossless whatever
the numbers mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

# A plan that unfolds to more than this is no plan but an attack, or a slip of an editor.
MOST_BYTES = 1 << 28
# Whole numbers as Python writes them back: no leading zeros, not the digits behind a point, at most 18 of them.
# What must not stand before them is asked behind the first digit: looking for a digit takes a third of the time.
_NUMBER = re.compile(r"(\d(?<!\d\d)(?<!\d\.\d)(?:(?<=0)|(?<!0)\d{0,17}))(?!\d)", re.ASCII)
Split = tuple[tuple[str, ...], tuple[int, ...]]


def _split(item: Any) -> Split:
    """The text between the numbers, and the numbers."""
    parts = _NUMBER.split(msgspec.json.encode(item).decode())
    return tuple(parts[0::2]), tuple(map(int, parts[1::2]))


def _joined(split: Split, step: list[int], times: int) -> Any:
    texts, numbers = split
    steps = [*step, *[0] * (len(numbers) - len(step))]
    pieces = [texts[0]]
    for text, number, by in zip(texts[1:], numbers, steps, strict=True):
        pieces += [str(number + by * times), text]
    return msgspec.json.decode("".join(pieces))


def fold(items: list[Any]) -> list[Any]:
    """The list with its repeated stretches folded; `unfold` undoes it exactly."""
    splits = [_split(item) for item in items]
    runs = _runs(splits)
    folded: list[Any] = []
    k = 0
    while k < len(items):
        period, count = max(
            ((run.period, run.count(k)) for run in runs),
            key=lambda found: (found[0] * found[1], -found[0]),
            default=(1, 1),
        )
        if count >= 3:
            count = _count(splits, k, period)  # what the sums below say of it, number by number
        if count < 3 or period * (count - 1) < 4:
            folded.append(_literal(items[k]))
            k += 1
            continue
        steps = [_trimmed(_differences(splits[k + j], splits[k + j + period])) for j in range(period)]
        folded.append({"repeat": count, "items": items[k : k + period], "step": steps})
        k += period * count
    return folded


def _literal(item: Any) -> Any:
    """An item as it is, unless it looks like a folded stretch."""
    return {"repeat": 1, "items": [item], "step": [[]]} if _is_stretch(item) else item


def unfold(items: list[Any]) -> list[Any]:
    """Expand what `fold` folded. ValueError for a stretch that is not well formed or too long."""
    parts = [_checked(item) if _is_stretch(item) else item for item in items]
    if sum(part.nbytes for part in parts if isinstance(part, _Stretch)) > MOST_BYTES:
        raise ValueError(f"repeated stretches expand to more than {MOST_BYTES} bytes")
    return [item for part in parts for item in (part.expanded() if isinstance(part, _Stretch) else (part,))]


@dataclass(frozen=True)
class _Stretch:
    """A repeated stretch that is well formed: its items split, an increment list for each."""

    count: int
    splits: list[Split]
    steps: list[list[int]]

    @property
    def nbytes(self) -> int:
        """What all copies take in memory, about: their text, and more for each object."""
        return self.count * sum(
            64 + sum(len(text) + 200 * text.count("{") for text in texts) + 8 * len(numbers)
            for texts, numbers in self.splits
        )

    def expanded(self) -> list[Any]:
        pairs = list(zip(self.splits, self.steps, strict=True))
        return [_joined(split, step, turn) for turn in range(self.count) for split, step in pairs]


def _is_stretch(item: Any) -> bool:
    return isinstance(item, dict) and "repeat" in item


def _checked(item: dict[str, Any]) -> _Stretch:
    count, period, steps = (item.get(key) for key in ("repeat", "items", "step"))
    if set(item) != {"repeat", "items", "step"} or type(count) is not int or count < 1:
        raise ValueError("a repeated stretch has the fields repeat (1 or more), items and step")
    if not (isinstance(period, list) and isinstance(steps, list) and period and len(period) == len(steps)):
        raise ValueError("a repeated stretch needs items, and a list of steps for each of them")
    splits = [_split(part) for part in period]
    for (_, numbers), step in zip(splits, steps, strict=True):
        if not isinstance(step, list) or any(type(by) is not int for by in step) or len(step) > len(numbers):
            raise ValueError("a step is a list of whole numbers, no more than the numbers of its item")
    return _Stretch(count, splits, steps)


def _runs(splits: list[Split]) -> list[_Run]:
    """Of the commonest distances between items of equal text, what repeats at them."""
    named: dict[tuple[str, ...], int] = {}
    texts = np.array([named.setdefault(texts, len(named)) for texts, _ in splits], dtype=np.int64)
    sums = _sums([numbers for _, numbers in splits])
    return [_Run.of(period, texts, sums) for period in _periods(texts.tolist())]


def _sums(numbers: list[tuple[int, ...]]) -> NDArray[np.uint64]:
    """Of each item's numbers a sum with fixed factors modulo 2^64: items whose numbers grow by the same amounts have
    sums that grow by the same.
    """
    counts = np.array([len(some) for some in numbers], dtype=np.int64)
    factors = np.random.default_rng(0).integers(1 << 63, size=counts.max(initial=0), dtype=np.uint64) | np.uint64(1)
    flat = np.fromiter((number for some in numbers for number in some), dtype=np.uint64, count=int(counts.sum()))
    ends = np.cumsum(counts)
    places = np.arange(len(flat)) - np.repeat(ends - counts, counts)
    total = np.concatenate(([np.uint64(0)], np.cumsum(flat * factors[places], dtype=np.uint64)))
    found: NDArray[np.uint64] = total[ends] - total[ends - counts]
    return found


@dataclass(frozen=True, eq=False)
class _Run:
    """What repeats at a distance. ``alike``: by item how many from it on have the text of the one a period later;
    ``growing``: how many from it on grow by what the one a period later grows by.
    """

    period: int
    alike: list[int]
    growing: list[int]

    @classmethod
    def of(cls, period: int, texts: NDArray[np.int64], sums: NDArray[np.uint64]) -> _Run:
        alike, grown = texts[:-period] == texts[period:], sums[period:] - sums[:-period]
        growing = alike[:-period] & alike[period:] & (grown[:-period] == grown[period:])
        return cls(period, _lengths(alike), _lengths(growing))

    def count(self, start: int) -> int:
        """How many periods from an item on repeat with constant increments: no fewer than do, and hardly ever more."""
        if start >= len(self.alike) or self.alike[start] < self.period:
            return 1
        return 2 + (self.growing[start] // self.period if start < len(self.growing) else 0)


def _lengths(hold: NDArray[np.bool_]) -> list[int]:
    """By place how many from it on hold without a break."""
    places = np.arange(len(hold))
    breaks = np.where(hold, len(hold), places)
    found: list[int] = (np.minimum.accumulate(breaks[::-1])[::-1] - places).tolist()
    return found


def _periods(texts: list[int]) -> list[int]:
    """Distances between items of equal text, the commonest first, at most 8."""
    last: dict[int, int] = {}
    votes: dict[int, int] = {}
    for k, text in enumerate(texts):
        if text in last:
            votes[k - last[text]] = votes.get(k - last[text], 0) + 1
        last[text] = k
    return sorted(votes, key=lambda p: (-votes[p], p))[:8]


def _count(splits: list[Split], start: int, period: int) -> int:
    """How many periods from ``start`` on repeat with constant increments."""
    count = 1
    while start + (count + 1) * period <= len(splits):
        here = start + (count - 1) * period
        if not all(_repeats(splits, here + j, period, start + j) for j in range(period)):
            break
        count += 1
    return count


def _repeats(splits: list[Split], k: int, period: int, first: int) -> bool:
    if splits[k][0] != splits[k + period][0]:
        return False
    return k == first or _differences(splits[k], splits[k + period]) == _differences(
        splits[first], splits[first + period]
    )


def _differences(a: Split, b: Split) -> list[int]:
    return [y - x for x, y in zip(a[1], b[1], strict=True)]


def _trimmed(steps: list[int]) -> list[int]:
    while steps and not steps[-1]:
        steps.pop()
    return steps
