"""Calling a generated kernel: arrays checked against the layouts it was compiled for, then launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import WrongDevice, WrongDtype, WrongLayout, WrongShape, WrongType, WrongValue
from ..runtime.architecture import architecture
from ..runtime.array import DeviceArray, array
from ..runtime.compiler import Compiled, compile_source
from .types import Layout

Tensors = tuple[tuple[str, Layout], ...]


PORTABLE_CLUSTER = 8  # blocks of a cluster that every GPU with clusters takes


@dataclass(frozen=True)
class Launch:
    """What a launch needs beside its grid. ``alone``: one block a multiprocessor, so that what the blocks read again
    stays in the second cache. ``shared``: bytes of dynamic shared memory. ``cluster``: blocks of a cluster.
    """

    alone: bool = False
    shared: int = 0
    cluster: int = 1


class GeneratedKernel:
    """A kernel ``entry(operands..., outputs...)`` for arrays of fixed layouts, launched as ``blocks`` of ``threads``.

    ``source`` is empty where there is nothing to compute. ``name`` is what errors call it.
    """

    def __init__(
        self,
        name: str,
        entry: str,
        source: str,
        grid: tuple[int, int],
        operands: Tensors,
        outputs: Tensors,
        launch: Launch = Launch(),
    ) -> None:
        self.name, self.entry, self.source, self.needs = name, entry, source, launch
        self.blocks, self.threads = grid
        self._tensors, self._kernels = (*operands, *outputs), dict[int, Any]()
        self.operands = tuple(tensor for tensor, _ in operands)
        self.outputs = tuple(tensor for tensor, _ in outputs)

    def compiled(self, arch: str = "sm_90") -> Compiled:
        """The machine code and the compiler's report. `WrongValue` where there is nothing to compute."""
        if not self.source:
            raise WrongValue("without points there is no kernel", where=self.name)
        if self.needs.cluster > 1 and architecture(arch).number < 90:
            raise WrongDevice(
                "rows are spread over clusters of blocks", where=self.name, expected="sm_90 or newer", came=arch,
                hint="compile with cluster=1",
            )  # fmt: skip
        return compile_source(self.source, name=self.entry, arch=arch)

    def __call__(self, *arrays: Any, out: Any, stream: object = None) -> Any:
        """Compute ``out`` from the operands, asynchronously on the stream (the current one of the arrays' library).

        ``out`` is an array, or a tuple of them for several outputs; it is returned. Raises `WrongType`, `WrongDtype`,
        `WrongShape`, `WrongLayout`, `WrongDevice`.
        """
        device, pointers = self._checked(arrays, out)
        if self.source:
            self.on(device).launch(self.blocks, self.threads, pointers, self.shared(device), stream)
        return out

    def prepare(self, *arrays: Any, out: Any) -> Any:
        """The same launch, checked once: an object with ``launch(stream)``. It does not keep the arrays alive."""
        device, pointers = self._checked(arrays, out)
        return self.on(device).prepare(self.blocks, self.threads, pointers, self.shared(device))

    def shared(self, device: int) -> int:
        """Bytes of dynamic shared memory: as many as are used, or so many that no second block fits."""
        from ..runtime.device import properties

        return properties(device).shared_per_block * 7 // 8 if self.needs.alone else self.needs.shared

    def _checked(self, arrays: Sequence[Any], out: Any) -> tuple[int, list[int]]:
        """The device and the pointers."""
        targets = tuple(out) if isinstance(out, tuple | list) else (out,)
        if (len(arrays), len(targets)) != (len(self.operands), len(self.outputs)):
            expected = f"{len(self.operands)} ({', '.join(self.operands)}), out {', '.join(self.outputs)}"
            came = f"{len(arrays)}, out {len(targets)}"
            raise WrongType("wrong number of arrays", where=self.name, expected=expected, came=came)
        pairs = zip((*arrays, *targets), self._tensors, strict=True)
        given = [checked(x, layout, name, self.name) for x, (name, layout) in pairs]
        device = given[-1].device
        if any(x.device != device for x in given):
            raise WrongDevice("arrays on different GPUs", where=self.name, came=[x.device for x in given])
        return device, [x.pointer for x in given]

    def on(self, device: int) -> Any:
        """The kernel on a device, loaded at the first call (which cannot be captured in a graph)."""
        found = self._kernels.get(device)
        if found is None:
            from ..runtime.device import device_architecture
            from ..runtime.module import load

            found = load(self.compiled(device_architecture(device)), device)
            if self.needs.cluster > PORTABLE_CLUSTER:
                found.allow_large_clusters()
            self._kernels[device] = found
        return found


def checked(x: Any, layout: Layout, name: str, where: str) -> DeviceArray:
    """The array's memory, if it is as the layout says."""
    found = array(x, name)
    if found.dtype != layout.dtype and not (layout.dtype == "bf16" and found.dtype in ("int16", "uint16")):
        raise WrongDtype(f"{name} has the wrong element type", where=where, expected=layout.dtype, came=found.dtype)
    if found.shape != layout.shape:
        raise WrongShape(f"{name} has the wrong shape", where=where, expected=layout.shape, came=found.shape)
    size = layout.type.bytes
    for extent, step, wanted in zip(layout.shape, found.strides, layout.strides, strict=True):
        if extent > 1 and step != wanted * size:
            expected = tuple(size * stride for stride in layout.strides)
            raise WrongLayout(f"{name} has other strides", where=where, expected=expected, came=found.strides)
    if found.pointer % layout.alignment and found.elements:
        hint = "compile for a Layout with a smaller alignment"
        address = f"an address that is a multiple of {layout.alignment}"
        raise WrongLayout(f"{name} is not aligned", where=where, expected=address, came=hex(found.pointer), hint=hint)
    return found
