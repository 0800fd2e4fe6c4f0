"""On a GPU: what libraries work in and give lies in the workspace of the plan, and values are what they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, param
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.program import Program
from tapestry.workers.cupy.arrays import Memory
from tapestry.workers.cupy.cuda import CudaMachine

from .executed import needs_gpu

pytestmark = needs_gpu


@tp.program
def attended(
    q: bf16[Tensor, "t h e"], k: bf16[Tensor, "t g e"], v: bf16[Tensor, "t g e"], w: param[bf16[Tensor, "h e d"]]
) -> Tensor:
    """Twice, and a product that reads it where the library has put it."""
    once = tp.attention(q, k, v, causal=True)
    twice = tp.attention(once, k, v, causal=True)
    return tp.einsum("the,hed->td", twice, w)


@tp.op
def filtered(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c r s"]) -> f32[Tensor, "n k p q"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, c, 2 * p + r, 2 * q + s] * w[k, c, r, s])


@tp.program
def uneven(x: f32[Tensor, "n=4 c=32 y=129 x=129"], w: param[f32[Tensor, "k=32 c=32 r=2 s=2"]]) -> Tensor:
    return filtered(tp.pad(x, (0, 0, 1, 0), value=0.0), tp.transpose(w, (0, 1, 3, 2)))


@tp.program
def total(x: f32[Tensor, "n=65536 k=3"]) -> Tensor:
    return tp.sum(x, axis=0)


PROGRAMS = {
    "attention of 2 MiB": lambda: attended.bind(t=1024, h=8, g=2, e=128, d=256),
    "attention of 16 MiB": lambda: attended.bind(t=4096, h=16, g=4, e=128, d=256),
    "a convolution of copies": uneven.bind,
    "parts of long sums": total.bind,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_allocated_beside_the_arenas(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In three steps, the last of which are a graph; without a workspace in the plan the values are the same."""
    sizes: list[tuple[str, int]] = []
    real = CudaMachine.memory

    def noted(self: CudaMachine, tier: str, nbytes: int) -> Memory:
        sizes.append((tier, nbytes))
        return real(self, tier, nbytes)

    monkeypatch.setattr(CudaMachine, "memory", noted)
    program: Program = PROGRAMS[name]()
    machine = load_machine("h200")
    bare = replace(machine, device=replace(machine.device, workspaces=()))
    inputs = random_inputs(program, 1)
    made = plan(program, machine, mesh=(1,), time_limit=20)
    found = made.run(inputs, device="cupy", poison=True, repeat=3)
    assert sizes == [("hbm", made.document.peak_bytes["0"]["hbm"])]
    before = plan(program, bare, mesh=(1,), time_limit=20).run(inputs, device="cupy", poison=True, repeat=3)
    for tensor, value in before.outputs.items():
        np.testing.assert_array_equal(found.outputs[tensor], value)
