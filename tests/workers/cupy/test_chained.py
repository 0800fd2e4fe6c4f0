"""Tasks that the CuPy device does together: one kernel where there were two, the same values, and where it may not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, int32, param
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region, parse_region
from tapestry.testing import assert_close
from tapestry.workers.cupy import gathered, paired
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.rank import Rank
from tapestry.workers.result import RunResult

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine

MACHINE = load_machine("h200x8")
Cut = Callable[[Program], dict[str, list[Region]]]


def whole(program: Program) -> dict[str, list[Region]]:
    return {op.name: [Box.of_shape(tuple(dim.extent for dim in op.dims)).region()] for op in program.operations}


def by_rows(program: Program) -> dict[str, list[Region]]:
    """Three ranks, each some of the first dimension."""
    found = {}
    for op in program.operations:
        n, *others = (dim.extent for dim in op.dims)
        ends = [((k * n // 3, *[0] * len(others)), ((k + 1) * n // 3, *others)) for k in range(3)]
        found[op.name] = [Box(*pair).region() for pair in ends]
    return found


def ends_and_middle(program: Program) -> dict[str, list[Region]]:
    """Two ranks: the first quarter of the first dimension and the last, stored in two stretches; what is between."""
    found = {}
    for op in program.operations:
        n, *others = (dim.extent for dim in op.dims)
        rest, a, b = "".join(f",0:{k}" for k in others), n // 4, n - n // 4
        found[op.name] = [parse_region(f"0:{a}|{b}:{n}{rest}"), parse_region(f"{a}:{b}{rest}")]
    return found


def homes(program: Program, shards: dict[str, list[Region]], cut: Cut) -> dict[str, list[Region]]:
    """Inputs whole on every rank, but for those that are cut as the result is, where that is stored in stretches."""
    last, found = program.operations[-1], {}
    for x in program.of_role("input", "param"):
        cut_too = cut is ends_and_middle and x.shape == program.tensor(last.output).shape
        found[x.name] = shards[last.name] if cut_too else [Box.of_shape(x.shape).region()] * len(shards[last.name])
    return found


@tp.program
def added(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"], r: bf16[Tensor, "i=40 j=56"]) -> Tensor:
    return a @ b + r


@tp.program
def added_first(a: f32[Tensor, "i=40 k=24"], b: f32[Tensor, "j=56 k=24"], r: f32[Tensor, "i=40 j=56"]) -> Tensor:
    return r + tp.einsum("ik,jk->ij", a, b)


@tp.program
def positive(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"]) -> Tensor:
    return tp.relu(a @ b)


@tp.program
def few_added(a: bf16[Tensor, "i=8 k=64"], b: bf16[Tensor, "k=64 j=56"], r: bf16[Tensor, "i=8 j=56"]) -> Tensor:
    return a @ b + r


@tp.program
def heads_added(a: bf16[Tensor, "t=48 h=4 e=16"], b: bf16[Tensor, "h=4 e=16 d=40"], r: bf16[Tensor, "t d"]) -> Tensor:
    return r + tp.einsum("the,hed->td", a, b)


@tp.program
def normed(x: bf16[Tensor, "t=33 d=96"], w: bf16[Tensor, "d"]) -> Tensor:
    return tp.rms_norm(x, w)


@tp.program
def shares(x: f32[Tensor, "t=33 d=96"]) -> Tensor:
    return tp.softmax(x)


@tp.program
def centred(x: f32[Tensor, "t=33 d=96"], w: f32[Tensor, "d"], b: f32[Tensor, "d"]) -> Tensor:
    return tp.layer_norm(x, w, b)


@tp.program
def seen(
    q: bf16[Tensor, "t=240 h=4 e=64"], k: bf16[Tensor, "t=240 g=2 e=64"], v: bf16[Tensor, "t=240 g=2 e=64"]
) -> Tensor:
    return tp.attention(q, k, v, causal=True)


@tp.program
def projected(
    q: bf16[Tensor, "t=240 h=4 e=64"],
    k: bf16[Tensor, "t=240 g=2 e=64"],
    v: bf16[Tensor, "t=240 g=2 e=64"],
    w: bf16[Tensor, "h=4 e=64 d=40"],
    r: bf16[Tensor, "t=240 d=40"],
) -> Tensor:
    return r + tp.einsum("the,hed->td", tp.attention(q, k, v, causal=True), w)


@tp.program
def biased(x: f32[Tensor, "t=33 d=96"], b: f32[Tensor, "d"], y: f32[Tensor, "t d"]) -> Tensor:
    return tp.gelu(x + b) * y


@tp.program
def updated(cache: bf16[Tensor, "s=33 e=64"], row: bf16[Tensor, "t=1 e=64"], at: int32[Tensor, ""]) -> Tensor:
    return tp.dynamic_update_slice(cache, row, [at, 0])


@tp.op
def swiglu(a: bf16[Tensor, "t f"], b: bf16[Tensor, "t f"]) -> bf16[Tensor, "t f"]:
    t, f = tp.indices("t f")
    return tp.silu(a[t, f]) * b[t, f]


@tp.op
def less(a: bf16[Tensor, "t f"], b: bf16[Tensor, "t f"]) -> bf16[Tensor, "t f"]:
    t, f = tp.indices("t f")
    return b[t, f] - tp.gelu(a[t, f]) / 3


@tp.program
def gated(
    x: bf16[Tensor, "t=48 d=32"],
    g: param[bf16[Tensor, "d=32 f=40"]],
    u: param[bf16[Tensor, "d f"]],
    w: param[bf16[Tensor, "f d"]],
) -> Tensor:
    return x + swiglu(x @ g, x @ u) @ w


@tp.program
def turned_weights(
    x: bf16[Tensor, "t=48 d=32"],
    g: param[bf16[Tensor, "f=40 d"]],
    u: param[bf16[Tensor, "f d"]],
    w: param[bf16[Tensor, "f d"]],
) -> Tensor:
    return x + less(tp.einsum("td,fd->tf", x, g), tp.einsum("td,fd->tf", x, u)) @ w


CASES: dict[str, tuple[Callable[[], Program], str]] = {
    "what is added to a product": (added.bind, "product"),
    "a product that is added to something": (added_first.bind, "product"),
    "nothing below 0 of a product": (positive.bind, "product"),
    "what is added to a product of a few rows": (few_added.bind, "thin"),
    "a product along two dimensions": (heads_added.bind, "product"),
    "a norm": (normed.bind, "rows"),
    "a softmax": (shares.bind, "rows"),
    "a norm around the mean": (centred.bind, "rows"),
    "attention": (seen.bind, "library attention"),
    "maps of maps": (biased.bind, "map"),
    "a fold of one point and a map": (updated.bind, "map"),
}


@needs_compiler
@pytest.mark.parametrize("cut", [whole, by_rows, ends_and_middle])
@pytest.mark.parametrize("name", CASES)
def test_tasks_that_are_one_kernel(machine: HostMachine, name: str, cut: Cut) -> None:
    made, kernel = CASES[name]
    are_one_kernel(machine, made(), {kernel}, cut)


@needs_compiler
@pytest.mark.parametrize("cut", [whole, by_rows, ends_and_middle])
@pytest.mark.parametrize("made", [gated.bind, turned_weights.bind])
def test_two_products_and_a_map_of_both(
    machine: HostMachine, made: Callable[[], Program], cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one more product, to which the rows are added; rows in stretches that lie together are one product."""
    monkeypatch.setattr(paired, "WORTH", 1)
    are_one_kernel(machine, made(), {"paired", "product"}, cut)


def are_one_kernel(machine: HostMachine, program: Program, kernels: set[str], cut: Cut) -> None:
    """Values are the reference's, and every rank has a kernel of each kind, of one kind also one for each stretch."""
    shards = cut(program)
    ranks = len(next(iter(shards.values())))
    document = plan_partitions(program, MACHINE, shards, homes=homes(program, shards, cut)).document
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert set(machine.kernels) == kernels
    assert len(machine.kernels) <= len(kernels) * ranks + (cut is ends_and_middle and len(kernels) == 1)


@needs_compiler
@pytest.mark.parametrize("cut", [whole, ends_and_middle])
def test_attention_is_read_where_the_library_has_put_it(machine: HostMachine, cut: Cut) -> None:
    """By one product, of one range of keys; otherwise the result is stored first."""
    program = projected.bind()
    shards = cut(program)
    document = plan_partitions(program, MACHINE, shards, homes=homes(program, shards, cut)).document
    resolved = Resolved(document, program)
    inputs = random_inputs(program, 5)
    found = run_unchecked(resolved, inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    if cut is whole:
        assert machine.kernels == ["library attention", "product"]
    within = [event.kernel for event in found.events if event.rank == 0 and event.kernel.startswith("within")]
    finish, last = program.operations[1].name, program.operations[-1].name
    assert within.count(f"within {last if cut is whole else finish}") == (3 if cut is whole else 1)


@tp.op
def weighed_rows(x: f32[Tensor, "v d"], at: int32[Tensor, "t"], w: f32[Tensor, "t"]) -> f32[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return w[t] * x.get(at[t], d, fill=0.0)


@tp.program
def looked_up(x: f32[Tensor, "v=9 d=96"], at: int32[Tensor, "t=64"], w: f32[Tensor, "t=64"]) -> Tensor:
    return weighed_rows(x, at, w)


@needs_compiler
@pytest.mark.parametrize("many", [gathered.MANY, 1], ids=["a thread a point", "a thread several points"])
def test_what_is_looked_up_and_weighed_is_one_kernel(
    machine: HostMachine, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "MANY", many)
    program = looked_up.bind()
    resolved = Resolved(plan_partitions(program, MACHINE, whole(program)).document, program)
    inputs = random_inputs(program, 5) | {"at": np.arange(-3, 61, dtype=np.int32) % 13}
    found = run_unchecked(resolved, inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert len(program.operations) == 2
    assert machine.kernels == ["general"]


@tp.op
def around(x: f32[Tensor, "n p q c"]) -> f32[Tensor, "n p q c"]:
    n, p, q, c = tp.indices("n p q c")
    return x.get(n, p - 1, q, c, fill=0.0) + x[n, p, q, c] + x.get(n, p + 1, q, c, fill=0.0)


@tp.program
def read_around(
    a: param[f32[Tensor, "n=1 p=12 q=10 k=40"]],
    b: param[f32[Tensor, "k=40 c=24"]],
    r: param[f32[Tensor, "n=1 p=12 q=10 c=24"]],
) -> Tensor:
    return around(tp.einsum("npqk,kc->npqc", a, b) + r)


@needs_compiler
def test_a_product_is_added_to_rows_that_are_stored_with_their_neighbours(machine: HostMachine) -> None:
    """Rows of a single image: those of other ranks lie before and after, and the product writes between them."""
    found = halves_of_an_image(read_around.bind())
    assert [event.kernel for event in found.events].count("product, added") == 2


@tp.program
def normed_around(
    x: param[f32[Tensor, "n=1 p=12 q=10 c=24"]], w: param[f32[Tensor, "c=24"]], b: param[f32[Tensor, "c=24"]]
) -> Tensor:
    return around(tp.layer_norm(x, w, b))


@needs_compiler
def test_a_norm_of_rows_that_are_stored_with_their_neighbours_is_one_kernel(machine: HostMachine) -> None:
    """On the rank whose rows come first, and on the one that has rows of another before its own."""
    found = halves_of_an_image(normed_around.bind())
    norms = [event.kernel for event in found.events if event.name == "layer_norm.scale"]
    assert len(norms) == 2
    assert all(kernel.startswith("rows") for kernel in norms)


def halves_of_an_image(program: Program) -> RunResult:
    """The values are right where two ranks have half of the rows each."""
    shards = {}
    for op in program.operations:
        extents = [dim.extent for dim in op.dims]
        ends = [((0, k, *[0] * (len(extents) - 2)), (1, k + 6, *extents[2:])) for k in (0, 6)]
        shards[op.name] = [Box(*pair).region() for pair in ends]
    document = plan_partitions(program, MACHINE, shards, homes=homes(program, shards, by_rows)).document
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    return found


@tp.program
def kept(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"], r: bf16[Tensor, "i=40 j=56"]) -> dict[str, Tensor]:
    product = a @ b
    return {"product": product, "added": product + r}


@tp.program
def added_twice(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"], r: bf16[Tensor, "i=40 j=56"]) -> Tensor:
    product = a @ b
    return (product + r) * tp.relu(product)


@tp.program
def added_turned(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"], r: bf16[Tensor, "j=56 i=40"]) -> Tensor:
    return a @ b + tp.transpose(r)


@tp.program
def added_rounded(a: bf16[Tensor, "i=40 k=24"], b: bf16[Tensor, "k=24 j=56"], r: f32[Tensor, "i=40 j=56"]) -> Tensor:
    return a @ b + r


@needs_compiler
@pytest.mark.parametrize("made", [kept, added_twice, added_turned, added_rounded])
def test_products_that_somebody_else_reads_or_that_lie_otherwise_stand_alone(
    machine: HostMachine, made: object
) -> None:
    program: Program = made.bind()  # type: ignore[attr-defined]
    document = plan_partitions(program, MACHINE, whole(program)).document
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels[0] == "product"
    assert "map" in machine.kernels


@tp.op
def _beside(x: f32[Tensor, "t d"]) -> f32[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return x[t, d] - x.get(t, d - 1, fill=0.0)


@needs_compiler
def test_what_is_read_beside_where_it_was_written_is_stored(machine: HostMachine) -> None:
    @tp.program
    def net(x: f32[Tensor, "t=33 d=96"]) -> Tensor:
        return _beside(tp.exp(x))

    program = net.bind()
    document = plan_partitions(program, MACHINE, whole(program)).document
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels == ["map", "map"]


@needs_compiler
def test_a_result_that_is_an_output_is_stored_by_the_kernel_that_goes_on(machine: HostMachine) -> None:
    @tp.program
    def net(x: f32[Tensor, "t=33 d=96"], w: f32[Tensor, "d"]) -> dict[str, Tensor]:
        h = tp.relu(x)
        return {"h": h, "normed": tp.rms_norm(h, w)}

    program = net.bind()
    document = plan_partitions(program, MACHINE, whole(program)).document
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels == ["rows"]


def test_tasks_name_what_computes_them() -> None:
    program = added.bind()
    resolved = Resolved(plan_partitions(program, MACHINE, whole(program)).document, program)
    rank = Rank(CupyDevice(HostMachine()), resolved, 0)
    rank.bind()
    first, second = (rank.bound[task.id] for task in rank.tasks)
    assert (first.kernels, second.kernels) == (("within add",), ("product, added",))
    apart = Rank(CupyDevice(HostMachine()), resolved, 0, joins=False)
    apart.bind()
    kernels = [apart.bound[task.id].kernels for task in apart.tasks]
    assert kernels[0] == ("product",)
    assert kernels[1][0].startswith("map_")
