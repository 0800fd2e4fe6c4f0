"""The GPUs of this process: what they are, and code for them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..errors import WrongDevice
from .architecture import target
from .bindings import nvrtc, runtime


@dataclass(frozen=True)
class DeviceProperties:
    """A GPU: multiprocessors, compute capability, and sizes in bytes.

    `shared_per_block` is what a block can have when it asks for it, `shared_per_sm` what all blocks of a
    multiprocessor share.
    """

    name: str
    capability: tuple[int, int]
    sms: int
    l2_bytes: int
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    threads_per_sm: int
    memory_bytes: int


def device_count() -> int:
    """How many GPUs this process sees. Raises `MissingGPU` where there is none."""
    return int(runtime().getDeviceCount())


def current_device() -> int:
    """The calling thread's device."""
    return int(runtime().getDevice())


@functools.cache
def properties(device: int = 0) -> DeviceProperties:
    """What a GPU is. Raises `WrongDevice` for a number that is not one of this process's devices."""
    if not 0 <= device < device_count():
        raise WrongDevice("no such device", expected=f"0 to {device_count() - 1}", came=device)
    found = runtime().getDeviceProperties(device)
    name = found["name"]
    return DeviceProperties(
        name=name.decode() if isinstance(name, bytes) else str(name),
        capability=(int(found["major"]), int(found["minor"])),
        sms=int(found["multiProcessorCount"]),
        l2_bytes=int(found["l2CacheSize"]),
        shared_per_block=int(found["sharedMemPerBlockOptin"]),
        shared_per_sm=int(found["sharedMemPerMultiprocessor"]),
        registers_per_sm=int(found["regsPerMultiprocessor"]),
        threads_per_sm=int(found["maxThreadsPerMultiProcessor"]),
        memory_bytes=int(found["totalGlobalMem"]),
    )


@functools.cache
def device_architecture(device: int = 0) -> str:
    """What to compile for a GPU with the compiler that is installed: `sm_90` on an H200."""
    return target(properties(device).capability, nvrtc().getSupportedArchs())
