"""Windows: strided and dilated ones as dense ones and back, and convolutions as products of matrices.

A window reads an axis at step * p + gap * r + start. Where one of the two is a multiple of the other, the elements that
are as far apart as the larger one are a phase of the axis, and over phases the window is dense:

    x[2*p + r]    r = 2*r0 + r1,  phases[r1, i] = x[2*i + r1],  read at [r1, p + r0]
    x[p + 2*r]    p = 2*p0 + p1,  phases[p1, i] = x[2*i + p1],  read at [p1, p0 + r]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import tapestry as tp

from ..dsl.define import define
from ..dsl.index import indices
from ..dtypes import DTYPES
from ..expr import Affine, Bound, Const, Expr, Read, depends_on, rewrite, substitute
from ..program import Block, Dim, Operation, Program, Tensor
from .drafts import drafted, fresh, read_of, simple
from .folds import Folded, folds_values, is_sum, only_read_by
from .forms import known_operation
from .inlining import Inlinable, inlined
from .rule import Change, rule
from .splitting import Parts, merged


def _image(dtype: str, length: int) -> tp.Tensor:
    return tp.input("x", dtype, (2, length), axes=("c", "p"))


def _filters(dtype: str, taps: int) -> tp.Tensor:
    return tp.input("w", dtype, (3, 2, taps), axes=("k", "c", "r"))


def _strided(*, n: int = 7, r: int = 2, dtype: str = "f32") -> tp.Tensor:
    return tp.conv1d(_image(dtype, n + r + 1)[None], _filters(dtype, r + 1), stride=2, padding=1, name="y")


def _dilated(*, n: int = 7, r: int = 2, dtype: str = "f32") -> tp.Tensor:
    return tp.conv1d(_image(dtype, n + 2 * r + 2)[None], _filters(dtype, r + 1), dilation=2, padding=1, name="y")


def _dense(*, n: int = 7, r: int = 2, dtype: str = "f32") -> tp.Tensor:
    return tp.conv1d(_image(dtype, n + r + 1)[None], _filters(dtype, r + 1), padding=1, name="y")


def _phases_of_taps(*, n: int = 4, r: int = 3, dtype: str = "f32") -> tp.Tensor:
    x, w = tp.input("x", dtype, (2 * (n + r),), axes=("p",)), tp.input("w", dtype, (2 * r,), axes=("r",))
    phases = tp.transpose(tp.reshape(x, (n + r, 2))).named("phases")
    p, outer, inner = indices("p r0 r1")
    terms = phases[inner, p + outer] * w[2 * outer + inner]
    return define("y", [p], tp.sum[outer, inner](terms), dtype=dtype, extents={"p": n, "r0": r, "r1": 2}).named("y")


def _phases_of_outputs(*, n: int = 4, r: int = 3, dtype: str = "f32") -> tp.Tensor:
    x, w = tp.input("x", dtype, (2 * (n + r),), axes=("p",)), tp.input("w", dtype, (r,), axes=("r",))
    phases = tp.transpose(tp.reshape(x, (n + r, 2))).named("phases")
    phase, p, tap = indices("p1 p0 r")
    dense = define("dense", [phase, p], tp.sum[tap](phases[phase, p + tap] * w[tap]), dtype=dtype, extents={"p0": n})
    return tp.reshape(tp.transpose(dense.named("dense")), (2 * n,)).named("y")


def _columns(*, n: int = 5, r: int = 3, dtype: str = "f32") -> tp.Tensor:
    x, w = tp.input("x", dtype, (n + r,), axes=("p",)), tp.input("w", dtype, (r,), axes=("r",))
    p, tap = indices("p r")
    columns = define("columns", [p, tap], x[p + tap], extents={"p": n, "r": r}).named("columns")
    return define("y", [p], tp.sum[tap](columns[p, tap] * w[tap]), dtype=dtype).named("y")


@dataclass(frozen=True)
class _Window:
    """An axis of a read that goes by an output p and a tap r: step * p + gap * r + start."""

    read: Read
    axis: int
    output: Dim
    tap: Dim
    step: int
    gap: int

    @property
    def start(self) -> Affine:
        row = self.read.index[self.axis]
        return row - self.step * Affine.dim(self.output.name) - self.gap * Affine.dim(self.tap.name)


def _windows(op: Operation) -> Iterator[_Window]:
    """Every window of an operation that folds taps."""
    if isinstance(op.body, Block) or op.monoid is None or op.where or op.scan is not None or op.selections:
        return
    for read in op.reads:
        for axis, row in enumerate(read.index):
            for output in op.dims:
                for tap in op.dims:
                    step, gap = row.coefficient(output.name), row.coefficient(tap.name)
                    inner = tap.name in op.reduce_dims and output.name not in op.reduce_dims
                    if inner and step > 0 and gap > 0 and min(output.extent, tap.extent) > 1:
                        yield _Window(read, axis, output, tap, step, gap)


def _phases(
    program: Program, op: Operation, window: _Window, values: Mapping[str, Affine], new: tuple[Dim, ...]
) -> tuple[Operation, Tensor] | None:
    """The elements that a window shows, over the other dimensions of its read and new ones, which ``values`` speak of.

    None where something else of the window is left. What lies outside of the tensor is never asked for.
    """
    read = window.read
    found = substitute(read, values)
    assert isinstance(found, Read)
    others = depends_on(read) - {window.output.name, window.tap.name}
    dims = (*(dim for dim in op.dims if dim.name in others), *new)
    if not depends_on(found) <= {dim.name for dim in dims}:
        return None
    ranges = {dim.name: (0, dim.extent) for dim in dims}
    shape = program.tensor(read.tensor).shape
    reach = [row.bounds(ranges) for row in found.index]
    beyond = tuple(
        Bound(row, 0, extent)
        for row, (lo, hi), extent in zip(found.index, reach, shape, strict=True)
        if lo < 0 or hi > extent
    )
    dtype = program.tensor(read.tensor).dtype
    fill = found.fill if found.guard else DTYPES[dtype].kind == "bool" and False
    guarded = replace(found, guard=(*found.guard, *beyond), fill=fill)
    view, tensor = drafted(program, op, "phases", dims, guarded, dtype)
    return simple(program, view), tensor


@rule(example=_strided)
def strided_to_dense(program: Program, op: Operation) -> Iterator[Change]:
    """Fold a window that moves by several elements over the phases of its axis, along which it moves by one.

    before:
        y[n, k, q] = sum[c, s] (x[c, 2*q + s - 1] if 0 <= 2*q + s - 1 else 0) * w[k, c, s]
    after:
        y.phases[c, s1, i] = (x[c, 2*i + s1 - 1] if 0 <= 2*i + s1 - 1 < 10 else 0)
        y[n, k, q] = sum[c, s0, s1] y.phases[c, s1, q + s0] * w[k, c, 2*s0 + s1]  where 2*s0 + s1 < 3
    legal: the phases are disjoint, taps beyond the window left out; folded values may be taken in any order
    """
    for window in _windows(op) if folds_values(op) else ():
        found = _by_taps(program, op, window) if window.step > 1 and window.step % window.gap == 0 else None
        if found is not None:
            yield found


def _by_taps(program: Program, op: Operation, window: _Window) -> Change | None:
    """Taps r = length * r0 + r1: phase r1 is read at p + r0."""
    parts = Parts.of_length(op, window.tap, window.step // window.gap)
    outer, inner, output = (Affine.dim(name) for name in (parts.outer.name, parts.inner.name, window.output.name))
    extent = window.output.extent + parts.outer.extent - 1
    place = Dim(fresh("i", {*op.extents, parts.outer.name, parts.inner.name}), extent)
    values = {window.output.name: Affine.dim(place.name) - outer, window.tap.name: parts.value}
    made = _phases(program, op, window, values, (parts.inner, place))
    if made is None:
        return None
    view, tensor = made
    seen = Read(tensor.name, (*read_of(tensor).index[:-2], inner, output + outer))
    whole = replace(op, body=_with(op, window.read, seen, {window.tap.name: parts.value}))
    return Change((op.name,), (view, simple(program, parts.within(whole), tensor)), (tensor,))


@rule(example=_dilated)
def dilated_to_dense(program: Program, op: Operation) -> Iterator[Change]:
    """Fold a window with gaps over the phases of its axis, along which it has none, and take the results in turn.

    before:
        y[n, k, q] = sum[c, s] (x[c, q + 2*s - 1] if 0 <= q + 2*s - 1 < 13 else 0) * w[k, c, s]
    after:
        y.phases[c, q1, i] = (x[c, 2*i + q1 - 1] if 0 <= 2*i + q1 - 1 < 13 else 0)
        y.dense[n, k, q1, q0] = sum[c, s] y.phases[c, q1, q0 + s] * w[k, c, s]
        y[n, k, q] = y.dense[n, k, q % 2, q//2]
    legal: the phases are disjoint; what is computed beyond the last result is not read
    """
    for window in _windows(op):
        found = _by_outputs(program, op, window) if window.gap > 1 and window.gap % window.step == 0 else None
        if found is not None:
            yield found


def _by_outputs(program: Program, op: Operation, window: _Window) -> Change | None:
    """Outputs p = length * p0 + p1: phase p1 is read at p0 + r."""
    parts = Parts.of_length(op, window.output, window.gap // window.step)
    outer, inner, tap = (Affine.dim(name) for name in (parts.outer.name, parts.inner.name, window.tap.name))
    extent = window.tap.extent + parts.outer.extent - 1
    place = Dim(fresh("i", {*op.extents, parts.outer.name, parts.inner.name}), extent)
    values = {window.output.name: parts.inner.extent * (Affine.dim(place.name) - tap) + inner}
    made = _phases(program, op, window, values, (parts.inner, place))
    body = _with(op, window.read, Const(0), {})
    if made is None or (not parts.even and window.output.name in depends_on(body)):
        return None
    view, phases = made
    seen = Read(phases.name, (*read_of(phases).index[:-2], inner, outer + tap))
    kept = tuple(dim for dim in op.dims if dim.name not in op.reduce_dims)
    at = kept.index(window.output)
    dims = (*kept[:at], parts.inner, parts.outer, *kept[at + 1 :], *(op.dim(name) for name in op.reduce_dims))
    dense, results = drafted(
        program, op, "dense", dims, _with(op, window.read, seen, {window.output.name: parts.value}),
        program.tensor(op.output).dtype, reduce_dims=op.reduce_dims, monoid=op.monoid,
    )  # fmt: skip
    output, length = Affine.dim(window.output.name), parts.inner.extent
    taken = {parts.inner.name: output % length, parts.outer.name: output // length}
    last = replace(op, dims=kept, body=substitute(read_of(results), taken), reduce_dims=(), monoid=None)
    return Change((op.name,), (view, simple(program, dense, phases), last), (phases, results))


def _with(op: Operation, read: Read, other: Expr, values: Mapping[str, Affine]) -> Expr:
    """The body with something in place of a read, and values in place of dimensions everywhere else."""
    assert not isinstance(op.body, Block)
    return rewrite(op.body, lambda node: other if node == read else substitute(node, values))


@rule(example=_phases_of_taps)
def dense_to_strided(program: Program, op: Operation) -> Iterator[Change]:
    """Fold a window over an axis itself, where its phases are views of it and its taps count in turn.

    before:
        phases[d1, d0] = x[2*d0 + d1]
        y[p] = sum[r0, r1] phases[r1, p + r0] * w[2*r0 + r1]
    after:
        y[p] = sum[r0] x[2*p + r0] * w[r0]
    legal: nothing else reads the phases; folded values may be taken in any order
    """
    for reader, whole in _read_through(program, op):
        for outer in whole.dims if folds_values(whole) else ():
            for inner in whole.dims:
                one = merged(whole, outer, inner) if outer.name in whole.reduce_dims else None
                if one is not None and any(window.step > 1 for window in _windows(simple(program, one))):
                    yield Change((op.name, reader.name), (simple(program, one),))


@rule(example=_phases_of_outputs)
def dense_to_dilated(program: Program, op: Operation) -> Iterator[Change]:
    """Fold a window with gaps over an axis itself, where its phases are views of it and its results are taken in turn.

    before:
        phases[d1, d0] = x[2*d0 + d1]
        dense[p1, p0] = sum[r] phases[p1, p0 + r] * w[r]
        y[d0] = dense[d0 % 2, d0//2]
    after:
        y[d0] = sum[r] x[d0 + 2*r] * w[r]
    legal: nothing else reads the phases and the results
    """
    for reader, whole in _read_through(program, op):
        fold = Folded.of(program, whole)
        for last in program.consumers[reader.output] if fold is not None else ():
            if fold is None or not (known_operation(last) and _is_copy(program, reader, last)):
                continue
            dims, body, where = fold.at(last.reads[0], last.extents)
            names = tuple(dim.name for dim in dims)
            domain = (*last.dims, *dims)
            one = replace(last, dims=domain, body=body, reduce_dims=names, monoid=whole.monoid, where=where)
            if any(window.gap > 1 for window in _windows(simple(program, one))):
                yield Change((op.name, reader.name, last.name), (simple(program, one),))


def _read_through(program: Program, op: Operation) -> Iterator[tuple[Operation, Operation]]:
    """The one operation that reads a view, a fold, and that operation reading what the view shows."""
    found = Inlinable.of(program, op)
    if found is None or not isinstance(found.body, Read):
        return
    for reader in program.consumers[op.output]:
        if reader.monoid is not None and known_operation(reader) and only_read_by(program, op, reader):
            whole = inlined(program, op, reader, found)
            if whole is not None:
                yield reader, whole


def _is_copy(program: Program, maker: Operation, reader: Operation) -> bool:
    """Whether an operation only shows elements of what another computes, which nothing else reads."""
    plain = isinstance(reader.body, Read) and reader.monoid is None and not reader.where
    alike = program.tensor(maker.output).dtype == program.tensor(reader.output).dtype
    return plain and alike and only_read_by(program, maker, reader)


@rule(example=_dense)
def convolution_to_product(program: Program, op: Operation) -> Iterator[Change]:
    """Lay out what each window shows: what is left is a product of matrices.

    before:
        y[n, k, q] = sum[c, s] (x[c, q + s - 1] if 0 <= q + s - 1 < 10 else 0) * w[k, c, s]
    after:
        y.columns[q, c, s] = (x[c, q + s - 1] if 0 <= q + s - 1 < 10 else 0)
        y[n, k, q] = sum[c, s] y.columns[q, c, s] * w[k, c, s]
    legal: always; the columns are as many as the windows, each as long as its taps
    """
    if not is_sum(op) or op.where or op.factors is None:
        return
    for window in _windows(op):
        read = window.read
        if read in op.factors:
            dims = [dim for dim in op.dims if dim.name in depends_on(read)]
            columns, tensor = drafted(program, op, "columns", dims, read, program.tensor(read.tensor).dtype)
            yield Change((op.name,), (columns, replace(op, body=_with(op, read, read_of(tensor), {}))), (tensor,))
            return


@rule(example=_columns)
def product_to_convolution(program: Program, op: Operation) -> Iterator[Change]:
    """Read an image where it is instead of the columns that show what each window sees.

    before:
        columns[p, r] = x[p + r]
        y[p] = sum[r] columns[p, r] * w[r]
    after:
        y[p] = sum[r] x[p + r] * w[r]
    legal: nothing else reads the columns
    """
    for reader, whole in _read_through(program, op):
        if is_sum(whole) and whole.factors is not None and any(w.read in whole.factors for w in _windows(whole)):
            yield Change((op.name, reader.name), (whole,))
