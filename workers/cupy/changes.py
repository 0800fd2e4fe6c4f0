"""Maps that change few elements of what they are written over: only these are gone to, and stored."""

from __future__ import annotations

from dataclasses import replace

from ...dtypes import DTYPES
from ...expr import Expr, Read
from ...result_type import result_dtype
from ...updates import update_of
from .arrays import DeviceArray
from .jobs import Job, Only, Store


def changes_of(job: Job) -> Job | None:
    """A map that is an update of what lies where it writes, at the points of its windows; None where it is none."""
    if job.record is not None or len(job.stores) != 1:
        return None
    [store] = job.stores
    dtypes = {name: field.dtype for name, field in job.fields.items()}

    def whole(expr: Expr) -> bool:
        return DTYPES[result_dtype(expr, dtypes)].kind == "int"

    for tensor in _there(job, store):
        found = update_of(store.value, Read(tensor, store.index), [name for name, _ in job.kept], whole)
        if found is not None and found.windows:
            only = Only(found.conditions, found.windows)
            return replace(job, stores=(replace(store, value=found.value),), only=only)
    return None


def _there(job: Job, store: Store) -> list[str]:
    """The operands that lie, element for element, where the result does."""
    into = store.into.stored
    return [
        name
        for name, field in job.fields.items()
        if field.dtype == store.into.dtype
        and isinstance(field.stored.array, DeviceArray)  # a NumPy array stores nothing
        and (field.stored.array.pointer, field.stored.grid) == (into.array.pointer, into.grid)
    ]
