"""Plans written by hand, small enough to read: the checker's positive examples, and what the mutator starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tapestry.expr import Affine, Bound, Const, Read
from tapestry.planner.format.document import (
    Compute,
    Document,
    LayoutText,
)
from tapestry.program import Operation, Program, Tensor

from .traffic import restated
from .writing import Sheet, d, dims, matmul, mul, plus, read, rows, scaled, tensor


def _program(
    name: str, tensors: Sequence[Tensor], ops: Sequence[Operation], outputs: Sequence[str], **more: Any
) -> Program:
    return Program(name, tuple(tensors), tuple(ops), tuple(outputs), **more)


# Plans


def elementwise() -> Document:
    """Two ranks, rows cut unevenly; nothing moves."""
    p = _program(
        "elementwise", [tensor("x", 5, 2, role="input"), tensor("y", 5, 2)], [scaled("f", "x", "y", 2, 5, 2)], ["y"]
    )
    s = Sheet(p, 2)
    cut = s.layout(rows([(0, 2), (2, 5)], 2))
    x, y = s.given("x", cut), s.buffer("y", "y", cut)
    s.compute("f", cut, [x], y)
    return s.done({"y": "y"})


def gathered_matmul() -> Document:
    """Three ranks: the weight's rows are gathered, tokens stay cut."""
    p = _program(
        "gathered",
        [tensor("x", 4, 3, role="input"), tensor("w", 3, 2, role="param"), tensor("y", 4, 2)],
        [matmul("mm", "x", "w", "y", 4, 3, 2)],
        ["y"],
    )
    s = Sheet(p, 3)
    tokens = [(0, 1), (1, 2), (2, 4)]
    cut, whole = s.layout(rows([(0, 1), (1, 2), (2, 3)], 2)), s.layout("0:3,0:2")
    x, w = s.given("x", s.layout(rows(tokens, 3))), s.given("w", cut)
    full, y = s.buffer("w.full", "w", whole), s.buffer("y", "y", s.layout(rows(tokens, 2)))
    gather = s.transfer("all_gather", "w", w, full, cut, whole)
    s.compute("mm", s.layout(rows(tokens, 2, 3)), [x, full], y, [gather])
    return s.done({"y": "y"})


def _split(kind: str) -> Document:
    p = _program(
        "split",
        [tensor("x", 3, 6, role="input"), tensor("w", 6, 2, role="param"), tensor("y", 3, 2), tensor("z", 3, 2)],
        [matmul("mm", "x", "w", "y", 3, 6, 2), scaled("f", "y", "z", 3, 3, 2)],
        ["z"],
    )
    s = Sheet(p, 3)
    ks = [(0, 2), (2, 4), (4, 6)]
    whole = s.layout("0:3,0:2")
    x, w = s.given("x", s.layout([f"0:3,{a}:{b}" for a, b in ks])), s.given("w", s.layout(rows(ks, 2)))
    partial = s.buffer("y.part", "y", whole)
    after = whole if kind == "all_reduce" else s.layout(rows([(0, 1), (1, 2), (2, 3)], 2))
    y, z = s.buffer("y", "y", after), s.buffer("z", "z", after)
    work = s.compute("mm", s.layout([f"0:3,0:2,{a}:{b}" for a, b in ks]), [x, w], partial)
    fold = s.transfer(kind, "y", partial, y, s.layout("0:3,0:2", (0, 1, 2)), after, [work], monoid="sum")
    s.compute("f", after, [y], z, [fold])
    return s.done({"z": "z"})


def reduce_scattered() -> Document:
    """Three ranks split the reduction of a product; every rank ends with a row."""
    return _split("reduce_scatter")


def all_reduced() -> Document:
    """The same, every rank ends with everything."""
    return _split("all_reduce")


def replicated_split() -> Document:
    """A 2 x 2 mesh: the reduction is split along one axis and repeated along the other; one fold over all four."""
    p = _program(
        "square",
        [tensor("x", 2, 4, role="param"), tensor("w", 4, 2, role="param"), tensor("y", 2, 2)],
        [matmul("mm", "x", "w", "y", 2, 4, 2)],
        ["y"],
    )
    s = Sheet(p, 4, (2, 2))
    halves = [(0, 2), (2, 4)] * 2
    whole = s.layout("0:2,0:2")
    x, w = s.given("x", s.layout([f"0:2,{a}:{b}" for a, b in halves])), s.given("w", s.layout(rows(halves, 2)))
    partial, y = s.buffer("y.part", "y", whole), s.buffer("y", "y", whole)
    work = s.compute("mm", s.layout([f"0:2,0:2,{a}:{b}" for a, b in halves]), [x, w], partial)
    s.transfer("all_reduce", "y", partial, y, s.layout("0:2,0:2", (0, 1, 0, 1)), whole, [work], monoid="sum")
    return s.done({"y": "y"})


def halo() -> Document:
    """Three ranks: a stencil over rows that an operation made; halos arrive in place, in the buffer of the rows."""
    window = [Read("y", (Affine.dim("a") + k,), (Bound(Affine.dim("a") + k, 0, 9),), 0) for k in (-1, 0, 1)]
    stencil = Operation("stencil", dims(a=9), "z", d("a"), plus(plus(window[0], mul(Const(5), window[1])), window[2]))
    p = _program(
        "halo",
        [tensor("x", 9, role="input"), tensor("y", 9), tensor("z", 9)],
        [scaled("f", "x", "y", 2, 9), stencil],
        ["z"],
    )
    s = Sheet(p, 3)
    own, wide = s.layout(["0:3", "3:6", "6:9"]), s.layout(["0:4", "2:7", "5:9"])
    x, y, z = s.given("x", own), s.buffer("y", "y", wide), s.buffer("z", "z", own)
    made = s.compute("f", own, [x], y)
    shift = s.transfer("shift", "y", y, y, own, wide, [made])
    s.compute("stencil", own, [y], z, [shift])
    return s.done({"z": "z"})


def overlapped_halo() -> Document:
    """The same stencil, its inner rows computed while the halo travels: unordered tasks on other rows of one buffer."""
    base = halo()
    tasks = list(base.tasks)
    inner, edges = LayoutText(("0:3", "4:5", "7:9")), LayoutText(("empty", "3:4|5:6", "6:7"))
    inner = LayoutText(("0:2", "4:5", "7:9"))
    edges = LayoutText(("2:3", "3:4|5:6", "6:7"))
    last = tasks[2]
    assert isinstance(last, Compute)
    tasks[2:] = [
        Compute(2, "compute", "stencil", "inner", last.reads, last.write, (), None),
        Compute(3, "compute", "stencil", "edges", last.reads, last.write, (1,), None),
    ]
    return _replace(base, layouts={**base.layouts, "inner": inner, "edges": edges}, tasks=tuple(tasks))


def prefetch() -> Document:
    """Weights wait in host memory; the third is fetched into the place of the first while the second works."""
    names = ["w0", "w1", "w2"]
    tensors = [tensor("x", 2, 2, role="input"), *(tensor(w, 2, 2, role="param") for w in names)]
    tensors += [tensor(f"y{k}", 2, 2) for k in range(3)]
    ops = [matmul(f"mm{k}", "x" if k == 0 else f"y{k - 1}", w, f"y{k}", 2, 2, 2) for k, w in enumerate(names)]
    p = _program("prefetch", tensors, ops, ["y2"])
    s = Sheet(p, 2)
    whole, row, points = (
        s.layout("0:2,0:2"),
        s.layout(rows([(0, 1), (1, 2)], 2)),
        s.layout(rows([(0, 1), (1, 2)], 2, 2)),
    )
    x = s.given("x", row)
    hosts = [s.buffer(f"{w}.host", w, whole, initial=whole, tier="host") for w in names]
    first, second = (s.buffer(f"{w}.hbm", w, whole) for w in names[:2])
    third = s.buffer("w2.hbm", "w2", whole, at=s.offset(first))
    ys = [s.buffer(f"y{k}", f"y{k}", row) for k in range(2)]
    ys.append(s.buffer("y2", "y2", row, at=s.offset(ys[0])))
    fetch0 = s.copy("h2d", "w0", hosts[0], first, whole)
    fetch1 = s.copy("h2d", "w1", hosts[1], second, whole)
    work0 = s.compute("mm0", points, [x, first], ys[0], [fetch0])
    fetch2 = s.copy("h2d", "w2", hosts[2], third, whole, [work0])
    s.compute("mm1", points, [ys[0], second], ys[1], [fetch1])
    s.compute("mm2", points, [ys[1], third], ys[2], [fetch2])
    return s.done({"y2": "y2"})


def gather_twice() -> Document:
    """Two weights gathered into one place one after the other; a wait keeps the second from coming too soon."""
    tensors = [tensor("x", 2, 2, role="input"), *(tensor(w, 2, 2, role="param") for w in ("v", "w"))]
    tensors += [tensor("y", 2, 2), tensor("z", 2, 2)]
    p = _program(
        "twice", tensors, [matmul("one", "x", "v", "y", 2, 2, 2), matmul("two", "y", "w", "z", 2, 2, 2)], ["z"]
    )
    s = Sheet(p, 2)
    cut, whole = s.layout(rows([(0, 1), (1, 2)], 2)), s.layout("0:2,0:2")
    points = s.layout(rows([(0, 1), (1, 2)], 2, 2))
    x, v, w = (s.given(name, cut) for name in ("x", "v", "w"))
    vfull = s.buffer("v.full", "v", whole)
    wfull = s.buffer("w.full", "w", whole, at=s.offset(vfull))
    y, z = s.buffer("y", "y", cut), s.buffer("z", "z", cut)
    gather = s.transfer("all_gather", "v", v, vfull, cut, whole)
    first = s.compute("one", points, [x, vfull], y, [gather])
    again = s.transfer("all_gather", "w", w, wfull, cut, whole, [first])
    s.compute("two", points, [y, wfull], z, [again])
    return s.done({"z": "z"})


def _causal_op(t: int) -> Operation:
    where = (Bound(Affine.dim("s") - Affine.dim("t"), None, 1),)
    body = mul(mul(Read("q", d("t")), Read("k", d("s"))), Read("v", d("s")))
    return Operation("attend", dims(t=t, s=t), "o", d("t"), body, ("s",), "sum", where)


def causal_program(t: int) -> Program:
    tensors = [*(tensor(name, t, role="input") for name in "qkv"), tensor("o", t)]
    return _program("causal", tensors, [_causal_op(t)], ["o"])


def causal_zigzag() -> Document:
    """Causal attention in miniature, queries cut in balanced pairs; each rank fetches only keys it may see."""
    s = Sheet(causal_program(8), 2)
    pairs, seen = ["0:2|6:8", "2:6"], s.layout(["0:8", "0:6"])
    cut = s.layout(pairs)
    q, k, v = (s.given(name, cut) for name in "qkv")
    kfull, vfull, o = s.buffer("k.seen", "k", seen), s.buffer("v.seen", "v", seen), s.buffer("o", "o", cut)
    first = s.transfer("sends", "k", k, kfull, cut, seen)
    second = s.transfer("sends", "v", v, vfull, cut, seen)
    s.compute("attend", s.layout(["0:2|6:8,0:8", "2:6,0:8"]), [q, kfull, vfull], o, [first, second])
    return s.done({"o": "o"})


def causal_keys_split() -> Document:
    """Causal attention cut along the keys: late keys contribute to late queries only; first rows are never partial."""
    s = Sheet(causal_program(6), 3)
    keys = s.layout(["0:2", "2:4", "4:6"])
    tails = ["0:6", "2:6", "4:6"]
    late = s.layout(tails)
    q = s.given("q", keys)
    k, v = s.given("k", keys), s.given("v", keys)
    qfull, part, o = s.buffer("q.seen", "q", late), s.buffer("o.part", "o", s.layout("0:6")), s.buffer("o", "o", keys)
    fetch = s.transfer("sends", "q", q, qfull, keys, late)
    work = s.compute("attend", s.layout(["0:6,0:2", "0:6,2:4", "0:6,4:6"]), [qfull, k, v], part, [fetch])
    s.transfer("reduce_scatter", "o", part, o, s.layout(tails, (0, 1, 2)), keys, [work], monoid="sum")
    return s.done({"o": "o"})


def shares_in_turn() -> Document:
    """Two ranks: a product with the weight's rows shifted from one to the other, half of the reduction at a time.

    Both halves are folded into one buffer; the second half of the weight arrives while the first is used.
    """
    p = _program(
        "turns",
        [tensor("x", 4, 4, role="input"), tensor("w", 4, 2, role="param"), tensor("y", 4, 2), tensor("z", 4, 2)],
        [matmul("mm", "x", "w", "y", 4, 4, 2), scaled("f", "y", "z", 3, 4, 2)],
        ["z"],
    )
    s = Sheet(p, 2)
    own, other = s.layout(["0:2,0:2", "2:4,0:2"]), s.layout(["2:4,0:2", "0:2,0:2"])
    x, w = s.given("x", s.layout(["0:2,0:4", "2:4,0:4"])), s.given("w", own)
    passed, y, z = s.buffer("w.passed", "w", other), s.buffer("y", "y", own), s.buffer("z", "z", own)
    shift = s.transfer("all_to_all", "w", w, passed, own, other)
    s.compute("mm", s.layout(["0:2,0:2,0:2", "2:4,0:2,2:4"]), [x, w], y)
    s.compute("mm", s.layout(["0:2,0:2,2:4", "2:4,0:2,0:2"]), [x, passed], y, [shift], onto=y)
    s.compute("f", own, [y], z)
    return s.done({"z": "z"})


def causal_in_turn() -> Document:
    """Causal attention in miniature, keys passed on: the first rank has nothing to fold the second time.

    The outcome of the second turn lies in a buffer of its own; what the first turn finished is brought along.
    """
    s = Sheet(causal_program(6), 2)
    own, past = s.layout(["0:3", "3:6"]), s.layout(["empty", "0:3"])
    q, k, v = (s.given(name, own) for name in "qkv")
    earlier = [s.buffer(f"{name}.past", name, past) for name in "kv"]
    part, o = s.buffer("o.part", "o", own), s.buffer("o", "o", own)
    moved = [s.transfer("shift", name, name, to, own, past) for name, to in zip("kv", earlier, strict=True)]
    s.compute("attend", s.layout(["0:3,0:3", "3:6,3:6"]), [q, k, v], part)
    s.compute("attend", s.layout(["0:3,3:6", "3:6,0:3"]), [q, *earlier], o, moved, onto=part)
    return s.done({"o": "o"})


def shares_of_shares() -> Document:
    """A reduction cut over two ranks, each of which folds its half in two turns; then one fold over both."""
    p = _program(
        "halves",
        [tensor("x", 2, 4, role="input"), tensor("w", 4, 2, role="param"), tensor("y", 2, 2)],
        [matmul("mm", "x", "w", "y", 2, 4, 2)],
        ["y"],
    )
    s = Sheet(p, 2)
    whole, rows_ = s.layout("0:2,0:2"), s.layout(["0:1,0:2", "1:2,0:2"])
    x, w = s.given("x", s.layout(["0:2,0:2", "0:2,2:4"])), s.given("w", s.layout(["0:2,0:2", "2:4,0:2"]))
    part, y = s.buffer("y.part", "y", whole), s.buffer("y", "y", rows_)
    s.compute("mm", s.layout(["0:2,0:2,0:1", "0:2,0:2,2:3"]), [x, w], part)
    work = s.compute("mm", s.layout(["0:2,0:2,1:2", "0:2,0:2,3:4"]), [x, w], part, onto=part)
    s.transfer("reduce_scatter", "y", part, y, s.layout("0:2,0:2", (0, 1)), rows_, [work], monoid="sum")
    return s.done({"y": "y"})


def stages() -> Document:
    """Two stages on two ranks; the second sends its result back. Tasks of single ranks, a transfer with empty needs."""
    p = _program(
        "stages",
        [tensor("x", 4, role="input"), tensor("y", 4), tensor("z", 4), tensor("u", 4)],
        [scaled("f", "x", "y", 2, 4), scaled("g", "y", "z", 3, 4), scaled("h", "z", "u", 5, 4)],
        ["u"],
    )
    s = Sheet(p, 2)
    first, second = s.layout(["0:4", "empty"]), s.layout(["empty", "0:4"])
    x, y, there = s.given("x", first), s.buffer("y", "y", first), s.buffer("y.there", "y", second)
    z, back, u = s.buffer("z", "z", second), s.buffer("z.back", "z", first), s.buffer("u", "u", first)
    a = s.compute("f", first, [x], y, ranks=(0,))
    go = s.transfer("sends", "y", y, there, first, second, [a])
    b = s.compute("g", second, [there], z, [go], ranks=(1,))
    come = s.transfer("sends", "z", z, back, second, first, [b])
    s.compute("h", first, [back], u, [come], ranks=(0,))
    return s.done({"u": "u"})


def chunked() -> Document:
    """A product in two chunks of tokens: the second is gathered while the first is computed."""
    p = _program(
        "chunked",
        [tensor("x", 4, 2, role="input"), tensor("w", 2, 4, role="param"), tensor("y", 4, 4), tensor("z", 4, 4)],
        [matmul("mm", "x", "w", "y", 4, 2, 4), scaled("f", "y", "z", 2, 4, 4)],
        ["z"],
    )
    s = Sheet(p, 2)
    own, full = s.layout(["0:1|2:3,0:2", "1:2|3:4,0:2"]), s.layout("0:4,0:2")
    chunk = [(["0:1,0:2", "1:2,0:2"], "0:2,0:2"), (["2:3,0:2", "3:4,0:2"], "2:4,0:2")]
    columns = s.layout(["0:4,0:2", "0:4,2:4"])
    x, w = s.given("x", own), s.given("w", s.layout(["0:2,0:2", "0:2,2:4"]))
    xs, y = s.buffer("x.full", "x", full), s.buffer("y", "y", columns)
    z = s.buffer("z", "z", columns)
    gathers = [s.transfer("all_gather", "x", x, xs, s.layout(have), s.layout(need)) for have, need in chunk]
    for k, (a, b) in enumerate([(0, 2), (2, 4)]):
        s.compute("mm", s.layout([f"{a}:{b},0:2,0:2", f"{a}:{b},2:4,0:2"]), [xs, w], y, [gathers[k]])
        s.compute("f", s.layout([f"{a}:{b},0:2", f"{a}:{b},2:4"]), [y], z)
    return s.done({"z": "z"})


def state() -> Document:
    """A running sum that ends where it started, beside an output made of it."""
    add = Operation("add", dims(a=4), "new", d("a"), plus(Read("acc", d("a")), Read("x", d("a"))))
    tensors = [tensor("x", 4, role="input"), tensor("acc", 4, role="state"), tensor("new", 4), tensor("y", 4)]
    p = _program("state", tensors, [add, scaled("f", "new", "y", 2, 4)], ["y"], states=(("acc", "new"),))
    s = Sheet(p, 2)
    cut = s.layout(["0:2", "2:4"])
    x, acc = s.given("x", cut), s.given("acc", cut)
    new, y = s.buffer("new", "new", cut), s.buffer("y", "y", cut, at=0)
    work = s.compute("add", cut, [acc, x], new)
    s.compute("f", cut, [new], y, [work])
    return s.done({"y": "y"}, {"acc": "new"})


def replaced() -> Document:
    """Weights that a step updates in their own place, a mask over what it masks, and a read in another place beside it.

    Rank 1 has columns that lie apart, with a gap between them.
    """
    a, b = d("a", "b")
    inside = (Bound(a, 0, 3),)
    step = Operation("step", dims(a=4, b=4), "v", (a, b), plus(Read("w", (a, b)), mul(Const(3), Read("g", (b, a)))))
    mask = Operation("mask", dims(a=4, b=4), "y", (a, b), plus(Read("g", (a, b), inside, 7), Read("v", (a, b))))
    tensors = [tensor("w", 4, 4, role="state"), tensor("g", 4, 4, role="input"), tensor("v", 4, 4), tensor("y", 4, 4)]
    p = _program("replaced", tensors, [step, mask], ["y"], states=(("w", "v"),))
    s = Sheet(p, 2)
    cut = s.layout(["0:4,1:3", "0:4,0:1|3:4"])
    w, g = s.given("w", cut), s.given("g", cut)
    turned = s.layout(["0:4,0:4", "0:4,0:4"])
    full = s.buffer("g.full", "g", turned)
    gather = s.transfer("all_gather", "g", g, full, cut, turned)
    v = s.buffer("v", "v", cut, at=s.offset(w))
    s.compute("step", cut, [w, full], v, [gather], over=w)
    y = s.buffer("y", "y", cut, at=s.offset(g))
    s.compute("mask", cut, [g, v], y, over=g)
    return s.done({"y": "y"}, {"w": "v"})


def _replace(document: Document, **changes: Any) -> Document:
    return restated(replace(document, **changes), read(document))


ALL: dict[str, Callable[[], Document]] = {
    make.__name__: make
    for make in (
        elementwise,
        gathered_matmul,
        reduce_scattered,
        all_reduced,
        replicated_split,
        halo,
        overlapped_halo,
        prefetch,
        gather_twice,
        causal_zigzag,
        causal_keys_split,
        shares_in_turn,
        causal_in_turn,
        shares_of_shares,
        stages,
        chunked,
        state,
        replaced,
    )
}
