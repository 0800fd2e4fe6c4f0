"""What transfers take at least is no more than what they are priced at, for all pairs of layouts of a tensor."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import load_machine
from tapestry.planner.search.question import Question
from tapestry.planner.strategy.layouts import Layout, relate
from tapestry.planner.strategy.least import Least
from tapestry.planner.strategy.mesh import SINGLE, Cut, Mesh
from tapestry.records import Width
from tapestry.space import Box, Region

MESHES = [("h200x8", (4,)), ("h200x8", (2, 2)), ("h200x8-2node", (2, 8)), ("h200x8-2node", (4, 4)), ("cpu-4", (4,))]


@tp.program
def multiplied(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.einsum("nc,ck->nk", x, w)


def layouts(question: Question) -> tuple[list[Layout], list[Layout]]:
    """Layouts of a tensor that are there: whole, cut, in zigzag, with one rank, in parts; and those that are needed."""
    program, options = question.program, [Cut("0"), Cut("0", "zigzag"), Cut("1"), None]
    shape = program.tensor(program.operations[0].output).shape
    cuts = [c for c in product(options, repeat=len(question.mesh.shape)) if len({k.kind for k in c if k}) <= 1]
    needed = [question.layouts.cut(shape, each) for each in cuts]
    single = question.layouts.cut(shape, (Cut(SINGLE),) * len(question.mesh.shape))
    op = program.operations[0]
    made = [question.table.strategy(op, each).writes for each in question.table.candidates(op)]
    return list(dict.fromkeys([*needed, single, *made])), list(dict.fromkeys([*needed, single]))


@pytest.mark.parametrize("size", [(64, 64, 64), (4096, 4096, 8192)])
@pytest.mark.parametrize(("machine", "mesh"), MESHES)
def test_no_price_is_below(machine: str, mesh: tuple[int, ...], size: tuple[int, int, int]) -> None:
    model = load_machine(machine)
    program = multiplied.bind(n=size[0], c=size[1], k=size[2])
    question = Question.of(program, model, Mesh.of(mesh, model.device_count))
    haves, needs = layouts(question)
    for width in (Width(4, 4, packed=False), Width(2, 4, packed=False)):
        least = Least(question.pricing).seconds(haves, needs, width, relate(haves, needs))
        priced = np.array([[question.pricing.move(have, need, width).seconds for need in needs] for have in haves])
        assert (least <= priced * (1 + 1e-9)).all()
        assert ((least > 0) == (priced > 0)).all()
        assert least.sum() > priced.sum() / 20  # it says something


@pytest.mark.parametrize("size", [(64, 64, 64), (4096, 4096, 8192)])
@pytest.mark.parametrize("mesh", [(2, 2, 2), (4, 2)])
def test_what_is_known_at_once_is_the_price(mesh: tuple[int, ...], size: tuple[int, int, int]) -> None:
    """Over hosts, where paths are looked for by pair; and what is not known costs no less than is said."""
    model = replace(load_machine("h200x8-2node"), devices_per_host=4)
    program = multiplied.bind(n=size[0], c=size[1], k=size[2])
    question = Question.of(program, model, Mesh.of(mesh, model.device_count))
    assert question.pricing.by_pair
    haves, needs = layouts(question)
    for width in (Width(4, 4, packed=False), Width(2, 4, packed=False)):
        least, known = question.pricing.at_least(haves, needs, width)
        priced = np.array([[question.pricing.move(have, need, width).seconds for need in needs] for have in haves])
        assert np.allclose(least[known], priced[known], rtol=1e-9, atol=0)
        assert (least <= priced * (1 + 1e-9)).all()
        assert known.any()
        assert not known.all()
        assert np.allclose(question.pricing.costs(haves, needs, width)[0], priced, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("machine", "mesh"), [("h200x8", (4,)), ("h200x8-2node", (2, 8))])
def test_corners_are_priced_in_numbers_of_one_kind(machine: str, mesh: tuple[int, ...]) -> None:
    """Regions of several grids are counted in Python's integers."""
    model = load_machine(machine)
    question = Question.of(multiplied.bind(n=64, c=64, k=64), model, Mesh.of(mesh, model.device_count))
    corner = Region.union([Box((0, 0), (2, 4)).region(), Box((0, 0), (4, 2)).region()])
    layout = question.layouts.of((4, 4), [corner] * question.mesh.size)
    whole = question.layouts.replicated((4, 4))
    least, known = question.pricing.at_least([layout], [whole, layout], Width(4, 4))
    assert least.dtype == np.float64
    assert known.tolist() == [[not question.pricing.near, True]]
