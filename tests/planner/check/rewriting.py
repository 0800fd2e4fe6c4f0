"""One operation that writes over what it reads, by hand: what is read, how it is stored and who else reads it vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tapestry.expr import Affine, Bound, Expr, Read
from tapestry.planner.format.document import Document
from tapestry.program import Operation, Program

from .writing import Sheet, d, dims, mul, plus, scaled, tensor

N = 4


def written_over(*reads: Affine, where: tuple[Bound, ...] = ()) -> Document:
    """y[a] = sum of x[read], where what is read outside of x, or of ``where``, is 0; y lies in the place of x."""
    terms: list[Expr] = [Read("x", (row,), (*where, Bound(row, 0, N))) for row in reads]
    body = terms[0]
    for term in terms[1:]:
        body = plus(body, term)
    return _over(Operation("f", dims(a=N), "y", d("a"), body), ["0:4"], ["0:4"])


def long(size: int, read: Affine) -> Document:
    """y[a] = x[read] of so many elements, a read outside of x is 0."""
    op = Operation("f", dims(a=size), "y", d("a"), Read("x", (read,), (Bound(read, 0, size),)))
    return _over(op, [f"0:{size}"], [f"0:{size}"], extent=size)


def square(left: tuple[Affine, ...], right: tuple[Affine, ...]) -> Document:
    """y[a, b] = x[left] * x[right]"""
    body = mul(Read("x", left), Read("x", right))
    return _over(Operation("f", dims(a=N, b=N), "y", d("a", "b"), body), ["0:4,0:4"], ["0:4,0:4"])


def laid_out(held: Sequence[str], kept: Sequence[str], shards: Sequence[str] | None = None) -> Document:
    """y[a, b] = 2 x[a, b] + 1 on two ranks, x laid out for some elements, y for others (the shards)."""
    return _over(scaled("f", "x", "y", 2, N, N), held, kept, shards)


def folded() -> Document:
    """y[a] = sum over b of x[a]: every point reads at the place of its result, which several points make together."""
    op = Operation("f", dims(a=N, b=3), "y", d("a"), Read("x", d("a")), ("b",), "sum")
    return _over(op, ["0:4"], ["0:4"], shards=["0:4,0:3"])


def of_dtype(dtype: str) -> Document:
    """y[a] = x[a], y in another dtype."""
    made = written_over(Affine.dim("a"))
    tensors: list[dict[str, Any]] = made.program["tensors"]
    other = [{**each, "dtype": dtype} if each["name"] == "y" else each for each in tensors]
    return replace(made, program={**made.program, "tensors": other})


def _over(
    op: Operation, held: Sequence[str], kept: Sequence[str], shards: Sequence[str] | None = None, extent: int = N
) -> Document:
    shape = (extent,) * (held[0].count(",") + 1)
    tensors = tensor("x", *shape, role="input"), tensor("y", *shape)
    sheet = Sheet(Program("over", tensors, (op,), ("y",)), len(held))
    x = sheet.given("x", sheet.layout(held))
    y = sheet.buffer("y", "y", sheet.layout(kept), at=0)
    sheet.compute("f", sheet.layout(shards or kept), [x], y, over=x)
    return sheet.done({"y": "y"})


def sent_meanwhile(waits: Sequence[int], lane: str = "comm") -> Document:
    """Two ranks gather x while f writes over it, and g uses what was gathered."""
    program = Program(
        "sent",
        (tensor("x", N, role="input"), tensor("y", N), tensor("z", N)),
        (scaled("f", "x", "y", 2, N), scaled("g", "x", "z", 3, N)),
        ("y", "z"),
    )
    sheet = Sheet(program, 2)
    cut, whole = sheet.layout(["0:2", "2:4"]), sheet.layout("0:4")
    x, full = sheet.given("x", cut), sheet.buffer("x.full", "x", whole)
    y, z = sheet.buffer("y", "y", cut, at=0), sheet.buffer("z", "z", whole)
    sheet.transfer("all_gather", "x", x, full, cut, whole)
    sheet.compute("f", cut, [x], y, waits, over=x)
    sheet.compute("g", whole, [full], z, [0])
    return sheet.done({"y": "y", "z": "z"})


def read_later() -> Document:
    """Written over by f, though g reads it afterwards."""
    program = Program(
        "later",
        (tensor("x", N, role="input"), tensor("y", N), tensor("z", N)),
        (scaled("f", "x", "y", 2, N), scaled("g", "x", "z", 3, N)),
        ("y", "z"),
    )
    sheet = Sheet(program, 1)
    whole = sheet.layout("0:4")
    x = sheet.given("x", whole)
    y, z = sheet.buffer("y", "y", whole, at=0), sheet.buffer("z", "z", whole)
    sheet.compute("f", whole, [x], y, over=x)
    sheet.compute("g", whole, [x], z)
    return sheet.done({"y": "y", "z": "z"})
