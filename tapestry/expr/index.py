"""Index expressions: sums, constant multiples, floor and mod by constants, constant tables of named dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any, Union


@dataclass(frozen=True)
class Floor:
    """floor(inner / divisor), divisor >= 1."""

    inner: Affine
    divisor: int

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inner, self.divisor))

    def __reduce__(self) -> tuple[type[Floor], tuple[Affine, int]]:
        """Pickled without its hash, which another process computes differently."""
        return Floor, (self.inner, self.divisor)

    def __str__(self) -> str:
        """``p//4``, ``(2*p + 1)//4``."""
        return self._text

    @cached_property
    def _text(self) -> str:
        inner = str(self.inner)
        return f"{inner}//{self.divisor}" if inner.isidentifier() else f"({inner})//{self.divisor}"

    def over(self, inner: Affine) -> Affine:
        """The same of another expression."""
        return inner // self.divisor

    def value(self, inner: Any) -> Any:
        """Its value for a value of the inner expression, an integer or an array of them."""
        return inner // self.divisor

    def interval(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Half-open interval around its values over a box of dimensions."""
        lo, hi = self.inner.bounds(ranges)
        return lo // self.divisor, (hi - 1) // self.divisor + 1


@dataclass(frozen=True)
class Table:
    """``values[inner]``, a constant table; its first value stands for all before it, its last for all beyond.

    >>> lengths = Affine(((Table(Affine.dim("b"), (3, 5, 2)), 1),))
    >>> str(lengths), lengths.evaluate({"b": 1}), lengths.bounds({"b": (1, 3)})
    ('[3, 5, 2][b]', 5, (2, 6))
    """

    inner: Affine
    values: tuple[int, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inner, self.values))

    def __reduce__(self) -> tuple[type[Table], tuple[Affine, tuple[int, ...]]]:
        """Pickled without its hash, which another process computes differently."""
        return Table, (self.inner, self.values)

    def __str__(self) -> str:
        """``[3, 5, 2][b]``, four and more equal values in a row as ``0*4``; a step as ``[2 <= i]``."""
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.is_step:
            from .conditions import stated

            return f"[{stated(self.inner)}]"
        return f"[{', '.join(_listed(self.values))}][{self.inner}]"

    @property
    def is_step(self) -> bool:
        """1 where the inner expression is at least 1, else 0."""
        return self.values == (0, 1)

    @cached_property
    def runs(self) -> tuple[tuple[int | None, int | None, int], ...]:
        """Its values as steps, (lo, hi, value): value where lo <= inner < hi, None leaving a side open."""
        starts = [k for k, value in enumerate(self.values) if not k or value != self.values[k - 1]]
        ends: list[int | None] = [*starts[1:], None]
        return tuple((lo or None, hi, self.values[lo]) for lo, hi in zip(starts, ends, strict=True))

    def over(self, inner: Affine) -> Affine:
        """The same of another expression."""
        return Affine(((Table(inner, self.values), 1),)) if inner.terms else Affine((), self.value(inner.const))

    def value(self, inner: Any) -> Any:
        """Its value for a value of the inner expression, an integer or an array of them."""
        if isinstance(inner, int):
            return self.values[min(max(inner, 0), len(self.values) - 1)]
        return self._array.take(inner, mode="clip")

    @cached_property
    def _array(self) -> Any:
        import numpy as np

        return np.array(self.values, dtype=np.int64)

    def within(self, lo: int, hi: int) -> tuple[int, ...]:
        """The values that it has where lo <= inner < hi, in order."""
        last = len(self.values) - 1
        return self.values[min(max(lo, 0), last) : min(max(hi - 1, 0), last) + 1]

    def interval(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Half-open interval around its values over a box of dimensions.

        Of a table of several axes, at 100*q + k, what lies beside the box is left out.
        """
        spans = [(c, ranges[a] if isinstance(a, str) else a.interval(ranges)) for a, c in self.inner.terms]
        if len(spans) < 2 or prod(hi - lo for _, (lo, hi) in spans) > len(self.values):
            found = self.within(*self.inner.bounds(ranges))
            return min(found), max(found) + 1
        places = [self.inner.const]
        for factor, (lo, hi) in spans:
            places = [place + factor * k for place in places for k in range(lo, hi)]
        last = len(self.values) - 1
        reached = [self.values[min(max(place, 0), last)] for place in places]
        return min(reached), max(reached) + 1


def _listed(values: Sequence[int]) -> Iterator[str]:
    """Numbers as text, four and more equal ones in a row as ``0*4``."""
    for value, group in groupby(values):
        count = len(list(group))
        yield from [str(value)] * count if count < 4 else [f"{value}*{count}"]


Atom = str | Floor | Table
Indexable = Union["Affine", int]


@dataclass(frozen=True)
class Affine:
    """A constant plus integer multiples of atoms; an atom is a dimension's name, a `Floor` or a `Table`.

    Terms are kept sorted and non-zero, so equal expressions compare equal.

    >>> p, r = Affine.dim("p"), Affine.dim("r")
    >>> str(2 * p + r - 1), str((p + 3) // 4), str(p % 4)
    ('2*p + r - 1', '(p + 3)//4', 'p % 4')
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __hash__(self) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:  # a cached property takes a lock
            found = self.__dict__["_hash"] = hash((self.terms, self.const))
        return found

    def __reduce__(self) -> tuple[type[Affine], tuple[tuple[tuple[Atom, int], ...], int]]:
        """Pickled without its hash, which another process computes differently."""
        return Affine, (self.terms, self.const)

    @staticmethod
    def dim(name: str) -> Affine:
        return Affine(((name, 1),))

    @staticmethod
    def of(value: Indexable) -> Affine:
        return value if isinstance(value, Affine) else Affine((), int(value))

    @staticmethod
    def sum_of(terms: Iterable[tuple[Atom, int]], const: int = 0) -> Affine:
        """The sum of any terms: equal atoms are added up, zeros dropped, dimensions stand first, by name."""
        total: dict[Atom, int] = {}
        for atom, c in terms:
            total[atom] = total.get(atom, 0) + c
        kept = [(atom, c) for atom, c in total.items() if c]
        if len(kept) > 1:
            kept.sort(key=lambda term: (not isinstance(term[0], str), str(term[0])))
        return Affine(tuple(kept), const)

    def __add__(self, other: Indexable) -> Affine:
        other = Affine.of(other)
        if not (self.terms and other.terms):
            return Affine(self.terms or other.terms, self.const + other.const)
        return Affine.sum_of([*self.terms, *other.terms], self.const + other.const)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return Affine(tuple((atom, c * factor) for atom, c in self.terms) if factor else (), self.const * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Indexable) -> Affine:
        return self + Affine.of(other) * -1

    def __rsub__(self, other: Indexable) -> Affine:
        return Affine.of(other) - self

    def __floordiv__(self, divisor: int) -> Affine:
        """Floor division by a positive constant; exact multiples are divided at once."""
        if divisor < 1:
            raise ValueError(f"index expressions divide by positive constants only, got {divisor}")
        if all(c % divisor == 0 for _, c in self.terms):
            return Affine(tuple((a, c // divisor) for a, c in self.terms), self.const // divisor)
        return Affine(((Floor(self, divisor), 1),))

    def __mod__(self, divisor: int) -> Affine:
        return self - (self // divisor) * divisor

    @property
    def dims(self) -> frozenset[str]:
        """Names of all dimensions it depends on, inside floors and tables too."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom} if isinstance(atom, str) else atom.inner.dims
        return frozenset(names)

    @property
    def is_affine(self) -> bool:
        """No floors and no tables."""
        return all(isinstance(atom, str) for atom, _ in self.terms)

    @property
    def floors(self) -> Iterator[Floor]:
        """All floors, each before those inside of it, those in tables too."""
        return (atom for atom in self.compound if isinstance(atom, Floor))

    @property
    def tables(self) -> Iterator[Table]:
        """All tables, each before those inside of it, those in floors too."""
        return (atom for atom in self.compound if isinstance(atom, Table))

    @property
    def compound(self) -> Iterator[Floor | Table]:
        """All atoms that have an expression inside, each before those inside of it."""
        for atom, _ in self.terms:
            if not isinstance(atom, str):
                yield atom
                yield from atom.inner.compound

    def coefficient(self, name: str) -> int:
        """Coefficient of a dimension outside of floors and tables."""
        return next((c for atom, c in self.terms if atom == name), 0)

    def substitute(self, values: Mapping[str, Indexable]) -> Affine:
        """Replace dimensions by index expressions, inside floors and tables too."""
        terms: list[tuple[Atom, int]] = []
        const = self.const
        for atom, c in self.terms:
            if not isinstance(atom, str):
                value = atom.over(atom.inner.substitute(values))
            elif atom in values:
                value = Affine.of(values[atom])
            else:
                terms.append((atom, c))
                continue
            const += c * value.const
            terms += [(inner, c * factor) for inner, factor in value.terms]
        return Affine.sum_of(terms, const)

    def rescaled(self, divisors: Mapping[str, int]) -> Affine:
        """Divide the coefficients of the given dimensions, inside floors and tables too; divisor 0 removes the
        dimension."""
        terms: list[tuple[Atom, int]] = []
        for atom, c in self.terms:
            if not isinstance(atom, str):
                terms.append((replace(atom, inner=atom.inner.rescaled(divisors)), c))
            elif divisors.get(atom, 1):
                terms.append((atom, c // divisors.get(atom, 1)))
        return Affine.sum_of(terms, self.const)

    def fixed(self, table: Table, value: int) -> Affine:
        """The expression where a table in it has this value."""
        terms: list[tuple[Atom, int]] = []
        const = self.const
        for atom, c in self.terms:
            if atom == table:
                const += c * value
                continue
            found = Affine(((atom, 1),)) if isinstance(atom, str) else atom.over(atom.inner.fixed(table, value))
            const += c * found.const
            terms += [(inner, c * factor) for inner, factor in found.terms]
        return Affine.sum_of(terms, const)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Value at a point; dimensions may be Python ints or integer arrays that broadcast."""
        total: Any = self.const
        for atom, c in self.terms:
            total = total + c * (values[atom] if isinstance(atom, str) else atom.value(atom.inner.evaluate(values)))
        return total

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Half-open interval around every value over a box of dimensions; tight when each occurs once."""
        lo = hi = self.const
        for atom, c in self.terms:
            a, b = ranges[atom] if isinstance(atom, str) else atom.interval(ranges)
            lo, hi = (lo + c * a, hi + c * (b - 1)) if c > 0 else (lo + c * (b - 1), hi + c * a)
        return lo, hi + 1

    def __str__(self) -> str:
        text = ""
        for whole, c in _readable(self.terms):
            piece = whole if c == 1 or whole.isidentifier() or whole.endswith("]") else f"({whole})"
            piece = piece if abs(c) == 1 else f"{abs(c)}*{piece}"
            text += (" - " if c < 0 else " + ") + piece if text else ("-" if c < 0 else "") + piece
        if self.const or not text:
            text += (f" - {-self.const}" if self.const < 0 else f" + {self.const}") if text else str(self.const)
        return text


def _readable(terms: Iterable[tuple[Atom, int]]) -> list[tuple[str, int]]:
    """Atoms as text with their factors; c*x - c*d*(x//d) as c times x % d."""
    left = dict(terms)
    shown: dict[Atom, str] = {}
    for atom, c in terms:
        if isinstance(atom, Floor) and len(atom.inner.terms) == 1 and c % atom.divisor == 0:
            x = atom.inner.terms[0][0]
            if atom.inner == Affine(((x, 1),)) and x not in shown and left.get(x) == -c // atom.divisor:
                shown[x] = f"{x} % {atom.divisor}"
                del left[atom]
    return [(shown.get(atom, str(atom)), c) for atom, c in left.items()]


@dataclass(frozen=True)
class Bound:
    """The condition lo <= expr < hi; None leaves a side open."""

    expr: Affine
    lo: int | None = None
    hi: int | None = None

    def substitute(self, values: Mapping[str, Indexable]) -> Bound:
        return Bound(self.expr.substitute(values), self.lo, self.hi)

    def holds(self, values: Mapping[str, int]) -> bool:
        return self.admits(self.expr.evaluate(values))

    def admits(self, value: int) -> bool:
        """Whether it holds where the expression has this value."""
        return (self.lo is None or self.lo <= value) and (self.hi is None or value < self.hi)

    def decided(self, ranges: Mapping[str, tuple[int, int]]) -> bool | None:
        """Whether it holds everywhere in a box (True) or nowhere (False); None: on some points, as far as intervals
        tell."""
        lo, hi = self.expr.bounds(ranges)
        if (self.lo is None or self.lo <= lo) and (self.hi is None or hi <= self.hi):
            return True
        if (self.lo is not None and hi <= self.lo) or (self.hi is not None and self.hi <= lo):
            return False
        return None

    def __str__(self) -> str:
        if any(isinstance(atom, Table) for atom, _ in self.expr.terms):
            from .conditions import spelled

            return spelled(self)
        return self.plain_text

    @property
    def plain_text(self) -> str:
        """The condition as a comparison."""
        left = "" if self.lo is None else f"{self.lo} <= "
        right = "" if self.hi is None else f" < {self.hi}"
        return f"{left}{self.expr}{right}"
