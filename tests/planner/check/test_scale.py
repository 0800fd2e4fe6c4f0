"""Work of the checker by ranks and layers, counted in calls of functions: it has the same value on every machine."""

from __future__ import annotations

from tapestry.planner.check import check

from ..stacks import calls, planned


def work(layers: int, ranks: int, per_host: int | None = None) -> int:
    """Functions of Python called by a check that finds nothing wrong."""
    document = planned(layers, ranks, per_host).document
    assert check(document).ok  # and what modules remember is remembered
    return calls(lambda: check(document))


def test_work_grows_with_the_ranks_not_with_their_pairs() -> None:
    few, many = work(1, 16), work(1, 128)
    assert many < 12 * few, (few, many)


def test_bytes_between_hosts_are_counted_by_ranks_not_by_their_pairs() -> None:
    few, many = work(1, 16, per_host=2), work(1, 128, per_host=2)  # eight times the ranks
    assert many < 8.5 * few, (few, many)


def test_another_layer_is_work_for_its_tasks_not_for_its_ranks() -> None:
    """All layers ask the same questions: one more costs as much on many ranks as on few."""
    few = work(6, 16) - work(3, 16)
    many = work(6, 128) - work(3, 128)
    assert many < 2 * few, (few, many)
