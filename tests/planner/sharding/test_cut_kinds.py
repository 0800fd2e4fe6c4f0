"""Every kind of cut of the algebra is one that a plan may be pinned to: planned, checked and run like the others."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, plan
from tapestry.planner.cli.pin_file import load_pins
from tapestry.program import Pin, Program
from tapestry.reference import evaluate
from tapestry.space import parse_region
from tapestry.space.cuts import KINDS, CutKind

every = pytest.mark.parametrize("kind", list(KINDS))


@tp.op
def running(x: f32[Tensor, "t d"]) -> f32[Tensor, "t d"]:
    """y[t, d] = sum of x[s, d] over s <= t."""
    t, s, d = tp.indices("t s d")
    return tp.sum[s](x[s, d], where=s <= t)


@tp.program
def net(x: f32[Tensor, "t d"], w: param[f32[Tensor, "d k"]]) -> Tensor:
    return tp.tanh(running(x) @ w)


def bound(tokens: int = 22) -> Program:
    return net.bind(t=tokens, d=6, k=5)


def shards(made: Plan, op: str) -> list[str]:
    """What each rank computes of an operation."""
    (name,) = {task.shards for task in made.document.tasks if getattr(task, "op", None) == op}
    return list(made.document.layouts[name].regions)


def test_the_kinds_are_those_that_a_pin_may_name() -> None:
    assert tuple(KINDS) == get_args(CutKind)


@every
@pytest.mark.parametrize("tokens", [22, 32])
def test_a_plan_pinned_to_a_kind_of_cut_is_checked_and_computes_what_the_reference_does(
    kind: CutKind, tokens: int
) -> None:
    program = bound(tokens)
    first = program.operations[0].name
    dim = program.operations[0].parallel_dims[0]
    pins = (Pin("op", first, (("mesh0", dim),), kind), Pin("tensor", "x", (("mesh0", "t"),), kind))
    made = plan(program, "cpu-4", pins=pins)
    assert made.check().ok
    assert made.document.shardings[first].kind == kind
    assert made.document.shardings[first].partition == {dim: "mesh0"}
    rng = np.random.default_rng(7)
    values = {t.name: rng.standard_normal(t.shape, dtype=np.float32) for t in program.of_role("input", "param")}
    out = made.run(values).outputs
    want = evaluate(program, values)
    for name, value in want.items():
        np.testing.assert_allclose(out[name], value, rtol=1e-5, atol=1e-5)


@every
def test_the_pin_file_knows_the_kind(kind: CutKind, tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(f'[[pin]]\ntensor = "x"\ncut = {{ mesh0 = "t" }}\nkind = "{kind}"\n')
    assert [pin.kind for pin in load_pins(path)] == [kind]


def test_cyclic_deals_the_rows_out_in_turn_and_balanced_gives_each_rank_as_many_points() -> None:
    program = bound(32)
    op = program.operations[0]
    dim = op.parallel_dims[0]
    where = next(k for k, d in enumerate(op.dims) if d.name == dim)

    def rows(kind: CutKind) -> list[list[int]]:
        made = plan(program, "cpu-4", pins=(Pin("op", op.name, (("mesh0", dim),), kind),))
        return [list(parse_region(text).grids[0].axes[where]) for text in shards(made, op.name)]

    assert rows("cyclic") == [list(range(r, 32, 4)) for r in range(4)]
    triangle = {kind: [sum(t + 1 for t in part) for part in rows(kind)] for kind in ("block", "balanced")}
    assert sum(triangle["balanced"]) == sum(triangle["block"]) == 32 * 33 // 2
    assert max(triangle["balanced"]) <= 32 * 33 // 2 // 4 + 32 < max(triangle["block"])
