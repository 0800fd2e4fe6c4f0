"""Scans along an axis, by every monoid: ``y[t] = fold[s](x[s], where=s <= t)``.

A long scan is written in blocks, so that it may be cut along its own axis: a scan inside each block, a scan of what
the blocks before amount to, and both combined (Blelloch, Prefix sums and their applications, 1990, section 1.3):

    inside[b, i] = fold[j](x[b, j], where=j <= i)
    before[b]    = fold[c](inside[c, -1], where=c < b)
    y[b, i]      = combine(before[b], inside[b, i])

A cut of the blocks makes that: every rank scans its own, and what each block amounts to is all that ranks exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from ..dsl.caller import place, user_frame
from ..dsl.door import door
from ..dsl.guard import guard, shielded
from ..dsl.nothing import fold_of_nothing
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite, current
from ..errors import UsageError, close_match
from ..expr import MONOIDS, Affine, Bound, Call, Expr, Inside, Monoid, Read, reads, rewrite
from ..expr.functions import PAIR
from ..laws import demand_associative
from ..program import Dim
from ..result_type import reduced_dtype
from .reduction import axis_position
from .views import reverse as reversed_view

SHORT = 64  # up to so many points a scan is one operation

Axis = int | str


@door
@composite
def scan(
    monoid: str,
    x: Tensor | Sequence[Tensor],
    axis: Axis = 0,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    blocks: int | None = None,
    name: str = "",
) -> Tensor:
    """The fold of each element along ``axis`` with all before it, in the shape of x.

    monoid      a name of `tapestry.expr.MONOIDS`, one's own among them; a monoid of pairs takes two tensors
    exclusive   without the element itself: the first result is the fold of nothing
    reverse     from the last element to the first
    blocks      how many the axis is made of, as many as may be cut apart; None: about its square root

    Raises UsageError for a monoid that is unknown, or whose combine is not associative, with a witness.
    """
    entry = _entry(monoid)
    given = _tensors(entry, x)
    first = given[0]
    k = axis_position(first, axis)
    demand_associative(entry, place(user_frame()) or None)
    values = [reversed_view(part, k) for part in given] if reverse else given
    extent = first.shape[k]
    if blocks is not None and not 1 <= blocks <= max(1, extent):
        raise UsageError(f"{blocks} blocks of {extent} elements", sides={"tensor": repr(first)}, hint=f"1 to {extent}")
    count = blocks or (isqrt(extent) if extent > SHORT and entry.stretch else 1)
    if count > 1 and not entry.stretch:
        hint = "leave out blocks: the scan is one operation, which may be cut along every other axis"
        raise UsageError(f"a scan by {monoid} has no blocks: its results do not stand for what they fold", hint=hint)
    form = _Form(entry, tuple(values), k)
    found = form.whole() if count == 1 else form.blocked(-(-extent // count))
    found = _shifted(found, k, form.nothing()) if exclusive else found
    return reversed_view(found, k) if reverse else found


@door
def cumsum(x: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = "") -> Tensor:
    """The sum of each element along an axis with all before it; see `scan`. bool and int8 give int32."""
    return scan("sum", x, axis, exclusive=exclusive, reverse=reverse, name=name or "cumsum")


@door
def cumprod(x: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = "") -> Tensor:
    """The product of each element along an axis with all before it; see `scan`. bool and int8 give int32."""
    return scan("prod", x, axis, exclusive=exclusive, reverse=reverse, name=name or "cumprod")


@door
def cummax(x: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = "") -> Tensor:
    """The largest of each element along an axis and all before it; see `scan`."""
    return scan("max", x, axis, exclusive=exclusive, reverse=reverse, name=name or "cummax")


@door
def cummin(x: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = "") -> Tensor:
    """The smallest of each element along an axis and all before it; see `scan`."""
    return scan("min", x, axis, exclusive=exclusive, reverse=reverse, name=name or "cummin")


@door
def logcumsumexp(
    x: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = ""
) -> Tensor:
    """The logarithm of the sum of exp of each element along an axis and of all before it; see `scan`."""
    return scan("logsumexp", x, axis, exclusive=exclusive, reverse=reverse, name=name or "logcumsumexp")


@door
def recurrence(
    a: Tensor, b: Tensor, axis: Axis = 0, *, exclusive: bool = False, reverse: bool = False, name: str = ""
) -> Tensor:
    """h[t] = a[t] h[t-1] + b[t] along an axis, from h = 0; a and b in one shape. See `scan`."""
    return scan("recurrence", [a, b], axis, exclusive=exclusive, reverse=reverse, name=name or "recurrence")


def _entry(monoid: str) -> Monoid:
    entry = MONOIDS.named(monoid)
    if entry is None or entry.packed:
        known = [name for name, other in MONOIDS.items() if not other.packed]
        raise UsageError(f"there is no monoid {monoid!r} to scan by", hint=close_match(monoid, known))
    return entry


def _tensors(entry: Monoid, x: Tensor | Sequence[Tensor]) -> list[Tensor]:
    given = [x] if isinstance(x, Tensor) else list(x)
    shapes = {tensor.shape for tensor in given}
    if len(given) != 1 + entry.pairs or len(shapes) != 1 or not given[0].ndim:
        sides = {f"operand {k}": repr(tensor) for k, tensor in enumerate(given)}
        wants = "two tensors of one shape" if entry.pairs else "one tensor"
        raise UsageError(f"a scan by {entry.name} takes {wants}, with an axis to go along", sides=sides)
    return given


@dataclass(frozen=True)
class _Form:
    """The operations of one scan along axis ``k``."""

    monoid: Monoid
    values: tuple[Tensor, ...]
    k: int

    @property
    def names(self) -> list[str]:
        """The axes, then the block, the place in it and the folded place."""
        return list(unique_names((*self.values[0].axes, "block", "at", "before")))

    def dims(self, own: Mapping[str, int]) -> list[Dim]:
        """The other axes, in their places, and those that stand for the scanned one."""
        first, found = self.values[0], list[Dim]()
        for k, axis in enumerate(self.names[: first.ndim]):
            found += [Dim(*one) for one in own.items()] if k == self.k else [Dim(axis, first.shape[k])]
        return found

    def index(self, *places: Affine) -> tuple[Affine, ...]:
        found: list[Affine] = []
        for k, axis in enumerate(self.names[: self.values[0].ndim]):
            found += places if k == self.k else [Affine.dim(axis)]
        return tuple(found)

    def nothing(self) -> Expr:
        """The fold of no element."""
        value = self.values[0].dtype
        return fold_of_nothing(self.monoid.name, value, reduced_dtype(self.monoid.name, value), ())

    def whole(self) -> Tensor:
        """One operation."""
        axis, before = self.names[self.k], self.names[-1]
        extent = self.values[0].shape[self.k]
        values = [value.at(self.index(Affine.dim(before))) for value in self.values]
        return self._fold(self.monoid.name, self.dims({axis: extent}), Dim(before, extent), values, 1)

    def _fold(
        self, monoid: str, dims: list[Dim], folded: Dim, values: Sequence[Expr], reach: int, name: str = ""
    ) -> Tensor:
        """``fold[folded](values, where=folded < along + reach)``, along the last dimension of the scanned axis."""
        entry, along = MONOIDS[monoid], dims[-(len(self.names) - 3 - self.k)].name
        body = Call(PAIR, (values[0], values[-1])) if entry.pairs else values[0]
        inner = replace(folded, cut=folded.cut and not entry.ordered)
        where = [Bound(Affine.dim(folded.name) - Affine.dim(along), None, reach)]
        return current("scan").compute(
            name or monoid, [*dims, inner], body, reduce_dims=[folded.name], monoid=monoid, where=where, anonymous=True
        )

    # -- blocks ------------------------------------------------------------------------------------------------------

    def blocked(self, length: int) -> Tensor:
        """Blocks of ``length`` elements, the last one filled up with elements that no result depends on."""
        count = -(-self.values[0].shape[self.k] // length)
        block, at, _ = self.names[-3:]
        dims = self.dims({block: count, at: length})
        inside = {monoid: self._inside(monoid, dims, length) for monoid in self.monoid.stretch}
        found = self._combined([x.at(self.index(Affine.dim(block), Affine.dim(at))) for x in inside.values()])
        needed = {read.tensor for read in reads(found)} & inside.keys()
        place = self.index(Affine.dim(block))
        before = {monoid: self._before(monoid, inside, count, length).at(place) for monoid in needed}
        body = rewrite(found, lambda node: before.get(node.tensor, node) if isinstance(node, Read) else node)
        dtype = inside[self.monoid.name].dtype
        return self._joined(current("scan").compute("combined", dims, body, dtype=dtype, anonymous=True), length)

    def _inside(self, monoid: str, dims: list[Dim], length: int) -> Tensor:
        """The scan inside each block."""
        block, _, before = self.names[-3:]
        place = Affine.dim(block) * length + Affine.dim(before)
        within = (Bound(place, 0, self.values[0].shape[self.k]),)
        values = [guard(value.at(self.index(place)), within, 0) for value in self.values]
        return self._fold(monoid, dims, Dim(before, length, cut=False), values, 1, "inside")

    def _before(self, monoid: str, inside: Mapping[str, Tensor], count: int, length: int) -> Tensor:
        """What all blocks before amount to."""
        block, _, before = self.names[-3:]
        values = [x.at(self.index(Affine.dim(before), Affine.of(length - 1))) for x in inside.values()]
        return self._fold(monoid, self.dims({block: count}), Dim(before, count), values, 0, "before")

    def _combined(self, ours: Sequence[Expr]) -> Expr:
        """The result of the blocks before, which are read by the names of their monoids, and of this one."""
        theirs = [Read(monoid, ()) for monoid in self.monoid.stretch]
        records: dict[str, Expr] = {}
        for side, values in (("a", theirs), ("b", ours)):
            given = {"x": values[0], "y": values[-1]}
            records |= {f"{side}.{part.name}": _filled(part.lift, given) for part in self.monoid.components}
        both = {f"r.{part.name}": _filled(part.combine, records) for part in self.monoid.components}
        assert self.monoid.finish is not None
        return _filled(self.monoid.finish, both)

    def _joined(self, x: Tensor, length: int) -> Tensor:
        """Blocks one after another, as far as the axis goes."""
        first = self.values[0]

        def element(index: tuple[Affine, ...]) -> Expr:
            place = index[self.k]
            return x.at((*index[: self.k], place // length, place % length, *index[self.k + 1 :]))

        return x.view(first.shape, first.axes, element)


def _filled(expr: Expr, given: Mapping[str, Expr]) -> Expr:
    """The expression of a monoid's entry with what its names stand for."""
    return rewrite(expr, lambda node: given[node.tensor] if isinstance(node, Read) else node)


def _shifted(x: Tensor, k: int, nothing: Expr) -> Tensor:
    """Each element one place later along axis ``k``."""

    def element(index: tuple[Affine, ...]) -> Expr:
        inside = (Bound(index[k], 1, None),)
        moved = x.at((*index[:k], index[k] - 1, *index[k + 1 :]))
        return Call("where", (Inside(inside), shielded(moved, inside), nothing))

    return x.view(x.shape, x.axes, element)
