"""Random numbers: functions of a seed and of where an element stands in its tensor, the same under every sharding.

Element number i of a tensor (row-major) takes its bits from the counter-based generator Philox4x32-10 with the seed as
key and (i, ``stream``) as counter. So the bits depend neither on how the tensor is cut, nor on the device, nor on
what else is drawn; two tensors of one seed have the same numbers unless their streams differ. Gradients stop here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.declare import axis_names
from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import combine, element
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, where
from .reduction import axis_positions

Seed = int | Tensor


def _bits(out: Sequence[Index], extents: Sequence[int], seed: Seed, stream: int) -> Tensor:
    """64 bits of the element at these indices."""
    if isinstance(seed, Tensor) and (seed.shape or DTYPES[seed.dtype].kind != "int"):
        raise UsageError("the seed is one integer", sides={"seed": repr(seed)}, hint='int64[Tensor, ""]')
    whole: Index | int = 0
    for index, extent in zip(out, extents, strict=True):
        whole = index + whole * extent
    return combine("philox", *(cast(element(word), "int64") for word in (seed, stream, whole)))


def _drawn(
    function: str, shape: Sequence[int], axes: Sequence[str] | None, seed: Seed, stream: int
) -> tuple[list[Index], Tensor]:
    names = axis_names(function, shape, axes)
    out = [indices("", **{name: extent}) for name, extent in zip(names, shape, strict=True)]
    return list(out), _bits(out, shape, seed, stream)


def _fraction(bits: Tensor, dtype: str) -> Tensor:
    """The first bits as a number from 0 up to, but without 1: as many as the dtype holds exactly."""
    count = 8 * DTYPES[dtype].bytes - DTYPES[dtype].exponent_bits
    return cast(combine("bitwise_and", bits >> (64 - count), 2**count - 1), _wide(dtype)) * 2.0**-count


def _wide(dtype: str) -> str:
    return promote(dtype, "f32")


def _demand_float(function: str, dtype: str) -> None:
    if DTYPES[Tensor.check_dtype(dtype)].kind != "float":
        raise UsageError(f"{function} draws floats, not {dtype}", hint="tp.random_integers draws integers")


@door
def random_bits(
    shape: Sequence[int], seed: Seed, *, stream: int = 0, axes: Sequence[str] | None = None, name: str = ""
) -> Tensor:
    """64 random bits an element, as int64."""
    out, bits = _drawn("random_bits", shape, axes, seed, stream)
    return define("random_bits", out, bits, explicit=name)


@door
def random_integers(
    shape: Sequence[int], seed: Seed, low: int, high: int, *, dtype: str = "int64", stream: int = 0,
    axes: Sequence[str] | None = None, name: str = "",
) -> Tensor:  # fmt: skip
    """Integers from ``low`` up to, but without ``high``, all as likely up to (high - low) / 2**32."""
    if not 0 < high - low <= 2**31:
        raise UsageError(f"random_integers: there are {high - low} numbers from {low} to {high}", hint="1 to 2**31")
    out, bits = _drawn("random_integers", shape, axes, seed, stream)
    word = combine("bitwise_and", bits >> 32, 0xFFFFFFFF)
    value = (word * (high - low) >> 32) + low
    return define("random_integers", out, cast(value, Tensor.check_dtype(dtype)), explicit=name)


@door
def uniform(
    shape: Sequence[int], seed: Seed, *, low: float = 0.0, high: float = 1.0, dtype: str = "f32", stream: int = 0,
    axes: Sequence[str] | None = None, name: str = "",
) -> Tensor:  # fmt: skip
    """Numbers from ``low`` up to ``high``, equally spaced by the last place that the dtype has below 1."""
    _demand_float("uniform", dtype)
    out, bits = _drawn("uniform", shape, axes, seed, stream)
    value = _fraction(bits, dtype)
    value = value if (low, high) == (0, 1) else value * (high - low) + low
    return define("uniform", out, value, dtype=dtype, explicit=name)


@door
def normal(
    shape: Sequence[int], seed: Seed, *, mean: float = 0.0, deviation: float = 1.0, dtype: str = "f32",
    stream: int = 0, axes: Sequence[str] | None = None, name: str = "",
) -> Tensor:  # fmt: skip
    """Normally distributed numbers: the quantile of 31 random bits, right to 1e-7, with a random sign; |x| < 6.3."""
    _demand_float("normal", dtype)
    out, bits = _drawn("normal", shape, axes, seed, stream)
    share = (cast(combine("bitwise_and", bits >> 33, 0x7FFFFFFF), _wide(dtype)) + 0.5) * 2.0**-32
    below = combine("normal_quantile", share)
    value = where(combine("bitwise_and", bits, 1) == 1, below, -below)
    value = value if deviation == 1 else value * deviation
    return define("normal", out, value if mean == 0 else value + mean, dtype=dtype, explicit=name)


@door
def bernoulli(
    shape: Sequence[int], seed: Seed, p: float, *, stream: int = 0, axes: Sequence[str] | None = None, name: str = ""
) -> Tensor:
    """True with probability p."""
    _demand_share("bernoulli", p)
    out, bits = _drawn("bernoulli", shape, axes, seed, stream)
    return define("bernoulli", out, _fraction(bits, "f32") < p, explicit=name)


@door
def dropout(
    x: Tensor, p: float, seed: Seed, *, shared: Sequence[int | str] = (), stream: int = 0, name: str = ""
) -> Tensor:
    """x / (1 - p), but 0 with probability p; along the axes ``shared`` all elements together.

    The seed is another in every step of a training: a state that is counted up, or an input.
    """
    _demand_share("dropout", p)
    if DTYPES[x.dtype].kind != "float" or p == 1:
        raise UsageError(f"dropout(p={p}) of {x.dtype}", sides={"x": repr(x)}, hint="floats, and p below 1")
    every, together = axes_of(x), axis_positions(x, shared) if shared else ()
    own = [k for k in range(x.ndim) if k not in together]
    bits = _bits([every[k] for k in own], [x.shape[k] for k in own], seed, stream)
    kept = _fraction(bits, "f32") >= p
    return define("dropout", every, where(kept, x[every] * (1 / (1 - p)), 0.0), dtype=x.dtype, explicit=name)


def _demand_share(function: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise UsageError(f"{function}(p={p})", hint="a probability, from 0 to 1")
