"""Pins on operations and tensors, by pattern, by mesh axis or all of them; what cannot hold is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.planner.cli.pin_file import load_pins
from tapestry.program import Pin, Program


@tp.program
def net(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    h = tp.relu(x)
    y = h @ w
    return tp.tanh(y)


def bound() -> Program:
    return net.bind(n=16, c=12, k=8)


def cut(made: Plan, op: str) -> dict[str, str]:
    return made.document.shardings[op].partition


def lies(made: Plan, tensor: str) -> tuple[str, ...]:
    """Where a tensor lies before the run, per rank."""
    (initial,) = {b.initial for b in made.document.buffers if b.tensor == tensor and b.initial is not None}
    return made.document.layouts[initial].regions


def pin(target: str, pattern: str, **cuts: str | None) -> Pin:
    assert target in ("op", "tensor")
    return Pin("op" if target == "op" else "tensor", pattern, tuple(cuts.items()))


def planned(*pins: Pin, mesh: tuple[int, ...] | dict[str, int] = (4,)) -> Plan:
    made = plan(bound(), "cpu-4", mesh=mesh, pins=pins)
    assert made.check().ok
    return made


@pytest.mark.parametrize("dim", ["n", "k", "c"])
def test_an_operation_is_cut_where_it_is_told_to(dim: str) -> None:
    matmul = next(op for op in bound().operations if op.monoid == "sum")
    names = dict(zip(("n", "k", "c"), (d.name for d in matmul.dims), strict=True))
    assert cut(planned(pin("op", matmul.name, mesh0=names[dim])), matmul.name) == {names[dim]: "mesh0"}


def test_an_operation_is_not_cut_when_told_not_to() -> None:
    made = planned(pin("op", "relu", mesh0=None))
    assert cut(made, "relu") == {}
    assert made.document.shardings["relu"].kind == "replicated"


def test_patterns_match_many() -> None:
    made = planned(pin("op", "*", mesh0="n"))
    assert [list(s.partition) for s in made.document.shardings.values()] == [["n"]] * len(bound().operations)


def test_several_mesh_axes_and_names_of_ones_own() -> None:
    made = planned(pin("op", "tanh", data="n", model="k"), mesh={"data": 2, "model": 2})
    assert made.document.mesh_axes == ("data", "model")
    assert cut(made, "tanh") == {"n": "data", "k": "model"}


def test_two_mesh_axes_may_cut_one_dimension() -> None:
    assert cut(planned(pin("op", "tanh", mesh0="n", mesh1="n"), mesh=(2, 2)), "tanh") == {"n": "mesh0,mesh1"}


def test_a_star_stands_for_every_mesh_axis_not_named() -> None:
    assert cut(planned(Pin("op", "tanh", (("*", None),)), mesh=(2, 2)), "tanh") == {}
    some = planned(Pin("op", "tanh", (("mesh1", "k"), ("*", None))), mesh=(2, 2))
    assert cut(some, "tanh") == {"k": "mesh1"}


def test_a_tensor_lies_where_it_is_pinned() -> None:
    assert lies(planned(pin("tensor", "w", mesh0="c")), "w") == tuple(f"{3 * r}:{3 * r + 3},0:8" for r in range(4))
    assert lies(planned(pin("tensor", "w", mesh0=None)), "w") == ("0:12,0:8",) * 4
    assert lies(planned(pin("tensor", "x", mesh0="1")), "x") == tuple(f"0:16,{3 * r}:{3 * r + 3}" for r in range(4))


def test_at_zero_only_the_first_coordinate_has_it() -> None:
    first, *others = lies(planned(pin("tensor", "x", mesh0="@0")), "x")
    assert first == "0:16,0:12"
    assert len(set(others)) == 1
    assert others[0] not in (first, "0:16,0:3")


def test_a_value_is_written_where_it_is_pinned() -> None:
    matmul = next(op for op in bound().operations if op.monoid == "sum")
    made = planned(pin("tensor", matmul.output, mesh0="k"))
    assert list(cut(made, matmul.name).values()) == ["mesh0"]
    assert cut(made, matmul.name).keys() <= {d.name for d in matmul.dims if d.name not in matmul.reduce_dims}


def test_zigzag() -> None:
    made = planned(Pin("op", "relu", (("mesh0", "n"),), "zigzag"))
    assert made.document.shardings["relu"].kind == "zigzag"
    shards = next(t.shards for t in made.document.tasks if getattr(t, "op", None) == "relu")
    assert made.document.layouts[shards].regions[0] == "0:2|14:16,0:12"


@tp.program
def pinned_inside(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    """Pins in the program itself."""
    h = tp.shard(tp.relu(x), mesh0="c")
    return tp.tanh(h @ tp.replicate(w))


def test_pins_of_the_program_hold_beside_those_given() -> None:
    program = pinned_inside.bind(n=16, c=12, k=8)
    made = plan(program, "cpu-4", pins=(pin("op", "tanh", mesh0="k"),))
    assert made.check().ok
    assert cut(made, "relu") == {"c": "mesh0"}
    assert list(cut(made, "tanh")) == ["k"]
    assert lies(made, "w") == ("0:12,0:8",) * 4
    assert len(made.program.pins) == 3


def test_pins_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(
        '[[pin]]\nop = "relu"\ncut = { data = "c" }\nwhole = ["model"]\n\n[[pin]]\ntensor = "w"\nwhole = ["*"]\n',
        encoding="utf-8",
    )
    made = planned(*load_pins(path), mesh={"data": 2, "model": 2})
    assert cut(made, "relu") == {"c": "data"}
    assert lies(made, "w") == ("0:12,0:8",) * 4


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ([pin("op", "reluu", mesh0="n")], ["pin of op 'reluu'"]),
        ([pin("tensor", "ww", mesh0="c")], ["pin of tensor 'ww'"]),
        ([pin("op", "relu", mesh7="n")], ["'relu'", "'mesh7'", "mesh0"]),
        ([pin("op", "relu", mesh0="z")], ["op 'relu'", "mesh0 = 'z'", "n, c"]),
        ([pin("tensor", "w", mesh0="z")], ["tensor 'w'", "no axis 'z'", "c, k"]),
        ([pin("tensor", "w", mesh0="7")], ["tensor 'w'", "no axis '7'"]),
        ([pin("op", "relu", mesh0="n"), pin("op", "re*", mesh0="c")], ["operation relu", "mesh0 = n; mesh0 = c"]),
        ([pin("op", "relu", mesh0="n"), pin("op", "relu", mesh0=None)], ["operation relu", "no strategy"]),
        ([pin("tensor", "w", mesh0="c"), pin("tensor", "w", mesh0="k")], ["tensor w", "mesh0 = c; mesh0 = k"]),
        ([pin("op", "relu", mesh0="n"), pin("tensor", "h", mesh0="c")], ["operation relu", "no strategy"]),
        ([Pin("op", "relu", (("mesh0", "n"),), "zigzag"), pin("op", "relu", mesh0="n")], ["operation relu"]),
    ],
    ids=lambda value: ", ".join(str(v) if isinstance(v, str) else v.pattern for v in value),
)
def test_pins_that_cannot_hold(pins: list[Pin], said: list[str]) -> None:
    with pytest.raises(UsageError) as failed:
        planned(*pins)
    assert str(failed.value).startswith("pin")
    for text in said:
        assert text in str(failed.value)
