"""Python's operators on tensors and on elements of index notation: each one names a scalar function, nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import UsageError

if TYPE_CHECKING:
    from .tensor import Tensor


class Arithmetic(ABC):
    """NumPy's operators. ``&``, ``|`` and ``~`` are logical; comparisons are elementwise, so ``==`` gives a tensor."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's scalars leave the operation to us

    @abstractmethod
    def _apply(self, function: str, *args: Any) -> Tensor:
        """The scalar function of that name, applied elementwise."""

    def __add__(self, other: Any) -> Tensor:
        return self._apply("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self._apply("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self._apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._apply("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self._apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return self._apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._apply("remainder", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return self._apply("power", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._apply("power", other, self)

    def __lt__(self, other: Any) -> Tensor:
        return self._apply("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return self._apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._apply("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self._apply("greater_equal", self, other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._apply("equal", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._apply("not_equal", self, other)

    def __and__(self, other: Any) -> Tensor:
        return self._apply("logical_and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return self._apply("logical_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return self._apply("logical_or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return self._apply("logical_or", other, self)

    def __invert__(self) -> Tensor:
        return self._apply("logical_not", self)

    def __neg__(self) -> Tensor:
        return self._apply("negative", self)

    def __pos__(self) -> Tensor:
        return self._apply("add", self, 0)

    def __abs__(self) -> Tensor:
        return self._apply("abs", self)

    def __bool__(self) -> NoReturn:
        raise UsageError(
            "a tensor has no truth value while a program is traced",
            hint="write tp.where(condition, a, b); join conditions with & and |, not with and, or, or a < b < c",
        )
