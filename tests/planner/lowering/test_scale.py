"""Work of lowering, simulating and writing by ranks and layers, counted in calls: the same value on every machine."""

from __future__ import annotations

from tapestry.planner.format.codec import decode, encode
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.candidates import lower
from tapestry.planner.search.explicit import decisions_of

from ..stacks import GROUP, calls, planned, stack


def lowering(layers: int, ranks: int) -> int:
    """Calls of a second lowering: what was asked for the first is remembered, as among the candidates of a search."""
    question, decisions = decisions_of(*stack(layers, ranks))
    lower(question, decisions, Schedule())
    return calls(lambda: lower(question, decisions, Schedule()))


def test_planning_grows_with_the_ranks_not_with_their_pairs() -> None:
    few, many = (calls(lambda ranks=ranks: planned(1, ranks)) for ranks in (16, 128))  # type: ignore[misc]
    assert many < 12 * few, (few, many)


def test_another_layer_is_lowered_for_its_tasks_not_for_its_ranks() -> None:
    few = lowering(6, 16) - lowering(3, 16)
    many = lowering(6, 128) - lowering(3, 128)
    assert many < 1.1 * few, (few, many)


def test_a_layer_costs_what_the_one_before_cost() -> None:
    """Lowering grows with the layers, not with their pairs."""
    one, two, three = (lowering(layers, 16) for layers in (8, 16, 24))
    assert three - two < 1.2 * (two - one), (one, two, three)


def test_ranks_alike_are_simulated_as_one() -> None:
    """All ranks of a stack take the same times, and every one of them has its events."""
    timeline = planned(2, 32).simulate()
    assert timeline.classes == (tuple(range(32)),)
    assert len({event.rank for event in timeline.events}) == 32
    assert timeline.event_count == len(timeline.events)
    assert [*timeline.at([GROUP])] == [event for event in timeline.events if event.rank == GROUP]


def test_reading_another_layer_is_work_for_its_tasks_not_for_its_ranks() -> None:
    texts = {(layers, ranks): encode(planned(layers, ranks).document) for layers in (3, 6) for ranks in (16, 128)}
    for text in texts.values():
        decode(text)  # what modules remember is remembered
    work = {key: calls(lambda text=text: decode(text)) for key, text in texts.items()}  # type: ignore[misc]
    assert work[6, 128] - work[3, 128] < 1.1 * (work[6, 16] - work[3, 16]), work
