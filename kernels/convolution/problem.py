"""What a grouped convolution is: extents, filter, steps and padding, checked once at the door.

Every later stage (the configurations, the generated sources, the cost model, the launchers) reads a
`ConvolutionProblem` and trusts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..errors import KernelError

GROUP_WIDTHS = (1, 2, 4, 8, 16, 32)
MOST_WIDTH = 128
DTYPES = ("f16", "bf16")
MAX_ELEMENTS = 2**31 - 1
MAX_FILTER = 7


class BadConvolution(KernelError, ValueError):
    """A convolution nobody can run: what was asked, what was expected, what came."""


def demand(holds: bool, what: str, expected: object, got: object) -> None:
    """Raise `BadConvolution` unless `holds`."""
    if not holds:
        raise BadConvolution(what, where="convolution", expected=expected, came=got)


@dataclass(frozen=True)
class ConvolutionProblem:
    """One grouped convolution, channels last: x [n, h, w, c], weights [k, r, s, c / groups], y [n, p, q, k].

        y[n, p, q, k] = sum over r, s, j of
            x[n, p * stride_y + r * dilation_y - top, q * stride_x + s * dilation_x - left, group(k) * width + j]
            * w[k, r, s, j]

    Steps are (rows, columns); `padding` is (top, bottom, left, right), negative where rows or columns are cut off.

    With a `cell` other than (1, 1) every position (p, q) stands for that many (rows, columns) of outputs over the same
    window of r x s places: so the input gradient of a strided convolution is walked. The `taps` (rows, columns) of its
    filter are dealt among the outputs of a cell. It has no stride there.

    `channels_out` is k where that is not c, None where it is.

    Raises `BadConvolution` naming the field, what was expected and what came.
    """

    n: int
    h: int
    w: int
    c: int
    groups: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dtype: str = "f16"
    cell: tuple[int, int] = (1, 1)
    taps: tuple[int, int] | None = None
    channels_out: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of integers alone, so that a copy in another process may keep it; asked for in every call."""
        extents = (self.n, self.h, self.w, self.c, self.groups, self.r, self.s, self.k)
        return hash((extents, self.stride, self.dilation, self.padding, self.cell))

    def __post_init__(self) -> None:
        self._check_types()
        if self.channels_out == self.c:  # one problem, one way to say it
            object.__setattr__(self, "channels_out", None)
        self._check_steps()
        self._check_channels()
        self._check_extents()

    def _check_types(self) -> None:
        for name in ("n", "h", "w", "c", "groups", "r", "s"):
            value = getattr(self, name)
            demand(type(value) is int, f"{name} is not an integer", "int", f"{value!r} ({type(value).__name__})")
            demand(value >= 1, f"{name} is not positive", ">= 1", value)
        for name, length in (("stride", 2), ("dilation", 2), ("padding", 4), ("cell", 2)):
            value = getattr(self, name)
            fits = isinstance(value, tuple) and len(value) == length and all(type(item) is int for item in value)
            demand(fits, f"{name} is not a tuple of integers", f"{length} ints", repr(value))
        out = self.channels_out
        demand(out is None or (type(out) is int and out >= 1), "channels_out", "None or a positive int", repr(out))
        demand(self.dtype in DTYPES, "dtype", " or ".join(DTYPES), self.dtype)

    def _check_steps(self) -> None:
        for name in ("stride", "dilation", "cell"):
            value = getattr(self, name)
            demand(
                all(item in (1, 2) for item in value), f"{name} outside the supported range", "1 or 2 each way", value
            )
        whole = all(cell == 1 or step == 1 for cell, step in zip(self.cell, self.stride, strict=True))
        demand(whole, "cells of a strided convolution", "a cell or a stride of 1", f"{self.cell} and {self.stride}")
        for name in ("r", "s"):
            value = getattr(self, name)
            demand(value <= MAX_FILTER, f"filter extent {name}", f"1 to {MAX_FILTER}", value)

    def _check_channels(self) -> None:
        demand(self.c % self.groups == 0, "channels do not divide into groups", f"a multiple of {self.groups}", self.c)
        demand(self.k % self.groups == 0, "outputs do not divide into groups", f"a multiple of {self.groups}", self.k)
        for name, width in (("width (channels / groups)", self.width), ("width of outputs", self.width_out)):
            demand(width <= MOST_WIDTH, f"group {name}", f"at most {MOST_WIDTH}", width)

    def _check_extents(self) -> None:
        for name, extent in (("p (output rows)", self.p), ("q (output columns)", self.q)):
            demand(extent >= 1, f"the filter does not fit: {name}", ">= 1", f"{extent} of {self}")
        cells = self.n * self.p * self.q * self.k
        for name, elements in (("input", self.input_elements), ("output", cells)):
            demand(elements <= MAX_ELEMENTS, f"elements of the {name}", f"at most {MAX_ELEMENTS}", elements)

    @property
    def width(self) -> int:
        """Channels of one group that are read."""
        return self.c // self.groups

    @property
    def k(self) -> int:
        """Channels of the output."""
        return self.c if self.channels_out is None else self.channels_out

    @property
    def width_out(self) -> int:
        """Channels of one group that are written."""
        return self.k // self.groups

    @property
    def narrow(self) -> bool:
        """Whether it is of the kind that the kernels of narrow groups compute: as many channels out as in, few."""
        return self.width in GROUP_WIDTHS and self.channels_out is None

    @property
    def octets(self) -> bool:
        """Whether channels in and out are whole octets, as the copy engine asks."""
        return self.c % 8 == 0 and self.k % 8 == 0

    @property
    def tiled(self) -> bool:
        """Whether more than the plain kernel computes it on some GPU: narrow groups, or whole octets of channels."""
        return self.narrow or self.octets

    @property
    def p(self) -> int:
        """Output rows, or rows of cells."""
        top, bottom, _, _ = self.padding
        return (self.h + top + bottom - self.dilation[0] * (self.r - 1) - 1) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Output columns, or columns of cells."""
        _, _, left, right = self.padding
        return (self.w + left + right - self.dilation[1] * (self.s - 1) - 1) // self.stride[1] + 1

    @property
    def tap_count(self) -> int:
        """Taps of the filter: what the outputs of one position meet."""
        return self.r * self.s * prod(self.cell) if self.taps is None else prod(self.taps)

    @property
    def input_elements(self) -> int:
        return self.n * self.h * self.w * self.c

    @property
    def output_elements(self) -> int:
        return prod(self.output_shape)

    @property
    def weight_elements(self) -> int:
        return self.k * self.tap_count * self.width

    @property
    def bytes_moved(self) -> int:
        """Input, output and weights once each: the floor of the traffic, in bytes."""
        return 2 * (self.input_elements + self.output_elements + self.weight_elements)

    @property
    def flops(self) -> int:
        """Multiplications and additions, positions over the padding counted too."""
        return 2 * self.n * self.p * self.q * self.k * self.tap_count * self.width

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return (self.n, self.h, self.w, self.c)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.n, self.p * self.cell[0], self.q * self.cell[1], self.k)

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        return (self.k, self.r, self.s, self.width)
