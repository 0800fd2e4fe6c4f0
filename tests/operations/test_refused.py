"""What the operations refuse, each with the place of the call, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.testing import program_of

X, N = np.zeros((4, 6), "float32"), np.zeros((4, 6), "int32")
IMAGE = np.zeros((2, 6, 5, 4), "float32")

REFUSED: list[tuple[str, Callable[..., Any], np.ndarray[Any, Any]]] = [
    ("clip has neither a lower nor an upper end", lambda x: tp.clip(x), X),
    ("bitwise_and has no meaning for (f32, int32)", lambda x: tp.bitwise_and(x, 1), X),
    ("left_shift has no meaning for (f32, int32)", lambda x: x << 1, X),
    ("for the bits of integers: tp.bitwise_and", lambda x: x & 1, N),
    ("softplus(beta=0.0)", lambda x: tp.softplus(x, beta=0.0), X),
    ("the axis d1 of extent 5 has no halves", lambda x: tp.glu(x[:, :5]), X),
    ("prelu: the weight has not the extent of the axis", lambda x: tp.prelu(x, x[0, :3]), X),
    ("4 groups do not divide 6 channels", lambda x: tp.group_norm(x, 4), IMAGE),
    ("group_norm takes floats [n, c, ...]", lambda x: tp.group_norm(x, 2), N),
    ("batch_norm: mean has not one number for each channel", lambda x: tp.batch_norm(x, x[0, :3], x[0]), X),
    ("is not a state", lambda x: tp.batch_norm(x, x[0], x[1], training=True), X),
    ("nll_loss takes logp [n, c, ...] and integers target [n, ...]", lambda x: tp.nll_loss(x, x[:, 0]), X),
    ("reflect has no 6 elements to continue d1 of extent 6", lambda x: tp.pad(x, ((0, 0), (6, 0)), mode="reflect"), X),
    ("mode is 'mirror'", lambda x: tp.pad(x, 1, mode="mirror"), X),  # type: ignore[arg-type]
    ("interpolate takes either size= or scale=", lambda x: tp.interpolate(x), IMAGE),
    ("bilinear is for 2 spatial axes", lambda x: tp.interpolate(x[0], 3, mode="bilinear"), IMAGE),
    ("conv_transpose2d(extra=1)", lambda x: tp.conv_transpose2d(x, x[0, :, None, :2, :2], extra=1), IMAGE),
    ("conv_transpose2d: channels and groups contradict", lambda x: tp.conv_transpose2d(x, x), IMAGE),
    ("unfold: the window is wider than the padded image", lambda x: tp.unfold(x, 7), IMAGE),
    ("fold takes [n, c * window, windows]", lambda x: tp.fold(x[0], 4, 2), IMAGE),
    ("adaptive_avg_pool2d(size=0)", lambda x: tp.adaptive_avg_pool2d(x, 0), IMAGE),
    ("the channels are no multiple of 4", lambda x: tp.pixel_shuffle(x, 2), IMAGE),
    ("roll: 2 shifts for 1 axes", lambda x: tp.roll(x, (1, 2), 0), X),
    ("split: d1 of extent 6 has no 4 equal parts", lambda x: tp.split(x, 4, 1), X),
    ("split: the parts [1, 2] do not make up d1", lambda x: tp.split(x, (1, 2), 1), X),
    ("diagonal takes two axes", lambda x: tp.diagonal(x, 0, (0,)), X),
    ("tensordot folds 3 axes", lambda x: tp.tensordot(x, x, 3), X),
    ("var: nothing is left to divide by", lambda x: tp.var(x[:1], 0, correction=1), X),
    ("arange has step 0", lambda _: tp.arange(0, 3, 0), X),
    ('rearrange("a b -> a"): b is on one side only', lambda x: tp.rearrange(x, "a b -> a"), X),
    ('rearrange("a b c -> a b c"): 3 axes on the left', lambda x: tp.rearrange(x, "a b c -> a b c"), X),
    ("nothing gives the extents of c and d", lambda x: tp.rearrange(x, "a (c d) -> a c d"), X),
    ("(c d) does not make up an axis of extent 6", lambda x: tp.rearrange(x, "a (c d) -> a c d", c=4), X),
    ("the parentheses do not match", lambda x: tp.rearrange(x, "a (b -> a b"), X),
    ("a pattern has a left and a right side", lambda x: tp.rearrange(x, "a b"), X),
    ("a stands twice on one side", lambda x: tp.rearrange(x, "a a -> a a"), X),
    ("nothing gives the extent of c", lambda x: tp.repeat(x, "a b -> a b c"), X),
    ("b is not on the right side", lambda x: tp.repeat(x, "a b -> a"), X),
    ("fft takes pairs (real, imaginary) along a last axis", lambda x: tp.fft(x), X),
    ("rfft takes an axis of f32 or f64", lambda x: tp.rfft(x), N),
    ("irfft of 3 pairs cannot be 6 long", lambda x: tp.irfft(tp.reshape(x, (4, 3, 2)), 6), X),
    ("norm is 'both'", lambda x: tp.rfft(x, norm="both"), X),  # type: ignore[arg-type]
    ("bicubic is for 2 spatial axes", lambda x: tp.interpolate(x[0], 3, mode="bicubic"), IMAGE),
    ("lp_pool2d takes floats and a power above 0", lambda x: tp.lp_pool2d(x, 0, 2), IMAGE),
    ("grid_sample takes x [n, c, h, w] and grid", lambda x: tp.grid_sample(x, x), IMAGE),
    (
        "padding is 'circular'",
        lambda x: tp.grid_sample(x, x[..., :2], padding="circular"),  # type: ignore[arg-type]
        IMAGE,
    ),
    ("affine_grid takes theta [n, 2, 3]", lambda x: tp.affine_grid(x, (4, 1, 2, 2)), X),
    ("fold is 'median'", lambda x: tp.reduce(x, "a b -> a", "median"), X),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("said", "use", "array"), REFUSED, ids=[said for said, _, _ in REFUSED])
def test_bad_calls_are_refused(said: str, use: Callable[[Tensor], Any], array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_of(use, x=array)
    assert said in str(caught.value)
    assert "np." not in str(caught.value)
    assert "test_refused.py" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_running_statistics_move() -> None:
    """Batch normalisation in training: torch's running mean and variance are the states' next values."""
    import torch

    rng = np.random.default_rng(0)
    x, mean, variance = rng.normal(size=(5, 3, 4)), rng.normal(size=3), rng.uniform(0.5, 2, size=3)

    @tp.program
    def net(
        x: tp.f64[Tensor, "n c s"], mean: tp.state[tp.f64[Tensor, "c"]], variance: tp.state[tp.f64[Tensor, "c"]]
    ) -> Tensor:
        return tp.batch_norm(x, mean, variance, training=True, momentum=0.3)

    from tapestry.reference import evaluate

    program = net.bind(n=5, c=3, s=4)
    found = evaluate(program, {"x": x, "mean": mean, "variance": variance})
    running = [torch.from_numpy(array.copy()) for array in (mean, variance)]
    wanted = torch.nn.functional.batch_norm(torch.from_numpy(x), *running, training=True, momentum=0.3)
    np.testing.assert_allclose(found[program.outputs[0]], wanted.numpy(), rtol=1e-12)
    np.testing.assert_allclose(found["mean"], running[0].numpy(), rtol=1e-12)
    np.testing.assert_allclose(found["variance"], running[1].numpy(), rtol=1e-12)
