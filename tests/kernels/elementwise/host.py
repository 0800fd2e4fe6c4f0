"""Generated kernels on the host: g++ compiles the very source that NVRTC gets, with stand-ins for threads and blocks.

What runs is the kernel itself, vectors, tails, tiles and barriers included; only the conversions and functions that are
PTX on the GPU are C++ here.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tapestry.dtypes import numpy_dtype
from tapestry.kernels.elementwise.types import Layout

from .. import host_compiler

HERE = Path(__file__).resolve().parent
OPTIONS = (
    "-std=c++20",
    "-O1",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-w",
    "-fvisibility=hidden",
    f"-I{HERE}",
)
HEADER, MACHINE = HERE / "host_cuda.hpp", HERE / "host_cuda.cpp"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no host C++ compiler")

Array = NDArray[Any]
SENTINEL = 0xA5


class Unit(NamedTuple):
    """One kernel: its source, entry, launch, and the C++ types of its pointers."""

    source: str
    entry: str
    blocks: int
    threads: int
    parameters: int
    cluster: int = 1
    shared: int = 0


class HostTensor:
    """A tensor in memory as a layout says, embedded in bytes that must not change."""

    def __init__(self, layout: Layout, values: Array | None = None) -> None:
        self.layout = layout
        dtype = numpy_dtype(layout.dtype)
        reach = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)] if layout.elements else []
        below, above = -sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        lead = -(-below * dtype.itemsize // 64) * 64
        memory = np.full(lead + (above + 1) * dtype.itemsize + 256, SENTINEL, np.uint8)
        shift = -memory.ctypes.data % 64 + (layout.alignment if layout.alignment < 16 else 0)
        self.memory = memory[shift:]
        self.pointer = self.memory.ctypes.data + lead
        strides = [s * dtype.itemsize for s in layout.strides]
        base = self.memory[lead : lead + dtype.itemsize].view(dtype)
        bits = base.view(f"u{dtype.itemsize}")  # NumPy has no strided arrays of types that it does not know
        self.view = np.lib.stride_tricks.as_strided(bits, layout.shape, strides).view(dtype)
        if values is not None:
            self.view[...] = values

    def untouched(self) -> Array:
        """The bytes that belong to no element."""
        mask = HostTensor.__new__(HostTensor)
        mask.memory = np.ones_like(self.memory)
        lead, size = self.pointer - self.memory.ctypes.data, self.view.dtype.itemsize
        raw = mask.memory[lead : lead + 1]
        shape, strides = (*self.layout.shape, size), (*(s * size for s in self.layout.strides), 1)
        np.lib.stride_tricks.as_strided(raw, shape, strides)[...] = 0
        return self.memory[mask.memory == 1]


def build(units: Sequence[Unit]) -> ctypes.CDLL:
    """A library with ``host_ENTRY(pointers)`` for every kernel."""
    parts = []
    for unit in {unit.entry: unit for unit in units}.values():
        meeting = ("__syncthreads", "fold_", "lanes_with", "thin_", "few_queries")
        barriers = "true" if any(word in unit.source for word in meeting) else "false"
        cast = ", ".join(f"host::Pointer{{p[{k}]}}" for k in range(unit.parameters))
        parts.append(unit.source.replace("By_", f"{unit.entry}_By_"))  # each text declares its folds; here they are one
        parts.append(
            f'extern "C" __attribute__((visibility("default"))) void host_{unit.entry}(void** pointers) {{'
            f" host::run({{{unit.blocks}u, {unit.threads}u, {unit.cluster}u, {unit.shared}u, {barriers}}},"
            f" [](void** p) {{ tapestry::{unit.entry}({cast}); }}, pointers); }}\n"
        )
    machine, options = host_compiler.compiled(MACHINE, *OPTIONS), host_compiler.begun(HEADER, *OPTIONS)
    return host_compiler.library("".join(parts), *options, linked=[machine])


def run(library: ctypes.CDLL, unit: Unit, tensors: Sequence[HostTensor]) -> None:
    """Run a kernel to its end."""
    pointers = (ctypes.c_void_p * len(tensors))(*(tensor.pointer for tensor in tensors))
    getattr(library, f"host_{unit.entry}")(pointers)


def unit_of(kernel: Any) -> Unit:
    """What to build for a compiled elementwise kernel."""
    return Unit(kernel.source, kernel.entry, kernel.plan.blocks, kernel.plan.threads, len(kernel.operands) + 1)


def results(kernels: Sequence[Any], inputs: Mapping[str, Array]) -> list[HostTensor]:
    """The outputs of elementwise kernels; operands by name."""
    units = [unit_of(kernel) for kernel in kernels if kernel.plan]
    library = build(units)
    found = []
    for kernel in kernels:
        output = HostTensor(kernel.loop.output)
        operands = [HostTensor(layout, inputs[name]) for name, layout in kernel.loop.operands]
        if kernel.plan:
            run(library, unit_of(kernel), [*operands, output])
        found.append(output)
    return found
