"""The moving part of a page: what it is given, and what it does in a browser when it is used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapestry.planner import Plan
from tapestry.planner.views.critical import critical_path, shares
from tapestry.planner.views.explorer import explorer_data
from tapestry.planner.views.html import plan_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def test_rows_hold_every_event(rows: Plan) -> None:
    run = rows.run({"image": np.ones((427, 64), np.float32)})
    data = explorer_data(rows, run)
    counts = {
        group: sum(len(row["e"]) // 3 for row in data["rows"] if row["g"] == group)
        for group in ("predicted", "measured")
    }
    assert counts == {"predicted": len(rows.simulate().events), "measured": len(run.events)}
    assert data["end"] >= max(row["e"][-2] + row["e"][-1] for row in data["rows"]) - 0.01


def test_who_sends_what_adds_up_to_the_traffic(rows: Plan, tiled: Plan) -> None:
    for plan in (rows, tiled):
        data = explorer_data(plan)
        moved = sum(size for number in data["of"].values() for _, _, size in data["moves"][number])
        assert moved == plan.document.traffic.bytes_total > 0


def test_memory_ends_where_the_run_does_and_stays_below_the_peak(rows: Plan) -> None:
    peak = {int(rank): tiers["host"] for rank, tiers in rows.document.peak_bytes.items()}
    for one in explorer_data(rows)["memory"]:
        assert min(kept + other for _, kept, other in one["p"]) >= 0
        assert max(kept + other for _, kept, other in one["p"]) <= peak[one["r"]] <= one["c"]


def test_the_critical_path_is_as_long_as_the_run(rows: Plan, tiled: Plan) -> None:
    """Every task of it begins when the one before ends; together they take the makespan."""
    for plan in (rows, tiled):
        timeline = plan.simulate()
        path = critical_path(plan.document, timeline)
        assert path[0].start_s == 0
        assert path[-1].end_s == timeline.makespan_s
        assert all(one.end_s == other.start_s for one, other in pairwise(path))
        assert sum(seconds for _, seconds in shares(plan.document, path)) == pytest.approx(timeline.makespan_s)


def used(page: str, tmp_path: Path, doing: str, width: int = 1200) -> dict[str, Any]:
    """What a script leaves in `found` after the page is loaded (see using.js), with the errors that were said."""
    harness = Path(__file__).with_name("using.js").read_text(encoding="utf-8")
    script = f"<script>async function use() {{ await tick(); {doing} }}\n{harness}</script>"
    file = tmp_path / "page.html"
    file.write_text(page.replace("<head>", f"<head>{script}", 1), encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},1000", "--virtual-time-budget=8000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    [text] = re.findall(r'data-result="([^"]*)"', done.stdout)
    result: dict[str, Any] = json.loads(unescape(text))
    return result


@needs_browser
def test_it_is_searched(layered: Plan, tmp_path: Path) -> None:
    """Enter and n go from one task that is found to the next, and say what it is; Escape leaves it."""
    doing = """
        const box = root().querySelector("input");
        box.value = "attention"; box.dispatchEvent(new Event("input")); key("Enter", box); await tick();
        found.first = root().dataset.chosen; found.said = root().querySelector(".chosen").innerText;
        found.linked = document.querySelectorAll(".linked").length;
        key("n"); await tick(); found.second = root().dataset.chosen;
        key("Escape"); await tick(); found.left = root().dataset.chosen;
    """
    found = used(plan_html(layered), tmp_path, doing)
    assert (found["errors"], found["left"]) == ([], "")
    assert "attention" in found["said"]
    assert "" != found["first"] != found["second"] != ""
    assert found["linked"] > 0


@needs_browser
def test_it_is_zoomed_and_clicked(rows: Plan, tmp_path: Path) -> None:
    doing = """
        found.still = root().querySelector("[data-still]").hidden;
        key("+"); await tick(); found.closer = root().dataset.view;
        key("0"); await tick(); found.whole = root().dataset.view;
        const row = data().rows[0];
        pointer("pointermove", ...middle(row)); await tick(); found.tip = root().querySelector(".tip").innerText;
        pointer("pointerdown", ...middle(row)); pointer("pointerup", ...middle(row)); await tick();
        found.clicked = root().dataset.chosen; found.wanted = `${row.e[0]}/${row.r}`;
        for (const button of root().querySelectorAll("button")) { button.click(); await tick(); }
        found.path = root().querySelector(".path").children.length;
    """
    found = used(plan_html(rows), tmp_path, doing)
    assert (found["errors"], found["still"]) == ([], True)
    whole, closer = (list(map(float, found[view].split())) for view in ("whole", "closer"))
    assert closer[1] - closer[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert found["clicked"] == found["wanted"]
    assert f"task: {found['wanted'].split('/')[0]}: " in found["tip"]
    assert found["path"] > 0


@needs_browser
def test_a_part_of_another_view_is_clicked(rows: Plan, tmp_path: Path) -> None:
    """The map of a tensor, which stands after the script in the page, chooses what computes the tensor."""
    doing = """
        const card = [...document.querySelectorAll("div.card")].at(-1);
        found.names = card.dataset.names.split(" ");
        card.querySelector("svg").dispatchEvent(new MouseEvent("click", { bubbles: true })); await tick();
        found.said = root().querySelector(".chosen").innerText; found.linked = card.classList.contains("linked");
    """
    found = used(plan_html(rows), tmp_path, doing)
    assert found["errors"] == []
    assert found["linked"]
    assert any(name in found["said"] for name in found["names"])


@needs_browser
def test_it_fits_a_phone(rows: Plan, tmp_path: Path) -> None:
    run = rows.run({"image": np.ones((427, 64), np.float32)})
    doing = """
        found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        found.groups = new Set(data().rows.map((row) => row.g)).size;
    """
    assert used(plan_html(rows, run=run), tmp_path, doing, width=500) == {"errors": [], "wide": 0, "groups": 2}


def test_hostile_names_stay_data(rows: Plan) -> None:
    """Nothing in the data can end the script element that holds it."""
    page = plan_html(rows)
    data = page.split('id="explorer-data">', 1)[1].split("</script>", 1)[0]
    assert "<" not in data
    assert json.loads(data)["rows"]


@needs_browser
def test_a_notebook_shows_it_in_a_frame(rows: Plan, tmp_path: Path) -> None:
    """Inside another page it moves as it does alone, and meets neither the styles nor the scripts around it."""
    frame = rows.page()._repr_html_()
    doing = """
        const inner = document.querySelector("iframe").contentDocument, box = inner.querySelector("input");
        box.value = "smooth"; box.dispatchEvent(new Event("input"));
        box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true})); await tick();
        found.linked = inner.querySelectorAll(".linked").length;
        found.outside = document.querySelectorAll(".linked, svg").length;
    """
    found = used(f"<html><head></head><body>{frame}</body></html>", tmp_path, doing)
    assert (found["errors"], found["outside"]) == ([], 0)
    assert found["linked"] > 0


def test_a_page_is_the_one_that_is_written(rows: Plan, tmp_path: Path) -> None:
    page = rows.page()
    page.save(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == page.html == plan_html(rows)
    assert unescape(page._repr_html_()).count(page.html) == 1
