"""What lies on the way between two layouts, where it is more than what is needed at last: it has a place beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.machine import Link, Machine


@tp.program
def rows_apart(x: f32[Tensor, "n d"]) -> Tensor:
    first = tp.shard(tp.relu(x), mesh0="n", mesh1="n")
    return tp.shard(tp.exp(first), mesh0="d", mesh1="n")


def two_hosts() -> Machine:
    """The link between them is slow, starts cost next to nothing."""
    links = Link("wire", 100.0, 1e-9, "host"), Link("network", 1.0, 1e-9, "cluster")
    device = replace(load_machine("cpu-4").device, launch_overhead_s=1e-9)
    return Machine("two hosts", "", device, 2, 4, links)


def planned(objective: str) -> Plan:
    return plan(rows_apart.bind(n=64, d=64), two_hosts(), mesh=(2, 4), objective=objective, pieces=False)


def test_each_rank_of_a_host_takes_its_share_of_what_the_host_lacks() -> None:
    """Two ranks of each host have their new rows there, the others on the other host: all four fetch, and hand on."""
    found = planned("time")
    transfers = [task for task in found.document.tasks if isinstance(task, Transfer)]
    (read,) = next(task.reads for task in found.document.tasks if isinstance(task, Compute) and task.op == "exp")
    assert len(transfers) == 2
    assert transfers[0].target == transfers[1].source
    assert transfers[1].target == read != transfers[0].target
    assert found.check().ok
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    out = found.run({"x": x}, device="numpy")
    np.testing.assert_allclose(next(iter(out.outputs.values())), np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_where_bytes_count_they_are_fetched_at_once() -> None:
    found = planned("bytes")
    assert sum(isinstance(task, Transfer) for task in found.document.tasks) == 1
    assert found.document.traffic.bytes_total < planned("time").document.traffic.bytes_total
