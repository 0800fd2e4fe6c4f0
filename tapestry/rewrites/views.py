"""Views: those that undo one another left out, and views before or after the functions of what they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import tapestry as tp

from ..expr import Affine, Call, Cast, Const, Expr, Read, reads, rewrite, substitute, walk
from ..program import Block, Dim, Operation, Program
from .drafts import drafted, fresh_dims, read_of
from .folds import folds_values, only_read_by
from .forms import kept, known_operation
from .inlining import Exact, Inlinable, is_view
from .rule import Change, rule


def _turned_twice(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    turned = tp.transpose(tp.input("x", dtype, (n, m), axes=("n", "m"))).named("turned")
    return tp.abs(tp.transpose(turned).named("back")).named("y")


def _function_of_a_view(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    turned = tp.transpose(tp.input("x", dtype, (n, m), axes=("n", "m"))).named("turned")
    return tp.abs(turned).named("y")


def _view_of_a_function(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    size = tp.abs(tp.input("x", dtype, (n, m), axes=("n", "m"))).named("size")
    return tp.transpose(size).named("y")


def _turned_product(*, n: int = 3, m: int = 4, k: int = 2, dtype: str = "f32") -> tp.Tensor:
    a, b = tp.input("a", dtype, (n, k), axes=("n", "k")), tp.input("b", dtype, (k, m), axes=("k", "m"))
    return tp.transpose(tp.matmul(a, b, name="product")).named("y")


@rule(example=_turned_twice)
def cancel_views(program: Program, op: Operation) -> Iterator[Change]:
    """Read a tensor itself where views that undo one another show it as it is.

    before:
        back[n, m] = turned[m, n]
        y[n, m] = abs(back[n, m])
    after:
        y[n, m] = abs(x[n, m])
    legal: the same shape and dtype, each element where it was, and none beside them
    """
    if kept(program, op.output) or not program.consumers[op.output]:
        return
    chain = [op]
    read = _shown(program, op)
    while read is not None:
        if _itself(program, read, op.output):
            made_of = tuple(one.name for one in reversed(chain))
            yield Change((op.name,), instead=((op.output, read.tensor),), made_of=made_of)
            return
        maker = program.producer.get(read.tensor)
        if maker is None or not known_operation(maker):
            return
        chain.append(maker)
        inner = _shown(program, maker)
        read = None if inner is None else _through(program, op.output, read, inner)


def _axes(program: Program, tensor: str) -> tuple[str, ...]:
    """What `Inlinable` calls the axes of a tensor."""
    return tuple(f"'{k}" for k in range(len(program.tensor(tensor).shape)))


def _shown(program: Program, op: Operation) -> Read | None:
    """The element that a view shows at the axes of what it writes; None where it is no view of one tensor."""
    found = _view(program, op)
    return None if found is None else _simple_read(program, op.output, substitute(found.body, found.values))


def _view(program: Program, op: Operation) -> Inlinable | None:
    """An operation that copies elements of one tensor, of one dtype."""
    found = Inlinable.of(program, op)
    copies = found is not None and isinstance(found.body, Read)
    return found if copies and program.tensor(op.operands[0]).dtype == program.tensor(op.output).dtype else None


def _through(program: Program, shape_of: str, read: Read, inner: Read) -> Read | None:
    """What a read finds of a tensor that is itself a view: ``inner`` at the read's place, guarded as both are."""
    values = dict(zip(_axes(program, read.tensor), read.index, strict=True))
    found = substitute(inner, values)
    assert isinstance(found, Read)
    if read.guard and found.guard and repr(read.fill) != repr(found.fill):
        return None
    both = Read(found.tensor, found.index, (*read.guard, *found.guard), found.fill if found.guard else read.fill)
    return _simple_read(program, shape_of, both)


def _simple_read(program: Program, shape_of: str, read: Expr) -> Read | None:
    shape = program.tensor(shape_of).shape
    ranges = {axis: (0, extent) for axis, extent in zip(_axes(program, shape_of), shape, strict=True)}
    found = Exact(ranges, {name: tensor.dtype for name, tensor in program.by_name.items()}).expr(read)
    return found if isinstance(found, Read) else None


def _itself(program: Program, read: Read, name: str) -> bool:
    """Whether a read at the axes of a tensor shows another as that tensor is."""
    mine, other = program.tensor(name), program.tensor(read.tensor)
    places = tuple(map(Affine.dim, _axes(program, name)))
    same = all(row == place or extent == 1 for row, place, extent in zip(read.index, places, mine.shape, strict=False))
    return (mine.shape, mine.dtype) == (other.shape, other.dtype) and not read.guard and same


@rule(example=_function_of_a_view)
def view_last(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a function of all elements where they lie, and view what comes out.

    before:
        turned[m, n] = x[n, m]
        y[m, n] = abs(turned[m, n])
    after:
        y.before[n, m] = abs(x[n, m])
        y[m, n] = y.before[n, m]
    legal: nothing else reads the view, which shows elements alone; the function asks for no index
    """
    view = _view(program, op)
    if view is None or op.reads[0].guard:
        return
    for reader in program.consumers[op.output]:
        if not (known_operation(reader) and only_read_by(program, op, reader) and _is_function(reader)):
            continue
        assert not isinstance(reader.body, Block)
        shown = _found(program, view, reader.reads[0], reader)
        assert isinstance(shown, Read)
        source = program.tensor(shown.tensor)
        names = fresh_dims((axis if axis.isidentifier() else "d0" for axis in source.axes), ())
        dims = [Dim(name, extent) for name, extent in zip(names, source.shape, strict=True)]
        body = _of(reader.body, Read(source.name, tuple(map(Affine.dim, names))))
        first, before = drafted(program, reader, "before", dims, body, program.tensor(reader.output).dtype)
        last = replace(reader, body=Read(before.name, shown.index))
        yield Change((op.name, reader.name), (first, last), (before,))


@rule(example=_view_of_a_function)
def view_first(program: Program, op: Operation) -> Iterator[Change]:
    """View the elements that a function is computed of, and compute it of what is seen.

    before:
        size[n, m] = abs(x[n, m])
        y[m, n] = size[n, m]
    after:
        y.seen[m, n] = x[n, m]
        y[m, n] = abs(y.seen[m, n])
    legal: nothing else reads the function, which asks for no index; the view shows elements alone
    """
    function = Inlinable.of(program, op)
    if function is None or not _is_function(op):
        return
    for reader in program.consumers[op.output]:
        plain = isinstance(reader.body, Read) and reader.monoid is None and not reader.where
        alike = program.tensor(reader.output).dtype == function.dtype
        if plain and alike and known_operation(reader) and only_read_by(program, op, reader):
            value = _found(program, function, reader.reads[0], reader)
            (read,) = reads(value)
            first, seen = drafted(program, reader, "seen", reader.dims, read, program.tensor(read.tensor).dtype)
            last = replace(reader, body=_of(value, read_of(seen)))
            yield Change((op.name, reader.name), (first, last), (seen,))


@rule(example=_turned_product)
def fold_into_view(program: Program, op: Operation) -> Iterator[Change]:
    """Write what a fold leaves in the order of axes in which it is seen.

    before:
        product[n, m] = sum[k] a[n, k] * b[k, m]
        y[m, n] = product[n, m]
    after:
        y[m, n] = sum[k] a[n, k] * b[k, m]
    legal: nothing else reads the fold; the view has every element once, its axes in another order
    """
    if isinstance(op.body, Block) or not folds_values(op):
        return
    for reader in program.consumers[op.output]:
        order = _order(reader)
        same = program.tensor(op.output).dtype == program.tensor(reader.output).dtype
        if order is None or not (same and known_operation(reader) and only_read_by(program, op, reader)):
            continue
        first, folded = op.dims[: len(order)], op.dims[len(order) :]
        if op.write == tuple(Affine.dim(dim.name) for dim in first):
            dims, write = tuple(first[axis] for axis in order), tuple(op.write[axis] for axis in order)
            turned = replace(op, dims=(*dims, *folded), output=reader.output, write=write)
            yield Change((op.name, reader.name), (turned,))


def _order(view: Operation) -> list[int] | None:
    """Which axis of what it copies each axis of a view is; None where that is not all of it."""
    if view.monoid is not None or view.where or not isinstance(view.body, Read) or view.body.guard:
        return None
    dims = [Affine.dim(dim.name) for dim in view.dims]
    if list(view.write) != dims or sorted(map(repr, view.body.index)) != sorted(map(repr, dims)):
        return None
    return [view.body.index.index(dim) for dim in dims]


def _is_function(op: Operation) -> bool:
    """Whether an operation computes, point by point, more than a view of one element, which it reads unguarded."""
    if isinstance(op.body, Block) or op.monoid is not None or is_view(op.body) or len(op.reads) != 1:
        return False
    plain = all(isinstance(node, Read | Const | Call | Cast) for node in walk(op.body))
    return plain and not op.reads[0].guard and not op.where


def _of(function: Expr, argument: Read) -> Expr:
    """A function of one element, of another element."""
    return rewrite(function, lambda node: argument if isinstance(node, Read) else node)


def _found(program: Program, maker: Inlinable, read: Read, reader: Operation) -> Expr:
    """What an unguarded read of what a maker computes finds, not rounded as it was stored."""
    place = dict(zip(maker.axes, read.index, strict=True))
    values = {name: value.substitute(place) for name, value in maker.values.items()}
    ranges = {dim.name: (0, dim.extent) for dim in reader.dims}
    dtypes = {name: tensor.dtype for name, tensor in program.by_name.items()}
    return Exact(ranges, dtypes).expr(substitute(maker.body, values))
