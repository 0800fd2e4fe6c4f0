"""Products of matrices: the order of a chain, their terms by themselves, and the bias of a linear layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import tapestry as tp

from ..dsl.define import define
from ..dsl.index import indices
from ..expr import FUNCTIONS, Bound, Call, Const, Expr, Inside, Read, depends_on
from ..expr.index import Affine
from ..program import Block, Dim, Operation, Program
from .drafts import drafted, read_of
from .folds import (
    Folded,
    alike,
    distributed,
    factored,
    factors_of,
    is_sum,
    only_read_by,
    partial_dtype,
)
from .forms import known_operation
from .inlining import readers_through
from .rule import Change, rule


def _matrix(name: str, dtype: str, **axes: int) -> tp.Tensor:
    return tp.input(name, dtype, tuple(axes.values()), axes=tuple(axes))


def _left_first(*, i: int = 2, j: int = 3, k: int = 4, m: int = 5, dtype: str = "f32") -> tp.Tensor:
    a, b, c = _matrix("a", dtype, i=i, j=j), _matrix("b", dtype, j=j, k=k), _matrix("c", dtype, k=k, m=m)
    return ((a @ b).named("ab") @ c).named("y")


def _right_first(*, i: int = 2, j: int = 3, k: int = 4, m: int = 5, dtype: str = "f32") -> tp.Tensor:
    a, b, c = _matrix("a", dtype, i=i, j=j), _matrix("b", dtype, j=j, k=k), _matrix("c", dtype, k=k, m=m)
    return (a @ (b @ c).named("bc")).named("y")


def _product(*, i: int = 2, k: int = 3, j: int = 4, dtype: str = "f32") -> tp.Tensor:
    return (_matrix("x", dtype, i=i, k=k) @ _matrix("w", dtype, k=k, j=j)).named("y")


def _terms(*, i: int = 2, k: int = 3, j: int = 4, dtype: str = "f32") -> tp.Tensor:
    x, w = _matrix("x", dtype, i=i, k=k), _matrix("w", dtype, j=j, k=k)
    return tp.sum((x[:, None, :] * w).named("terms"), 2).named("y")


def _layer(*, i: int = 2, k: int = 3, j: int = 4, dtype: str = "f32") -> tp.Tensor:
    x, w = _matrix("x", dtype, i=i, k=k), _matrix("w", dtype, k=k, j=j)
    return ((x @ w).named("product") + _matrix("b", dtype, j=j)).named("y")


def _layer_in_one(*, i: int = 2, k: int = 3, j: int = 4, dtype: str = "f32") -> tp.Tensor:
    x, w, b = _matrix("x", dtype, i=i, k=k), _matrix("w", dtype, k=k, j=j), _matrix("b", dtype, j=j)
    row, inner, column = indices("i k j")
    terms = x[row, inner] * w[inner, column] + tp.where(inner < 1, b[column], 0)
    return define("y", [row, column], tp.sum[inner](terms), dtype=dtype).named("y")


@rule(example=_left_first, algebraic=True)
def associate_right(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply the last two of three matrices first.

    before:
        ab[i, k] = sum[j] a[i, j] * b[j, k]
        y[i, m] = sum[k] ab[i, k] * c[k, m]
    after:
        y.inner[j, m] = sum[k] b[j, k] * c[k, m]
        y[i, m] = sum[j] a[i, j] * y.inner[j, m]
    legal: nothing else reads the first product; integers wrap at one width before and after
    """
    yield from _associated(program, op, first=True)


@rule(example=_right_first, algebraic=True)
def associate_left(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply the first two of three matrices first.

    before:
        bc[j, m] = sum[k] b[j, k] * c[k, m]
        y[i, m] = sum[j] a[i, j] * bc[j, m]
    after:
        y.inner[i, k] = sum[j] a[i, j] * b[j, k]
        y[i, m] = sum[k] y.inner[i, k] * c[k, m]
    legal: nothing else reads the second product; integers wrap at one width before and after
    """
    yield from _associated(program, op, first=False)


def _associated(program: Program, maker: Operation, *, first: bool) -> Iterator[Change]:
    """The product that is the first (or last) factor of another, taken apart and put together the other way."""
    for reader in program.consumers[maker.output]:
        if not (is_sum(maker) and is_sum(reader) and known_operation(reader)) or maker.where or reader.where:
            continue
        assert not isinstance(reader.body, Block)
        factors = factors_of(reader.body)
        place = factors[0 if first else -1].expr
        if len(factors) < 2 or not (isinstance(place, Read) and place.tensor == maker.output):
            continue
        whole = distributed(program, maker, reader)
        found = whole and factored(
            program, whole, frozenset(reader.reduce_dims), "inner", program.tensor(maker.output).dtype
        )
        if found:
            inner, outer, between = found
            yield Change((maker.name, reader.name), (inner, outer), (between,))


@rule(example=_product)
def terms_apart(program: Program, op: Operation) -> Iterator[Change]:
    """Compute the terms of a sum of products by themselves.

    before:
        y[i, j] = sum[k] x[i, k] * w[k, j]
    after:
        y.terms[i, j, k] = x[i, k] * w[k, j]
        y[i, j] = sum[k] y.terms[i, j, k]
    legal: the terms are as wide as what adds them up
    """
    if op.factors is None or not is_sum(op) or op.where:
        return
    assert not isinstance(op.body, Block)
    dtype = partial_dtype(program, op, op.body)
    first, terms = drafted(program, op, "terms", op.dims, op.body, dtype)
    yield Change((op.name,), (first, replace(op, body=read_of(terms))), (terms,))


@rule(example=_terms)
def terms_together(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply where the sum is taken: terms that only a sum reads make a product of matrices with it.

    before:
        terms[i, j, k] = x[i, k] * w[j, k]
        y[i, j] = sum[k] terms[i, j, k]
    after:
        y[i, j] = sum[k] x[i, k] * w[j, k]
    legal: nothing else reads the terms; what was rounded is rounded
    """
    product = isinstance(op.body, Call) and FUNCTIONS[op.body.function].matrix == "product"
    if product and op.monoid is None:
        for reader, found in readers_through(program, op):
            plain = isinstance(reader.body, Read) and is_sum(reader) and known_operation(reader)
            if plain and found is not None and only_read_by(program, op, reader):
                yield Change((op.name, reader.name), (found,))


@rule(example=_layer)
def bias_into_sum(program: Program, op: Operation) -> Iterator[Change]:
    """Add what is added to a sum to its first term: a linear layer as one operation.

    before:
        product[i, j] = sum[k] x[i, k] * w[k, j]
        y[i, j] = product[i, j] + b[j]
    after:
        y[i, j] = sum[k] x[i, k] * w[k, j] + where([k < 1], b[j], 0)
    legal: the sum has a term; nothing else reads it; integers wrap at one width before and after
    """
    found = Folded.of(program, op) if is_sum(op) else None
    if found is None or op.where or 0 in op.extents.values():
        return
    for reader in program.consumers[op.output]:
        plain = reader.monoid is None and not reader.where and known_operation(reader)
        if plain and only_read_by(program, op, reader) and alike(program, op, reader):
            yield from _with_bias(found, reader)


def _with_bias(found: Folded, reader: Operation) -> Iterator[Change]:
    """The sum with the other of the two terms of the reader in its first term."""
    for read, bias in _terms_of(reader):
        if isinstance(read, Read) and read.tensor == found.op.output:
            assert isinstance(reader.body, Call)
            dims, term, _ = found.at(read, reader.extents)
            whole = Call(reader.body.function, (term, Call("where", (_first(dims), bias, Const(0)))))
            names = tuple(dim.name for dim in dims)
            one = replace(reader, dims=(*reader.dims, *dims), body=whole, reduce_dims=names, monoid=found.op.monoid)
            yield Change((found.op.name, reader.name), (one,))
            return


def _terms_of(op: Operation) -> tuple[tuple[Expr, Expr], ...]:
    """The two terms of what an operation computes, either first; nothing where it is no sum of two."""
    body = op.body
    if not isinstance(body, Call) or FUNCTIONS[body.function].matrix != "sum":
        return ()
    return (body.args[0], body.args[1]), (body.args[1], body.args[0])


def _first(dims: Iterable[Dim]) -> Inside:
    """The first point along the dimensions."""
    return Inside(tuple(Bound(Affine.dim(dim.name), None, 1) for dim in dims))


@rule(example=_layer_in_one)
def bias_out_of_sum(program: Program, op: Operation) -> Iterator[Change]:
    """Add what is added to the first term of a sum to the sum instead: a product of matrices, and its bias.

    before:
        y[i, j] = sum[k] x[i, k] * w[k, j] + where([k < 1], b[j], 0)
    after:
        y.product[i, j] = sum[k] x[i, k] * w[k, j]
        y[i, j] = y.product[i, j] + b[j]
    legal: the condition holds at one point of the sum, and what is added there does not change along it
    """
    if not is_sum(op) or op.where:
        return
    folded = [op.dim(name) for name in op.reduce_dims]
    for term, bias in _terms_of(op):
        match bias:
            case Call("where", (condition, value, Const(0))) if condition == _first(folded):
                if not depends_on(value) & set(op.reduce_dims):
                    yield _bias_apart(program, op, term, value)
                    return


def _bias_apart(program: Program, op: Operation, term: Expr, bias: Expr) -> Change:
    assert isinstance(op.body, Call)
    kept = tuple(dim for dim in op.dims if dim.name not in op.reduce_dims)
    dims = (*kept, *(op.dim(name) for name in op.reduce_dims))
    dtype = program.tensor(op.output).dtype
    first, product = drafted(program, op, "product", dims, term, dtype, reduce_dims=op.reduce_dims, monoid=op.monoid)
    body = Call(op.body.function, (read_of(product), bias))
    return Change((op.name,), (first, replace(op, dims=kept, body=body, reduce_dims=(), monoid=None)), (product,))
