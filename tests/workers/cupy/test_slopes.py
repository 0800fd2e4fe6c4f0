"""Slopes of attention by torch's products, and by the calls that cuDNN is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tapestry.workers.cupy.dense_slopes import visible, visible_there
from tapestry.workers.cupy.slopes import LibrarySlopes, Slopes, Stretch

from ..slopes import LARGE, SMALL, Case, early, near
from .conftest import OnHost
from .host_machine import HostMachine

pytest.importorskip("torch")


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("case", [case for case in SMALL if case.dtype != "bf16"], ids=str)
def test_slopes_are_those_of_the_reference(case: Case, ranks: int, on_host: str) -> None:
    case.check(ranks, on_host)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", [case for case in LARGE if case.dtype != "bf16"], ids=str)
def test_a_library_is_asked_for_what_it_has(case: Case, ranks: int, on_host: str, machine: HostMachine) -> None:
    case.check(ranks, on_host)
    asked = machine.kernels.count("library slopes")
    assert asked
    t, s, *_ = case.sizes
    if ranks == 1:  # one call a step for the slopes of all: of the keys that all see, and of the others
        assert asked == 2 * (2 if case.seen.get("offset", 0) > 0 or t > s else 1)


def test_of_queries_from_both_ends_all_slopes_are_of_the_same_calls(
    on_host: str, machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapestry.workers.cupy.device.bind_products", None)  # nothing is made by products
    case = Case("f16", (256, 256, 2, 1, 64), seen={"causal": True})
    case.check_zigzag(on_host)
    # Rank 0: its first queries among themselves, the last ones on what all of them see, and among themselves; rank 1
    # as the last ones. The second step asks again.
    assert machine.kernels.count("library slopes") == 2 * (3 + 2)


@pytest.mark.parametrize(
    "where",
    [{"causal": True}, {"causal": True, "offset": -3}, {"where": near}, {"where": early}],
    ids=["causal", "later", "near", "early"],
)
def test_what_is_visible_is_told_alike_here_and_there(where: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    program = Case("f32", (12, 16, 4, 2, 8), seen=where).program()
    for op in program.operations:
        if op.where:
            runs = {dim.name: range(1, dim.extent, 2) for dim in op.dims}
            names = [name for name in ("t", "s") if name in runs]
            there = visible_there(op.where, runs, names, torch.device("cpu"), {})
            np.testing.assert_array_equal(there.numpy(), visible(op.where, runs, names))
            # Nothing of it is asked of NumPy, which has no part in what a GPU computes.
            assert visible_there(op.where, runs, names, torch.device("meta"), {}).shape == there.shape


def test_whole_and_cut_slopes_are_of_products_where_no_library_has_them(on_host: str) -> None:
    Case("f32", (16, 16, 4, 2, 8), seen={"causal": True}).check_zigzag(on_host)


def test_tasks_take_what_any_task_before_them_made_of_the_same_calls(on_host: str) -> None:
    """As pieces of queries whose slopes of keys come behind those of all queries."""
    del on_host
    device = OnHost()
    seen = Stretch(0, 64, 0, 64, False)
    task: Any = SimpleNamespace(lane="compute", op=SimpleNamespace(operands=("q", "k")))

    def bound(side: str, rows: int) -> LibrarySlopes:
        heads: Any = (f"q{rows}", "k", "v", "result", "slope")
        sums: Any = ("total", "largest")
        into: Any = f"d_{side}"
        calls = [[Slopes(heads, sums, into, 1, rows, 64, 1, 1, 64, 1.0, side, (seen,))]]
        return device.sharing(LibrarySlopes(device.machine, calls, task))

    first, second, *others = (bound(side, rows) for side in "qkv" for rows in (64, 128))
    assert [one.before for one in (first, second)] == [None, None]
    assert [one.before for one in others] == [first, second, first, second]
    assert bound("q", 64).before is None  # of another step of the program: all that the first made is taken
