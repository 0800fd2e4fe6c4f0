"""Settings are frozen into the bindings, or refused when the program is bound; optional tensors are switched."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Optional

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import plan
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json


class Mode(Enum):
    """A choice."""

    PLAIN = 1
    DOUBLE = 2


@tp.program
def net(
    x: f32[Tensor, "n"],
    *,
    widths: list[int] = [1, 2],  # noqa: B006
    table: dict[str, Any] = {"a": 1.5, "b": [True, None]},  # noqa: B006
    mode: Mode = Mode.PLAIN,
    pair: tuple[int, ...] = (3, 4),
    scale: float = np.float32(0.5),  # type: ignore[assignment]
    kind: Literal["point", "line"] = "point",
) -> Tensor:
    widths.append(9)  # what the function does to its copy is its own affair
    y = x * scale + sum(widths) + pair[0]
    return y * 2 if mode is Mode.DOUBLE else y


def recorded(**values: Any) -> dict[str, Any]:
    return dict(net.bind(n=4, **values).bindings)


def test_settings_are_recorded_as_json_would() -> None:
    assert recorded() == {
        "n": 4,
        "widths": (1, 2),
        "table": (("a", 1.5), ("b", (True, None))),
        "mode": "PLAIN",
        "pair": (3, 4),
        "scale": 0.5,
        "kind": "point",
    }
    found = recorded(scale=np.float64(2), pair=[np.int64(5)], mode=Mode.DOUBLE, widths=(7,))
    assert (found["scale"], found["pair"], found["mode"], found["widths"]) == (2.0, (5,), "DOUBLE", (7,))
    assert all(type(found[name]) is kind for name, kind in (("scale", float), ("pair", tuple)))


def test_what_happens_to_the_users_objects_changes_nothing() -> None:
    widths, table = [5], {"a": [1]}
    first = net.bind(n=4, widths=widths, table=table)
    before = json.dumps(program_to_json(first))
    widths.append(6)
    table["a"].append(2)
    assert json.dumps(program_to_json(first)) == before
    assert dict(first.bindings)["widths"] == (5,)
    assert dict(net.bind(n=4).bindings)["widths"] == (1, 2)  # nor does what the function did to its copy of the default


def test_a_plan_made_from_such_settings_checks_and_comes_back() -> None:
    program = net.bind(n=4, mode=Mode.DOUBLE, widths=[3])
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program
    made = plan(program, "cpu-4", mesh=(2,))
    assert made.check().ok
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(made.run({"x": x}).outputs["out"], evaluate(program, {"x": x})["out"])
    assert evaluate(program, {"x": x})["out"].tolist() == [30, 31, 32, 33]


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"widths": np.arange(3)}, ["widths", "a NumPy array (3,) of int64", "tp.constant"]),
        ({"widths": [object()]}, ["widths", "a object"]),
        ({"widths": {1, 2}}, ["widths", "(set)"]),
        ({"widths": LOOP}, ["widths is nested more than 16 deep"]),
        ({"table": {(1, 2): 3}}, ["table"]),
        ({"table": {"f": tp.relu}}, ["table"]),
        ({"mode": "PLAIN"}, ["mode='PLAIN' is not one of PLAIN, DOUBLE"]),
        ({"pair": 3}, ["pair=3 is not a tuple"]),
        ({"scale": np.ones(1)}, ["scale", "a NumPy array"]),
        ({"scale": 1j}, ["scale"]),
        ({"scale": np.bool_(True)}, ["scale=True is not a number"]),
        ({"n": np.float32(4)}, ["extent n=4.0 is not"]),
        ({"n": np.arange(2)}, ["extent n=a NumPy array (2,)"]),
    ],
)
def test_what_a_plan_cannot_record_is_refused(values: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        net.bind(**{"n": 4, **values})
    for words in [*said, "net (test_settings.py:"]:
        assert words in str(caught.value)
    assert "np." not in str(caught.value)


def test_extents_may_be_numpys() -> None:
    assert type(dict(net.bind(n=np.int64(4)).bindings)["n"]) is int


def test_text_chooses_members_of_enums() -> None:
    assert dict(net.bind_text({"n": "4", "mode": "DOUBLE"}).bindings)["mode"] == "DOUBLE"
    with pytest.raises(tp.UsageError, match="mode=TRIPLE is not one of PLAIN, DOUBLE"):
        net.bind_text({"n": "4", "mode": "TRIPLE"})


def test_functions_are_no_settings() -> None:
    @tp.program
    def chosen(x: f32[Tensor, "n"], *, activation: Callable[..., Any] = np.tanh) -> Tensor:
        return x + 1

    with pytest.raises(tp.UsageError, match="the setting activation is the function tanh, which a plan cannot record"):
        chosen.bind(n=2)


@tp.program
def affine(
    x: f32[Tensor, "n d"],
    w: param[f32[Tensor, "d k"]],
    bias: param[f32[Tensor, "k"]] | None = None,
    gain: Optional[f32[Tensor, "h"]] = None,  # noqa: UP045
) -> Tensor:
    y = x @ w
    y = y if bias is None else y + bias
    return y if gain is None else tp.concat([y, gain[None, :]], axis=1)


def test_optional_tensors_are_switched() -> None:
    assert str(affine).startswith(
        "program affine(x: f32[n d], w: param f32[d k], bias: param f32[k] | None, gain: f32[h]"
    )
    without = affine.bind(n=1, d=3, k=4)
    assert [t.name for t in without.of_role("input", "param")] == ["x", "w"]
    assert dict(without.bindings) == {"n": 1, "d": 3, "k": 4, "bias": False, "gain": False}
    both = affine.bind(n=1, d=3, k=4, h=2, bias=True, gain=True)
    assert [(t.name, t.role) for t in both.of_role("input", "param")][2:] == [("bias", "param"), ("gain", "input")]
    assert affine.bind_text({"n": "1", "d": "3", "k": "4", "bias": "yes"}).tensor("bias").shape == (4,)
    with pytest.raises(tp.UsageError, match="needs   h"):
        affine.bind(n=1, d=3, k=4, gain=True)
    with pytest.raises(tp.UsageError, match=r"bind\(bias=True\) takes the tensor in"):
        affine.bind(n=1, d=3, k=4, bias=np.zeros(4))


def test_operations_have_optional_operands() -> None:
    @tp.op
    def scaled(x: f32[Tensor, "n k"], gain: f32[Tensor, "k"] | None = None) -> f32[Tensor, "n k"]:
        n, k = tp.indices("n k")
        return x[n, k] if gain is None else x[n, k] * gain[k]

    @tp.program
    def both(x: f32[Tensor, "n k"], g: f32[Tensor, "k"]) -> dict[str, Tensor]:
        return {"a": scaled(x), "b": scaled(x, g), "c": scaled(x, gain=None)}

    assert both.bind(n=2, k=3).outputs == ("a", "b", "c")

    @tp.program
    def wrong(x: f32[Tensor, "n k"]) -> Tensor:
        return scaled(x, x)

    with pytest.raises(tp.UsageError, match="gain has 2 axes, declared are 1"):
        wrong.bind(n=2, k=3)
