"""Text back to programs: whatever is printed is read as the same program, what is malformed is shown where it is."""

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.errors import ProgramError, TapestryError, UsageError
from tapestry.program import Pin, Program
from tapestry.serialize import program_to_json
from tapestry.testing import programs

EXAMPLES = Path(__file__).parents[2] / "examples"


def content(program: Program) -> dict[str, Any]:
    """The program's JSON; the order in which tensors are listed is no part of the text."""
    found = program_to_json(program)
    return {**found, "tensors": sorted(found["tensors"], key=lambda tensor: tensor["name"])}


def assert_comes_back(program: Program) -> None:
    again = tp.parse(str(program), constants=tp.constants_of(program))
    assert content(again) == content(program)
    assert str(again) == str(program)


@given(programs())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_generated_programs_come_back(program: Program) -> None:
    assert_comes_back(program)


@tp.program
def net(
    x: f32[Tensor, "t h e"], w: param[f32[Tensor, "e e"]], count: state[f32[Tensor, ""]], *, mode: str = "a, (#'\n"
) -> dict[str, Tensor]:
    """Attention: and a counter.

    input x: f32[t=3]
        repeat k in 0:9
    """
    y = tp.attention(x, x, x @ w, causal=True)
    y = tp.softmax(y * tp.constant(np.arange(4.0, dtype="f4")), axis=-1)
    tp.update(count, count + 1)
    return {"y": y, "flat": y.reshape(-1, 2)}


def with_everything() -> Program:
    pins = (
        Pin("op", "attention.*", (("mesh0", "h"), ("mesh1", None))),
        Pin("tensor", "y", (("data", "t"),), "cyclic"),
    )
    return net.bind(t=8, h=2, e=4).with_pins(*pins)


def test_a_program_with_everything_comes_back() -> None:
    assert_comes_back(with_everything())


@pytest.mark.parametrize(
    ("example", "name", "sizes"),
    [
        ("mlp", "forward", {}),
        ("convnet", "forward", {}),
        ("llama", "forward", {"layers": 12}),
        ("llama", "decode_step", {"layers": 2}),
        ("moe", "layer", {}),
        ("moe", "train_step", {}),
        ("corners", None, {"y": 9, "x": 12}),
        ("digits", "train_step", {"n": 8}),
    ],
)
def test_examples_come_back(example: str, name: str | None, sizes: dict[str, int]) -> None:
    found = runpy.run_path(str(EXAMPLES / f"{example}.py"))
    functions = [found[name]] if name else [f for f in found.values() if isinstance(f, type(net))]
    assert functions
    for function in functions:
        assert_comes_back(function.bind(**sizes))


def test_repeated_layers_are_read_from_one() -> None:
    @tp.program
    def deep(x: f32[Tensor, "n d"]) -> Tensor:
        for k in range(20):
            w = tp.param(f"w.{k}", "f32", (x.shape[1], x.shape[1]), axes=("d", "h"))
            x = tp.relu(x @ w)
        return x

    program = deep.bind(n=3, d=2)
    assert "repeat k in 0:19" in str(program)
    assert_comes_back(program)


def test_folded_dimensions_may_stand_anywhere() -> None:
    @tp.program
    def matmul(x: f32[Tensor, "n c"], w: f32[Tensor, "c k"]) -> Tensor:
        return x @ w

    program = matmul.bind(n=2, c=3, k=4)
    (op,) = program.operations
    turned = replace(program, operations=(replace(op, dims=tuple(reversed(op.dims))),))
    assert "matmul (|c=3 k=4 n=2) -> f32" in str(turned)
    assert tp.parse(str(turned)) == turned


@tp.program
def weighted(x: f32[Tensor, "n"]) -> Tensor:
    return x * tp.constant(np.linspace(0, 1, 12, dtype="f4"))


def test_long_constants_are_read_from_a_file_beside(tmp_path: Path) -> None:
    program = weighted.bind(n=12)
    assert "... 12 values, sha256 " in str(program)
    save_file(tp.constants_of(program), tmp_path / "constants.safetensors")
    assert tp.parse(str(program), constants=load_file(tmp_path / "constants.safetensors")) == program


def test_long_constants_are_not_guessed() -> None:
    text = str(weighted.bind(n=12))
    with pytest.raises(UsageError, match=r"line 3, column 29: the values of const are not in the text[\s\S]*constants"):
        tp.parse(text)
    with pytest.raises(UsageError, match=r"the values given for const are others[\s\S]*says[\s\S]*given +12 values"):
        tp.parse(text, constants={"const": np.zeros(12)})
    with pytest.raises(UsageError, match="what is given for const is not an array of numbers"):
        tp.parse(text, constants={"const": "abc"})
    with pytest.raises(UsageError, match="the values given for const are others"):
        tp.parse(text.replace("[0.0,", "[5.0,"), constants=tp.constants_of(weighted.bind(n=12)))


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3", "bool", "int8", "uint32", "f64", "int64"])
def test_constants_of_every_width(dtype: str) -> None:
    @tp.program
    def beside(x: f32[Tensor, "n"]) -> dict[str, Tensor]:
        return {"y": tp.constant([0, 1] * 8, dtype=dtype).reshape(4, 4), "z": x + 1}

    assert_comes_back(beside.bind(n=2))


SMALL = """program small(n=4, c=3)   # net.py:1
  # Row sums.
  input x: f32[n=4, c=3]
  sum (n=4 | c=3) -> f32   # net.py:3, in total
    y[n] = sum[c] x[n, c]
  output y: f32[n=4]
  pin tensor y: mesh0=n"""


def test_a_text_written_by_hand() -> None:
    program = tp.parse(SMALL)
    assert str(program) == SMALL
    assert program.meta == {"source": "net.py:1", "doc": "Row sums."}
    assert (program.operations[0].source, program.operations[0].group) == ("net.py:3", "total")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("program small", "small", ["line 1, column 1: expected 'program'", ">>> small"]),
        ("c=3]", "c 3]", ["line 3, column 23: expected '='", "input x: f32[n=4, c >>> 3]"]),
        ("f32[n=4, c", "f33[n=4, c", ["line 3, column 12", "'f33' is no dtype", "did you mean 'f32'?"]),
        ("(n=4 |", "(n=-4 |", ["line 4, column 10: expected an extent"]),
        ("sum[c] x", "sun[c] x", ["line 5, column 12", "'sun' is no monoid", "did you mean 'sum'?"]),
        ("sum[c] x", "sum[n] x", ["line 5, column 12: another fold", "above   c", "here    n"]),
        ("x[n, c]", "x[n, c", ["line 5, column 25: expected ','"]),
        ("x[n, c]", "x[n, c] +", ["line 5, column 28: expected a value"]),
        ("    y[n] = sum[c] x[n, c]\n", "", ["line 5, column 10"]),
        ("output y: f32[n=4]", "output y: f16[n=4]", ["line 6, column 1", "output   f16[n=4]", "tensor   f32[n=4]"]),
        ("output y: f32[n=4]", "output z: f32[n=4]", ["line 6, column 10: there is no tensor z", "known: x, y"]),
        ("mesh0=n", "mesh0", ["line 7, column 3: not a pin", "hint   pin tensor y: mesh0=n"]),
        ("mesh0=n", "mesh0=n (blok)", ["line 7, column 26", "did you mean 'block'?"]),
        ("  output", "  repeat k in 0:999999999\n    input x{k}: f32[]\n  output", ["line 6, column 3"]),
        ("  output", "  repeat k in 0:2\n    input z{k} f32[]\n  output", ["line 7, column 12 (k=0): expected ':'"]),
    ],
)  # fmt: skip
def test_malformed_text_is_shown_where_it_is(old: str, new: str, said: list[str]) -> None:
    assert old in SMALL
    with pytest.raises(UsageError) as caught:
        tp.parse(SMALL.replace(old, new))
    for part in said:
        assert part in str(caught.value)


def test_a_program_that_means_nothing_is_refused_with_the_line() -> None:
    with pytest.raises(ProgramError, match=r"line 4: sum \(net.py:3\) reads [\s\S]*witness"):
        tp.parse(SMALL.replace("x[n, c]", "x[n + 1, c]"))


@pytest.mark.parametrize("text", ["", "\n", "program", "program p(", "program p()\n  x", "program p()\n  x (", 3, None])
def test_what_is_no_program_at_all(text: object) -> None:
    with pytest.raises(UsageError):
        tp.parse(text)  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_a_text_gives_a_program_or_a_clear_refusal(data: st.DataObject) -> None:
    text = str(with_everything())
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 6)))
    changed = text[:at] + data.draw(st.text("[]()=|:#'{}k0-! \nxy.,", max_size=3)) + text[end:]
    try:
        again = tp.parse(changed)
    except TapestryError:
        return
    assert tp.parse(str(again)) == again
