"""Products: matmul, batched matmul, einsum. Integer products of int8 accumulate, and are stored, in int32."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from string import ascii_letters

from ..dsl.door import door
from ..dsl.tensor import Tensor
from ..dsl.trace import current
from ..errors import UsageError
from ..expr import Affine, Call, Expr
from ..program import Dim


@door
def einsum(spec: str, *operands: Tensor, name: str = "", dtype: str | None = None) -> Tensor:
    """Einstein summation, one letter an axis: ``tp.einsum("td,dhe->the", x, wq)``.

    out[output letters] = sum over the other letters of the product of the operands. A letter repeated in one operand
    reads its diagonal; without ``->`` the output has the letters that occur once, in alphabetic order. The letters name
    the operation's dimensions. ``...`` stands for the axes that an operand has besides its letters: they are aligned on
    the right and broadcast, and come first in the output unless it says where. Raises UsageError with the spec and the
    shapes.
    """
    written, dots = _without_dots(spec, operands)
    inputs, output = _parse(spec, written, len(operands))
    extents = _extents(spec, inputs, operands, dots)
    folded = [letter for letter in extents if letter not in output]
    parts = [x.at(_index(letters, x, extents)) for letters, x in zip(inputs, operands, strict=True)]
    product: Expr = reduce(lambda a, b: Call("multiply", (a, b)), parts)
    dims = [Dim(letter, extents[letter]) for letter in (*output, *folded)]
    trace = current("einsum")
    return trace.compute(
        "einsum", dims, product, reduce_dims=folded, monoid="sum" if folded else None, dtype=dtype, explicit=name
    )  # fmt: skip


def _index(letters: str, x: Tensor, extents: dict[str, int]) -> tuple[Affine, ...]:
    """An operand's index: its letters, and 0 where its extent 1 is broadcast."""
    pairs = zip(letters, x.shape, strict=True)
    return tuple(Affine.dim(letter) if extent == extents[letter] else Affine.of(0) for letter, extent in pairs)


def _without_dots(spec: str, operands: Sequence[Tensor]) -> tuple[str, str]:
    """The spec with a letter for each axis that ``...`` stands for, and these letters."""
    plain = spec.replace(" ", "")
    if "..." not in plain:
        return plain, ""
    left, arrow, output = plain.partition("->")
    parts = left.split(",")
    free = [c for c in ascii_letters[::-1] if c not in plain]
    if len(parts) != len(operands) or any(part.count("...") > 1 for part in (*parts, output)):
        raise UsageError(f'einsum("{spec}") names {len(parts)} operands', sides={"given": len(operands)})
    counts = [x.ndim - len(part.replace("...", "")) for part, x in zip(parts, operands, strict=True)]
    dots = [max(0, count) for part, count in zip(parts, counts, strict=True) if "..." in part]
    most = max(dots, default=0)
    if most > len(free):
        raise UsageError(f'einsum("{spec}"): too few letters are left for the axes of ...')
    letters = "".join(free[:most])
    written = [part.replace("...", letters[most - max(0, n) :]) for part, n in zip(parts, counts, strict=True)]
    if not arrow:
        plain = "".join(parts).replace("...", "")
        output = "..." + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    return f"{','.join(written)}->{output.replace('...', letters)}", letters


def _parse(spec: str, written: str, count: int) -> tuple[list[str], str]:
    left, arrow, output = written.partition("->")
    inputs = left.split(",")
    letters = "".join(inputs)
    if len(inputs) != count:
        raise UsageError(f'einsum("{spec}") names {len(inputs)} operands', sides={"given": count})
    strange = sorted({c for c in letters + output if c not in ascii_letters})
    if strange:
        raise UsageError(
            f'einsum("{spec}"): {"".join(strange)!r} is not a letter',
            hint="one letter for each axis, as in td,dhe->the",
        )
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    unknown = [c for c in output if c not in letters]
    if unknown or len(set(output)) != len(output):
        what = f"{unknown[0]!r} is in no operand" if unknown else f"output {output!r} repeats a letter"
        raise UsageError(f'einsum("{spec}"): {what}')
    return inputs, output


def _extents(spec: str, inputs: Sequence[str], operands: Sequence[Tensor], dots: str) -> dict[str, int]:
    """The extents of the letters; those of ``...`` may be 1 in some operands."""
    extents: dict[str, int] = {}
    for k, (letters, x) in enumerate(zip(inputs, operands, strict=True)):
        if len(letters) != x.ndim:
            what = f'einsum("{spec}"): operand {k} has {x.ndim} axes, not {len(letters)}'
            raise UsageError(what, sides={"spec": letters, "operand": repr(x)})
        for letter, extent in zip(letters, x.shape, strict=True):
            if letter in dots and 1 in (extent, extents.get(letter)):
                extents[letter] = max(extent, extents.get(letter, extent)) if extent else 0
            elif extents.setdefault(letter, extent) != extent:
                sides: dict[str, object] = {letter: extents[letter], f"operand {k}": repr(x)}
                raise UsageError(
                    f'einsum("{spec}"): {letter} has two extents, {extents[letter]} and {extent}', sides=sides
                )
    return extents


@door
def matmul(a: Tensor, b: Tensor, *, name: str = "", dtype: str | None = None) -> Tensor:
    """out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; vectors and batch axes as in NumPy.

    Raises UsageError with both shapes where the inner extents or the batch axes differ.
    """
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise UsageError(
            "matmul: inner extents differ", sides={"a": repr(a), "b": repr(b)}, hint="a [.., m, k] @ b [.., k, n]"
        )
    batch = _batch(a, b)
    rows = [_unused(a.axes[-2], "m", batch)] if a.ndim > 1 else []
    columns = [_unused(b.axes[-1], "n", [*batch, *rows])] if b.ndim > 1 else []
    fold = _unused(a.axes[-1], "k", [*batch, *rows, *columns])
    out = {**batch, **dict(zip(rows, a.shape[-2:-1], strict=True)), **dict(zip(columns, b.shape[1:][-1:], strict=True))}
    left = _batch_index(a, batch) + _index_of([*rows, fold])
    right = _batch_index(b, batch) + _index_of([fold, *columns])
    dims = [*(Dim(axis, extent) for axis, extent in out.items()), Dim(fold, a.shape[-1])]
    body = Call("multiply", (a.at(left), b.at(right)))
    return current("matmul").compute("matmul", dims, body, reduce_dims=[fold], monoid="sum", dtype=dtype, explicit=name)


def _index_of(names: Sequence[str]) -> tuple[Affine, ...]:
    return tuple(map(Affine.dim, names))


def _unused(name: str, other: str, taken: Sequence[str] | dict[str, int]) -> str:
    """The name, or another one, or that one numbered."""
    candidates = [name, other, *(f"{other}_{k}" for k in range(1, len(taken) + 2))]
    return next(candidate for candidate in candidates if candidate not in taken)


def _batch(a: Tensor, b: Tensor) -> dict[str, int]:
    """Names and extents of the batch axes of a product."""
    from ..dsl.tensor import unique_names

    sides = [(x.axes[:-2], x.shape[:-2]) for x in (a, b)]
    rank = max(len(shape) for _, shape in sides)
    names, extents = [], []
    for k in range(-rank, 0):
        here = [(axes[k], shape[k]) for axes, shape in sides if len(shape) >= -k]
        wide = [pair for pair in here if pair[1] != 1] or here
        if len({extent for _, extent in wide}) > 1:
            raise UsageError("matmul: batch axes do not broadcast", sides={"a": repr(a), "b": repr(b)})
        names.append(wide[0][0])
        extents.append(wide[0][1])
    return dict(zip(unique_names(tuple(names)), extents, strict=True))


def _batch_index(x: Tensor, batch: dict[str, int]) -> tuple[Affine, ...]:
    own = list(batch)[len(batch) - max(0, x.ndim - 2) :]
    return tuple(Affine.of(0) if extent == 1 else Affine.dim(axis) for axis, extent in zip(own, x.shape, strict=False))
