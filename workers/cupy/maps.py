"""Maps by the vectorised kernels of `tapestry.kernels.elementwise`, where their arrays are plain layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...expr import Affine, Expr, Read, rewrite
from ...kernels.elementwise.kernel import compile_expression
from ...kernels.elementwise.types import Layout
from .arrays import DeviceArray
from .jobs import Field, Job
from .machine import Unit
from .places import place
from .writing import Written

ALIGNED = 16


def written_map(job: Job) -> Written | None:
    """The vectorised kernel of a map; None where operands lie in several stretches, or only some points count."""
    if job.record is not None or job.where or len(job.stores) != 1 or not job.points:
        return None
    [store] = job.stores
    reads = list(job.reads())
    target = place(store.index, store.into.stored, job.ranges)
    if target.broken or not target.plain.is_affine or any(not _plain(job, read) for read in reads):
        return None
    if any(target.plain.coefficient(name) <= 0 for name, extent in job.kept):
        return None
    names = numbered(read.tensor for read in reads)
    operands = {name: _layout(job.fields[tensor]) for tensor, name in names.items()}
    made = compile_expression(
        job.kept, _flat(store.value, job, names), _layout(store.into), operands, write=(target.plain,), name="map"
    )
    if made.plan is None:
        return None
    unit = Unit(made.source, made.entry, made.plan.blocks, made.plan.threads, follows=True)
    arrays = {name: _array(job.fields[tensor]) for tensor, name in names.items()}
    return Written(unit, (*(arrays[name] for name in made.operands), _array(store.into)))


def numbered(tensors: Iterable[str]) -> dict[str, str]:
    """Other names of tensors, the same for every layer of a model, so that equal kernels are one."""
    return {tensor: f"x{k}" for k, tensor in enumerate(dict.fromkeys(tensors))}


def _plain(job: Job, read: Read) -> bool:
    field = job.fields[read.tensor]
    return isinstance(field.stored.array, DeviceArray) and not place(read.index, field.stored, job.ranges).broken


def _flat(value: Expr, job: Job, names: Mapping[str, str]) -> Expr:
    """Every read at its offset in the array, by other names."""

    def leaf(node: Expr) -> Expr:
        if not isinstance(node, Read):
            return node
        at: Affine = place(node.index, job.fields[node.tensor].stored, job.ranges).plain
        return Read(names[node.tensor], (at,), node.guard, node.fill)

    return rewrite(value, leaf)


def _layout(field: Field) -> Layout:
    """An array as one axis, aligned as its address is."""
    array = _array(field)
    lowest = array.pointer & -array.pointer if array.pointer else ALIGNED
    return Layout.contiguous(field.dtype, (array.size,), min(ALIGNED, lowest))


def _array(field: Field) -> DeviceArray:
    found = field.stored.array
    assert isinstance(found, DeviceArray)
    return found
