"""Sums and maps of images, `normalization/images.py`, of channels-last torch tensors on CUDA as prepared calls.

Nothing here is differentiable. Tensors of images are [n, c, h, w] in memory of channels-last; numbers of images and
channels are dense, of the same type or f32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cost.gpu import tuned_gpu
from ..normalization import images, stretches
from ..normalization.images import ImageKind
from ..normalization.stretches import Cut, Launch
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, prepared

FEWEST_IMAGES = 8  # that were timed
WHOLE_IMAGES = 64  # from which on it is no matter into how many blocks an image can be cut

Call = Callable[..., tuple[Launch, ...]]
CALLS: dict[str, Call] = {  # of a cut and the addresses of operands, those that are written last
    "means": images.means,
    "squares": lambda cut, x, out, room=0: images.products(cut, x, x, out, room),
    "products": images.products,
    "both sums": images.both_sums,
    "scaled": lambda cut, x, gate, y: images.mapped(cut, x, gate, 0, y),
    "mapped": images.mapped,
    "shifted": lambda cut, x, gate, added, y: images.mapped(cut, x, gate, added, y, spread=False),
    "blended": images.blended,
}
SUMS = {"means": 1, "squares": 1, "products": 1, "both sums": 2}  # of each image, for which parts of it may need room
TOLD = ("means", "scaled", "products", "mapped")  # those that the extension repeats, in the order of its numbers


class _Known(NamedTuple):
    """A call: its launches, and the f32 that it works in."""

    launches: moving.Launches
    device: int
    room: int


_known: dict[tuple[Any, ...], _Known] = {}
_told: set[tuple[Any, ...]] = set()


def worth_it(x: Tensor) -> bool:
    """Whether there are as many images as a GPU is busy with; of few each has to be cut among blocks, or small."""
    n, channels, h, w = x.shape
    return FEWEST_IMAGES <= n <= stretches.MOST_BLOCKS and (n >= WHOLE_IMAGES or _is_cut(n, h * w, channels))


@lru_cache(maxsize=1024)
def _is_cut(count: int, pixels: int, channels: int) -> bool:
    if not pixels or not channels:
        return False
    at_once = stretches.RESIDENTS * tuned_gpu().sms
    cut = stretches.by_image(count, pixels, channels, stretches.vector_of(channels, "bf16"), at_once)
    return 2 * cut.blocks * cut.parts >= at_once or cut.stretch <= 2 * stretches.DEEP * cut.slots


def launched(what: str, x: Tensor, *rest: Tensor, numbers: torch.dtype | None = None) -> None:
    """Run one of the kernels on dense tensors, the first of them images; numbers are of their type unless given."""
    addresses = (x.data_ptr(), *[tensor.data_ptr() for tensor in rest])
    key = (what, x.shape, x.dtype, x.get_device(), numbers)
    found = _known.get(key)
    if found is None:
        native_calls.begin()
        if len(_known) >= REMEMBERED:
            _known.clear()
            _told.clear()
            native_calls.forget("images")
        found = _known[key] = _prepare(what, x, numbers or x.dtype, addresses)
    if found.room:
        room = torch.empty(found.room, dtype=torch.float32, device=x.device)
        addresses = (*addresses, room.data_ptr())
    found.launches.run(addresses, torch_stream(found.device))
    if native_calls.squeezed is not None and what in TOLD and numbers is None and key not in _told:
        _told.add(key)
        native_calls.learn_images(TOLD.index(what), x, found.room, found.launches)


def _prepare(what: str, x: Tensor, numbers: torch.dtype, addresses: tuple[int, ...]) -> _Known:
    from ..runtime.device import properties

    n, channels, h, w = x.shape
    kind, device = ImageKind.of(channels, DTYPES[x.dtype], DTYPES[numbers]), x.get_device()
    at_once = stretches.RESIDENTS * properties(device).sms
    cut: Cut = stretches.by_image(n, h * w, channels, kind.vector, at_once)
    room, call = images.room_of(cut, SUMS[what]) if what in SUMS else 0, CALLS[what]
    if room:
        addresses = (*addresses, torch.empty(room, dtype=torch.float32, device=x.device).data_ptr())
    launches = moving.launches(lambda at: prepared(kind, call(cut, *at), device), addresses)
    return _Known(launches, device, room)
