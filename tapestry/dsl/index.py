"""Index notation: named indices and the quasi-affine expressions made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, overload

from ..errors import UsageError
from ..expr import Affine, Bound, Inside
from .arithmetic import Arithmetic

if TYPE_CHECKING:
    from .tensor import Tensor


class Index:
    """A named index or an expression of indices: sums, constant multiples, // and % by positive constants.

    In an arithmetic expression with tensors, or with floats, it stands for its value. Comparisons give conditions, for
    `tp.where` and for ``where=`` of a reduction.
    """

    __slots__ = ("affine",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, affine: Affine) -> None:
        self.affine = affine

    @overload
    def __add__(self, other: int | Index) -> Index: ...
    @overload
    def __add__(self, other: float | Tensor) -> Tensor: ...
    def __add__(self, other: Any) -> Any:
        return Index(self.affine + affine(other)) if is_index(other) else self._value + other

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
        return Index(self.affine - affine(other)) if is_index(other) else self._value - other

    @overload
    def __rsub__(self, other: int) -> Index: ...
    @overload
    def __rsub__(self, other: float) -> Tensor: ...
    def __rsub__(self, other: Any) -> Any:
        return Index(affine(other) - self.affine) if is_index(other) else other - self._value

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
            raise UsageError(f"({left}) * ({right}) multiplies two indices", hint=hint)
        return Index(left * right.const if not right.terms else right * left.const)

    @overload
    def __rmul__(self, other: int) -> Index: ...
    @overload
    def __rmul__(self, other: float) -> Tensor: ...
    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __floordiv__(self, divisor: int) -> Index:
        return Index(self.affine // _divisor(divisor))

    def __mod__(self, divisor: int) -> Index:
        return Index(self.affine % _divisor(divisor))

    def __neg__(self) -> Index:
        return Index(-self.affine)

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
        raise UsageError(
            f"the index {self} has no truth value", hint="join conditions with & and |, choose with tp.where"
        )

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
        return Element(Inside((bound,)))

    def __repr__(self) -> str:
        return str(self.affine)


def is_index(value: object) -> TypeGuard[int | Index]:
    """An index expression or an integer (not a bool)."""
    return isinstance(value, Index) or (isinstance(value, int) and not isinstance(value, bool))


def affine(value: int | Index) -> Affine:
    """The expression of an index or an integer."""
    return value.affine if isinstance(value, Index) else Affine.of(int(value))


def _divisor(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"an index is divided by {value!r}", hint="divide indices by positive integers only")
    return value


class Indices(tuple[Index, ...]):
    """What `indices` gives back: always unpacks, one name included."""

    __slots__ = ()


def indices(names: str) -> Any:
    """Fresh indices for the given names: ``n, k = tp.indices("n k")``; a single name gives the index itself.

    An index has the range of the extent of that name in the operation's signature, or, when there is none, the largest
    range 0 <= i < extent in which no unguarded read leaves its tensor.
    """
    found = [Index(Affine.dim(_identifier(name))) for name in names.replace(",", " ").split()]
    if not found:
        raise UsageError("tp.indices needs at least one name", hint='tp.indices("n k")')
    return found[0] if len(found) == 1 else Indices(found)


def _identifier(name: str) -> str:
    if not name.isidentifier():
        raise UsageError(f"{name!r} is not an index name", hint="use identifiers, as in tp.indices('n k p')")
    return name


__all__ = ["Arithmetic", "Index", "Indices", "affine", "indices", "is_index"]
