"""Where no mesh is asked for, the planner finds how many devices, and in which rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.errors import Infeasible
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.cli.plan_text import plan_text
from tapestry.planner.search.meshes import finer_meshes, plain_meshes, shares
from tapestry.program import Pin, Program

from .test_rivals import bound

# Rates that stay what they are, whatever is measured of the packaged machine.
DESCRIBED = Path(__file__).parent / "described_h200x8.toml"


@tp.program
def product(a: bf16[Tensor, "m k"], b: bf16[Tensor, "k n"]) -> Tensor:
    return a @ b


def seconds(made: Plan) -> float:
    return made.document.predicted.makespan_s


def square(n: int) -> Program:
    return product.bind(m=n, k=n, n=n)


def test_one_for_each_number_of_devices() -> None:
    assert plain_meshes(load_machine("h200x8")) == [(8,), (4,), (2,), (1,)]
    assert plain_meshes(load_machine("h200x8-2node")) == [(8,), (4,), (2,), (1,), (2, 8)]
    assert plain_meshes(load_machine("h200")) == [(1,)]


def test_and_for_each_number_that_something_short_is_divided_into() -> None:
    machine = load_machine("h200x8")
    assert shares(square(4096), 8) == []
    assert shares(product.bind(m=6, k=4096, n=4096), 8) == [2, 3, 6]
    assert plain_meshes(machine, [2, 3, 6]) == [(8,), (6,), (4,), (3,), (2,), (1,)]
    assert (3, 2) in plain_meshes(replace(machine, hosts=4, devices_per_host=2), [3])


def test_no_mesh_has_more_ranks_than_any_may() -> None:
    meshes = plain_meshes(replace(load_machine("h200x8"), devices_per_host=100_000))
    assert (4000,) in meshes
    assert max(map(max, meshes)) == 4000


@tp.program
def normalized(x: f32[Tensor, "n c"]) -> Tensor:
    for _ in range(3):
        x = tp.softmax(x, axis=1)
    return x


def test_four_devices_are_no_slower_than_three_for_three_rows() -> None:
    machine, program = load_machine("cpu-4"), normalized.bind(n=3, c=4096)
    found = [plan(program, replace(machine, devices_per_host=count), time_limit=600) for count in (1, 2, 3, 4)]
    times = [seconds(made) for made in found]
    assert times == sorted(times, reverse=True)
    assert found[-1].document.mesh == (3,)


def test_rows_of_a_host_are_taken_apart() -> None:
    one, two = load_machine("h200x8"), load_machine("h200x8-2node")
    assert finer_meshes((8,), one) == [(4, 2)]
    assert finer_meshes((4, 2), one) == [(2, 2, 2)]
    assert finer_meshes((2,), one) == []
    assert finer_meshes((2, 8), two) == [(2, 4, 2), (16,)]


@pytest.mark.parametrize(("n", "ranks"), [(1024, 1), (16384, 8)])
def test_a_small_product_takes_one_device_a_large_one_all(n: int, ranks: int) -> None:
    made = plan(square(n), "h200x8", time_limit=600)
    assert made.resolved.size == ranks
    assert seconds(made) <= min(seconds(plan(square(n), "h200x8", mesh=m, time_limit=600)) for m in ((8,), (4,), (1,)))


def test_a_network_that_eight_devices_slow_down_takes_four() -> None:
    made = plan(bound("convnet", "forward"), DESCRIBED, time_limit=600)
    assert made.document.mesh == (4,)
    [row] = [found.seconds for found in made.document.claims.tried if found.mesh == (8,)]
    assert row is not None
    assert seconds(made) < 0.95 * row
    assert made.check().ok


def test_slow_links_between_hosts_are_not_crossed_for_little() -> None:
    made = plan(bound("llama", "forward", layers=1), "h200x8-2node", time_limit=600)
    assert made.document.mesh == (8,)
    tried = {found.mesh: found.seconds for found in made.document.claims.tried}
    assert tried[8,] == seconds(made)
    assert all(found is None or found >= seconds(made) for found in tried.values())


@tp.program
def diffused(u: f32[Tensor, "y x"], k: f32[Tensor, "y x"]) -> Tensor:
    """A step of a stencil."""

    @tp.op
    def laplace(u: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
        y, x = tp.indices("y x")
        return u.get[y - 1, x] + u.get[y + 1, x] + u.get[y, x - 1] + u.get[y, x + 1] - 4.0 * u[y, x]

    return u + 0.2 * k * laplace(u)


def test_of_meshes_that_take_equally_long_the_one_with_fewer_rows_is_taken() -> None:
    made = plan(diffused.bind(y=512, x=512), "cpu-4", time_limit=600)
    tried = {found.mesh: found.seconds for found in made.document.claims.tried}
    assert tried[4,] == tried[2, 2] == seconds(made)
    assert made.document.mesh == (4,)


def test_what_the_others_would_give_is_said() -> None:
    made = plan(square(1024), DESCRIBED, time_limit=600)
    assert "this one of 4 tried: 8 72.1" in plan_text(made)


def test_more_memory_or_more_devices_are_never_slower() -> None:
    few, many = (plan(square(4096), machine, time_limit=600) for machine in ("h200", "h200x8"))
    assert seconds(many) <= seconds(few)
    tight, wide = (plan(square(4096), "h200x8", memory={"hbm": size}, time_limit=600) for size in ("40MiB", "141GB"))
    assert seconds(wide) <= seconds(tight)


def test_what_fits_on_no_mesh_is_infeasible() -> None:
    with pytest.raises(Infeasible):
        plan(square(4096), "h200x8", memory={"hbm": "1MiB", "host": 0}, time_limit=600)


def test_pins_speak_of_one_row_of_all_devices() -> None:
    made = plan(square(1024), "h200x8", pins=(Pin("op", "*", (("mesh0", "m"),)),), time_limit=600)
    assert made.document.mesh == (8,)
    assert made.document.claims.tried == ()


def test_a_plan_on_a_given_mesh_has_the_fields_that_it_always_had() -> None:
    """Documents, and digests of them, that were written before meshes were tried stay as they are."""
    assert b'"meshes"' not in plan(square(1024), "h200x8", mesh=(2,), time_limit=600).to_json()
    assert b'"meshes"' in plan(square(1024), "h200x8", time_limit=600).to_json()
