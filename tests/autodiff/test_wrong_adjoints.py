"""Adjoints that are subtly wrong on purpose: each proof of `check_operation` about gradients sees the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor
from tapestry.blocks import BLOCKS
from tapestry.expr import FUNCTIONS, MONOIDS, Const, Expr, Read
from tapestry.expr.derivatives import FoldDerivative, call
from tapestry.testing import check_operation

from .. import blocks_of_mine as mine

a, b, x, y = (Read(name, ()) for name in "abxy")
HALF = Const(0.5)


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers in [0.3, 1.7], in no order."""
    size = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(np.linspace(0.3, 1.7, size)).reshape(shape)


@dataclass(frozen=True)
class Adjoint:
    """An entry of a table with another derivative, an operation that uses it, and torch's own."""

    name: str
    table: Any
    entry: str
    wrong: Callable[[Any], Any]
    operation: Callable[..., Any]
    oracle: Callable[..., Any]
    arrays: tuple[np.ndarray[Any, Any], ...]


def partials(*found: Expr) -> Callable[[Any], Any]:
    return lambda entry: replace(entry, derivative=found)


def folded(partial: Expr) -> Callable[[Any], Any]:
    return lambda entry: replace(entry, derivative=FoldDerivative(partial))


def without_helpers(entry: Any) -> Any:
    """The mean squared deviation, differentiated as if the mean were 0."""
    count = ("n", "sum", Const(1.0))
    return replace(
        entry, derivative=FoldDerivative(call("divide", call("multiply", Const(2.0), x), Read("n", ())), (count,))
    )


def spread_exchanged(g: Tensor, x: Tensor, w: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """The scale counted twice in the second cotangent."""
    return scale * tp.einsum("nk,sk->ns", g, w), scale * scale * tp.einsum("nk,ns->sk", g, x)


def spread_of(x: Tensor, w: Tensor) -> Tensor:
    n, s, k = tp.indices("n s k")
    found: Tensor = mine.SPREAD(x[n, s], w[s, k], fold=s, make=k, scale=3.0)
    return found


one, two = (values(5),), (values(5), values(5, seed=1))
rows = (values(3, 4),)

ADJOINTS = [
    Adjoint("the argument for the value", FUNCTIONS, "exp", partials(a), tp.exp, torch.exp, one),
    Adjoint(
        "the square of the argument", FUNCTIONS, "tanh",
        partials(call("subtract", Const(1.0), call("multiply", a, a))), tp.tanh, torch.tanh, one,
    ),
    Adjoint("the factor itself", FUNCTIONS, "multiply", partials(a, b), tp.multiply, torch.multiply, two),
    Adjoint(
        "a sign lost", FUNCTIONS, "divide",
        partials(call("divide", Const(1.0), b), call("divide", a, call("multiply", b, b))),
        tp.divide, torch.divide, two,
    ),
    Adjoint("to both sides", FUNCTIONS, "maximum", partials(Const(1), Const(1)), tp.maximum, torch.maximum, two),
    Adjoint("no root", FUNCTIONS, "sqrt", partials(call("divide", HALF, a)), tp.sqrt, torch.sqrt, one),
    Adjoint(
        "the whole product", MONOIDS, "prod", folded(y), lambda x: tp.prod(x, 1), lambda x: torch.prod(x, 1), rows
    ),
    Adjoint(
        "weights that do not add up to one", MONOIDS, "logsumexp", folded(call("exp", x)),
        lambda x: tp.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), rows,
    ),
    Adjoint(
        "no mean", MONOIDS, "variance", without_helpers,
        lambda x: tp.variance(x, 1), lambda x: torch.var(x, 1, correction=0), rows,
    ),
    Adjoint(
        "to every element", MONOIDS, "max", folded(Const(1.0)), lambda x: tp.max(x, 1), lambda x: torch.amax(x, 1), rows
    ),
    Adjoint(
        "a scale twice", BLOCKS, "spread",
        lambda entry: replace(entry, bodies=replace(entry.bodies, derivative=spread_exchanged)),
        spread_of, lambda x, w: 3.0 * (x @ w), (values(2, 3), values(3, 2, seed=1)),
    ),
]  # fmt: skip


def named(adjoint: Adjoint) -> str:
    return f"{adjoint.entry}, {adjoint.name}"


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=named)
def test_as_it_is_the_operation_is_proved(adjoint: Adjoint) -> None:
    check_operation(adjoint.operation, *adjoint.arrays, torch=adjoint.oracle, proofs=["torch", "differences"])


@pytest.mark.parametrize("proof", ["torch", "differences"])
@pytest.mark.parametrize("adjoint", ADJOINTS, ids=named)
def test_each_proof_that_can_see_the_fault_does(adjoint: Adjoint, proof: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adjoint.table, adjoint.entry, adjoint.wrong(adjoint.table[adjoint.entry]))
    with pytest.raises(AssertionError, match="grad"):
        check_operation(adjoint.operation, *adjoint.arrays, torch=adjoint.oracle, proofs=[proof])
