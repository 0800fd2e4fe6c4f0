"""`tp.program`: extents, settings, outputs, declarations inside, pins, and what is printed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, anyfloat, bf16, f32, int8, param, state
from tapestry.program import Pin
from tapestry.reference import evaluate
from tapestry.testing import program_of


@tp.program
def mlp(
    x: f32[Tensor, "n d"],
    w: param[f32[Tensor, "d h=2*d"]],
    *,
    d: int = 4,
    scale: float = 1.0,
    causal: bool = False,
    mode: str = "relu",
) -> Tensor:
    """One layer.

    With a choice of activation.
    """
    y = x @ w * scale
    return tp.relu(y) if mode == "relu" else tp.tanh(y)


def test_extents_come_from_keywords_defaults_and_expressions() -> None:
    program = mlp.bind(n=3)
    assert [t.shape for t in program.of_role("input", "param")] == [(3, 4), (4, 8)]
    assert program.bindings == (("n", 3), ("d", 4), ("scale", 1.0), ("causal", False), ("mode", "relu"))
    assert mlp.bind(n=3, d=5).tensor("w").shape == (5, 10)


def test_an_extent_given_by_an_expression_serves_others() -> None:
    @tp.program
    def net(x: f32[Tensor, "t=tokens d"], w: f32[Tensor, "d h=2*d"], b: f32[Tensor, "h"], *, tokens: int = 6) -> Tensor:
        return x @ w + b

    assert net.extents == ("tokens", "d")
    assert net.bind(d=4).tensor("out").shape == (6, 8)


def test_roles_and_axes_come_from_the_annotations() -> None:
    program = mlp.bind(n=3)
    assert [(t.name, t.role, t.axes) for t in program.tensors[:2]] == [
        ("x", "input", ("n", "d")),
        ("w", "param", ("d", "h")),
    ]


def test_settings_choose_what_is_built() -> None:
    assert [op.name for op in mlp.bind(n=3, mode="tanh").operations] == ["matmul", "multiply", "tanh"]


def test_text_is_read_by_type() -> None:
    program = mlp.bind_text({"n": "3", "scale": "2", "causal": "yes", "mode": "tanh"})
    assert program.bindings == (("n", 3), ("d", 4), ("scale", 2.0), ("causal", True), ("mode", "tanh"))


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        (lambda: mlp.bind(), ["mlp (test_programs.py:", "needs   n", "given   nothing", "bind(n=...)"]),
        (lambda: mlp.bind(n=3, m=4), ["there is no extent or setting 'm'", "known: n, d, scale, causal, mode"]),
        (lambda: mlp.bind(n=3, modes="relu"), ["did you mean 'mode'"]),
        (lambda: mlp.bind(n=-1), ["extent n=-1 is not an extent"]),
        (lambda: mlp.bind(n=True), ["extent n=True"]),
        (lambda: mlp.bind(n=2.0), ["extent n=2.0"]),
        (lambda: mlp.bind(n=3, d="4"), ["d='4' is not an integer", "d: int = 4"]),
        (lambda: mlp.bind(n=3, scale="x"), ["scale='x' is not a number"]),
        (lambda: mlp.bind(n=3, causal=1), ["causal=1 is not true or false"]),
        (lambda: mlp.bind(n=3, mode=1), ["mode=1 is not a string"]),
        (lambda: mlp.bind_text({"n": "three"}), ["n=three is not an integer"]),
        (lambda: mlp.bind_text({"n": "3", "causal": "perhaps"}), ["causal=perhaps is not true or false"]),
    ],
)
def test_wrong_values_are_refused(bind: Callable[[], object], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        bind()
    for words in said:
        assert words in str(caught.value)


def test_an_extent_that_is_a_setting_too_is_asked_for_once() -> None:
    @tp.program
    def net(x: f32[Tensor, "n c"], *, n: int, c: int) -> Tensor:
        return tp.relu(x)

    with pytest.raises(tp.UsageError) as caught:
        net.bind(c=3)
    said = str(caught.value)
    assert "needs   n\n" in said
    assert "bind(n=...), or --set n=... of a command" in said


def test_an_unbound_program_prints_its_signature_and_docstring() -> None:
    assert str(mlp) == "\n".join(
        [
            "program mlp(x: f32[n d], w: param f32[d h=2*d], d: int = 4, scale: float = 1.0, causal: bool = False, "
            "mode: str = 'relu')",
            "    One layer.",
            "",
            "    With a choice of activation.",
        ]
    )


def test_a_bound_program_prints_its_algebra() -> None:
    @tp.program
    def net(x: bf16[Tensor, "t h e"], count: state[f32[Tensor, ""]]) -> dict[str, Tensor]:
        """Attention and a counter."""
        y = tp.attention(x, x, tp.shard(x, data="h"), causal=True)
        tp.update(count, count + tp.constant([1.0])[0])
        return {"seen": y}

    text = str(net.bind(t=8, h=2, e=4))
    lines = [line.partition("   # test_programs.py:")[0] for line in text.splitlines()]
    assert lines == [
        "program net(t=8, h=2, e=4)",
        "  # Attention and a counter.",
        "  input x: bf16[t=8, h=2, e=4]",
        "  state count: f32[]",
        "  const const: f32[d0=1] = [1.0]",
        "  attention.state (t=8 h=2 |s=8 c=6!) -> f32",
        "    attention.state[t, h, c] = online_softmax[s] attention((x[t, h, c] if c < 4 else 0), "
        "(x[s, h, c] if c < 4 else 0), (x[s, h, c] if c < 4 else 0), scale=0.5, causal=True, offset=0, groups=2, "
        "width=4)  where s - t < 1",
        "  attention.finish (t=8 h=2 e=4) -> bf16",
        "    seen[t, h, e] = attention.state[t, h, e] / attention.state[t, h, 4]",
        "  add () -> f32",
        "    add[] = count[] + const[0]",
        "  output seen: bf16[t=8, h=2, e=4]",
        "  update count = add",
        "  pin tensor x: data=h",
    ]


def test_settings_may_be_left_out_or_be_none() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"], *, window: int | None = None, pair: tuple[int, int] = (1, 2)) -> Tensor:
        return x + (window or 0) + pair[1]

    assert net.bind(n=2).bindings == (("n", 2), ("window", None), ("pair", (1, 2)))
    assert net.bind_text({"n": "2", "window": "3"}).bindings[1] == ("window", 3)
    assert net.bind(n=2, window=None, pair=(3, 4)).bindings[2] == ("pair", (3, 4))
    with pytest.raises(tp.UsageError, match="pair is a tuple, which cannot be given as text"):
        net.bind_text({"n": "2", "pair": "3"})
    with pytest.raises(tp.UsageError, match="window='3' is not an integer"):
        net.bind(n=2, window="3")


def test_outputs_are_named_by_key_variable_or_position() -> None:
    def single(x: Tensor) -> Tensor:
        return x + 1

    def variable(x: Tensor) -> Tensor:
        y = x + 1
        assert y.shape == x.shape
        return y

    def several(x: Tensor) -> Any:
        y = x + 1
        return x, y, y, y[::-1], tp.exp(y)

    x = np.zeros(3, np.float32)
    assert program_of(single, x=x).outputs == ("out",)
    assert program_of(variable, x=x).outputs == ("y",)
    assert program_of(several, x=x).outputs == ("out0", "y", "out2", "out3", "out4")
    assert program_of(lambda x: {"a": x, "b.c": x * 2}, x=x).outputs == ("a", "b.c")


def test_states_are_replaced() -> None:
    @tp.program
    def step(count: state[f32[Tensor, "n"]], x: f32[Tensor, "n"]) -> Tensor:
        tp.update(count, count * 0.5 + x)
        return count + 0

    program = step.bind(n=2)
    values = evaluate(program, {"count": np.array([2, 4], np.float32), "x": np.array([1, 1], np.float32)})
    np.testing.assert_array_equal(values["out"], [2, 4])
    np.testing.assert_array_equal(values["count"], [2, 3])


def test_tensors_declared_in_a_loop() -> None:
    @tp.program
    def deep(x: f32[Tensor, "n d"], *, layers: int = 2) -> Tensor:
        for k in range(layers):
            with tp.name(f"layers.{k}"):
                x = tp.relu(x @ tp.param("w", "f32", (x.shape[1],) * 2, axes=("d", "h")))
        return x

    program = deep.bind(n=2, d=3, layers=3)
    assert [t.name for t in program.of_role("param")] == ["layers.0.w", "layers.1.w", "layers.2.w"]
    assert [op.name for op in program.operations][-2:] == ["layers.2.matmul", "layers.2.relu"]
    assert {op.extents["h"] for op in program.operations if "h" in op.extents} == {3}


def test_pins_name_tensors_and_mesh_axes() -> None:
    def net(x: Tensor) -> Tensor:
        y = tp.shard(tp.exp(x), kind="zigzag", data="d0", model="d1")
        z = tp.shard(y[:, ::-1], data="d0")
        return tp.replicate(z + tp.replicate(x), "model")

    program = program_of(net, x=np.zeros((4, 4), np.float32))
    assert program.pins == (
        Pin("tensor", "exp", (("data", "d0"), ("model", "d1")), "zigzag"),
        Pin("tensor", "z", (("data", "d0"),)),
        Pin("tensor", "x", (("*", None),)),
        Pin("tensor", "out", (("model", None),)),
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: tp.shard(x, data="n"), ["has no axis 'n'", 'data="n"', "d0, d1"]),
        (lambda x: tp.shard(x), ["the pin says nothing"]),
        (lambda x: tp.update(x, x), ["is not a state"]),
        (lambda x: tp.param("w", "f32", (-1,)), ["w has the shape [-1]"]),
        (lambda x: tp.param("w", "f32", (3,), axes=("a", "b")), ["one identifier for each axis"]),
        (lambda x: tp.param("w b", "f32", (3,)), ["cannot be the name of a tensor"]),
        (lambda x: tp.state("w", "float", (3,)), ["unknown dtype 'float'"]),
        (lambda x: tp.input("x", "f32", (3, 4)) + x, ["two tensors are called 'x'"]),
        (lambda x: tp.update(tp.state("s", "f32", (3, 4)), x.astype("f64")), ["a state keeps its shape and dtype"]),
    ],
)
def test_wrong_declarations_are_refused(call: Callable[[Tensor], Any], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_of(lambda x: [call(x), x][1], x=np.zeros((3, 4), np.float32))
    for words in said:
        assert words in str(caught.value)


def test_constants_take_the_dtype_of_what_they_are_made_of() -> None:
    made = [(True, "bool"), (3, "int32"), ([1, 2.5], "f32"), (np.ones(2), "f64"), (np.ones(2, np.int8), "int8")]
    for values, dtype in made:
        program = program_of(lambda x, v=values: (x, tp.constant(v))[0], x=np.zeros(2))
        (const,) = program.of_role("const")
        assert const.dtype == dtype
    assert const.data == (1, 1)


def test_annotations_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(tp.UsageError, match="is not an axis"):
        _ = f32[Tensor, "n 2+"]
    with pytest.raises(tp.UsageError, match="is not an annotation"):
        _ = f32["n c"]
    with pytest.raises(tp.UsageError, match=r"param\[\.\.\.\] wraps"):
        _ = param[Tensor]

    @tp.program
    def missing(x: f32[Elsewhere, "n"]) -> Tensor:  # type: ignore[name-defined]
        return x

    with pytest.raises(tp.UsageError, match="annotations cannot be evaluated: name 'Elsewhere'"):
        missing.bind(n=1)

    @tp.program
    def vague(x: anyfloat[Tensor, "n"]) -> Tensor:
        return x

    with pytest.raises(tp.UsageError, match="x has no definite dtype"):
        vague.bind(n=1)


def test_a_program_is_a_function_inside_another() -> None:
    @tp.program
    def outer(x: f32[Tensor, "n d"], w: f32[Tensor, "d h"]) -> Tensor:
        return mlp(x, w, mode="tanh") - 1

    assert [op.name for op in outer.bind(n=2, d=2, h=4).operations] == ["matmul", "multiply", "tanh", "subtract"]


def test_narrow_integers_accumulate_wide() -> None:
    @tp.program
    def quantised(x: int8[Tensor, "n d"], w: int8[Tensor, "d k"]) -> dict[str, Tensor]:
        return {"y": x @ w, "z": tp.sum(x, axis=1), "m": tp.max(x)}

    program = quantised.bind(n=1, d=64, k=1)
    assert [program.tensor(name).dtype for name in program.outputs] == ["int32", "int32", "int8"]
    full = {"x": np.full((1, 64), 127, np.int8), "w": np.full((64, 1), 127, np.int8)}
    assert evaluate(program, full)["y"].item() == 64 * 127 * 127


def test_the_decorator_keeps_its_name_whatever_is_imported() -> None:
    code = (
        "import tapestry.program, tapestry as tp; from tapestry.program import Program; "
        "import tapestry.dsl.program; assert callable(tp.program) and tapestry.program is tp.program; "
        "assert Program.__module__ == 'tapestry.program'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)
