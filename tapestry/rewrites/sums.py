"""Products and sums: factors that are taken out of a sum and put back, brackets that are multiplied out and set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import tapestry as tp

from ..dsl.define import define
from ..dsl.index import indices
from ..expr import FUNCTIONS, Call, Expr, fold
from ..expr.scalar import with_children
from ..program import Block, Operation, Program
from .folds import distributed, factored, is_sum
from .forms import known_operation
from .rule import Change, rule


def _scaled(*, n: int = 3, k: int = 4, dtype: str = "f32") -> tp.Tensor:
    c, x = tp.input("c", dtype, (n,), axes=("n",)), tp.input("x", dtype, (n, k), axes=("n", "k"))
    i, j = indices("n k")
    return define("y", [i], tp.sum[j](c[i] * x[i, j]), dtype=dtype).named("y")


def _scaled_after(*, n: int = 3, k: int = 4, dtype: str = "f32") -> tp.Tensor:
    c, x = tp.input("c", dtype, (n,), axes=("n",)), tp.input("x", dtype, (n, k), axes=("n", "k"))
    return (c * tp.sum(x, 1, dtype=dtype).named("total")).named("y")


def _in_brackets(*, n: int = 4, dtype: str = "f32") -> tp.Tensor:
    a, b, c = (tp.input(name, dtype, (n,), axes=("n",)) for name in "abc")
    i = indices("n")
    return define("y", [i], a[i] * (b[i] + c[i])).named("y")


def _multiplied_out(*, n: int = 4, dtype: str = "f32") -> tp.Tensor:
    a, b, c = (tp.input(name, dtype, (n,), axes=("n",)) for name in "abc")
    i = indices("n")
    return define("y", [i], a[i] * b[i] + a[i] * c[i]).named("y")


@rule(example=_scaled, algebraic=True)
def factor_out(program: Program, op: Operation) -> Iterator[Change]:
    """Take the factors that do not change along a folded dimension out of the sum over it.

    before:
        y[n] = sum[k] c[n] * x[n, k]
    after:
        y.sum[n] = sum[k] x[n, k]
        y[n] = c[n] * y.sum[n]
    legal: multiplication distributes over addition; integers wrap at one width before and after
    """
    if is_sum(op):
        for dim in op.reduce_dims:
            found = factored(program, op, frozenset({dim}), "sum")
            if found is not None:
                inner, outer, between = found
                yield Change((op.name,), (inner, outer), (between,))


@rule(example=_scaled_after, algebraic=True)
def distribute(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply every term of a sum instead of the sum.

    before:
        total[n] = sum[k] x[n, k]
        y[n] = c[n] * total[n]
    after:
        y[n] = sum[k] c[n] * x[n, k]
    legal: nothing else reads the sum; integers wrap at one width before and after
    """
    for reader in program.consumers[op.output]:
        if is_sum(op) and known_operation(reader):
            found = distributed(program, op, reader)
            if found is not None:
                yield Change((op.name, reader.name), (found,))


@rule(example=_in_brackets, algebraic=True)
def multiply_out(_program: Program, op: Operation) -> Iterator[Change]:
    """Multiply each of two terms instead of their sum.

    before:
        y[n] = a[n] * (b[n] + c[n])
    after:
        y[n] = a[n] * b[n] + a[n] * c[n]
    legal: multiplication distributes over addition
    """
    yield from _everywhere(op, _without_brackets)


@rule(example=_multiplied_out, algebraic=True)
def factor_common(_program: Program, op: Operation) -> Iterator[Change]:
    """Multiply the sum of two terms by the factor that both have.

    before:
        y[n] = a[n] * b[n] + a[n] * c[n]
    after:
        y[n] = a[n] * (b[n] + c[n])
    legal: multiplication distributes over addition
    """
    yield from _everywhere(op, _with_brackets)


def _everywhere(op: Operation, change: Callable[[Call], Expr]) -> Iterator[Change]:
    """The operation with every call of its body changed that can be."""
    if isinstance(op.body, Block):
        return

    def changed(node: Expr, args: tuple[Expr, ...]) -> Expr:
        found = with_children(node, args)
        return change(found) if isinstance(found, Call) else found

    body = fold(op.body, changed)
    if body != op.body:
        yield Change((op.name,), (replace(op, body=body),))


def _is(node: Expr, part: str) -> bool:
    return isinstance(node, Call) and FUNCTIONS[node.function].matrix == part


def _without_brackets(call: Call) -> Expr:
    for k in range(2):
        if _is(call, "product") and _is(call.args[k], "sum"):
            terms = call.args[k]
            assert isinstance(terms, Call)
            pairs = [(term, call.args[1]) if k == 0 else (call.args[0], term) for term in terms.args]
            return Call(terms.function, tuple(Call(call.function, pair) for pair in pairs))
    return call


def _with_brackets(call: Call) -> Expr:
    if not (_is(call, "sum") and all(_is(arg, "product") for arg in call.args)):
        return call
    left, right = call.args
    assert isinstance(left, Call)
    assert isinstance(right, Call)
    for k in range(2):
        if left.args[k] == right.args[k]:
            rest = Call(call.function, (left.args[1 - k], right.args[1 - k]))
            return Call(left.function, (left.args[0], rest) if k == 0 else (rest, left.args[1]))
    return call
