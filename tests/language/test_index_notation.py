"""Index notation: what an operation declared with `tp.op` becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, anyfloat, anytype, bool_, f32, int32, num
from tapestry.notation import format_operation
from tapestry.program import Operation, Program
from tapestry.testing import outputs_of, program_of


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def algebra(program: Program) -> list[str]:
    return [format_operation(op) for op in program.operations]


def only(program: Program) -> Operation:
    (op,) = program.operations
    return op


@tp.op
def conv(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c r s"], *, stride: int = 1) -> f32[Tensor, "n k p q"]:
    """Cross-correlation."""
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, c, stride * p + r, stride * q + s] * w[k, c, r, s])


def test_a_declaration_gives_domain_fold_and_projections() -> None:
    op = only(program_of(lambda x, w: conv(x, w, stride=2), x=zeros(2, 3, 9, 8), w=zeros(4, 3, 3, 2)))
    assert op.extents == {"n": 2, "k": 4, "p": 4, "q": 4, "c": 3, "r": 3, "s": 2}
    assert (op.reduce_dims, op.monoid) == (("c", "r", "s"), "sum")
    assert format_operation(op) == "out[n, k, p, q] = sum[c, r, s] x[n, c, 2*p + r, 2*q + s] * w[k, c, r, s]"


@pytest.mark.parametrize(("extent", "window", "stride"), [(9, 3, 2), (8, 3, 2), (3, 3, 1), (10, 1, 4), (7, 2, 3)])
def test_an_unbound_range_is_the_largest_that_stays_inside(extent: int, window: int, stride: int) -> None:
    op = only(program_of(lambda x, w: conv(x, w, stride=stride), x=zeros(1, 1, extent, 3), w=zeros(1, 1, window, 3)))
    p = op.extents["p"]
    assert stride * (p - 1) + window <= extent < stride * p + window


def test_ranges_through_floors_and_signs() -> None:
    @tp.op
    def spread(x: f32[Tensor, "a"], y: f32[Tensor, "b"]) -> f32[Tensor, "p q"]:
        p, q = tp.indices("p q")
        return x[p // 3] * y[9 - q]

    op = only(program_of(spread, x=zeros(4), y=zeros(10)))
    assert (op.extents["p"], op.extents["q"]) == (12, 10)


def test_guarded_reads_are_zero_or_the_fill_outside() -> None:
    @tp.op
    def around(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        n = tp.indices("n")
        return x.get[n - 1] + x.get(n + 2, fill=100)

    (got,) = outputs_of(around, x=np.arange(1, 6, dtype=np.int32))
    np.testing.assert_array_equal(got, [3, 5, 7, 103, 104])


def test_a_fold_inside_an_expression_becomes_an_operation_of_its_own() -> None:
    @tp.op
    def centred(x: f32[Tensor, "n c"]) -> f32[Tensor, "n c"]:
        n, c, k = tp.indices("n c k")
        return x[n, c] - tp.sum[k](x[n, k]) / x.shape[1]

    program = program_of(centred, x=zeros(3, 4))
    assert algebra(program) == [
        "centred.sum[n] = sum[k] x[n, k]",
        "out[n, c] = x[n, c] - centred.sum[n] / 4",
    ]
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(centred, x=values)[0], values - values.mean(1, keepdims=True), atol=1e-6)


def test_folds_nest() -> None:
    @tp.op
    def minimax(x: num[Tensor, "n c"]) -> num[Tensor, ""]:
        n, c = tp.indices("n c")
        return tp.min[n](tp.max[c](x[n, c])) * 10

    values = np.array([[1, 9, 2], [4, 3, 5]], np.int32)
    (got,) = outputs_of(minimax, x=values)
    assert got == 50


def test_conditions_on_indices_restrict_a_fold() -> None:
    @tp.op
    def prefix(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        n, s = tp.indices("n s")
        return tp.sum[s](x[s], where=(s <= n) & (s > n - 3))

    values = np.arange(1, 8, dtype=np.int32)
    (got,) = outputs_of(prefix, x=values)
    np.testing.assert_array_equal(got, [1, 3, 6, 9, 12, 15, 18])
    assert [str(bound) for bound in only(program_of(prefix, x=values)).where] == ["-2 <= -n + s < 1"]


def test_a_fold_over_nothing_is_its_identity() -> None:
    @tp.op
    def later(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        n, s = tp.indices("n s")
        return tp.sum[s](x[s], where=(s < n) & (n > 2))

    np.testing.assert_array_equal(outputs_of(later, x=np.arange(1, 6, dtype=np.int32))[0], [0, 0, 0, 6, 10])
    np.testing.assert_array_equal(outputs_of(later, x=np.ones(1, np.int32))[0], [0])


def test_indices_are_numbers_and_conditions_are_truth_values() -> None:
    @tp.op
    def table(x: f32[Tensor, "n k"]) -> f32[Tensor, "n k"]:
        n, k = tp.indices("n k")
        value = tp.where((n == k) | (k >= 2 * n + 2), 1.0, 0.5 * n - k / 2)
        return value + 2.0 ** (-n) + tp.where(n != k, x[n, k], 0)

    n, k = np.mgrid[:4, :5]
    want = np.where((n == k) | (k >= 2 * n + 2), 1.0, 0.5 * n - k / 2) + 2.0**-n + np.where(n != k, 3.0, 0)
    np.testing.assert_allclose(outputs_of(table, x=np.full((4, 5), 3, np.float32))[0], want, rtol=1e-6)


def test_an_output_axis_may_be_an_expression_of_extents() -> None:
    @tp.op
    def twice(x: f32[Tensor, "n"]) -> f32[Tensor, "p=2*n"]:
        p = tp.indices("p")
        return x[p // 2]

    (got,) = outputs_of(twice, x=np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(got, [1, 1, 2, 2, 3, 3])


def test_all_monoids() -> None:
    @tp.op
    def folds(x: int32[Tensor, "n k"]) -> num[Tensor, "n"]:
        n, k = tp.indices("n k")
        truth = tp.any[k](x[n, k] > 3) & ~tp.all[k](x[n, k] > 0)
        return tp.where(truth, tp.prod[k](x[n, k]), tp.max[k](x[n, k]) - tp.min[k](x[n, k]))

    values = np.array([[1, 2, 5], [-1, 2, 4], [-3, -2, 0]], np.int32)
    (got,) = outputs_of(folds, x=values)
    np.testing.assert_array_equal(got, [4, -8, 3])


def test_zero_dimensional_operands_need_no_index() -> None:
    @tp.op
    def scale(x: f32[Tensor, "n"], a: f32[Tensor, ""]) -> f32[Tensor, "n"]:
        n = tp.indices("n")
        return x[n] * a

    (got,) = outputs_of(scale, x=np.array([1, 2], np.float32), a=np.array(3, np.float32))
    np.testing.assert_array_equal(got, [3, 6])


def test_views_compose_into_the_projection() -> None:
    def net(x: Tensor, w: Tensor) -> Tensor:
        return conv(tp.pad(x[:, :, ::-1], d2=1), w)

    op = only(program_of(net, x=zeros(1, 2, 5, 5), w=zeros(1, 2, 3, 3)))
    assert "(x[n, c, -p - r + 5, q + s] if 0 <= p + r - 1 < 5 else 0)" in format_operation(op)


def test_names_of_scopes_variables_and_counters() -> None:
    def net(x: Tensor) -> Any:
        with tp.name("a"):
            y = tp.relu(x)
            y = tp.relu(y)
            z = tp.exp(y).named("last")
        return tp.relu(z, name="ending"), tp.softmax(z[None, :])

    program = program_of(net, x=zeros(3))
    assert [op.name for op in program.operations] == [
        "a.relu", "a.relu_1", "a.last", "ending", "softmax.max", "softmax.sum", "softmax.divide",
    ]  # fmt: skip
    assert [op.output for op in program.operations] == [
        "a.y", "a.y_1", "a.last", "ending", "softmax.max", "softmax.sum", "out1",
    ]  # fmt: skip
    assert [op.group for op in program.operations] == ["", "", "", "", *["softmax"] * 3]


def test_sources_name_the_line_of_the_program() -> None:
    op = only(program_of(lambda x: tp.relu(x), x=zeros(3)))
    assert op.source.startswith("test_index_notation.py:")


@tp.op
def dotted(x: anyfloat[Tensor, "n d"], w: anyfloat[Tensor, "d k"]) -> anyfloat[Tensor, "n k"]:
    n, k, d = tp.indices("n k d")
    return tp.sum[d](x[n, d] * w[d, k])


@tp.op
def loose(x: f32[Tensor, "n d"]) -> f32[Tensor, "n"]:
    n, d = tp.indices("n d")
    return x[n, d]


@tp.op
def shifted(x: f32[Tensor, "n d"]) -> f32[Tensor, "n d"]:
    n, d = tp.indices("n d")
    return x[n, d + 1]


@tp.op
def unbounded(x: f32[Tensor, "n"]) -> f32[Tensor, "n p"]:
    n, p = tp.indices("n p")
    return x[n] + p / 2


@tp.op
def product(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n * n]


@tp.op
def unindexed(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n] + x


@tp.op
def wrong_rank(x: f32[Tensor, "n d"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n]


@tp.op
def chained(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return tp.where(0 < n < 3, x[n], 0)


@tp.op
def truth(x: f32[Tensor, "n"]) -> bool_[Tensor, "n"]:
    n = tp.indices("n")
    return x[n]


@tp.op
def twofold(x: f32[Tensor, "n d"]) -> f32[Tensor, "n"]:
    n, d = tp.indices("n d")
    return tp.sum[d, d](x[n, d])


@tp.op
def not_a_condition(x: f32[Tensor, "n d"]) -> f32[Tensor, "n"]:
    n, d = tp.indices("n d")
    return tp.sum[d](x[n, d], where=x[n, d] > 0)


@tp.op
def logic(x: f32[Tensor, "n"]) -> anytype[Tensor, "n"]:
    n = tp.indices("n")
    return x[n] & x[n]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: dotted(x, x), ["w has extent 3 along d, which is 4", '"d k"  with d=4', "[3, 4]"]),
        (lambda x: dotted(x), ["missing a required argument: 'w'"]),
        (lambda x: dotted(x, 3.0), ["w is 3.0, not a tensor"]),
        (lambda x: dotted(x, x.astype("int32")), ["w has another dtype", "anyfloat[d k]", "int32", "astype"]),
        (lambda x: dotted(x, x[0]), ["w has 1 axes, declared are 2"]),
        (lambda x: loose(x), ["index d is neither an output axis nor folded", "tp.sum[d]"]),
        (
            lambda x: shifted(x),
            ["reads x[n, d + 1] outside its shape", "d + 1 in [1, 4] along d1", "d1 in [0, 3]", "d1=4  from d=3"],
        ),
        (lambda x: unbounded(x[0]), ["nothing bounds the index p"]),
        (lambda x: product(x[0]), ["multiplies two indices"]),
        (lambda x: unindexed(x[0]), ["meets an element of index notation", "give it indices"]),
        (lambda x: wrong_rank(x), ["1 indices for 2 axes"]),
        (lambda x: chained(x[0]), ["no truth value"]),
        (lambda x: truth(x[0]), ["does not fit the declared dtype", "f32", "bool"]),
        (lambda x: twofold(x), ["names an index twice"]),
        (lambda x: not_a_condition(x), ["not a condition on indices"]),
        (lambda x: logic(x[0]), ["logical_and has no meaning for (f32, f32)"]),
        (lambda x: x + 1 if x else x, ["no truth value"]),
        (lambda x: tp.sum(x, axis=5), ["no axis 5"]),
        (lambda x: tp.sum(x, axis=("d0", 0)), ["named twice"]),
        (lambda x: x + zeros(3, 4), ["neither a number nor a tensor", "tp.constant"]),
        (lambda x: x + x[:, :3], ["does not broadcast"]),
        (lambda x: (x + 1).named("a b"), ["cannot be a name"]),
        (lambda x: x.named("z"), ["the input x keeps its name"]),
        (lambda x: x.astype("float32"), ["unknown dtype 'float32'"]),
        (lambda x: 3, ["the program returns 3, not a tensor"]),
        (lambda x: x[tp.indices("n k")], ["x[n, k] is one element, not a tensor", "tp.sum[c](...)"]),
        (lambda x: tp.sum(x[tp.indices("n k")]), ["x[n, k] is one element, not a tensor"]),
        (lambda x: x[tp.indices("n k")].named("y"), ["x[n, k] is one element, not a tensor"]),
        (lambda x: {"a.": x}, ["'a.' cannot be the name of an output"]),
        (lambda x: {"x": x + 1}, ["two tensors are called 'x'"]),
    ],
)
def test_errors_say_what_where_and_both_sides(call: Callable[[Tensor], Any], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_of(call, x=zeros(3, 4))
    for words in said:
        assert words in str(caught.value)


def test_reads_out_of_bounds_in_full() -> None:
    @tp.op
    def before(image: f32[Tensor, "n c y x"]) -> f32[Tensor, "n c y x"]:
        n, c, y, x = tp.indices("n c y x")
        return image[n, c, y - 1, x]

    @tp.program
    def net(image: f32[Tensor, "n 3 y x"]) -> Tensor:
        return before(image)

    line = before.function.__code__.co_firstlineno + 3
    with pytest.raises(tp.ReadOutOfBounds) as caught:
        net.bind(n=1, y=224, x=224)
    assert str(caught.value) == "\n".join(
        [
            f"before (test_index_notation.py:{line}) reads image[n, c, y - 1, x] outside its shape",
            "  axes    image[n=1, d1=3, y=224, x=224]",
            "  reads   y - 1 in [-1, 222] along y",
            "  holds   y in [0, 223]      witness: n=0 d1=0 y=-1 x=0  from y=0",
            "  hint    pad the operand (tp.pad(image, y=(1, 0))), guard the read (.get[...]) or shrink the range",
        ]
    )
    called, bound = caught.value.__notes__
    assert called == f"called at test_index_notation.py:{net.function.__code__.co_firstlineno + 2}"
    assert bound.startswith("while binding net")


def test_operations_belong_to_a_program() -> None:
    with pytest.raises(tp.UsageError, match="called outside of a program"):
        tp.full((2,), 1.0, "f32")


def test_an_operation_without_declared_output_is_refused() -> None:
    @tp.op
    def f(x: f32[Tensor, "n"]) -> Tensor:
        return x[tp.indices("n")]

    with pytest.raises(tp.UsageError, match="does not declare its output"):
        program_of(f, x=zeros(3))


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(-4, 4), st.integers(-5, 30), st.integers(1, 4)), min_size=1))
def test_inferred_ranges_are_the_largest_by_enumeration(extent: int, rows: list[tuple[int, int, int]]) -> None:
    @tp.op
    def picked(x: f32[Tensor, "n"]) -> f32[Tensor, "p"]:
        p = tp.indices("p")
        total = x[(rows[0][0] * p + rows[0][1]) // rows[0][2]]
        for a, b, d in rows[1:]:
            total = total + x[(a * p + b) // d]
        return total

    inside = [p for p in range(300) if all(0 <= (a * p + b) // d < extent for a, b, d in rows)]
    if not any(a for a, _, _ in rows):
        with pytest.raises(tp.UsageError, match="nothing bounds the index p"):
            program_of(picked, x=zeros(extent))
    elif not inside:
        with pytest.raises(tp.UsageError, match=r"outside its shape|two readings"):
            program_of(picked, x=zeros(extent))
    elif inside != list(range(len(inside))):
        with pytest.raises(tp.UsageError, match="two readings"):
            program_of(picked, x=zeros(extent))
    else:
        assert only(program_of(picked, x=zeros(extent))).extents["p"] == len(inside)
