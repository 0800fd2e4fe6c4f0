"""The example networks, small, against torch and scipy.ndimage.

Every example is evaluated twice: in float64 throughout, where it must agree to rounding, and in its own
dtypes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import ndimage
from torch.nn import functional

from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Pin, Program
from tapestry.reference import evaluate
from tapestry.testing.widening import in_f64

from ..files import example

Weights = dict[str, torch.Tensor]


def compare(program: Program, model: object, unit: float) -> None:
    """One output against torch, in float64 and in the program's dtypes (within ``unit`` of the largest value)."""
    assert callable(model)
    (name,) = program.outputs
    exact = random_inputs(in_f64(program), seed=3)
    want = model({key: torch.from_numpy(value) for key, value in exact.items()}).numpy()
    np.testing.assert_allclose(evaluate(in_f64(program), exact)[name], want, rtol=0, atol=1e-12 * np.abs(want).max())
    inputs = random_inputs(program, seed=3)
    stored = {key: torch.from_numpy(value.astype(np.float64)) for key, value in inputs.items()}
    want, got = model(stored).numpy(), evaluate(program, inputs)[name].astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=unit * np.abs(want).max())


def harris(photo: np.ndarray) -> np.ndarray:
    """The corner response in float64, by scipy.ndimage alone."""
    grey = photo.astype(np.float64) @ [0.299, 0.587, 0.114] / 255
    gx, gy = (ndimage.sobel(grey, axis=axis, mode="constant") for axis in (1, 0))
    xx, yy, xy = (ndimage.gaussian_filter(a, 1.5, mode="constant", radius=4) for a in (gx * gx, gy * gy, gx * gy))
    return np.asarray(xx * yy - xy**2 - 0.05 * (xx + yy) ** 2)


def test_corners_are_scipys() -> None:
    """The response to rounding; the corners are its strict local maxima above the threshold, zero outside the image."""
    program = example("corners").corners.bind(y=23, x=31, threshold=0.05)
    photo = np.random.default_rng(0).integers(0, 256, (23, 31, 3))
    want = harris(photo)
    exact = evaluate(in_f64(program), {"photo": photo.astype(np.float64)})
    np.testing.assert_allclose(exact["response"], want, rtol=0, atol=1e-12 * np.abs(want).max())
    highest = ndimage.maximum_filter(want, 3, mode="constant", cval=0.0)
    np.testing.assert_array_equal(exact["corners"] != 0, (want >= highest) & (want > 0.05))
    assert 5 < np.count_nonzero(exact["corners"]) < 100
    stored = evaluate(program, {"photo": photo.astype(np.float32)})["response"]
    np.testing.assert_allclose(stored, want, rtol=0, atol=1e-6 * np.abs(want).max())


def perceptron(w: Weights) -> torch.Tensor:
    h = functional.gelu(w["x"] @ w["w0"] + w["b0"])
    h = functional.gelu(h @ w["w1"] + w["b1"])
    return torch.softmax(h @ w["w2"], -1)


def test_mlp_is_torchs() -> None:
    compare(example("mlp").forward.bind(n=5, d=13, hidden=11, k=3), perceptron, 2e-6)


def convnext(w: Weights) -> torch.Tensor:
    """Channels first inside torch's convolutions, channels last elsewhere."""
    h = functional.conv2d(w["image"].permute(0, 3, 1, 2), w["stem.w"].permute(3, 2, 0, 1), stride=w["stem.w"].shape[0])
    h = h.permute(0, 2, 3, 1)
    h = functional.layer_norm(h, h.shape[-1:], w["stem.scale"], w["stem.shift"])
    for layer in range(2):
        at = f"blocks.{layer}."
        window = w[at + "window"].permute(2, 0, 1)[:, None]
        mixed = functional.conv2d(h.permute(0, 3, 1, 2), window, padding="same", groups=h.shape[-1]).permute(0, 2, 3, 1)
        normed = functional.layer_norm(mixed, h.shape[-1:], w[at + "scale"], w[at + "shift"])
        h = h + functional.gelu(normed @ w[at + "grow"]) @ w[at + "shrink"]
    return h


def test_convnet_is_torchs() -> None:
    compare(example("convnet").forward.bind(n=2, y=20, x=12, channels=6, blocks=2), convnext, 1e-5)


def rotated(x: torch.Tensor, theta: float) -> torch.Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(len(x)).double()[:, None, None] * theta ** (-torch.arange(half).double() / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def decoder(w: Weights, layers: int, heads: int, kv_heads: int, theta: float) -> torch.Tensor:
    h = w["x"]
    for layer in range(layers):
        at = f"layers.{layer}."
        x = functional.rms_norm(h, h.shape[-1:], w[at + "attention_norm"], eps=1e-6)
        q, k, v = (torch.tensordot(x, w[at + name], 1) for name in ("wq", "wk", "wv"))
        k, v = (y.repeat_interleave(heads // kv_heads, 1) for y in (rotated(k, theta), v))
        q, k, v = (y.transpose(0, 1) for y in (rotated(q, theta), k, v))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / math.sqrt(q.shape[-1]))
        h = h + torch.tensordot(seen.transpose(0, 1), w[at + "wo"], 2)
        x = functional.rms_norm(h, h.shape[-1:], w[at + "mlp_norm"], eps=1e-6)
        h = h + (functional.silu(x @ w[at + "w_gate"]) * (x @ w[at + "w_up"])) @ w[at + "w_down"]
    return h


def test_llama_is_torchs() -> None:
    sizes = {"layers": 2, "heads": 6, "kv_heads": 3}
    program = example("llama").forward.bind(d=24, ffn=20, tokens=7, **sizes)
    compare(program, lambda w: decoder(w, theta=500000.0, **sizes), 2.0**-6)


def test_tokens_decoded_one_by_one_are_the_whole_sequence() -> None:
    """The cache is a state: what one step leaves is what the next finds."""
    sizes = {"layers": 2, "heads": 6, "kv_heads": 3}
    step = in_f64(example("llama").decode_step.bind(d=24, ffn=20, context=6, vocabulary=11, **sizes))
    held = random_inputs(step, seed=3)
    held |= {name: np.zeros_like(held[name]) for name, _ in step.states}
    tokens, found = np.array([3, 10, 3, 0, 7], np.int32), []
    for place, token in enumerate(tokens):
        held |= {"token": np.array([token], np.int32), "at": np.array(place, np.int32)}
        after = evaluate(step, held)
        held |= {name: after[name] for name, _ in step.states}
        found.append(after["logits"][0])
    w = {name: torch.from_numpy(value) for name, value in held.items()}
    h = decoder({**w, "x": w["embedding"][torch.from_numpy(tokens).long()]}, theta=500000.0, **sizes)
    want = functional.rms_norm(h, h.shape[-1:], w["norm"], eps=1e-6) @ w["unembedding"].T
    np.testing.assert_allclose(np.stack(found), want.numpy(), rtol=0, atol=1e-12 * want.abs().max().item())


def routed(w: dict[str, np.ndarray], capacity: int) -> np.ndarray:
    """A mixture of experts token by token."""
    likes = np.exp(w["tokens"] @ w["router"])
    likes /= likes.sum(1, keepdims=True)
    free, out = [capacity] * likes.shape[1], np.zeros_like(w["tokens"])
    for t, row in enumerate(w["tokens"]):
        x = int(likes[t].argmax())
        if free[x]:
            free[x] -= 1
            out[t] = likes[t, x] * (np.maximum(row @ w["w_in"][x], 0) @ w["w_out"][x])
    assert not all(free)
    return out


def test_a_mixture_of_experts_routes_token_by_token() -> None:
    program = example("moe").layer.bind(t=20, d=6, x=4, f=5, room=1.0)
    inputs = random_inputs(program, seed=1)
    want = routed({name: value.astype(np.float64) for name, value in inputs.items()}, capacity=5)
    assert (want == 0).all(1).any()
    pins = [Pin("op", name, (("mesh0", "x"),)) for name in ("hidden", "computed")]
    planned = plan(program, "cpu-4", mesh=(2,), pins=pins)
    planned.check()
    for found in (evaluate(program, inputs), planned.run(inputs, device="numpy").outputs):
        np.testing.assert_allclose(*found.values(), want, rtol=0, atol=1e-5 * np.abs(want).max())
