"""Measured paces of a device: read, written, chosen by how many ranks are at work, and used for prices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.machine import (
    Curve,
    Machine,
    MachineError,
    OperationCurve,
    Pace,
    WorkCurve,
    machine_from_json,
    machine_to_json,
)
from tapestry.planner.machine.write import machine_toml

ONE = Pace(1, 2e-6, ((1000.0, 1e-6), (1e6, 500e-6)), (WorkCurve("matmul", "f32", ((1e6, 20e-6), (1e8, 900e-6))),))
ALL = Pace(
    4,
    7e-6,
    ((1000.0, 4e-6),),
    (WorkCurve("matmul", "f32", ((1e6, 40e-6), (1e8, 1900e-6))), WorkCurve("elementwise", "f32", ((1e3, 3e-6),))),
    (
        OperationCurve("0123456789abcdef", ((64.0, 1e-3), (256.0, 2e-3))),
        OperationCurve("1123456789abcdef", ((64.0, 1e-9),), 0.0),
    ),
)


@tp.program
def net(x: f32[Tensor, "n m"], w: f32[Tensor, "m k"]) -> Tensor:
    return tp.relu(x @ w) + 1.0


def measured(*paces: Pace, overlap: bool = False) -> Machine:
    machine = load_machine("cpu-4")
    curve = Curve("all_gather", 4, ((1024, 0.01), (1 << 20, 1.5)))
    link = replace(machine.links[0], curve=(curve,))
    return replace(machine, links=(link,), device=replace(machine.device, overlap=overlap, paces=paces))


def test_a_written_machine_is_read_again(tmp_path: Path) -> None:
    machine, path = measured(ONE, ALL), tmp_path / "mine.toml"
    path.write_text(machine_toml(machine, "measured\n\nby hand", {"0123456789abcdef": "net.relu"}), encoding="utf-8")
    found = load_machine(path)
    assert machine_toml(found) == machine_toml(machine)
    assert [time for _, time in found.device.paces[1].operations[0].points] == pytest.approx([1e-3, 2e-3])
    assert [own.start_s for own in found.device.paces[1].operations] == [None, 0.0]
    assert machine_from_json(machine_to_json(found)) == found
    assert found.device.overlap is False
    assert path.read_text(encoding="utf-8").startswith("# measured\n#\n# by hand\nname = ")


@pytest.mark.parametrize("name", ["cpu-4", "h200", "h200x2", "h200x4", "h200x8", "h200x8-2node"])
def test_every_packaged_machine_can_be_written(name: str, tmp_path: Path) -> None:
    machine, path = load_machine(name), tmp_path / "copy.toml"
    path.write_text(machine_toml(machine), encoding="utf-8")
    assert machine_toml(load_machine(path)) == machine_toml(machine)


def test_the_pace_is_that_of_the_nearest_number_of_ranks() -> None:
    device = measured(ONE, ALL).device
    assert [device.start_s(ranks) for ranks in (1, 2, 3, 4, 64)] == [2e-6, 2e-6, 7e-6, 7e-6, 7e-6]
    assert device.work("matmul", "f32", 4).seconds(1e8) == 1900e-6
    assert device.work("conv", "f32", 1).seconds(1e6) == 20e-6  # falls back to matrix products
    assert device.work("elementwise", "f32", 1).seconds(8.5e9) == pytest.approx(1, rel=0.5)  # a rate: not measured
    assert device.copying(4).seconds(2000) == 8e-6
    assert device.operation("0123456789abcdef", 1) is None
    starts = [device.start_s(4, digest) for digest in ("0123456789abcdef", "1123456789abcdef", "unknown", "")]
    assert starts == [7e-6, 0.0, 7e-6, 7e-6]


@pytest.fixture(scope="module")
def made() -> Plan:
    program = net.bind(n=64, m=32, k=16)
    digests = {op.name: program.graph.digest(op) for op in program.operations}
    product = OperationCurve(digests["matmul"], ((100.0, 1e-3), (64 * 32 * 16 / 4, 5e-3), (64 * 32 * 16.0, 30e-3)))
    machine = measured(ONE, replace(ALL, operations=(product,)))
    return plan(program, machine, mesh=(4,), time_limit=600)


def test_a_measured_operation_takes_what_was_measured(made: Plan) -> None:
    events = [event for event in made.simulate().events if event.name == "matmul" and event.lane == "compute"]
    assert [event.end_s - event.start_s for event in events] == pytest.approx([5e-3 + 7e-6] * 4)


def test_the_checker_finds_the_same_times_and_the_same_bound(made: Plan) -> None:
    assert made.check().ok
    wrong = replace_predicted(made, made.document.predicted.makespan_s * 1.001)
    assert "predicted" in str(wrong.check())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([None, 0.0, 1e-6, 3e-6, 40e-6]), min_size=3, max_size=3), st.sampled_from([1, 4]))
def test_operations_that_start_otherwise_take_their_own_start(starts: list[float | None], ranks: int) -> None:
    """The checker finds the same times, and proves the same bound with code of its own; no plan is below it."""
    program = net.bind(n=64, m=32, k=16)
    points = {op.name: 64 * 16 * (32 if op.reduce_dims else 1) for op in program.operations}
    curves = {
        program.graph.digest(op): OperationCurve(program.graph.digest(op), ((float(points[op.name]), 5e-6),), start)
        for op, start in zip(program.operations, starts, strict=True)
    }
    machine = measured(replace(ALL, ranks=1, operations=tuple(curves.values())))
    made = plan(program, machine, mesh=(ranks,), time_limit=600)
    assert made.check().ok, str(made.check())
    assert made.document.bound is not None
    assert made.document.bound.bound_s <= made.document.predicted.makespan_s
    own = [ALL.start_s if curve.start_s is None else curve.start_s for curve in curves.values()]
    if ranks == 1:
        assert made.document.predicted.makespan_s == pytest.approx(sum(own) + 5e-6 * len(own))
        assert made.document.bound.bound_s == pytest.approx(made.document.predicted.makespan_s)


def test_a_machine_that_does_one_thing_at_a_time_hides_no_transfer() -> None:
    @tp.program
    def moved(x: f32[Tensor, "n m"], w: f32[Tensor, "m m"]) -> dict[str, Tensor]:
        a = tp.shard(x + 1.0, mesh0="n")
        b = tp.shard(a * 2.0, mesh0="m")
        return {"b": b, "c": tp.shard(tp.exp(a) @ w, mesh0="n")}

    both = [plan(moved.bind(n=64, m=64), measured(ALL, overlap=o), mesh=(4,), time_limit=600) for o in (True, False)]
    beside, alone = (each.simulate() for each in both)
    assert beside.makespan_s < alone.makespan_s
    assert alone.makespan_s == pytest.approx(max(sum(e.end_s - e.start_s for e in alone.at([r])) for r in range(4)))
    assert all(each.check().ok for each in both)


def replace_predicted(made: Plan, makespan_s: float) -> Plan:
    from msgspec.structs import replace as changed

    predicted = changed(made.document.predicted, makespan_s=makespan_s)
    return Plan(changed(made.document, predicted=predicted), made.program)


HEAD = "\n[[device.at_work]]\nranks = 4\nstart_us = 1\n"
BROKEN = [
    (HEAD + HEAD, ["[device]", "'at_work'", "each number of ranks once"]),
    (HEAD + "copied_bytes_and_us = [[4, 1], [2, 2]]", ["[device.at_work.0]", "sizes increasing", "[2.0, 2.0] after"]),
    (HEAD + "copied_bytes_and_us = [[2, 2], [4, 1]]", ["times not falling", "[4.0, 1.0] after [2.0, 2.0]"]),
    (HEAD + "copied_bytes_and_us = []", ["'copied_bytes_and_us'", "got", "[]"]),
    (HEAD + "copied_bytes_and_us = [[0, 1]]", ["both greater than 0"]),
    (HEAD + "colour = 1", ["unknown key 'colour'"]),
    (HEAD + "[[device.at_work.curves]]\nkernel = 'matmull'", ["[device.at_work.0.curves.0]", "'matmull'"]),
    (HEAD + "[[device.at_work.operations]]\ndigest = 'a'", ["'points_and_us'", "nothing"]),
    (HEAD + "[[device.at_work.operations]]\ndigest = 'a'\npoints_and_us = [[1, 1]]\n" * 2, ["one curve each"]),
    (HEAD + "[[device.at_work.operations]]\ndigest = 'a'\npoints_and_us = [[1, 1]]\nstart_us = -1", ["'start_us'"]),
]


@pytest.mark.parametrize(("more", "named"), BROKEN)
def test_a_wrong_pace_gets_one_message(tmp_path: Path, more: str, named: list[str]) -> None:
    text = machine_toml(load_machine("cpu-4"))
    path = tmp_path / "broken.toml"
    head, links, rest = text.partition("[[links]]")
    if more.count("[[device.at_work.operations]]") > 1:
        more = HEAD + more.replace(HEAD, "")
    path.write_text(head + more + "\n" + links + rest, encoding="utf-8")
    with pytest.raises(MachineError) as failed:
        load_machine(path)
    assert [part for part in (str(path), *named) if part not in str(failed.value)] == []
