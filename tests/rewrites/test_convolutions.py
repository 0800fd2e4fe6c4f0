"""Windows over phases and as columns: proved, and back to what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.convolution import convolution
from tapestry.expr import Affine, Read
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled, with_leaves


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "convolutions"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


@tp.program
def strided(x: f32[Tensor, "n c h w"], k: f32[Tensor, "o i r s"], *, groups: int = 1) -> Tensor:
    return tp.conv2d(x, k, stride=(2, 3), padding=1, groups=groups)


@tp.program
def dilated(x: f32[Tensor, "n c h w"], k: f32[Tensor, "o c r s"]) -> Tensor:
    return tp.conv2d(x, k, dilation=(2, 3), padding=2)


SIZES = {"n": 2, "c": 2, "h": 9, "w": 11, "o": 4, "r": 3, "s": 2}
BACK = {"strided_to_dense": "dense_to_strided", "dilated_to_dense": "dense_to_dilated"}


def steps(program: Program) -> list[tuple[int, int]]:
    """Step and gap of each direction of the convolution that an operation is."""
    (found,) = [found for op in program.operations if (found := convolution(op, program))]
    return [(line.step, line.gap) for line in (found.rows, found.columns)]


@pytest.mark.parametrize(
    ("program", "rule", "was"),
    [
        (strided.bind(**SIZES, i=2), "strided_to_dense", [(2, 1), (3, 1)]),
        (strided.bind(**SIZES, i=1, groups=2), "strided_to_dense", [(2, 1), (3, 1)]),
        (dilated.bind(**SIZES), "dilated_to_dense", [(1, 2), (1, 3)]),
    ],
)
def test_both_directions_become_dense_and_go_back(program: Program, rule: str, was: list[tuple[int, int]]) -> None:
    assert steps(program) == was
    dense = apply(program, rule).program
    assert matches(rule, dense) == ()
    back = apply(dense, BACK[rule]).program
    assert steps(back) == was
    assert len(back.operations) == 1


def test_pooling_is_folded_over_phases_like_a_convolution() -> None:
    @tp.program
    def pooled(x: f32[Tensor, "n c p"]) -> Tensor:
        return tp.max_pool1d(x, 3, stride=2)

    found = apply(pooled.bind(n=1, c=2, p=9), "strided_to_dense").program
    assert [op.monoid for op in found.operations] == [None, "max"]


def test_the_columns_of_a_convolution_make_it_a_product_and_back() -> None:
    program = strided.bind(**SIZES, i=2)
    (columns, product) = apply(program, "convolution_to_product").program.operations
    assert [str(row) for row in product.reads[0].index] == ["n", "p", "q", "c", "r", "s"]
    assert columns.reads == program.operations[0].reads[:1]
    assert steps(apply(apply(program, "convolution_to_product").program, "product_to_convolution").program) == [
        (2, 1),
        (3, 1),
    ]


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def only(name: str) -> Callable[[Callable[[Read], Read]], Callable[[Operation], Operation]]:
    """A fault in the reads of one tensor."""

    def of(change: Callable[[Read], Read]) -> Callable[[Operation], Operation]:
        return lambda op: with_leaves(
            op, lambda node: change(node) if isinstance(node, Read) and node.tensor == name else node
        )

    return of


def last_row(change: Callable[[Affine], Affine], read: Read) -> Read:
    """The read with its last index changed."""
    return replace(read, index=(*read.index[:-1], change(read.index[-1])))


def in_a_row(op: Operation, length: int) -> Operation:
    """The results of all phases, one phase after the other."""
    q = Affine.dim("q")
    return only("y.dense")(lambda read: replace(read, index=(*read.index[:-2], q // length, q % length)))(op)


def taps_beyond_the_window(program: Program, op: Operation) -> Iterator[Change]:
    """Fold over the phases, and over taps that the window does not have.

    before:
        y[n, k, q] = sum[c, s] (x[c, 2*q + s - 1] if 0 <= 2*q + s - 1 else 0) * w[k, c, s]
    after:
        y.phases[c, s1, i] = (x[c, 2*i + s1 - 1] if 0 <= 2*i + s1 - 1 < 10 else 0)
        y[n, k, q] = sum[c, s0, s1] y.phases[c, s1, q + s0] * w[k, c, 2*s0 + s1]  where 2*s0 + s1 < 3
    """
    for change in RULES["strided_to_dense"].changes(program, op):
        view, whole = change.added
        clamped = only("w")(partial(last_row, lambda row: row % program.tensor("w").shape[-1]))
        yield replace(change, added=(view, replace(clamped(whole), where=())))


def phases_exchanged(program: Program, op: Operation) -> Iterator[Change]:
    """Fold over the phases in the wrong order.

    before:
        y[n, k, q] = sum[c, s] (x[c, 2*q + s - 1] if 0 <= 2*q + s - 1 else 0) * w[k, c, s]
    after:
        y.phases[c, s1, i] = (x[c, 2*i + s1 - 1] if 0 <= 2*i + s1 - 1 < 10 else 0)
        y[n, k, q] = sum[c, s0, s1] y.phases[c, s1, q + s0] * w[k, c, 2*s0 + s1]  where 2*s0 + s1 < 3
    """
    other = only("y.phases")(lambda read: replace(read, index=(read.index[0], 1 - read.index[1], read.index[2])))
    yield from spoiled("strided_to_dense", program, op, other)


def results_in_a_row(program: Program, op: Operation) -> Iterator[Change]:
    """Take the results of all phases one phase after the other.

    before:
        y[n, k, q] = sum[c, s] (x[c, q + 2*s - 1] if 0 <= q + 2*s - 1 < 13 else 0) * w[k, c, s]
    after:
        y.phases[c, q1, i] = (x[c, 2*i + q1 - 1] if 0 <= 2*i + q1 - 1 < 13 else 0)
        y.dense[n, k, q1, q0] = sum[c, s] y.phases[c, q1, q0 + s] * w[k, c, s]
        y[n, k, q] = y.dense[n, k, q % 2, q//2]
    """
    for change in RULES["dilated_to_dense"].changes(program, op):
        yield replace(change, added=(*change.added[:2], in_a_row(change.added[2], change.tensors[1].shape[-1])))


def columns_one_further(program: Program, op: Operation) -> Iterator[Change]:
    """Lay out what each window shows, shifted by one tap.

    before:
        y[n, k, q] = sum[c, s] (x[c, q + s - 1] if 0 <= q + s - 1 < 10 else 0) * w[k, c, s]
    after:
        y.columns[q, c, s] = (x[c, q + s - 1] if 0 <= q + s - 1 < 10 else 0)
        y[n, k, q] = sum[c, s] y.columns[q, c, s] * w[k, c, s]
    """
    for change in RULES["convolution_to_product"].changes(program, op):
        shift = only("y.columns")(partial(last_row, lambda row: (row + 1) % program.tensor("w").shape[-1]))
        yield replace(change, added=tuple(map(shift, change.added)))


def example(name: str) -> Callable[..., tp.Tensor]:
    def made(*, n: int = 7) -> tp.Tensor:
        found: tp.Tensor = RULES[name].example(n=n)
        return found

    return made


WRONG = [
    Wrong(taps_beyond_the_window, example("strided_to_dense"), ("sets", "values", "text")),
    Wrong(phases_exchanged, example("strided_to_dense"), ("sets", "values", "text")),
    Wrong(results_in_a_row, example("dilated_to_dense"), ("sets", "values", "text")),
    Wrong(columns_one_further, example("convolution_to_product"), ("values", "text")),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
