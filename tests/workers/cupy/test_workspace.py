"""What kernels and libraries work in is in the plan: tasks allocate nothing beside the arenas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, param
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.planner.machine import KernelWorkspace, Machine
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers import register_device
from tapestry.workers.cupy.arrays import DeviceArray, Memory, of_memory
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.scratch import Scratch

from ...kernels.elementwise.host import needs_compiler
from ...language.test_blocks import ranked
from .host_machine import HostMachine

# Enough for all programs here; what GPUs are said to want would be pages and pages of the host.
WANTED = tuple(KernelWorkspace(kernel, 1 << 18) for kernel in ("matmul", "conv", "attention", "reduce", "sort"))


class Counting(HostMachine):
    """``sizes``: of each tier and, by no name, of what was allocated beside the arenas; ``spaces``: of products."""

    product_bytes = 1 << 12

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[str, int]] = []
        self.spaces: list[DeviceArray] = []

    def memory(self, tier: str, nbytes: int) -> Memory:
        self.sizes.append((tier, nbytes))
        return super().memory(tier, nbytes)

    def product(self, product: object, space: DeviceArray) -> object:  # type: ignore[override]
        self.spaces.append(space)
        return super().product(product, space)  # type: ignore[arg-type]


class InPlan(CupyDevice):
    """A device whose machine counts."""

    machines: list[Counting] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.machines.append(Counting())
        super().__init__(self.machines[-1])


@pytest.fixture
def in_plan(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    """The machines of the device "in_plan", from the first that was opened on."""
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    monkeypatch.setattr("tapestry.workers.cupy.convolutions.WORTH", 1)
    register_device("in_plan", f"{InPlan.__module__}:InPlan")
    InPlan.machines.clear()
    return InPlan.machines


def machine(*wanted: KernelWorkspace) -> Machine:
    found = load_machine("h200x2")
    return replace(found, device=replace(found.device, workspaces=wanted))


@tp.program
def dense(x: bf16[Tensor, "n=40 d=32"], w: param[bf16[Tensor, "d=32 h=56"]]) -> Tensor:
    return x @ w + x[0, 0]


@tp.op
def filtered(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c r s"]) -> f32[Tensor, "n k p q"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, c, 2 * p + r, 2 * q + s] * w[k, c, r, s])


@tp.program
def uneven(x: f32[Tensor, "n=1 c=3 y=11 x=11"], w: param[f32[Tensor, "k=4 c=3 r=2 s=2"]]) -> Tensor:
    return filtered(tp.pad(x, (0, 0, 1, 0), value=0.0), tp.transpose(w, (0, 1, 3, 2)))


@tp.program
def total(x: f32[Tensor, "n=4096 k=3"]) -> Tensor:
    return tp.sum(x, axis=0)


@tp.program
def attended(q: bf16[Tensor, "t=144 h=4 e=64"], k: bf16[Tensor, "t=144 g=2 e=64"]) -> Tensor:
    return tp.attention(q, k, k, causal=True)


CASES: dict[str, tuple[Callable[[], Program], int]] = {
    "a product by a library": (dense.bind, 1),
    "a product on two ranks": (dense.bind, 2),
    "a convolution of copies": (uneven.bind, 1),
    "parts of long sums": (total.bind, 1),
    "attention by a library": (attended.bind, 1),
    "a function of torch's tensors": (lambda: ranked.bind(n=6, s=5), 1),
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_allocated_beside_the_arenas(in_plan: list[Counting], name: str) -> None:
    program, ranks = CASES[name][0](), CASES[name][1]
    made = plan(program, machine(*WANTED), mesh=(ranks,))
    inputs = random_inputs(program, 1)
    found = made.run(inputs, device="in_plan", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    [used] = in_plan
    planned = [("hbm", made.document.peak_bytes[str(rank)]["hbm"]) for rank in range(ranks)]
    assert [each for each in used.sizes if each[0] != "host"] == planned


@needs_compiler
def test_a_plan_without_workspaces_runs_as_before(in_plan: list[Counting]) -> None:
    program = dense.bind()
    made = plan(program, machine(), mesh=(1,))
    inputs = random_inputs(program, 1)
    assert_close(program, inputs, made.run(inputs, device="in_plan").outputs, evaluate(program, inputs))
    assert [tier for tier, _ in in_plan[0].sizes] == ["hbm", ""]


@pytest.mark.parametrize(("wanted", "given"), [(1 << 18, 1 << 12), (1 << 11, 1 << 11), (100, 0), (0, 1 << 12)])
def test_the_library_of_products_works_in_what_there_is(in_plan: list[Counting], wanted: int, given: int) -> None:
    """Without a workspace in the plan it has as much as it may want."""
    program = dense.bind()
    made = plan(program, machine(*([KernelWorkspace("matmul", wanted)] if wanted else [])), mesh=(1,))
    made.run(random_inputs(program, 1), device="in_plan")
    assert [space.nbytes for space in in_plan[0].spaces] == [given]


def test_temporaries_of_one_task_lie_apart_and_those_of_the_next_in_their_place() -> None:
    room = of_memory(HostMachine().memory("hbm", 2000))[256:]
    scratch = Scratch(partial(HostMachine().memory, ""), room)
    with scratch.frame():
        first, second = scratch.bytes(300), scratch.take(100, np.dtype(np.float32))
        assert first.pointer == room.pointer
        assert second.pointer == room.pointer + 512
        assert scratch.most(1 << 20) == 512
    with scratch.frame():
        assert scratch.bytes(10).pointer == room.pointer


def test_what_does_not_fit_lies_elsewhere() -> None:
    beside = Counting()
    scratch = Scratch(partial(beside.memory, ""), of_memory(HostMachine().memory("hbm", 512)))
    with scratch.frame():
        scratch.bytes(600)
        assert scratch.most(256) == 0
    assert beside.sizes == [("", 1 << 20)]


@pytest.mark.parametrize("name", ["h200", "h200x2", "h200x8", "h200x8-2node"])
def test_described_gpus_want_what_the_device_says(name: str) -> None:
    wanted = {one.kernel: (one.nbytes, one.of_result) for one in load_machine(name).device.workspaces}
    assert wanted == dict(CupyDevice.workspaces)
