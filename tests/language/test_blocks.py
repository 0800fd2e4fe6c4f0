"""Block operations that users declare: one function, and they are verified, planned, proved, run, differentiated."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, f64
from tapestry.blocks import BLOCKS
from tapestry.errors import ProgramError, UsageError
from tapestry.planner import load_machine, load_plan, plan
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json
from tapestry.space import Box, Region
from tapestry.testing import assert_close

from .. import blocks_of_mine as mine
from ..workers.unchecked import run_unchecked

FILE = Path(mine.__file__)
MACHINE = load_machine("cpu-4")


@tp.program
def ranked(x: f32[Tensor, "n s"]) -> Tensor:
    """Rows, doubled, in descending order."""
    n, s = tp.indices("n s")
    k = tp.indices(k=x.shape[1])
    return mine.SORTED(tp.relu(x)[n, s], fold=s, make=k, descending=True)


@tp.program
def spreading(x: f64[Tensor, "n s"], w: tp.param[f64[Tensor, "s k"]]) -> Tensor:
    n, s, k = tp.indices("n s k")
    return tp.sum(mine.SPREAD(x[n, s], w[s, k], fold=s, make=k, scale=3) ** 2)


@tp.program
def weighted(score: f32[Tensor, "n s"], v: f32[Tensor, "s e"]) -> Tensor:
    """The mean of v weighted by the softmax of the scores."""
    width = v.shape[1]
    n, s = tp.indices("n s")
    c = tp.indices(c=width + 2)
    state = mine.SOFT_MEAN(score[n, s], v.get[s, c], fold=s, make=c)
    return divided(state, width=width)


@tp.op
def divided(state: f32[Tensor, "n c"], *, width: int) -> f32[Tensor, "n e"]:
    n, e = tp.indices("n", e=width)
    return state[n, e] / state[n, width]


def cut(program: Program, name: str, dim: str, parts: int) -> dict[str, list[Region]]:
    """One operation cut along one dimension, the others whole on the first rank."""
    found = {}
    for op in program.operations:
        shape = [d.extent for d in op.dims]
        found[op.name] = [Box.of_shape(shape).region(), *[Region()] * (parts - 1)]
        if op.name == name:
            axis = [d.name for d in op.dims].index(dim)
            spans = [(k * shape[axis] // parts, (k + 1) * shape[axis] // parts) for k in range(parts)]
            lows, highs = ([[*shape[:axis], at[side], *shape[axis + 1 :]] for at in spans] for side in (0, 1))
            zeros = [[0 if j != axis else low[axis] for j in range(len(shape))] for low in lows]
            found[name] = [Box(tuple(lo), tuple(hi)).region() for lo, hi in zip(zeros, highs, strict=True)]
    return found


def values(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def test_it_is_planned_proved_and_run_like_any_other() -> None:
    program = ranked.bind(n=12, s=7)
    made = plan(program, "cpu-4", mesh=(4,), time_limit=600)
    assert made.check().ok
    x = values(12, 7).astype(np.float32)
    [found] = made.run({"x": x}).outputs.values()
    np.testing.assert_array_equal(found, -np.sort(-np.maximum(x, 0), axis=1))
    assert_close(program, {"x": x}, made.run({"x": x}).outputs, evaluate(program, {"x": x}))


@given(parts=st.integers(1, 4), rows=st.integers(1, 9), columns=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_it_is_cut_along_what_it_keeps(parts: int, rows: int, columns: int) -> None:
    program = ranked.bind(n=rows, s=columns)
    x = values(rows, columns).astype(np.float32)
    document = plan_partitions(program, MACHINE, cut(program, "sorted_rows", "n", parts)).document
    found = run_unchecked(Resolved(document, program), {"x": x}, poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


def test_what_it_takes_or_gives_whole_is_not_cut() -> None:
    program = ranked.bind(n=4, s=4)
    op = program.operations[-1]
    assert [dim.name for dim in op.dims if not dim.cut] == ["s", "k"]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_kernel_with_partial_states_is_cut_along_its_fold(parts: int) -> None:
    program = weighted.bind(n=3, s=8, e=5)
    inputs = {"score": values(3, 8).astype(np.float32), "v": values(8, 5).astype(np.float32)}
    document = plan_partitions(program, MACHINE, cut(program, "soft_mean", "s", parts)).document
    [found] = run_unchecked(Resolved(document, program), inputs, poison=True).outputs.values()
    weights = np.exp(inputs["score"].astype(np.float64))
    expected = weights / weights.sum(axis=1, keepdims=True) @ inputs["v"].astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_its_text_and_its_document_give_it_back() -> None:
    for program in (ranked.bind(n=3, s=4), spreading.bind(n=2, s=3, k=4), weighted.bind(n=3, s=4, e=2)):
        assert tp.parse(str(program)) == program
        assert program_from_json(program_to_json(program)) == program


def test_its_derivative_is_the_declared_one() -> None:
    program = tp.grad(spreading, wrt=["x", "w"]).bind(n=2, s=3, k=4)
    x, w = values(2, 3), values(3, 4)
    found = evaluate(program, {"x": x, "w": w})
    y = 3 * x @ w
    np.testing.assert_allclose(found["grad.x"], 6 * y @ w.T, rtol=1e-12)
    np.testing.assert_allclose(found["grad.w"], 6 * x.T @ y, rtol=1e-12)


def test_operations_are_counted_as_declared() -> None:
    """Per kept row, whatever the number of points."""
    from tapestry.planner.strategy.cost import flops_per_point

    op = ranked.bind(n=4, s=16).operations[-1]
    assert flops_per_point(op) * 16 * 16 == 16 * 5


# -- bad input -------------------------------------------------------------------------------------------------------


def bound(body: Callable[..., Tensor]) -> Program:
    @tp.program
    def wrong(x: f32[Tensor, "n s"]) -> Tensor:
        return body(x, *tp.indices("n s"), tp.indices(k=x.shape[1]))

    return wrong.bind(n=3, s=4)


def test_calls_that_do_not_fit_the_declaration() -> None:
    with pytest.raises(UsageError, match=r"1 operands, 0 fold, 1 make(.|\n)*1 operands, 1 fold, 1 make"):
        bound(lambda x, n, s, k: mine.SORTED(x[n, s], make=k))
    with pytest.raises(ProgramError, match=r"no attribute 'upwards'(.|\n)*it has descending"):
        bound(lambda x, n, s, k: mine.SORTED(x[n, s], fold=s, make=k, upwards=True))
    with pytest.raises(UsageError, match=r"takes elements of tensors"):
        bound(lambda x, n, s, k: mine.SORTED(x[n, s] + 1.0, fold=s, make=k))
    with pytest.raises(UsageError, match=r"folds and makes indices, not s \+ 1"):
        bound(lambda x, n, s, k: mine.SORTED(x[n, s], fold=s + 1, make=k))


def test_declarations_that_contradict_themselves() -> None:
    with pytest.raises(UsageError, match=r"attention is there already"):
        tp.block("attention", mine.sorted_rows, operands="x")
    with pytest.raises(UsageError, match=r"setting axis of untyped has no known type(.|\n)*annotate"):
        tp.block("untyped", lambda x, *, axis: x, operands="x")
    with pytest.raises(UsageError, match=r"cannot fold with sum"):
        tp.block("summing", mine.sorted_rows, operands="x", fold=1, make=1, monoid="sum")
    assert not {"untyped", "summing"} & set(BLOCKS)


def test_without_a_derivative_it_is_refused() -> None:
    @tp.program
    def loss(x: f32[Tensor, "n s"]) -> Tensor:
        n, s = tp.indices("n s")
        return tp.sum(mine.SORTED(x[n, s], fold=s, make=tp.indices(k=x.shape[1])))

    with pytest.raises(UsageError, match=r"sorted_rows has no derivative(.|\n)*tapestry\.block"):
        tp.grad(loss, wrt="x").bind(n=2, s=3)


# -- other processes -------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    made = plan(ranked.bind(n=8, s=4), "cpu-4", mesh=(2,), time_limit=600)
    made.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys\nfrom tapestry.planner.cli import main\nsys.argv = ['tapestry', *sys.argv[1:]]\nmain()\n"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_a_process_that_has_not_run_the_declaration_says_what_to_do(stored: Path) -> None:
    for name, code in (("check", 1), ("run", 2)):
        found = command(name, str(stored))
        assert found.returncode == code
        assert re.search(r"no block kernel 'sorted_rows'(.|\n)*tapestry --import", found.stdout + found.stderr)


@pytest.mark.long
def test_the_command_line_and_the_ranks_of_a_run_import_it(stored: Path) -> None:
    found = command("--import", str(FILE), "run", str(stored), "--random", "0", "--verify", "--engine", "torchrun")
    assert found.returncode == 0, found.stderr
    assert load_plan(stored).check().ok


def test_a_file_that_does_not_import_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import tapestry as tp\nx = 1 / 0\n")
    found = command("--import", str(tmp_path / "broken.py"), "check", "none.json")
    assert found.returncode == 2
    assert "broken.py:2" in found.stderr
    assert "ZeroDivisionError" in found.stderr
