"""Random numbers: the published ones, the same bits wherever they are drawn, and distributed as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from scipy import stats

import tapestry as tp
from tapestry import Tensor
from tapestry.expr import FUNCTIONS
from tapestry.planner import load_machine, plan
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.reference.expressions import Value, call
from tapestry.testing import outputs_of, partitions, program_of

from ..kernels.elementwise.host import needs_compiler
from ..workers.cupy.conftest import on_host as on_host
from ..workers.unchecked import run_unchecked
from .randoms import philox

MACHINE = load_machine("h200x8")

# kat_vectors of Random123 1.14: counter, key, the words.
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def pair(low: int, high: int) -> int:
    """Two words as an integer of 64 bits with a sign."""
    return int(np.array(high << 32 | low, np.uint64).view(np.int64))


@pytest.mark.parametrize(("counter", "key", "expected"), PUBLISHED)
def test_the_published_words(counter: str, key: str, expected: str) -> None:
    """The oracle of these tests, the table's body and the reference's own all give them."""
    assert philox(words(key), words(counter)) == words(expected)
    a, b, c, d = words(counter)
    seed, stream, position, wanted = pair(*words(key)), pair(c, d), pair(a, b), pair(*words(expected)[:2])
    arrays = [np.array(word, np.int64) for word in (seed, stream, position)]
    out = np.empty((), np.int64)
    FUNCTIONS["philox"].compute(*arrays, out=out)
    assert int(out) == wanted
    assert int(call("philox", [Value(array, "int64") for array in arrays]).array) == wanted


def drawn(dummy: Tensor, number: Tensor) -> dict[str, Tensor]:
    """All kinds, from a seed that is an input."""
    return {
        "bits": tp.random_bits((7, 9), number),
        "uniform": tp.uniform((7, 9), number, stream=1) * 3,
        "normal": tp.normal((7, 9), number, stream=2),
        "double": tp.normal((7, 9), number, dtype="f64", stream=2),
        "half": tp.normal((7, 9), number, dtype="bf16", deviation=0.5, mean=1, stream=3),
        "dropped": tp.dropout(dummy, 0.3, number + 1),
    }


def drawing() -> tuple[Program, dict[str, Any]]:
    inputs = {"x": np.linspace(-1, 1, 63, dtype="float32").reshape(7, 9), "seed": np.array(2**40 + 17)}
    return program_of(drawn, **inputs), inputs


def assert_same_bits(program: Program, found: Any, wanted: Any) -> None:
    for name in program.outputs:
        assert found[name].tobytes() == wanted[name].tobytes(), name


def test_every_sharding_draws_the_same_bits() -> None:
    program, inputs = drawing()
    wanted = evaluate(program, inputs)

    @settings(max_examples=6, suppress_health_check=list(HealthCheck), database=None)
    @seed(1)
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        shards = data.draw(partitions(program, data.draw(st.integers(2, 4))))
        document = plan_partitions(program, MACHINE, shards).document
        found = run_unchecked(Resolved(document, program), inputs, poison=True)
        assert_same_bits(program, found.outputs, wanted)
        assert_same_bits(program, evaluate(program, inputs, partition=shards), wanted)

    execute()


@needs_compiler
def test_generated_kernels_draw_the_same_bits(on_host: str) -> None:
    program, inputs = drawing()
    document = plan(program, MACHINE, mesh=(2,), time_limit=5).document
    found = run_unchecked(document, inputs, device=on_host)
    assert_same_bits(program, found.outputs, evaluate(program, inputs))


def draws(call: Any) -> np.ndarray[Any, Any]:
    [found] = outputs_of(lambda _: call(), x=np.zeros(1))
    return found.astype(np.float64).ravel()


def test_they_are_distributed_as_they_say() -> None:
    """The seeds are fixed, and so are these figures: nothing here is left to chance."""
    flat, bell = draws(lambda: tp.uniform((200, 500), 1)), draws(lambda: tp.normal((200, 500), 1))
    assert 0 <= flat.min() < 1e-4
    assert 1 - 1e-4 < flat.max() < 1
    assert stats.kstest(flat, "uniform").pvalue > 0.01
    assert stats.kstest(bell, "norm").pvalue > 0.01
    assert abs(stats.skew(bell)) < 0.03
    assert abs(stats.kurtosis(bell)) < 0.06
    assert abs(np.corrcoef(bell[:-1], bell[1:])[0, 1]) < 0.01
    for other in (lambda: tp.normal((200, 500), 2), lambda: tp.normal((200, 500), 1, stream=1)):
        assert abs(np.corrcoef(bell, draws(other))[0, 1]) < 0.01
    counts = np.bincount(draws(lambda: tp.random_integers((100000,), 4, 0, 10)).astype(int), minlength=10)
    assert stats.chisquare(counts).pvalue > 0.01
    assert abs(draws(lambda: tp.bernoulli((100000,), 4, 0.2)).mean() - 0.2) < 0.004


def test_numbers_of_16_bits_stay_below_one() -> None:
    for dtype, least in (("bf16", 2.0**-8), ("f16", 2.0**-11), ("f8e4m3", 2.0**-4)):
        found = draws(lambda dtype=dtype: tp.uniform((20000,), 3, dtype=dtype))
        assert found.max() == 1 - least
        assert found.min() == 0


def test_gradients_go_through_what_is_kept_and_stop_at_random_numbers() -> None:
    @tp.program
    def loss(x: tp.f64[Tensor, "n k"], seed: tp.int64[Tensor, ""]) -> Tensor:
        return tp.sum(tp.dropout(x, 0.4, seed) * tp.normal(x.shape, seed, dtype="f64"))

    inputs = {"x": np.random.default_rng(0).normal(size=(6, 5)), "seed": np.array(5)}
    slope = evaluate(tp.grad(loss, wrt="x").bind(n=6, k=5), inputs)["grad.x"]
    [kept] = outputs_of(lambda s: tp.dropout(tp.ones((6, 5), "f64"), 0.4, s), seed=inputs["seed"])
    [factor] = outputs_of(lambda s: tp.normal((6, 5), s, dtype="f64"), seed=inputs["seed"])
    np.testing.assert_allclose(slope, kept * factor, rtol=1e-12)
    assert 0 < np.count_nonzero(slope) < slope.size


@pytest.mark.parametrize(
    ("said", "use"),
    [
        ("the seed is one integer", lambda x: tp.normal((3,), x)),
        ("dropout(p=1.5)", lambda x: tp.dropout(x, 1.5, 0)),
        ("dropout(p=1)", lambda x: tp.dropout(x, 1, 0)),
        ("uniform draws floats, not int32", lambda _: tp.uniform((3,), 0, dtype="int32")),
        ("there are 0 numbers from 3 to 3", lambda _: tp.random_integers((3,), 0, 3, 3)),
        ("bernoulli(p=-0.5)", lambda _: tp.bernoulli((3,), 0, -0.5)),
    ],
)
def test_bad_calls_are_refused(said: str, use: Any) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_of(use, x=np.zeros((2, 3), "float32"))
    assert said in str(caught.value)
