"""Accesses point by point, by matrices, and their images as the projections of operations' reads give them."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry.expr import Affine
from tapestry.space import Access, Box, Grid, Image, Region
from tapestry.space.projection import projection


def linear(matrix: Sequence[Sequence[int]], offset: Sequence[int]) -> Access:
    """The rows ``matrix @ point + offset`` over dimensions i0, i1, ..."""
    names = tuple(f"i{k}" for k in range(len(matrix[0]) if matrix else 0))
    terms = [[Affine.dim(name) * c for name, c in zip(names, row, strict=True)] for row in matrix]
    return Access(names, tuple(sum(row, Affine((), b)) for row, b in zip(terms, offset, strict=True)))


def image(access: Access, domain: Region | Grid | Box) -> Image:
    """The elements that the points of a domain touch: exact, or a hull labelled as one."""
    region = domain if isinstance(domain, Region) else domain.region()
    return projection(access.dims, access.rows, access.guard).image(region)


def at(access: Access, point: Sequence[int]) -> tuple[int, ...] | None:
    """The element touched from one point, or None where the guard fails."""
    values = dict(zip(access.dims, point, strict=True))
    if not all(bound.holds(values) for bound in access.guard):
        return None
    return tuple(int(row.evaluate(values)) for row in access.rows)
