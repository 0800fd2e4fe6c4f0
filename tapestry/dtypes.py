"""Element types: names, widths and how they promote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal


@dataclass(frozen=True)
class DType:
    """An element type. ``rank`` orders promotion within and across kinds (bool < int < float).

    ``compute`` names the type in which functions of such values compute; ``stored`` is its code in safetensors files.
    ``exponent_bits`` say where a float overflows; 0 for the others.
    """

    name: str
    bytes: int
    kind: Literal["bool", "int", "float"]
    rank: int
    compute: str
    stored: str
    exponent_bits: int = 0

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", 1, "bool", 0, "bool", "BOOL"),
        DType("int8", 1, "int", 1, "int64", "I8"),
        DType("int32", 4, "int", 2, "int64", "I32"),
        DType("int64", 8, "int", 3, "int64", "I64"),
        DType("bf16", 2, "float", 4, "f32", "BF16", 8),
        DType("f16", 2, "float", 5, "f32", "F16", 5),
        DType("f32", 4, "float", 6, "f32", "F32", 8),
        DType("f64", 8, "float", 7, "f64", "F64", 11),
    )
}


def dtype(name: str) -> DType:
    """The element type of that name; KeyError with the known names otherwise."""
    if name not in DTYPES:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


@cache
def promote(*names: str) -> str:
    """The type that holds the arguments' values: the highest rank; bf16 with f16 gives f32.

    >>> promote("int64", "f16"), promote("bf16", "f16"), promote("bool", "int8")
    ('f16', 'f32', 'int8')
    """
    if {"bf16", "f16"} <= set(names) and not {"f32", "f64"} & set(names):
        return "f32"
    return max(names, key=lambda name: DTYPES[name].rank)


def extreme(name: str, value: float | int) -> float | int | bool:
    """A number of the dtype: the value itself, or for infinities the least or greatest number there is.

    >>> extreme("int8", float("-inf")), extreme("f16", float("inf")), extreme("bool", float("-inf")), extreme("f32", 0)
    (-128, inf, False, 0.0)
    """
    kind = DTYPES[name].kind
    if kind == "float":
        return float(value)
    if kind == "bool":
        return value > 0
    if value in (float("inf"), float("-inf")):
        bits = 8 * DTYPES[name].bytes - 1
        return (1 << bits) - 1 if value > 0 else -(1 << bits)
    return int(value)


@cache
def numpy_dtype(name: str) -> Any:
    """NumPy's dtype for a name (bf16 from ml_dtypes). NumPy is imported on the first call."""
    import ml_dtypes
    import numpy as np

    table = {"bool": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
    return np.dtype(table.get(name) or name)


def name_of(np_dtype: Any) -> str:
    """Our name for a NumPy dtype; KeyError for one that tapestry does not know.

    >>> import numpy as np
    >>> name_of(np.dtype("float32"))
    'f32'
    """
    for name in DTYPES:
        if numpy_dtype(name) == np_dtype:
            return name
    raise KeyError(f"dtype {np_dtype} is not one of {', '.join(DTYPES)}")
