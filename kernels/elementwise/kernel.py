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

from ...expr import Affine, Bound, Expr
from ...program import Operation
from ..errors import WrongShape, WrongValue
from .launch import GeneratedKernel
from .loop import Loop, build_loop, footprint, scalar_body
from .plan import Plan, make_plan
from .shard import localised
from .source import source
from .types import Layout


class ElementwiseKernel(GeneratedKernel):
    """A compiled map: ``kernel(*operands, out=array, stream=None)``; see `GeneratedKernel`."""

    def __init__(self, name: str, entry: str, loop: Loop, plan: Plan | None) -> None:
        text, grid = (source(plan, entry), (plan.blocks, plan.threads)) if plan else ("", (0, 0))
        super().__init__(name, entry, text, grid, loop.operands, (("out", loop.output),))
        self.loop, self.plan = loop, plan

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written once: what a copy of as many would move."""
        return sum(footprint(self.loop))


def compile_map(
    operation: Operation,
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
    output, key = layouts[operation.output], _Key(scalar_body(local))
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
