"""Convolutions by cuDNN, on arrays as they lie.

Its functions of old take arrays with many steps, a stream, and memory to work in, so that little is copied, and nothing
is allocated while a step runs. What they do not take goes by way of a copy (`dense`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import name_of
from ...kernels.errors import LaunchError
from ..device import Runner, in_order
from .arrays import DeviceArray
from .dense import Asked, dense_steps
from .machine import Convolution, Strided, Window
from .orders import Order, Orders

if TYPE_CHECKING:
    from .cuda import CudaMachine
    from .scratch import Scratch

# cudnnDataType_t, cudnnMathType_t, cudnnTensorFormat_t and so on, as the headers of cuDNN 9 number them.
TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
FMA_MATH, TENSOR_MATH = 3, 1
CROSS_CORRELATION = 1
# Algorithms that go by Fourier transforms, whose roundings are of the largest value, not of each one.
TRANSFORMS = {"y": (4, 5), "x": (2, 3), "w": (2, 6)}
# Those of Winograd. Of f32 and windows of 3 x 3 they err by 1e-6 to 1e-5 of the result, as sums of 200 products and
# more may; of windows of 5 x 5 by 2e-3 (H200, cuDNN 9, 2026-11-22).
WINOGRAD = {"y": (6, 7), "x": (4, 5), "w": (4, 5)}
WINOGRAD_WINDOW, WINOGRAD_TERMS = (3, 3), 256
PASSES = {"y": "Forward", "x": "BackwardData", "w": "BackwardFilter"}
OPERANDS = {"y": "xw", "x": "wy", "w": "xy"}
MOST_ALGORITHMS = 8
# Memory of a lane that algorithms may ask for. What the heuristics of torch allow is far more.
WORKSPACE = 256 << 20
ROUNDS = 3  # of measuring every algorithm: others may be at work on the GPU, and one round each has chosen slow ones
ALIGNED = 16


class Rated(ctypes.Structure):
    """cudnnConvolution*AlgoPerf_t: an algorithm, how long it took, and what it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("milliseconds", ctypes.c_float),
        ("nbytes", ctypes.c_size_t), ("same_bits", ctypes.c_int), ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )  # fmt: skip


@dataclass(frozen=True)
class Way:
    """An algorithm, the units that it goes by, and the bytes that it works in."""

    algorithm: int
    math: int
    nbytes: int


class Cudnn:
    """The library, and its answers to which algorithm is the quickest: measured once for every shape."""

    def __init__(self, library: ctypes.CDLL, machine: CudaMachine) -> None:
        self.library, self.machine = library, machine
        self.handle = ctypes.c_void_p()
        self._demand("cudnnCreate", ctypes.byref(self.handle))
        self.stream: int | None = None
        self.ways: dict[Any, Way | None] = {}
        self.orders = Orders(machine)

    @classmethod
    def found(cls, machine: CudaMachine) -> Cudnn | None:
        """None where there is no cuDNN."""
        library = _library()
        return None if library is None else cls(library, machine)

    def prepared(self, convolution: Convolution, scratch: Scratch) -> Runner | None:
        """Ask for a convolution, on the stream that is current then; None where cuDNN takes none such."""
        dtypes = {name_of(one.array.dtype) for one in (convolution.x, convolution.w, convolution.y)}
        if len(dtypes) > 1 or not dtypes <= set(TYPES) or convolution.groups > 1:
            return None
        convolution = _of_planes(convolution)
        for order in self.orders.of(convolution, partial(self._made, scratch), scratch):
            # Extents that no descriptor holds, and copies that there is no room for, are left to other kernels.
            with contextlib.suppress(LaunchError, MemoryError):
                made = self._made(scratch, convolution, order)
                if made is not None:
                    return made
        return None

    def _made(self, scratch: Scratch, convolution: Convolution, order: Order) -> Runner | None:
        """A call, with its copies; None where cuDNN takes none such."""
        asked = Asked(
            self.machine, convolution, scratch.bytes, order.layout, packed=order.packed, channels=order.channels
        )
        narrow = name_of(convolution.x.array.dtype) in ("f16", "bf16")
        if narrow and any(address % ALIGNED for address in asked.addresses):
            return None
        call = _Call(self, asked.convolution, order.layout)
        way = self._way(call, scratch.most(WORKSPACE))
        return None if way is None else in_order([*asked.before, call.bound(way, scratch.bytes), *asked.after])

    def _way(self, call: _Call, most: int) -> Way | None:
        """The quickest that works in so many bytes at most."""
        if (call.key, most) not in self.ways:
            self.ways[call.key, most] = call.quickest(most)
        return self.ways[call.key, most]

    def on_stream(self, stream: int) -> ctypes.c_void_p:
        """The handle, whose calls go to a stream."""
        if stream != self.stream:
            self._demand("cudnnSetStream", self.handle, ctypes.c_void_p(stream))
            self.stream = stream
        return self.handle

    def _demand(self, function: str, *arguments: Any) -> None:
        demanded(getattr(self.library, function)(*arguments), function)

    def close(self) -> None:
        """Give the handle back."""
        self.library.cudnnDestroy(self.handle)


class _Call:
    """A convolution that cuDNN takes, as its descriptors."""

    def __init__(self, cudnn: Cudnn, convolution: Convolution, layout: int) -> None:
        self.cudnn, self.convolution, self.layout = cudnn, convolution, layout
        self.dtype = name_of(convolution.x.array.dtype)
        c = convolution
        self.steps = {name: _plain(one, layout) for name, one in (("x", c.x), ("y", c.y))}
        extents = (c.x.extents, c.w.extents, c.y.extents)
        self.key = (c.computed, self.dtype, layout, extents, c.windows, tuple(self.steps.items()))
        described = {"x": self._tensor("x", c.x), "w": self._filter(), "y": self._tensor("y", c.y)}
        self.through = self._convolution()
        self._by(FMA_MATH if self.dtype in ("f32", "f64") else TENSOR_MATH)
        self.of = [described[name] for name in OPERANDS[c.computed]]
        self.into = described[c.computed]

    def _made(self, kind: str, settings: str, *arguments: Any) -> ctypes.c_void_p:
        """A descriptor. There are few, and they last as long as the process."""
        library, found = self.cudnn.library, ctypes.c_void_p()
        demanded(getattr(library, f"cudnnCreate{kind}Descriptor")(ctypes.byref(found)), f"cudnnCreate{kind}Descriptor")
        demanded(getattr(library, settings)(found, *arguments), settings)
        return found

    def _tensor(self, name: str, one: Strided) -> ctypes.c_void_p:
        sizes = [_integers(one.extents), _integers(self.steps[name])]
        return self._made("Tensor", "cudnnSetTensorNdDescriptor", TYPES[self.dtype], len(one.extents), *sizes)

    def _filter(self) -> ctypes.c_void_p:
        extents = self.convolution.w.extents
        given = (TYPES[self.dtype], self.layout, len(extents), _integers(extents))
        return self._made("Filter", "cudnnSetFilterNdDescriptor", *given)

    def _convolution(self) -> ctypes.c_void_p:
        windows = self.convolution.windows
        counts = [_integers([getattr(w, name) for w in windows]) for name in ("before", "stride", "dilation")]
        wide = TYPES["f64" if self.dtype == "f64" else "f32"]
        settings = (len(windows), *counts, CROSS_CORRELATION, wide)
        return self._made("Convolution", "cudnnSetConvolutionNdDescriptor", *settings)

    def _by(self, math: int) -> None:
        """Which units may be used: of f32, none that round operands."""
        demanded(self.cudnn.library.cudnnSetConvolutionMathType(self.through, math), "cudnnSetConvolutionMathType")

    def quickest(self, most: int) -> Way | None:
        """Of the algorithms that give the same bits every time, are exact enough and work in so many bytes at most:
        measured, or guessed where there is no memory to.
        """
        name = PASSES[self.convolution.computed]
        measured, guessed = f"cudnnFindConvolution{name}Algorithm", f"cudnnGetConvolution{name}Algorithm_v7"
        rounds = (self._rated(measured) for _ in range(ROUNDS))
        for one in chain(by_least_time(chain.from_iterable(rounds)), self._rated(guessed)):
            way = self._way(one, most)
            if way is not None:
                return way
        return None

    def _way(self, one: Rated, most: int) -> Way | None:
        """None for an algorithm that may not be, or is not to be had."""
        if one.status or one.same_bits != 1 or not exact_enough(one.algorithm, self.convolution):
            return None
        self._by(one.math)
        size, (a, b) = ctypes.c_size_t(), self.of
        function = f"cudnnGetConvolution{PASSES[self.convolution.computed]}WorkspaceSize"
        status = getattr(self.cudnn.library, function)(
            self.cudnn.handle, a, b, self.through, self.into, one.algorithm, ctypes.byref(size)
        )
        return None if status or size.value > most else Way(one.algorithm, one.math, size.value)

    def _rated(self, function: str) -> list[Rated]:
        found, count = (Rated * MOST_ALGORITHMS)(), ctypes.c_int()
        a, b = self.of
        status = getattr(self.cudnn.library, function)(
            self.cudnn.on_stream(self.cudnn.machine.stream), a, b, self.through, self.into, MOST_ALGORITHMS,
            ctypes.byref(count), found,
        )  # fmt: skip
        return [] if status else list(found[: count.value])

    def bound(self, way: Way, take: Callable[[int], DeviceArray]) -> Runner:
        """The call itself."""
        self._by(way.math)
        space = take(way.nbytes) if way.nbytes else None
        scalars = np.array([1, 0], np.float64 if self.dtype == "f64" else np.float32)
        one = scalars.ctypes.data
        parts = {"x": self.convolution.x, "w": self.convolution.w, "y": self.convolution.y}
        (a, b), (a_at, b_at) = self.of, (_address(parts[name]) for name in OPERANDS[self.convolution.computed])
        arguments = (
            ctypes.c_void_p(one), a, a_at, b, b_at, self.through, way.algorithm,
            ctypes.c_void_p(space.pointer if space else 0), ctypes.c_size_t(way.nbytes),
            ctypes.c_void_p(one + scalars.itemsize), self.into, _address(self.convolution.result),
        )  # fmt: skip
        function = f"cudnnConvolution{PASSES[self.convolution.computed]}"
        call = getattr(self.cudnn.library, function)
        return _Prepared(self.cudnn, function, call, arguments, (scalars, space, parts))


@dataclass(frozen=True)
class _Prepared:
    """A call with its arguments. ``held`` is what they point to, kept alive."""

    cudnn: Cudnn
    function: str
    call: Any
    arguments: tuple[Any, ...]
    held: tuple[object, ...]

    def __call__(self) -> None:
        handle = self.cudnn.on_stream(self.cudnn.machine.stream)
        demanded(self.call(handle, *self.arguments), self.function)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The function of the library."""
        return (self.function,)


def by_least_time(measured: Iterable[Rated]) -> list[Rated]:
    """Each algorithm, with the units that it goes by, at the least time that was seen of it; the quickest first."""
    least: dict[tuple[int, int], Rated] = {}
    for one in measured:
        known = least.setdefault((one.algorithm, one.math), one)
        if known.status or (not one.status and one.milliseconds < known.milliseconds):
            least[one.algorithm, one.math] = one
    return sorted(least.values(), key=lambda one: one.milliseconds)


def exact_enough(algorithm: int, c: Convolution) -> bool:
    """Whether an algorithm rounds as sums of products in any order may."""
    if algorithm in TRANSFORMS[c.computed]:
        return False
    if algorithm not in WINOGRAD[c.computed]:
        return True
    taps = c.w.extents[2:]
    folded = {"y": c.w.extents[1:], "x": (c.w.extents[0], *taps), "w": (c.y.extents[0], *c.y.extents[2:])}
    single = name_of(c.x.array.dtype) == "f32"
    return single and taps == WINOGRAD_WINDOW and prod(folded[c.computed]) >= WINOGRAD_TERMS


def _of_planes(c: Convolution) -> Convolution:
    """A convolution along one direction as one along two."""
    if len(c.windows) > 1:
        return c
    x, w, y = (replace(one, extents=(*one.extents, 1), steps=(*one.steps, 1)) for one in (c.x, c.w, c.y))
    return replace(c, x=x, w=w, y=y, windows=(*c.windows, Window(1, 1, 0, 0)))


def _plain(one: Strided, layout: int) -> tuple[int, ...]:
    """The steps; of axes of one element, which take none, those of dense elements."""
    dense = dense_steps(one.extents, layout)
    return tuple(b if n == 1 else a for n, a, b in zip(one.extents, one.steps, dense, strict=True))


def _integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _address(one: Strided) -> ctypes.c_void_p:
    return ctypes.c_void_p(one.array.pointer + one.offset * one.array.dtype.itemsize)


def demanded(status: int, function: str) -> None:
    """Raise LaunchError unless cuDNN was content."""
    if status:
        raise LaunchError(f"cuDNN refused: status {status}", where=function)


def _library() -> ctypes.CDLL | None:
    """cuDNN where the loader finds it, or as its package for Python (which torch brings) has it."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libcudnn.so.9")
    with contextlib.suppress(OSError, ModuleNotFoundError):
        spec = importlib.util.find_spec("nvidia.cudnn")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            return ctypes.CDLL(str(Path(place) / "lib" / "libcudnn.so.9"))
    return None
