"""The examples: what they build, at what size, and that layers repeat as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from tapestry.notation import format_operation
from tapestry.program import Program
from tapestry.reference import evaluate

from ..files import EXAMPLES, example

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def llama() -> Program:
    program: Program = example("llama").forward.bind()
    return program


@pytest.mark.parametrize("name", ["mlp", "convnet", "llama"])
def test_an_example_prints_its_program(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=900, check=True
    )
    assert done.stdout.startswith("program forward(")
    assert done.stderr == ""


def test_llama_has_the_size_of_the_model(llama: Program) -> None:
    d, heads, groups, ffn, e = 4096, 32, 8, 14336, 128
    layer = d * heads * e * 2 + d * groups * e * 2 + 3 * d * ffn + 2 * d
    assert sum(tensor.size for tensor in llama.of_role("param")) == 32 * layer
    assert {tensor.dtype for tensor in llama.of_role("param", "input")} == {"bf16"}
    assert llama.tensor("out").shape == llama.tensor("x").shape == (8192, 4096)


def test_llama_layers_are_the_same_operations(llama: Program) -> None:
    assert len(llama.operations) == 32 * 18
    layers = [llama.operations[k * 18 : (k + 1) * 18] for k in range(32)]

    def shape(text: str) -> str:
        return re.sub(r"layers\.\d+\.", "", text)

    texts = [[shape(format_operation(op)) for op in layer] for layer in layers]
    assert all(text == texts[1] for text in texts[1:-1])
    dims = Counter(tuple(op.dims for op in layer) for layer in layers)
    assert len(dims) == 1


def test_llama_names_the_dimensions_that_one_cuts(llama: Program) -> None:
    assert llama.op_by_name["layers.3.q"].extents == {"t": 8192, "h": 32, "e": 128, "d": 4096}
    assert llama.op_by_name["layers.3.o"].reduce_dims == ("h", "e")
    state = llama.op_by_name["layers.3.attention.state"]
    assert (state.reduce_dims, state.monoid, state.group) == (("s",), "online_softmax", "layers.3.attention")
    assert [str(bound) for bound in state.where] == ["s - t < 1"]
    assert all(op.dims[0].name == "t" for op in llama.operations)


def test_llama_computes_a_decoder() -> None:
    """One layer against the same formulas in NumPy, at a small size."""
    program = example("llama").forward.bind(layers=1, d=16, heads=4, kv_heads=2, ffn=24, tokens=6)
    rng = np.random.default_rng(1)
    wide = {t.name.rpartition(".")[2]: rng.normal(size=t.shape) / 4 for t in program.of_role("input", "param")}
    import ml_dtypes

    narrow = {
        t.name: wide[t.name.rpartition(".")[2]].astype(ml_dtypes.bfloat16) for t in program.of_role("input", "param")
    }
    w = {name: narrow_value.astype(np.float64) for name, narrow_value in zip(wide, narrow.values(), strict=True)}
    got = evaluate(program, narrow)["out"].astype(np.float64)

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale

    def rope(x: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None, None] * 500000.0 ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    x = w["x"]
    h = norm(x, w["attention_norm"])
    q, k, v = (np.einsum("td,dhe->the", h, w[name]) for name in ("wq", "wk", "wv"))
    q, k, v = rope(q), np.repeat(rope(k), 2, 1), np.repeat(v, 2, 1)
    scores = np.einsum("the,she->hts", q, k) / 2 + np.where(np.tri(6) > 0, 0, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    seen = np.einsum("hts,she->the", p / p.sum(-1, keepdims=True), v)
    x = x + np.einsum("the,hed->td", seen, w["wo"])
    h = norm(x, w["mlp_norm"])
    gate = h @ w["w_gate"]
    want = x + (gate / (1 + np.exp(-gate)) * (h @ w["w_up"])) @ w["w_down"]
    np.testing.assert_allclose(got, want, atol=0.05 * np.abs(want).max())


def test_convnet_cuts_the_image_into_patches_and_keeps_its_extents() -> None:
    program = example("convnet").forward.bind()
    assert program.tensor("features").shape == (4, 56, 56, 96)
    windows = [op for op in program.operations if op.name.endswith("depthwise")]
    assert len(windows) == 3
    assert all("p + r - 3" in format_operation(op) for op in windows)
    values = example("convnet").forward.bind(n=1, y=8, x=12, channels=8, blocks=1)
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.normal(size=t.shape).astype(np.float32) for t in values.of_role("input", "param")}
    assert np.isfinite(evaluate(values, inputs)["features"]).all()


def test_mlp_gives_probabilities() -> None:
    program = example("mlp").forward.bind(n=5, d=7, hidden=6, k=3)
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.normal(size=t.shape).astype(np.float32) for t in program.of_role("input", "param")}
    np.testing.assert_allclose(evaluate(program, inputs)["probabilities"].sum(1), np.ones(5), rtol=1e-6)
