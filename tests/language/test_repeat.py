"""Rolled loops: a body that is traced once and written down for each step, weights tied, stacked or declared in it."""

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.errors import UsageError
from tapestry.planner import load_machine, plan
from tapestry.reference import evaluate

calls = []


def layer(x):
    calls.append(x)
    w = tp.param("w", "f32", (x.shape[1], x.shape[1]), axes=("d", "h"))
    return tp.rms_norm(x + tp.silu(x @ w))


@tp.program
def decoder(x: f32[Tensor, "t d"], *, layers: int = 3) -> Tensor:
    return tp.repeat(layers, layer, x)


@tp.program
def written_out(x: f32[Tensor, "t d"], *, layers: int = 3) -> Tensor:
    for k in range(layers):
        with tp.name(f"layer.{k}"):
            x = layer(x)
    return x


@tp.program
def recurrent(
    xs: f32[Tensor, "t b d"], h: f32[Tensor, "b d"], w: param[f32[Tensor, "d d"]], u: param[f32[Tensor, "d d"]]
) -> Tensor:
    def step(h, x):
        return tp.tanh(h @ w + x @ u)

    return tp.repeat(xs.shape[0], step, h, stacked=[xs])


def numbers(program, seed=0):
    rng = np.random.default_rng(seed)
    return {t.name: rng.normal(size=t.shape).astype(np.float32) for t in program.of_role("input", "param", "state")}


def test_a_loop_is_what_its_body_is_written_out():
    rolled, plain = decoder.bind(t=4, d=8), written_out.bind(t=4, d=8)
    assert [op.name for op in rolled.operations] == [op.name for op in plain.operations]
    assert [(t.name, t.role) for t in rolled.tensors] == [(t.name, t.role) for t in plain.tensors]
    assert rolled.graph.marks == plain.graph.marks
    given = numbers(plain)
    assert np.array_equal(*(next(iter(evaluate(p, given).values())) for p in (rolled, plain)))


def test_the_body_is_traced_once():
    calls.clear()
    decoder.bind(t=4, d=8, layers=126)
    assert len(calls) == 1


def test_weights_are_tied_and_inputs_are_taken_slice_by_slice():
    program = recurrent.bind(t=5, b=2, d=3)
    given = numbers(program)
    h = given["h"]
    for x in given["xs"]:
        h = np.tanh(h @ given["w"] + x @ given["u"])
    [found] = evaluate(program, given).values()
    np.testing.assert_allclose(found, h, rtol=1e-5, atol=1e-6)
    made = plan(program, load_machine("cpu-4"), mesh=(2,))
    [ran] = made.run(given, device="numpy").outputs.values()
    np.testing.assert_allclose(ran, h, rtol=1e-5, atol=1e-6)


def test_loops_stand_in_loops_and_carry_several_tensors():
    @tp.program
    def fibonacci(a: f32[Tensor, ""], b: f32[Tensor, ""]) -> tuple[Tensor, Tensor]:
        def twice(a, b):
            return tp.repeat(2, lambda a, b: (b, a + b), a, b, name="inner")

        return tp.repeat(5, twice, a, b)

    program = fibonacci.bind()
    found = evaluate(program, {"a": np.float32(0), "b": np.float32(1)})
    assert [float(x) for x in found.values()] == [55.0, 89.0]
    assert "twice.4.inner.1.add" in [op.name for op in program.operations]


def test_a_loop_has_a_derivative():
    @tp.program
    def power(x: f32[Tensor, ""]) -> Tensor:
        return tp.repeat(4, lambda y: y * x, x)

    [found] = evaluate(tp.grad(power, wrt=["x"]).bind(), {"x": np.float32(3)}).values()
    assert float(found) == 5 * 3**4


def test_no_step_is_what_went_in():
    program = decoder.bind(t=4, d=8, layers=0)
    x = numbers(program)["x"]
    assert np.array_equal(evaluate(program, {"x": x})["out"], x)


def test_what_is_pinned_and_held_constant_is_so_in_every_step():
    @tp.program
    def pinned(x: f32[Tensor, "n"]) -> Tensor:
        return tp.repeat(3, lambda y: tp.shard(tp.stop_gradient(y) * x, mesh0="n"), x)

    assert len(pinned.bind(n=8).pins) == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: x[:1], "a step hands on something else than it takes"),
        (lambda x: x.astype("f64"), "a step hands on something else than it takes"),
        (lambda x: (x, x), "the body does not return what it carries along"),
        (lambda x: None, "the body does not return what it carries along"),
    ],
)
def test_a_step_hands_on_what_it_takes(body, message):
    @tp.program
    def wrong(x: f32[Tensor, "n"]) -> Tensor:
        return tp.repeat(3, body, x)

    with pytest.raises(UsageError, match=message) as caught:
        wrong.bind(n=4)
    assert "test_repeat.py" in str(caught.value)


def test_counts_and_slices_that_do_not_fit_are_refused():
    @tp.program
    def wrong(x: f32[Tensor, "n"], *, steps: int) -> Tensor:
        return tp.repeat(steps, lambda y, part: y + part, x, stacked=[x])

    with pytest.raises(UsageError, match="3 steps take slices of"):
        wrong.bind(n=4, steps=3)
    with pytest.raises(UsageError, match="-1 is no number of steps"):
        wrong.bind(n=4, steps=-1)


def test_a_state_from_outside_is_carried_and_not_updated_in_each_step():
    @tp.program
    def counting(total: state[f32[Tensor, ""]]) -> Tensor:
        def step(x):
            tp.update(total, x + 1.0)
            return x + 1.0

        return tp.repeat(3, step, total)

    with pytest.raises(UsageError, match="every step updates the state total"):
        counting.bind()
