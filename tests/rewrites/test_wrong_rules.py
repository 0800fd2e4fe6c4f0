"""Rules that are subtly wrong on purpose: each proof that can see the fault does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import tapestry as tp
from tapestry.expr import Affine, Call, Const, Read
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.rewrites import RULES, Change
from tapestry.rewrites.rule import Rule
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, with_leaves

i, k, s = Affine.dim("i"), Affine.dim("k"), Affine.dim("s")


def source(name: str, dtype: str, **axes: int) -> tp.Tensor:
    return tp.input(name, dtype, tuple(axes.values()), axes=tuple(axes))


# -- fusion ------------------------------------------------------------------------------------------------------------


def narrow(*, i: int = 4) -> tp.Tensor:
    wrapped = (source("x", "int8", i=i) * 100).named("wrapped")
    return tp.cast(wrapped, "int32").named("y")


def unrounded(program: Program, op: Operation) -> Iterator[Change]:
    """Fuse, and forget that what was written was rounded.

    before:
        wrapped[i] = x[i] * 100
        y[i] = int32(wrapped[i])
    after:
        y[i] = int32(int8(x[i] * 100))
    """
    if op.output == "wrapped":
        (reader,) = program.consumers["wrapped"]
        cast = with_leaves(reader, lambda node: op.body if isinstance(node, Read) else node).body
        yield Change((op.name, reader.name), (replace(reader, body=cast),))


def padded(*, i: int = 4) -> tp.Tensor:
    risen = tp.exp(source("x", "f32", i=i)).named("risen")
    return (tp.pad(risen, ((1, 0),)) + 1).named("y")


def fill_goes_through(program: Program, op: Operation) -> Iterator[Change]:
    """Fuse, and compute with the fill of what is read in place of the fill of what was written.

    before:
        risen[i] = exp(x[i])
        y[i] = (risen[i - 1] if 0 <= i - 1 else 0) + 1
    after:
        y[i] = where([0 <= i - 1], exp((x[i - 1] if 0 <= i - 1 else 0)), 0) + 1
    """
    if op.output == "risen":
        (reader,) = program.consumers["risen"]

        def leaf(node: Any) -> Any:
            return Call("exp", (replace(node, tensor="x"),)) if isinstance(node, Read) else node

        yield Change((op.name, reader.name), (with_leaves(reader, leaf),))


def shift_forgotten(program: Program, op: Operation) -> Iterator[Change]:
    """Fuse, and read where the reader stands rather than where it reads.

    before:
        risen[i] = exp(x[i])
        y[i] = (risen[i - 1] if 0 <= i - 1 else 0) + 1
    after:
        y[i] = where([0 <= i - 1], exp((x[i - 1] if 0 <= i - 1 else 0)), 0) + 1
    """
    for change in RULES["fuse_pointwise"].changes(program, op) if op.output == "risen" else ():

        def leaf(node: Any) -> Any:
            inside = isinstance(node, Read) and node.tensor == "x"
            return replace(node, index=(i % program.tensor("x").shape[0],)) if inside else node

        yield replace(change, added=tuple(with_leaves(one, leaf) for one in change.added))


def turned(*, i: int = 3) -> tp.Tensor:
    x = tp.input("x", "f32", (i, i, i), axes=("i", "j", "k"))
    return tp.sum(tp.transpose(x, (1, 2, 0)).named("turned"), 2).named("y")


def turned_back(program: Program, op: Operation) -> Iterator[Change]:
    """Compose a view, and turn the axes the other way.

    before:
        turned[j, k, i] = x[i, j, k]
        y[j, k] = sum[i] turned[j, k, i]
    after:
        y[j, k] = sum[i] x[i, j, k]
    """
    for change in RULES["compose_views"].changes(program, op) if op.output == "turned" else ():

        def leaf(node: Any) -> Any:
            return replace(node, index=(*node.index[1:], node.index[0])) if isinstance(node, Read) else node

        yield replace(change, added=tuple(with_leaves(one, leaf) for one in change.added))


def backwards(*, i: int = 4) -> tp.Tensor:
    return tp.exp(tp.reverse(source("x", "f32", i=i), 0).named("flipped")).named("y")


def reverse_forgotten(program: Program, op: Operation) -> Iterator[Change]:
    """Take a reversed copy for the thing itself.

    before:
        flipped[i] = x[-i + 3]
        y[i] = exp(flipped[i])
    after:
        y[i] = exp(x[-i + 3])
    """
    if op.output == "flipped":
        (reader,) = program.consumers["flipped"]
        yield Change((op.name,), instead=(("flipped", "x"),), made_of=(op.name, reader.name))


# -- folds -------------------------------------------------------------------------------------------------------------


def summed(*, i: int = 2, k: int = 4, dtype: str = "int32") -> tp.Tensor:
    return tp.sum(source("x", dtype, i=i, k=k), 1).named("y")


def staged(program: Program, op: Operation, parts: int, length: int, step: int) -> Iterator[Change]:
    """The sum over k as ``parts`` sums of ``length`` terms, ``step`` apart."""
    if op.output != "y" or len(op.dims) != 2 or op.extents["k"] < 4:
        return
    part = Tensor("part", program.tensor("y").dtype, (*program.tensor("y").shape, parts))
    dims = (op.dims[0], Dim("s", parts), Dim("k", length))
    body = with_leaves(op, lambda node: replace(node, index=(i, step * s + k)) if isinstance(node, Read) else node).body
    first = replace(op, name="part", output="part", dims=dims, write=(i, s), body=body)
    second = replace(op, dims=(op.dims[0], Dim("s", parts)), reduce_dims=("s",), body=Read("part", (i, s)))
    yield Change((op.name,), (first, second), (part,))


def remainder_left_out(program: Program, op: Operation) -> Iterator[Change]:
    """Split a fold in halves, and leave out the odd one."""
    half = op.extents.get("k", 0) // 2
    yield from staged(program, op, 2, half, half)


def halves_overlap(program: Program, op: Operation) -> Iterator[Change]:
    """Split a fold in halves that have an element in common."""
    half = op.extents.get("k", 0) // 2
    yield from staged(program, op, 2, op.extents.get("k", 0) - half + 1, half - 1)


def largest_of_sums(*, i: int = 3, k: int = 4) -> tp.Tensor:
    return tp.max(tp.sum(source("x", "int32", i=i, k=k), 1).named("sums")).named("y")


def folds_exchanged(program: Program, op: Operation) -> Iterator[Change]:
    """Take the largest of sums for the sum of the largest."""
    if op.output == "sums":
        (last,) = program.consumers["sums"]
        tensor = Tensor("sums", "int32", (op.extents["k"],))
        first = replace(op, write=(k,), reduce_dims=("i",), monoid="max")
        dims = (op.dim("k"),)
        second = replace(last, dims=dims, reduce_dims=("k",), monoid="sum", body=Read("sums", (k,)))
        yield Change((op.name, last.name), (first, second), (tensor,))


# -- cleaning ----------------------------------------------------------------------------------------------------------


def both_ways(*, i: int = 3) -> tp.Tensor:
    x = tp.input("x", "f32", (i, i), axes=("i", "k"))
    a = tp.abs(x).named("a")
    b = tp.abs(tp.transpose(x)).named("b")
    return tp.sum(a - 2 * b, 1)


def merged_whatever_is_read(program: Program, op: Operation) -> Iterator[Change]:
    """Compute once what calls the same function on the same tensor."""
    if op.output == "b":
        yield Change((op.name,), instead=(("b", "a"),), made_of=("a", "b"))


def signed_zeros(*, i: int = 3) -> tp.Tensor:
    x = tp.abs(source("x", "f32", i=i)) + 1
    a, b = (x * 0.0).named("a"), (x * -0.0).named("b")
    return tp.divide(1.0, a) + tp.divide(2.0, b)


def merged_zeros(program: Program, op: Operation) -> Iterator[Change]:
    """Compute once what is equal, and 0.0 == -0.0."""
    if op.output == "b" and op.body == program.producer["a"].body:
        yield Change((op.name,), instead=(("b", "a"),), made_of=("a", "b"))


def two_widths(*, i: int = 3) -> tp.Tensor:
    x = source("x", "int32", i=i)
    a, b = tp.cast(x * 1000, "int32").named("a"), tp.cast(x * 1000, "int8").named("b")
    return tp.cast(a, "int32") - tp.cast(b, "int32")


def merged_dtypes(program: Program, op: Operation) -> Iterator[Change]:
    """Compute once what is the same but for the dtype it is kept in."""
    if op.output == "b":
        yield Change((op.name,), instead=(("b", "a"),), made_of=(program.producer["a"].name, op.name))


def counted(*, i: int = 3) -> tp.Tensor:
    count = tp.state("count", "f32", (i,), axes=("i",))
    tp.update(count, (count + 1).named("next"))
    return (source("x", "f32", i=i) + count).named("y")


def dead_but_for_a_state(program: Program, op: Operation) -> Iterator[Change]:
    """Leave out what no operation reads and no output is, states aside."""
    if op.output == "next":
        other = Tensor("next", "f32", program.tensor("next").shape)
        yield Change((op.name,), (replace(op, body=Read("count", (Affine.dim(op.dims[0].name),))),), (other,))


WRONG = [
    Wrong(unrounded, narrow, ("values", "text")),
    Wrong(fill_goes_through, padded, ("values", "text")),
    Wrong(shift_forgotten, padded, ("sets", "values", "text")),
    Wrong(turned_back, turned, ("sets", "values", "text")),
    Wrong(reverse_forgotten, backwards, ("sets", "values", "text")),
    Wrong(remainder_left_out, summed, ("sets", "values")),
    Wrong(halves_overlap, summed, ("sets", "values")),
    Wrong(folds_exchanged, largest_of_sums, ("values",)),
    Wrong(merged_whatever_is_read, both_ways, ("sets", "values")),
    Wrong(merged_zeros, signed_zeros, ("values",)),
    Wrong(merged_dtypes, two_widths, ("values",)),
    Wrong(dead_but_for_a_state, counted, ("values",)),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)


def test_a_rule_that_leaves_no_program_is_shown_with_what_it_left() -> None:
    def takes_all(program: Program, op: Operation) -> Iterator[Change]:
        if program.consumers[op.output]:
            yield Change((op.name,))

    rule = Rule("takes_all", "wrong", "", takes_all, largest_of_sums)
    with pytest.raises(AssertionError, match="is no program any more"):
        check_rule(rule, proofs=["values"], examples=10)


def test_a_rule_that_matches_nothing_proves_nothing() -> None:
    rule = Rule("never", "wrong", "", lambda program, op: iter(()), summed)
    with pytest.raises(AssertionError, match="matched none"):
        check_rule(rule, proofs=["sets"], examples=5)


def test_a_program_is_printed_before_and_after() -> None:
    with pytest.raises(AssertionError) as error:
        check_rule(WRONG[7].rule, proofs=["values"], examples=10)
    text = str(error.value)
    assert text.index("\nbefore\nprogram") < text.index("\nafter\nprogram")
    assert "y: element ()" in text


def test_constants_of_other_signs_are_told_apart() -> None:
    """The rule that is right sees what the wrong one does not."""
    assert Const(0.0) == Const(-0.0)
    program = tp.program(signed_zeros).bind()
    assert list(RULES["common_subexpressions"].changes(program, program.producer["b"])) == []
