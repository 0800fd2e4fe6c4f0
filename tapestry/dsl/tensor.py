"""The tensor handle of the language: a shape, a dtype, and a function from index expressions to a scalar expression.

Views compose that function and compute nothing; see `tapestry.ops.views`. Arithmetic on handles adds operations to the
program being traced; ``x[n, 2*p + r]`` with indices reads one element (index notation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES
from ..errors import UsageError, close_match
from ..expr import Affine, Expr, Read
from .arithmetic import Arithmetic
from .caller import here
from .index import Index, affine, is_index, joined

if TYPE_CHECKING:
    from .trace import Trace

At = Callable[[tuple[Affine, ...]], Expr]


class Tensor(Arithmetic):
    """A tensor of the program being traced: an input, an operation's result, or a view of one."""

    def __init__(
        self, trace: Trace, shape: tuple[int, ...], dtype: str, axes: tuple[str, ...], at: At, key: str = ""
    ) -> None:
        self._trace, self._shape, self._dtype, self._axes, self._at, self.key = trace, shape, dtype, axes, at, key

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost axis first."""
        return self._shape

    @property
    def dtype(self) -> str:
        """The name of the element type, such as "f32"."""
        return self._dtype

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, as pins and drawings know them."""
        return self._axes

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def is_tensor(self) -> bool:
        """Whether it is a whole tensor, and not one element of index notation."""
        return True

    def demand_whole(self) -> None:
        """UsageError for one element of index notation."""

    @property
    def is_view(self) -> bool:
        """A view of other tensors: no operation has computed it."""
        return not self.key

    def at(self, index: tuple[Affine, ...]) -> Expr:
        """The element at an index, as an expression over base tensors."""
        return self._at(index)

    def view(self, shape: tuple[int, ...], axes: tuple[str, ...], at: At) -> Tensor:
        """Another handle on the same elements: no operation, no copy. UsageError for a handle of another trace."""
        from .trace import current

        current("a view").demand(self)
        return Tensor(self.trace, shape, self._dtype, unique_names(axes), at)

    def named(self, name: str) -> Tensor:
        """The same tensor; it, and the operation that computes it, get this name (inside the open `tp.name` scopes)."""
        from .trace import current

        return current("named").rename(self, name)

    def astype(self, dtype: str) -> Tensor:
        """Elementwise conversion."""
        from ..ops.elementwise import cast

        return cast(self, dtype)

    @staticmethod
    def check_dtype(dtype: str) -> str:
        if not isinstance(dtype, str) or dtype not in DTYPES:
            name = str(getattr(dtype, "__name__", dtype))
            raise UsageError(f"unknown dtype {name!r}", hint=close_match(name, list(DTYPES)))
        return dtype

    def _apply(self, function: str, *args: Any) -> Tensor:
        from ..ops.elementwise import apply

        return apply(function, *args)

    def __getitem__(self, key: Any) -> Tensor:
        """With indices one element, ``x[n, 2*p + r]``; otherwise NumPy's basic slicing as a view, ``x[:, ::-2, 0]``."""
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, Index) or is_value(k) for k in keys):
            return read_element(self, keys)
        from ..ops.views import slice_view

        return slice_view(self, keys)

    @property
    def get(self) -> GuardedReader:
        """Guarded reads: ``x.get[n, p - 1]`` is 0 outside the tensor; ``x.get(n, p - 1, fill=1.0)`` is 1."""
        return GuardedReader(self)

    @property
    def clamped(self) -> ClampedReader:
        """Reads at indices that are values, ``table.clamped[ids[t], d]``: one outside of its axis is the nearest."""
        return ClampedReader(self)

    @property
    def T(self) -> Tensor:  # noqa: N802
        """The transpose: all axes reversed, as a view."""
        from ..ops.views import transpose

        return transpose(self)

    def transpose(self, *order: int | str) -> Tensor:
        """Axes in another order, by position or by name; see `tapestry.ops.views.transpose`."""
        from ..ops.views import transpose

        return transpose(self, order or None)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements, row-major, in another shape (one extent may be -1), as a view; NumPy's two spellings."""
        from ..ops.views import reshape

        return reshape(self, _flat(shape))

    def __matmul__(self, other: Tensor) -> Tensor:
        from ..ops.linear import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        from ..ops.linear import matmul

        return matmul(other, self)

    def __len__(self) -> int:
        if not self.shape:
            raise UsageError(f"{self!r} has no length: it has no axes")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise UsageError("tensors are not iterated", hint="slice them: x[0], x[1]")

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={extent}" for name, extent in zip(self.axes, self.shape, strict=True))
        return f"<{self.trace.describe(self)} {self.dtype}[{axes}]>"


class GuardedReader:
    """The guarded reads of one tensor; see `Tensor.get`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, key: Any) -> Tensor:
        return self(*(key if isinstance(key, tuple) else (key,)))

    def __call__(self, *index: int | Index, fill: float | int | bool | None = 0) -> Tensor:
        """The element, or ``fill`` where the index is outside the tensor."""
        if fill is None:
            raise UsageError("the fill None is not a number", sides={"tensor": repr(self.tensor)})
        return read_element(self.tensor, index, fill=fill)


class ClampedReader:
    """The reads of one tensor that take the nearest element; see `Tensor.clamped`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, key: Any) -> Tensor:
        return read_element(self.tensor, key if isinstance(key, tuple) else (key,), clamped=True)


def is_value(key: object) -> bool:
    """Whether an index is an element of index notation: a value that the program computes."""
    return isinstance(key, Tensor) and not key.is_tensor


def read_element(
    tensor: Tensor, keys: tuple[Any, ...], fill: float | int | bool | None = None, *, clamped: bool = False
) -> Tensor:
    """``tensor[keys]`` in index notation; guarded by the tensor's shape when a fill is given.

    An index may be a value of the program; see `tapestry.dsl.selecting`.
    """
    from .element import Access, Element
    from .guard import guarded

    scalar = [isinstance(key, Tensor) and not key.shape for key in keys]
    if len(keys) != tensor.ndim or not all(a or is_index(k) for a, k in zip(scalar, keys, strict=True)):
        raise _bad_index(tensor, keys)
    if any(scalar):
        from .selecting import selected

        return selected(tensor, keys, fill, clamped=clamped)
    index = tuple(affine(k) for k in keys)
    given = joined({}, *(k.given for k in keys if isinstance(k, Index)))
    access = Access(tensor, index, here(), guarded=fill is not None)
    return Element(tensor.at(index) if fill is None else guarded(tensor, index, fill), (access,), given=given)


def _bad_index(tensor: Tensor, keys: tuple[Any, ...]) -> UsageError:
    sides = {"axes": ", ".join(tensor.axes) or "none", "indices": ", ".join(map(repr, keys))}
    name = tensor.trace.describe(tensor)
    if len(keys) != tensor.ndim:
        what, hint = f"{name} is indexed with {len(keys)} indices for {tensor.ndim} axes", None
    else:
        what = f"{name} is indexed with something that is no index expression"
        hint = "an element needs one index expression for every axis; slices make views"
    return UsageError(what, where=here(), sides=sides, hint=hint)


def _flat(shape: tuple[Any, ...]) -> list[Any]:
    """The extents of ``reshape(2, 3)`` and of ``reshape((2, 3))``."""
    return [extent for given in shape for extent in (given if isinstance(given, list | tuple) else [given])]


def base_at(key: str) -> At:
    """The access function of a tensor that exists in memory."""
    return lambda index: Read(key, index)


def unique_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names, repeated ones numbered: ("d", "d") gives ("d", "d_1").

    >>> unique_names(("d", "t", "d"))
    ('d', 't', 'd_1')
    """
    found: list[str] = []
    for name in names:
        candidate, k = name, 0
        while candidate in found or (k and candidate in names):
            k += 1
            candidate = f"{name}_{k}"
        found.append(candidate)
    return tuple(found)
