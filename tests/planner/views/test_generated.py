"""Generated programs under random partitions: whatever the shapes and cuts, the pages are well-formed and complete."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.drawing.program import program_svg
from tapestry.planner import load_machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.views.html import plan_html, plan_svg
from tapestry.planner.views.shards import shard_maps
from tapestry.planner.views.text import plan_text
from tapestry.testing import partitions, programs

MACHINE = replace(load_machine("cpu-4"), devices_per_host=8)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_plan_can_be_drawn(data: st.DataObject) -> None:
    program = data.draw(programs())
    shards = data.draw(st.integers(1, 5).flatmap(lambda ranks: partitions(program, ranks)))
    plan = plan_partitions(program, MACHINE, shards)
    for found in shard_maps(plan.resolved):
        for home, extra in zip(found.home, found.extra, strict=True):
            assert not home & extra
        if not found.monoid:
            assert {rank for _, ranks in found.owners for rank in ranks} == {r for r, h in enumerate(found.home) if h}
            assert sum(region.size for region in found.home) >= found.tensor.size
    ET.fromstring(plan_svg(plan))
    ET.fromstring(program_svg(program))
    page, text = plan_html(plan), plan_text(plan)
    assert not re.search(r"""[ "(](nan|inf)[ ")]""", plan_svg(plan))
    for tensor in program.tensors:
        if tensor.data is None:
            assert tensor.name in page
            assert tensor.name in text
