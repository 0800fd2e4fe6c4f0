"""Partitions: what the shards are, that they are proved, and that a failed proof names a point and the shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.expr import Affine, Bound
from tapestry.space import (
    Box,
    CutBy,
    Grid,
    IndexSet,
    IntSet,
    Partition,
    PartitionError,
    Region,
    prove_regions,
    prove_relation,
)
from tapestry.space.cuts import Block, CutKind, Cyclic, Rule, Table, Zigzag, balanced
from tapestry.space.partition import NamedCut
from tapestry.space.polyhedral import read_map
from tapestry.testing.spaces import points, regions

D = Affine.dim
CAUSAL = Bound(D("s") - D("t"), None, 1)


def cut(extents: Sequence[int], parts: int, kind: CutKind) -> Partition:
    """The first axis, in parts of a kind."""
    return Partition.by_kinds(extents, (parts,), [NamedCut(0, kind, (0,))])


def is_partition(shards: Sequence[Region], domain: Region) -> bool:
    """By enumeration."""
    listed = [point for shard in shards for point in points(shard)]
    return len(listed) == len(set(listed)) and set(listed) == points(domain)


RULES: list[Callable[[int, int, int], Rule]] = [
    lambda parts, lo, hi: Block(parts),
    lambda parts, lo, hi: Zigzag(parts),
    lambda parts, lo, hi: Cyclic(parts),
    lambda parts, lo, hi: Cyclic(parts, 3),
    lambda parts, lo, hi: balanced(lo, hi, parts, lambda c: (c - lo) ** 2),
]


@given(st.sampled_from(RULES), st.integers(1, 9), st.integers(-3, 3), st.integers(0, 20))
def test_every_rule_partitions_every_interval(
    rule: Callable[[int, int, int], Rule], parts: int, lo: int, extent: int
) -> None:
    partition = Partition.product(Box((lo,), (lo + extent,)), (parts,), [CutBy(0, rule(parts, lo, lo + extent))])
    assert is_partition(partition.shards(), partition.domain)
    partition.prove()
    prove_regions(partition.shards(), partition.domain)


@pytest.mark.parametrize("rule", [Block(3), Zigzag(3), Cyclic(3), Cyclic(3, 2)])
@pytest.mark.parametrize(("lo", "hi"), [(0, 10), (-5, 12), (2**33, 2**33 + 7), (4, 4)])
def test_each_part_is_what_its_isl_condition_says(rule: Block | Zigzag | Cyclic, lo: int, hi: int) -> None:
    """The proof speaks of the same shards as the planner, by number."""
    for r in range(3):
        stated = IndexSet.parse(f"{{ [x] : {lo} <= x < {hi} and {rule.condition('x', str(r), lo, hi)} }}")
        assert IndexSet.of(("x",), Grid((rule.part(r, lo, hi),))).same(stated)


@given(st.sampled_from(RULES), st.sampled_from(RULES), regions(3, most=2))
def test_products_over_mesh_axes_partition_any_region(
    first: Callable[[int, int, int], Rule], second: Callable[[int, int, int], Rule], domain: Region
) -> None:
    hull = domain.hull() if domain else Box((0,) * 3, (0,) * 3)
    cuts = [
        CutBy(2, first(4, hull.lo[2], hull.hi[2]), (0, 2)),
        CutBy(0, second(3, hull.lo[0], hull.hi[0]), (1,)),
    ]
    partition = Partition.product(domain, (2, 3, 2), cuts)
    assert is_partition(partition.shards(), domain)
    assert partition.shards() == [partition.shard(k) for k in range(partition.count)]
    partition.prove()
    partition.prove_by_relation()


@pytest.mark.parametrize(("extent", "parts", "sizes"), [(10, 4, [2, 3, 2, 3]), (8, 3, [2, 3, 3])])
def test_splitting_10_by_4_and_8_by_3(extent: int, parts: int, sizes: list[int]) -> None:
    partition = cut((extent,), parts, "block")
    assert [shard.size for shard in partition.shards()] == sizes
    partition.prove()


def test_more_parts_than_elements() -> None:
    partition = cut((3,), 8, "block")
    assert sorted(shard.size for shard in partition.shards()) == [0] * 5 + [1] * 3
    partition.prove()


def test_the_proof_of_floor_cuts_is_flat_in_shards_and_extents() -> None:
    cut((2**40 + 1, 3), 2**20 + 7, "block").prove()
    cut((2**33,), 4096, "zigzag").prove()
    mesh = Partition.product((2**33, 4096), (64, 512), [CutBy(0, Block(64), (0,)), CutBy(1, Zigzag(512), (1,))])
    mesh.prove()


def test_spaces_without_dimensions_or_points() -> None:
    scalar = Partition.product((), (), [])
    scalar.prove()
    assert scalar.shard(0).size == 1
    empty = cut((0, 4), 3, "block")
    empty.prove()
    assert [shard.size for shard in empty.shards()] == [0, 0, 0]


def test_numbering_is_row_major_over_the_mesh() -> None:
    partition = Partition.product((4, 6), (2, 3), [CutBy(0, Block(2), (0,)), CutBy(1, Block(3), (1,))])
    assert partition.coordinates(5) == (1, 2)
    assert str(partition.shard(1)) == "0:2,2:4"
    with pytest.raises(IndexError):
        partition.shard(6)


def test_mesh_axes_of_one_device_need_no_cut() -> None:
    partition = Partition.product((8,), (1, 2), [CutBy(0, Block(2), (1,))])
    assert [str(shard) for shard in partition.shards()] == ["0:4", "4:8"]
    partition.prove()


def test_zigzag_and_balanced_cuts_share_a_triangle_fairly() -> None:
    triangle, fair = (
        Partition.by_kinds((n, n), (4,), [NamedCut(0, kind, (0,))], ("t", "s"), [CAUSAL])
        for n, kind in ((512, "zigzag"), (1000, "balanced"))
    )
    counts = [[IndexSet.of(("t", "s"), part, [CAUSAL]).count().value for part in p.shards()] for p in (triangle, fair)]
    assert set(counts[0]) == {512 * 513 // 2 // 4}
    assert sum(counts[1]) == 500500
    assert max(counts[1]) - min(counts[1]) <= 1000  # one row
    for partition in (triangle, fair):
        partition.prove()
        partition.prove_by_relation()


CORNERS = [Box((k, k), (k + 1, k + 1)).region() for k in (0, 0, 1, 1)]


def test_four_shards_of_one_point_do_not_cover_four_points() -> None:
    """Shards {(0,0)} twice and {(1,1)} twice have as many points as 2 x 2, and are no partition of it."""
    with pytest.raises(PartitionError, match="overlap") as caught:
        prove_regions(CORNERS, Box((0, 0), (2, 2)))
    assert (caught.value.point, caught.value.shards) == ((0, 0), (0, 1))
    with pytest.raises(PartitionError, match="do not cover") as caught:
        prove_regions(CORNERS[1:3], Box((0, 0), (2, 2)))
    assert caught.value.point in {(0, 1), (1, 0)}
    assert caught.value.shards == ()
    relation = read_map("{ [r] -> [x, x] : 0 <= r < 4 and x = floor(r/2) }")
    with pytest.raises(PartitionError, match="do not cover") as caught:
        prove_relation(relation, IndexSet.where({"i": 2, "j": 2}))
    assert caught.value.point in {(0, 1), (1, 0)}


@given(st.integers(0, 2).flatmap(lambda n: st.tuples(regions(n), st.lists(regions(n), max_size=4))))
def test_explicit_shards_are_proved_iff_they_partition(case: tuple[Region, list[Region]]) -> None:
    domain, shards = case
    if is_partition(shards, domain):
        prove_regions(shards, domain)
        return
    with pytest.raises(PartitionError) as caught:
        prove_regions(shards, domain)
    holders = [k for k, shard in enumerate(shards) if shard.contains(caught.value.point)]
    assert set(caught.value.shards) <= set(holders)
    assert len(holders) != 1 or not domain.contains(caught.value.point)


@given(regions(2), st.integers(1, 4), st.data())
def test_pieces_cut_at_random_are_proved(domain: Region, parts: int, data: st.DataObject) -> None:
    shards, left = [], domain
    for _ in range(parts):
        shards.append(left & data.draw(regions(2, most=2)))
        left = left - shards[-1]
    prove_regions([*shards, left], domain)


@pytest.mark.parametrize(
    ("rank", "row", "column", "reason", "shards"),
    [
        (range(3), range(1), range(4), "do not cover", 0),
        (range(4), range(2), range(4), "leaves", 1),
        (range(4), range(1), range(5), "leaves", 1),
        (range(4), range(-1, 1), range(4), "leaves", 1),
    ],
)
def test_a_relation_that_is_no_partition_has_a_witness(
    rank: range, row: range, column: range, reason: str, shards: int
) -> None:
    """Shard r has rows r + row and these columns, of 4 x 4."""
    spans = f"{rank.start} <= r < {rank.stop} and {column.start} <= y < {column.stop}"
    relation = read_map(f"{{ [r] -> [x, y] : {spans} and r + {row.start} <= x < r + {row.stop} }}")
    with pytest.raises(PartitionError, match=reason) as caught:
        prove_relation(relation, IndexSet.where({"a": 4, "b": 4}))
    x, y = caught.value.point
    holders = [(r,) for r in rank if x - r in row and y in column]
    assert len(caught.value.shards) == shards
    assert set(caught.value.shards) <= set(holders)
    assert holders or not shards
    assert "witness: " in str(caught.value)


def test_the_witness_of_an_overlap_is_in_both_shards() -> None:
    """On a mesh of 3 x 3, shard (a, b) has rows 2a to 2a + 2 and columns 2b and 2b + 1: neighbours share a row."""
    held = "0 <= a < 3 and 0 <= b < 3 and 2a <= x <= 2a + 2 and x < 6 and 2b <= y < 2b + 2"
    relation = read_map(f"{{ [a, b] -> [x, y] : {held} }}")
    with pytest.raises(PartitionError, match="overlap") as caught:
        prove_relation(relation, IndexSet.where({"i": 6, "j": 6}))
    x, y = caught.value.point
    holders = {(a, b) for a in range(3) for b in range(3) if 2 * a <= x <= 2 * a + 2 and 2 * b <= y < 2 * b + 2}
    assert len(holders) == 2
    assert set(caught.value.shards) == holders


def test_tables_that_do_not_ascend_are_not_proved() -> None:
    falling = [CutBy(0, Table((0, 5, 3, 10)), (0,)), CutBy(1, Block(2), (1,))]
    with pytest.raises(PartitionError, match="overlap") as caught:
        Partition.product((10, 4), (3, 2), falling).prove()
    assert caught.value.point[0] in {3, 4}
    with pytest.raises(PartitionError, match="do not cover") as caught:
        Partition.product((10,), (2,), [CutBy(0, Table((1, 5, 10)))]).prove()
    assert caught.value.point == (0,)


@pytest.mark.parametrize(
    ("mesh", "cuts"),
    [
        ((2, 2), [CutBy(0, Block(2), (0,))]),
        ((2,), [CutBy(0, Block(3), (0,))]),
        ((2,), [CutBy(0, Block(2), (1,))]),
        ((2, 2), [CutBy(0, Block(2), (0,)), CutBy(0, Block(2), (1,))]),
        ((2,), [CutBy(2, Block(2), (0,))]),
    ],
)
def test_cuts_that_do_not_fit_the_mesh_are_refused(mesh: tuple[int, ...], cuts: list[CutBy]) -> None:
    with pytest.raises(UsageError):
        Partition.product((8, 8), mesh, cuts)


@pytest.mark.parametrize(
    "make",
    [lambda: Block(0), lambda: Cyclic(2, 0)],
)
def test_rules_without_parts_are_refused(make: Callable[[], Rule]) -> None:
    with pytest.raises(UsageError):
        make()


def test_many_shards_of_strided_grids() -> None:
    combs = [Grid((IntSet.of(range(r, 240, 24)), IntSet.interval(0, 7))).region() for r in range(24)]
    prove_regions(combs, Box((0, 0), (240, 7)))
    with pytest.raises(PartitionError, match="overlap"):
        prove_regions([*combs, combs[3]], Box((0, 0), (240, 7)))
