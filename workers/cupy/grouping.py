"""Groups of channels as a dimension of their own, where a job has them within its channels.

    before    x[n, width*(k // per) + c, ..] * w[k, c, ..]
    after     x[n, width*g + c, ..] * w[per*g + k, c, ..]

and of an input gradient, whose sum leaves out all groups but that of the channel:

    before    sum over k where 0 <= c - width*(k // per) < width of y[n, k, ..] * w[k, c - width*(k // per), ..]
    after     sum over k of y[n, per*g + k, ..] * w[per*g + k, c, ..] for x's channels width*g + c
"""

from __future__ import annotations

from dataclasses import replace

from ...expr import Affine, Bound, Floor
from .jobs import Dims, Fold, Job, with_values


def with_groups(job: Job) -> Job:
    """The job with a dimension of groups, or as it is. It has one fold."""
    found = _floored(job)
    if found is not None:
        job = _split(job, *found)
    tied = _tied(job)
    return job if tied is None else _one_group(job, *tied)


def _floored(job: Job) -> tuple[str, int] | None:
    """A dimension that is divided, and its divisor, which divides its extent."""
    extents = dict((*job.kept, *job.folds[0].dims))
    rows = [row for read in job.reads() for row in read.index]
    for row in (*rows, *(bound.expr for bound in job.folds[0].where)):
        for atom, _ in row.terms:
            if isinstance(atom, Floor) and len(atom.inner.dims) == 1:
                [name] = atom.inner.dims
                if atom.inner == Affine.dim(name) and extents[name] % atom.divisor == 0:
                    return name, atom.divisor
    return None


def _split(job: Job, name: str, size: int) -> Job:
    """A dimension as two: which part of so many values, and the value in it."""
    [fold] = job.folds
    made = replace(job, kept=_apart(job.kept, name, size), folds=(replace(fold, dims=_apart(fold.dims, name, size)),))
    return with_values(made, {name: Affine.dim(_part(name)) * size + Affine.dim(name)})


def _part(name: str) -> str:
    return f"{name}_g"


def _apart(dims: Dims, name: str, size: int) -> Dims:
    found = [((_part(name), n // size), (name, size)) if dim == name else ((dim, n),) for dim, n in dims]
    return tuple(dim for some in found for dim in some)


def _tied(job: Job) -> tuple[str, str, int] | None:
    """A kept dimension, the folded one that says in which part of so many values it has to be, and how many."""
    [fold] = job.folds
    kept, folded = dict(job.kept), dict(fold.dims)
    for bound in fold.where:
        name = next((name for name in bound.expr.dims & kept.keys() if bound.expr.coefficient(name) == 1), None)
        part = next(iter(bound.expr.dims & folded.keys()), None)
        if name is None or part is None or bound.lo != 0 or bound.hi is None or kept[name] != bound.hi * folded[part]:
            continue
        if bound.expr == Affine.dim(name) - Affine.dim(part) * bound.hi:
            return name, part, bound.hi
    return None


def _one_group(job: Job, name: str, part: str, size: int) -> Job:
    """The kept dimension as two, of which the first is the folded one, which is gone."""
    [fold] = job.folds
    group = Affine.dim(_part(name))
    where = tuple(bound for bound in fold.where if not _ties(bound, name, part))
    fewer = Fold(tuple(dim for dim in fold.dims if dim[0] != part), where, fold.values)
    made = replace(job, kept=_apart(job.kept, name, size), folds=(fewer,))
    return with_values(made, {name: group * size + Affine.dim(name), part: group})


def _ties(bound: Bound, name: str, part: str) -> bool:
    return bound.expr.dims == {name, part}
