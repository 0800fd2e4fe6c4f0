"""`tapestry diff`: two plan files, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import plan


@tp.program
def scaled(x: f32[Tensor, "n d"]) -> Tensor:
    return tp.relu(x * 2.0)


def test_two_files(tapestry: Callable[..., Any], tmp_path: Path) -> None:
    one = plan(scaled.bind(n=4096, d=4096), "h200x8", mesh=(2,))
    two = plan(scaled.bind(n=4096, d=4096), "h200x8", mesh=(8,))
    files = tmp_path / "a.json", tmp_path / "b.json"
    one.save(files[0])
    two.save(files[1])
    ended = tapestry("diff", *files)
    assert (ended.code, ended.out) == (0, f"{one.diff(two)}\n")
    assert "mesh     2 -> 8" in ended.out
    assert json.loads(tapestry("diff", *files, "--json").out) == json.loads(json.dumps(one.diff(two).to_json()))


def test_a_file_that_is_not_there(tapestry: Callable[..., Any], tmp_path: Path) -> None:
    ended = tapestry("diff", tmp_path / "a.json", tmp_path / "b.json")
    assert ended.code == 2
    assert "a.json: cannot be read" in ended.err


def test_a_page_is_written_once_and_replaced_where_that_is_said(tapestry: Callable[..., Any], tmp_path: Path) -> None:
    made, page = tmp_path / "a.json", tmp_path / "both.html"
    plan(scaled.bind(n=4096, d=4096), "h200x8", mesh=(2,)).save(made)
    ended = tapestry("diff", made, made, "--html", page)
    assert (ended.code, ended.out, ended.err) == (0, "", f"wrote {page}\n")
    assert "The plans are the same." in page.read_text(encoding="utf-8")
    page.write_text("mine", encoding="utf-8")
    refused = tapestry("diff", made, made, "--html", page)
    assert (refused.code, page.read_text(encoding="utf-8")) == (2, "mine")
    assert "--force" in refused.err
    ended = tapestry("diff", made, made, "--html", page, "--force", "--json")
    assert json.loads(ended.out)["same"]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_place_where_nothing_can_be_written_is_noticed_before_the_plans_are_read(
    tapestry: Callable[..., Any], tmp_path: Path
) -> None:
    ended = tapestry("diff", tmp_path / "a.json", tmp_path / "b.json", "--html", tmp_path / "nowhere" / "x.html")
    assert ended.code == 2
    assert "nowhere" in ended.err
    assert "a.json" not in ended.err
