"""The extension with a driver of Python's: launches compute on the CPU, at the addresses that they are told."""

from __future__ import annotations

import ctypes
import itertools
import math
from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tapestry.kernels.convolution.prepare import Steps
from tapestry.kernels.layers.fused import in_steps
from tapestry.kernels.normalization.batch_norm import gradient_workspace
from tapestry.kernels.runtime.array import DeviceArray
from tapestry.kernels.runtime.module import Described
from tapestry.kernels.tensors import (
    autograd,
    channel_sums,
    excitations,
    gelu_calls,
    layer_norm_calls,
    library,
    norm_library,
    norm_operators,
    operators,
    pool_calls,
    scale_calls,
    stem_calls,
)
from tapestry.kernels.tensors.fused_calls import Following
from tapestry.kernels.tensors.geometry import Geometry
from tapestry.kernels.tensors.norm_library import Norm

CONTEXT, STREAM = 0xC0, 0x5EED
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
# What computes operators of graphs where the extension knows no call.
BY_TORCH = (
    operators._cpu_lowered, autograd.backward_of, operators._cpu_gradients,
    norm_operators.norm_backward_of, layer_norm_calls.layer_norm_backward_of,
    excitations.squeeze_backward_of, excitations.excite_backward_of, stem_calls.first_backward_of,
    channel_sums.sums_of, norm_operators._cpu_lowered, norm_operators._cpu_gradient,
    scale_calls.scaled_sum_backward_of, gelu_calls.gelu_of, gelu_calls.gelu_gradient_of, pool_calls.pool_backward_of,
)  # fmt: skip
Kernel = Callable[..., None]


class Driver:
    """What the extension launches with. `ran` says who launched, `status` is what the next launches return."""

    def __init__(self) -> None:
        self.kernels: dict[int, Kernel] = {}
        self.ran: list[str] = []
        self.streams: list[int] = []
        self.pushed: list[int] = []
        self.status, self.context = 0, CONTEXT
        self._numbers = itertools.count(1)
        integer, handle = ctypes.c_int, ctypes.c_void_p
        pointer = ctypes.POINTER(handle)
        self._held = [
            ctypes.CFUNCTYPE(integer, handle, handle, pointer, handle)(self._launch),
            ctypes.CFUNCTYPE(integer, pointer)(self._current),
            ctypes.CFUNCTYPE(integer, handle)(self._push),
            ctypes.CFUNCTYPE(integer, pointer)(self._pop),
            ctypes.CFUNCTYPE(integer, ctypes.c_int32, pointer)(self._stream),
        ]

    @property
    def functions(self) -> tuple[int, ...]:
        """As the extension is given them."""
        return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._held)

    def add(self, kernel: Kernel) -> int:
        """A function's handle."""
        number = next(self._numbers)
        self.kernels[number] = kernel
        return number

    def _launch(self, configuration: int, function: int, parameters: Any, _: Any) -> int:
        if self.status:
            return self.status
        self.streams.append(ctypes.cast(configuration + 32, ctypes.POINTER(ctypes.c_uint64))[0])
        kernel, count = self.kernels[function], self.kernels[function].count  # type: ignore[attr-defined]
        values = [ctypes.cast(parameters[i], ctypes.POINTER(ctypes.c_uint64))[0] for i in range(count)]
        kernel(*values)
        self.ran.append("native")
        return 0

    def _current(self, found: Any) -> int:
        found[0] = self.context
        return 0

    def _push(self, context: int) -> int:
        self.pushed.append(context)
        return 0

    def _pop(self, found: Any) -> int:
        self.pushed.append(0)
        return 0

    def _stream(self, device: int, found: Any) -> int:
        found[0] = STREAM
        return 0


class Launch:
    """A prepared launch of a kernel that takes addresses."""

    def __init__(self, driver: Driver, kernel: Kernel, addresses: tuple[int, ...]) -> None:
        kernel.count = len(addresses)  # type: ignore[attr-defined]
        self.driver, self.kernel, self.words = driver, kernel, memoryview(array("Q", addresses))

    def launch(self, stream: int) -> None:
        assert stream == STREAM
        if self.driver.status:
            raise RuntimeError("refused, says Python")
        self.kernel(*self.words)
        self.driver.ran.append("python")

    def described(self) -> Described:
        attributes = bytes(72) if len(self.words) % 2 else b""
        offsets = tuple(range(0, 8 * len(self.words), 8))
        return Described(CONTEXT, self.driver.add(self.kernel), (1,) * 7, attributes, self.words, offsets)


def at(address: int, like: DeviceArray) -> Tensor:
    """The memory of an array, as torch has its shape."""
    dtype = DTYPES[like.dtype]
    steps = [step // dtype.itemsize for step in like.strides]
    reach = 1 + sum((extent - 1) * step for extent, step in zip(like.shape, steps, strict=True))
    return memory(address, (reach,), dtype).as_strided(like.shape, steps).permute(*_channels_first(like))


def _channels_first(like: DeviceArray) -> tuple[int, ...]:
    return (0, 3, 1, 2) if len(like.shape) == 4 else (0,)


class Prepare:
    """Stands in for `convolution.prepare`: launches that compute with torch, channels-last at their addresses."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def forward(self, problem: Any, x: DeviceArray, w: DeviceArray, out: DeviceArray, fused: Any, _: Any) -> Steps:
        there = [one is not None for one in fused[:3]]
        extras = [one for one in fused[:3] if one is not None]

        def kernel(image: int, taps: int, made: int, *added: int) -> None:
            given = iter(at(address, like) for address, like in zip(added, extras, strict=True))
            then = Following(*(next(given) if one else None for one in there), fused.activation or "")
            with torch.no_grad():
                if then.residual is None and then.scale is None and not then.activation:
                    found = library.forward(at(image, x), at(taps, w), then.bias, *_moved(problem))
                else:
                    found = in_steps(at(image, x), at(taps, w), then, Geometry(*_moved(problem)))
                at(made, out).copy_(found)

        return self._steps(kernel, x, w, out, *extras)

    def input_gradient(self, problem: Any, dy: DeviceArray, w: DeviceArray, out: DeviceArray, _: Any) -> Steps:
        def kernel(given: int, taps: int, made: int) -> None:
            shape = at(made, out).shape
            with torch.no_grad():
                found = library.input_gradient(at(given, dy), at(taps, w), shape, *_moved(problem))
                at(made, out).copy_(found)

        return self._steps(kernel, dy, w, out)

    def weight_gradient(
        self, problem: Any, x: DeviceArray, dy: DeviceArray, out: DeviceArray, dtype: str, room: Any, choice: Any
    ) -> Steps:
        assert dtype == out.dtype

        def kernel(image: int, given: int, made: int, *_: int) -> None:
            shape = at(made, out).shape
            with torch.no_grad():
                found = library.weight_gradient(at(image, x), at(given, dy), shape, *_moved(problem))
                at(made, out).copy_(found)

        return self._steps(kernel, x, dy, out, *([] if room is None else [room]))

    def _steps(self, kernel: Kernel, *operands: DeviceArray) -> Steps:
        made: Any = Launch(self.driver, kernel, tuple(operand.pointer for operand in operands))
        return Steps((made,))


def _moved(problem: Any) -> tuple[Any, ...]:
    return problem.stride, problem.padding, problem.dilation, problem.groups


def described(tensor: Tensor, name: str) -> DeviceArray:
    """What `runtime.array` says of a tensor on a GPU, of one on the CPU."""
    size, names = tensor.element_size(), {torch.uint8: "uint8", **{dtype: name for name, dtype in DTYPES.items()}}
    strides = tuple(size * step for step in tensor.stride())
    return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), strides, names[tensor.dtype], 0, "torch")


def memory(address: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """What lies at an address, dense."""
    size = math.prod(shape) * dtype.itemsize
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).view(shape)


def prepared_by(driver: Driver) -> Callable[..., list[Launch]]:
    """Stands in for preparing launches that are described as the addresses that are there or 0, and what is computed at
    such, of a kind."""

    def prepared(kind: Any, made: tuple[list[int], Callable[..., None]], device: int) -> list[Launch]:
        there, compute = made

        def kernel(*addresses: int) -> None:
            given = iter(addresses)
            with torch.no_grad():
                compute(kind, *[next(given) if one else 0 for one in there])

        return [Launch(driver, kernel, tuple(one for one in there if one))]

    return prepared


class Norms:
    """Stands in for the kernels of batch norms of images of one shape."""

    def __init__(self, driver: Driver, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.driver, self.shape, self.dtype, self.worked_in = driver, shape, dtype, 1

    def prepared(self, kind: Any, described: tuple[Any, ...], device: int) -> list[Launch]:
        plan, at, epsilon = described
        activation, there = plan.kind.activation, [address != 0 for address in at]
        self.worked_in = gradient_workspace(plan.cut)  # all of which is written: no less may be given
        own = DTYPES[plan.kind.parameters]
        compute = self._gradient if plan.momentum is None else self._forward

        def kernel(*addresses: int) -> None:
            found = iter(addresses)
            with torch.no_grad():
                compute([next(found) if one else 0 for one in there], epsilon, activation, plan.momentum, own)

        return [Launch(self.driver, kernel, tuple(address for address in at if address))]

    def _forward(self, at: list[int], epsilon: float, activation: str, momentum: float, own: torch.dtype) -> None:
        x, y, statistics, room, residual, weight, bias, mean, variance, batches = at
        norm = Norm(self._channels(weight, own), self._channels(bias, own), epsilon, activation)
        made, found = norm_library.forward(self._image(x), self._image(residual) if residual else None, norm)
        self._image(y).copy_(made)
        memory(statistics, (2, self.shape[1])).copy_(found)
        memory(room, (1,)).fill_(torch.nan)
        if mean:
            count = memory(batches, (1,), torch.int64).add_(1)
            share, values = 1 / int(count) if momentum < 0 else momentum, self.shape[0] * self.shape[2] * self.shape[3]
            for known, value, factor in zip((mean, variance), found, (1.0, values / (values - 1)), strict=True):
                kept = memory(known, (self.shape[1],), own)
                kept.copy_(kept.float().lerp(value * factor, share))

    def _gradient(self, at: list[int], epsilon: float, activation: str, _: None, own: torch.dtype) -> None:
        x, dy, dx, to_weight, to_bias, room, statistics, other, passed, weight, bias = at
        norm = Norm(self._channels(weight, own), self._channels(bias, own), epsilon, activation)
        told = memory(statistics, (2, self.shape[1]))
        kept = self._image(other) if other else None
        made = norm_library.gradient(self._image(x), self._image(dy), kept, told, norm)
        memory(room, (self.worked_in,)).fill_(torch.nan)
        for address, value in zip((to_weight, to_bias), made[1:3], strict=True):
            memory(address, (self.shape[1],), own).copy_(value)
        self._image(dx).copy_(made[0])
        if passed and made[3] is not None:
            self._image(passed).copy_(made[3])

    def _channels(self, address: int, own: torch.dtype) -> Tensor | None:
        return memory(address, (self.shape[1],), own) if address else None

    def _image(self, address: int) -> Tensor:
        n, c, h, w = self.shape
        return memory(address, (n, h, w, c), self.dtype).permute(0, 3, 1, 2)
