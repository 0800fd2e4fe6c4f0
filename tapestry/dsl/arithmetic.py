"""Python's operators on tensors and on elements of index notation: each one names a scalar function, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import NoSuchAttribute, UsageError
from ..expr import FUNCTIONS

if TYPE_CHECKING:
    from .tensor import Tensor


class Valueless:
    """What Python asks of numbers and of keys, refused: a program is traced before anything in it has a value."""

    __slots__ = ()

    def _no_value(self, asked: str) -> UsageError:
        """Python asks for a value: a program is traced before it has any."""
        hint = "write it with tp.* functions, or make it a setting of the program"
        return UsageError(f"{asked} needs a value, and there is none while a program is traced", hint=hint)

    def __int__(self) -> NoReturn:
        raise self._no_value("int(...)")

    def __float__(self) -> NoReturn:
        raise self._no_value("float(...)")

    def __complex__(self) -> NoReturn:
        raise self._no_value("complex(...)")

    def __index__(self) -> NoReturn:
        raise self._no_value("an index or a range")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise self._no_value("round(...)")

    def __hash__(self) -> NoReturn:
        raise self._no_value("a set, a dict or a cache that looks tensors up")

    def __contains__(self, item: object) -> NoReturn:
        raise self._no_value("in")

    def __format__(self, spec: str) -> NoReturn:
        hint = "print(x) shows it, and so does {x!r} in an f-string"
        raise UsageError("an f-string needs a value, and there is none while a program is traced", hint=hint)

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise self._no_value("a NumPy array")

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise _of_arrays("np", function.__name__)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's scalars, and its functions that have a namesake here."""
        name = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or name not in FUNCTIONS:
            raise _of_arrays("np", ufunc.__name__)
        return self._apply(name, *inputs)

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        raise _of_arrays("torch", getattr(function, "__name__", str(function)).strip("_"))

    def _apply(self, function: str, *args: Any) -> Tensor:
        """The scalar function of that name, applied to values of which this is one."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # a type checker would take any attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(name)

        def _no_operator(self, other: object) -> NoReturn:  # noqa: ARG002
            raise UsageError(
                "there is no such operator here", hint="tensors have + - * / // % ** @, comparisons, & | ~"
            )

        def _unlike_an_array(self, *_: object) -> NoReturn:
            raise UsageError(f"{self!r} is used as an array, a list or a function, which it is not")

        __len__ = __getitem__ = __reversed__ = __call__ = __invert__ = __trunc__ = _unlike_an_array
        __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_operator
        __divmod__ = __rdivmod__ = __and__ = __rand__ = __or__ = __ror__ = __matmul__ = __rmatmul__ = _no_operator


class Arithmetic(Valueless):
    """NumPy's operators. ``&``, ``|`` and ``~`` are logical; comparisons are elementwise, so ``==`` gives a tensor."""

    __hash__ = Valueless.__hash__

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

    def __xor__(self, other: Any) -> Tensor:
        return self._apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return self._apply("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return self._apply("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return self._apply("left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return self._apply("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return self._apply("right_shift", other, self)

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

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise UsageError("a tensor is not assigned to", hint="choose with tp.where, or join parts with tp.concat")

    def __delitem__(self, key: object) -> NoReturn:
        raise UsageError("nothing is deleted from a tensor", hint="join the parts that stay with tp.concat")


# NumPy's names of functions that are called otherwise here.
_UFUNCS = {
    "true_divide": "divide", "absolute": "abs", "rint": "round", "invert": "bitwise_not",
    "bitwise_invert": "bitwise_not",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip


def missing_attribute(name: str) -> AttributeError:
    """The error of ``x.name``: with the function of that name, where there is one."""
    import tapestry

    if name.startswith("__"):
        return AttributeError(name)
    known = name in dir(tapestry) and callable(getattr(tapestry, name))
    hint = f"tp.{name}(x, ...)" if known else None
    return NoSuchAttribute(f"tensors and indices have no attribute {name!r}", hint=hint)


def _of_arrays(library: str, name: str) -> UsageError:
    """The error of a function of NumPy or torch; with the function of that name here, where there is one."""
    import tapestry

    known = name in dir(tapestry) and callable(getattr(tapestry, name))
    hint = f"write tp.{name}" if known else "write it with tp.* functions or index notation"
    return UsageError(f"{library}.{name} computes with arrays, and a program is traced without any", hint=hint)
