"""`tapestry show`: which file holds what, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from .conftest import SET

Tapestry = Callable[..., Any]


def test_a_plan_is_printed_where_no_file_is_asked_for(tapestry: Tapestry, plan_file: Path) -> None:
    ended = tapestry("show", plan_file)
    assert ended.code == 0
    assert ended.out.startswith("net on cpu-4, mesh 4\n")
    assert ended.err == ""


def test_all_files_at_once(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    html, svg, trace = (tmp_path / f"x.{kind}" for kind in ("html", "svg", "json"))
    ended = tapestry("show", plan_file, "--html", html, "--svg", svg, "--trace", trace, "--text")
    assert ended.code == 0
    assert ended.out == tapestry("show", plan_file).out
    assert ended.err == f"wrote {html}\nwrote {svg}\nwrote {trace}\n"
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]


def test_a_program_is_drawn_without_a_plan(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    assert "matmul" in tapestry("show", net, *SET).out
    ended = tapestry("show", net, *SET, "--svg", tmp_path / "net.svg", "--html", tmp_path / "net.html")
    assert (ended.code, ended.out) == (0, "")
    assert "f32[n=64, k=32]" in (tmp_path / "net.svg").read_text(encoding="utf-8")
    assert "<pre>program net(" in (tmp_path / "net.html").read_text(encoding="utf-8")


def test_a_program_has_no_trace(tapestry: Tapestry, net: str, tmp_path: Path) -> None:
    ended = tapestry("show", net, *SET, "--trace", tmp_path / "net.trace")
    assert ended.code == 2
    assert "no timeline" in ended.err
    assert not (tmp_path / "net.trace").exists()


def test_a_plan_takes_no_settings(tapestry: Tapestry, plan_file: Path) -> None:
    ended = tapestry("show", plan_file, "--set", "n=3")
    assert ended.code == 2
    assert "--set is for programs" in ended.err


def test_what_is_not_a_plan_is_refused(tapestry: Tapestry, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"format": "tapestry.plan/3"', encoding="utf-8")
    for path in (tmp_path / "bad.json", tmp_path / "none.json"):
        ended = tapestry("show", path, "--html", tmp_path / "x.html")
        assert ended.code == 2
        assert path.name in ended.err
    assert not (tmp_path / "x.html").exists()


def test_a_file_that_cannot_be_written_leaves_nothing(tapestry: Tapestry, plan_file: Path, tmp_path: Path) -> None:
    ended = tapestry("show", plan_file, "--svg", tmp_path / "none" / "x.svg")
    assert ended.code == 2
    assert "cannot be written" in ended.err
