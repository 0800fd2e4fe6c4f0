"""Plans as bytes: what is written is read back; what is not a whole plan of this version is refused with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.planner import plan
from tapestry.planner.format import FORMAT, Document, Resolved
from tapestry.planner.format.codec import decode, encode
from tapestry.planner.machine import load_machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.testing import partitions, programs


@tp.program
def deep(x: f32[Tensor, "n c"], *, layers: int = 6) -> Tensor:
    """Layers that repeat, and a window that fills with -inf."""
    for k in range(layers):
        with tp.name(f"layers.{k}"):
            w = tp.param("w", "f32", (x.shape[1], x.shape[1]))
            x = tp.relu(tp.einsum("nc,cd->nd", x, w)) * 0.5
    return tp.pad(x, (1, 0), value=float("-inf"))


def program(layers: int = 6) -> Program:
    return deep.bind(n=16, c=8, layers=layers)


@cache
def written(layers: int = 6) -> bytes:
    return plan(program(layers), "cpu-4", mesh=(4,)).to_json()


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(written()), **fields}).encode()


def refused(data: bytes | str) -> str:
    """The message of a plan that cannot be read; it starts with the place."""
    with pytest.raises(UsageError) as failed:
        decode(data, "my.json")
    assert str(failed.value).startswith("my.json: ")
    return str(failed.value)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_plans_survive(data: st.DataObject) -> None:
    program = data.draw(programs())
    ranks = data.draw(st.integers(1, 5))
    document = plan_partitions(program, load_machine("h200x8"), data.draw(partitions(program, ranks))).document
    again = decode(encode(document))
    assert again == document
    assert Resolved(again).program == program
    assert encode(again) == encode(document)


def test_text_is_read_like_bytes() -> None:
    assert decode(written().decode()) == decode(written())


def test_infinite_fills_survive() -> None:
    assert Resolved(decode(written())).program == program()


def test_layers_cost_little() -> None:
    """The tasks of 24 layers are no longer on disk than those of 12: layers are written once."""
    tasks = [len(json.dumps(json.loads(written(n))["tasks"])) for n in (12, 24)]
    assert tasks[1] <= tasks[0] + 32


def test_a_plan_cut_short_anywhere_is_refused() -> None:
    whole = written()
    for stop in {*range(0, len(whole) - 2, 97), *range(40), len(whole) - 3}:
        assert "not a complete JSON document" in refused(whole[:stop])


def test_bytes_that_are_no_text_are_refused() -> None:
    assert "not a complete JSON document" in refused(b"\xff\xfe" + written())


@pytest.mark.parametrize("text", ["[]", "3", "null", '"plan"', "{}", '{"program": {}}'])
def test_other_json_is_refused(text: str) -> None:
    assert "not a tapestry plan" in refused(text)


@pytest.mark.parametrize("version", ["tapestry.plan/2", "tapestry.plan/4", "", 1, None, ["tapestry.plan/3"]])
def test_other_versions_are_refused(version: object) -> None:
    message = refused(changed(format=version))
    assert "another version" in message
    assert repr(version) in message
    assert FORMAT in message


def test_nesting_without_end_is_refused() -> None:
    assert "not a complete JSON document" in refused("[" * 100_000)
    assert "not a complete JSON document" in refused('{"format": "tapestry.plan/3", "tasks": ' + "[" * 100_000)


def task(change: Callable[[dict[str, Any]], None]) -> bytes:
    """The plan with its tasks written out and one of them changed."""
    data = json.loads(written())
    data["tasks"] = msgspec.to_builtins(decode(written()).tasks)
    change(data["tasks"][1])
    return json.dumps(data).encode()


# A change by hand, and what the message must name.
EDITS: list[tuple[Callable[[], bytes], str]] = [
    (lambda: changed(colour="red"), r"unknown field `colour`"),
    (lambda: changed(mesh="4"), r"`\$\.mesh`"),
    (lambda: changed(mesh=[4.5]), r"`\$\.mesh\[0\]`"),
    (lambda: changed(layouts={"L0": 1}), r"`\$\.layouts\[\.\.\.\]`"),
    (lambda: changed(buffers={"a": 1}), r"`\$\.buffers`"),
    (lambda: changed(buffers=[{"name": "a"}]), r"missing required field `tensor`.*`\$\.buffers\[0\]`"),
    (lambda: changed(tasks=[{"do": "dance"}]), r"Invalid value 'dance'.*`\$\.tasks\[0\]\.do`"),
    (lambda: changed(tasks=[[]]), r"`\$\.tasks\[0\]`"),
    (lambda: changed(tasks=[{"repeat": 2, "items": []}]), r"repeated stretch"),
    (lambda: changed(buffers=[{"repeat": 10**15, "items": [{"a": 1}], "step": [[1]]}]), r"expand to more than"),
    (lambda: changed(claims={}), r"`\$\.claims`"),
    (lambda: changed(program=[]), r"`\$\.program`"),
    (lambda: task(lambda t: t.update(id="1")), r"`\$\.tasks\[1\]\.id`"),
    (lambda: task(lambda t: t.update(when=1)), r"unknown field `when`.*`\$\.tasks\[1\]`"),
    (lambda: task(lambda t: t.pop("lane")), r"missing required field `lane`.*`\$\.tasks\[1\]`"),
    (lambda: task(lambda t: t.update(waits=[0.5])), r"`\$\.tasks\[1\]\.waits\[0\]`"),
]


@pytest.mark.parametrize(("data", "named"), EDITS, ids=[named for _, named in EDITS])
def test_edits_by_hand_are_refused_by_field(data: Callable[[], bytes], named: str) -> None:
    message = refused(data())
    assert "malformed plan" in message
    assert re.search(named, message), message


@pytest.mark.parametrize(
    "field", [name for name in Document.__struct_fields__ if name not in ("format", "senders", "weights", "workspaces")]
)
def test_a_missing_field_is_named(field: str) -> None:
    data = json.loads(written())
    del data[field]
    assert f"`{field}`" in refused(json.dumps(data))
