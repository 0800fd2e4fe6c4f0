"""Folding of repeated stretches in a JSON list: what differs between layers are numbers that grow by a constant.

An item's compact JSON text is split into numbers and the rest. A stretch of items whose texts equal those one period earlier, but for
numbers that grew by the same amounts as one period before, is written once:

    {"repeat": 31, "items": [...first period...], "step": [[0, 12], ...]}

where ``step`` has one list per item, an increment per number (zeros at the end left out). Folding is lossless whatever the numbers mean.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MOST_ITEMS = 20_000_000
_NUMBER = re.compile(r"(?<![\d.])(0|[1-9]\d*)(?!\d)")
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
    periods = _periods([texts for texts, _ in splits])
    folded: list[Any] = []
    k = 0
    while k < len(items):
        period, count = max(
            ((p, _count(splits, k, p)) for p in periods),
            key=lambda found: (found[0] * found[1], -found[0]),
            default=(1, 1),
        )
        if count < 3 or period * (count - 1) < 4:
            folded.append(items[k])
            k += 1
            continue
        steps = [_trimmed(_differences(splits[k + j], splits[k + j + period])) for j in range(period)]
        folded.append({"repeat": count, "items": items[k : k + period], "step": steps})
        k += period * count
    return folded


def unfold(items: list[Any]) -> list[Any]:
    """Expand what `fold` folded. ValueError for a stretch that is not well formed or too long."""
    result: list[Any] = []
    for item in items:
        if not (isinstance(item, dict) and "repeat" in item):
            result.append(item)
            continue
        count, period, steps = item.get("repeat"), item.get("items"), item.get("step")
        good = (
            isinstance(count, int)
            and isinstance(period, list)
            and isinstance(steps, list)
            and len(period) == len(steps)
        )
        if not good or set(item) != {"repeat", "items", "step"} or count < 1 or not period:
            raise ValueError("a repeated stretch needs repeat >= 1, items, and a list of steps for each item")
        if len(result) + count * len(period) > MOST_ITEMS:
            raise ValueError(f"repeated stretches expand to more than {MOST_ITEMS} items")
        splits = [_split(part) for part in period]
        if any(not isinstance(s, list) or len(s) > len(numbers) for s, (_, numbers) in zip(steps, splits, strict=True)):
            raise ValueError("a repeated stretch has more steps than numbers")
        result += [
            _joined(split, step, turn) for turn in range(count) for split, step in zip(splits, steps, strict=True)
        ]
    return result


def _periods(texts: list[tuple[str, ...]]) -> list[int]:
    """Distances between items of equal text, the commonest first, at most 8."""
    last: dict[tuple[str, ...], int] = {}
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
