"""Rotary position embedding: Su et al., arXiv:2104.09864, equation 34, the halves of a head paired as in Llama."""

from __future__ import annotations

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import element
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, cos, sin
from .reduction import axis_position


@door
def rotary(
    x: Tensor, *, axis: int | str = -3, base: float = 10000.0, offset: int | Tensor = 0, name: str = ""
) -> Tensor:
    """Rotate pairs (e, e + E/2) of the last axis by the angle (position + offset) * base ** (-2 (e mod E/2) / E).

    ``x`` [..., t, h, e] with positions along ``axis``, the first of them ``offset``: a number, or a tensor of one
    integer. The angles are computed from the indices, in f32 at least: no table is read, so that a shard of any tokens
    or heads needs nothing but its own elements.
    """
    width = x.shape[-1] if x.ndim else 0
    if x.ndim < 2 or width % 2 or DTYPES[x.dtype].kind != "float":
        raise UsageError("rotary takes floats with positions and an even last axis", sides={"x": repr(x)})
    if base <= 0:
        raise UsageError(f"rotary: the base {base} is not positive")
    i = axes_of(x)
    t, e = i[axis_position(x, axis)], i[-1]
    half = width // 2
    wide = promote(x.dtype, "f32")
    angle = cast(element(t + offset), wide) * base ** (cast(element(e % half), wide) * (-2.0 / width))
    # Outside of x a guarded read is 0, so one of the two terms is the partner and the other nothing.
    partner = x.get(*i[:-1], e - half) - x.get(*i[:-1], e + half)
    return define("rotary", i, x[i] * cos(angle) + partner * sin(angle), dtype=x.dtype, explicit=name)
