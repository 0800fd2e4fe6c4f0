"""Names from elsewhere do not drive the reader's terminal, wherever they are printed."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.drawing.svg import clean
from tapestry.errors import TapestryError
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import Code, Verdict, check
from tapestry.planner.cli.talk import put, say
from tapestry.planner.format.codec import decode, encode
from tapestry.printable import printable


@tp.program
def double(x: f32[Tensor, "n"]) -> Tensor:
    return x * 2


CLEAR = "\x1b[2J\x1b[31m"
TURNED = "\u202egnp.exe"


@given(st.text())
def test_what_is_printed_is_seen_or_is_a_line_end(text: str) -> None:
    shown = printable(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert not any(unicodedata.bidirectional(c) in turning for c in shown)
    assert printable(shown) == shown
    shown.encode()


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_what_is_seen_already_stays_as_it_is(text: str) -> None:
    assert printable(text, line=True) == text


def test_errors_verdicts_and_drawings_escape() -> None:
    assert "\x1b" not in str(
        TapestryError(f"no {CLEAR}", where=CLEAR, sides={CLEAR: TURNED}, witness=CLEAR, hint=CLEAR)
    )
    verdict = str(Verdict(Code.MISSING, f"buffer {CLEAR}\nok: 4 ranks", tensor=TURNED))
    assert "\x1b" not in verdict
    assert "\n" not in verdict
    assert "\u202e" not in verdict
    assert clean(f"<{CLEAR}>") == "&lt;\\x1b[2J\\x1b[31m&gt;"


def test_the_command_line_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    say(CLEAR)
    put(f"{CLEAR}\n{TURNED}")
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\u202e" not in out


def test_a_plan_with_such_names_is_checked_and_shown_in_plain_text() -> None:
    """A buffer called so is still a buffer; what is printed of it is harmless."""
    from tapestry.planner.views.text import plan_text

    made = plan(double.bind(n=8), load_machine("cpu-4"), mesh=(2,)).document
    raw = json.loads(encode(made))
    raw["machine"]["name"] = CLEAR
    raw["program"]["meta"] = {"source": CLEAR}
    document = decode(json.dumps(raw))
    assert check(document).ok
    assert "\x1b" not in printable(plan_text(Plan(document)))
    text = replace(document, outputs={**document.outputs, CLEAR: TURNED})
    assert "\x1b" not in str(check(text))
