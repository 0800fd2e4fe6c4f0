"""How many values of a dimension lie between limits that rise or fall evenly along another one, without listing any.

The limits are lines; the least of the upper ones and the greatest of the lower ones change from line to line at a few
places. Where both are the same line at either end of an interval they are so all along it, and the values between them
are an arithmetic series; any other interval is halved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr import Bound
from .cells import Runs, Spend, length

WORK = "counting points within conditions"

Line = tuple[int, int]
"""Slope and value at 0."""


def points_between(name: str, dims: Mapping[str, Runs], conditions: Sequence[Bound], spend: Spend) -> int | None:
    """Points of a dimension of dense runs and one other that satisfy conditions; None where these are of another form.

    >>> from tapestry.expr import Affine
    >>> causal = Bound(Affine((("s", 1), ("t", -1)), 0), None, 1)
    >>> points_between("s", {"s": (range(10),), "t": (range(2, 4),)}, [causal], lambda *_: None)
    7
    """
    others = [other for other in dims if other != name]
    if len(others) != 1 or any(own.step > 1 for own in dims[name]):
        return None
    found, (other,) = 0, others
    for run in dims[other]:
        limits = _limits(name, other, run, conditions)
        if limits is None:
            return None
        for own in dims[name]:
            lows, tops = [(0, own.start), *limits[0]], [(0, own.stop), *limits[1]]
            found += _between(lows, tops, length((run,)) - 1, spend)
    return found


def _limits(name: str, other: str, run: range, conditions: Sequence[Bound]) -> tuple[list[Line], list[Line]] | None:
    """Lines, along the places of a run, that the dimension is not below, and those that it is below."""
    lows: list[Line] = []
    tops: list[Line] = []
    for bound in conditions:
        factors = dict(bound.expr.terms)
        factor, slope = factors.pop(name, 0), factors.pop(other, 0)
        if factors or abs(factor) != 1:
            return None
        slope, rest = -factor * slope * run.step, bound.expr.const + slope * run.start
        ends = (bound.lo, bound.hi) if factor > 0 else (bound.hi, bound.lo)
        for end, lines in zip(ends, (lows, tops), strict=True):
            # factor * value + rest is at least lo and below hi; turned round, it is above -hi and at most -lo
            if end is not None:
                lines.append((slope, end - rest if factor > 0 else rest - end + 1))
    return lows, tops


def _between(lows: Sequence[Line], tops: Sequence[Line], last: int, spend: Spend) -> int:
    """The sum of what is between the lines at 0 to last, where that is anything."""
    found, left = 0, [(0, last)]
    while left:
        first, last = left.pop()
        spend(len(lows) + len(tops), WORK)
        ends = []
        for at, towards in ((first, 1), (last, -1)):
            # of lines that meet at an end, the one that stays in front towards the other end
            low = max(lows, key=lambda line: (_at(line, at), towards * line[0]))
            top = min(tops, key=lambda line: (_at(line, at), towards * line[0]))
            ends.append((low, top, _at(top, at) - _at(low, at)))
        (low, top, here), (other_low, other_top, there) = ends
        if first == last:
            found += max(0, here)
        elif (low, top) == (other_low, other_top) and (here >= 0) == (there >= 0):
            found += max(0, (here + there) * (last - first + 1) // 2)
        else:
            middle = (first + last) // 2
            left += [(first, middle), (middle + 1, last)]
    return found


def _at(line: Line, place: int) -> int:
    return line[0] * place + line[1]
