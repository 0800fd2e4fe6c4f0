"""First proof: the document says something. Names resolve, regions are inside their spaces, records fit one another."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import prod

from ...errors import TapestryError, TooHard
from ...program import Operation, Program
from ...serialize import program_from_json
from ..format.document import Compute, Copy, Document, Transfer
from . import cells, machine
from .algebra import Algebra
from .case import Case
from .report import Code, Findings
from .storage import record_size, stored

LANES = ("compute", "comm", "h2d", "d2h", "disk")
KINDS = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "shift",
    "sends",
    "reduce",
    "local",
)
# What libraries want of the address of a workspace.
WORKSPACE_ALIGN = 256
FILLED_ROLES = ("input", "param", "state", "const")


def read(document: Document, findings: Findings) -> Case | None:
    """The case to prove, or None when the document is not well-formed (the findings say why)."""
    before = len(findings.verdicts)
    program = _program(document, findings)
    hardware = _hardware(document, findings)
    algebra = Algebra()
    layouts = _layouts(document, algebra, findings)
    if program is None or hardware is None or len(findings.verdicts) > before:
        return None
    tiers = hardware.memories(document.devices)
    _names(document, program, tiers, findings)
    if len(findings.verdicts) > before:
        return None
    case = Case(document, program, tiers, algebra, layouts, tuple(map(hardware.kind, document.devices)))
    for proof in (_inside, _storage, _rooms, _fits, _have):
        proof(case, findings)
        if len(findings.verdicts) > before:
            return None
    return case


def _program(document: Document, findings: Findings) -> Program | None:
    """Reading a program verifies it: one producer per element, rows that match axes, declared names."""
    try:
        return program_from_json(document.program)
    except TooHard as error:
        findings.add(Code.UNPROVEN, _in_a_line(error))
        return None
    except (TapestryError, KeyError, TypeError, ValueError) as error:
        findings.add(Code.PROGRAM, f"{type(error).__name__}: {_in_a_line(error)}")
        return None


def _in_a_line(error: Exception) -> str:
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines())


def _hardware(document: Document, findings: Findings) -> machine.Hardware | None:
    """The embedded machine; its devices must be there for every rank, one each."""
    hardware = machine.read(document.machine)
    if isinstance(hardware, list):
        for fault in hardware:
            findings.add(Code.MACHINE, fault)
        return None
    devices, count = document.devices, hardware.devices
    if len(document.mesh) != len(document.mesh_axes) or not document.mesh or min(document.mesh) < 1:
        findings.add(Code.MACHINE, f"mesh {document.mesh} has axes {document.mesh_axes}")
    if len(devices) != prod(document.mesh) or len(set(devices)) != len(devices):
        findings.add(
            Code.MACHINE, f"mesh {document.mesh} needs {prod(document.mesh)} devices, each once; it has {devices}"
        )
    if any(not 0 <= device < count for device in devices):
        findings.add(Code.MACHINE, f"devices {devices} are not all among the machine's {count}")
    weights = document.weights or ()
    if weights and (len(weights) != len(devices) or min(weights) < 1):
        findings.add(Code.MACHINE, f"weights {weights} are not one of 1 or more for each of {len(devices)} ranks")
    return hardware


def _layouts(document: Document, algebra: Algebra, findings: Findings) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    ranks = len(document.devices)
    for name, layout in document.layouts.items():
        if len(layout.regions) != ranks or (layout.parts is not None and len(layout.parts) != ranks):
            findings.add(Code.LAYOUT, f"layout {name} is not for {ranks} ranks")
            continue
        try:
            found[name] = tuple(algebra.read(text) for text in layout.regions)
        except ValueError as error:
            findings.add(Code.LAYOUT, f"layout {name}: {error}")
    return found


def _names(document: Document, program: Program, tiers: Mapping[str, object], findings: Findings) -> None:
    """Every reference resolves and nothing is named twice."""
    buffers = {buffer.name: buffer for buffer in document.buffers}
    ids = [task.id for task in document.tasks]
    _once("buffer", [buffer.name for buffer in document.buffers], findings)
    _once("task", ids, findings)
    known: dict[str, Container[object]] = {
        "layout": document.layouts,
        "buffer": buffers,
        "tier": tiers,
        "tensor": program.by_name,
        "task": set(ids),
    }

    def refer(kind: str, names: Iterable[object], task: int | None = None) -> None:
        for name in names:
            if name not in known[kind]:
                findings.add(Code.REFERENCE, f"there is no {kind} {name!r}", task=task)

    for buffer in document.buffers:
        refer("layout", (buffer.layout, *([] if buffer.initial is None else [buffer.initial])))
        refer("tier", (buffer.tier,))
        refer("tensor", (buffer.tensor,))
    refer("tier", (room.tier for room in document.rooms.values()))
    for task in document.tasks:
        refer("task", task.waits, task.id)
        if isinstance(task, Compute):
            if task.op not in program.op_by_name:
                findings.add(Code.REFERENCE, f"there is no operation {task.op!r}", task=task.id)
            refer("layout", (task.shards,), task.id)
            named = (task.over, task.prior)
            refer("buffer", (*task.reads, task.write, *(n for n in named if n is not None)), task.id)
        else:
            refer("tensor", (task.tensor,), task.id)
            refer("buffer", (task.source, task.target), task.id)
            refer("layout", (task.need, *([task.have] if isinstance(task, Transfer) else [])), task.id)
    refer("buffer", (*document.outputs.values(), *document.states.values()))
    _ends(document, program, findings)


def prove_used(document: Document, findings: Findings) -> None:
    """Finding LAYOUT: what no buffer and no task names says nothing, and is not in a plan."""
    used = {name for buffer in document.buffers for name in (buffer.layout, buffer.initial) if name is not None}
    for task in document.tasks:
        if isinstance(task, Compute):
            used.add(task.shards)
        else:
            used |= {task.need, *([task.have] if isinstance(task, Transfer) else [])}
    for name in sorted({*document.layouts} - used):
        findings.add(Code.LAYOUT, f"layout {name} is of no buffer and no task")


def _ends(document: Document, program: Program, findings: Findings) -> None:
    """Outputs and states are those of the program, each in a buffer of its own tensor."""
    buffers = {buffer.name: buffer.tensor for buffer in document.buffers}
    ends = {name: (name,) for name in program.outputs}, {old: (new,) for old, new in program.states}
    for said, meant in zip((document.outputs, document.states), ends, strict=True):
        for name in sorted({*said, *meant} - ({*said} & {*meant})):
            findings.add(
                Code.REFERENCE, "the plan and the program disagree on whether this ends the program", tensor=name
            )
        for name in sorted({*said} & {*meant}):
            if said[name] in buffers and buffers[said[name]] not in meant[name]:
                findings.add(
                    Code.REFERENCE, f"it ends in buffer {said[name]} of tensor {buffers[said[name]]}", tensor=name
                )


def _once(kind: str, names: Sequence[object], findings: Findings) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            findings.add(
                Code.DUPLICATE, f"{kind} {name!r} is there twice", task=name if isinstance(name, int) else None
            )
        seen.add(name)


def _inside(case: Case, findings: Findings) -> None:
    """Every region lies in its space: tensors' shapes, operations' domains, buffers' layouts."""
    algebra = case.algebra
    boxes: dict[tuple[int, ...], int] = {}
    known: dict[tuple[str, tuple[int, ...]], bool] = {}

    def within(layout: str, extents: tuple[int, ...]) -> bool:
        """On all ranks, as it mostly is: then nothing has to be asked for one."""
        box = boxes.setdefault(extents, algebra.whole(extents))
        regions = case.distinct(layout, None)
        alike = all(len(tile) == len(extents) for number in regions for tile in algebra.form(number).tiles)
        space = algebra.form(box)
        return alike and all(
            cells.within(algebra.form(number), space) or algebra.within(number, box) for number in regions
        )

    def check(
        layout: str, extents: tuple[int, ...], ranks: tuple[int, ...] | None, what: str, task: int | None = None
    ) -> None:
        if (layout, extents) not in known:
            known[layout, extents] = within(layout, extents)
        if known[layout, extents]:
            return
        box = boxes[extents]
        for rank in case.everyone if ranks is None else ranks:
            algebra.budget.spend(1, "layouts that leave their spaces")
            if not 0 <= rank < case.ranks:
                continue  # strays: see _fits
            number = case.layouts[layout][rank]
            if any(len(tile) != len(extents) for tile in algebra.form(number).tiles):
                findings.add(
                    Code.LAYOUT,
                    f"layout {layout} is not of {len(extents)} dimensions, as {what} is",
                    rank=rank,
                    task=task,
                )
            elif not algebra.within(number, box):
                outside = algebra.witness(algebra.minus(number, box))
                findings.add(
                    Code.LAYOUT, f"layout {layout} leaves {what}, {extents}", rank=rank, task=task, witness=outside
                )

    for buffer in case.document.buffers:
        for layout in (buffer.layout, *([] if buffer.initial is None else [buffer.initial])):
            check(layout, case.program.tensor(buffer.tensor).shape, None, f"tensor {buffer.tensor}")
    for task in case.tasks:
        if isinstance(task, Compute):
            op = case.program.op_by_name[task.op]
            check(task.shards, tuple(dim.extent for dim in op.dims), task.ranks, f"the domain of {task.op}", task.id)
        else:
            for layout in (task.need, *([task.have] if isinstance(task, Transfer) else [])):
                check(layout, case.program.tensor(task.tensor).shape, task.ranks, f"tensor {task.tensor}", task.id)


def _storage(case: Case, findings: Findings) -> None:
    """Buffers are large enough for what each rank stores, and aligned to their elements."""
    largest: dict[tuple[str, int | None], int] = {}
    for buffer in case.document.buffers:
        tensor = case.program.tensor(buffer.tensor)
        if buffer.record is not None and buffer.record != case.program.records.get(tensor.name):
            message = f"buffer {buffer.name} holds records of {buffer.record}, which no fold of {tensor.name} takes"
            findings.add(Code.RECORD, message, tensor=tensor.name)
            continue
        size, align = record_size((tensor.dtype,) if buffer.record is None else buffer.record)
        if len(buffer.places) not in (1, 1 + len(case.document.machine.get("others", []))):
            findings.add(Code.STORAGE, f"buffer {buffer.name} lies in {len(buffer.places)} places", tensor=tensor.name)
            continue
        for kind, place in enumerate(buffer.places):
            key = buffer.layout, kind if buffer.others else None
            if key not in largest:
                largest[key] = _largest(case, *key)
            if place.nbytes < (needed := largest[key] * size):
                message = f"buffer {buffer.name} has {place.nbytes} bytes and stores {needed}"
                findings.add(Code.STORAGE, message, tensor=tensor.name, witness=(needed,))
            if place.offset < 0 or place.offset % align:
                message = f"buffer {buffer.name} starts at {place.offset}, which holds no element of {size} bytes"
                findings.add(Code.STORAGE, message, tensor=tensor.name, witness=(place.offset,))
        if buffer.initial is not None and (tensor.role not in FILLED_ROLES or buffer.record is not None):
            findings.add(Code.INITIAL, f"buffer {buffer.name} starts filled with a {tensor.role}", tensor=tensor.name)


def _largest(case: Case, layout: str, kind: int | None) -> int:
    """Elements that the largest of ranks stores; of those alone whose devices are of a kind."""
    numbers = zip(case.layouts[layout], case.kinds, strict=True)
    forms = (case.algebra.form(number) for number in {number for number, mine in numbers if kind in (None, mine)})
    return max(map(stored, forms), default=0)


def _rooms(case: Case, findings: Findings) -> None:
    """Workspaces are of lanes that there are, where a memory may have them."""
    for lane, room in case.document.rooms.items():
        if lane not in LANES:
            findings.add(Code.TASK, f"there is no lane {lane!r}, which has a workspace")
        if room.nbytes < 1 or room.offset < 0 or room.offset % WORKSPACE_ALIGN:
            message = f"the workspace of {lane} has {room.nbytes} bytes from {room.offset} on"
            message += f", not 1 or more from a multiple of {WORKSPACE_ALIGN} on"
            findings.add(Code.STORAGE, message, witness=(room.offset,))


def _fits(case: Case, findings: Findings) -> None:
    """Every task's lane, ranks, kind and buffers fit it and one another."""
    fast = next(iter(case.tiers), None)
    for task in case.tasks:
        ranks = case.participants(task)
        if task.ranks is not None and not _some(ranks, case.ranks):
            findings.add(Code.TASK, f"ranks {ranks} are not some of {case.ranks}, each once", task=task.id)
        if task.lane not in LANES:
            findings.add(Code.TASK, f"there is no lane {task.lane!r}", task=task.id)
        faults = _compute_faults(case, task, fast) if isinstance(task, Compute) else _move_faults(case, task)
        for fault in faults:
            findings.add(Code.TASK, fault, task=task.id)


def _some(ranks: tuple[int, ...], count: int) -> bool:
    """One rank or more of so many, each once."""
    return bool(ranks) and len(set(ranks)) == len(ranks) and min(ranks) >= 0 and max(ranks) < count


def _compute_faults(case: Case, task: Compute, fast: str | None) -> Iterator[str]:
    op = case.program.op_by_name[task.op]
    if task.lane in LANES[1:]:
        yield f"{task.op} runs on the lane {task.lane}: a device computes on one, compute"
    given = tuple(case.buffers[name].tensor for name in (*task.reads, task.write))
    if given != (*op.operands, op.output):
        yield f"{task.op} is given {given}, wants {(*op.operands, op.output)}"
    prior = () if task.prior is None else (task.prior,)
    slow = sorted({name for name in (*task.reads, task.write, *prior) if case.buffers[name].tier != fast})
    if slow:
        yield f"buffers {slow} are not in {fast}, where devices compute"
    if task.over is not None and task.over not in task.reads:
        yield f"{task.op} says that it writes over buffer {task.over}, which it does not read"
    yield from _onto_faults(case, op, prior)
    if case.parts(task.shards) is not None:
        yield f"layout {task.shards} numbers contributions: shards are points"


def _onto_faults(case: Case, op: Operation, prior: tuple[str, ...]) -> Iterator[str]:
    for name in prior:
        if op.monoid is None:
            yield f"{op.name} folds nothing, so that nothing can be folded onto buffer {name}"
        elif case.buffers[name].tensor != op.output:
            yield f"{op.name} folds onto buffer {name}, which is of {case.buffers[name].tensor}, not of {op.output}"


def _move_faults(case: Case, task: Transfer | Copy) -> Iterator[str]:
    if isinstance(task, Transfer) and task.lane != LANES[1] and task.kind != "local" and _together(case, task):
        yield f"it moves between ranks on the lane {task.lane}: a device receives on one, {LANES[1]}"
    moved = {case.buffers[name].tensor for name in (task.source, task.target)}
    if moved != {task.tensor}:
        yield f"it moves {task.tensor} between buffers of {sorted(moved)}"
    tiers = [case.buffers[name].tier for name in (task.source, task.target)]
    if isinstance(task, Transfer) and len(set(tiers)) > 1:
        yield f"it moves from {tiers[0]} to {tiers[1]}: between tiers of a rank there are copies, which take their time"
    if isinstance(task, Transfer) and task.kind not in KINDS:
        yield f"there is no kind {task.kind!r} of transfer"
    if task.source == task.target and not (isinstance(task, Transfer) and case.parts(task.have) is None):
        yield f"buffer {task.source} cannot be source and target of this"
    if case.parts(task.need) is not None and not (isinstance(task, Transfer) and case.parts(task.have) is not None):
        yield f"layout {task.need} is partial: what is needed is complete, unless shares are folded to larger ones"


def _together(case: Case, task: Transfer) -> bool:
    return len(case.participants(task)) > 1


def _have(case: Case, findings: Findings) -> None:
    """What a transfer has lies in its source; partial data is folded with the operation's monoid, other data not."""
    for task in case.tasks:
        if isinstance(task, Copy) and case.buffers[task.source].record != case.buffers[task.target].record:
            findings.add(Code.RECORD, "it copies between records and elements", task=task.id, tensor=task.tensor)
        if isinstance(task, Compute):
            _onto_records(case, task, findings)
        if not isinstance(task, Transfer):
            continue
        partial, producer = case.parts(task.have) is not None, case.program.producer.get(task.tensor)
        _records(case, task, partial, findings)
        wanted = producer.monoid if partial and producer is not None else None
        if task.monoid != wanted or (partial and wanted is None):
            findings.add(
                Code.MONOID, f"folds with {task.monoid}, where {wanted} is right", task=task.id, tensor=task.tensor
            )
        if partial and producer is not None:
            _whole(case, task, producer, findings)
        for rank, extra in case.beyond(task.have, case.buffers[task.source].layout, task.ranks):
            message = f"layout {task.have} has elements that buffer {task.source} is not laid out for"
            witness = case.algebra.witness(extra)
            findings.add(Code.LAYOUT, message, rank=rank, task=task.id, tensor=task.tensor, witness=witness)


def _onto_records(case: Case, task: Compute, findings: Findings) -> None:
    """What points are folded onto is held as their fold leaves it."""
    wanted = case.program.records.get(case.program.op_by_name[task.op].output)
    if task.prior is not None and case.buffers[task.prior].record != wanted:
        held, wants = (", ".join(r or ("its elements",)) for r in (case.buffers[task.prior].record, wanted))
        message = f"buffer {task.prior} holds {held}, where {task.op} is folded onto {wants}"
        findings.add(Code.RECORD, message, task=task.id, tensor=case.buffers[task.prior].tensor)


def _records(case: Case, task: Transfer, partial: bool, findings: Findings) -> None:
    """What is folded is held as the fold takes it, a larger share as well; all else, and every result, as elements."""
    source, target = case.buffers[task.source], case.buffers[task.target]
    wanted = case.program.records.get(task.tensor) if partial else None
    onward = case.parts(task.need) is not None
    for buffer, right in ((source, wanted), (target, wanted if onward else None)):
        if buffer.record != right:
            held, wants = (", ".join(record or ("its elements",)) for record in (buffer.record, right))
            message = f"buffer {buffer.name} holds {held}, where {wants} are moved"
            findings.add(Code.RECORD, message, task=task.id, tensor=task.tensor)


def _whole(case: Case, task: Transfer, producer: Operation, findings: Findings) -> None:
    """What is folded is whole values."""
    shape = case.shape(producer)
    for layout in (task.have, task.need):
        if all(map(shape.whole_records, case.distinct(layout, task.ranks))):
            continue
        for rank in case.participants(task):
            if not shape.whole_records(case.layouts[layout][rank]):
                message = f"layout {layout} cuts what is one value of the fold"
                findings.add(Code.UNCUTTABLE, message, rank=rank, task=task.id, tensor=task.tensor)
