"""Annotations of tensors: ``f32[Tensor, "n c y x"]``, ``param[f32[Tensor, "k 3 3 3"]]``.

To a type checker they are `typing.Annotated`, so user code is checked as if it said `Tensor`; at run time they are
`Spec` values that `tp.op` and `tp.program` read. ``num`` stands for any dtype but bool, ``anyfloat``, ``anyint`` and
``anytype`` for what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn, Union, get_args, get_origin, get_type_hints

from ..dtypes import DTYPES
from ..errors import UsageError
from ..program import Role
from .axes import Axis, parse_axes

CLASSES: dict[str, tuple[str, ...]] = {
    "num": tuple(d for d in DTYPES if d != "bool"),
    "anyfloat": tuple(d for d in DTYPES if DTYPES[d].kind == "float"),
    "anyint": tuple(d for d in DTYPES if DTYPES[d].kind == "int"),
    "anytype": tuple(DTYPES),
}


@dataclass(frozen=True)
class Spec:
    """What an annotation says: a dtype or a class of dtypes, the axes, and the role of the tensor in a program.

    ``optional``: None may stand for the tensor (``f32[Tensor, "k"] | None``).
    """

    dtype: str
    axes: tuple[Axis, ...]
    role: Role = "input"
    optional: bool = False

    def __or__(self, other: object) -> Spec:
        if other is None or other is type(None):
            return replace(self, optional=True)
        raise UsageError(f"{self} | {other} is not an annotation", hint="one dtype, or num, anyfloat, ...; | None")

    __ror__ = __or__

    @property
    def dtypes(self) -> tuple[str, ...]:
        return CLASSES.get(self.dtype, (self.dtype,))

    def __str__(self) -> str:
        text = f"{self.dtype}[{' '.join(map(str, self.axes))}]"
        text = text if self.role == "input" else f"{self.role} {text}"
        return f"{text} | None" if self.optional else text


class _DTypeMarker:
    """``marker[Tensor, "n c"]`` gives the `Spec`."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __getitem__(self, item: Any) -> Spec:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str)):
            raise UsageError(
                f"{self.dtype}[{item!r}] is not an annotation", hint=f'write {self.dtype}[Tensor, "n c y x"]'
            )
        return Spec(self.dtype, parse_axes(item[1]))

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{self.dtype} declares tensors and converts none", hint=f'cast: x.astype("{self.dtype}")')

    def __repr__(self) -> str:
        return self.dtype


if TYPE_CHECKING:
    from typing import Annotated as anyfloat
    from typing import Annotated as anyint
    from typing import Annotated as anytype
    from typing import Annotated as bf16
    from typing import Annotated as bool_
    from typing import Annotated as f8e4m3
    from typing import Annotated as f8e5m2
    from typing import Annotated as f16
    from typing import Annotated as f32
    from typing import Annotated as f64
    from typing import Annotated as int8
    from typing import Annotated as int16
    from typing import Annotated as int32
    from typing import Annotated as int64
    from typing import Annotated as num
    from typing import Annotated as uint8
    from typing import Annotated as uint16
    from typing import Annotated as uint32
else:
    f64, f32, f16, bf16 = map(_DTypeMarker, ("f64", "f32", "f16", "bf16"))
    f8e4m3, f8e5m2 = map(_DTypeMarker, ("f8e4m3", "f8e5m2"))
    int8, int16, int32, int64, bool_ = map(_DTypeMarker, ("int8", "int16", "int32", "int64", "bool"))
    uint8, uint16, uint32 = map(_DTypeMarker, ("uint8", "uint16", "uint32"))
    num, anyfloat, anyint, anytype = map(_DTypeMarker, CLASSES)


def read_annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """The evaluated annotations of a function. UsageError naming the function when they cannot be evaluated."""
    try:
        hints = get_type_hints(function, include_extras=True)
        return {name: _one_spec(hint) for name, hint in hints.items()}
    except UsageError:
        raise
    except Exception as error:
        code = function.__code__
        where = f"{function.__qualname__} ({PurePath(code.co_filename).name}:{code.co_firstlineno})"
        raise UsageError(
            f"its annotations cannot be evaluated: {error}", where=where, hint="import the names at module level"
        ) from error


def _one_spec(hint: Any) -> Any:
    """``Optional[f32[...]]`` as the annotation it is."""
    specs = [option for option in get_args(hint) if isinstance(option, Spec)]
    return specs[0] | None if specs and get_origin(hint) is Union and type(None) in get_args(hint) else hint


__all__ = [
    "CLASSES", "Spec", "anyfloat", "anyint", "anytype", "bf16", "bool_", "f8e4m3", "f8e5m2", "f16", "f32", "f64",
    "int8", "int16", "int32", "int64", "num", "read_annotations", "uint8", "uint16", "uint32",
]  # fmt: skip
