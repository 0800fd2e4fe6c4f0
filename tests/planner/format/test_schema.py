"""The JSON schema: every plan file is of it, and a file that cannot be read is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.planner.format.codec import decode
from tapestry.planner.format.schema import plan_schema
from tapestry.testing import plans

from ...files import example

SCHEMA = jsonschema.Draft202012Validator(plan_schema())


def said_of(data: Any) -> list[str]:
    return [error.message for error in SCHEMA.iter_errors(data)]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(plan_schema())


@settings(max_examples=30, deadline=None)
@given(plans())
def test_plans_are_of_it(drawn: Plan) -> None:
    assert said_of(json.loads(drawn.to_json())) == []


def test_folded_plans_are_of_it() -> None:
    program = example("llama").forward.bind(layers=6, tokens=16, d=16, heads=4, kv_heads=2, ffn=16)
    written = plan(program, "cpu-4", mesh=(1,)).to_json()
    assert b'"repeat"' in written
    assert said_of(json.loads(written)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("tasks"),
        lambda data: data.update(format="tapestry.plan/2"),
        lambda data: data.update(more=1),
        lambda data: data["tasks"][0].update(id="first"),
        lambda data: data["tasks"][0].update({"do": "nothing"}),
        lambda data: data["buffers"].append({"repeat": 0, "items": [1], "step": [[]]}),
        lambda data: data["claims"].pop("seed"),
    ],
)
def test_what_cannot_be_read_is_not(change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(plan(example("mlp").forward.bind(n=8, d=8, hidden=8), "cpu-4", mesh=(2,)).to_json())
    assert decode(json.dumps(data)) is not None
    change(data)
    assert said_of(data)
    with pytest.raises(UsageError):
        decode(json.dumps(data))
