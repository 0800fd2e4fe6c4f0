"""Element types: names, widths and how they promote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, Literal


@dataclass(frozen=True)
class DType:
    """An element type. ``rank`` orders promotion within and across kinds (bool < int < float).

    ``compute`` names the type in which functions of such values compute; ``stored`` is its code in safetensors files.
    ``exponent_bits`` say where a float overflows; 0 for the others. ``numpy`` is NumPy's name, or that of ml_dtypes.
    ``ends`` are the least and the greatest number: infinities where there are some.
    """

    name: str
    bytes: int
    kind: Literal["bool", "int", "float"]
    rank: int
    compute: str
    stored: str
    exponent_bits: int = 0
    numpy: str = ""
    ends: tuple[float | int, float | int] = (-inf, inf)

    def __str__(self) -> str:
        return self.name


def _integer(name: str, rank: int, stored: str) -> DType:
    bits = int(name.lstrip("uint"))
    ends = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return DType(name, bits // 8, "int", rank, "int64", stored, numpy=name, ends=ends)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", 1, "bool", 0, "bool", "BOOL", numpy="bool", ends=(False, True)),
        _integer("uint8", 1, "U8"),
        _integer("int8", 2, "I8"),
        _integer("uint16", 3, "U16"),
        _integer("int16", 4, "I16"),
        _integer("uint32", 5, "U32"),
        _integer("int32", 6, "I32"),
        _integer("int64", 7, "I64"),
        # Four exponent bits, three of the fraction, no infinity: arXiv:2209.05433, section 3.1; what overflows is NaN.
        DType("f8e4m3", 1, "float", 8, "f32", "F8_E4M3", 4, "float8_e4m3fn", (-448.0, 448.0)),
        DType("f8e5m2", 1, "float", 9, "f32", "F8_E5M2", 5, "float8_e5m2"),
        DType("bf16", 2, "float", 10, "f32", "BF16", 8, "bfloat16"),
        DType("f16", 2, "float", 11, "f32", "F16", 5, "float16"),
        DType("f32", 4, "float", 12, "f32", "F32", 8, "float32"),
        DType("f64", 8, "float", 13, "f64", "F64", 11, "float64"),
    )
}


def dtype(name: str) -> DType:
    """The element type of that name; KeyError with the known names otherwise."""
    if name not in DTYPES:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


@cache
def promote(*names: str) -> str:
    """The type that holds the arguments' values: a float if one is, and the narrowest that holds all of its kind.

    bf16 with f16 gives f32, the two of 8 bits bf16, uint8 with int8 int16. Integers beside a float take its type.

    >>> promote("int64", "f16"), promote("bf16", "f16"), promote("uint8", "int8"), promote("uint32", "int16")
    ('f16', 'f32', 'int16', 'int64')
    """
    widest = DTYPES[max(names, key=lambda name: DTYPES[name].rank)]
    alike = [DTYPES[name] for name in names if DTYPES[name].kind == widest.kind]
    above = [d for d in DTYPES.values() if d.kind == widest.kind and d.rank >= widest.rank]
    return next(d.name for d in above if all(_holds(d, one) for one in alike))


def _holds(wide: DType, one: DType) -> bool:
    """Whether every number of one type is one of the other, of the same kind."""
    if wide.kind != "float":
        return wide.ends[0] <= one.ends[0] and one.ends[1] <= wide.ends[1]
    fractions = [8 * d.bytes - d.exponent_bits for d in (wide, one)]
    return wide == one or (wide.exponent_bits >= one.exponent_bits and fractions[0] >= fractions[1])


def extreme(name: str, value: float | int) -> float | int | bool:
    """A number of the dtype: the value itself, or for infinities the least or greatest number there is.

    >>> extreme("int8", float("-inf")), extreme("f16", float("inf")), extreme("bool", float("-inf")), extreme("f32", 0)
    (-128, inf, False, 0.0)
    """
    of = DTYPES[name]
    if value in (inf, -inf):
        value = of.ends[value > 0]
    return float(value) if of.kind == "float" else int(value) if of.kind == "int" else value > 0


@cache
def numpy_dtype(name: str) -> Any:
    """NumPy's dtype for a name (those that NumPy lacks from ml_dtypes). NumPy is imported on the first call."""
    import ml_dtypes
    import numpy as np

    if name not in DTYPES:
        return np.dtype(name)
    return np.dtype(getattr(ml_dtypes, DTYPES[name].numpy, DTYPES[name].numpy))


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
