"""Faults put into what planner and checker share, one at a time, and programs that are planned with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from typing import Any

import pytest

import tapestry as tp
from tapestry import f32, param
from tapestry.expr import Affine, Bound, Read
from tapestry.planner import load_machine, plan
from tapestry.planner.format import resolve
from tapestry.planner.format.document import Document
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.strategy import columns
from tapestry.program import Operation, Pin, PinKind, Program, Tensor
from tapestry.space import Region, parse_region, projection
from tapestry.space.cuts import KINDS

from . import writing

MACHINE = replace(load_machine("cpu-4"), devices_per_host=8)
Fault = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def planted(owner: Any, name: str, fault: Fault) -> Iterator[None]:
    """The attribute behaves as ``fault`` makes of it, in every module that has it by name; nothing is remembered."""
    original = vars(owner)[name]
    wrong = _wrong(original, name, fault)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrong)
        for module in _modules():
            for attribute in [key for key, value in vars(module).items() if value is original]:
                patch.setattr(module, attribute, wrong)
        _forget()
        try:
            yield
        finally:
            patch.undo()
            _forget()


def _wrong(original: Any, name: str, fault: Fault) -> Any:
    if isinstance(original, cached_property):
        found = cached_property(fault(original.func))
        found.__set_name__(type(original), name)
        return found
    if isinstance(original, staticmethod):
        return staticmethod(wraps(original.__func__)(fault(original.__func__)))
    bare = getattr(original, "__wrapped__", original)
    return wraps(bare)(fault(bare))


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "tapestry"]


def _forget() -> None:
    for module in _modules():
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    projection._PREPARED.clear()
    resolve._cache.clear()
    columns._living.clear()


# Programs, with a region of each operation's points for every rank


@dataclass(frozen=True)
class Given:
    """A program and how it is cut; regions are read before anything is planted."""

    program: Program
    shards: Mapping[str, list[Region]]
    homes: Mapping[str, list[Region]] | None = None

    def plan(self) -> Document:
        return plan_partitions(self.program, MACHINE, self.shards, homes=self.homes).document


def regions(*texts: str) -> list[Region]:
    return [parse_region(text) for text in texts]


def one(
    op: Operation,
    *shards: str,
    dtype: str = "int64",
    homes: Mapping[str, list[Region]] | None = None,
    **shapes: tuple[int, ...],
) -> Given:
    """A program of one operation; its operands are parameters, whole on every rank unless told otherwise."""
    tensors = [Tensor(name, dtype, shape, "value" if name == op.output else "param") for name, shape in shapes.items()]
    return Given(Program(op.name, tuple(tensors), (op,), (op.output,)), {op.name: regions(*shards)}, homes)


def index(**terms: int) -> Affine:
    return Affine.sum_of([(name, factor) for name, factor in terms.items() if name != "plus"], terms.get("plus", 0))


def product() -> Given:
    """Hidden units cut over three ranks: a product, a function, and a fold of three shares."""
    tensors = [writing.tensor(n, *s, role="param") for n, s in {"x": (4, 3), "w": (3, 6), "v": (6, 2)}.items()]
    tensors += [writing.tensor("h", 4, 6), writing.tensor("g", 4, 6), writing.tensor("y", 4, 2)]
    ops = writing.matmul("up", "x", "w", "h", 4, 3, 6), writing.scaled("act", "h", "g", 3, 4, 6)
    program = Program("product", tuple(tensors), (*ops, writing.matmul("down", "g", "v", "y", 4, 6, 2)), ("y",))
    shards = {
        "up": regions("0:4,0:2,0:3", "0:4,2:4,0:3", "0:4,4:6,0:3"),
        "act": regions("0:2,0:6", "2:3,0:6", "3:4,0:6"),
        "down": regions("0:4,0:2,0:2", "0:4,0:2,2:4", "0:4,0:2,4:6"),
    }
    homes = {"w": regions("0:3,0:1|5:6", "0:3,1:4", "0:3,4:5"), "v": regions("0:3,0:2", "3:5,0:2", "5:6,0:2")}
    return Given(program, shards, homes)


def corner() -> Given:
    """A shard in the shape of an L, what is left of a square: differences have more than one piece."""
    tensors = (writing.tensor("x", 4, 4, role="param"), writing.tensor("y", 4, 4), writing.tensor("z", 4, 4))
    ops = writing.scaled("f", "x", "y", 2, 4, 4), writing.scaled("g", "y", "z", 3, 4, 4)
    shards = {"f": regions("1:3,1:3", "0:4,0:1|3:4 + 0:1|3:4,1:3"), "g": regions("0:2,0:4", "2:4,0:4")}
    return Given(Program("corner", tensors, ops, ("z",)), shards)


def halo() -> Given:
    """A window of three rows with a guard, over rows that another operation makes."""
    rows = [index(a=1, plus=k) for k in (-1, 0, 1)]
    reads = [Read("y", (row,), (Bound(row, 0, 8),), 1) for row in rows]
    window = Operation(
        "window", writing.dims(a=8), "z", (index(a=1),), writing.plus(writing.plus(*reads[:2]), reads[2])
    )
    tensors = (writing.tensor("x", 8, role="param"), writing.tensor("y", 8), writing.tensor("z", 8))
    cut = regions("0:3", "3:6", "6:8")
    program = Program("halo", tensors, (writing.scaled("f", "x", "y", 2, 8), window), ("z",))
    return Given(program, {"f": cut, "window": cut})


def window(stride: int, dilation: int, taps: int, outputs: int, *shards: str) -> Given:
    """y[p] = sum of x[stride*p + dilation*r], x made by another operation on other ranks."""
    length = stride * (outputs - 1) + dilation * (taps - 1) + 1
    row = index(p=stride, r=dilation)
    fold = Operation("fold", writing.dims(p=outputs, r=taps), "y", (index(p=1),), Read("u", (row,)), ("r",), "sum")
    tensors = (writing.tensor("x", length, role="param"), writing.tensor("u", length), writing.tensor("y", outputs))
    program = Program("window", tensors, (writing.scaled("f", "x", "u", 2, length), fold), ("y",))
    first = regions(*(f"{k}:{length}:{len(shards)}" for k in range(len(shards))))
    return Given(program, {"f": first, "fold": regions(*shards)})


def polyphase() -> Given:
    """Strides 2 and 3 interlock: the sums are dense but for their ends."""
    return window(2, 3, 4, 6, "0:3,0:4", "3:6,0:4")


def sparse() -> Given:
    """Two taps that lie far apart: the sums have gaps."""
    return window(2, 7, 2, 4, "0:1|3:4,0:2", "1:3,0:2")


def cyclic() -> Given:
    """Every second element here, blocks there."""
    tensors = (writing.tensor("x", 9, role="param"), writing.tensor("y", 9), writing.tensor("z", 9))
    ops = writing.scaled("f", "x", "y", 2, 9), writing.scaled("g", "y", "z", 3, 9)
    shards = {"f": regions("0:9:2", "1:9:2"), "g": regions("0:5", "5:9")}
    return Given(Program("cyclic", tensors, ops, ("z",)), shards)


def thirds() -> Given:
    """Two of three here, the third there."""
    given = cyclic()
    return replace(given, shards={**given.shards, "f": regions("0:9:3|2:9:3", "1:9:3")})


def split() -> Given:
    """y[i] = x[i // 4, i % 4], rows cut within a row of x, x made elsewhere."""
    i = Affine.dim("i")
    view = Operation("view", writing.dims(i=12), "y", (i,), Read("u", (i // 4, i % 4)))
    tensors = (writing.tensor("x", 3, 4, role="param"), writing.tensor("u", 3, 4), writing.tensor("y", 12))
    program = Program("split", tensors, (writing.scaled("f", "x", "u", 2, 3, 4), view), ("y",))
    return Given(program, {"f": regions("0:3,0:2", "0:3,2:4"), "view": regions("0:6", "6:12")})


def merged() -> Given:
    """y[a, b] = x[4*a + b], with x made in blocks."""
    view = Operation("view", writing.dims(a=3, b=4), "y", (index(a=1), index(b=1)), Read("u", (index(a=4, b=1),)))
    tensors = (writing.tensor("x", 12, role="param"), writing.tensor("u", 12), writing.tensor("y", 3, 4))
    program = Program("merged", tensors, (writing.scaled("f", "x", "u", 2, 12), view), ("y",))
    return Given(program, {"f": regions("0:6", "6:12"), "view": regions("0:3,0:2", "0:3,2:4")})


def backward() -> Given:
    """y[i] = x[7 - i] and every second of it: factors below zero."""
    turn = Operation("turn", writing.dims(i=4), "y", (index(i=1),), Read("u", (index(i=-2, plus=7),)))
    tensors = (writing.tensor("x", 8, role="param"), writing.tensor("u", 8), writing.tensor("y", 4))
    program = Program("backward", tensors, (writing.scaled("f", "x", "u", 2, 8), turn), ("y",))
    return Given(program, {"f": regions("0:4", "4:8"), "turn": regions("0:1", "1:4")})


def diagonal() -> Given:
    """y[i] = x[i, i] + x[i, 2]: rows that share a dimension, and a constant one."""
    body = writing.plus(Read("u", (index(i=1), index(i=1))), Read("u", (index(i=1), index(plus=2))))
    take = Operation("take", writing.dims(i=4), "y", (index(i=1),), body)
    tensors = (writing.tensor("x", 4, 4, role="param"), writing.tensor("u", 4, 4), writing.tensor("y", 4))
    program = Program("diagonal", tensors, (writing.scaled("f", "x", "u", 2, 4, 4), take), ("y",))
    return Given(program, {"f": regions("0:4,0:2", "0:4,2:4"), "take": regions("0:2", "2:4")})


def causal(*shards: str, least: int | None = None, end: int = 1) -> Given:
    """Sums over the past, all of it or what is near, of values that another operation makes."""
    where = (Bound(index(s=1, t=-1), least, end),)
    body = writing.mul(Read("q", (index(t=1),)), Read("u", (index(s=1),)))
    fold = Operation("fold", writing.dims(t=6, s=6), "y", (index(t=1),), body, ("s",), "sum", where)
    tensors = [writing.tensor(n, 6, role="param") for n in "qx"] + [writing.tensor("u", 6), writing.tensor("y", 6)]
    program = Program("causal", tuple(tensors), (writing.scaled("f", "x", "u", 2, 6), fold), ("y",))
    halves = ["0:3", "3:6", "empty", "empty"][: len(shards)]
    return Given(program, {"f": regions(*halves), "fold": regions(*shards)})


def zigzag() -> Given:
    return causal("0:1|5:6,0:6", "1:5,0:6")


def near() -> Given:
    return causal("0:1|5:6,0:6", "1:5,0:6", least=-3, end=-1)


def squares() -> Given:
    """The square above the diagonal is empty, the one below is a whole share."""
    return causal("0:3,0:3", "0:3,3:6", "3:6,0:3", "3:6,3:6")


def halves() -> Given:
    """Sums of f16 over two ranks: shares are records of f32."""
    fold = Operation(
        "fold", writing.dims(i=3, k=8), "y", (index(i=1),), Read("x", (index(i=1), index(k=1))), ("k",), "sum"
    )
    homes = {"x": regions("0:3,0:4", "0:3,4:8")}
    return one(fold, "0:3,0:4", "0:3,4:8", dtype="f16", homes=homes, x=(3, 8), y=(3,))


def masked() -> Given:
    """A copy of a triangle beside zeros: an operation that writes under no condition reads under one."""
    bound = Bound(index(a=1, b=-1), 0, None)
    body = Read("u", (index(a=1), index(b=1)), (bound,), 0)
    keep = Operation("keep", writing.dims(a=20, b=20), "y", (index(a=1), index(b=1)), body)
    tensors = (writing.tensor("x", 20, 20, role="param"), writing.tensor("u", 20, 20), writing.tensor("y", 20, 20))
    program = Program("masked", tensors, (writing.scaled("f", "x", "u", 2, 20, 20), keep), ("y",))
    return Given(program, {"f": regions("0:20,0:2", "0:20,2:20"), "keep": regions("0:2,0:20", "2:20,0:20")})


@dataclass(frozen=True)
class Pinned:
    """A product after running sums, cut in a way that the planner derives."""

    kind: PinKind

    def plan(self) -> Document:
        program = net.bind(t=22, d=4, k=3)
        first = program.operations[0].name
        pins = Pin("op", first, (("mesh0", "t"),), self.kind), Pin("tensor", "x", (("mesh0", "t"),), self.kind)
        return plan(program, "cpu-4", mesh=(2,), pins=pins).document


@tp.op
def running(x: f32[tp.Tensor, "t d"]) -> f32[tp.Tensor, "t d"]:
    """y[t, d] = sum of x[s, d] over s <= t."""
    t, s, d = tp.indices("t s d")
    return tp.sum[s](x[s, d], where=s <= t)


@tp.program
def net(x: f32[tp.Tensor, "t d"], w: param[f32[tp.Tensor, "d k"]]) -> tp.Tensor:
    return running(x) @ w


GIVEN: dict[str, Callable[[], Given | Pinned]] = {
    **{f"{kind} cut": partial(Pinned, kind) for kind in KINDS},
    **{
        make.__name__: make
        for make in (
            product,
            corner,
            halo,
            polyphase,
            sparse,
            cyclic,
            thirds,
            split,
            merged,
            backward,
            diagonal,
            zigzag,
            near,
            squares,
            halves,
            masked,
        )
    },
}
