"""Plans that lie, repeat themselves or ask for endless work: refused with a verdict, in counted work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import UsageError
from tapestry.planner import load_machine, plan
from tapestry.planner.check import Code, check
from tapestry.planner.check.budget import Budget, Exhausted
from tapestry.planner.format.codec import MOST_TEXT, decode, encode
from tapestry.planner.format.document import Copy, Document, LayoutText

from . import plans


@tp.program
def dense(x: f32[Tensor, "n d"], w: param[f32[Tensor, "d h"]], frozen: tp.state[f32[Tensor, "n h"]]) -> Tensor:
    return tp.relu(x @ w) + frozen


@pytest.fixture(scope="module")
def document() -> Document:
    return plan(dense.bind(n=8, d=6, h=10), load_machine("cpu-4"), mesh=(2,)).document


Json = dict[str, Any]


def altered(document: Document, change: Callable[[Json], None]) -> Document:
    raw = json.loads(encode(document))
    change(raw)
    return decode(json.dumps(raw))


def test_the_plan_itself_passes(document: Document) -> None:
    assert check(document).ok


# What the program does not update


@pytest.mark.parametrize("tensor", ["w", "frozen"])
def test_what_the_program_does_not_update_may_not_be_overwritten(document: Document, tensor: str) -> None:
    """After its last use another buffer is put where it was: the next run would start from that."""
    last = document.tasks[-1].write  # type: ignore[union-attr]
    offset = next(b.offset for b in document.buffers if b.tensor == tensor)
    moved = tuple(replace(b, offset=offset) if b.name == last else b for b in document.buffers)
    (one, *_) = (v for v in check(replace(document, buffers=moved)).verdicts if v.tensor == tensor)
    assert one.code is Code.OVERLAP
    assert any(text in one.message for text in ("does not update was overwritten", f"{last} over", "was written over"))


def test_an_updated_state_starts_in_one_buffer() -> None:
    """Of two, only one could hold the new value at the end."""

    @tp.program
    def count(x: f32[Tensor, "n"], total: tp.state[f32[Tensor, "n"]]) -> Tensor:
        tp.update(total, total + x)
        return x * 2

    made = plan(count.bind(n=8), load_machine("cpu-4"), mesh=(2,)).document
    assert check(made).ok
    start = next(b for b in made.buffers if b.tensor == "total" and b.initial is not None)
    twin = replace(start, name="twin", offset=1 << 20)
    peaks = {rank: dict.fromkeys(tiers, (1 << 20) + twin.nbytes) for rank, tiers in made.peak_bytes.items()}
    report = check(replace(made, buffers=(*made.buffers, twin), peak_bytes=peaks))
    assert Code.STATE in report.codes, str(report)


# The machine


def first_tier(raw: Json) -> Json:
    tier: Json = raw["machine"]["device"]["tiers"][0]
    return tier


def curve(points: list[Json]) -> Json:
    return {"collective": "all_gather", "ranks": 2, "points": points}


def pace(**changes: object) -> Json:
    curves = [{"kernel": "matmul", "dtype": "f32", "points": [[1, 1.0], [2, 1.0]]}]
    return {"ranks": 4, "start_s": 0.0, "copy": [], "curves": curves, "operations": [], **changes}


def paced(*paces: object) -> Callable[[Json], None]:
    return lambda raw: raw["machine"]["device"].update(paces=list(paces))


MACHINES: dict[str, Callable[[Json], None]] = {
    "a tier is named twice": lambda raw: raw["machine"]["device"]["tiers"].append({**first_tier(raw)}),
    "a capacity is text": lambda raw: first_tier(raw).update(capacity_bytes="1000000000"),
    "a capacity is a fraction": lambda raw: first_tier(raw).update(capacity_bytes=1e9),
    "a capacity is true": lambda raw: first_tier(raw).update(capacity_bytes=True),
    "a capacity is past 64 bits": lambda raw: first_tier(raw).update(capacity_bytes=1 << 80),
    "a rate is missing": lambda raw: first_tier(raw).pop("read_gb_per_s"),
    "a rate is zero": lambda raw: first_tier(raw).update(write_gb_per_s=0),
    "a peak is zero": lambda raw: raw["machine"]["device"]["peak"][0].update(tflops=0.0),
    "a peak is given twice": lambda raw: raw["machine"]["device"]["peak"].append(raw["machine"]["device"]["peak"][0]),
    "a link does not move": lambda raw: raw["machine"]["links"][0].update(gb_per_s=-1),
    "a link takes less than no time": lambda raw: raw["machine"]["links"][0].update(latency_s=-1e-6),
    "a rate is of no kernel": lambda raw: raw["machine"]["device"]["peak"][0].update(kernel=[]),
    "a rate is of no type": lambda raw: raw["machine"]["device"]["peak"][0].update(dtype={}),
    "a rate is past all floats": lambda raw: raw["machine"]["device"]["peak"][0].update(tflops=10**400),
    "a link goes nowhere": lambda raw: raw["machine"]["links"][0].update(scope="moon"),
    "a link has no kind": lambda raw: raw["machine"]["links"][0].update(kind=None),
    "a link's curve is no list": lambda raw: raw["machine"]["links"][0].update(curve=7),
    "a link's curve has one point": lambda raw: raw["machine"]["links"][0].update(curve=[curve([[8, 1.0]])]),
    "a link's curve goes back": lambda raw: raw["machine"]["links"][0].update(curve=[curve([[8, 1.0], [4, 1.0]])]),
    "a link's curve has no rate": lambda raw: raw["machine"]["links"][0].update(curve=[curve([[4, 1.0], [8, 0]])]),
    "overlap is a number": lambda raw: raw["machine"]["device"].update(overlap=1),
    "paces are no list": lambda raw: raw["machine"]["device"].update(paces=None),
    "a pace is no object": paced(4),
    "a pace is given twice": paced(pace(), pace()),
    "a pace is of no ranks": paced(pace(ranks=0)),
    "a pace starts before": paced(pace(start_s=-1)),
    "a pace has no curves": paced(pace(curves=None)),
    "a copy takes no time": paced(pace(copy=[[8, 0]])),
    "a copy goes back": paced(pace(copy=[[8, 1.0], [4, 1.0]])),
    "a copy gets quicker": paced(pace(copy=[[4, 2.0], [8, 1.0]])),
    "an operation has no points": paced(pace(operations=[{"operation": "a", "points": []}])),
    "an operation starts before it is asked": paced(
        pace(operations=[{"operation": "a", "points": [[1, 1]], "start_s": -1.0}])
    ),
    "an operation starts at a word": paced(pace(operations=[{"operation": "a", "points": [[1, 1]], "start_s": "now"}])),
    "an operation is measured twice": paced(pace(operations=[{"operation": "a", "points": [[1, 1]]}] * 2)),
    "a curve is of no kernel": paced(pace(curves=[{"kernel": {}, "dtype": "f32", "points": [[1, 1.0]]}])),
    "an unknown field": lambda raw: raw["machine"].update(colour="red"),
    "no device": lambda raw: raw["machine"].pop("device"),
    "hosts are text": lambda raw: raw["machine"].update(hosts="2"),
}


@pytest.mark.parametrize("change", MACHINES.values(), ids=MACHINES.keys())
def test_a_machine_that_is_none_is_refused(document: Document, change: Callable[[Json], None]) -> None:
    assert check(altered(document, change)).codes == {Code.MACHINE}


# The program


@pytest.mark.parametrize("value", [None, "x", [], 1e30, 1.5, {"float": "nan"}, 1 << 40])
def test_a_constant_that_its_type_does_not_hold_is_refused(value: Any) -> None:
    @tp.program
    def weighed(x: tp.int32[Tensor, "n"]) -> Tensor:
        return x * tp.constant([1, 2, 3])

    def change(raw: Json) -> None:
        (held,) = (tensor for tensor in raw["program"]["tensors"] if tensor["role"] == "const")
        held["data"][1] = value

    made = plan(weighed.bind(n=3), load_machine("cpu-4"), mesh=(1,)).document
    assert check(made).ok
    assert check(altered(made, change)).codes == {Code.PROGRAM}


# The document


def test_a_key_that_is_there_twice_is_refused(document: Document) -> None:
    text = encode(document).decode().replace('"mesh":', '"mesh": [2],\n  "mesh":', 1)
    with pytest.raises(UsageError, match="the key 'mesh' is there twice"):
        decode(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_json_is_refused(document: Document, number: str) -> None:
    with pytest.raises(UsageError, match=f"{number} is no number of JSON"):
        decode(
            encode(document).decode().replace('"seed":0', f'"seed":{number}').replace('"seed": 0', f'"seed": {number}')
        )


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63), 1 << 200])
@pytest.mark.parametrize("field", ["offset", "nbytes"])
def test_numbers_past_64_bits_are_refused(document: Document, field: str, value: int) -> None:
    with pytest.raises(UsageError, match="malformed plan"):
        altered(document, lambda raw: raw["buffers"][0].update({field: value}))


def test_an_unknown_field_is_refused_before_anything_is_expanded(document: Document) -> None:
    bomb = [{"repeat": 1 << 40, "items": [{"x": 1}], "step": [[]]}]
    with pytest.raises(UsageError, match="unknown field `more`"):
        altered(document, lambda raw: raw.update(more=bomb))
    with pytest.raises(UsageError, match="more than"):
        altered(document, lambda raw: raw.update(tasks=bomb))


def test_a_layout_of_nothing_is_refused(document: Document) -> None:
    spare = LayoutText(next(iter(document.layouts.values())).regions)
    report = check(replace(document, layouts={**document.layouts, "spare": spare}))
    assert [str(v) for v in report.verdicts] == ["layout: layout spare is of no buffer and no task"]


# Work


def test_a_scalar_operation_lends_no_memo_to_a_block_of_its_structure() -> None:
    """Attention's records may not be cut, whatever operation of the same dimensions and reads was looked at before."""
    from tapestry.planner.check.algebra import Algebra
    from tapestry.planner.check.case import Case
    from tapestry.planner.format.resolve import Resolved

    @tp.program
    def both(q: f32[Tensor, "t h e"], k: f32[Tensor, "t h e"], v: f32[Tensor, "t h e"]) -> Tensor:
        return tp.attention(q, k, v)

    made = plan(both.bind(t=8, h=2, e=4), load_machine("cpu-4"), mesh=(2,)).document
    case = Case(made, Resolved(made).program, {}, Algebra(), {})
    shapes = [case.shape(op) for op in case.program.operations]
    assert len({shape.number for shape in shapes}) == len(case.program.operations)


def copies_without_an_order(count: int) -> Document:
    """One buffer copied into the same other one again and again, on lanes in turn."""
    document = plans.elementwise()
    source = document.buffers[0]
    spare = replace(source, name="spare", initial=None, tier="host", offset=0)
    lanes = ("comm", "h2d", "d2h", "disk")
    copies = tuple(
        Copy(k + 1, lanes[k % len(lanes)], source.tensor, source.name, "spare", source.layout) for k in range(count)
    )
    return replace(document, buffers=(*document.buffers, spare), tasks=(*document.tasks, *copies))


def test_many_tasks_on_one_buffer_take_work_in_proportion() -> None:
    """Twenty thousand in one lane are in order; each is compared with its neighbours only."""
    document = plans.elementwise()
    many = tuple(replace(document.tasks[0], id=k, lane="compute", waits=()) for k in range(20_000))
    report = check(replace(document, tasks=many))
    assert report.codes == {Code.PREDICTED}, str(report)  # it still states what one of them takes


def test_tasks_that_nothing_orders_are_races_and_are_counted() -> None:
    assert Code.RACE in check(copies_without_an_order(20)).codes
    assert {Code.RACE, Code.UNPROVEN} & check(copies_without_an_order(20_000)).codes


def test_scattered_regions_exhaust_the_budget(document: Document) -> None:
    """Each a few kilobytes of text, and met with one another piece by piece."""
    comb = "+".join(f"{k}:{k + 1}" for k in range(0, 8, 2))
    assert check(altered(document, lambda raw: raw["layouts"].update(L0={"regions": [f"{comb},0:6"] * 2}))).codes
    budget = Budget(10)
    budget.spend(5, "pairs")
    with pytest.raises(Exhausted, match="pairs"):
        budget.spend(6, "pairs")


def test_a_region_of_many_grids_is_not_taken_apart(document: Document) -> None:
    """On a diagonal, so that no two of them join."""
    diagonal = " + ".join(f"{2 * k}:{2 * k + 1},{2 * k}:{2 * k + 1}" for k in range(2000))
    report = check(altered(document, lambda raw: raw["layouts"].update(L0={"regions": [diagonal] * 2})))
    assert report.codes == {Code.UNPROVEN}, str(report)


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_no_plan(start: str, end: str) -> None:
    with pytest.raises(UsageError, match="not a complete JSON document"):
        decode('{"format":"tapestry.plan/3","tasks":' + start * 100_000 + "1" + end * 100_000 + "}")


def test_repeats_within_repeats_are_not_expanded(document: Document) -> None:
    def bomb(raw: Json) -> None:
        for _ in range(8):
            raw["tasks"] = [{"repeat": 1000, "items": raw["tasks"][:1], "step": [[]]}]

    with pytest.raises(UsageError, match="malformed plan"):
        altered(document, bomb)


def test_what_is_too_long_for_a_plan_is_not_read() -> None:
    with pytest.raises(UsageError, match="too long for a plan"):
        decode(b" " * (MOST_TEXT + 1))


def test_many_buffers_at_one_place_are_counted(document: Document) -> None:
    """Every pair of them shares memory: more than may be written down."""
    first = document.buffers[0]
    many = tuple(replace(first, name=f"b{k}", initial=None) for k in range(3_000))
    assert check(replace(document, buffers=(*document.buffers, *many))).codes == {Code.UNPROVEN}


def knapsack(dims: int) -> str:
    """Whether some of so many weights add up to a number: hard for any solver of integer sets."""
    total = " + ".join(f"{(7919 * k * k + 104729 * k + 1) % 97 + 3}*v{k}" for k in range(dims))
    other = " + ".join(f"{(6101 * k * k + 15485863 * k + 5) % 89 + 3}*v{k}" for k in range(dims))
    return f"(x[n + 1, 0] if 743 <= {total} < 744 and 617 <= {other} < 618 else 0.0)"


def test_what_isl_would_work_on_for_ever_is_unproven(document: Document) -> None:
    """A read that may leave its tensor where two knapsacks are full at once: proof stops after counted work."""

    def harder(raw: Json) -> None:
        (first, *_), dims = raw["program"]["operations"], 30
        raw["program"]["tensors"].append({"name": "hard", "dtype": "f32", "shape": [8], "role": "value", "axes": ["n"]})
        over = " ".join(f"v{k}" for k in range(dims))
        extents = " ".join(f"v{k}=2" for k in range(dims))
        hard = {"name": "hard", "dims": f"n=8 {extents}", "write": "hard[n]", "monoid": "sum", "over": over}
        raw["program"]["operations"].append({**hard, "body": knapsack(dims), "source": first["source"]})

    report = check(altered(document, harder))
    assert report.codes == {Code.UNPROVEN}, str(report)
    assert "takes more work than it may" in str(report)
