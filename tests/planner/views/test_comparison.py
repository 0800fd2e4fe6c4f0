"""The page of two plans: its figures are those of the text, and what it does in a browser when it is used."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tapestry.drawing.folding import anonymous, folded_name
from tapestry.planner import Plan, plan
from tapestry.planner.diff import figure_words, side_words
from tapestry.planner.views.comparison import diff_html

from .conftest import dense
from .test_explorer import needs_browser, used
from .test_pictures import Tags


@pytest.fixture(scope="module")
def page(gathered: Plan, folded: Plan) -> str:
    return diff_html(gathered, folded)


def cells(page: str, section: str) -> list[list[str]]:
    """The words of every row of a section's table, as a reader without scripts finds them."""
    _, _, rest = page.partition(f"<h2>{section}</h2>")
    rows = re.findall(r"<tr.*?</tr>", rest.partition("</section>")[0])
    return [
        [unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows
    ]


def test_it_is_whole_in_itself(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    assert not re.search(r"https?:|@import|<script src|<link", page.replace("http://www.w3.org/2000/svg", ""))
    assert "Made by tapestry diff." in page


def test_it_says_what_the_text_says(page: str, gathered: Plan, folded: Plan) -> None:
    found = gathered.diff(folded)
    text = str(found)
    figures = [row[:4] for row in cells(page, "Figures")[1:]]
    assert figures == [[figure.what, *figure_words(figure)] for figure in found.figures]
    assert all(word in text for row in figures for word in row)
    rows = cells(page, "Operations computed otherwise")[1:]
    assert [row[0] for row in rows[::2]] == [folded_name(change.ops) for change in found.operations]
    both = [side_words(side) for change in found.operations for side in (change.before, change.after)]
    assert [row[2:5] for row in rows] == both
    assert [row[1:3] for row in cells(page, "Tensors that lie otherwise")[1:]] == [
        [laid.before, laid.after] for laid in found.tensors
    ]


def test_repeated_layers_are_one_row(layered: Plan) -> None:
    few = plan(layered.program, "h200x8", mesh=(2,))
    names = [row[0] for row in cells(diff_html(layered, few), "Operations computed otherwise")[1:] if row[0]]
    found = layered.diff(few)
    assert names == [folded_name(change.ops) for change in found.operations]
    assert any(name == f"{anonymous(name.split()[0])} × 3" for name in names)


def whys(before: Plan, after: Plan) -> set[str]:
    return {row[5] for row in cells(diff_html(before, after), "Operations computed otherwise")[1:]}


def test_it_says_why(folded: Plan) -> None:
    """Cut otherwise by a pin, or of free will: then what it would take to cut it as before."""
    free = plan(dense.bind(n=64, k=96, m=32), "cpu-4", mesh=(4,))
    assert any(why.startswith("pinned: ") and "matmul" in why for why in whys(free, folded))
    assert any("as before, all else equal, cut k over mesh0: +" in why for why in whys(folded, free))


@needs_browser
def test_it_is_clicked(page: str, gathered: Plan, folded: Plan, tmp_path: Path) -> None:
    """A row of the table marks the operation in both timelines, and the timeline marks the row."""
    doing = """
        found.still = root().querySelector("[data-still]").hidden;
        const rows = () => [...document.querySelectorAll("tr.linked")].map((row) => row.dataset.names);
        document.querySelector("tr[data-names~=matmul]").click(); await tick();
        found.chosen = root().dataset.chosen; found.rows = rows();
        found.said = root().querySelector(".chosen").innerText;
        key("Escape"); await tick(); found.left = rows();
        const choice = root().querySelector("select"); found.lanes = [];
        for (const k of [0, 1, choice.options.length - 1]) {
            choice.value = k; choice.dispatchEvent(new Event("change")); await tick();
            found.lanes.push(Number(root().dataset.rows));
        }
        for (const button of root().querySelectorAll("button")) { button.click(); await tick(); }
        found.groups = [...new Set(data().rows.map((row) => row.g))];
    """
    found = used(page, tmp_path, doing)
    assert (found["errors"], found["still"], found["left"]) == ([], True, [])
    assert found["groups"] == ["first", "second"]
    assert found["chosen"].startswith("first ")
    assert found["rows"]
    assert all("matmul" in names.split() for names in found["rows"])
    [change] = [change for change in gathered.diff(folded).operations if "matmul" in change.ops]
    for side in (change.before, change.after):
        assert all(word in found["said"] for word in side_words(side))
    busiest, one, every = found["lanes"]
    assert every > busiest >= 2 <= one < every


@needs_browser
def test_it_fits_a_phone(page: str, tmp_path: Path) -> None:
    doing = "found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;"
    assert used(page, tmp_path, doing, width=500) == {"errors": [], "wide": 0}
