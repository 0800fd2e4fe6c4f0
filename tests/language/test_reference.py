"""The reference evaluator against a point-by-point interpreter, NumPy, and its own partitioned form."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tapestry.dtypes import numpy_dtype
from tapestry.errors import TapestryError, UsageError
from tapestry.expr import Affine, Bound, Call, Cast, Const, IndexValue, Inside, Read
from tapestry.program import Block, Dim, Operation, Program, Tensor
from tapestry.reference import evaluate, evaluate_all
from tapestry.reference.points import slabs
from tapestry.reference.values import round_to
from tapestry.space import Region, parse_region

d = Affine.dim


def program(
    *operations: Operation, outputs: tuple[str, ...] | None = None, **tensors: tuple[str, tuple[int, ...]]
) -> Program:
    """Tensors that no operation writes are inputs; the last operation's output comes out."""
    written = {op.output for op in operations}
    declared = tuple(
        Tensor(name, dtype, shape, "value" if name in written else "input") for name, (dtype, shape) in tensors.items()
    )
    return Program("p", declared, operations, outputs or (operations[-1].output,))


def read(tensor: str, *index: Affine | int) -> Read:
    return Read(tensor, tuple(Affine.of(row) for row in index))


def dims(**extents: int) -> tuple[Dim, ...]:
    return tuple(Dim(name, extent) for name, extent in extents.items())


def normal(*shape: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(numpy_dtype(dtype))


MATMUL = program(
    Operation(
        "mm",
        dims(i=5, j=4, k=7),
        "y",
        (d("i"), d("j")),
        Call("multiply", (read("a", d("i"), d("k")), read("b", d("k"), d("j")))),
        ("k",),
        "sum",
    ),
    a=("f32", (5, 7)),
    b=("f32", (7, 4)),
    y=("f32", (5, 4)),
)


def test_matmul_is_numpys() -> None:
    a, b = normal(5, 7), normal(7, 4, seed=1)
    want = (a.astype(np.float64) @ b).astype(np.float32)
    np.testing.assert_allclose(evaluate(MATMUL, {"a": a, "b": b})["y"], want, rtol=2e-7, atol=1e-12)


def stencil(dtype: str, fill: float) -> Program:
    """y[i] = x[i - 1] + 2 x[i + 2], outside counts as fill."""
    left = Read("x", (d("i") - 1,), (Bound(d("i") - 1, 0, 9),), fill)
    right = Read("x", (d("i") + 2,), (Bound(d("i") + 2, 0, 9),), fill)
    body = Call("add", (left, Call("multiply", (Const(2), right))))
    return program(Operation("st", dims(i=9), "y", (d("i"),), body), x=(dtype, (9,)), y=(dtype, (9,)))


def test_guarded_reads_give_the_fill_outside() -> None:
    x = np.arange(9, dtype=np.int32) - 4
    padded = np.concatenate([[5], x, [5, 5]])
    got = evaluate(stencil("int32", 5), {"x": x})["y"]
    assert got.tolist() == (padded[:9] + 2 * padded[3:12]).tolist()
    assert got.dtype == np.int32


def test_an_operand_without_elements_is_all_fill() -> None:
    body = Read("x", (d("i"),), (Bound(d("i"), 0, 0),), 3)
    p = program(Operation("op", dims(i=4), "y", (d("i"),), body), x=("int8", (0,)), y=("int8", (4,)))
    assert evaluate(p, {"x": np.zeros(0, np.int8)})["y"].tolist() == [3] * 4


def test_integers_wrap_at_the_write_and_only_there() -> None:
    body = Call("floor_divide", (Call("multiply", (read("x", d("i")), Const(4))), Const(2)))
    p = program(Operation("op", dims(i=3), "y", (d("i"),), body), x=("int8", (3,)), y=("int8", (3,)))
    assert evaluate(p, {"x": np.array([100, -100, 7], np.int8)})["y"].tolist() == [-56, 56, 14]


def test_cast_rounds_in_between() -> None:
    body = Call("subtract", (Cast("bf16", read("x", d("i"))), read("x", d("i"))))
    p = program(Operation("op", dims(i=1), "y", (d("i"),), body), x=("f32", (1,)), y=("f32", (1,)))
    x = np.array([1 + 2**-9], np.float32)
    assert evaluate(p, {"x": x})["y"].tolist() == [-(2**-9)]


@pytest.mark.parametrize(
    ("monoid", "dtype", "want"),
    [
        ("sum", "f32", 0), ("prod", "int32", 1), ("max", "f32", -math.inf), ("min", "bf16", math.inf),
        ("max", "int8", -128),
        ("min", "int64", 2**63 - 1), ("any", "bool", False), ("all", "bool", True), ("max", "bool", False),
    ],
)  # fmt: skip
def test_a_reduction_over_nothing_is_the_identity(monoid: str, dtype: str, want: Any) -> None:
    op = Operation("r", dims(i=2, k=0), "y", (d("i"),), read("x", d("i"), d("k")), ("k",), monoid)
    p = program(op, x=(dtype, (2, 0)), y=(dtype, (2,)))
    assert evaluate(p, {"x": np.zeros((2, 0), numpy_dtype(dtype))})["y"].tolist() == [want] * 2


def test_where_restricts_the_domain() -> None:
    """Row i sums x[0..i]; the read would leave x elsewhere."""
    body = read("x", d("i") - d("k"))
    op = Operation("r", dims(i=4, k=4), "y", (d("i"),), body, ("k",), "sum", (Bound(d("k") - d("i"), None, 1),))
    p = program(op, x=("int64", (4,)), y=("int64", (4,)))
    assert evaluate(p, {"x": np.array([1, 2, 3, 4])})["y"].tolist() == [1, 3, 6, 10]


def test_where_without_reduction_writes_only_its_points() -> None:
    """Two dimensions write along one axis: only i + j < 3 exists, and j is 0 or i is 2."""
    where = (Bound(2 * d("i") + d("j"), None, 5),)
    op = Operation("w", dims(i=3, j=2), "y", (2 * d("i") + d("j"),), read("x", d("i"), d("j")), where=where)
    p = program(op, x=("int32", (3, 2)), y=("int32", (5,)))
    assert evaluate(p, {"x": np.arange(6, dtype=np.int32).reshape(3, 2)})["y"].tolist() == [0, 1, 2, 3, 4]


def test_a_read_out_of_bounds_is_refused_with_a_witness() -> None:
    p = program(Operation("op", dims(i=3), "y", (d("i"),), read("x", d("i") + 1)), x=("f32", (3,)), y=("f32", (3,)))
    with pytest.raises(TapestryError, match=r"leaves the tensor along axis 0[\s\S]*witness: i=2"):
        evaluate(p, {"x": np.zeros(3, np.float32)})


def test_views_are_index_expressions() -> None:
    """Transpose, reverse and reshape at once: y[q] = x[2 - q // 4, q mod 4] reversed along its second axis."""
    q = d("q")
    p = program(
        Operation("v", dims(q=12), "y", (q,), read("x", 2 - q // 4, 3 - q % 4)), x=("int32", (3, 4)), y=("int32", (12,))
    )
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert evaluate(p, {"x": x})["y"].tolist() == x[::-1, ::-1].reshape(-1).tolist()


def test_index_values_and_conditions() -> None:
    body = Call("where", (Inside((Bound(d("i"), 1, 3),)), IndexValue(3 * d("i") + 1), Const(-1)))
    p = program(Operation("op", dims(i=4), "y", (d("i"),), body), y=("int64", (4,)))
    assert evaluate(p, {})["y"].tolist() == [-1, 4, 7, -1]


def test_constants_states_and_every_tensor() -> None:
    add = Operation("add", dims(i=2), "y", (d("i"),), Call("add", (read("s", d("i")), read("c", d("i")))))
    tensors = (
        Tensor("s", "f32", (2,), "state"),
        Tensor("c", "f32", (2,), "const", data=(1.5, -2.0)),
        Tensor("y", "f32", (2,)),
    )
    p = Program("p", tensors, (add,), ("c",), states=(("s", "y"),))
    s = np.array([1, 2], np.float32)
    assert {k: v.tolist() for k, v in evaluate(p, {"s": s}).items()} == {"c": [1.5, -2.0], "s": [2.5, 0.0]}
    assert set(evaluate_all(p, {"s": s})) == {"s", "c", "y"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": normal(5, 7)}, "lacks the values of 'b'"),
        ({"a": normal(5, 7), "b": normal(7, 4), "bb": normal(1)}, "no input 'bb'"),
        ({"a": normal(5, 7), "b": normal(4, 7)}, r"b has the wrong shape[\s\S]*\(7, 4\) \(0 1\)[\s\S]*\(4, 7\)"),
        ({"a": normal(5, 7), "b": normal(7, 4, dtype="f64")}, r"b has the wrong dtype[\s\S]*f32[\s\S]*f64"),
        ({"a": normal(5, 7), "b": np.zeros((7, 4), np.uint8)}, r"b has the wrong dtype[\s\S]*uint8"),
    ],
)
def test_bad_inputs_are_named(inputs: Mapping[str, np.ndarray], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(MATMUL, inputs)


def test_partial_sums_fold_to_the_whole() -> None:
    a, b = normal(5, 7), normal(7, 4, seed=1)
    parts = [parse_region(text) for text in ("0:5,0:4,0:2", "0:3,0:4,2:7", "3:5,0:4,2:7", "empty", "0:5,0:4,0:2")]
    got = evaluate(MATMUL, {"a": a, "b": b}, partition={"mm": parts})["y"]
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["0:5,0:4,0:6"], r"no shard computes some of the points[\s\S]*\(0, 0, 6\)"),
        (["0:5,0:4,0:6", "0:5,0:4,5:7"], r"overlaps[\s\S]*\(0, 0, 5\)"),
        (["0:5,0:4,0:8"], r"leaves the index space"),
    ],
)
def test_shards_that_do_not_tile_are_refused(parts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(MATMUL, {"a": normal(5, 7), "b": normal(7, 4)}, partition={"mm": [parse_region(p) for p in parts]})


def test_a_partition_of_an_unknown_operation_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'mm'"):
        evaluate(MATMUL, {"a": normal(5, 7), "b": normal(7, 4)}, partition={"m": [Region()]})


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_slabs_cover_every_point_once(limit: int) -> None:
    grid = parse_region("0:3,1:9:2|20:22,0:5").grids[0]
    pieces = list(slabs(("a", "b", "c"), grid, [("a", "b", "c")], limit))
    points = [point for piece in pieces for point in itertools.product(*(axis.tolist() for axis in piece.axes))]
    assert sorted(points) == sorted(itertools.product(*(list(axis) for axis in grid.axes)))
    assert all(math.prod(piece.shape) <= limit for piece in pieces)


def test_small_slabs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(5, 7), normal(7, 4, seed=1)
    whole = evaluate(MATMUL, {"a": a, "b": b})["y"]
    monkeypatch.setattr("tapestry.reference.evaluation.SLAB_ELEMENTS", 4)
    np.testing.assert_array_equal(evaluate(MATMUL, {"a": a, "b": b})["y"], whole)


def test_bf16_is_rounded_once() -> None:
    """From float64 directly to the nearest bf16, by exhaustive comparison with its neighbours."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=2000).astype(ml_dtypes.bfloat16).astype(np.float64)
    ulp = np.abs(base) * 2.0**-8
    values = np.concatenate([base + ulp * s for s in (0.25, 0.5 + 1e-9, 0.5 - 1e-9, 0.75, 1e-12)])
    got = round_to(values, "bf16").astype(np.float64)
    around = np.stack([np.nextafter(got.astype(ml_dtypes.bfloat16), ml_dtypes.bfloat16(s * np.inf)) for s in (-1, 1)])
    assert (np.abs(values - got) <= np.abs(values - around.astype(np.float64)).min(axis=0)).all()


def test_the_oracle_shares_no_code_with_projections() -> None:
    """It takes sets as its users write them, and nothing that computes images, counts or layouts."""
    from tapestry import reference

    names: set[str] = set()
    for path in Path(reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module and "space" in node.module:
                assert node.module == "space"
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 2:
                # What a record is made of and what a block kernel is are facts of the language, as its tables are.
                assert node.module in ("blocks", "dtypes", "errors", "expr", "program", "records", "result_type")
            elif isinstance(node, ast.ImportFrom | ast.Import):
                assert getattr(node, "level", 0) < 2
    assert names <= {"Box", "Grid", "IntSet", "Region"}


# --- attention ---------------------------------------------------------------------------------------------------


def attention(tokens: int, keys: int, heads: int, groups: int, width: int, causal: bool) -> Program:
    """State of grouped-head attention; query head h reads key head h // (heads / groups)."""
    t, h, s, c = d("t"), d("h"), d("s"), d("c")
    g, inside = h // (heads // groups), (Bound(c, 0, width),)
    body = Block(
        "attention",
        (Read("q", (t, h, c), inside), Read("k", (s, g, c), inside), Read("v", (s, g, c), inside)),
        (("scale", width**-0.5),),
    )
    space = (Dim("t", tokens), Dim("h", heads), Dim("s", keys), Dim("c", width + 2, cut=False))
    where = (Bound(s - t, None, 1 + keys - tokens),) if causal else ()
    op = Operation("attn", space, "state", (t, h, c), body, ("s",), "online_softmax", where)
    ratio = Call("divide", (read("state", t, h, d("e")), read("state", t, h, width)))
    finish = Operation("finish", (*space[:2], Dim("e", width)), "o", (t, h, d("e")), ratio)
    shapes = {"q": (tokens, heads, width), "k": (keys, groups, width), "v": (keys, groups, width)}
    shapes |= {"state": (tokens, heads, width + 2), "o": (tokens, heads, width)}
    return program(op, finish, **{name: ("f32", shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_is_softmax_of_scores_times_values(causal: bool, groups: int) -> None:
    p = attention(5, 7, 4, groups, 3, causal)
    q, k, v = normal(5, 4, 3), normal(7, groups, 3, seed=1), normal(7, groups, 3, seed=2)
    wide_k, wide_v = (np.repeat(a, 4 // groups, axis=1) for a in (k, v))
    scores = np.einsum("the,she->ths", q, wide_k, dtype=np.float64) / math.sqrt(3)
    if causal:
        scores[np.broadcast_to(np.arange(7) > np.arange(5)[:, None, None] + 2, scores.shape)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("ths,she->the", weights / weights.sum(-1, keepdims=True), wide_v)
    inputs = {"q": q, "k": k, "v": v}
    np.testing.assert_allclose(evaluate(p, inputs)["o"], want, rtol=1e-6, atol=1e-7)
    cuts = [parse_region(text) for text in ("0:5,0:4,0:3,0:5", "0:5,0:4,3:4|6:7,0:5", "0:5,0:4,4:6,0:5")]
    np.testing.assert_allclose(evaluate(p, inputs, partition={"attn": cuts})["o"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extent", [2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**70])
def test_index_spaces_past_64_bits_are_refused(extent: int) -> None:
    """NumPy lists no points at all of some of them, and a fold over nothing is its identity."""
    greatest = Operation("f", (Dim("k", extent),), "y", (), read("x"), ("k",), "max")
    with pytest.raises(UsageError, match="too large for the reference to list"):
        evaluate(program(greatest, x=("int64", ()), y=("int64", ())), {"x": np.int64(3)})


def test_indices_past_64_bits_are_refused() -> None:
    """The guard is decided on an index of 2**70, which 64 bits would wrap round."""
    far = Read("x", (d("k"),), (Bound(d("k") * 2**70, 0, 1),), 7)
    first = Operation("f", (Dim("k", 3),), "y", (d("k"),), far)
    with pytest.raises(UsageError, match="too large for the reference to list"):
        evaluate(program(first, x=("int64", (3,)), y=("int64", (3,))), {"x": np.arange(3)})
