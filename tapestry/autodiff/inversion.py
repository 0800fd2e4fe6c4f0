"""Which points of an operation read one element of a tensor: the inverse of an index projection, as index expressions.

A read T[f(p)] over the points p of an operation is many to one. Its adjoint adds up, for every element e, what comes
from the points with f(p) = e. They are found by solving the rows of f for dimensions, one after another, with e known:

    p + r = e            p = e - r, where 0 <= e - r < P
    2*p + r = e          p = (e - r)//2, where (e - r) % 2 = 0 and the quotient is in range
    128*h + c = e        h = e//128, c = e % 128: one point, nothing is left to add up over
    c//128 = e           c = 128*e + t for every t in 0:128

What no row decides is left to be added up over; what cannot be solved is left as a condition. So the result is right
whatever the rows are, and small where they are of these forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..expr import Affine, Bound, Floor
from ..expr.index import Atom
from ..expr.simplify import Ranges, simplify_bounds, simplify_index
from ..program import Dim


@dataclass(frozen=True)
class Inverse:
    """The points that read an element: ``values`` of the operation's dimensions, for each point of ``dims``.

    ``dims`` are what is left to add up over; ``where`` are the conditions under which such a point is one. Expressions
    are over the element's axes and ``dims``.
    """

    values: Mapping[str, Affine]
    dims: tuple[Dim, ...]
    where: tuple[Bound, ...]

    def bound(self, bounds: Sequence[Bound]) -> tuple[Bound, ...]:
        """Conditions on the operation's dimensions, said of the element's axes and what is left."""
        return tuple(bound.substitute(self.values) for bound in bounds)

    def index(self, rows: Sequence[Affine]) -> tuple[Affine, ...]:
        return tuple(row.substitute(self.values) for row in rows)


def invert(
    dims: Sequence[Dim], rows: Sequence[Affine], axes: Sequence[str], shape: Sequence[int], where: Sequence[Bound] = ()
) -> Inverse | None:
    """The points over ``dims`` for which ``rows`` give the element at ``axes``; None where no element has any.

    ``where`` are further conditions on the points. No name of ``dims`` is among ``axes``.
    """
    box = {axis: (0, extent) for axis, extent in zip(axes, shape, strict=True)}
    equations = [row - Affine.dim(axis) for row, axis in zip(rows, axes, strict=True)]
    system = _System(equations, {dim.name: dim for dim in dims}, box)
    system.solve()
    left = tuple(system.open.values())
    ranges = box | {dim.name: (0, dim.extent) for dim in left}
    values = {name: simplify_index(value, ranges) for name, value in system.values.items()}
    asked = (*system.conditions, *(bound.substitute(system.values) for bound in where))
    bounds = simplify_bounds((bound for bound in asked if not _is_remainder(bound)), ranges)
    return None if bounds is None else Inverse(values, left, bounds)


class _System:
    """Equations, each to be 0, over known symbols and open dimensions.

    ``values`` are the dimensions solved so far, ``conditions`` what must hold besides.
    """

    def __init__(self, equations: Sequence[Affine], dims: dict[str, Dim], known: Ranges) -> None:
        self.open = dims
        self.known = frozenset(known)
        self.ranges = {**known, **{name: (0, dim.extent) for name, dim in dims.items()}}
        self.equations = [simplify_index(row, self.ranges) for row in equations]
        self.values: dict[str, Affine] = {}
        self.conditions: list[Bound] = []
        self._floors: list[tuple[Floor, Affine]] = []

    def solve(self) -> None:
        """Solve for as many dimensions as there are equations that allow it."""
        while self._name_floor():
            pass
        while any(self._solve_row(k) for k in self._fewest_unknown_first()) or self._open_quotient():
            pass
        for floor, value in self._floors:
            self._open_floor(floor, value)
        self.conditions += [Bound(row, 0, 1) for row in self.equations if row != Affine()]

    def _fewest_unknown_first(self) -> list[int]:
        return sorted(range(len(self.equations)), key=lambda k: len(self._unknown(self.equations[k])))

    def _unknown(self, expr: Affine) -> list[tuple[str, int]]:
        """Open dimensions outside of floors and tables, with their factors."""
        inside = {name for atom in expr.compound for name in atom.inner.dims}
        return [(a, c) for a, c in expr.terms if isinstance(a, str) and a in self.open and a not in inside]

    def _is_known(self, atom: Atom) -> bool:
        return atom in self.known if isinstance(atom, str) else atom.inner.dims <= self.known

    # -- one equation ------------------------------------------------------------------------------------------------

    def _solve_row(self, k: int) -> bool:
        """Solve one equation for a dimension; whether that was done."""
        unknown = self._unknown(self.equations[k])
        if not unknown:
            return False
        if not self._solve_digit(k, unknown):
            # Solving for the longest dimension leaves the least to add up over; a factor of 1 asks no divisibility.
            name, _ = max(unknown, key=lambda term: (self.open[term[0]].extent, abs(term[1]) == 1))
            self._solve_for(k, name)
        return True

    def _with_factor(self, k: int, name: str) -> tuple[int, Affine]:
        """Equation k as factor * name + rest = 0 with a positive factor."""
        row = self.equations[k]
        row = row if row.coefficient(name) > 0 else -row
        factor = row.coefficient(name)
        return factor, row - factor * Affine.dim(name)

    def _solve_for(self, k: int, name: str) -> None:
        """name = -rest / factor, where that is an integer."""
        factor, rest = self._with_factor(k, name)
        self.equations[k] = Affine()
        if factor > 1:
            self.conditions.append(Bound(-rest % factor, 0, 1))
        self._assign(name, -rest // factor)

    def _solve_digit(self, k: int, unknown: list[tuple[str, int]]) -> bool:
        """factor * name + digits + known = 0 where the digits take fewer than factor values: name is a quotient.

        The digits stay to be solved by what remains of the equation.
        """
        name = max(unknown, key=lambda term: abs(term[1]))[0]
        factor, rest = self._with_factor(k, name)
        digits = Affine(tuple((atom, c) for atom, c in rest.terms if not self._is_known(atom)))
        lo, hi = digits.bounds(self.ranges)
        if not digits.terms or hi - lo > factor:
            return False
        self._assign(name, (digits - rest - lo) // factor)
        return True

    def _assign(self, name: str, value: Affine) -> None:
        """A dimension is solved: its value goes in wherever it stands."""
        extent = self.open.pop(name).extent
        at = {name: value}
        self.values = {other: found.substitute(at) for other, found in self.values.items()} | at
        self.conditions = [bound.substitute(at) for bound in self.conditions] + [Bound(value, 0, extent)]
        self._floors = [(floor, found.substitute(at)) for floor, found in self._floors]
        self.equations = [simplify_index(row.substitute(at), self.ranges) for row in self.equations]

    # -- floors ------------------------------------------------------------------------------------------------------

    def _name_floor(self) -> bool:
        """An equation that gives one floor of open dimensions from what is known: it does so in all others too."""
        for k, row in enumerate(self.equations):
            unknown = [(atom, c) for atom, c in row.terms if not self._is_known(atom)]
            if len(unknown) != 1 or not isinstance(unknown[0][0], Floor) or abs(unknown[0][1]) != 1:
                continue
            floor, factor = unknown[0][0], unknown[0][1]
            value = (row - Affine(((floor, factor),))) * -factor
            self.equations[k] = Affine()
            self._put_in(floor, value)
            return True
        return False

    def _open_quotient(self) -> bool:
        """A floor of open dimensions in an equation that nothing solves becomes a dimension of its own."""
        atoms = [atom for row in self.equations for atom, _ in row.terms if not self._is_known(atom)]
        floor = next((atom for atom in atoms if isinstance(atom, Floor)), None)
        if floor is None:
            return False
        lo, hi = Affine(((floor, 1),)).bounds(self.ranges)
        self._put_in(floor, Affine.dim(self._fresh(min(floor.inner.dims & self.open.keys()), hi - lo)) + lo)
        return True

    def _put_in(self, floor: Floor, value: Affine) -> None:
        """A floor is named: its value goes in wherever it stands alone."""
        self.equations = [_replaced(row, floor, value) for row in self.equations]
        self._floors.append((floor, value))

    def _fresh(self, like: str, extent: int) -> str:
        """A dimension of so many values, to be added up over unless an equation decides it."""
        name = next(f"{like}_{n}" for n in range(len(self.ranges) + 1) if f"{like}_{n}" not in self.ranges)
        self.ranges[name] = (0, extent)
        self.open[name] = Dim(name, extent)
        return name

    def _open_floor(self, floor: Floor, value: Affine) -> None:
        """floor(inner / d) = value: inner = d * value + t for t in 0:d, solved for a dimension if it can be."""
        inner = simplify_index(floor.inner.substitute(self.values), self.ranges)
        remainder = inner - value.substitute(self.values) * floor.divisor
        ones = [name for name, factor in self._unknown(remainder) if abs(factor) == 1]
        if not ones:
            self.conditions.append(Bound(remainder, 0, floor.divisor))
            return
        name = max(ones, key=lambda one: self.open[one].extent)
        self.equations.append(remainder - Affine.dim(self._fresh(name, floor.divisor)))
        self._solve_for(len(self.equations) - 1, name)


def _replaced(row: Affine, floor: Floor, value: Affine) -> Affine:
    """The row with a value for a floor."""
    factor = next((c for atom, c in row.terms if atom == floor), 0)
    return row - Affine(((floor, factor),)) + value * factor if factor else row


def _is_remainder(bound: Bound) -> bool:
    """x % d is in 0:d, which intervals of x and x // d do not show."""
    floor = next((atom for atom, _ in bound.expr.terms if isinstance(atom, Floor)), None)
    return (
        floor is not None
        and bound.expr == floor.inner - Affine(((floor, floor.divisor),))
        and (bound.lo or 0) <= 0
        and (bound.hi is None or bound.hi >= floor.divisor)
    )
