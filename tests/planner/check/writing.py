"""How plans are written by hand: a sheet that one fills in, and the few operations they use.

Everything is int64, so that values are exact and the memory of a rank is an array of 8-byte cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from tapestry.expr import Affine, Call, Const, Read
from tapestry.planner.format.document import (
    Buffer,
    Claims,
    Compute,
    Copy,
    Document,
    LayoutText,
    Predicted,
    Task,
    Traffic,
    Transfer,
)
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.serialize import program_from_json, program_to_json

from . import traffic
from .elements import places

CELL = 8
HBM, HOST = 4096, 1 << 20


def machine(devices: int, hbm: int = HBM) -> dict[str, Any]:
    tiers = [
        {"name": "hbm", "capacity_bytes": hbm, "read_gb_per_s": 1.0, "write_gb_per_s": 1.0, "shared_per_host": False},
        {"name": "host", "capacity_bytes": HOST, "read_gb_per_s": 1.0, "write_gb_per_s": 1.0, "shared_per_host": True},
    ]
    device = {
        "name": "toy",
        "launch_overhead_s": 0.0,
        "peak": [{"kernel": "elementwise", "dtype": "f64", "tflops": 1.0}],
        "tiers": tiers,
        "overlap": True,
        "paces": [],
    }
    links = [{"kind": "wire", "gb_per_s": 1.0, "latency_s": 0.0, "scope": "host", "curve": []}]
    return {"name": "toy", "description": "", "device": device, "hosts": 1, "devices_per_host": devices, "links": links}


def rows(parts: Sequence[tuple[int, int]], *others: int) -> list[str]:
    """One interval of the first axis per rank, the other axes whole."""
    return [",".join([f"{a}:{b}", *(f"0:{n}" for n in others)]) for a, b in parts]


class Sheet:
    """A plan being written: layouts, buffers and tasks get names and numbers in the order they are put down."""

    def __init__(self, program: Program, ranks: int, mesh: tuple[int, ...] | None = None) -> None:
        self.program, self.ranks, self.mesh = program, ranks, mesh or (ranks,)
        self.layouts: dict[str, LayoutText] = {}
        self.buffers: list[Buffer] = []
        self.tasks: list[Task] = []
        self.free = {"hbm": 0, "host": 0}

    def layout(self, regions: Sequence[str] | str, parts: Sequence[int] | None = None) -> str:
        each = (regions,) * self.ranks if isinstance(regions, str) else tuple(regions)
        made = LayoutText(each, None if parts is None else tuple(parts))
        for name, known in self.layouts.items():
            if known == made:
                return name
        self.layouts[f"L{len(self.layouts)}"] = made
        return f"L{len(self.layouts) - 1}"

    def buffer(
        self,
        name: str,
        tensor: str,
        layout: str,
        *,
        initial: str | None = None,
        tier: str = "hbm",
        at: int | None = None,
    ) -> str:
        """``at`` reuses memory; otherwise the buffer follows all others of its tier."""
        nbytes = CELL * max(len(places(text)) for text in self.layouts[layout].regions)
        offset = self.free[tier] if at is None else at
        self.free[tier] = max(self.free[tier], offset + nbytes)
        self.buffers.append(Buffer(name, tensor, layout, tier, offset, nbytes, initial))
        return name

    def given(self, tensor: str, layout: str, **options: Any) -> str:
        return self.buffer(tensor, tensor, layout, initial=layout, **options)

    def offset(self, name: str) -> int:
        return next(b.offset for b in self.buffers if b.name == name)

    def _add(self, make: Callable[[int], Task]) -> int:
        self.tasks.append(make(len(self.tasks)))
        return len(self.tasks) - 1

    def compute(
        self,
        op: str,
        shards: str,
        reads: Sequence[str],
        write: str,
        waits: Sequence[int] = (),
        ranks: tuple[int, ...] | None = None,
        *,
        over: str | None = None,
        onto: str | None = None,
    ) -> int:
        prior = UNSET if onto is None else onto
        return self._add(
            lambda k: Compute(k, "compute", op, shards, tuple(reads), write, tuple(waits), ranks, over, prior)
        )

    def transfer(
        self,
        kind: str,
        tensor: str,
        source: str,
        target: str,
        have: str,
        need: str,
        waits: Sequence[int] = (),
        *,
        monoid: str | None = None,
        ranks: tuple[int, ...] | None = None,
    ) -> int:
        return self._add(
            lambda k: Transfer(k, "comm", tensor, kind, source, target, have, need, monoid, tuple(waits), ranks)
        )

    def copy(self, lane: str, tensor: str, source: str, target: str, need: str, waits: Sequence[int] = ()) -> int:
        return self._add(lambda k: Copy(k, lane, tensor, source, target, need, tuple(waits), None))

    def done(self, outputs: dict[str, str], states: dict[str, str] | None = None) -> Document:
        peaks = {str(rank): dict(self.free) for rank in range(self.ranks)}
        document = Document(
            program=program_to_json(self.program),
            machine=machine(self.ranks),
            mesh=self.mesh,
            mesh_axes=tuple(f"mesh{k}" for k in range(len(self.mesh))),
            devices=tuple(range(self.ranks)),
            layouts=self.layouts,
            buffers=tuple(self.buffers),
            tasks=tuple(self.tasks),
            outputs=outputs,
            states=states or {},
            shardings={},
            predicted=Predicted(0.0, 0.0, 0.0),
            traffic=Traffic(0, {}, {}),
            peak_bytes=peaks,
            bound=None,
            claims=Claims("by hand", "time", 0.0, 0, 0.0, 0),
        )
        return traffic.restated(document, self.program)


def read(document: Document) -> Program:
    """The program that a plan embeds."""
    return program_from_json(document.program)


# Programs


def d(*names: str) -> tuple[Affine, ...]:
    return tuple(Affine.dim(name) for name in names)


def mul(a: Any, b: Any) -> Call:
    return Call("multiply", (a, b))


def plus(a: Any, b: Any) -> Call:
    return Call("add", (a, b))


def dims(**extents: int) -> tuple[Dim, ...]:
    return tuple(Dim(name, extent) for name, extent in extents.items())


def tensor(name: str, *shape: int, role: Any = "value") -> Tensor:
    return Tensor(name, "int64", shape, role)


def scaled(name: str, source: str, target: str, factor: int, *extents: int) -> Operation:
    """target[...] = factor * source[...] + 1"""
    names = "abc"[: len(extents)]
    body = plus(mul(Const(factor), Read(source, d(*names))), Const(1))
    return Operation(name, dims(**dict(zip(names, extents, strict=True))), target, d(*names), body)


def matmul(name: str, left: str, right: str, target: str, m: int, k: int, n: int) -> Operation:
    body = mul(Read(left, d("m", "k")), Read(right, d("k", "n")))
    return Operation(name, dims(m=m, n=n, k=k), target, d("m", "n"), body, ("k",), "sum")
