"""An empty tensor is a tensor: extents of 0 in every room, from the language to the workers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tapestry as tp
from tapestry import Tensor, f32, int32, param
from tapestry.planner import plan
from tapestry.planner.cli import main
from tapestry.program import Dim, Program
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json
from tapestry.testing import outputs_of, program_of
from tapestry.verify import verify


@tp.program
def dense(x: f32[Tensor, "n d"], w: param[f32[Tensor, "d k"]]) -> dict[str, Tensor]:
    y = tp.relu(x @ w) + 1
    return {"y": y, "total": tp.sum(y), "most": tp.max(y, axis=0), "all": tp.all(y > 0, axis=1)}


def inputs(program: Program) -> dict[str, Any]:
    return {t.name: np.ones(t.shape, np.float32) for t in program.of_role("input", "param")}


def numpys(n: int, d: int, k: int) -> dict[str, Any]:
    y = np.maximum(np.ones((n, d), np.float32) @ np.ones((d, k), np.float32), 0) + 1
    most = np.max(y, axis=0, initial=-np.inf)
    return {"y": y, "total": y.sum(), "most": most, "all": (y > 0).all(axis=1)}


SHAPES = [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_agrees_with_numpy(shape: tuple[int, int, int]) -> None:
    program = dense.bind(**dict(zip("ndk", shape, strict=True)))
    verify(program)
    assert f"n={shape[0]}" in str(program)
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program
    found = evaluate(program, inputs(program))
    for name, value in numpys(*shape).items():
        np.testing.assert_array_equal(found[name], value)


def test_folds_over_nothing_give_the_identity() -> None:
    x = np.zeros((0, 2), np.float32)
    found = outputs_of(lambda x: (tp.sum(x, 0), tp.prod(x, 0), tp.max(x, 0), tp.min(x, 0)), x=x)
    assert [value.tolist() for value in found] == [[0, 0], [1, 1], [-math.inf] * 2, [math.inf] * 2]
    (low, high) = outputs_of(lambda i: (tp.max(i), tp.min(i)), i=np.zeros(0, np.int32))
    assert (low, high) == (-(2**31), 2**31 - 1)
    (any_, all_) = outputs_of(lambda b: (tp.any(b), tp.all(b)), b=np.zeros(0, np.bool_))
    assert (any_, all_) == (False, True)


VIEWS: dict[str, tuple[Any, Any]] = {
    "slice": (lambda x: x[3:3], lambda x: x[3:3]),
    "slice behind the end": (lambda x: x[9:, ::-1], lambda x: x[9:, ::-1]),
    "reverse": (lambda x: x[:0][::-1], lambda x: x[:0][::-1]),
    "concat": (lambda x: tp.concat([x[:0], x, x[:0]]), lambda x: x),
    "concat of empty ones": (lambda x: tp.concat([x[:0], x[:0]]), lambda x: x[:0]),
    "pad": (lambda x: tp.pad(x[:0], ((1, 2), 0), value=7), lambda x: np.full((3, x.shape[1]), 7, x.dtype)),
    "pad away": (lambda x: tp.pad(x, ((-2, -1), 0)), lambda x: x[:0]),
    "reshape": (lambda x: x[:0].reshape(4, 0, 2), lambda x: x[:0].reshape(4, 0, 2)),
    "reshape with a rest": (lambda x: x[:0].reshape(-1, 3), lambda x: x[:0].reshape(-1, 3)),
    "transpose": (lambda x: x[:0].T, lambda x: x[:0].T),
    "broadcast": (lambda x: x[:0] + x[:1], lambda x: x[:0]),
    "broadcast_to": (lambda x: tp.broadcast_to(x[:1], (0, 4)), lambda x: x[:0]),
    "stack": (lambda x: tp.stack([x[:0], x[:0]]), lambda x: np.stack([x[:0], x[:0]])),
    "matmul": (lambda x: x[:, :0] @ x[:0], lambda x: x[:, :0] @ x[:0]),
    "einsum": (lambda x: tp.einsum("ab,cb->ac", x[:0], x), lambda x: x[:0] @ x.T),
    "softmax": (lambda x: tp.softmax(x[:0]), lambda x: x[:0]),
    "full": (lambda x: tp.concat([x, tp.full((0, 4), 1.0, "f32")]), lambda x: x),
    "constant": (lambda x: tp.concat([x, tp.constant(np.zeros((0, 4), np.float32))]), lambda x: x),
    "where": (lambda x: tp.where(x[:0] > 0, x[:0], 1.0), lambda x: x[:0]),
    "cumulated": (lambda x: tp.sum(x[:0], axis=0, keepdims=True), lambda x: np.zeros((1, 4), np.float32)),
}


@pytest.mark.parametrize("what", VIEWS)
def test_views_and_operations_on_nothing(what: str) -> None:
    ours, numpy = VIEWS[what]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    program = program_of(lambda x: ours(x) * 1, x=x)
    (found,) = evaluate(program, {"x": x}).values()
    expected = numpy(x)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    made = plan(program, "cpu-4", mesh=(2,))
    assert made.check().ok
    (ran,) = made.run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ran, expected)


@pytest.mark.parametrize("mesh", [(1,), (4,), (2, 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_of_nothing_is_made_checked_drawn_and_run(shape: tuple[int, int, int], mesh: tuple[int, ...]) -> None:
    program = dense.bind(**dict(zip("ndk", shape, strict=True)))
    made = plan(program, "cpu-4", mesh=mesh)
    report = made.check()
    assert report.ok, report
    assert made.simulate() is not None
    bundle = made._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert program._repr_mimebundle_()["image/svg+xml"].startswith("<svg")
    ran = made.run(inputs(program)).outputs
    for name, value in numpys(*shape).items():
        np.testing.assert_array_equal(ran[name], value)


def test_index_notation_over_nothing() -> None:
    @tp.op
    def causal(x: int32[Tensor, "t d"]) -> int32[Tensor, "t d"]:
        t, d, s = tp.indices(
            "t d s",
        )
        return tp.sum[s](x[s, d], where=s <= t)

    for shape in [(0, 3), (3, 0)]:
        (found,) = outputs_of(lambda x: causal(x), x=np.ones(shape, np.int32))
        assert found.shape == shape


def test_attention_over_nothing() -> None:
    some, none = np.ones((2, 1, 4), np.float32), np.ones((0, 1, 4), np.float32)
    (found,) = outputs_of(lambda q, k: tp.attention(q, k, k), q=none, k=some)
    assert found.shape == (0, 1, 4)
    (unseen,) = outputs_of(lambda q, k: tp.attention(q, k, k), q=some, k=none)
    assert np.isnan(unseen).all()  # as NumPy's 0 / 0: no key has a weight


def test_the_mean_of_nothing_is_undefined() -> None:
    (found, kept) = outputs_of(lambda x: (tp.mean(x, 0), tp.mean(x, 0, keepdims=True)), x=np.zeros((0, 2), np.int32))
    assert np.isnan(found).all()
    assert (found.dtype, found.shape, kept.shape) == (np.float32, (2,), (1, 2))


def test_states_may_be_empty() -> None:
    @tp.program
    def step(seen: tp.state[f32[Tensor, "n"]], x: f32[Tensor, "n"]) -> Tensor:
        tp.update(seen, seen + x)
        return seen * 2

    program = step.bind(n=0)
    made = plan(program, "cpu-4", mesh=(2,))
    assert made.check().ok
    assert made.run({name: np.zeros(0, np.float32) for name in ("seen", "x")}).outputs["out"].shape == (0,)


def test_a_fold_of_nothing_written_by_hand_is_refused() -> None:
    program = program_of(lambda x: tp.sum(x, 0), x=np.zeros((2, 2), np.float32))
    (op,) = program.operations
    empty = replace(op, dims=tuple(Dim(d.name, 0 if d.name in op.reduce_dims else d.extent) for d in op.dims))
    with pytest.raises(tp.ProgramError, match="folds over nothing"):
        verify(replace(program, operations=(empty,)))


def test_the_command_line_plans_shows_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "nothing.py"
    source.write_text(
        "import tapestry as tp\nfrom tapestry import Tensor, f32\n\n\n@tp.program\n"
        'def net(x: f32[Tensor, "n d"], w: f32[Tensor, "d k"]) -> Tensor:\n    return tp.relu(x @ w)\n'
    )
    file = tmp_path / "plan.json"
    for command in (
        ["plan", f"{source}:net", "--set", "n=0", "d=3", "k=4", "--machine", "cpu-4", "--mesh", "4", "-o", str(file)],
        ["check", str(file)],
        ["simulate", str(file)],
        ["explain", str(file)],
        ["show", str(file), "--html", str(tmp_path / "plan.html")],
        ["show", str(file), "--text"],
        ["show", str(file), "--trace", str(tmp_path / "plan.trace")],
        ["run", str(file), "--random", "0", "--verify", "--outputs", str(tmp_path / "out.safetensors")],
    ):
        monkeypatch.setattr("sys.argv", ["tapestry", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, (command, capsys.readouterr())
    assert load_file(tmp_path / "out.safetensors")["out"].shape == (0, 4)


@pytest.mark.parametrize("extent", [-1, -5])
def test_negative_extents_are_refused(extent: int) -> None:
    with pytest.raises(tp.UsageError, match="is not an extent"):
        dense.bind(n=extent, d=1, k=1)
