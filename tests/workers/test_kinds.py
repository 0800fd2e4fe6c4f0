"""Plans of the kinds that devices are tried with are what their names say."""

from __future__ import annotations

from math import prod

import pytest

from tapestry.planner.check import check

from .kinds import KINDS, made, pieces, places, turns


@pytest.mark.parametrize(
    ("kind", "ranks", "folded_on", "tasks", "apart"),
    [
        ("ring attention, zigzag", 4, 3, 4, False),
        ("ring attention of two", 2, 1, 2, False),
        ("product on a cube", 8, 1, 2, False),
        ("product in pieces", 2, 0, 17, False),
        ("two branches", 2, 0, 1, True),
        ("two stages", 2, 0, 2, True),
        ("two stages of training", 2, 0, 8, True),
        ("the inside first", 2, 0, 2, False),
        ("equal pieces", 2, 0, 3, False),
    ],
)
def test_kinds(kind: str, ranks: int, folded_on: int, tasks: int, apart: bool) -> None:
    """The number of ranks, the tasks that fold onto what others left, the most tasks of an operation, and whether ranks
    compute something by themselves.
    """
    _, document = made(kind)
    assert KINDS[kind][0] == ranks == prod(document.mesh)
    assert (turns(document), pieces(document), places(document) != {None}) == (folded_on, tasks, apart)
    assert check(document).ok
