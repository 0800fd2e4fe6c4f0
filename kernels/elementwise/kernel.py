"""Elementwise kernels to call: a map in, a callable on GPU arrays out.

    kernel = compile_map(operation, {"a": Layout.contiguous("f16", (n, d)), "b": ..., "out": ...})
    kernel(a, b, out=y)                        # arrays of any library, on the caller's stream

The callable checks what it is given against what it was compiled for. The output may be one of the operands if every
point reads that operand only at the element it writes; otherwise it must not overlap an operand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...expr import Affine, Bound, Expr
from ..errors import WrongDevice, WrongDtype, WrongLayout, WrongShape, WrongType, WrongValue
from ..runtime.array import DeviceArray, array
from ..runtime.compiler import Compiled, compile_source
from .loop import Loop, build_loop, footprint
from .plan import Plan, make_plan
from .shard import localised
from .source import source
from .types import Layout, Primitive


class ElementwiseKernel:
    """A compiled map. ``operands`` are the tensors it reads, in the order the call takes them.

    Call ``kernel(*arrays, out=array, stream=None)``; arrays need the layouts it was compiled for. Raises `WrongType`,
    `WrongDtype`, `WrongShape`, `WrongLayout`, `WrongDevice`.
    """

    def __init__(self, name: str, entry: str, loop: Loop, plan: Plan | None) -> None:
        self.name, self.entry, self.loop, self.plan = name, entry, loop, plan
        self.operands = tuple(tensor for tensor, _ in loop.operands)
        self.source = source(plan, entry) if plan else ""
        self._kernels: dict[int, Any] = {}

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written once: what a copy of as many would move."""
        return sum(footprint(self.loop))

    def compiled(self, arch: str = "sm_90") -> Compiled:
        """The machine code and the compiler's report. `WrongValue` for a map without points."""
        if self.plan is None:
            raise WrongValue("a map without points has no kernel", where=self.name)
        return compile_source(self.source, name=self.entry, arch=arch)

    def __call__(self, *arrays: Any, out: Any, stream: object = None) -> Any:
        """Compute ``out`` from the operands, asynchronously on the stream. Returns ``out``."""
        if len(arrays) != len(self.operands):
            expected = f"{len(self.operands)}: {', '.join(self.operands) or 'none'}"
            raise WrongType("wrong number of operands", where=self.name, expected=expected, came=len(arrays))
        given = [
            checked(x, layout, tensor, self.name)
            for x, (tensor, layout) in zip(arrays, self.loop.operands, strict=True)
        ]
        target = checked(out, self.loop.output, "out", self.name)
        for tensor, x in zip(self.operands, given, strict=True):
            if x.device != target.device:
                raise WrongDevice(f"{tensor} and out are on different GPUs", where=self.name, came=x.device)
        if self.plan is not None:
            pointers = [x.pointer for x in (*given, target)]
            self._on(target.device).launch(self.plan.blocks, self.plan.threads, pointers, stream=stream)
        return out

    def _on(self, device: int) -> Any:
        """The kernel on a device."""
        if device not in self._kernels:
            from ..runtime.module import load

            self._kernels[device] = load(self.compiled(device_arch(device)), device)
        return self._kernels[device]


def device_arch(device: int) -> str:
    """The architecture to compile for."""
    from ..runtime.device import device_architecture

    return device_architecture(device)


def checked(x: Any, layout: Layout, name: str, where: str) -> DeviceArray:
    """The array's memory, if it is as the layout says."""
    found = array(x, name)
    if found.dtype != layout.dtype and not (found.itemsize == 2 and layout.dtype == "bf16" and "int" in found.dtype):
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


def compile_map(
    operation: Primitive,
    layouts: Mapping[str, Layout],
    *,
    points: Mapping[str, range] | None = None,
    origins: Mapping[str, Sequence[int]] | None = None,
    vector: int | None = None,
    unroll: int | None = None,
) -> ElementwiseKernel:
    """The kernel of an operation without reduction, for arrays of these layouts (operands and output by name).

    ``points`` restricts dimensions to ranges (a shard); ``origins`` says where arrays that hold parts of tensors begin
    (see `localised`). Nothing needs a GPU before the kernel is called. Raises `WrongValue`, `WrongShape`,
    `WrongLayout`, `WrongDtype`, `TooLarge`.
    """
    if operation.monoid is not None or operation.reduce_dims:
        hint = "rows: tapestry.kernels.normalization"
        raise WrongValue("a fold is no map", where=operation.name, came=operation.monoid, hint=hint)
    if operation.output not in layouts:
        raise WrongShape("no layout for the output", where=operation.name, expected=operation.output, came=[*layouts])
    local = localised(operation, points or {}, origins)
    operands = tuple((name, layout) for name, layout in layouts.items() if name != operation.output)
    dims = tuple((dim.name, dim.extent) for dim in local.dims)
    output, key = layouts[operation.output], _Key(local.body)
    return _compiled(dims, key, local.write, output, operands, local.where, vector, unroll, operation.name)


def compile_expression(
    dims: Sequence[tuple[str, int]],
    body: Expr,
    output: Layout,
    operands: Mapping[str, Layout],
    *,
    write: Sequence[Affine] | None = None,
    where: Sequence[Bound] = (),
    vector: int | None = None,
    unroll: int | None = None,
    name: str = "map",
) -> ElementwiseKernel:
    """The kernel of ``output[write] = body`` over ``dims`` (name, extent); ``write`` is the dimensions unless given."""
    rows = tuple(Affine.dim(dim) for dim, _ in dims) if write is None else tuple(write)
    return _compiled(tuple(dims), _Key(body), rows, output, tuple(operands.items()), tuple(where), vector, unroll, name)


class _Key:
    """A body as a key: equal constants of different types (1, 1.0, True) are different bodies."""

    def __init__(self, body: Expr) -> None:
        self.body, self.text = body, repr(body)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


@lru_cache(maxsize=1024)
def _compiled(
    dims: tuple[tuple[str, int], ...],
    key: _Key,
    write: tuple[Affine, ...],
    output: Layout,
    operands: tuple[tuple[str, Layout], ...],
    where: tuple[Bound, ...],
    vector: int | None,
    unroll: int | None,
    name: str,
) -> ElementwiseKernel:
    loop = build_loop(dims, key.body, write, output, dict(operands), where, name)
    plan = make_plan(loop, vector=vector, unroll=unroll) if loop.points else None
    # The name may hold anything; what the loop is, and nothing else, decides the kernel's.
    digest = hashlib.sha256(repr((loop, vector, unroll)).encode()).hexdigest()[:12]
    return ElementwiseKernel(name, f"map_{digest}", loop, plan)
