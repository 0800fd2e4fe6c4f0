"""Index notation: named indices and the quasi-affine expressions made of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeGuard, cast, overload

from ..errors import UsageError
from ..expr import FUNCTIONS, Affine, Bound, Inside
from ..extents import WANTED, is_extent
from .arithmetic import Valueless
from .caller import here

if TYPE_CHECKING:
    from .tensor import Tensor


_OPERATORS: dict[tuple[str, int], Callable[..., Any]] = {
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("//", 2): operator.floordiv,
    ("%", 2): operator.mod,
    ("<", 2): operator.lt,
    ("<=", 2): operator.le,
    (">", 2): operator.gt,
    (">=", 2): operator.ge,
    ("==", 2): operator.eq,
    ("!=", 2): operator.ne,
    ("-", 1): operator.neg,
}
Given = Mapping[str, int]  # extents given to indices by name: tp.indices(s=5)
_TOLD: ContextVar[dict[str, set[int]] | None] = ContextVar("tapestry_told", default=None)


class Index(Valueless):
    """A named index or an expression of indices: sums, constant multiples, // and % by positive constants.

    ``given`` are the extents that `indices` was told for the names in it. In an arithmetic expression with tensors, or
    with floats, it stands for its value. Comparisons give conditions, for `tp.where` and for ``where=`` of a reduction.
    """

    __slots__ = ("affine", "given")
    __hash__ = Valueless.__hash__

    def __init__(self, affine: Affine, given: Given | None = None) -> None:
        self.affine, self.given = affine, given or {}

    @overload
    def __add__(self, other: int | Index) -> Index: ...
    @overload
    def __add__(self, other: float | Tensor) -> Tensor: ...
    def __add__(self, other: Any) -> Any:
        return self._joined(self.affine + affine(other), other) if is_index(other) else self._value + other

    @overload
    def __radd__(self, other: int) -> Index: ...
    @overload
    def __radd__(self, other: float) -> Tensor: ...
    def __radd__(self, other: Any) -> Any:
        return self + other

    @overload
    def __sub__(self, other: int | Index) -> Index: ...
    @overload
    def __sub__(self, other: float | Tensor) -> Tensor: ...
    def __sub__(self, other: Any) -> Any:
        return self._joined(self.affine - affine(other), other) if is_index(other) else self._value - other

    @overload
    def __rsub__(self, other: int) -> Index: ...
    @overload
    def __rsub__(self, other: float) -> Tensor: ...
    def __rsub__(self, other: Any) -> Any:
        return self._joined(affine(other) - self.affine, other) if is_index(other) else other - self._value

    @overload
    def __mul__(self, other: int | Index) -> Index: ...
    @overload
    def __mul__(self, other: float | Tensor) -> Tensor: ...
    def __mul__(self, other: Any) -> Any:
        if not is_index(other):
            return self._value * other
        left, right = self.affine, affine(other)
        if left.terms and right.terms:
            hint = "index expressions are quasi-affine; for the value of the product, multiply by 1.0 first"
            raise UsageError(f"({left}) * ({right}) multiplies two indices", where=here(), hint=hint)
        return self._joined(left * right.const if not right.terms else right * left.const, other)

    @overload
    def __rmul__(self, other: int) -> Index: ...
    @overload
    def __rmul__(self, other: float) -> Tensor: ...
    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __floordiv__(self, divisor: int) -> Index:
        return Index(self.affine // _divisor(divisor), self.given)

    def __mod__(self, divisor: int) -> Index:
        return Index(self.affine % _divisor(divisor), self.given)

    def __divmod__(self, divisor: int) -> tuple[Index, Index]:
        return self // divisor, self % divisor

    def __rfloordiv__(self, other: object) -> Index:
        raise _divides(other, "//", self)

    def __rmod__(self, other: object) -> Index:
        raise _divides(other, "%", self)

    def __neg__(self) -> Index:
        return Index(-self.affine, self.given)

    def __pos__(self) -> Index:
        return self

    def __abs__(self) -> Tensor:
        return abs(self._value)

    def __iter__(self) -> NoReturn:
        hint = f'one name gives one index: {self!r} = tp.indices("{self!r}")'
        raise UsageError(f"the index {self!r} is not several", where=here(), hint=hint)

    def _joined(self, affine: Affine, other: int | Index) -> Index:
        """An expression of this one and another."""
        return Index(affine, joined(self.given, other.given) if isinstance(other, Index) else self.given)

    def __truediv__(self, other: Any) -> Tensor:
        result: Tensor = self._value / other
        return result

    def __rtruediv__(self, other: Any) -> Tensor:
        result: Tensor = other / self._value
        return result

    def __pow__(self, other: Any) -> Tensor:
        result: Tensor = self._value**other
        return result

    def __rpow__(self, other: Any) -> Tensor:
        result: Tensor = other**self._value
        return result

    def __lt__(self, other: Any) -> Tensor:
        return self._condition(other, None, 0) if is_index(other) else self._value.__lt__(other)

    def __le__(self, other: Any) -> Tensor:
        return self._condition(other, None, 1) if is_index(other) else self._value <= other

    def __gt__(self, other: Any) -> Tensor:
        return self._condition(other, 1, None) if is_index(other) else self._value > other

    def __ge__(self, other: Any) -> Tensor:
        return self._condition(other, 0, None) if is_index(other) else self._value >= other

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._condition(other, 0, 1) if is_index(other) else self._value == other

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return ~(self == other)

    def __bool__(self) -> bool:
        hint = "join conditions with & and |, choose with tp.where"
        raise UsageError(f"the index {self!r} has no truth value", where=here(), hint=hint)

    def _apply(self, function: str, *args: Any) -> Any:
        """NumPy's functions: Python's operator where there is one, so that indices stay indices."""
        from .element import combine, number

        own = [arg if isinstance(arg, Valueless) else number(arg) for arg in args]
        operation = _OPERATORS.get((FUNCTIONS[function].symbol, len(own)))
        return operation(*own) if operation else combine(function, *own)

    @property
    def _value(self) -> Tensor:
        from .element import element

        return element(self)

    def _condition(self, other: int | Index, lo: int | None, hi: int | None) -> Tensor:
        """lo <= self - other < hi, with the constant moved to the bounds."""
        from .element import Element

        difference = self.affine - affine(other)
        shift, terms = difference.const, Affine(difference.terms)
        bound = Bound(terms, None if lo is None else lo - shift, None if hi is None else hi - shift)
        return Element(Inside((bound,)), given=self._joined(terms, other).given)

    def __repr__(self) -> str:
        return str(self.affine)


def is_index(value: object) -> TypeGuard[int | Index]:
    """An index expression or an integer, NumPy's too (not a bool)."""
    return isinstance(value, Index) or as_integer(value) is not None


def as_integer(value: object) -> int | None:
    """The integer that a value is, NumPy's scalars included; None for bools and everything else."""
    if type(value) is int:
        return value
    if isinstance(value, bool | Index) or not isinstance(value, SupportsIndex) or hasattr(value, "__len__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def affine(value: int | Index) -> Affine:
    """The expression of an index or an integer."""
    return value.affine if isinstance(value, Index) else Affine.of(operator.index(value))


def joined(first: Given, *others: Given) -> Given:
    """The extents given in parts of one expression. UsageError where they contradict."""
    if not any(others):
        return first
    found = dict(first)
    for given in others:
        for name, extent in given.items():
            if found.setdefault(name, extent) != extent:
                what = f"the index {name} has two extents, {found[name]} and {extent}"
                raise UsageError(what, where=here(), hint="two ranges are two indices: give them different names")
    return found


def _divisor(value: object) -> int:
    divisor = as_integer(value)
    if divisor is None or divisor < 1:
        hint = "divide indices by positive integers only; for the value of a quotient, multiply by 1.0 first"
        raise UsageError(f"an index is divided by {value!r}", where=here(), hint=hint)
    return divisor


def _divides(value: object, symbol: str, by: Index) -> UsageError:
    hint = "divide indices by positive integers only; for the value of a quotient, multiply by 1.0 first"
    return UsageError(f"{value!r} {symbol} ({by!r}) divides by an index", where=here(), hint=hint)


class Indices(tuple[Index, ...]):
    """What `indices` gives back: always unpacks, one name included."""

    __slots__ = ()


if TYPE_CHECKING:

    class Named(Index):
        """What `indices` gives back, to a type checker: an index where one name is given, else they unpack."""

        def __iter__(self) -> Iterator[Index]: ...  # type: ignore[override]


def indices(names: str = "", **extents: int) -> Named:
    """Fresh indices for the given names: ``n, k = tp.indices("n k")``; a single name gives the index itself.

    Keywords are further names, whose extents they give: ``n, s = tp.indices("n", s=5)`` is s in 0:5. The extent of
    another index is that of its name in the operation's signature. Without one, a folded index has the extent of the
    axes that it reads alone (``w[s]``), and an output index the largest range in which no unguarded read leaves its
    tensor. Raises UsageError for names that are no identifiers or repeat, and extents that are no integers >= 0.
    """
    listed = [_identifier(name) for name in _split(names)] + list(extents)
    if not listed:
        raise UsageError("tp.indices needs at least one name", where=here(), hint='tp.indices("n k")')
    twice = next((name for k, name in enumerate(listed) if name in listed[:k]), None)
    if twice:
        raise UsageError(f"tp.indices names {twice} twice", where=here())
    found = [Index(Affine.dim(name), _extent(name, extents)) for name in listed]
    record = _TOLD.get()
    if record is not None:
        for name in extents:
            record.setdefault(name, set()).add(_extent(name, extents)[name])
    return cast("Named", found[0] if len(found) == 1 else Indices(found))


def _split(names: object) -> list[str]:
    if isinstance(names, str):
        return names.replace(",", " ").split()
    from .door import spoken

    raise UsageError(f"tp.indices({spoken(names)})", where=here(), hint='a string of names: tp.indices("n k")')


@contextmanager
def told() -> Iterator[dict[str, set[int]]]:
    """The extents that `indices` is given meanwhile, by name: an output index need not occur in the expression."""
    found: dict[str, set[int]] = {}
    token = _TOLD.set(found)
    try:
        yield found
    finally:
        _TOLD.reset(token)


def _extent(name: str, extents: Mapping[str, int]) -> Given:
    if name not in extents:
        return {}
    extent = as_integer(extents[name])
    if not is_extent(extent):
        hint = f"an extent is {WANTED}, as in tp.indices(s=5)"
        raise UsageError(f"the extent {name}={extents[name]!r} is not a number of points", where=here(), hint=hint)
    return {name: extent}


def _identifier(name: str) -> str:
    if not name.isidentifier():
        hint = "use identifiers, as in tp.indices('n k p')"
        raise UsageError(f"{name!r} is not an index name", where=here(), hint=hint)
    return name


__all__ = ["Given", "Index", "Indices", "affine", "as_integer", "indices", "is_index", "joined", "told"]
