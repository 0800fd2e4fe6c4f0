"""Where transfers are exposed, the planner computes in pieces; elsewhere it leaves operations whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, param
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.cli.plan_text import plan_text
from tapestry.planner.format import Transfer
from tapestry.planner.machine import Machine
from tapestry.planner.search import pieces as pieces_of_search
from tapestry.planner.search import search
from tapestry.program import Pin, Program

from .test_rivals import bound

# Rates that stay what they are, whatever is measured of the packaged machine.
DESCRIBED = Path(__file__).parent / "described_h200x8.toml"


@tp.program
def product(a: bf16[Tensor, "m k"], b: bf16[Tensor, "k n"]) -> Tensor:
    return a @ b


@tp.program
def blurred(x: f32[Tensor, "1 c h w"], f: param[f32[Tensor, "c c 3 3"]], g: param[f32[Tensor, "c c 3 3"]]) -> Tensor:
    """Two convolutions, the second with strides, and a pooling."""
    h = tp.relu(tp.conv2d(x, f, padding=1))
    return tp.max_pool2d(tp.conv2d(h, g, stride=2, padding=1), 3, stride=2)


@tp.program
def image(
    x: bf16[Tensor, "1 c h w"], f: param[bf16[Tensor, "c c taps taps"]], g: param[bf16[Tensor, "c c taps taps"]]
) -> Tensor:
    """Two convolutions that leave an image as large as it is."""
    padding = f.shape[2] // 2
    return tp.conv2d(tp.relu(tp.conv2d(x, f, padding=padding)), g, padding=padding)


def planned(program: Program, machine: Machine, mesh: tuple[int, ...] | None = None) -> Plan:
    made = plan(program, machine, mesh=mesh)
    assert made.check().ok, str(made.check())
    return made


def whole(program: Program, machine: Machine, mesh: tuple[int, ...]) -> Plan:
    """The plan without pieces."""
    return plan(program, machine, mesh=mesh, pieces=False)


def seconds(made: Plan) -> float:
    return made.document.predicted.makespan_s


def pieces(made: Plan) -> dict[str, int]:
    return {op: len(tasks) for op, tasks in made.resolved.computing.items()}


@pytest.mark.parametrize(("n", "at_most"), [(16384, 2.01e-3), (32768, 11.9e-3)])
def test_a_large_product_hides_what_it_moves(n: int, at_most: float) -> None:
    """By hand, in pieces, these take so long on eight devices in a row."""
    program, machine = product.bind(m=n, k=n, n=n), load_machine(DESCRIBED)
    made = planned(program, machine, (8,))
    assert seconds(made) <= at_most
    assert seconds(made) < 0.8 * seconds(whole(program, machine, (8,)))
    assert made.document.traffic.bytes_total == 7 * n * n * 2, "no more is moved than without pieces"
    assert "pieces" in plan_text(made)
    assert f"in {pieces(made)['matmul']} pieces" in str(made.explain())


@pytest.mark.parametrize("ranks", [2, 4])
def test_halos_are_exchanged_while_the_inside_is_computed(ranks: int) -> None:
    """Of layers with strides and pooling too."""
    machine = load_machine("cpu-4")
    slower = replace(machine, links=tuple(replace(link, latency_s=1e-4, curve=()) for link in machine.links))
    program = blurred.bind(c=8, h=256, w=256)
    made = planned(program, slower, (ranks,))
    assert seconds(made) < 0.8 * seconds(whole(program, slower, (ranks,)))
    for op in ("conv2d", "conv2d_1", "max_pool2d"):
        first, *border = made.resolved.computing[op]
        read = program.op_by_name[op].operands[0]
        halos = {task.id for task in made.document.tasks if isinstance(task, Transfer) and task.tensor == read}
        assert halos
        assert border
        assert not halos & {*first.waits}
        assert halos & {wait for task in border for wait in task.waits}


@pytest.mark.parametrize(("channels", "size", "taps"), [(64, 2048, 3), (32, 2048, 5)])
def test_what_hides_its_halos_is_preferred_to_what_has_the_smaller_ones(channels: int, size: int, taps: int) -> None:
    """Blocks of an image have shorter borders than rows, but corners on two sides, and so pieces that wait."""
    program = image.bind(c=channels, h=size, w=size, taps=taps)
    machine = replace(load_machine("h200x8-2node"), devices_per_host=4)
    rows = [Pin("op", op.name, (("mesh0", "p"), ("mesh1", "p"))) for op in program.operations]
    by_hand = plan(program, machine, mesh=(2, 4), pins=rows)
    assert seconds(planned(program, machine, (2, 4))) <= seconds(by_hand)


@pytest.mark.parametrize(("size", "ranks"), [(896, 2), (1024, 4)])
def test_a_border_is_made_first_by_all_that_lead_to_it(size: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to send than the last of them, and the inside of what waits for it, take together: or what
    follows goes on with the inside, which is another way.
    """
    monkeypatch.setattr(pieces_of_search.PieceSearch, "_further", lambda *_: iter(()))
    program = bound("convnet", "forward", n=1, y=size, x=size, blocks=2)
    made = planned(program, load_machine(DESCRIBED), (ranks,))
    last, before, reader = (program.op_by_name[f"blocks.{name}"] for name in ("0.add", "0.shrunk", "1.depthwise"))
    assert pieces(made)[before.name] == pieces(made)[last.name] > pieces(made)[reader.name] == 1
    (halo,) = (t for t in made.document.tasks if isinstance(t, Transfer) and t.tensor == last.output)
    for op in (before, last):
        *borders, inside = made.resolved.computing[op.name]
        assert max(task.id for task in borders) <= max(halo.waits) < inside.id


def test_what_follows_goes_on_with_the_inside_while_a_border_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A border takes longer to come than the inside of the window that reads it, and less than those of all behind."""
    program, machine = bound("convnet", "forward", n=1, y=896, x=896), load_machine("h200x8")
    made = planned(program, machine, (8,))
    inside, *borders = made.resolved.computing["blocks.0.depthwise"]
    begun, *_ = made.resolved.computing["blocks.0.layer_norm.mean"]
    assert inside.id < begun.id < min(task.id for task in borders)
    monkeypatch.setattr(pieces_of_search.PieceSearch, "_further", lambda *_: iter(()))
    assert seconds(made) < 0.99 * seconds(planned(program, machine, (8,)))


def test_nothing_is_cut_where_nothing_waits() -> None:
    made = planned(product.bind(m=512, k=512, n=512), load_machine(DESCRIBED))
    assert set(pieces(made).values()) == {1}
    assert "pieces" not in plan_text(made)


def test_pieces_hide_nothing_where_a_device_does_one_thing_at_a_time() -> None:
    machine = load_machine(DESCRIBED)
    alone = replace(machine, device=replace(machine.device, overlap=False))
    assert set(pieces(planned(product.bind(m=8192, k=8192, n=8192), alone, (8,))).values()) == {1}


def test_the_same_pieces_every_time() -> None:
    program, machine = product.bind(m=8192, k=8192, n=8192), load_machine(DESCRIBED)
    assert planned(program, machine, (8,)).to_json() == planned(program, machine, (8,)).to_json()


def test_pieces_that_hide_nothing_are_put_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are cut alike, and the first alone waits for what its pieces hide."""
    program = bound("convnet", "forward", n=1, y=2048, x=2048)
    monkeypatch.setattr(search, "shifted", lambda _, found: found)
    again = planned(program, load_machine(DESCRIBED), (4,))
    monkeypatch.setattr(pieces_of_search, "whole_again", lambda _, found: found)
    alike = planned(program, load_machine(DESCRIBED), (4,))
    assert seconds(again) < seconds(alike)
    assert sum(pieces(again).values()) < sum(pieces(alike).values())
