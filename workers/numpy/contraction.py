"""Sums of products as matrix multiplications: operands straight from their buffers where BLAS can take them, packed
where not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from ...expr import Affine, Call, Expr, Read
from ...space import Grid, IntSet
from ..device import Runner, Stored, in_order
from .folding import Array, Reduction, round_into
from .maps import Context, bind_map
from .matching import Dims, Match, Operand, extent, is_product
from .pieces import Piece
from .views import strided

# Elements of a packed operand or of a product that cannot go straight to the output: 8 MiB in float32.
PACK = 1 << 21
# A group of dimensions that is not one stride is looped over when what is left inside is at least this long, else
# packed.
INNER = 32


def contraction(
    piece: Piece, found: Match, context: Context, out: Stored, fold: Reduction, accumulate: bool
) -> Contraction | None:
    """The sum of products into ``out``, cut into blocks; None if the output is not a strided view, or a part of the
    body turns out to be constant.
    """
    view = strided(out, piece.write, [dim for dim in piece.dims if dim[0] not in piece.reduce])
    if view is None:
        return None
    strides = dict(zip([name for name in piece.names if name not in piece.reduce], view.strides, strict=True))
    long = [name for name in (*found.rows, *found.columns) if piece.ranges[name][1] > 1]
    if long and min(long, key=lambda name: abs(strides[name])) in found.rows:
        found = found.swapped()
    made = Contraction(piece, _ordered(found, strides, piece), context, out, fold, accumulate)
    return made if all(is_product(part) for parts in made.blocks for part in parts) else None


def _ordered(found: Match, strides: dict[str, int], piece: Piece) -> Match:
    """Kept dimensions from far apart to close together in the output, as `collapse` wants them."""

    def order(names: Dims) -> Dims:
        return tuple(sorted(names, key=lambda name: (-abs(strides[name]), piece.names.index(name))))

    return replace(found, batch=order(found.batch), rows=order(found.rows), columns=order(found.columns))


class Contraction:
    """Chooses blocks so that what is packed stays bounded, then binds each block to matrix calls."""

    def __init__(
        self, piece: Piece, found: Match, context: Context, out: Stored, fold: Reduction, accumulate: bool
    ) -> None:
        self.piece, self.found, self.context, self.out, self.accumulate = piece, found, context, out, accumulate
        self.acc = fold.accumulator
        kept, folded = self._blocks()
        self.blocks = [[self._restricted({**block, **cut}) for cut in folded] for block in kept]

    def bind(self) -> Runner:
        """Block after block."""
        runners: list[Runner] = []
        for parts in self.blocks:
            with self.context.scratch.frame():
                runners += self._bind_block(parts)
        return in_order(runners)

    def _restricted(self, block: dict[str, slice]) -> Piece:
        part = self.piece
        for name, cut in block.items():
            if (cut.start, cut.stop) != part.ranges[name]:
                part = part.part(name, cut.start, cut.stop)
        return part

    # -- blocks --------------------------------------------------------------------------------------------------

    def _blocks(self) -> tuple[list[dict[str, slice]], list[dict[str, slice]]]:
        """Blocks of the kept dimensions (batches outermost, then columns, then rows) and of the folded ones."""
        f, size = self.found, {name: hi for name, (_, hi) in self.piece.ranges.items()}
        block = dict(size)
        packs = self._packs(self.piece)
        folded = self._cut(block, f.folded, PACK) if any(packs[:2]) else extent(self.piece, f.folded)
        rows, columns = extent(self.piece, f.rows), extent(self.piece, f.columns)
        if packs[0]:
            rows = self._cut(block, f.rows, PACK // folded)
        if packs[1]:
            columns = self._cut(block, f.columns, 2 * PACK // folded)
        if packs[2] or folded < extent(self.piece, f.folded):
            columns = self._cut(block, f.columns, max(PACK // rows, 1 << 10))
            rows = self._cut(block, f.rows, PACK // columns)
        largest = max(p * n for p, n in zip(packs, (rows * folded, columns * folded, rows * columns), strict=True))
        self._cut(block, f.batch, PACK // max(1, largest) if largest else 1 << 62)
        return _cuts((*f.batch, *f.columns, *f.rows), block, size), _cuts(f.folded, block, size)

    def _cut(self, block: dict[str, int], names: Dims, limit: int) -> int:
        """Shorten the blocks of a group, outermost dimension first, until it has at most ``limit`` points."""
        left = max(1, limit)
        for name in reversed(names):
            block[name] = max(1, min(block[name], left))
            left //= block[name]
        return prod(block[name] for name in names)

    def _packs(self, piece: Piece) -> tuple[bool, bool, bool]:
        """Which of left, right and product need memory of their own."""
        left, right = self._direct(piece, self.found.left), self._direct(piece, self.found.right)
        target = self._target(piece)
        loops = self._loops(left, right, target)
        return (
            left is None or not left.blas(loops.rows, self.found.folded),
            right is None or not right.blas(self.found.folded, loops.columns),
            target is None or not target.blas(loops.rows, loops.columns),
        )

    # -- operands ------------------------------------------------------------------------------------------------

    def _dims(self, piece: Piece, names: Dims) -> list[tuple[str, int]]:
        return [(name, piece.ranges[name][1] if name in piece.ranges else 1) for name in names]

    def _names_of(self, expr: Expr) -> Dims:
        f = self.found
        side = f.rows if expr is f.left else f.columns
        return (*f.batch, *side, *f.folded) if expr is f.left else (*f.batch, *f.folded, *side)

    def _direct(self, piece: Piece, expr: Expr) -> Operand | None:
        factor = self._factor(piece, expr)
        if not isinstance(factor, Read) or factor.guard or self.acc.kind in "iu":
            return None  # integer products make copies of their operands, so these come in blocks
        stored = self.context.stored[factor.tensor]
        names = self._names_of(expr)
        view = strided(stored, factor.index, self._dims(piece, names)) if stored.array.dtype == self.acc else None
        return None if view is None else Operand(view, names)

    def _factor(self, piece: Piece, expr: Expr) -> Expr:
        """The factor as the (restricted) piece has it."""
        assert isinstance(piece.body, Call)
        original = self.piece.body
        assert isinstance(original, Call)
        return piece.body.args[0 if expr is original.args[0] else 1]

    def _target(self, piece: Piece) -> Operand | None:
        names = (*self.found.batch, *self.found.rows, *self.found.columns)
        if self.out.array.dtype != self.acc or self.acc.kind in "iu":
            return None
        view = strided(self.out, piece.write, self._dims(piece, names))
        return None if view is None else Operand(view, names)

    def _loops(self, left: Operand | None, right: Operand | None, target: Operand | None) -> _Loops:
        """Which dimensions are looped over as batches, and which make up the matrices."""
        rows = _inner(self.found.rows, [o for o in (left, target) if o is not None])
        columns = _inner(self.found.columns, [o for o in (right, target) if o is not None])
        outer = [n for n in self.found.rows if n not in rows] + [n for n in self.found.columns if n not in columns]
        return _Loops((*self.found.batch, *outer), rows, columns)

    # -- one block -----------------------------------------------------------------------------------------------

    def _bind_block(self, parts: Sequence[Piece]) -> list[Runner]:
        """One block of the output: the products of all folded blocks added up, then delivered once."""
        f, first = self.found, parts[0]
        names = (*f.batch, *f.rows, *f.columns)
        target = None if self._packs(first)[2] or self.accumulate or len(parts) > 1 else self._target(first)
        shape = [n for _, n in self._dims(first, names)]
        result = target or Operand(self.context.scratch.take(shape, self.acc), names)
        runners = self._multiplied(first, result)
        if len(parts) > 1:
            further = Operand(self.context.scratch.take(shape, self.acc), names)
            for part in parts[1:]:
                runners += [*self._multiplied(part, further), _adding(further.view, result.view)]
        if target is None:
            final = strided(self.out, first.write, self._dims(first, names))
            assert final is not None
            runners.append(_deliver(result.view, final, self.accumulate))
        return runners

    def _multiplied(self, piece: Piece, result: Operand) -> list[Runner]:
        """Pack what has to be packed, then one (batched) matrix product into ``result``."""
        f, packs = self.found, self._packs(piece)
        runners: list[Runner] = []
        with self.context.scratch.frame():
            left = self._operand(piece, f.left, packs[0], runners)
            right = self._operand(piece, f.right, packs[1], runners)
        loops = self._loops(left, right, result)
        a, b = left.matrix(loops.batch, loops.rows, f.folded), right.matrix(loops.batch, f.folded, loops.columns)
        runners.append(_product(a, b, result.matrix(loops.batch, loops.rows, loops.columns)))
        return runners

    def _operand(self, piece: Piece, expr: Expr, pack: bool, runners: list[Runner]) -> Operand:
        direct = None if pack else self._direct(piece, expr)
        if direct is not None:
            return direct
        names = self._names_of(expr)
        dims = self._dims(piece, names)
        packed = self.context.scratch.take([n for _, n in dims], self.acc)
        grid = Grid(tuple(IntSet.interval(0, n) for _, n in dims))
        part = replace(
            piece, dims=tuple(dims), reduce=frozenset(), body=self._factor(piece, expr), where=(),
            write=tuple(Affine.dim(name) if n > 1 else Affine() for name, n in dims),
        )  # fmt: skip
        runners.append(bind_map(part, self.context, Stored(packed, grid)))
        return Operand(packed, names)


@dataclass(frozen=True)
class _Loops:
    batch: Dims
    rows: Dims
    columns: Dims


def _inner(names: Dims, operands: Sequence[Operand]) -> Dims:
    """The longest tail of a group that is one stride in every operand; all of it, to be packed, if too short."""
    for start in range(len(names)):
        tail = names[start:]
        if all(operand.collapsed(tail) is not None for operand in operands):
            length = prod(operands[0].view.shape[axis] for axis in operands[0].axes(tail)) if operands else 0
            return tail if start == 0 or length >= INNER else names
    return names


def _cuts(names: Dims, block: dict[str, int], size: dict[str, int]) -> list[dict[str, slice]]:
    """Every combination of blocks, the last dimension fastest."""
    cuts = [
        [slice(at, min(at + block[name], size[name])) for at in range(0, size[name], block[name])] for name in names
    ]
    return [dict(zip(names, pick, strict=True)) for pick in product(*cuts)]


def _product(a: Array, b: Array, out: Array) -> Runner:
    def run() -> None:
        if out.dtype.kind in "iu":
            _multiply_integers(a, b, out)
        else:
            np.matmul(a, b, out=out)

    return run


def _adding(value: Array, total: Array) -> Runner:
    def run() -> None:
        np.add(total, value, out=total)

    return run


def _deliver(value: Array, target: Array, accumulate: bool) -> Runner:
    def run() -> None:
        if accumulate:
            np.add(target, value, out=value)
        round_into(value, target)

    return run


def _multiply_integers(a: Array, b: Array, out: Array) -> None:
    """Exact int64 product: in float64, where BLAS is quick, if no sum can leave the integers that float64 holds."""
    if _largest(a) * _largest(b) * a.shape[-1] < 1 << 53:
        np.copyto(out, np.matmul(a.astype(np.float64), b.astype(np.float64)), casting="unsafe")
    else:
        np.matmul(a, b, out=out)


def _largest(values: Array) -> int:
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))
