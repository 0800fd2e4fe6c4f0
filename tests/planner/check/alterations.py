"""Documents altered by hand, each with the verdict that it deserves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from tapestry.expr import Affine, Bound, Read
from tapestry.planner.check import Code
from tapestry.planner.format.document import (
    Copy,
    Document,
    KernelTime,
    LayoutText,
    LowerBound,
    Sharding,
    Traffic,
    Transfer,
    Workspace,
)
from tapestry.program import Block, Dim, Operation, Pin, Program, Tensor
from tapestry.serialize import program_from_json, program_to_json

from . import plans, writing
from .rewriting import written_over


def task(document: Document, k: int, **changes: Any) -> Document:
    altered = replace(document.tasks[k], **changes)
    return replace(document, tasks=(*document.tasks[:k], altered, *document.tasks[k + 1 :]))


def buffer(document: Document, which: str, **changes: Any) -> Document:
    return replace(document, buffers=tuple(replace(b, **changes) if b.name == which else b for b in document.buffers))


def laid(document: Document, *regions: str, parts: tuple[int, ...] | None = None) -> Document:
    """With one layout more, named "extra"."""
    return replace(document, layouts={**document.layouts, "extra": LayoutText(regions, parts)})


def roomy(lane: str = "compute", *, tier: str = "hbm", offset: int = 256, nbytes: int = 512) -> Document:
    """With a workspace behind the buffers, which is in the peak."""
    peaks = {rank: {"hbm": offset + nbytes} for rank in "01"}
    rooms = {lane: Workspace(tier, offset, nbytes)}
    return replace(plans.elementwise(), workspaces=rooms, peak_bytes=peaks)


def machine(document: Document, **changes: Any) -> Document:
    return replace(document, machine={**document.machine, **changes})


def _two_rooms() -> Document:
    document = roomy()
    return replace(document, workspaces={**document.rooms, "comm": Workspace("hbm", 512, 256)})


def uncuttable() -> Document:
    document = plans.elementwise()
    program = program_from_json(document.program)
    (op,) = program.operations
    dims = (Dim("a", 5, cut=False), op.dims[1])
    fixed = Operation(op.name, dims, op.output, op.write, op.body)
    return replace(document, program=program_to_json(_with_operation(program, fixed)))


def softmax_state() -> Document:
    """Keys cut over two ranks, the states (o_0, o_1, l, m) of two queries folded on both."""
    t, s, c = (Affine.dim(name) for name in "tsc")
    inside = (Bound(c, 0, 2),)
    reads = Read("q", (t, c), inside), Read("k", (s, c), inside), Read("v", (s, c), inside)
    dims = Dim("t", 2), Dim("s", 6), Dim("c", 4, cut=False)
    op = Operation(
        "attend", dims, "state", (t, c), Block("attention", reads, (("scale", 1.0),)), ("s",), "online_softmax"
    )
    shapes = {"q": (2, 2), "k": (6, 2), "v": (6, 2)}
    tensors = [Tensor(name, "f64", shape, "param") for name, shape in shapes.items()]
    program = Program("softmax", (*tensors, Tensor("state", "f64", (2, 4))), (op,), ("state",))
    sheet = writing.Sheet(program, 2)
    whole, keys = sheet.layout("0:2,0:4"), sheet.layout(["0:3,0:2", "3:6,0:2"])
    given = [sheet.given("q", sheet.layout("0:2,0:2")), sheet.given("k", keys), sheet.given("v", keys)]
    part, state = sheet.buffer("part", "state", whole), sheet.buffer("state", "state", whole)
    work = sheet.compute("attend", sheet.layout(["0:2,0:3,0:4", "0:2,3:6,0:4"]), given, part)
    have = sheet.layout("0:2,0:4", (0, 1))
    sheet.transfer("all_reduce", "state", part, state, have, whole, [work], monoid="online_softmax")
    return sheet.done({"state": "state"})


def _with_operation(program: Program, op: Operation) -> Program:
    return Program(program.name, program.tensors, (op,), program.outputs)


def crossed() -> Document:
    """Two transfers that two ranks put in different orders."""
    document = plans.causal_zigzag()
    late = replace(document.tasks[0], waits=(1,))
    return replace(document, tasks=(late, replace(document.tasks[1], waits=(0,)), document.tasks[2]))


def needless_records() -> Document:
    """A buffer of f32 elements that says it holds records."""
    document = plans.elementwise()
    last = msgspec.structs.replace(document.buffers[-1], record=("f32",))
    return replace(document, buffers=(*document.buffers[:-1], last))


def _turned_once_more() -> Document:
    """A product that is finished, and a turn folded onto it."""
    tensors = (
        writing.tensor("x", 2, 4, role="param"),
        writing.tensor("w", 4, 2, role="param"),
        writing.tensor("y", 2, 2),
    )
    s = writing.Sheet(Program("again", tensors, (writing.matmul("mm", "x", "w", "y", 2, 4, 2),), ("y",)), 1)
    given = [s.given("x", s.layout("0:2,0:4")), s.given("w", s.layout("0:4,0:2"))]
    y, whole = s.buffer("y", "y", s.layout("0:2,0:2")), s.layout("0:2,0:2,0:4")
    s.compute("mm", whole, given, y)
    s.compute("mm", whole, given, y, onto=y)
    return s.done({"y": "y"})


def _turn_twice() -> Document:
    """The second half of a reduction is folded onto the first, and again onto both."""
    document = plans.shares_in_turn()
    again = replace(document.tasks[2], id=9)
    return replace(document, tasks=(*document.tasks[:3], again, document.tasks[3]))


def _turn_left_out() -> Document:
    document = plans.shares_in_turn()
    return replace(document, tasks=(*document.tasks[:2], document.tasks[3]))


PROVOKED: list[tuple[str, Code, Callable[[], Document]]] = [
    ("records where no fold takes any", Code.RECORD, needless_records),
    ("a program that is no program", Code.PROGRAM, lambda: replace(plans.elementwise(), program={"format": "?"})),
    ("a machine without tiers", Code.MACHINE, lambda: machine(plans.elementwise(), device={})),
    ("a device that is not there", Code.MACHINE, lambda: replace(plans.elementwise(), devices=(0, 7))),
    ("a device for two ranks", Code.MACHINE, lambda: replace(plans.elementwise(), devices=(0, 0))),
    ("a mesh of another size", Code.MACHINE, lambda: replace(plans.elementwise(), mesh=(3,))),
    ("a mesh with an axis too many", Code.MACHINE, lambda: replace(plans.elementwise(), mesh_axes=("a", "b"))),
    ("an unknown layout", Code.REFERENCE, lambda: task(plans.elementwise(), 0, shards="nothing")),
    ("an unknown buffer", Code.REFERENCE, lambda: task(plans.elementwise(), 0, write="nothing")),
    ("an unknown operation", Code.REFERENCE, lambda: task(plans.elementwise(), 0, op="nothing")),
    ("an unknown tensor", Code.REFERENCE, lambda: task(plans.halo(), 1, tensor="nothing")),
    ("an unknown tier", Code.REFERENCE, lambda: buffer(plans.elementwise(), "x", tier="tape")),
    ("a workspace in an unknown tier", Code.REFERENCE, lambda: roomy(tier="tape")),
    ("a wait for nothing", Code.REFERENCE, lambda: task(plans.elementwise(), 0, waits=(77,))),
    ("no place for an output", Code.REFERENCE, lambda: replace(plans.elementwise(), outputs={})),
    ("an output of another tensor", Code.REFERENCE, lambda: replace(plans.elementwise(), outputs={"y": "x"})),
    ("a state that keeps its old value", Code.REFERENCE, lambda: replace(plans.state(), states={"acc": "acc"})),
    ("two tasks of one number", Code.DUPLICATE, lambda: task(plans.gathered_matmul(), 1, id=0, waits=())),
    ("two buffers of one name", Code.DUPLICATE, lambda: _namesakes()),
    ("text that is no region", Code.LAYOUT, lambda: laid(plans.elementwise(), "0:2,", "0:2")),
    ("too few regions", Code.LAYOUT, lambda: laid(plans.elementwise(), "0:2,0:2")),
    (
        "a shard beyond the domain",
        Code.LAYOUT,
        lambda: task(laid(plans.elementwise(), "0:2,0:2", "2:6,0:2"), 0, shards="extra"),
    ),
    (
        "a shard of other dimensions",
        Code.LAYOUT,
        lambda: task(laid(plans.elementwise(), "0:2", "2:5"), 0, shards="extra"),
    ),
    (
        "a source that is not laid out for what it has",
        Code.LAYOUT,
        lambda: task(laid(plans.halo(), "0:3", "3:8", "6:9"), 1, have="extra"),
    ),
    ("a buffer that is too small", Code.STORAGE, lambda: buffer(plans.elementwise(), "y", nbytes=47)),
    ("a buffer between elements", Code.STORAGE, lambda: buffer(plans.elementwise(), "y", offset=52)),
    ("a workspace of no bytes", Code.STORAGE, lambda: roomy(nbytes=0)),
    ("a workspace at an odd place", Code.STORAGE, lambda: roomy(offset=264)),
    ("a workspace before the start", Code.STORAGE, lambda: roomy(offset=-256)),
    ("a buffer before the start", Code.STORAGE, lambda: buffer(plans.elementwise(), "y", offset=-8)),
    ("no such lane", Code.TASK, lambda: task(plans.elementwise(), 0, lane="fast")),
    ("a workspace of no lane", Code.TASK, lambda: roomy("fast")),
    ("no such kind", Code.TASK, lambda: task(plans.halo(), 1, kind="wish")),
    ("no ranks", Code.TASK, lambda: task(plans.elementwise(), 0, ranks=())),
    ("a rank too many", Code.TASK, lambda: task(plans.elementwise(), 0, ranks=(0, 2))),
    ("operands exchanged", Code.TASK, lambda: task(plans.state(), 0, reads=("x", "acc"))),
    ("work in host memory", Code.TASK, lambda: task(plans.prefetch(), 2, reads=("x", "w0.host"))),
    (
        "a partial need",
        Code.TASK,
        lambda: task(laid(plans.halo(), "0:4", "2:7", "5:9", parts=(0, 1, 2)), 1, need="extra"),
    ),
    (
        "shards with part numbers",
        Code.TASK,
        lambda: task(laid(plans.elementwise(), "0:2,0:2", "2:5,0:2", parts=(0, 1)), 0, shards="extra"),
    ),
    ("a copy of another tensor", Code.TASK, lambda: task(plans.prefetch(), 0, source="w1.host")),
    ("a transfer from another tier", Code.TASK, lambda: _fetched_by_transfer()),
    ("a copy onto itself", Code.TASK, lambda: task(plans.prefetch(), 0, target="w0.host")),
    ("more than a tier holds", Code.CAPACITY, lambda: buffer(plans.elementwise(), "y", offset=writing.HBM - 8)),
    ("a workspace beyond what a tier holds", Code.CAPACITY, lambda: roomy(nbytes=writing.HBM)),
    ("another peak", Code.PEAK, lambda: replace(plans.elementwise(), peak_bytes={"0": {"hbm": 96}, "1": {"hbm": 8}})),
    ("a workspace in no peak", Code.PEAK, lambda: replace(roomy(), peak_bytes=plans.elementwise().peak_bytes)),
    (
        "a row in no shard",
        Code.UNCOVERED,
        lambda: task(laid(plans.elementwise(), "0:2,0:2", "3:5,0:2"), 0, shards="extra"),
    ),
    (
        "keys in two shares",
        Code.OVERCOVERED,
        lambda: task(laid(plans.reduce_scattered(), *(f"0:3,0:2,{a}:{a + 2}" for a in (0, 1, 4))), 0, shards="extra"),
    ),
    ("a cut through what stays whole", Code.UNCUTTABLE, uncuttable),
    (
        "half a softmax state folded",
        Code.UNCUTTABLE,
        lambda: task(laid(softmax_state(), "0:2,0:3", "0:2,0:4"), 1, need="extra"),
    ),
    (
        "half a softmax state contributed",
        Code.UNCUTTABLE,
        lambda: task(laid(softmax_state(), "0:2,0:4", "0:2,1:4", parts=(0, 1)), 1, have="extra"),
    ),
    ("transfers that cross", Code.DEADLOCK, crossed),
    ("a task that waits for itself", Code.DEADLOCK, lambda: task(plans.elementwise(), 0, waits=(0,))),
    ("a wait removed", Code.RACE, lambda: task(plans.gather_twice(), 2, waits=())),
    ("a read of memory that was reused", Code.OVERLAP, lambda: buffer(plans.gathered_matmul(), "w.full", offset=0)),
    ("an output that was written over", Code.OVERLAP, lambda: _written_over()),
    ("a workspace where a buffer is", Code.OVERLAP, lambda: roomy(offset=0)),
    ("two workspaces in one place", Code.OVERLAP, lambda: _two_rooms()),
    ("a read of the neighbour of what is written over", Code.IN_PLACE, lambda: written_over(Affine.dim("a") - 1)),
    ("a write over what lies elsewhere", Code.IN_PLACE, lambda: task(plans.elementwise(), 0, over="x")),
    ("a write over what is not read", Code.TASK, lambda: task(plans.elementwise(), 0, over="y")),
    ("a write over nothing that is there", Code.REFERENCE, lambda: task(plans.elementwise(), 0, over="nothing")),
    ("a write over what is read, unsaid", Code.OVERLAP, lambda: task(plans.replaced(), 1, over=None)),
    ("no halo", Code.MISSING, lambda: task(plans.halo(), 2, reads=("y",), waits=(0,))),
    ("a share used as the whole", Code.UNFOLDED, lambda: task(plans.all_reduced(), 2, reads=("y.part",))),
    (
        "rows without a place",
        Code.OUTSIDE,
        lambda: buffer(laid(plans.elementwise(), "0:2,0:2", "2:4,0:2"), "y", layout="extra"),
    ),
    (
        "rows that nobody has",
        Code.NOBODY,
        lambda: task(laid(plans.gathered_matmul(), "0:1,0:2", "empty", "2:3,0:2"), 0, have="extra"),
    ),
    ("a share folded twice", Code.PARTS, lambda: _parts((0, 0, 2))),
    (
        "a share left out",
        Code.PARTS,
        lambda: task(laid(plans.all_reduced(), "0:3,0:2", "0:3,0:2", "empty", parts=(0, 1, 2)), 1, have="extra"),
    ),
    ("a share counted twice", Code.PARTS, lambda: _repeated((0, 1, 2, 1))),
    ("no fold", Code.MONOID, lambda: task(plans.all_reduced(), 1, monoid=None)),
    ("another fold", Code.MONOID, lambda: task(plans.all_reduced(), 1, monoid="max")),
    ("a fold of what is whole", Code.MONOID, lambda: task(plans.halo(), 1, monoid="sum")),
    ("a result that is there at the start", Code.INITIAL, lambda: buffer(plans.elementwise(), "y", initial="L0")),
    ("an input that is not there", Code.INITIAL, lambda: buffer(plans.elementwise(), "x", initial=None)),
    ("an input in two copies", Code.INITIAL, lambda: twice()),
    ("an output that nobody computes", Code.OUTPUT, lambda: replace(plans.elementwise(), tasks=())),
    ("an output without a place", Code.OUTPUT, lambda: _smaller_output()),
    ("a state that ends elsewhere", Code.STATE, lambda: _moved_state()),
    ("other traffic", Code.TRAFFIC, lambda: replace(plans.halo(), traffic=Traffic(33, {"shift": 32}, {"link": 32}))),
    (
        "traffic of another kind",
        Code.TRAFFIC,
        lambda: replace(plans.halo(), traffic=Traffic(32, {"sends": 32}, {"link": 32})),
    ),
    (
        "links that do not add up",
        Code.LINKS,
        lambda: replace(plans.halo(), traffic=Traffic(32, {"shift": 32}, {"wire": 31})),
    ),
    (
        "another link",
        Code.LINKS,
        lambda: replace(plans.halo(), traffic=Traffic(32, {"shift": 32}, {"rope": 32})),
    ),
    ("a halo called a gather", Code.KIND, lambda: task(plans.halo(), 1, kind="all_gather")),
    ("a shorter run", Code.PREDICTED, lambda: _predicted(makespan_s=1e-9)),
    ("less work", Code.PREDICTED, lambda: _predicted(compute_s=0.0)),
    ("less waiting", Code.PREDICTED, lambda: _predicted(exposed_transfer_s=0.0)),
    ("no word on how it is sharded", Code.SHARDING, lambda: replace(plans.elementwise(), shardings={})),
    ("fewer ranks", Code.SHARDING, lambda: _sharded(Sharding({}, 1, "explicit"))),
    ("copies that are cuts", Code.SHARDING, lambda: _sharded(Sharding({}, 2, "replicated"))),
    ("a cut of another dimension", Code.SHARDING, lambda: _sharded(Sharding({"b": "mesh0"}, 2, "block"))),
    ("another kind of cut", Code.SHARDING, lambda: _sharded(Sharding({"a": "mesh0"}, 2, "cyclic"))),
    ("a cut of a dimension that is not there", Code.SHARDING, lambda: _sharded(Sharding({"z": "mesh0"}, 2, "block"))),
    ("a cut along an axis that is not there", Code.SHARDING, lambda: _sharded(Sharding({"a": "mesh9"}, 2, "block"))),
    ("an unknown kind of cut", Code.SHARDING, lambda: _sharded(Sharding({"a": "mesh0"}, 2, "diagonal"))),
    ("a pin on what is cut otherwise", Code.PIN, lambda: _pinned(Pin("op", "f", (("mesh0", "b"),)))),
    ("a pin on a tensor that starts elsewhere", Code.PIN, lambda: _pinned(Pin("tensor", "x", (("mesh0", "1"),)))),
    ("a pin on a value that is written elsewhere", Code.PIN, lambda: _pinned(Pin("tensor", "y", (("mesh0", None),)))),
    ("a pin to an axis that is not there", Code.PIN, lambda: _pinned(Pin("tensor", "x", (("mesh7", "0"),)))),
    ("a bound that is not proved", Code.BOUND, lambda: _bounded(1.0)),
    ("a chain of no weight", Code.BOUND, lambda: replace(plans.elementwise(), bound=LowerBound(0.0, 1.0, 1.5))),
    ("a gap of nothing", Code.GAP, lambda: _bounded(1e-12)),
    ("a kernel faster than its roofline", Code.CLAIM, lambda: _kernel(KernelTime(0, (1e-12, 1.0)))),
    ("a kernel of no task", Code.CLAIM, lambda: _kernel(KernelTime(9, (1.0, 1.0)))),
    ("a kernel on too few ranks", Code.CLAIM, lambda: _kernel(KernelTime(0, (1.0,)))),
    ("a gap of the model above one", Code.CLAIM, lambda: _claimed(model_gap=1.5)),
    ("an objective that nobody knows", Code.CLAIM, lambda: _claimed(objective="beauty")),
    ("a computation on a lane of transfers", Code.TASK, lambda: _on_lane("comm")),
    ("a transfer between ranks on a lane of copies", Code.TASK, lambda: task(plans.causal_zigzag(), 0, lane="h2d")),
    ("an image that is known as a hull only", Code.UNPROVEN, lambda: _hull()),
    ("a turn taken twice", Code.PARTS, _turn_twice),
    ("a turn left out", Code.UNFOLDED, _turn_left_out),
    ("a turn folded onto what nobody wrote", Code.MISSING, lambda: task(plans.shares_in_turn(), 1, onto="y")),
    ("a turn folded onto what is finished", Code.PARTS, _turned_once_more),
    ("a turn that forgets what was before", Code.UNFOLDED, lambda: task(plans.shares_in_turn(), 2, onto=msgspec.UNSET)),
    ("a fold over ranks before the last turn", Code.RACE, lambda: task(plans.shares_of_shares(), 2, waits=())),
    ("a turn folded onto another tensor", Code.TASK, lambda: task(plans.shares_in_turn(), 2, onto="z")),
    ("a map folded onto something", Code.TASK, lambda: task(plans.shares_in_turn(), 3, onto="z")),
    ("a turn folded onto no buffer", Code.REFERENCE, lambda: task(plans.shares_in_turn(), 2, onto="")),
]


def _bounded(seconds: float) -> Document:
    document = plans.elementwise()
    return replace(document, bound=LowerBound(seconds, 0.0, 0.0))


def _predicted(**figures: float) -> Document:
    document = plans.halo()
    return replace(document, predicted=replace(document.predicted, **figures))


def _sharded(sharding: Sharding) -> Document:
    return replace(plans.elementwise(), shardings={"f": sharding})


def _pinned(pin: Pin) -> Document:
    document = plans.elementwise()
    program = program_from_json(document.program)
    return replace(document, program=program_to_json(program.with_pins(pin)))


def _claimed(**claims: Any) -> Document:
    document = plans.elementwise()
    return replace(document, claims=replace(document.claims, **claims))


def _kernel(time: KernelTime) -> Document:
    return _claimed(kernels=(time,))


def _on_lane(lane: str) -> Document:
    document = plans.elementwise()
    return replace(document, tasks=(replace(document.tasks[0], lane=lane), *document.tasks[1:]))


def _fetched_by_transfer() -> Document:
    """Which would take no time, as nothing comes from another rank."""
    document = plans.prefetch()
    copy, *others = document.tasks
    assert isinstance(copy, Copy)
    fetch = Transfer(copy.id, "comm", copy.tensor, "local", copy.source, copy.target, copy.need, copy.need)
    return replace(document, tasks=(fetch, *others))


def _parts(numbers: tuple[int, ...]) -> Document:
    document = plans.all_reduced()
    return task(laid(document, *["0:3,0:2"] * len(numbers), parts=numbers), 1, have="extra")


def _repeated(numbers: tuple[int, ...]) -> Document:
    """Two ranks that hold the same share under different numbers."""
    document = plans.replicated_split()
    return task(laid(document, *["0:2,0:2"] * len(numbers), parts=numbers), 1, have="extra")


def _namesakes() -> Document:
    document = plans.elementwise()
    return replace(document, buffers=(*document.buffers, document.buffers[0]))


def _written_over() -> Document:
    """Two outputs in one place."""
    tensors = (writing.tensor("x", 4, role="input"), writing.tensor("y", 4), writing.tensor("z", 4))
    operations = (writing.scaled("f", "x", "y", 2, 4), writing.scaled("g", "x", "z", 3, 4))
    sheet = writing.Sheet(Program("both", tensors, operations, ("y", "z")), 2)
    cut = sheet.layout(["0:2", "2:4"])
    x, y = sheet.given("x", cut), sheet.buffer("y", "y", cut)
    z = sheet.buffer("z", "z", cut, at=sheet.offset("y"))
    sheet.compute("f", cut, [x], y)
    sheet.compute("g", cut, [x], z)
    return sheet.done({"y": "y", "z": "z"})


def twice() -> Document:
    document = laid(plans.elementwise(), "0:5,0:2", "2:5,0:2")
    return buffer(document, "x", layout="extra", initial="extra", offset=48 * 2, nbytes=80)


def _smaller_output() -> Document:
    document = laid(plans.stages(), "0:3", "empty")
    return buffer(document, "u", layout="extra")


def _moved_state() -> Document:
    """The new value ends exchanged between the ranks."""
    document = laid(plans.state(), "2:4", "0:2")
    swapped = buffer(buffer(document, "acc", layout="extra", initial="extra"), "x", layout="extra", initial="extra")
    return replace(swapped, states={"acc": "new"})


def _hull() -> Document:
    """A reshape [7000, 60] -> [6000, 70] cut across the merged axis: too many pieces for an exact image to be kept."""
    flat = 60 * Affine.dim("a") + Affine.dim("b")
    body = Read("x", (Affine.dim("a"), Affine.dim("b")))
    op = Operation("reshape", (Dim("a", 7000), Dim("b", 60)), "y", (flat // 70, flat % 70), body)
    tensors = Tensor("x", "int64", (7000, 60), "param"), Tensor("y", "int64", (6000, 70))
    sheet = writing.Sheet(Program("hull", tensors, (op,), ("y",)), 2)
    x = sheet.given("x", sheet.layout("0:7000,0:60"))
    y = sheet.buffer("y", "y", sheet.layout("0:6000,0:70"))
    sheet.compute("reshape", sheet.layout(["0:7000,0:1|40:60", "0:7000,1:40"]), [x], y)
    return sheet.done({"y": "y"})
