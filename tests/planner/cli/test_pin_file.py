"""Pins in TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry.errors import UsageError
from tapestry.planner.cli.pin_file import load_pins
from tapestry.program import Pin


def pins_of(tmp_path: Path, text: str) -> tuple[Pin, ...]:
    path = tmp_path / "pins.toml"
    path.write_text(text, encoding="utf-8")
    return load_pins(path)


def test_pins_in_order(tmp_path: Path) -> None:
    text = """
        [[pin]]
        op = "conv*"
        cut = { data = "n" }
        whole = ["model"]

        [[pin]]
        tensor = "tokens"
        cut = { data = "t" }
        kind = "zigzag"

        [[pin]]
        tensor = "w?"
        whole = ["data", "model"]
    """
    assert pins_of(tmp_path, text) == (
        Pin("op", "conv*", (("data", "n"), ("model", None))),
        Pin("tensor", "tokens", (("data", "t"),), "zigzag"),
        Pin("tensor", "w?", (("data", None), ("model", None))),
    )


def test_what_is_forbidden_comes_after_the_pins(tmp_path: Path) -> None:
    text = """
        [[forbid]]
        op = "layers.*"
        cut = { mesh0 = "f" }
        whole = ["mesh1"]

        [[pin]]
        op = "o"
        cut = { mesh0 = "t" }
    """
    assert pins_of(tmp_path, text) == (
        Pin("op", "o", (("mesh0", "t"),)),
        Pin("op", "layers.*", (("mesh0", "f"), ("mesh1", None)), forbid=True),
    )


def test_an_empty_file_pins_nothing(tmp_path: Path) -> None:
    assert pins_of(tmp_path, "") == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[pin]]", ["[pin.0]", "either op or tensor", "nothing"]),
        ("[[pin]]\nop = 'a'\ntensor = 'b'", ["[pin.0]", "either op or tensor", "both"]),
        ("[[pin]]\nop = 3", ["[pin.0]", "'op'", "text"]),
        ("[[pin]]\nop = 'a'\ncut = { mesh0 = 3 }", ["[pin.0]", "'cut'", "a table of texts"]),
        ("[[pin]]\nop = 'a'\ncut = 'n'", ["[pin.0]", "'cut'"]),
        ("[[pin]]\nop = 'a'\nwhole = 'mesh0'", ["[pin.0]", "'whole'", "a list of texts"]),
        ("[[pin]]\nop = 'a'\ncut = { m = 'n' }\nwhole = ['m']", ["[pin.0]", "'whole'", "`cut` does not name"]),
        ("[[pin]]\nop = 'a'\nkind = 'diagonal'", ["[pin.0]", "'kind'", "'block', 'zigzag'"]),
        (
            "[[pin]]\nop = 'a'\nwhole = ['m']\n[[pin]]\nop = 'b'\ncuts = {}",
            ["[pin.1]", "unknown key 'cuts'", "did you mean 'cut'"],
        ),
        ("[[pin]]\nop = 'a'", ["[pin.0]", "'cut'", "what is cut"]),
        ("[[forbid]]\nop = 'a'", ["[forbid.0]", "'cut'", "what is cut"]),
        ("[[forbid]]\nop = 'a'\ncut = { m = 'n' }\nkind = 'zigzag'", ["[forbid.0]", "'kind'", "of any kind"]),
        ("[[pins]]\nop = 'a'", ["unknown key 'pins'", "did you mean 'pin'"]),
        ("[pin]\nop = 'a'", ["'pin'", "[[pin]]"]),
        ("[[pin]", ["not TOML"]),
    ],
)
def test_files_that_pin_nothing_sensible(tmp_path: Path, text: str, named: list[str]) -> None:
    with pytest.raises(UsageError) as failed:
        pins_of(tmp_path, text)
    message = str(failed.value)
    assert [part for part in ["pins.toml", *named] if part not in message] == []
