"""Mean and variance in one pass: proved, in layer norm, and refused where they are not of the same values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.expr import Affine, Call
from tapestry.inputs import random_inputs
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import assert_close, check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, with_leaves


def test_it_is_proved_three_ways() -> None:
    assert check_rule(RULES["one_pass_moments"], examples=16) > 3


def test_layer_norm_reads_its_input_once_less() -> None:
    @tp.program
    def net(x: bf16[Tensor, "n d"], w: bf16[Tensor, "d"]) -> Tensor:
        return tp.layer_norm(x, w)

    program = net.bind(n=3, d=8)
    found = apply(program, "one_pass_moments", "compose_views", "fuse_pointwise").program
    assert [op.monoid for op in found.operations] == ["moments", None]
    inputs = random_inputs(program, seed=2)
    assert_close(program, inputs, evaluate(found, inputs), evaluate(program, inputs))


def test_the_deviation_from_another_mean_is_no_variance() -> None:
    @tp.program
    def net(x: f32[Tensor, "n d"], y: f32[Tensor, "n d"]) -> dict[str, Tensor]:
        other, columns = tp.mean(x, 1, keepdims=True), tp.mean(x, 0, keepdims=True)
        return {
            "a": tp.mean((y - other) ** 2, 1),
            "b": tp.mean((x - columns) ** 2, 1),
            "c": tp.sum((x - other) ** 2, 1),
        }

    program = apply(net.bind(n=4, d=4), "fuse_pointwise").program
    assert matches("one_pass_moments", program) == ()


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def example(*, n: int = 3, k: int = 4) -> dict[str, tp.Tensor]:
    found: dict[str, tp.Tensor] = RULES["one_pass_moments"].example(n=n, k=k)
    return found


def sum_for_the_mean_square(program: Program, op: Operation) -> Iterator[Change]:
    """Take the sum of squared deviations for their mean.

    before:
        mean[n] = sum[k] x[n, k] / 4
        variance[n] = sum[k] (x[n, k] - mean[n]) * (x[n, k] - mean[n]) / 4
    after:
        mean.moments[n, result] = moments[k] x[n, k]
        mean[n] = mean.moments[n, 1]
        variance[n] = mean.moments[n, 2] / 4
    """
    for change in RULES["one_pass_moments"].changes(program, op):
        fold, mean, variance = change.added
        assert isinstance(variance.body, Call)
        yield replace(change, added=(fold, mean, replace(variance, body=variance.body.args[0])))


def count_for_the_mean(program: Program, op: Operation) -> Iterator[Change]:
    """Read the count where the mean is.

    before:
        mean[n] = sum[k] x[n, k] / 4
        variance[n] = sum[k] (x[n, k] - mean[n]) * (x[n, k] - mean[n]) / 4
    after:
        mean.moments[n, result] = moments[k] x[n, k]
        mean[n] = mean.moments[n, 1]
        variance[n] = mean.moments[n, 2] / 4
    """
    for change in RULES["one_pass_moments"].changes(program, op):
        fold, mean, variance = change.added
        first = with_leaves(mean, lambda read: replace(read, index=(*read.index[:-1], Affine())))
        yield replace(change, added=(fold, first, variance))


WRONG = [
    Wrong(sum_for_the_mean_square, example, ("values", "text"), algebraic=True),
    Wrong(count_for_the_mean, example, ("values", "text"), algebraic=True),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
