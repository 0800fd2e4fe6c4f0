"""A fold over few points written out as one expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from ...expr import Affine, Call, Const, Expr
from .pieces import Piece, Simplify, masked


def unrolled(piece: Piece, function: str, identity: float | int | bool) -> Piece:
    """The fold over all reduce dimensions written out as one expression: f(f(tap0, tap1), tap2) ..."""
    names = [name for name, _ in piece.dims if name in piece.reduce]
    extents = [extent for name, extent in piece.dims if name in piece.reduce]
    kept = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    total: Expr | None = None
    for values in product(*map(range, extents)):
        at = {name: Affine.of(value) for name, value in zip(names, values, strict=True)}
        tap = _tap(piece, kept, at, identity)
        total = tap if total is None else Call(function, (total, tap))
    body = Const(identity) if total is None else total
    return replace(piece, dims=kept, reduce=frozenset(), body=body, where=())


def _tap(
    piece: Piece, kept: tuple[tuple[str, int], ...], at: Mapping[str, Affine], identity: float | int | bool
) -> Expr:
    simplify = Simplify({name: (0, extent) for name, extent in kept}, at, piece.dtypes)
    return simplify.expr(masked(piece.body, piece.where, identity))
