"""Shard maps, timelines, memory and pages: what must be visible is there, in well-formed files that need no other."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tapestry.errors import UsageError
from tapestry.planner import Plan
from tapestry.planner.format.events import Event
from tapestry.planner.views.html import plan_html, plan_svg
from tapestry.planner.views.memory import lives, memory_drawing
from tapestry.planner.views.peers import measured_peers, predicted_peers
from tapestry.planner.views.picture import background, png
from tapestry.planner.views.shardmap import THINNEST, shard_drawing
from tapestry.planner.views.shards import shard_maps
from tapestry.planner.views.text import plan_text
from tapestry.planner.views.timeline import WIDTH, Kinds, timeline_drawing

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def hatched(root: ET.Element) -> list[ET.Element]:
    return [node for node in root.iter(f"{SVG}rect") if (node.get("fill") or "").startswith("url(#hatch")]


def texts(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def drawn(plan: Plan, name: str) -> ET.Element:
    found = next(m for m in shard_maps(plan.resolved) if m.names[0] == name)
    return parsed(shard_drawing(found).alone())


def test_a_halo_of_one_row_in_427_is_visible(rows: Plan) -> None:
    root = drawn(rows, "first")
    whole = [node for node in hatched(root) if node.get("stroke")]
    assert len(whole) == 6  # one at the upper and lower border of each rank, the outermost two left out
    assert all(float(node.get("height", 0)) >= THINNEST for node in whole)
    assert "magnified: halo 1 row" in texts(root)
    assert any(float(node.get("height", 0)) > 8 for node in hatched(root) if not node.get("stroke"))


def test_halos_on_two_sides_meet_in_the_inset(tiled: Plan) -> None:
    found = texts(drawn(tiled, "first"))
    assert "magnified: halo 1 row" in found
    assert "y 44:56, x 34:46" in found  # around the corner at y 50, x 40
    assert "4 shards; halo 1 row on either side (along y) and 1 column on either side (along x)" in found


def test_hatchings_are_defined_where_they_are_used(rows: Plan, gathered: Plan) -> None:
    for plan in (rows, gathered):
        root = parsed(plan_svg(plan))
        used = {(node.get("fill") or "")[5:-1] for node in hatched(root)}
        defined = [node.get("id") for node in root.iter(f"{SVG}pattern")]
        assert used
        assert used <= set(defined)
        assert len(defined) == len(set(defined))


def test_gathered_tensors_are_shown_rank_by_rank(gathered: Plan) -> None:
    assert {"rank 0", "rank 1", "rank 2", "rank 3"} <= set(texts(drawn(gathered, "w")))


def test_copies_and_contributions_are_named(whole: Plan, folded: Plan) -> None:
    assert "×4 copies" in texts(drawn(whole, "w"))
    assert "sum of 4 parts" in texts(drawn(folded, "matmul"))


def test_a_shard_lies_where_its_elements_are(rows: Plan) -> None:
    root = drawn(rows, "image")
    shards = [node for node in root.iter(f"{SVG}rect") if node.get("fill-opacity") == "0.5"]
    heights = [float(node.get("height", 0)) for node in shards]
    total = sum(heights)
    assert [round(height / total * 427) for height in heights] == [106, 107, 107, 107]


def test_the_timeline_has_a_row_for_every_lane_and_a_bar_for_every_task(rows: Plan) -> None:
    timeline = rows.simulate()
    root = parsed(timeline_drawing(Kinds.of(rows.resolved), predicted_peers(timeline)).alone())
    bars = [
        node
        for node in root.iter(f"{SVG}g")
        if node.find(f"{SVG}rect") is not None and node.find(f"{SVG}title") is not None
    ]
    assert len(bars) == len(timeline.events)
    assert texts(root).count("compute") == texts(root).count("comm") == 4


@pytest.mark.parametrize("factor", [0.25, 2, 40])
def test_predicted_and_measured_share_a_scale_and_say_their_ratio(rows: Plan, factor: float) -> None:
    kinds, predicted = Kinds.of(rows.resolved), rows.simulate().events
    measured = [Event(e.rank, e.lane, e.task, e.name, factor * e.start_s, factor * e.end_s) for e in predicted]
    root = parsed(timeline_drawing(kinds, measured_peers(predicted), measured_peers(measured)).alone())
    headings = [text for text in texts(root) if text.startswith(("predicted", "measured"))]
    assert headings[1].endswith(f"{factor:g} times the prediction")
    ends = [float(rect.get("x", 0)) + float(rect.get("width", 0)) for rect in root.iter(f"{SVG}rect")]
    assert max(ends) <= WIDTH  # the longer of the two fits


def test_slivers_are_joined(rows: Plan) -> None:
    events = [Event(0, "compute", 0, "first", k * 1e-6, k * 1e-6 + 1e-6) for k in range(10_000)]
    body = timeline_drawing(Kinds.of(rows.resolved), measured_peers(events)).body
    assert body.count("<title") < 2_000
    assert "tasks of kind" in body


def test_living_buffers_do_not_overlap(rows: Plan, folded: Plan) -> None:
    """The picture's rectangles are apart: the check of offsets, seen from the timeline."""
    for plan in (rows, folded):
        timeline = plan.simulate()
        found = lives(plan.resolved, Kinds.of(plan.resolved), timeline.at([0]), timeline.makespan_s)
        assert len(found) == len(plan.document.buffers)
        for k, a in enumerate(found):
            for b in found[:k]:
                apart = a.end_s <= b.start_s or b.end_s <= a.start_s
                below = a.buffer.offset + a.buffer.nbytes <= b.buffer.offset
                above = b.buffer.offset + b.buffer.nbytes <= a.buffer.offset
                assert apart or below or above or a.buffer.tier != b.buffer.tier
        assert (
            "capacity"
            in memory_drawing(found, "host", 0, timeline.makespan_s, plan.document.peak_bytes["0"]["host"]).body
        )


class Tags(HTMLParser):
    """Demands that every element is closed, and gathers what is referred to."""

    EMPTY = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.references += [value for key, value in attrs if key in ("href", "src", "srcset", "data") and value]
        self.ids += [found["id"] or ""] if "id" in found else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def photograph(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def page(rows: Plan) -> str:
    run = rows.run({"image": np.ones((427, 64), np.float32)})
    return plan_html(rows, run=run, background=photograph(427, 64))


def test_the_page_is_whole_in_itself(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    assert all(ref.startswith("data:image/png;base64,") or ref[1:] in tags.ids for ref in tags.references)
    rest = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//www|@import|<script src|<link|<iframe", rest)


def test_the_page_has_everything(page: str, rows: Plan) -> None:
    for heading in ("Timeline", "Shard maps", "Graph", "Memory", "Why these cuts", "Program"):
        assert f"<h2>{heading}</h2>" in page
    for word in (
        "predicted:",
        "measured:",
        "model gap",
        "received from other ranks",
        "host at most",
        "magnified: halo 1 row",
    ):
        assert word in page
    for tensor in rows.program.tensors:
        assert f">{tensor.name}<" in page
    assert f"{rows.document.traffic.bytes_total:,} B" in page
    assert "prefers-color-scheme:dark" in page


def test_the_photograph_is_there_once_under_the_maps_of_its_size(page: str) -> None:
    assert page.count("data:image/png") == 1
    assert page.count('href="#background"') == 3 + 2  # three tensors, and two magnified borders


def test_a_page_without_extras(folded: Plan, gathered: Plan, layered: Plan) -> None:
    for plan in (folded, gathered, layered):
        made = plan_html(plan)
        tags = Tags()
        tags.feed(made)
        assert tags.open == []
        assert "measured:" not in made
        parsed(plan_svg(plan))


def test_pictures_are_the_same_in_every_process(rows: Plan, tmp_path: Path) -> None:
    rows.save(tmp_path / "plan.json")
    code = (
        "import sys; from tapestry.planner import load_plan;"
        "from tapestry.planner.views.html import plan_html, plan_svg;"
        "plan = load_plan(sys.argv[1]); sys.stdout.write(plan_html(plan) + plan_svg(plan))"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "plan.json"],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout.decode()
        for seed in ("0", "7")
    }
    assert made == {plan_html(rows) + plan_svg(rows)}


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + body),)
        yield kind, body
        at += 12 + size


def test_png_holds_the_pixels(tmp_path: Path) -> None:
    from PIL import Image

    pixels = photograph(13, 7)
    (tmp_path / "x.png").write_bytes(png(pixels))
    assert [kind for kind, _ in chunks(png(pixels))] == [b"IHDR", b"IDAT", b"IEND"]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "x.png")), pixels)


def test_a_large_background_is_thinned_and_a_wrong_one_refused() -> None:
    found = background(photograph(20, 4000))
    (data,) = re.findall(r"base64,([^\"]+)", found.definition)
    (header,) = (body for kind, body in chunks(b64decode(data)) if kind == b"IHDR")
    assert struct.unpack(">II", header[:8]) == (1334, 7)
    assert (found.rows, found.columns) == (20, 4000)
    for wrong in (photograph(4, 4)[..., 0], photograph(4, 4).astype(np.float32), photograph(0, 4)):
        with pytest.raises(UsageError, match="uint8"):
            background(wrong)


def test_text_says_the_same(rows: Plan, layered: Plan) -> None:
    text = plan_text(rows)
    assert "halo 1 row on either side (along y)" in text
    assert "cut y over mesh0" in text
    assert text.count("|\n") + text.endswith("|") == 8
    assert "layers.*.q " in plan_text(layered)


def test_jupyter_gets_pictures_and_text(rows: Plan) -> None:
    assert rows._repr_mimebundle_() == {"image/svg+xml": plan_svg(rows), "text/plain": plan_text(rows)}
