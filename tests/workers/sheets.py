"""Plans written by hand for the workers: a program, layouts, buffers one after another, tasks in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tapestry.expr import Affine, Bound, Call, Expr, Read
from tapestry.planner.format import (
    Buffer,
    Claims,
    Compute,
    Copy,
    Document,
    LayoutText,
    Predicted,
    Resolved,
    Task,
    Traffic,
    Transfer,
)
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.serialize import program_to_json
from tapestry.space import parse_region


def dim(name: str) -> Affine:
    return Affine.dim(name)


def read(tensor: str, *index: Affine | int | str) -> Read:
    return Read(tensor, tuple(dim(i) if isinstance(i, str) else Affine.of(i) for i in index))


def call(function: str, *args: Expr) -> Call:
    return Call(function, args)


class Sheet:
    """A plan being put down, line by line."""

    def __init__(self, program: Program, ranks: int) -> None:
        self.program, self.ranks = program, ranks
        self.layouts: dict[str, LayoutText] = {}
        self.buffers: list[Buffer] = []
        self.tasks: list[Task] = []
        self.end = 0

    def layout(self, regions: Sequence[str] | str, parts: Sequence[int] | None = None) -> str:
        each = (regions,) * self.ranks if isinstance(regions, str) else tuple(regions)
        name = f"L{len(self.layouts)}"
        self.layouts[name] = LayoutText(each, None if parts is None else tuple(parts))
        return name

    def buffer(self, tensor: str, regions: Sequence[str] | str, *, initial: bool | Sequence[str] = False) -> str:
        """A buffer behind all others; ``initial`` True: it starts full, or with the given regions."""
        layout = self.layout(regions)
        start = layout if initial is True else self.layout(initial) if initial else None
        name = f"{tensor}.{len(self.buffers)}"
        sizes = [parse_region(text).storage() for text in self.layouts[layout].regions]
        nbytes = self.program.tensor(tensor).itemsize * max(grid.size if grid else 0 for grid in sizes)
        self.buffers.append(Buffer(name, tensor, layout, "host", self.end, nbytes, start))
        self.end += -(-nbytes // 64) * 64
        return name

    def compute(
        self,
        op: str,
        shards: Sequence[str] | str,
        reads: Sequence[str],
        write: str,
        waits: Sequence[int] = (),
        lane: str = "compute",
    ) -> int:
        self.tasks.append(Compute(len(self.tasks), lane, op, self.layout(shards), tuple(reads), write, tuple(waits)))
        return len(self.tasks) - 1

    def transfer(
        self,
        tensor: str,
        source: str,
        target: str,
        have: Sequence[str] | str,
        need: Sequence[str] | str,
        waits: Sequence[int] = (),
        parts: Sequence[int] | None = None,
        monoid: str | None = None,
        lane: str = "comm",
        ranks: tuple[int, ...] | None = None,
    ) -> int:
        held, needed = self.layout(have, parts), self.layout(need)
        number = len(self.tasks)
        self.tasks.append(
            Transfer(number, lane, tensor, "send", source, target, held, needed, monoid, tuple(waits), ranks)
        )
        return number

    def copy(self, tensor: str, source: str, target: str, need: Sequence[str] | str, waits: Sequence[int] = ()) -> int:
        self.tasks.append(Copy(len(self.tasks), "copy", tensor, source, target, self.layout(need), tuple(waits)))
        return len(self.tasks) - 1

    def document(self, outputs: Mapping[str, str], states: Mapping[str, str] | None = None) -> Document:
        return Document(
            program=program_to_json(self.program),
            machine={},
            mesh=(self.ranks,),
            mesh_axes=("mesh0",),
            devices=tuple(range(self.ranks)),
            layouts=self.layouts,
            buffers=tuple(self.buffers),
            tasks=tuple(self.tasks),
            outputs=dict(outputs),
            states=dict(states or {}),
            shardings={},
            predicted=Predicted(0.0, 0.0, 0.0),
            traffic=Traffic(0, {}, {}),
            peak_bytes={},
            bound=None,
            claims=Claims("by hand", "time", 0.0, 0, 0.0, 0),
        )


# -- programs and plans that several tests share -------------------------------------------------------------------


def matmul(dtype: str = "f32", out: str | None = None, m: int = 6, n: int = 5, k: int = 8) -> Program:
    """c[i, j] = sum[k] a[i, k] b[k, j]."""
    tensors = (
        Tensor("a", dtype, (m, k), "input"),
        Tensor("b", dtype, (k, n), "param"),
        Tensor("c", out or dtype, (m, n)),
    )
    dims = (Dim("i", m), Dim("j", n), Dim("k", k))
    body = call("multiply", read("a", "i", "k"), read("b", "k", "j"))
    op = Operation("product", dims, "c", (dim("i"), dim("j")), body, ("k",), "sum")
    return Program("matmul", tensors, (op,), ("c",))


def split_matmul(dtype: str = "f32", out: str | None = None) -> Document:
    """Each of two ranks multiplies half of the folded dimension; the halves are folded to rows of the result."""
    sheet = Sheet(matmul(dtype, out), 2)
    a = sheet.buffer("a", ["0:6,0:4", "0:6,4:8"], initial=True)
    b = sheet.buffer("b", ["0:4,0:5", "4:8,0:5"], initial=True)
    part, c = sheet.buffer("c", "0:6,0:5"), sheet.buffer("c", ["0:3,0:5", "3:6,0:5"])
    product = sheet.compute("product", ["0:6,0:5,0:4", "0:6,0:5,4:8"], [a, b], part)
    whole, rows = "0:6,0:5", ["0:3,0:5", "3:6,0:5"]
    sheet.transfer("c", part, c, whole, rows, [product], parts=(0, 1), monoid="sum")
    return sheet.document({"c": c})


def blur() -> Program:
    """Three taps along 8 elements, zeros outside, twice."""
    tensors = (Tensor("x", "f32", (8,), "input"), Tensor("y", "f32", (8,)), Tensor("z", "f32", (8,)))

    def op(name: str, source: str, target: str) -> Operation:
        at = [dim("i") + d for d in (-1, 0, 1)]
        taps = [Read(source, (index,), (Bound(index, 0, 8),), 0.0) for index in at]
        body = call("add", call("add", taps[0], taps[1]), taps[2])
        return Operation(name, (Dim("i", 8),), target, (dim("i"),), body)

    return Program("blur", tensors, (op("first", "x", "y"), op("second", "y", "z")), ("z",))


def halo_blur() -> Document:
    """Two ranks with four elements each; one of halo is exchanged before each blur, in place."""
    sheet = Sheet(blur(), 2)
    mine, wide = ["0:4", "4:8"], ["0:5", "3:8"]
    x = sheet.buffer("x", wide, initial=mine)
    y, z = sheet.buffer("y", wide), sheet.buffer("z", mine)
    before = sheet.transfer("x", x, x, mine, wide)
    first = sheet.compute("first", mine, [x], y, [before])
    between = sheet.transfer("y", y, y, mine, wide, [first])
    sheet.compute("second", mine, [y], z, [between])
    return sheet.document({"z": z})


def zeros_padded_blur(x: np.ndarray) -> np.ndarray:
    return np.convolve(x, np.ones(3, x.dtype), "same")


def resolved(document: Document) -> Resolved:
    return Resolved(document)
