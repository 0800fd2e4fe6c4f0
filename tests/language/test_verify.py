"""What `verify` accepts and refuses: every verdict provoked once, with its place and witness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.bounds import escape
from tapestry.errors import ProgramError, ReadOutOfBounds, UsageError
from tapestry.expr import Affine, Bound, Call, Cast, Const, IndexValue, Read
from tapestry.program import Block, Dim, Operation, Pin, Program, Tensor
from tapestry.testing import programs
from tapestry.verify import verify

N, K, C = map(Affine.dim, "nkc")
X, W, Y, Z = (
    Tensor("x", "f32", (4, 3), "input", ("n", "c")),
    Tensor("w", "f32", (3, 5), "param", ("c", "k")),
    Tensor("y", "f32", (4, 5), axes=("n", "k")),
    Tensor("z", "f32", (4, 5), axes=("n", "k")),
)
PRODUCT = Call("multiply", (Read("x", (N, C)), Read("w", (C, K))))
MATMUL = Operation(
    "matmul", (Dim("n", 4), Dim("k", 5), Dim("c", 3)), "y", (N, K), PRODUCT, ("c",), "sum", source="net.py:7"
)  # fmt: skip
RELU = Operation("relu", (Dim("n", 4), Dim("k", 5)), "z", (N, K), Call("maximum", (Read("y", (N, K)), Const(0))))
NET = Program("net", (X, W, Y, Z), (MATMUL, RELU), ("z",))


def with_op(**changes: object) -> Program:
    return replace(NET, operations=(replace(MATMUL, **changes), RELU))  # type: ignore[arg-type]


def with_relu(**changes: object) -> Program:
    return replace(NET, operations=(MATMUL, replace(RELU, **changes)))  # type: ignore[arg-type]


def with_tensor(which: str, /, **changes: object) -> Program:
    tensors = tuple(replace(t, **changes) if t.name == which else t for t in NET.tensors)  # type: ignore[arg-type]
    return replace(NET, tensors=tensors)


def test_a_valid_program_passes() -> None:
    verify(NET)


@given(programs())
def test_generated_programs_are_valid(program: Program) -> None:
    verify(program)


TRUTH = Call("less", (Read("y", (N, K)), Const(0)))
STATE = Tensor("s", "f32", (4, 5), "state", ("n", "k"))
CASES: list[tuple[Program, list[str]]] = [
    (with_tensor("y", name="x"), ["two tensors are called x"]),
    (with_tensor("y", name="a b"), ["'a b' cannot name a tensor"]),
    (with_op(name="relu"), ["two operations are called relu"]),
    (with_tensor("x", dtype="f8"), ["tensor x: unknown dtype 'f8'"]),
    (with_tensor("x", role="weight"), ["tensor x: unknown role 'weight'", "known: input, param"]),
    (with_tensor("x", shape=(4, -1)), ["tensor x: the extent -1 is not an integer from 0 to 2**63 - 2"]),
    (with_tensor("x", axes=("n", "n")), ["tensor x: each axis needs a name of its own"]),
    (with_tensor("x", axes=("n",)), ["tensor x: each axis needs a name of its own"]),
    (with_tensor("x", role="const"), ["hold a value for each element", "none", "12"]),
    (with_tensor("x", data=(0.0,) * 12), ["constants, and only they"]),
    (with_op(dims=(Dim("n", 4), Dim("n", 5), Dim("c", 3))), ["matmul (net.py:7)", "not distinct identifiers"]),
    (
        with_op(dims=(Dim("n", 4), Dim("k", -5), Dim("c", 3))),
        ["the extent -5 of k is not an integer from 0 to 2**63 - 2"],
    ),
    (with_op(reduce_dims=("d",)), ["folds 'd', which is not one of its dimensions"]),
    (with_op(monoid=None), ["a fold needs a known monoid", "folds", "c"]),
    (with_op(monoid="mean"), ["a fold needs a known monoid", "mean"]),
    (with_op(reduce_dims=()), ["a fold needs a known monoid", "nothing"]),
    (with_op(write=(N, C)), ["writes 'c', which is not one of its dimensions there"]),
    (with_op(where=(Bound(Affine.dim("q"), 0, 1),)), ["is restricted by 'q'"]),
    (with_op(body=Read("v", (N, C))), ["reads 'v', which does not exist"]),
    (with_op(body=Read("x", (N,))), ["reads x[n]", "indices", "1", "axes", "2"]),
    (with_op(body=Read("x", (N, Affine.dim("q")))), ["reads x[n, q] with 'q'"]),
    (with_op(body=IndexValue(Affine.dim("q"))), ["uses 'q'"]),
    (with_op(body=Call("launch", (PRODUCT,))), ["calls launch with 1 arguments"]),
    (with_op(body=Call("exp", (PRODUCT, PRODUCT))), ["calls exp with 2 arguments"]),
    (with_op(body=Cast("f8", PRODUCT)), ["casts to the unknown dtype 'f8'"]),
    (with_op(output="v"), ["writes 'v', which does not exist"]),
    (with_op(output="w"), ["writes the param w"]),
    (with_op(output="z"), ["z is written by two operations", "matmul (net.py:7)", "relu"]),
    (replace(NET, operations=(MATMUL,)), ["no operation writes the value z"]),
    (replace(NET, operations=(RELU, MATMUL)), ["relu: reads y before matmul (net.py:7) writes it"]),
    (with_op(write=(N,)), ["writes y with another number of indices"]),
    (with_op(write=(N, N)), ["leaves elements of y unwritten", "n=0 k=1"]),
    (with_op(write=(N, K + 1)), ["writes y outside its shape", "n=0 k=5"]),
    (with_tensor("y", shape=(4, 6)), ["leaves elements of y unwritten", "n=0 k=5"]),
    (with_relu(dims=(Dim("n", 4), Dim("k", 5), Dim("q", 2))), ["writes elements of z more than once", "n=0 k=0"]),
    (with_relu(where=(Bound(N, 1, None),)), ["leaves elements of z unwritten", "n=0 k=0"]),
    (with_relu(body=Call("add", (TRUTH, TRUTH))), ["add has no meaning for (bool, bool)", "relu"]),
    (with_tensor("y", dtype="int32"), ["the value does not fit its tensor", "f32", "int32"]),
    (with_relu(body=TRUTH), []),
    (with_relu(body=Call("logical_not", (Read("y", (N, K)),))), ["logical_not has no meaning for (f32)", "relu"]),
    (with_op(monoid="any"), ["any has no meaning for f32"]),
    (with_op(monoid="online_softmax", body=Block("attention", ())), ["attention is given another number of reads"]),
    (replace(NET, outputs=("x",)), ["the output x is not a value"]),
    (replace(NET, outputs=("q",)), ["the output q is not a value"]),
    (replace(NET, outputs=("z", "z")), ["two outputs are called z"]),
    (replace(NET, states=(("x", "z"),)), ["x is replaced but is not a state"]),
    (replace(NET, tensors=(*NET.tensors, STATE), states=(("s", "x"),)), ["replaced by x, which is not a value"]),
    (
        replace(NET, tensors=(*NET.tensors, replace(STATE, shape=(4, 4))), states=(("s", "z"),)),
        ["the state s changes its type", "f32[4, 4]", "f32[4, 5]"],
    ),
    (replace(NET, pins=(Pin("op", "conv*", (("m", "n"),)),)), ["nothing is called 'conv*'", "known: matmul, relu"]),
    (replace(NET, pins=(Pin("op", "mat*", (("m", "q"),)),)), ["matmul has no dimension 'q'", "n, k, c"]),
    (replace(NET, pins=(Pin("tensor", "x", (("m", "k"),)),)), ["x has no axis 'k'"]),
    (replace(NET, pins=(Pin("op", "relu", (("m", "n"), ("m", "k"))),)), ["a mesh axis is named twice"]),
    (replace(NET, pins=(Pin("op", "relu", (("m", "n"),), "diagonal"),)), ["kinds", "block, zigzag"]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("program", "said"), [case for case in CASES if case[1]])
def test_invalid_programs_are_refused(program: Program, said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        verify(program)
    for words in said:
        assert words in str(caught.value)


@pytest.mark.parametrize("program", [case[0] for case in CASES if not case[1]])
def test_odd_but_valid_programs_pass(program: Program) -> None:
    verify(program)


def test_a_cycle_is_shown() -> None:
    back = replace(MATMUL, body=Call("add", (PRODUCT, Read("z", (N, K)))))
    with pytest.raises(ProgramError, match="in a circle") as caught:
        verify(replace(NET, operations=(back, RELU)))
    assert "cycle   matmul -> relu -> matmul" in str(caught.value)


def test_a_read_outside_shows_both_intervals_and_a_witness() -> None:
    far = replace(MATMUL, body=Call("multiply", (Read("x", (N, 2 * C - 1)), Read("w", (C, K)))))
    with pytest.raises(ReadOutOfBounds) as caught:
        verify(replace(NET, operations=(far, RELU)))
    assert str(caught.value) == "\n".join(
        [
            "matmul (net.py:7) reads x[n, 2*c - 1] outside its shape",
            "  axes    x[n=4, c=3]",
            "  reads   2*c - 1 in [-1, 3] along c",
            "  holds   c in [0, 2]      witness: n=0 c=-1  from c=0",
            "  hint    pad the operand (tp.pad(x, c=1)), guard the read (.get[...]) or shrink the range",
        ]
    )


@pytest.mark.parametrize(
    ("read", "where"),
    [
        (Read("x", (N, 2 * C - 1), (Bound(C, 1, 2),)), ()),
        (Read("x", (N, C - 1), (Bound(C - 1, 0, None),)), ()),
        (Read("x", (N, C + 1), (Bound(C, None, 2),)), ()),
        (Read("x", (K, C)), (Bound(N - K, None, 4), Bound(K - C, None, 2), Bound(C + K, None, 6))),
        (Read("x", (N, (4 * C + K) // 5)), ()),
    ],
)
def test_guards_and_conditions_grant_reads(read: Read, where: tuple[Bound, ...]) -> None:
    verify(with_op(body=Call("multiply", (read, Read("w", (C, K)))), where=where))


@pytest.mark.parametrize(
    "write",
    [
        (Affine.dim("k"), N),
        (3 - N, 4 - K),
        ((5 * N + K) // 5, (5 * N + K) % 5),
        (N, (K + 2) % 5),
        (N, K + 4 * N - 4 * N),
    ],
)
def test_writes_that_reach_every_element_once(write: tuple[Affine, Affine]) -> None:
    program = with_relu(write=write)
    if write[0] == Affine.dim("k"):
        program = replace(program, tensors=tuple(replace(t, shape=(5, 4)) if t.name == "z" else t for t in NET.tensors))
    verify(program)


def test_a_fold_over_nothing_writes_its_identity() -> None:
    verify(with_op(where=(Bound(C, 7, None),)))
    verify(with_op(where=(Bound(N, 1, 2), Bound(C - N, 0, None))))


def test_a_scalar_fold_covers_its_one_element() -> None:
    total = Operation("total", (Dim("n", 4), Dim("k", 5)), "t", (), Read("y", (N, K)), ("n", "k"), "sum")
    verify(replace(NET, tensors=(*NET.tensors, Tensor("t", "f32", ())), operations=(MATMUL, RELU, total)))


SIZES = {"a": 4, "b": 3}
RANGES = {name: (0, extent) for name, extent in SIZES.items()}


@st.composite
def rows(draw: st.DrawFn) -> Affine:
    index = Affine.of(draw(st.integers(-3, 3)))
    for name in SIZES:
        term = Affine.dim(name) * draw(st.integers(-2, 2)) + draw(st.integers(-2, 2))
        index += term // draw(st.integers(1, 3)) if draw(st.booleans()) else term
    return index


bounds = st.builds(
    Bound, rows(), st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.integers(0, 5))
)  # fmt: skip


@given(rows(), st.integers(1, 6), st.lists(bounds, max_size=2))
def test_escapes_are_found_exactly_when_some_point_escapes(index: Affine, extent: int, where: list[Bound]) -> None:
    points = [dict(zip(SIZES, p, strict=True)) for p in product(*(range(n) for n in SIZES.values()))]
    inside = [p for p in points if all(bound.holds(p) for bound in where)]
    outside = [p for p in inside if not 0 <= index.evaluate(p) < extent]
    found = escape((index,), (extent,), RANGES, where)
    assert (found is not None) == bool(outside)
    if found:
        point = {name: found.point.get(name, 0) for name in SIZES}
        assert any(all(p[n] == v for n, v in found.point.items()) for p in outside), point


def test_every_verdict_is_a_usage_error() -> None:
    verdicts: list[Callable[[str], UsageError]] = [ProgramError, ReadOutOfBounds]
    assert all(verdict("x").exit_code == 2 for verdict in verdicts)
