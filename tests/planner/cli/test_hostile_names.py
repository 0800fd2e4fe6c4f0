"""Names that would drive a terminal or a page: whatever a command prints or draws of them is harmless."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tapestry = Callable[..., Any]

NET = """
import tapestry as tp
from tapestry import Tensor, f32, param

@tp.program
def victim(victim_x: f32[Tensor, "victim_n victim_m"], victim_w: param[f32[Tensor, "victim_m victim_k"]]) -> Tensor:
    victim_y = tp.relu(victim_x @ victim_w)
    return victim_y
"""
HOSTILE = {
    "a terminal": "\x1b[2J\x1b]0;owned\x07\r\x9b31m\b",
    "the direction": "\u202egnp.\u2066exe\u200b",
    "a page": "</text></svg></script><script>alert(1)</script>",
    "lines": "ok: 4 ranks\nok\u2028ok\x85ok",
}
COMMANDS: list[tuple[str, ...]] = [
    ("check",),
    ("check", "--json"),
    ("simulate",),
    ("simulate", "--json"),
    ("explain",),
    ("explain", "nothing"),
    ("explain", "--json"),
    ("diff", "other.json"),
    ("diff", "other.json", "--json"),
    ("diff", "other.json", "--html", "both.html"),
    ("show", "--text"),
    ("show", "--html", "page.html"),
    ("show", "--svg", "picture.svg"),
    ("show", "--trace", "trace.json"),
    ("run", "--random", "0", "--verify"),
    ("run", "--random", "0", "--json"),
    ("run", "--random", "0", "--outputs", "out.safetensors"),
    ("run", "--random", "0", "--device", "nothing"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan whose names begin alike."""
    from tapestry.planner import plan
    from tapestry.planner.cli.program_file import load_program

    folder = tmp_path_factory.mktemp("victim")
    (folder / "net.py").write_text(NET, encoding="utf-8")
    sizes = {"victim_n": "8", "victim_m": "6", "victim_k": "4"}
    made = plan(load_program(f"{folder / 'net.py'}:victim", sizes), "cpu-4", mesh=(4,), time_limit=5)
    raw = json.loads(made.to_json())
    del raw["digests"]
    return json.dumps(raw)


def renamed(raw: dict[str, Any], evil: str) -> dict[str, Any]:
    """The plan with everything called ``evil`` that may be called anything: what stands in no index expression."""
    raw["machine"]["name"] = raw["machine"]["device"]["name"] = f"machine {evil}"
    raw["program"].update(name=evil, meta={"source": evil})
    for op in raw["program"]["operations"]:
        op.update(source=f"{evil}:1", group=evil)
    raw["mesh_axes"] = [evil]
    for sharding in raw["shardings"].values():
        sharding["partition"] = dict.fromkeys(sharding["partition"], evil)
    raw["layouts"] = {evil + name: layout for name, layout in raw["layouts"].items()}
    for buffer in raw["buffers"]:
        buffer.update({key: evil + buffer[key] for key in ("name", "layout", "initial") if buffer[key]})
    for task in raw["tasks"]:
        names = ("shards", "write", "source", "target", "have", "need", "over")
        task.update({key: evil + task[key] for key in names if task.get(key)})
        if "reads" in task:
            task["reads"] = [evil + name for name in task["reads"]]
    raw["outputs"] = {name: evil + buffer for name, buffer in raw["outputs"].items()}
    return raw


def acts(text: str) -> list[str]:
    """Characters that do something rather than being seen; line ends and tabs are the command's own."""
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    unseen = ("Cc", "Cs", "Zl", "Zp")
    return [
        repr(c)
        for c in text
        if c not in "\n\t" and (unicodedata.category(c) in unseen or unicodedata.bidirectional(c) in turning)
    ]


@pytest.mark.parametrize("free", [True, False], ids=["names that may be anything", "all names"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_a_command_prints_or_draws_acts(
    tapestry: Tapestry, written: str, kind: str, free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evil = HOSTILE[kind]
    text = json.dumps(renamed(json.loads(written), evil)) if free else written.replace("victim", json.dumps(evil)[1:-1])
    Path("plan.json").write_text(text, encoding="utf-8")
    Path("other.json").write_text(written, encoding="utf-8")
    shown = 0
    for command, *options in COMMANDS:
        ended = tapestry(
            command, "plan.json", *options, *(["--force"] if command in ("run", "show") or "--html" in options else [])
        )
        assert acts(ended.out + ended.err) == [], (command, options)
        assert "internal:" not in ended.err
        shown += ended.code == 0
    for file in (Path("page.html"), Path("both.html"), Path("picture.svg"), Path("trace.json")):
        drawn = file.read_text(encoding="utf-8") if file.exists() else ""
        assert acts(drawn) == [], file
        assert "<script>alert" not in drawn or file.suffix == ".json"
    assert shown == (len(COMMANDS) - 2 if free else 0)  # where it is no name at all, the plan is refused


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_on_the_command_line_are_said_back_harmlessly(tapestry: Tapestry, kind: str, tmp_path: Path) -> None:
    evil = HOSTILE[kind].replace("/", "|")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    net = f"{tmp_path / 'net.py'}:victim"
    for arguments in (
        ("check", evil),
        ("plan", f"{evil}.py:{evil}", "--machine", "cpu-4", "--mesh", "4"),
        ("plan", f"{tmp_path / 'net.py'}:{evil}", "--machine", "cpu-4", "--mesh", "4"),
        ("plan", net, "--machine", evil),
        ("plan", net, "--machine", "cpu-4", "--mesh", "4", "--set", f"victim_n={evil}"),
        ("plan", net, "--machine", "cpu-4", "--mesh", evil),
        ("plan", net, "--machine", "cpu-4", "--mesh", "4", "--memory", f"host={evil}"),
        ("plan", net, "--machine", "cpu-4", "--mesh", "4", "-o", tmp_path / evil / "plan.json"),
        ("machine", "show", evil),
        ("show", net, "--set", f"a={evil}"),
    ):
        ended = tapestry(*arguments)
        assert ended.code == 2, arguments
        assert acts(ended.out + ended.err) == [], arguments
