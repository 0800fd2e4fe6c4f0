"""Prepared calls of torch tensors repeated without Python, by an extension of torch that is compiled on the first use.

Until it is there, where it cannot be compiled, and for whatever it does not know, the path in Python is taken
(`autograd`, `channel_sums` and what is called `_calls` here), which prepares launches and tells the extension. Both
give the same bits. `TAPESTRY_NATIVE=off` leaves it out.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..errors import KernelError
from ..runtime import moving
from ..runtime.array import identities
from ..runtime.libcuda import driver_function
from .geometry import Geometry, packed

if TYPE_CHECKING:
    from ..runtime.module import Prepared

VARIABLE = "TAPESTRY_NATIVE"
Call = Literal[
    "norm", "norm_gradient", "layer_norm", "layer_norm_gradient", "scaled_sum", "scaled_sum_gradient", "gelu",
    "gelu_gradient", "followed", "pool", "recorded_pool", "pool_gradient",
]  # fmt: skip
Kind = Literal[
    "convolutions", "norms", "layer_norms", "firsts", "sums", "images", "scales", "gelus", "followers", "pools"
]  # of calls that are known
_DRIVER = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")

# convolve(x, w, bias, moved, groups): the result, or None where Python is to compute it. None until it is there.
convolve: Callable[[Tensor, Tensor | None, Tensor | None, int, int], Tensor | None] | None = None
# fused(x, w, scale, bias, residual, activation, moved, groups): likewise, of a convolution and what follows it.
fused: Callable[..., Tensor | None] | None = None
# norm(x, residual, weight, bias, mean, variance, batches, setting, momentum): likewise, of a batch norm.
norm: Callable[..., Tensor | None] | None = None
# layer_norm(x, weight, bias, epsilon, first, read_lowered): likewise, of a layer norm.
layer_norm: Callable[..., Tensor | None] | None = None
# squeezed(x), excited(x, gate, link): likewise, as `models/excitations` has them.
squeezed: Callable[[Tensor], tuple[Tensor, Tensor, Any] | None] | None = None
excited: Callable[[Tensor, Tensor, Any], Tensor | None] | None = None
# first(x, w, bias, form): likewise, of a first layer over blocks of pixels.
first: Callable[[Tensor, Tensor, Tensor | None, int], Tensor | None] | None = None
# linked(y, bias, last): likewise, as `layers/biases` has it.
linked: Callable[[Tensor, Tensor, bool], Tensor | None] | None = None
# biased_linear(x, weight, bias): likewise.
biased_linear: Callable[[Tensor, Tensor | None, Tensor | None], Tensor | None] | None = None
# biased_convolution(x, weight, bias, stride, padding, dilation, groups), each of the three two numbers: likewise.
biased_convolution: Callable[..., Tensor | None] | None = None
# scaled_sum(x, gamma, residual, factors): likewise, as `scale_calls` has it.
scaled_sum: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor | None] | None = None
# gelu(x): likewise, behind layers whose biases learn.
gelu: Callable[[Tensor], Tensor | None] | None = None
# followed(x, out, scale, bias, residual, activation, last): likewise, as `following_calls` has it.
followed: Callable[..., Tensor | None] | None = None
# pooled(x, setting): likewise, as `pool_calls` has it.
pooled: Callable[[Tensor, int], Tensor | None] | None = None
CALLS = (
    "convolve", "fused", "norm", "layer_norm", "squeezed", "excited", "first", "linked", "biased_linear",
    "biased_convolution", "scaled_sum", "gelu", "followed", "pooled",
)  # fmt: skip
_extension: Any = None
_lock = threading.Lock()
_begun = _taken = False
_thread: threading.Thread | None = None
_state = "not asked for"


def state() -> str:
    """Whether calls go past Python, in words."""
    return _state


def wait() -> str:
    """The `state` once there is nothing more to wait for."""
    begin()
    if _thread is not None:
        _thread.join()
    return _state


def begin() -> None:
    """Load the extension, or have it compiled by a thread beside the caller; at the first call."""
    global _begun, _state, _thread
    with _lock:
        if _begun:
            return
        _begun = True
    if os.environ.get(VARIABLE) == "off":
        _state = f"off, by {VARIABLE}"
        return
    from . import extension

    _state = "being compiled"
    image = extension.kept()
    if image is not None:
        _serve(lambda: image)
    else:  # a daemon: a program that ends does not wait for what it no longer needs
        _thread = threading.Thread(target=_serve, args=(extension.made,), name="tapestry-native", daemon=True)
        _thread.start()


def _serve(image: Callable[[], bytes]) -> None:
    global _state
    from .extension import NotBuilt, loaded

    try:
        functions = _functions()
        serve(loaded(image()), "cuda", functions)
    except (NotBuilt, KernelError, OSError, AttributeError) as error:
        _state = f"off: {error}"


def _functions() -> tuple[int, ...]:
    """Addresses of the driver's functions and of what gives torch's current stream."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    found: list[Any] = [*map(driver_function, _DRIVER), library.aoti_torch_get_current_cuda_stream]
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)


def serve(extension: Any, device: str, functions: tuple[int, ...]) -> None:
    """Have an extension make the calls of tensors on a kind of device from here on."""
    global _extension, _state
    from .autograd import backward_of
    from .channel_sums import sums_of
    from .excitations import excite_backward_of, squeeze_backward_of
    from .gelu_calls import gelu_gradient_of, gelu_of
    from .layer_norm_calls import layer_norm_backward_of
    from .norm_operators import lowered_norm, lowered_norm_gradients, norm_backward_of
    from .operators import lowered_forward, lowered_gradients
    from .pool_calls import pool_backward_of
    from .scale_calls import scaled_sum_backward_of
    from .stem_calls import first_backward_of

    convolutions, norms = (lowered_forward, backward_of, lowered_gradients), (norm_backward_of, layer_norm_backward_of)
    rest = (squeeze_backward_of, excite_backward_of, first_backward_of, sums_of, lowered_norm, lowered_norm_gradients)
    last = (scaled_sum_backward_of, gelu_of, gelu_gradient_of, pool_backward_of)
    extension.serve(device, functions, *convolutions, *norms, *rest, *last)
    for kind in (Tensor, torch.nn.Parameter):
        identities[kind] = extension.identity
    globals().update({name: getattr(extension, name) for name in CALLS})
    _extension, _state = extension, "ready"


def take_over() -> None:
    """Have the extension compute the operators of torch.compile's graphs, once it is there.

    This is called where one of them is being computed, as torch does not expect others to run while it is changed.
    """
    global _taken
    if _extension is None or _taken:
        return
    with _lock:
        if not _taken:
            _taken = True
            _extension.take_over()


def forget(what: Kind = "convolutions") -> None:
    """Of no call of a kind anything is known any more."""
    if _extension is not None:
        getattr(_extension, f"forget_{what}")()


def tried(x: Tensor, w: Tensor | None, bias: Tensor | None, moved: int | None, groups: int) -> Tensor | None:
    """conv(x, w) + bias with autocast and autograd, where the extension knows the call; `moved` is a packed number."""
    return None if convolve is None or moved is None else convolve(x, w, bias, moved, groups)


def repeated(launches: Sequence[Prepared]) -> Callable[[int], int] | None:
    """What queues launches on a stream and returns the driver's error, where the extension is there."""
    if _extension is None:
        return None
    made: Callable[[int], int] = _extension.repeated(moving.described(launches))
    return made


def learn_forward(
    x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, geometry: Geometry, launches: moving.Launches
) -> None:
    """Tell of a forward pass that was prepared for operands like these."""
    number = packed(*geometry[:3])
    if number is not None and isinstance(launches, moving.Moving):
        _extension.add_forward(x, w, bias, number, geometry.groups, _description((out,), 0, launches))


def learn_fused(call: tuple[Any, ...], geometry: Geometry, out: Tensor, launches: moving.Launches) -> None:
    """The same of one that something follows, by its operands and activation."""
    number = packed(*geometry[:3])
    if number is not None and isinstance(launches, moving.Moving):
        _extension.add_fused(*call, number, geometry.groups, _description((out,), 0, launches))


def learn_gradients(
    operands: tuple[Tensor, Tensor, Tensor], made: tuple[Tensor, Tensor], room: int, geometry: Geometry,
    launches: moving.Launches,
) -> None:  # fmt: skip
    """The same of both gradients of x, dy, w, by way of `room` bytes of workspace."""
    number = packed(*geometry[:3])
    if number is not None and isinstance(launches, moving.Moving):
        wide = made[1].dtype is torch.float32
        words = _description(made, room, launches)
        _extension.add_gradients(*operands, wide, number, geometry.groups, words)


def name_setting(number: int, epsilon: float, activation: str) -> None:
    """Tell what the number of a norm's setting says."""
    _extension.name_setting(number, epsilon, activation)


def learn(
    what: Call, call: tuple[Any, ...], room: int, launches: moving.Launches | None, made: Sequence[Tensor] = ()
) -> None:
    """Tell of a call of a norm, a layer scale or the like: by what it is known, the f32 numbers that it works in, and
    its results, where these are not like what it is given.
    """
    if isinstance(launches, moving.Moving):
        getattr(_extension, f"add_{what}")(*call, _description(made, room, launches))


class Teller:
    """What a plan has told the extension of: each kind of its calls once."""

    def __init__(self) -> None:
        self._told: set[Call] = set()

    def tell(
        self, what: Call, call: tuple[Any, ...], room: int, launches: moving.Launches, made: Sequence[Tensor] = ()
    ) -> None:
        """Have the extension make such calls from here on, if it is there."""
        if convolve is not None and what not in self._told:
            self._told.add(what)
            learn(what, call, room, launches, made)


def learn_images(what: int, x: Tensor, room: int, launches: moving.Launches) -> None:
    """Tell of a call of images like x, by its number and the f32 that it works in."""
    if isinstance(launches, moving.Moving):
        _extension.add_images(what, x, _description((), room, launches))


def learn_sums(x: Tensor, channels: int, room: int, launches: moving.Launches) -> None:
    """Tell of a sum of tensors like x by channel, by way of `room` f32."""
    if isinstance(launches, moving.Moving):
        _extension.add_sums(x, channels, _description((), room, launches))


def learn_first(
    x: Tensor, w: Tensor, bias: Tensor | None, made: tuple[Tensor, Tensor, Tensor], form: int, launches: moving.Launches
) -> None:
    """Tell of a first layer: its operands, the blocks, the filter over them and the result, and its form's number."""
    if isinstance(launches, moving.Moving):
        _extension.add_first(x, w, bias, made[0], form, _description(made, 0, launches))


def learn_first_gradient(
    images: Tensor, dy: Tensor, made: tuple[Tensor, Tensor], room: int, form: int, launches: moving.Launches
) -> None:
    """The same of the gradient of its filter, over blocks and then itself, by way of `room` bytes of workspace."""
    if isinstance(launches, moving.Moving):
        wide = made[1].dtype is torch.float32
        _extension.add_first_gradient(images, dy, wide, form, _description(made, room, launches))


def _description(made: Sequence[Tensor], room: int, launches: moving.Moving) -> bytes:
    """A call as `native/plans.h` reads it: its results, workspace, launches."""
    results = [word for tensor in made for word in (*tensor.shape, *tensor.stride(), tensor.dtype is torch.float32)]
    return struct.pack(f"<{len(results) + 2}q", len(made), *results, room) + launches.described()
