"""Scans: what each monoid's is, in one piece and in blocks, and that everything that takes programs takes them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, f64
from tapestry.errors import ProgramError, UsageError
from tapestry.expr import MONOIDS, Call, Component, Monoid, Read, add_monoid
from tapestry.expr.scans import Scan
from tapestry.planner import load_machine, plan
from tapestry.reference import evaluate
from tapestry.verify import verify

CUMULATIVE = {
    "sum": np.cumsum,
    "prod": np.cumprod,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
    "logsumexp": np.logaddexp.accumulate,
}


@tp.program
def scanned(
    x: f32[Tensor, "n t"],
    *,
    monoid: str = "sum",
    exclusive: bool = False,
    reverse: bool = False,
    blocks: int = 1,
) -> Tensor:
    return tp.scan(monoid, x, axis=1, exclusive=exclusive, reverse=reverse, blocks=blocks)


@tp.program
def recurrent(a: f32[Tensor, "t n"], b: f32[Tensor, "t n"], *, blocks: int = 1, reverse: bool = False) -> Tensor:
    return tp.scan("recurrence", [a, b], blocks=blocks, reverse=reverse)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_hand(a, b):
    h = np.zeros_like(b[0])
    found = []
    for decay, new in zip(a, b, strict=True):
        h = decay * h + new
        found.append(h)
    return np.stack(found)


def both(program, inputs, ranks=1):
    """The outputs by the reference and by workers, whose plan was checked."""
    run = plan(program, load_machine("cpu-4"), mesh=(ranks,)).run(inputs, device="numpy")
    return evaluate(program, inputs)["out"], run.outputs["out"]


@pytest.mark.parametrize("blocks", [1, 4, 5])
@pytest.mark.parametrize("monoid", CUMULATIVE)
def test_a_scan_folds_each_element_with_all_before_it(monoid, blocks):
    x = numbers(3, 18)
    for found in both(scanned.bind(n=3, t=18, monoid=monoid, blocks=blocks), {"x": x}):
        np.testing.assert_allclose(found, CUMULATIVE[monoid](x, axis=1), rtol=2e-6, atol=2e-6)


@given(st.sampled_from(sorted(CUMULATIVE)), st.integers(1, 13), st.booleans(), st.booleans(), st.integers(1, 13))
@settings(max_examples=25, deadline=None)
def test_exclusive_and_reversed(monoid, t, exclusive, reverse, blocks):
    x = numbers(2, t, seed=t)
    program = scanned.bind(n=2, t=t, monoid=monoid, exclusive=exclusive, reverse=reverse, blocks=min(blocks, t))
    ordered = x[:, ::-1] if reverse else x
    wanted = CUMULATIVE[monoid](ordered, axis=1)
    if exclusive:
        nothing = MONOIDS[monoid].components[0].identity
        wanted = np.concatenate([np.full((2, 1), nothing), wanted[:, :-1]], axis=1)
    found = evaluate(program, {"x": x})["out"]
    np.testing.assert_allclose(found, wanted[:, ::-1] if reverse else wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("blocks", "ranks"), [(1, 1), (4, 2), (4, 4), (3, 2)])
def test_a_recurrence_goes_on_from_step_to_step(blocks, ranks):
    a, b = numbers(12, 3), numbers(12, 3, seed=1)
    for found in both(recurrent.bind(t=12, n=3, blocks=blocks), {"a": a, "b": b}, ranks):
        np.testing.assert_allclose(found, by_hand(a, b), rtol=1e-5, atol=1e-5)
    backward = evaluate(recurrent.bind(t=12, n=3, blocks=blocks, reverse=True), {"a": a, "b": b})["out"]
    np.testing.assert_allclose(backward, by_hand(a[::-1], b[::-1])[::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("monoid", ["argmax", "variance"])
def test_monoids_whose_results_do_not_stand_for_a_stretch_are_scanned_in_one_piece(monoid):
    x = numbers(2, 9)
    numpy = {"argmax": np.argmax, "variance": np.var}[monoid]
    wanted = np.stack([numpy(x[:, : t + 1], axis=1) for t in range(9)], axis=1)
    for found in both(scanned.bind(n=2, t=9, monoid=monoid), {"x": x}):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match=r"a scan by .* has no blocks"):
        scanned.bind(n=2, t=9, monoid=monoid, blocks=3)


def test_a_scan_cut_along_its_own_axis_exchanges_what_blocks_amount_to():
    @tp.program
    def long(x: f32[Tensor, "t"]) -> Tensor:
        return tp.scan("sum", tp.shard(x, mesh0="t"), blocks=64).named("y")

    program = long.bind(t=4096)
    found = plan(program, load_machine("cpu-4"), mesh=(4,), objective="bytes")
    assert found.check().ok
    assert found.document.shardings["scan.inside"].partition == {"block": "mesh0"}
    assert found.document.traffic.bytes_total < 4 * 64 * 4  # less than all totals for all ranks; x has 16,384 bytes


def test_a_scan_costs_what_it_touches_and_not_each_pair_of_places():
    def seconds(t):
        return plan(scanned.bind(n=1, t=t), load_machine("cpu-4"), mesh=(1,)).simulate().makespan_s

    assert seconds(40_000) < 3 * seconds(20_000)


def test_a_fold_that_may_not_be_grouped_is_refused_with_a_witness():
    difference = Call("subtract", (Read("a.value", ()), Read("b.value", ())))
    add_monoid(Monoid("difference", (Component("value", "accumulator", 0, difference),), Read("r.value", ())))
    try:
        with pytest.raises(UsageError, match="difference is no monoid") as caught:
            scanned.bind(n=2, t=9, monoid="difference")
    finally:
        del MONOIDS["difference"]
    assert "(a b) c = a (b c) fails at a=" in str(caught.value)
    assert "test_scans.py" in str(caught.value)


def test_what_is_no_scan_is_refused():
    with pytest.raises(UsageError, match="there is no monoid 'summ' to scan by"):
        scanned.bind(n=2, t=9, monoid="summ")
    with pytest.raises(UsageError, match="takes two tensors of one shape"):
        scanned.bind(n=2, t=9, monoid="recurrence")
    with pytest.raises(UsageError, match="10 blocks of 9 elements"):
        scanned.bind(n=2, t=9, blocks=10)


def test_shares_of_an_ordered_fold_are_not_folded_apart():
    program = recurrent.bind(t=12, n=3)
    [op] = [op for op in program.operations if op.monoid == "recurrence"]
    assert [dim.cut for dim in op.dims] == [True, True, False]
    cut = replace(op, dims=tuple(replace(dim, cut=True) for dim in op.dims))
    with pytest.raises(ProgramError, match="folded apart lose their order"):
        verify(replace(program, operations=tuple(cut if o is op else o for o in program.operations)))


def test_a_pair_stands_where_a_monoid_of_pairs_folds_it():
    program = scanned.bind(n=2, t=9)
    op = program.operations[0]
    paired = replace(op, body=Call("pair", (op.body, op.body)))
    with pytest.raises(ProgramError, match="a monoid of pairs needs a pair"):
        verify(replace(program, operations=(paired, *program.operations[1:])))


def test_a_prefix_fold_in_index_notation_is_a_scan():
    @tp.op
    def prefix(x: f32[Tensor, "t"], w: f32[Tensor, "t"]) -> f32[Tensor, "t"]:
        t, s = tp.indices("t s")
        return tp.sum[s](x[s], where=s < t) + tp.sum[s](x[s] * w[s], where=s >= t)

    @tp.program
    def both_ways(x: f32[Tensor, "t"], w: f32[Tensor, "t"]) -> Tensor:
        return prefix(x, w)

    @tp.op
    def coupled(x: f32[Tensor, "t"]) -> f32[Tensor, "t"]:
        t, s = tp.indices("t s")
        return tp.sum[s](x[s] * x[t], where=s <= t)

    @tp.program
    def quadratic(x: f32[Tensor, "t"]) -> Tensor:
        return coupled(x)

    found = [op.scan for op in both_ways.bind(t=9).operations]
    assert found == [Scan("t", "s", -1, False), Scan("t", "s", 0, True), None]
    assert [op.scan for op in quadratic.bind(t=9).operations] == [None]
    x, w = numbers(9), numbers(9, seed=1)
    wanted = np.cumsum(x) - x + np.cumsum((x * w)[::-1])[::-1]
    for ranks in (1, 2, 4):
        for result in both(both_ways.bind(t=9), {"x": x, "w": w}, ranks):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 3, 4])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_derivative_of_a_recurrence_is_torch_s(blocks, reverse):
    @tp.program
    def loss(a: f64[Tensor, "t n"], b: f64[Tensor, "t n"], w: f64[Tensor, "t n"]) -> Tensor:
        return tp.sum(w * tp.scan("recurrence", [a * a, b], blocks=blocks, reverse=reverse, exclusive=blocks == 3))

    given = {name: numbers(11, 2, seed=k).astype(np.float64) for k, name in enumerate("abw")}
    found = evaluate(tp.grad(loss, wrt=["a", "b"]).bind(t=11, n=2), given)
    a, b = (torch.tensor(given[name], requires_grad=True) for name in "ab")
    h, total = torch.zeros(2, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for t in reversed(range(11)) if reverse else range(11):
        after = a[t] ** 2 * h + b[t]
        total = total + (torch.tensor(given["w"][t]) * (h if blocks == 3 else after)).sum()
        h = after
    total.backward()
    np.testing.assert_allclose(found["grad.a"], a.grad.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["grad.b"], b.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", ["cumsum", "cumprod", "cummax", "logcumsumexp"])
def test_the_derivatives_of_scans_are_torch_s(function):
    @tp.program
    def loss(x: f64[Tensor, "n t"], w: f64[Tensor, "n t"]) -> Tensor:
        return tp.sum(w * getattr(tp, function)(x, 1))

    x, w = (numbers(2, 70, seed=k).astype(np.float64) for k in (0, 1))
    found = evaluate(tp.grad(loss, wrt=["x"]).bind(n=2, t=70), {"x": x, "w": w})["grad.x"]
    leaf = torch.tensor(x, requires_grad=True)
    result = getattr(torch, function)(leaf, 1)
    ((result.values if function == "cummax" else result) * torch.tensor(w)).sum().backward()
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_types_follow_the_fold():
    @tp.program
    def counted(x: tp.int8[Tensor, "t"], y: tp.bool_[Tensor, "t"]) -> tuple[Tensor, Tensor]:
        return tp.cumsum(x), tp.cumsum(y)

    program = counted.bind(t=70)
    found = evaluate(program, {"x": np.full(70, 100, np.int8), "y": np.ones(70, bool)})
    (x, y) = found.values()
    assert x.dtype == y.dtype == np.int32
    assert x[-1] == 7000
    assert y.tolist() == list(range(1, 71))
