"""Rules that cut an interval into parts: which integers are part r, and the same as an isl condition on (r, x).

Cuts are never free numbers: floor(r*N/P), balanced counts or counts in proportion to weights (as tables of cuts),
cyclic or zigzag.
`KINDS` are those that plans and pins name: a kind is a rule here and its entry there, nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from .intset import IntSet


def floor_cut(lo: int, hi: int, part: int, parts: int) -> int:
    """lo + floor(part * (hi - lo) / parts)."""
    return lo + part * (hi - lo) // parts


def _floor_condition(x: str, part: str, parts: int, lo: int, hi: int) -> str:
    extent, away = hi - lo, f"({x} - {lo})"
    return f"floor(({extent}*({part}))/{parts}) <= {away} < floor(({extent}*({part}) + {extent})/{parts})"


def _positive(parts: int, what: str = "parts") -> None:
    if parts < 1:
        raise UsageError(f"a cut needs at least one of its {what}, got {parts}")


@dataclass(frozen=True)
class Block:
    """Part r is lo + floor(r*N/P) <= x < lo + floor((r+1)*N/P): sizes differ by one at most.

    >>> [Block(4).part(r, 0, 10).size for r in range(4)]
    [2, 3, 2, 3]
    """

    parts: int

    def __post_init__(self) -> None:
        _positive(self.parts)

    def part(self, r: int, lo: int, hi: int) -> IntSet:
        return IntSet.interval(floor_cut(lo, hi, r, self.parts), floor_cut(lo, hi, r + 1, self.parts))

    def condition(self, x: str, r: str, lo: int, hi: int) -> str:
        return _floor_condition(x, r, self.parts, lo, hi)


@dataclass(frozen=True)
class Zigzag:
    """Part r is chunks r and 2P-1-r of 2P floor-cut chunks: equal shares of a causal triangle.

    >>> Zigzag(2).part(0, 0, 8)
    IntSet(0:2|6:8)
    """

    parts: int

    def __post_init__(self) -> None:
        _positive(self.parts)

    def part(self, r: int, lo: int, hi: int) -> IntSet:
        chunks = Block(2 * self.parts)
        return chunks.part(r, lo, hi) | chunks.part(2 * self.parts - 1 - r, lo, hi)

    def condition(self, x: str, r: str, lo: int, hi: int) -> str:
        inside = _floor_condition(x, "e", 2 * self.parts, lo, hi)
        return f"(exists e : (e = {r} or e = {2 * self.parts - 1} - ({r})) and {inside})"


@dataclass(frozen=True)
class Cyclic:
    """Part r is every P-th chunk of ``chunk`` elements, from chunk r on.

    >>> Cyclic(3).part(1, 0, 10), Cyclic(2, 3).part(0, 0, 10)
    (IntSet(1:8:3), IntSet(0:3|6:9))
    """

    parts: int
    chunk: int = 1

    def __post_init__(self) -> None:
        _positive(self.parts)
        _positive(self.chunk, "chunk elements")

    def part(self, r: int, lo: int, hi: int) -> IntSet:
        period, first = self.parts * self.chunk, lo + r * self.chunk
        if self.chunk == 1:
            return IntSet.of(range(first, hi, period)) if first < hi else IntSet()
        return IntSet.of(*(range(at, min(at + self.chunk, hi)) for at in range(first, hi, period)))

    def condition(self, x: str, r: str, lo: int, hi: int) -> str:
        return f"{x} < {hi} and floor(({x} - {lo})/{self.chunk}) mod {self.parts} = {r}"


@dataclass(frozen=True)
class Table:
    """Part r is cuts[r] <= x < cuts[r+1]. It partitions lo <= x < hi iff the cuts ascend from lo to hi."""

    cuts: tuple[int, ...]

    def __post_init__(self) -> None:
        _positive(self.parts)

    @property
    def parts(self) -> int:
        return len(self.cuts) - 1

    def part(self, r: int, lo: int, hi: int) -> IntSet:
        return IntSet.interval(max(lo, self.cuts[r]), min(hi, self.cuts[r + 1]))

    def ascends(self, lo: int, hi: int) -> bool:
        """The proof: first cut at lo, last at hi, none before its predecessor."""
        return self.cuts[0] == lo and self.cuts[-1] == hi and all(map(int.__le__, self.cuts, self.cuts[1:]))


Formula = Block | Zigzag | Cyclic
Rule = Formula | Table


def balanced(lo: int, hi: int, parts: int, points_below: Callable[[int], int]) -> Table:
    """`in_proportion` for parts of equal weights.

    >>> balanced(0, 4, 2, [0, 5, 6, 7, 8].__getitem__).cuts
    (0, 1, 4)
    """
    _positive(parts)
    return in_proportion(lo, hi, (1,) * parts, points_below)


def in_proportion(lo: int, hi: int, weights: Sequence[int], points_below: Callable[[int], int]) -> Table:
    """Cuts where the count of points below is nearest to the share that the weights of the parts before have of all:
    the least c with W * below(c) >= w * total, or the one before where that is nearer.

    ``points_below(c)`` is how many points of the domain have x < c; it never falls as c grows. So no part has more than
    its share and the points at one x.

    >>> in_proportion(0, 10, (2, 2, 1), lambda c: c).cuts
    (0, 4, 8, 10)
    """
    _positive(sum(weights), "weights")
    total, cuts, before, every = points_below(hi), [lo], 0, sum(weights)
    for weight in weights[:-1]:
        before += weight
        low, high = cuts[-1], hi
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if every * points_below(middle) >= before * total else (middle + 1, high)
        nearer = low > lo and 2 * before * total < every * (points_below(low) + points_below(low - 1))
        cuts.append(low - 1 if nearer else low)
    return Table((*cuts, hi))


CutKind = Literal["block", "zigzag", "cyclic", "balanced", "proportional"]
Below = Callable[[int], int]
Weights = Sequence[int]


@dataclass(frozen=True)
class Kind:
    """A kind of cut that plans and pins may name.

    ``rule`` gives the rule for so many parts of 0:extent, from how many points of the domain lie below a cut of the
    dimension (None: every slice holds as many), and the weights of the parts where they differ (empty: they do not).
    With ``chunks`` elements for each part none is empty. ``mark`` stands behind a dimension that is cut so, in labels.
    ``weighed``: how many elements a part gets depends on the domain or on weights, so that some may be empty.
    """

    rule: Callable[[int, int, Below | None, Weights], Rule]
    chunks: int = 1
    mark: str = ""
    weighed: bool = False


def _balanced_kind(parts: int, extent: int, below: Below | None, _: Weights) -> Rule:
    return Block(parts) if below is None else balanced(0, extent, parts, below)


def _proportional_kind(parts: int, extent: int, below: Below | None, weights: Weights) -> Rule:
    if not weights:
        return _balanced_kind(parts, extent, below, weights)
    return in_proportion(0, extent, weights, below or (lambda cut: cut))


def _of_parts(rule: Callable[[int], Rule]) -> Callable[[int, int, Below | None, Weights], Rule]:
    """A rule that asks for the number of parts alone."""
    return lambda parts, *_: rule(parts)


KINDS: dict[CutKind, Kind] = {
    "block": Kind(_of_parts(Block)),
    "zigzag": Kind(_of_parts(Zigzag), chunks=2, mark="~"),
    "cyclic": Kind(_of_parts(Cyclic), mark="%"),
    "balanced": Kind(_balanced_kind, mark="=", weighed=True),
    "proportional": Kind(_proportional_kind, mark=":", weighed=True),
}
