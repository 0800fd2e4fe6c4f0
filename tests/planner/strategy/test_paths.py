"""The cheapest path between layouts: by levels over hosts, scattered and gathered, and no detour is shorter."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from tapestry.planner import load_machine
from tapestry.planner.machine import Link, Machine
from tapestry.planner.strategy.layouts import Layout, Layouts
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.planner.strategy.traffic import Traffic
from tapestry.records import Width

BF16 = Width(2, 2)
SHAPE = (8192, 4096)  # 64 MiB in bf16
NVLINK, NETWORK = 332e9, 6.25e9


class Case:
    """A matrix laid out over the ranks of a machine."""

    def __init__(
        self,
        machine: str | Machine,
        mesh: tuple[int, ...],
        shape: tuple[int, ...] = SHAPE,
        *,
        frugal: bool = False,
    ) -> None:
        described = load_machine(machine) if isinstance(machine, str) else machine
        self.mesh, self.shape = Mesh.of(mesh, described.device_count), shape
        self.layouts, self.traffic = Layouts(self.mesh), Traffic(self.mesh, described, frugal=frugal)

    def cut(self, *axes: str | None) -> Layout:
        return self.layouts.cut(self.shape, [None if axis is None else Cut(axis) for axis in axes])

    def shares(self, of: Layout) -> Layout:
        """Contributions to a fold, a different one on every rank."""
        return self.layouts.of(self.shape, of.regions, range(self.mesh.size))

    def partial(self, *axes: str | None) -> Layout:
        """Cut like this; along mesh axes named "+" ranks have contributions to a fold."""
        of = self.cut(*(None if axis == "+" else axis for axis in axes))
        numbers = self.mesh.shard_index([k for k, axis in enumerate(axes) if axis == "+"])[1]
        return self.layouts.of(self.shape, of.regions, numbers)

    def seconds(self, have: Layout, need: Layout) -> float:
        return self.traffic.move(have, need, BF16).seconds

    def path(self, have: Layout, need: Layout) -> tuple[Layout, ...]:
        return self.traffic.path(have, need, BF16)


def test_an_all_gather_over_hosts_goes_by_levels() -> None:
    """Each element crosses once to each host: a sixteenth to each rank, and then seven eighths within the host."""
    case = Case("h200x8-2node", (16,))
    have, need = case.cut("0"), case.cut(None)
    path = case.path(have, need)
    assert len(path) == 3
    (first, second), moved = ((case.traffic.direct(a, b, BF16) for a, b in pairwise(path))), 2**26
    assert first.seconds == pytest.approx(70e-6 + moved / 16 / NETWORK)
    assert second.busiest == moved * 7 / 8
    assert case.seconds(have, need) == first.seconds + second.seconds < 1.1e-3
    assert case.traffic.direct(have, need, BF16).seconds > 5e-3
    assert first.nbytes + second.nbytes == case.traffic.direct(have, need, BF16).nbytes == 15 * moved


def test_what_one_rank_has_is_scattered_and_gathered() -> None:
    """Its link sends it once and not seven times."""
    case = Case("h200x8", (8,))
    have, need = case.cut("@0"), case.cut(None)
    assert len(case.path(have, need)) == 3
    assert case.traffic.direct(have, need, BF16).seconds == pytest.approx(29e-6 + 7 * 2**26 / NVLINK)
    assert case.seconds(have, need) < 0.6e-3


def test_what_is_folded_over_hosts_is_handed_on_by_levels() -> None:
    case = Case("h200x8-2node", (16,))
    whole = case.cut(None)
    have = case.shares(whole)
    assert len(case.path(have, whole)) > 2
    assert case.seconds(have, whole) < 0.65 * case.traffic.direct(have, whole, BF16).seconds


def test_what_is_folded_over_hosts_crosses_to_each_of_them_once() -> None:
    """First within each host, an eighth to each rank; of that one contribution comes from the other host, not eight."""
    case = Case("h200x8-2node", (16,))
    have, moved = case.shares(case.cut(None)), 2**26
    first, second = list(pairwise(case.path(have, case.cut("0"))))
    assert first[1].parts == (0,) * 8 + (1,) * 8
    at_first, at_last = (case.traffic.direct(a, b, BF16) for a, b in (first, second))
    assert at_first.busiest == moved * 7 / 8
    assert at_last.seconds == pytest.approx(70e-6 + moved / 16 / NETWORK)
    assert case.traffic.direct(have, case.cut("0"), BF16).seconds > 5e-3
    assert case.seconds(have, case.cut("0")) < 1.1e-3


@pytest.mark.parametrize("machine", ["h200x8", "h200x8-2node"])
def test_where_bytes_count_layouts_on_the_way_lie_within_what_is_needed(machine: str) -> None:
    """So a path moves no byte more than one transfer."""
    case = Case(machine, (2, 4) if machine == "h200x8" else (2, 8), frugal=True)
    for have, need in product(table(case), repeat=2):
        path = case.path(have, need)
        assert path[0] is have
        assert path[-1] is need
        for mid in path[1:-1]:
            assert mid.within(need)
            if have.parts is None:
                assert all(h & n <= m for h, n, m in zip(have.regions, need.regions, mid.regions, strict=True))
        direct, steps = case.traffic.direct(have, need, BF16), pairwise(path)
        assert sum(case.traffic.direct(a, b, BF16).nbytes for a, b in steps) == direct.nbytes
        assert case.seconds(have, need) <= direct.seconds


def table(case: Case) -> list[Layout]:
    """Every mesh axis cuts the rows or the columns, or has copies."""
    names = product(("0", "1", None), repeat=len(case.mesh.shape))
    return list(dict.fromkeys(case.cut(*cuts) for cuts in names))


def plain(hosts: int, devices: int) -> Machine:
    """Links without curves: a start and a rate."""
    device = load_machine("h200x8").device
    links = [Link("wire", 100.0, 5e-6, "host")]
    links += [Link("network", 10.0, 20e-6, "cluster")] if hosts > 1 else []
    return Machine("plain", "", device, hosts, devices // hosts, tuple(links))


MESHES = [(8,), (2, 4), (2, 2, 2)]


def partials(case: Case) -> list[Layout]:
    """Every mesh axis cuts the rows or the columns, has copies or contributions, and one contributions at least."""
    names = product(("0", "1", None, "+"), repeat=len(case.mesh.shape))
    return [case.partial(*cuts) for cuts in names if "+" in cuts]


MACHINES = {
    "one host": plain(1, 8),
    "two hosts": plain(2, 8),
    "h200x8": load_machine("h200x8"),
    "h200x8-2node": load_machine("h200x8-2node"),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("mesh", MESHES)
def test_no_detour_is_shorter(machine: str, mesh: tuple[int, ...]) -> None:
    """Over all triples of layouts, from partial ones too: staying costs nothing, no third one makes the way cheaper."""
    case = Case(MACHINES[machine], mesh)
    ends = table(case)
    cost = case.traffic.costs([*ends, *partials(case)], ends, BF16)[0]
    assert all(cost[k, k] == 0 for k in range(len(ends)))
    through = cost[:, :, None] + cost[None, : len(ends)]
    broken = np.argwhere(cost[:, None, :] > through * (1 + 1e-9))
    assert not len(broken), (len(broken), broken[0])


@pytest.mark.parametrize("shape", [SHAPE, (4096, 12), (4096, 7)], ids=str)
@pytest.mark.parametrize("machine", ["two hosts", "h200x8"])
def test_a_path_takes_what_its_transfers_take(machine: str, shape: tuple[int, ...]) -> None:
    """What is counted on a small tensor for all is what each transfer moves, also where not all ranks share an axis."""
    case = Case(MACHINES[machine], (2, 4), shape)
    for have, need in product([*table(case), *partials(case)], table(case)):
        steps = [case.traffic.direct(a, b, BF16) for a, b in pairwise(case.path(have, need))]
        assert case.seconds(have, need) == pytest.approx(sum(step.seconds for step in steps))
        assert case.traffic.costs([have], [need], BF16)[0][0, 0] == pytest.approx(case.seconds(have, need))


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("mesh", MESHES)
def test_no_path_is_cheaper_than_what_crosses_the_cut(hosts: int, mesh: tuple[int, ...]) -> None:
    """What a rank lacks comes to it over its link, and what a host lacks over those of its ranks."""
    case = Case(plain(hosts, 8), mesh)
    for have, need in product(table(case), repeat=2):
        seconds = case.seconds(have, need)
        assert seconds >= max(have.missing(need)) * 2 / 100e9
        for ranks in (range(4), range(4, 8)) if hosts == 2 else ():
            lacking = have.union(ranks)
            crossing = (need.union(ranks) - lacking).size * 2
            assert seconds >= crossing / 4 / 10e9


def test_what_others_of_a_host_need_is_not_dropped_on_the_way() -> None:
    """Columns that a rank has are of rows that others of its host need: on the way someone has to keep them."""
    case = Case("h200x8-2node", (4, 4), (8192, 14336))
    have = case.cut("1", "1")
    need = case.layouts.cut(case.shape, [Cut("0", "zigzag"), None])
    for mid in case.traffic.path(have, need, BF16):
        assert need.everything <= mid.everything
