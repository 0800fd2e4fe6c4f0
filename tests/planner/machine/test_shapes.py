"""Tables of measured times over the shapes of tasks: read, written, interpolated, and used for prices."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

import tapestry as tp
from tapestry import Tensor, f16, f32
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import shapes as checked
from tapestry.planner.machine import Machine, MachineError, Pace, ShapeTable, WorkCurve, machine_to_json
from tapestry.planner.machine.shapes import SHAPED
from tapestry.planner.machine.write import machine_toml
from tapestry.program import Pin

SIZES = (16, 64)
TABLE = ShapeTable("matmul", "f32", SIZES, SIZES, (8, 32), tuple(k * 1e-3 for k in (1, 2, 3, 5, 3, 5, 6, 9)))
CURVE = WorkCurve("matmul", "f32", ((1e5, 1e-6),))


def measured(*tables: ShapeTable) -> Machine:
    machine = load_machine("cpu-4")
    pace = Pace(1, 2e-6, ((1e6, 1e-6),), (CURVE, replace(CURVE, kernel="attention")), shapes=tables)
    return replace(machine, device=replace(machine.device, paces=(pace,)))


def test_a_measured_shape_takes_what_was_measured() -> None:
    assert TABLE.at(16, 16, 8) == 1e-3
    assert TABLE.at(64, 16, 32) == 5e-3
    assert TABLE.at(64, 64, 32) == TABLE.seconds[-1]


def test_between_shapes_each_number_counts_for_its_part() -> None:
    assert TABLE.at(40, 16, 8) == pytest.approx(2e-3)
    assert TABLE.at(40, 40, 20) == pytest.approx((1 + 2 + 3 + 5 + 3 + 5 + 6 + 9) / 8 * 1e-3)


def test_smaller_shapes_take_as_long_and_larger_ones_longer_in_proportion() -> None:
    assert TABLE.at(1, 1, 1) == 1e-3
    queries = replace(TABLE, kernel="attention")
    assert queries.at(128, 16, 8) == pytest.approx(2 * TABLE.at(64, 16, 8))
    assert TABLE.at(128, 256, 320) == queries.at(128, 256, 320) == pytest.approx(2 * 4 * 10 * 9e-3)


@pytest.mark.parametrize("columns", [1, 16, 20])
def test_rows_of_a_product_beyond_the_last_take_no_longer_than_as_many_columns(columns: int) -> None:
    as_columns = TABLE.at(64, max(16, columns) * 2, 8)
    assert TABLE.at(128, columns, 8) == pytest.approx(as_columns)
    assert as_columns < 2 * TABLE.at(64, columns, 8)
    assert TABLE.at(64 * 4096, columns, 8) == pytest.approx(TABLE.at(64, max(16, columns) * 4096, 8))


AXIS = st.lists(st.integers(1, 1000), min_size=1, max_size=3, unique=True).map(sorted)


@st.composite
def tables(draw: st.DrawFn) -> ShapeTable:
    """Seconds that rise by something from each shape of the grid to the next along every axis."""
    axes = [tuple(draw(AXIS)) for _ in range(3)]
    steps = [draw(st.lists(st.floats(1e-6, 1.0), min_size=len(axis), max_size=len(axis))) for axis in axes]
    rows, columns, folded = (list(accumulate(each)) for each in steps)
    return ShapeTable("matmul", "f32", *axes, tuple(a + b * c for a in rows for b in columns for c in folded))


@given(
    tables(), st.tuples(*[st.floats(0.1, 2000.0)] * 3), st.integers(0, 2), st.floats(1.0, 3.0), st.sampled_from(SHAPED)
)
def test_the_checker_reads_a_table_as_the_planner_does(
    table: ShapeTable, shape: tuple[float, float, float], axis: int, factor: float, kernel: str
) -> None:
    table = replace(table, kernel=kernel)
    plain = json.loads(json.dumps(asdict(table)))
    assert not list(checked.faults(plain, "table"))
    assert checked.seconds(plain, shape) == pytest.approx(table.at(*shape))
    longer = [size * (factor if k == axis else 1.0) for k, size in enumerate(shape)]
    assert table.at(*longer) >= table.at(*shape) * (1 - 1e-12)


def test_a_written_table_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(machine_toml(measured(TABLE)), encoding="utf-8")
    assert load_machine(path).device.shaped("matmul", "f32", 1).seconds == pytest.approx(TABLE.seconds)  # type: ignore[union-attr]
    assert machine_toml(load_machine(path)) == machine_toml(measured(TABLE))


def test_convolutions_have_a_table_for_each_size_of_window(tmp_path: Path) -> None:
    path, tables = tmp_path / "mine.toml", [replace(TABLE, kernel="conv", window=places) for places in (9, 25)]
    text = machine_toml(measured(*tables))
    path.write_text(text, encoding="utf-8")
    read = load_machine(path)
    assert machine_toml(read) == text
    assert read.device.shaped("conv", "f32", 1, 25) == read.device.paces[0].shapes[1]
    assert [table.get("window") for table in machine_to_json(read)["device"]["paces"][0]["shapes"]] == [9, 25]
    path.write_text(text.replace("window = 25", "window = 9"), encoding="utf-8")
    with pytest.raises(MachineError, match="one curve each"):
        load_machine(path)


def test_a_machine_without_tables_is_embedded_as_before() -> None:
    assert "shapes" not in machine_to_json(measured())["device"]["paces"][0]


@tp.program
def net(x: f32[Tensor, "n m"], w: f32[Tensor, "m k"]) -> Tensor:
    return tp.relu(x @ w)


@cache
def given_net() -> Plan:
    return made_with(TABLE, 1, "n")


@tp.program
def halves(x: f16[Tensor, "n m"], w: f16[Tensor, "m k"]) -> Tensor:
    return x @ w


@tp.program
def heads(q: f32[Tensor, "t h e"], k: f32[Tensor, "s g e"]) -> Tensor:
    return tp.attention(q, k, k, causal=True)


def made_with(table: ShapeTable, ranks: int, cut: str) -> Plan:
    pinned = Pin("op", "matmul", (("mesh0", cut),))
    return plan(net.bind(n=64, m=32, k=16), measured(table), mesh=(ranks,), pins=[pinned], time_limit=600)


@pytest.mark.parametrize(
    ("ranks", "cut", "shape"), [(1, "n", (64, 16, 32)), (4, "n", (16, 16, 32)), (4, "m", (64, 16, 8))]
)
def test_a_product_is_priced_by_the_shape_of_its_shard(ranks: int, cut: str, shape: tuple[int, int, int]) -> None:
    made = made_with(TABLE, ranks, cut)
    events = [event for event in made.simulate().events if event.name == "matmul" and event.lane == "compute"]
    assert [event.end_s - event.start_s for event in events] == pytest.approx([TABLE.at(*shape) + 2e-6] * ranks)
    assert made.check().ok
    wrong = changed(made.document.predicted, makespan_s=made.document.predicted.makespan_s * 1.001)
    assert "predicted" in str(Plan(changed(made.document, predicted=wrong), made.program).check())


def test_attention_is_priced_by_the_keys_that_a_query_sees() -> None:
    table = replace(TABLE, kernel="attention", folded=(10, 32))
    made = plan(heads.bind(t=31, h=2, e=8, s=31, g=1), measured(table), mesh=(1,), time_limit=600)
    (event,) = [event for event in made.simulate().events if event.name.endswith("state")]
    assert event.end_s - event.start_s == pytest.approx(table.at(62, 16, 10) + 2e-6)
    assert made.check().ok


@tp.program
def images(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c r s"]) -> Tensor:
    return tp.conv2d(x, w)


@pytest.mark.parametrize(
    ("cut", "ranks", "shape"), [("n", 1, (72, 32, 27)), ("n", 2, (36, 32, 27)), ("k", 2, (72, 16, 27))]
)
def test_a_convolution_is_priced_by_its_places_and_channels(cut: str, ranks: int, shape: tuple[int, int, int]) -> None:
    table = replace(TABLE, kernel="conv")
    bound = images.bind(n=2, c=3, y=8, x=8, k=32, r=3, s=3)
    pinned = Pin("op", "conv2d", (("mesh0", cut),))
    made = plan(bound, measured(table), mesh=(ranks,), pins=[pinned], time_limit=600)
    events = [event for event in made.simulate().events if event.name == "conv2d" and event.lane == "compute"]
    assert [event.end_s - event.start_s for event in events] == pytest.approx([table.at(*shape) + 2e-6] * ranks)
    assert made.check().ok


def test_a_convolution_of_more_channels_than_were_measured_is_priced_by_its_operations() -> None:
    curve = WorkCurve("conv", "f32", ((1e5, 1e-6),))
    machine = measured(replace(TABLE, kernel="conv"))
    pace = replace(machine.device.paces[0], curves=(curve,))
    machine = replace(machine, device=replace(machine.device, paces=(pace,)))
    made = plan(images.bind(n=2, c=4, y=8, x=8, k=32, r=3, s=3), machine, mesh=(1,), time_limit=600)
    (event,) = [event for event in made.simulate().events if event.name == "conv2d" and event.lane == "compute"]
    assert event.end_s - event.start_s == pytest.approx(2 * 72 * 32 * 36 * 1e-11 + 2e-6)
    assert made.check().ok


def test_attention_of_few_queries_is_priced_by_its_bytes_and_not_by_the_least_shape() -> None:
    table = replace(TABLE, kernel="attention", folded=(10, 32))
    took = {}
    for queries in (4, 5):
        bound = heads.bind(t=queries, h=2, e=8, s=31, g=2)
        made = plan(bound, measured(table), mesh=(1,), time_limit=600)
        (event,) = [event for event in made.simulate().events if event.name.endswith("state")]
        took[queries] = event.end_s - event.start_s
        assert made.check().ok
    assert took[5] == pytest.approx(table.at(10, 16, 10) + 2e-6)
    assert took[4] < 1e-4 < took[5]


def test_floats_of_as_many_bits_share_a_table_where_only_one_was_measured() -> None:
    bf16, other = replace(TABLE, dtype="bf16"), replace(TABLE, dtype="f16", seconds=tuple(2 * s for s in TABLE.seconds))
    device = measured(bf16).device
    assert device.shaped("matmul", "f16", 1) == device.shaped("matmul", "bf16", 1) == bf16
    assert measured(bf16, other).device.shaped("matmul", "f16", 1) == other
    assert device.shaped("matmul", "f32", 1) is device.shaped("attention", "f16", 1) is None
    made = plan(halves.bind(n=64, m=32, k=16), measured(bf16), mesh=(1,), time_limit=600)
    assert made.simulate().events[0].end_s == pytest.approx(bf16.at(64, 16, 32) + 2e-6)
    assert made.check().ok


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("rows = [16, 64]", "rows = [64, 16]", ["'rows'", "increasing", "[64, 16]"]),
        ("columns = [16, 64]", "columns = []", ["'columns'", "increasing"]),
        ("1000, 2000", "1000", ["'us'", "a list of 8 numbers"]),
        ("6000, 9000", "6000, 900", ["fall along no axis", "less at rows 64, columns 64, folded 32"]),
        ('kernel = "matmul"\ndtype = "f32"\nrows', 'kernel = "sort"\ndtype = "f32"\nrows', ["'sort'", "'matmul'"]),
    ],
)
def test_a_wrong_table_gets_one_message(tmp_path: Path, old: str, new: str, named: list[str]) -> None:
    text, path = machine_toml(measured(TABLE)), tmp_path / "broken.toml"
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(MachineError) as failed:
        load_machine(path)
    assert [part for part in (str(path), "at_work.0.shapes.0", *named) if part not in str(failed.value)] == []


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("rows", [64, 16], "rows is not a list of whole numbers"),
        ("seconds", [1.0], "seconds are not 8 numbers"),
        ("seconds", [2.0, 1.0] * 4, "seconds fall along an axis"),
        ("kernel", 3, "kernel is not a text"),
    ],
)
def test_an_embedded_table_is_read_strictly(field: str, value: object, says: str) -> None:
    made = given_net()
    document = made.document
    pace = document.machine["device"]["paces"][0]
    tables = [pace["shapes"][0] | {field: value}]
    device = document.machine["device"] | {"paces": [pace | {"shapes": tables}]}
    report = Plan(changed(document, machine=document.machine | {"device": device}), made.program).check()
    assert says in str(report)


def test_explain_names_the_shape_of_the_slowest_shard() -> None:
    (row,) = [row for row in made_with(TABLE, 4, "m").explain().rows if row.op == "matmul"]
    assert row.shape == "matmul in f32, 64 x 16 x 8"
    assert "  shape   matmul in f32, 64 x 16 x 8\n" in str(made_with(TABLE, 4, "m").explain())


@tp.op
def rows(x: f32[Tensor, "n m"]) -> f32[Tensor, "n m"]:
    n, m = tp.indices("n m")
    return x.get[n - 1, m] + x[n, m] * 2.0 + x.get[n + 1, m]


@tp.program
def smooth(x: f32[Tensor, "n m"]) -> Tensor:
    return rows(x)


def test_windows_take_no_less_than_reading_their_elements() -> None:
    reading = WorkCurve("read", "f32", ((1000.0, 1e-3), (2000.0, 3e-3)))
    machine = measured()
    pace = replace(machine.device.paces[0], curves=(CURVE, reading))
    machine = replace(machine, device=replace(machine.device, paces=(pace,)))
    made = plan(smooth.bind(n=50, m=10), machine, mesh=(1,), time_limit=600)
    (event,) = made.simulate().events
    assert event.end_s - event.start_s == pytest.approx(2e-3 + 2e-6)  # 1,500 elements
    assert made.check().ok


# Images, side of the result, channels in and out, window, stride -> microseconds with channels last and first.
FIRST = {
    (32, 112, 3, 64, 7, 2): (221.3, 300.6),
    (64, 56, 3, 96, 4, 4): (39.4, 43.4),  # rows of a matrix, written out; a convolution takes 126 and 107
    (64, 55, 3, 64, 11, 4): (284.2, 342.3),
    (16, 56, 4, 128, 7, 2): (61.9, 127.5),
    (8, 64, 12, 48, 5, 2): (28.6, 35.3),
}


@pytest.mark.parametrize("layer", FIRST)
def test_first_layers_that_no_table_has_are_predicted_about_as_measured(layer: tuple[int, ...]) -> None:
    """On one H200, in bf16; the mean of both orders."""
    n, side, c, k, r, stride = layer
    seen = stride * (side - 1) + r

    @tp.program
    def net() -> Tensor:
        images, w = tp.param("x", "bf16", (n, c, seen, seen)), tp.param("w", "bf16", (k, c, r, r))
        return tp.conv2d(images, w, stride=stride)

    made = plan(net.bind(), "h200x8", mesh=(1,), time_limit=600)
    last, first = FIRST[layer]
    assert made.document.predicted.makespan_s == pytest.approx((last * first) ** 0.5 * 1e-6, rel=0.25)
    assert made.check().ok
