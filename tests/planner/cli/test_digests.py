"""Digests: in every plan that is written, of its program, its machine and all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import CheckFailed
from tapestry.planner import load_plan, plan
from tapestry.planner.format.codec import decode, encode, read
from tapestry.planner.format.digest import digests

Raw = dict[str, Any]


@tp.program
def net(x: f32[Tensor, "n"]) -> Tensor:
    return tp.relu(x)


@pytest.fixture(scope="module")
def written() -> bytes:
    return plan(net.bind(n=8), "cpu-4", mesh=(4,), time_limit=600).to_json()


def test_a_plan_states_them_and_is_read_with_them(written: bytes) -> None:
    document, changed = read(written)
    assert json.loads(written)["digests"] == digests(document)
    assert sorted(digests(document)) == ["machine", "plan", "program"]
    assert changed == ()


def test_equal_parts_have_equal_digests(written: bytes) -> None:
    longer = digests(plan(net.bind(n=12), "cpu-4", mesh=(4,), time_limit=600).document)
    ours = digests(decode(written))
    assert {part for part in ours if ours[part] == longer[part]} == {"machine"}


CHANGES: dict[str, tuple[Callable[[Raw], None], list[str]]] = {
    "machine": (lambda raw: raw["machine"].update(name="other"), ["machine", "plan"]),
    "program": (lambda raw: raw["program"].update(name="other"), ["program", "plan"]),
    "task": (lambda raw: raw["claims"].update(seed=7), ["plan"]),
    "digest": (lambda raw: raw["digests"].update(machine="0" * 64), ["machine"]),
    "no object": (lambda raw: raw.update(digests=3), ["program", "machine", "plan"]),
    "half a letter": (lambda raw: raw["program"].update(name="\ud800"), ["program", "plan"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_named(written: bytes, name: str, tmp_path: Path, tapestry: Callable[..., Any]) -> None:
    change, parts = CHANGES[name]
    raw = json.loads(written)
    change(raw)
    (tmp_path / "plan.json").write_text(json.dumps(raw), encoding="utf-8")
    assert read(json.dumps(raw))[1] == tuple(parts)
    with pytest.raises(
        CheckFailed, match=rf"plan\.json: the plan was changed after it was written: {', '.join(parts)}"
    ):
        load_plan(tmp_path / "plan.json")
    ended = tapestry("check", tmp_path / "plan.json")
    assert ended.code == 1
    assert ended.out.startswith(f"digest: changed after it was written: {', '.join(parts)}\n")
    found = json.loads(tapestry("check", tmp_path / "plan.json", "--json").out)
    assert (found["ok"], found["changed"]) == (False, parts)
    for command in (("run", "--random", 0), ("simulate",), ("show", "--text")):
        assert tapestry(command[0], tmp_path / "plan.json", *command[1:]).code == 1


def test_without_digests_a_plan_stands_for_itself(written: bytes, tmp_path: Path) -> None:
    raw = json.loads(written)
    del raw["digests"]
    (tmp_path / "plan.json").write_text(json.dumps(raw), encoding="utf-8")
    assert encode(load_plan(tmp_path / "plan.json").document) == written
