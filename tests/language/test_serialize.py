"""The JSON form of programs: exact both ways, deterministic, and refused with the place when it is malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, bf16, f32, param, state
from tapestry.program import Pin, Program
from tapestry.serialize import program_from_json, program_to_json
from tapestry.testing import programs


@tp.program
def net(
    x: bf16[Tensor, "t h e"],
    w: param[f32[Tensor, "e"]],
    seen: state[f32[Tensor, ""]],
    *,
    t: int = 6,
    scale: float = 0.5,
    causal: bool = True,
    label: str = "a",
) -> dict[str, Tensor]:
    """All that the format has to hold."""
    tp.shard(x, mesh0="t", kind="zigzag")
    y = tp.attention(x, x, x, causal=causal, scale=scale, name="attend")
    k = tp.constant([0.5, float("-inf"), float("nan"), 1e-300], "f64", name="odd")
    tp.update(seen, seen + tp.sum(w))
    z = tp.where(tp.pad(y, e=1, value=float("-inf"))[:, :, 1:-1] > 0, y, -1.5)
    return {"y": tp.replicate(z), "k": tp.sum(tp.cast(k, "int32") // 3) if label == "a" else k[:1]}


def bound() -> Program:
    return net.bind(h=2, e=4).with_pins(Pin("op", "attend.*", (("mesh0", "h"), ("mesh1", None))))


def test_a_program_with_everything_comes_back() -> None:
    program = bound()
    again = program_from_json(json.loads(json.dumps(program_to_json(program))))
    assert repr(again) == repr(program)  # NaN is not equal to itself
    assert again.meta == program.meta


def test_strict_json_and_sorted_keys_are_enough() -> None:
    text = json.dumps(program_to_json(bound()), sort_keys=True, allow_nan=False)
    assert repr(program_from_json(json.loads(text))) == repr(replace(bound(), meta=dict(sorted(bound().meta.items()))))
    assert msgspec.json.decode(msgspec.json.encode(program_to_json(bound()))) == json.loads(text)


def test_the_same_program_gives_the_same_text() -> None:
    assert json.dumps(program_to_json(bound())) == json.dumps(program_to_json(bound()))


@given(programs())
def test_generated_programs_come_back(program: Program) -> None:
    again = program_from_json(json.loads(json.dumps(program_to_json(program))))
    assert again == program
    assert repr(again.operations) == repr(program.operations)


def test_it_reads_as_algebra() -> None:
    @tp.program
    def small(x: f32[Tensor, "n c"], w: f32[Tensor, "c k"]) -> Tensor:
        return tp.relu(x @ w)

    found = program_to_json(small.bind(n=2, c=3, k=4))["operations"]
    for operation in found:
        assert operation.pop("source").startswith("test_serialize.py:")
    assert found == [
        {
            "name": "matmul", "dims": "n=2 k=4 c=3", "write": "matmul[n, k]", "monoid": "sum", "over": "c",
            "body": "x[n, c] * w[c, k]",
        },
        {"name": "relu", "dims": "n=2 k=4", "write": "out[n, k]", "body": "maximum(matmul[n, k], 0)"},
    ]  # fmt: skip


@cache
def written() -> str:
    return json.dumps(program_to_json(bound()))


def edited(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(written())
    edit(data)
    return data


def delete(data: dict[str, Any], *path: Any) -> None:
    *front, last = path
    for step in front:
        data = data[step]
    del data[last]


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def edit(data: Any) -> None:
        *front, last = path
        for step in front:
            data = data[step]
        data[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (put("tapestry.program/9", "format"), ["program.format", "tapestry.program/9", "tapestry.program/1"]),
        (lambda d: delete(d, "tensors"), ["program: tensors is missing"]),
        (put(3, "hidden"), ["program: unknown fields hidden"]),
        (put({}, "operations"), ["program.operations: {} is not of type list"]),
        (put(None, "name"), ["program.name: None is not of type str"]),
        (put([[1, 2]], "states"), ["program.states[0]: 1 is not of type str"]),
        (put([["n"]], "bindings"), ["program.bindings[0]", "is not a pair"]),
        (put("4", "tensors", 0, "shape", 1), ["program.tensors[0].shape[1]: '4' is not of type int"]),
        (put(True, "tensors", 0, "shape", 1), ["program.tensors[0].shape[1]: True is not of type int"]),
        (put("f8", "tensors", 0, "dtype"), ["unknown dtype 'f8'"]),
        (lambda d: delete(d, "tensors", 0, "role"), ["program.tensors[0]: role is missing"]),
        (put("t=6 h", "operations", 0, "dims"), ["program.operations[0].dims: 'h' is not a dimension"]),
        (put("t=-1", "operations", 0, "dims"), ["program.operations[0].dims: 't=-1' is not a dimension"]),
        (put("y[t, h", "operations", 0, "write"), ["program.operations[0].write", "expected"]),
        (put("(y[t] if 0 <= t else 0)", "operations", 0, "write"), ["a write has no guard"]),
        (put("x[t, h, e] +", "operations", -1, "body"), ["].body: expected a value"]),
        (put([7], "operations", 0, "where"), ["program.operations[0].where: 7 is not of type str"]),
        (put(["t <"], "operations", 0, "where"), ["program.operations[0].where: expected an index"]),
        (put(7, "operations", 0, "body"), ["program.operations[0].body: 7 is not of type str or dict"]),
        (put({"kernel": "attention"}, "operations", 0, "body"), ["program.operations[0].body: reads is missing"]),
        (put([["scale", {}]], "operations", 0, "body", "attributes"), ["attributes[0]", "is not of type"]),
        (put(["x[t, h, c] + 1"], "operations", 0, "body", "reads"), ["reads[0]", "is not a read"]),
        (put([["mesh0", 3]], "pins", 0, "cuts"), ["program.pins[0].cuts[0]: 3 is not of type str or NoneType"]),
        (put("diagonal", "pins", 0, "kind"), ["kinds", "block, zigzag"]),
        (put("everything", "pins", 0, "target"), ["names ops or tensors"]),
        (put(["nowhere"], "outputs"), ["the output nowhere is not a value"]),
        (put({"a": 1}, "meta"), ["program.meta.a: 1 is not of type str"]),
        (put({"float": "half"}, "tensors", 5, "data", 0), ["program.tensors[5].data[0]"]),
    ],
)
def test_malformed_programs_are_refused_with_the_place(
    edit: Callable[[dict[str, Any]], object], said: list[str]
) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_from_json(edited(edit))
    for words in said:
        assert words in str(caught.value)


@pytest.mark.parametrize("data", [None, [], "x", 3, {}])
def test_what_is_no_program_at_all(data: Any) -> None:
    with pytest.raises(tp.UsageError, match="program"):
        program_from_json(data)


def test_an_edit_that_closes_a_circle_is_refused_with_it() -> None:
    @tp.program
    def chain(x: f32[Tensor, "n"]) -> Tensor:
        a = tp.exp(x)
        b = tp.sin(a)
        return tp.cos(b)

    data = program_to_json(chain.bind(n=3))
    data["operations"][0]["body"] = "exp(b[n])"
    with pytest.raises(tp.ProgramError) as caught:
        program_from_json(data)
    assert "exp -> sin -> exp" in str(caught.value)


def test_constants_and_the_longest_extents() -> None:
    @tp.program
    def wide(x: f32[Tensor, "n"]) -> Tensor:
        return x[::3] + tp.constant(np.arange(4))[1]

    program = wide.bind(n=2**63 - 2)
    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**65), st.floats(), st.text(max_size=4), st.just("x[t]")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=3,
)


def paths(data: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [here] * bool(here) + [path for key, value in inner for path in paths(value, (*here, key))]


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_one_edit_gives_a_program_or_a_clear_refusal(data: st.DataObject) -> None:
    def edit(program: dict[str, Any]) -> None:
        path = data.draw(st.sampled_from(paths(program)))
        if data.draw(st.booleans()):
            put(data.draw(values), *path)(program)
        else:
            delete(program, *path)

    with suppress(tp.UsageError):
        program_from_json(edited(edit))


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_change_of_a_text_gives_a_program_or_a_clear_refusal(data: st.DataObject) -> None:
    def edit(program: dict[str, Any]) -> None:
        operation = data.draw(st.sampled_from(program["operations"]))
        key = data.draw(st.sampled_from([key for key, value in operation.items() if isinstance(value, str)]))
        text = operation[key]
        at = data.draw(st.integers(0, len(text)))
        new = data.draw(st.text("xt09[](),.+-*/%<=>& if~einf", max_size=3))
        operation[key] = text[:at] + new + text[at + data.draw(st.integers(0, 3)) :]

    with suppress(tp.UsageError):
        program_from_json(edited(edit))
