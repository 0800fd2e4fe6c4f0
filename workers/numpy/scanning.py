"""Scans: folds over all that comes before an index, each result out of the one before it instead of from the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...expr.scans import Scan, scan_of
from ..device import Runner
from .folding import Array, Reduction
from .maps import SLAB_POINTS, Context
from .pieces import Piece
from .views import slab_shape, slabs

State = tuple[Array, ...]
Combine = Callable[[State, State], State]


def scan_in(piece: Piece) -> Scan | None:
    """The scan that a box of points is, if it has a value."""
    return None if piece.empty else scan_of(piece.reduce, piece.where, [piece.body])


def without(piece: Piece, scan: Scan) -> Piece:
    """The values that are scanned, those that some result folds: the same for every place along the scan."""
    extents = dict(piece.dims)
    first = max(0, scan.shift) if scan.backward else 0
    end = extents[scan.folded] if scan.backward else scan.last(extents[scan.along] - 1, extents[scan.folded]) + 1
    plain = replace(piece, where=()).part(scan.folded, first, max(first, end))
    folded = next(dim for dim in plain.dims if dim[0] == scan.folded)
    others = [dim for dim in plain.dims if dim[0] != scan.along and dim[0] != scan.folded]
    return replace(plain, dims=(*others, folded), reduce=frozenset())


def places(piece: Piece, scan: Scan) -> tuple[Array, Array]:
    """For each index along the scan, counted in the scan's order, the last value folded and whether there is one."""
    extents = dict(piece.dims)
    last = np.array([scan.last(at, extents[scan.folded]) for at in range(extents[scan.along])], np.int64)
    return np.maximum(last, 0), last >= 0


def doubled(combine: Combine, state: State, *, backward: bool) -> State:
    """The records along the first axis, each combined with all before it in the scan's order: Hillis, Steele 1986."""
    step = 1
    while step < len(state[0]):
        earlier, later = tuple(x[:-step] for x in state), tuple(x[step:] for x in state)
        found = combine(later, earlier) if backward else combine(earlier, later)
        state = tuple(np.concatenate([x[:step], new]) for x, new in zip(state, found, strict=True))
        step *= 2
    return state


def results(piece: Piece, scan: Scan) -> Piece:
    """Where the results of a scan belong: the dimensions that are kept, the one along the scan last."""
    kept = [dim for dim in piece.dims if dim[0] not in (scan.along, scan.folded)]
    along = next(dim for dim in piece.dims if dim[0] == scan.along)
    return replace(piece, dims=(*kept, along), reduce=frozenset(), where=())


def scanning(piece: Piece, scan: Scan, context: Context, fold: Reduction, dense: Array) -> Runner:
    """What fills ``dense``, as `results` has it, with the scan of values that a ufunc folds."""
    values = without(piece, scan)
    taken, is_folded = places(piece, scan)
    ufunc, backward, identity = fold.ufunc, scan.backward, fold.identity
    with context.scratch.frame():
        kernel = context.compiler(values).finish(values.body)
        cuts = slabs(values.shape, range(len(values.dims)), max(SLAB_POINTS, values.shape[-1]))
        kernel.prepare({slab_shape(cut) for cut in cuts}, context.scratch)

    def run() -> None:
        for cut in cuts:
            found = np.broadcast_to(np.asarray(kernel.at(cut)), slab_shape(cut)).astype(dense.dtype)
            found = ufunc.accumulate(found[..., ::-1] if backward else found, axis=-1)
            dense[cut[:-1]] = np.where(is_folded, found[..., taken], identity)

    def nothing() -> None:
        dense[...] = identity

    return run if is_folded.any() else nothing
