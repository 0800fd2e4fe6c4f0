"""What people know by name is found where it is the optimum, and moves what its closed form says."""

from __future__ import annotations

from math import isclose, prod

import pytest

from tapestry.planner import Plan, plan
from tapestry.planner.format import Compute

from .named import CASES, Described, Named, product
from .named_page import PATH, text

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def homes(made: Plan) -> dict[str, int]:
    """How many different shares of each tensor there are before the run."""
    document = made.document
    held = {b.tensor: document.layouts[b.initial].regions for b in document.buffers if b.initial is not None}
    return {name: len(set(regions)) for name, regions in held.items()}


@every
def test_it_moves_what_its_closed_form_says(case: Named) -> None:
    traffic = case.plan().document.traffic
    assert traffic.bytes_total == case.traffic
    assert set(traffic.bytes_by_kind) <= case.kinds


@every
def test_operations_are_cut_as_its_name_says(case: Named) -> None:
    made = case.plan()
    found = made.document.shardings
    assert {op: dict(found[op].partition) for op in case.cut} == {op: dict(cut) for op, cut in case.cut.items()}
    lies = homes(made)
    assert {name: lies[name] for name in case.homes} == dict(case.homes)


@every
def test_it_is_proved(case: Named) -> None:
    report = case.plan().check()
    assert report.ok, str(report)


def test_causal_attention_is_balanced() -> None:
    (case,) = (case for case in CASES if "causal" in case.name)
    assert case.plan().document.shardings["attention.state"].kind == "zigzag"


def test_a_pipeline_passes_tokens_on_in_pieces() -> None:
    (case,) = (case for case in CASES if case.name == "pipeline")
    computed = [task for task in case.plan().document.tasks if isinstance(task, Compute)]
    on = {task.op: task.ranks for task in computed}
    assert on == {name: (int(name.split(".")[1]),) for name in case.program.op_by_name}
    assert len(computed) >= 4 * len(on)


def test_the_page_shows_the_plans() -> None:
    assert PATH.read_text(encoding="utf-8") == text(), "make docs-parallelisms writes it"


# A cube, one large face, two large faces, a long reduction.
SHAPES = {
    "cube": (64, 64, 64),
    "flat": (512, 512, 16),
    "tall": (1024, 16, 16),
    "deep": (16, 16, 1024),
}
SQUARES = {4: (2, 2), 8: (4, 2), 16: (4, 4)}


def least(m: int, n: int, k: int, ranks: int) -> float:
    """Elements that any schedule of a product receives, all ranks together, with memory to spare: Al Daas et al.,
    "Tight memory-independent parallel matrix multiplication communication lower bounds", SPAA 2022."""
    long, middle, short = sorted((m, n, k), reverse=True)
    if ranks <= long / middle:
        touched = (long * middle + long * short) / ranks + middle * short
    elif ranks <= long * middle / short**2:
        touched = 2 * (long * middle * short**2 / ranks) ** 0.5 + long * middle / ranks
    else:
        touched = 3 * (m * n * k / ranks) ** (2 / 3)
    return ranks * touched - m * n - m * k - n * k


def on_grids(m: int, n: int, k: int, ranks: int) -> float:
    """Elements that the best grid of equal boxes receives: no number of ranks but a cube has a cube's grid."""
    found = []
    for over_m in (d for d in range(1, ranks + 1) if ranks % d == 0):
        for over_n in (d for d in range(1, ranks // over_m + 1) if ranks // over_m % d == 0):
            over_k = ranks // over_m // over_n
            a, b = m * k / (over_m * over_k) * (1 - 1 / over_n), k * n / (over_k * over_n) * (1 - 1 / over_m)
            found.append(ranks * (a + b + m * n / (over_m * over_n) * (1 - 1 / over_k)))
    return min(found)


def received(m: int, n: int, k: int, mesh: tuple[int, ...], objective: str = "time") -> float:
    """Elements that a plan moves where moving is all that takes time."""
    machine = Described(prod(mesh), tflops=1.0, gb_per_s=0.1, latency_us=0.001).machine()
    made = plan(product.bind(m=m, n=n, k=k), machine, mesh=mesh, objective=objective, time_limit=600)
    assert made.check().ok
    return made.document.traffic.bytes_total / 4


@pytest.mark.parametrize("shape", ["flat", "tall", "deep"])
@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_a_product_receives_what_any_must(shape: str, ranks: int) -> None:
    m, n, k = SHAPES[shape]
    m *= 2 if (shape, ranks) == ("flat", 8) else 1  # twice as long as wide, as its grid
    assert received(m, n, k, SQUARES[ranks] if shape == "flat" else (ranks,)) <= 1.05 * least(m, n, k, ranks)


@pytest.mark.parametrize(("mesh", "over"), [((2, 2), 1.136), ((2, 2, 2), 1.001), ((2, 2, 4), 1.097)])
def test_a_cube_receives_what_the_best_grid_does(mesh: tuple[int, ...], over: float) -> None:
    """On 8 ranks that is what any schedule must; 4 and 16 have no grid of cubes, whose faces are the least. Where
    seconds count, all wait for the busiest rank, and a grid has none."""
    ranks = prod(mesh)
    moved = received(64, 64, 64, mesh)
    assert isclose(moved, on_grids(64, 64, 64, ranks))
    assert moved <= over * least(64, 64, 64, ranks)


@pytest.mark.parametrize("ranks", [7, 9, 10, 11, 13, 16])
def test_a_cube_receives_what_any_must_in_boxes(ranks: int) -> None:
    """In boxes of equal work and unequal sides, where no grid of so many ranks has sides that are near."""
    assert on_grids(64, 64, 64, ranks) > 1.05 * least(64, 64, 64, ranks)
    assert received(64, 64, 64, (ranks,), "bytes") <= 1.05 * least(64, 64, 64, ranks)


@pytest.mark.long
@pytest.mark.parametrize(("shape", "mesh"), [("cube", (4, 4, 4)), ("flat", (8, 8)), ("tall", (64,)), ("deep", (64,))])
def test_so_does_a_product_on_sixty_four(shape: str, mesh: tuple[int, ...]) -> None:
    m, n, k = SHAPES[shape]
    assert received(m, n, k, mesh) <= 1.05 * least(m, n, k, 64)
