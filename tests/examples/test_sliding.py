"""Domains that are no boxes, over four ranks: plans of the example are checked, share the work, give NumPy's values."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.planner import load_machine, plan
from tapestry.planner.check import check
from tapestry.program import Pin
from tapestry.reference import evaluate

from .test_models import example

SLIDING = example("sliding")


@pytest.mark.parametrize("name", SLIDING.CUT)
def test_ranks_share_the_work_and_agree_with_numpy(name: str) -> None:
    bound = getattr(SLIDING, name).bind()
    rng = np.random.default_rng(1)
    given = {tensor.name: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in bound.of_role("input")}
    pattern, dim = SLIDING.CUT[name]
    made = plan(bound, load_machine("cpu-4"), mesh=(4,), pins=[Pin("op", pattern, (("mesh0", dim),), "balanced")])
    assert check(made.document).ok
    [out] = made.run(given).outputs.values()
    np.testing.assert_allclose(out, SLIDING.by_hand(name, given), rtol=1e-4, atol=1e-5)


def attended(lengths: list[int]) -> object:
    @tp.program
    def net(q: f32[Tensor, "3 5 2 4"], k: f32[Tensor, "3 5 2 4"], v: f32[Tensor, "3 5 2 4"]) -> Tensor:
        rows = tp.table(lengths)
        y = tp.attention(q, k, v, causal=True, where=lambda b, t, s: (t < rows[b]) & (s < rows[b]))
        return tp.sum(y * y)

    return net


def test_queries_that_see_no_key_are_zero_and_have_no_gradient() -> None:
    inputs = {name: np.random.default_rng(k).standard_normal((3, 5, 2, 4)).astype("f4") for k, name in enumerate("qkv")}
    lengths = [5, 0, 2]
    found = evaluate(tp.grad(attended(lengths), wrt=("q", "k", "v")).bind(), inputs)
    for name in "qkv":
        beyond = np.arange(5)[np.newaxis, :] >= np.array(lengths)[:, np.newaxis]
        gradient = found[f"grad.{name}"]
        assert np.isfinite(gradient).all()
        assert not gradient[beyond].any()
        assert (gradient[0, 1:] != 0).all()


def test_a_window_is_a_number_of_keys_and_where_a_condition_on_indices() -> None:
    def bound(**options: object) -> object:
        @tp.program
        def net(q: f32[Tensor, "5 2 4"]) -> Tensor:
            return tp.attention(q, q, q, **options)  # type: ignore[arg-type]

        return net.bind()

    assert "where -1 <= -d0 + s < 1" in str(bound(causal=True, window=2))
    assert "where -1 <= -d0 + s < 2" in str(bound(window=2))
    assert "where d0 - s != 0" in str(bound(where=lambda t, s: t != s))
    with pytest.raises(UsageError, match="window=0"):
        bound(window=0)
    with pytest.raises(UsageError, match="no condition on its indices"):
        bound(where=lambda t, s: t + s)
    with pytest.raises(UsageError, match="outside of its values"):
        bound(where=lambda t, s: s < tp.table([1, 2, 3])[t - 1])
