"""Maps of what is found at places that the data say, as one kernel.

    found[t, d] = sum[p] x[p, d] if place[t] == p else 0
    y[t, d]     = gate[t] * found[t, d]

A fold of which one point counts is no loop: a thread asks for the places of several of its points first, then for what
lies there, and stores at last, so that what it waits for it waits for together.
"""

from __future__ import annotations

from dataclasses import replace

from ...dtypes import name_of
from ...expr import Cast, Expr, Read, rewrite, walk
from ...kernels.elementwise.types import ELEMENT_TYPES
from ...program import Block
from ..device import Chain, Evaluation
from .arrays import DeviceArray, apart
from .evaluating import jobs_of
from .jobs import Job
from .machine import THREADS
from .statements import inside
from .writing import Writer, Written, places_of, written

# Points of a thread, and points from which on there are threads enough with so many each.
EACH, MANY = 4, 1 << 20


def gathering(job: Job) -> bool:
    """Whether every point of a job is what lies at one place that the data say, if it is there."""
    if job.record is None or job.placed or job.only or len(job.folds) != 1 or len(job.stores) != 1:
        return False
    [fold] = job.folds
    return len(fold.chosen) == 1 and not fold.looped


def written_gather(job: Job) -> Written:
    """The kernel of a job that gathers."""
    many = job.points >= MANY and job.points % (EACH * THREADS) == 0 and not job.where and _unread(job)
    return _Gatherer(job).written() if many else written(job)


def _unread(job: Job) -> bool:
    """Whether nothing is read from where results are stored, so that the order of both does not matter."""
    into = job.stores[0].into.stored.array
    held = [job.fields[read.tensor].stored.array for read in job.reads()]
    return apart(into, [array for array in held if isinstance(array, DeviceArray)])


def gathered_map(chain: Chain) -> Job | None:
    """A task that gathers and a map of what it found, point by point, as one job; None where the chain is none."""
    if len(chain.tasks) != 2 or chain.stored != {chain.tasks[1].op.output}:
        return None
    first, second = chain.tasks
    if any(isinstance(task.op.body, Block) for task in chain.tasks) or second.op.monoid or second.op.where:
        return None
    if not isinstance(first.write.array, DeviceArray) or first.write.array.dtype.names:
        return None
    before, after = jobs_of(first), jobs_of(second)
    if len(before) != 1 or len(after) != 1 or not gathering(before[0]) or after[0].record is not None:
        return None
    return _one(before[0], after[0], first, second)


def _one(found: Job, made: Job, first: Evaluation, second: Evaluation) -> Job | None:
    [result], [store] = found.stores, made.stores
    name = first.op.output
    reads = [node for node in walk(store.value) if isinstance(node, Read) and node.tensor == name]
    if found.where or made.where or found.kept != made.kept or not reads:
        return None
    if any(read.index != result.index or read.guard for read in reads):
        return None
    taken = [stored.array for task in (first, second) for key, stored in task.reads.items() if key != name]
    if not apart(second.write.array, [array for array in taken if isinstance(array, DeviceArray)]):
        return None
    shared = {key for key in found.fields.keys() & made.fields.keys() if found.fields[key] != made.fields[key]}
    if shared:
        return None
    rounded = Cast(name_of(first.write.array.dtype), result.value)

    def leaf(node: Expr) -> Expr:
        return rounded if isinstance(node, Read) and node.tensor == name else node

    fields = {**found.fields, **{key: field for key, field in made.fields.items() if key != name}}
    return replace(found, fields=fields, stores=(replace(store, value=rewrite(store.value, leaf)),))


class _Gatherer(Writer):
    """Threads that have some points each, those of a block next to one another."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, (), None)
        self.wanted = job.points // EACH

    def _body(self) -> list[str]:
        natural, [fold] = self._natural(), self.job.folds
        [one], extent = fold.chosen, self.ranges[fold.chosen[0].dim][1]
        number = f"const {natural} k = first + u * {THREADS}u;"
        point = [number, *places_of(self.kept, self.kind, "k")]
        each = ["#pragma unroll", f"for (unsigned u = 0; u < {EACH}u; ++u) {{"]
        asking = self._emitter()
        asked = asking.as_type(asking.value(one.value), "Int")
        here = [f"const {self.kind} {one.dim} = {self.kind}(asked[u]);", *self._under(fold.where, self._point(fold))]
        [store], [target], known = self.job.stores, self.targets, self._record()
        giving = self._emitter(known)
        value = giving.value(store.value)
        kind = ELEMENT_TYPES[store.into.dtype].stored
        return [
            f"const {natural} first = {natural}(blockIdx.x) * {EACH * THREADS}u + threadIdx.x;",
            f"Int asked[{EACH}];",
            f"{kind} made[{EACH}];",
            *each,
            *inside([*point, *asking.outer, *asking.inner, f"asked[u] = {asked};"]),
            "}",
            *each,
            *inside([*point, *self._state(), f"if (0 <= asked[u] && asked[u] < {extent}) {{", *inside(here), "}"]),
            *inside([*giving.outer, *giving.inner, f"made[u] = narrow<{kind}>({giving.as_type(value, value.type)});"]),
            "}",
            *each,
            *inside([*point, f"{self._element(store.into, target, constant=False)} = made[u];"]),
            "}",
        ]

    def _record(self) -> dict[str, str]:
        assert self.job.record is not None
        return {f"r.{c.name}": f"s{k}" for k, c in enumerate(self.job.record.monoid.components)}
