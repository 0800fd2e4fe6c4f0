"""The GPUs the cost model knows: the handful of numbers a prediction needs, from `data/gpus.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from ..runtime.device import DeviceProperties


@dataclass(frozen=True)
class Gpu:
    """A GPU as the cost model sees it. Bytes, bytes per second (a copy, read + write), hertz, seconds.

    `learned`: the measurements the model was trained on are this GPU's; for others it predicts by counting alone.
    """

    name: str
    sms: int
    shared_per_block: int
    l2_bytes: int
    copy_bytes_per_s: float
    clock_hz: float
    launch_s: float
    learned: bool

    def roofline_s(self, bytes_moved: float) -> float:
        """The least time in which `bytes_moved` pass the memory."""
        return bytes_moved / self.copy_bytes_per_s


@cache
def _known() -> dict[str, Gpu]:
    text = files(__package__).joinpath("data/gpus.json").read_text(encoding="utf-8")
    gpus = {}
    for entry in json.loads(text):
        token = entry.pop("token")
        del entry["source"]
        gpus[token] = Gpu(**entry, learned=token == "H200")
    return gpus


def known_gpu(name: str) -> Gpu | None:
    """The GPU whose name holds a known one's ("NVIDIA H200 SXM" is an H200), or None.

    >>> known_gpu("NVIDIA H200 SXM").sms, known_gpu("cpu")
    (132, None)
    """
    return next((gpu for token, gpu in _known().items() if token in name), None)


@cache
def described_gpu(properties: DeviceProperties) -> Gpu:
    """A GPU that is here. One we have no figures of is given those of an H200 in proportion to its multiprocessors."""
    known, model = known_gpu(properties.name), _known()["H200"]
    if known is None:
        share = properties.sms / model.sms
        known = replace(model, learned=False, copy_bytes_per_s=model.copy_bytes_per_s * share)
    return replace(
        known,
        name=properties.name,
        sms=properties.sms,
        shared_per_block=properties.shared_per_block,
        l2_bytes=properties.l2_bytes,
        learned=known.learned and properties.sms == known.sms,
    )
