"""The facts behind shard maps, against what the regions of the plan say element by element."""

from __future__ import annotations

import pytest

from tapestry.planner import Plan
from tapestry.planner.views.shardmap import facts
from tapestry.planner.views.shards import ShardMap, shard_maps
from tapestry.program import Tensor
from tapestry.space import Box


def by_name(plan: Plan) -> dict[str, ShardMap]:
    return {found.names[0]: found for found in shard_maps(plan.resolved)}


def test_every_tensor_has_a_map_and_owners_have_every_element(rows: Plan, folded: Plan, gathered: Plan) -> None:
    for plan in (rows, folded, gathered):
        maps = by_name(plan)
        assert list(maps) == [tensor.name for tensor in plan.program.tensors]
        for found in maps.values():
            assert sum(region.size for region, _ in found.owners) >= found.tensor.size
            for home, extra in zip(found.home, found.extra, strict=True):
                assert not home & extra


def test_a_stencil_has_halos_of_one_row(rows: Plan) -> None:
    found = by_name(rows)["first"]
    assert found.thin
    assert found.halo == ((1, 1), (0, 0))
    assert [region.size for region in found.extra] == [64, 128, 128, 64]
    assert facts(found) == "4 shards; halo 1 row on either side (along y); moved by shift"
    assert not any(by_name(rows)["out"].extra)


def test_contributions_are_told_from_copies(folded: Plan) -> None:
    found = by_name(folded)["matmul"]
    assert found.monoid == "sum"
    assert not found.replicated
    assert facts(found).startswith("partial: 4 contributions, folded with sum; ")


def test_what_is_gathered_is_not_a_halo(gathered: Plan) -> None:
    found = by_name(gathered)["w"]
    assert not found.thin
    assert [extra.size for extra in found.extra] == [72 * 32] * 4
    assert found.moves == ("all_gather",)
    assert found.copies == 1


def test_copies_are_counted(whole: Plan) -> None:
    found = by_name(whole)["w"]
    assert found.replicated
    assert found.copies == 4
    assert facts(found) == "×4 copies"


def test_tensors_of_equal_layers_are_one_map(layered: Plan) -> None:
    maps = shard_maps(layered.resolved)
    assert sum(len(found.names) for found in maps) == len(layered.program.tensors)
    weights = [found for found in maps if found.names[0].endswith(".wq")]
    assert [found.name for found in weights] == ["layers.*.wq  × 3"]


@pytest.mark.parametrize(
    ("shape", "background", "axes"), [((8, 427, 640), (427, 640), (1, 2)), ((427, 640, 3), None, (0, 1))]
)
def test_the_axes_drawn_are_those_of_the_picture_or_the_long_ones(
    shape: tuple[int, ...], background: tuple[int, int] | None, axes: tuple[int, ...]
) -> None:
    whole = Box.of_shape(shape).region()
    none = whole - whole
    found = ShardMap(Tensor("t", "f32", shape), ("t",), (whole,), (none,), None, (), "host")
    assert found.axes(background) == axes
