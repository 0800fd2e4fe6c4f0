"""Numbers written into programs: which of them a dtype holds, and that every other one is refused.

Integers and truths are stored exactly or not at all. A float (or an integer written where floats are computed) is
rounded once, to the nearest value with ties to even; a finite number beyond the dtype's range is refused. NaN and
infinities belong to floats alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from .dtypes import DTYPES
from .errors import UsageError
from .expr import FUNCTIONS, Call, Cast, Const, Expr, Read, children
from .result_type import Typing, join

Number = float | int | bool


@dataclass(frozen=True)
class _Binary:
    """A binary floating-point format: bits of the significand, exponents of `math.frexp` of its normal numbers.

    ``most`` is the largest finite number.
    """

    precision: int
    least: int
    largest: int

    @property
    def most(self) -> float:
        return math.ldexp(1.0 - math.ldexp(1.0, -self.precision), self.largest)


@dataclass(frozen=True)
class _Finite(_Binary):
    """One without infinities, in which the last numbers before the largest power of two are others."""

    unused: int = 1

    @property
    def most(self) -> float:
        return super().most - self.unused * math.ldexp(1.0, self.largest - self.precision)


_BINARY = {
    "f8e4m3": _Finite(4, -5, 9),
    "f8e5m2": _Binary(3, -13, 16),
    "f16": _Binary(11, -13, 16),
    "bf16": _Binary(8, -125, 128),
    "f32": _Binary(24, -125, 128),
    "f64": _Binary(53, -1021, 1024),
}
_WIDEST = {"bool": "bool", "int": "int64", "float": "f64"}  # in which Python's numbers compute alone


def python_number(value: object) -> Number | None:
    """A Python number, also out of one of NumPy's scalars or 0-d arrays; None for anything else (a complex one too).

    >>> import numpy as np
    >>> python_number(np.int64(3)), python_number(True), python_number(1j), python_number("3")
    (3, True, None, None)
    """
    if hasattr(value, "dtype") and getattr(value, "shape", None) == () and hasattr(value, "item"):
        # The kind of bf16 is V: NumPy does not know what is in it.
        value = float(value) if getattr(value.dtype, "kind", "") == "V" else value.item()  # type: ignore[arg-type]
    return value if type(value) in (bool, int, float) else None  # type: ignore[return-value]


def stored(value: Number, dtype: str) -> Number:
    """The number as an element of that dtype. UsageError where the dtype has nothing for it.

    >>> stored(0.1, "f32"), stored(2.0, "int8"), stored(1, "bool")
    (0.10000000149011612, 2, True)
    """
    kind = DTYPES[dtype].kind
    if kind == "float":
        if isinstance(value, float) and math.isinf(value) and DTYPES[dtype].ends[1] < math.inf:
            raise _refused(value, dtype, f"{dtype} has no infinity")
        found = nearest(value, _BINARY[dtype])
        if math.isinf(found) and not (isinstance(value, float) and math.isinf(value)):
            raise _refused(value, dtype, f"the largest is {_BINARY[dtype].most:g}")
        return found
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(value, dtype, f"{dtype} has no {'NaN' if math.isnan(value) else 'infinity'}")
    if value != int(value):
        raise _refused(value, dtype, "it is not a whole number")
    if kind == "bool":
        if value not in (0, 1):
            raise _refused(value, dtype, "truths are True and False, or 1 and 0")
        return bool(value)
    low, high = DTYPES[dtype].ends
    if not low <= value <= high:
        raise _refused(value, dtype, f"it holds {low} to {high}")
    return int(value)


def held(value: Number, dtype: str) -> bool:
    """Whether a dtype has exactly this number (or NaN); what is no number is held by none."""
    if type(value) not in (bool, int, float):
        return False
    try:
        found = stored(value, dtype)
    except UsageError:
        return False
    return found == value or (found != found and value != value)


def _refused(value: Number, dtype: str, why: str) -> UsageError:
    return UsageError(f"{_short(value)} is no {dtype}: {why}", hint="choose a wider dtype, or another number")


def _short(value: Number) -> str:
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 200 else f"{value:#x}"
    return text if len(text) <= 40 else f"{text[:30]}... ({len(text)} digits)"


def nearest(value: Number, form: _Binary) -> float:
    """The nearest number of a binary format, ties to even; infinity beyond its range."""
    if not value or (isinstance(value, float) and (not math.isfinite(value) or form.precision == 53)):
        return float(value)
    sign = -1.0 if value < 0 else 1.0
    exponent = math.frexp(value)[1] if isinstance(value, float) else int(value).bit_length()
    unit = max(exponent, form.least) - form.precision  # below the normal numbers the spacing stays the same
    units = round(math.ldexp(value, -unit)) if isinstance(value, float) else _shifted(int(value), unit)
    if abs(units).bit_length() + unit > form.largest:
        return sign * math.inf
    found = math.ldexp(abs(units), unit)
    return sign * (found if found <= form.most else math.inf)


def _shifted(value: int, bits: int) -> int:
    """value / 2**bits, rounded to an integer with ties to even."""
    if bits <= 0:
        return value << -bits
    whole, rest = divmod(value, 1 << bits)
    half = 1 << (bits - 1)
    return whole + (rest > half or (rest == half and whole % 2 == 1))


def check_literals(body: Expr, target: str, typing: Typing) -> None:
    """Every number of an expression fits the type it is computed in, every fill the tensor it stands in for.

    ``target`` is the dtype that takes the value, for an expression of numbers alone. UsageError for the first number
    that does not fit, and for integers raised to a negative one.
    """
    left, seen = [(body, target)], set[tuple[int, str]]()
    while left:
        node, wanted = left.pop()
        if isinstance(node, Const):
            _check_number(node.value, wanted)
        elif isinstance(node, Read):
            if node.guard:
                _check_number(node.fill, typing.dtypes[node.tensor])
        elif isinstance(node, Call | Cast) and (id(node), wanted) not in seen:
            seen.add((id(node), wanted))
            wants = _wanted(node, wanted, typing) if isinstance(node, Call) else [_alone(node.arg, typing)]
            left += reversed(list(zip(children(node), wants, strict=True)))


@lru_cache(maxsize=4096, typed=True)
def _check_number(value: Number, dtype: str) -> None:
    stored(value, dtype)


def _alone(arg: Expr, typing: Typing) -> str:
    """The type in which what is cast is computed: nothing around it has a say."""
    dtype, weak = typing.of(arg)
    return _WIDEST[DTYPES[dtype].kind] if weak else dtype


def _wanted(call: Call, target: str, typing: Typing) -> list[str]:
    """Arguments made of numbers alone take the type that the call's other arguments, or its reader, give it."""
    branch = FUNCTIONS[call.function].result == "branch"
    own = target
    for arg in call.args:
        if isinstance(arg, Const | Call) and typing.of(arg)[1]:  # nothing else asks for the type of its surroundings
            own = _computed_in(call, target, typing)
            break
    return ["bool" if branch and k == 0 else own for k in range(len(call.args))]


def _computed_in(call: Call, target: str, typing: Typing) -> str:
    """The type of a call's numbers. UsageError for an integer to the power of a negative number."""
    rule = FUNCTIONS[call.function].result
    own, weak = join(typing.of(arg) for arg in (call.args[1:] if rule == "branch" else call.args))
    if weak and rule != "bool":
        own = join([(own, True), (target, False)])[0]
    if rule == "float" and DTYPES[own].kind != "float":
        own = "f32"
    natural = FUNCTIONS[call.function].natural
    if natural is not None and DTYPES[own].kind != "float" and _negative(call.args[natural]):
        raise UsageError(
            f"an integer to the {call.function} {call.args[natural]} is no integer",
            hint="cast it first: x.astype('f32') ** -1",
        )
    return own


def _negative(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value < 0
