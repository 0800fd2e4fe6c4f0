"""The hardware numbers: GPUs, and constants fitted to their times, from `data/gpus.json`, where each stands once.

Every number there has a unit, a source and a date. What a device reports of itself takes the place of what is written
(`described_gpu`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from ..runtime.device import DeviceProperties

T = TypeVar("T")
WARPGROUP_PRODUCTS = (9, 0)  # the compute capability that has them
# What is the same of GPUs whose multiprocessors are.
MULTIPROCESSORS = (
    "sms", "clustered_sms", "clusters", "shared_per_block", "shared_per_sm", "registers_per_sm", "threads_per_sm",
    "warpgroup_products",
)  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """A GPU as the cost model sees it. Bytes, bytes per second (a copy, read + write), hertz, seconds.

    `clustered_sms`: multiprocessors that large clusters of blocks can have, of which each lies in one part of the GPU.
    `clusters`: how many of 2 blocks run at once where a multiprocessor has one block, how many of 3, and so on.
    `clock_hz` is what the device reports, `sustained_clock_hz` what remains while its tensor cores work. `tuned`: the
    kernels were tuned and the model was trained on this GPU; of others it predicts by counting alone (but see
    `measured_as`).
    `warpgroup_products`: its tensor cores multiply for four warps at once, with an operand in shared memory (`wgmma`).
    """

    name: str
    sms: int
    clustered_sms: int
    clusters: tuple[int, ...]
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    threads_per_sm: int
    l2_bytes: int
    copy_bytes_per_s: float
    clock_hz: float
    sustained_clock_hz: float
    launch_s: float
    warpgroup_products: bool
    tuned: bool

    def clusters_of(self, blocks: int) -> int:
        """Clusters of so many blocks that run at once where a multiprocessor has one block."""
        return self.clusters[blocks - 2] if 2 <= blocks < len(self.clusters) + 2 else 0

    def roofline_s(self, bytes_moved: float) -> float:
        """The least time in which `bytes_moved` pass the memory."""
        return bytes_moved / self.copy_bytes_per_s


@cache
def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files(__package__).joinpath("data/gpus.json").read_text(encoding="utf-8"))
    return found


def _values(entry: dict[str, Any]) -> dict[str, Any]:
    values = ((name, number["value"]) for name, number in entry["numbers"].items())
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values}


@cache
def _known() -> dict[str, Gpu]:
    gpus = _document()["gpus"]
    return {token: Gpu(entry["name"], **_values(entry), tuned=entry["tuned"]) for token, entry in gpus.items()}


@cache
def tuned_gpu() -> Gpu:
    """The GPU that the kernels were tuned on. Choices that have to be alike on every GPU are made for this one."""
    return next(gpu for gpu in _known().values() if gpu.tuned)


@cache
def measured_as(gpu: Gpu) -> Gpu:
    """The GPU whose measured times say what is fastest on this one.

    That is the tuned one where multiprocessors, and how many there are, are the same, as an H100's and an H200's are:
    slower memory stretches what is compared alike, or not at all. Else itself, of which the model counts.

    >>> [measured_as(gpu).name for name in ("H100", "A100") if (gpu := known_gpu(name))]
    ['NVIDIA H200', 'NVIDIA A100']
    """
    model = tuned_gpu()
    return model if all(getattr(gpu, name) == getattr(model, name) for name in MULTIPROCESSORS) else gpu


def fitted(kind: type[T], name: str) -> T:
    """The constants of a fit, as a dataclass whose fields are their names. Raises TypeError where those differ."""
    return kind(**_values(_document()["fits"][name]))


def known_gpu(name: str) -> Gpu | None:
    """The GPU whose name holds a known one's ("NVIDIA H200 SXM" is an H200), or None.

    >>> known_gpu("NVIDIA H200 SXM").name, known_gpu("cpu")
    ('NVIDIA H200', None)
    """
    return next((gpu for token, gpu in _known().items() if token in name), None)


@cache
def described_gpu(properties: DeviceProperties) -> Gpu:
    """A GPU that is here. One we have no figures of is given the tuned one's, in proportion to its multiprocessors."""
    known, model = known_gpu(properties.name), tuned_gpu()
    if known is None:
        share = properties.sms / model.sms
        known = replace(model, tuned=False, copy_bytes_per_s=model.copy_bytes_per_s * share)
    return replace(
        known,
        name=properties.name,
        sms=properties.sms,
        clustered_sms=properties.sms * known.clustered_sms // known.sms,
        clusters=tuple(properties.sms * count // known.sms for count in known.clusters),
        shared_per_block=properties.shared_per_block,
        l2_bytes=properties.l2_bytes,
        shared_per_sm=properties.shared_per_sm,
        registers_per_sm=properties.registers_per_sm,
        threads_per_sm=properties.threads_per_sm,
        warpgroup_products=properties.capability == WARPGROUP_PRODUCTS,
        tuned=known.tuned and properties.sms == known.sms,
    )
