"""The table of verdicts in docs/check.md is what the checker prints: every code, with a plan broken by hand."""

from __future__ import annotations

from pathlib import Path

from tapestry.planner.check import Code, check

from .alterations import PROVOKED

DOC = Path(__file__).resolve().parents[3] / "docs" / "check.md"
OPEN, CLOSE = "<!-- verdicts -->\n", "<!-- /verdicts -->"
OURS = {Code.DISAGREEMENT: "(no plan: a fault planted in the first engine)"}


def rows() -> list[str]:
    """A row for each code: its meaning, the first plan that provokes it, the first verdict of that code."""
    found = ["| verdict | meaning | for example | printed |", "|---|---|---|---|"]
    for code in Code:
        if code in OURS:
            found.append(f"| `{code.value}` | {code.meaning} | {OURS[code]} | |")
            continue
        why, _, make = next(entry for entry in PROVOKED if entry[1] is code)
        printed = next(str(verdict) for verdict in check(make()).verdicts if verdict.code is code)
        found.append(f"| `{code.value}` | {code.meaning} | {why} | `{printed.replace('|', '¦')}` |")
    return found


def test_the_table_of_verdicts_is_what_is_printed() -> None:
    """Where this fails: the rows between the marks are to be those of `rows`."""
    text = DOC.read_text(encoding="utf-8")
    stated = text[text.index(OPEN) + len(OPEN) : text.index(CLOSE)]
    assert stated.splitlines() == rows()
