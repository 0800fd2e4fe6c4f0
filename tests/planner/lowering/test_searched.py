"""Plans that fit only because the packing solver searches: the quick orders need more than there is."""

from __future__ import annotations

import random

import pytest

from tapestry.errors import Infeasible
from tapestry.expr import Affine, Bound, Call, Expr, Read
from tapestry.planner import load_machine, parse_bytes, plan
from tapestry.planner.lowering import memory
from tapestry.program import Dim, Operation, Program, Tensor

MACHINE = load_machine("h200x8")
UNIT = memory.ALIGN // 4
COUNT = 14


def uneven(seed: int) -> Program:
    """Fourteen values of different sizes, each made of the one before and read again some operations later."""
    draw = random.Random(seed)
    sizes = [UNIT * draw.randint(1, 12) for _ in range(COUNT)]
    until = [min(COUNT - 1, k + draw.randint(1, 6)) for k in range(COUNT)]
    operations = []
    for k in range(COUNT):
        read = [("x", UNIT), *((f"t{j}", sizes[j]) for j in range(k) if until[j] == k or j == k - 1)]
        body: Expr | None = None
        for name, size in read:
            element = Read(name, (Affine.dim("a"),), (Bound(Affine.dim("a"), 0, size),))
            body = element if body is None else Call("add", (body, element))
        assert body is not None
        operations.append(Operation(f"f{k}", (Dim("a", sizes[k]),), f"t{k}", (Affine.dim("a"),), body))
    values = (Tensor(f"t{k}", "f32", (sizes[k],)) for k in range(COUNT))
    return Program("uneven", (Tensor("x", "f32", (UNIT,), "input"), *values), tuple(operations), (f"t{COUNT - 1}",))


@pytest.mark.parametrize("seed", [15, 49, 63])
def test_a_plan_that_only_the_search_fits_in(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = plan(uneven(seed), MACHINE, mesh=(1,)).document.peak_bytes["0"]["hbm"]
    tight = roomy - memory.ALIGN
    made = plan(uneven(seed), MACHINE, mesh=(1,), memory={"hbm": tight})
    assert made.check().ok
    assert made.document.peak_bytes["0"]["hbm"] <= tight
    monkeypatch.setattr(memory, "RUNS", 0)
    with pytest.raises(Infeasible) as failed:
        plan(uneven(seed), MACHINE, mesh=(1,), memory={"hbm": tight})
    assert failed.value.hint is not None
    assert parse_bytes(failed.value.hint.split("=")[1].split()[0]) >= roomy
