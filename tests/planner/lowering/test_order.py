"""The order of operations by list scheduling: what is sent is made first, and everything after what it reads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor
from tapestry.planner import Plan, load_machine
from tapestry.planner.format import Compute
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.space import Box, Region

MACHINE = load_machine("h200x2")
ROWS = 2048

Way = tuple[int, bool]
"""How many products, and whether the result is sent."""


@tp.program
def joined(*, ways: tuple[Way, ...], rows: int) -> Tensor:
    """Ways from an input to the sum of what they come to: a number for each row, of all rows where they are sent."""
    x, found = tp.input("x", "f32", (rows, rows)), None
    for k, (products, sent) in enumerate(ways):
        y = x
        for n in range(products):
            y = tp.einsum("nc,ck->nk", y, tp.param(f"w{k}.{n}", "f32", (rows, rows)), name=f"way{k}.{n}")
        seen = tp.einsum("nk,mk->nm" if sent else "nk,nk->nk", x, y, name=f"seen{k}")
        found = seen if found is None else tp.add(found, seen, name=f"sum{k}")
    assert found is not None
    return found


def listed(program: Program) -> Plan:
    """Every operation cut along its first dimension, which is the rows; in list-scheduled order."""

    def halves(n: int, *rest: int) -> list[Region]:
        return [Box((first, *(0 for _ in rest)), (end, *rest)).region() for first, end in ((0, n // 2), (n // 2, n))]

    shards = {op.name: halves(*op.extents.values()) for op in program.operations}
    homes = {"x": halves(*program.tensor("x").shape)}
    return plan_partitions(program, MACHINE, shards, homes=homes, schedule=Schedule(listed=True))


def computed(made: Plan) -> list[str]:
    return [task.op for task in made.document.tasks if isinstance(task, Compute)]


def test_what_is_sent_is_made_first_though_another_way_is_longer() -> None:
    """Keys before queries: they are on their way meanwhile, and nobody waits for them."""
    made = listed(joined.bind(ways=((3, False), (1, True)), rows=ROWS))
    order = computed(made)
    assert order[0] == "way1.0"
    assert order.index("way0.2") < order.index("seen1")
    assert made.document.predicted.exposed_transfer_s == 0
    assert made.document.predicted.makespan_s > 0


def test_of_what_takes_as_long_to_send_what_is_made_soonest_is_sent_first() -> None:
    """Values before keys, whose rotary embedding comes in between: what carries them begins earlier."""
    order = computed(listed(joined.bind(ways=((2, True), (1, True), (3, False)), rows=ROWS)))
    assert order[:3] == ["way1.0", "way0.0", "way0.1"]
    assert computed(listed(joined.bind(ways=((1, True), (2, True)), rows=ROWS)))[0] == "way0.0"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=4).map(tuple))
def test_every_way_that_is_sent_comes_before_every_other(ways: tuple[Way, ...]) -> None:
    """Nothing else holds them up: each is of products alone, and all can begin at once."""
    made = listed(joined.bind(ways=ways, rows=ROWS))
    assert made.check().ok, str(made.check())
    order = computed(made)
    sent = [order.index(f"way{k}.{n - 1}") for k, (n, all_rows) in enumerate(ways) if all_rows]
    others = [order.index(f"way{k}.0") for k, (_, all_rows) in enumerate(ways) if not all_rows]
    assert max(sent, default=-1) < min(others, default=len(order))
