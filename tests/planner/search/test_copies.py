"""Over hosts some weights are held by every host and others shared among them, as much of each as hides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.search import search
from tapestry.planner.search.copies import updated_with
from tapestry.space import Region

from ...files import benchmarks
from ..training_step import trained

HOSTS, DEVICES, LAYERS = 4, 8, 4


@pytest.fixture(scope="module")
def goals() -> Iterator[ModuleType]:
    with benchmarks("goals") as modules:
        yield modules["goals"]


def test_with_a_weight_goes_what_is_remembered_of_its_gradients() -> None:
    program = trained.bind(n=16, c=8, layers=2)
    values = dict(program.states)
    for name in ("w0in", "w1out"):
        assert updated_with(program, name, values[name]) == {name, f"{name}.mean", f"{name}.square"}
        assert updated_with(program, f"{name}.mean", values[f"{name}.mean"]) == {f"{name}.mean"}


def held_by_every_host(made: Plan, name: str) -> bool:
    """Whether the devices of each host have all of a tensor before the run."""
    start = next(b for b in made.document.buffers if b.tensor == name and b.initial is not None)
    regions = made.resolved.regions(start.initial)
    total = Region.union(regions).size
    hosts = (regions[k : k + DEVICES] for k in range(0, HOSTS * DEVICES, DEVICES))
    return all(Region.union(mine).size == total for mine in hosts)


def test_large_weights_are_held_by_every_host_and_small_ones_shared(
    goals: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathers of all weights are longer than the forward pass, all-reduces of all gradients than the backward pass."""
    monkeypatch.setattr(goals, "LAYERS", LAYERS)
    program = goals.train_sequences.bind(b=HOSTS * DEVICES)
    machine = replace(load_machine("h200x8-2node"), hosts=HOSTS)
    made = plan(program, machine, mesh=(HOSTS, DEVICES), time_limit=600)
    assert made.check().ok, str(made.check())
    weights = [t.name for t in program.of_role("state") if t.name.startswith("layers.1.w") and t.name.count(".") == 2]
    assert len(weights) == 7
    assert {held_by_every_host(made, name) for name in weights} == {True, False}
    monkeypatch.setattr(search, "with_copies", lambda _, best: best)
    shared = plan(program, machine, mesh=(HOSTS, DEVICES), time_limit=600)
    assert not any(held_by_every_host(shared, name) for name in weights)
    assert made.document.predicted.makespan_s < 0.98 * shared.document.predicted.makespan_s
