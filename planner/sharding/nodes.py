"""The decisions of a plan as nodes with options: where sources lie, how operations are sharded, how outputs end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from ...errors import UsageError
from ...program import Operation, Pin, Program, Tensor
from ...records import free_axes
from ...space import Box, Region
from ...space.cuts import KINDS, CutKind
from ..clock import Clock
from ..format.messages import refined
from ..strategy.layouts import Layout
from ..strategy.mesh import SINGLE, Cut, Mesh, choices_per_axis, full_box
from ..strategy.strategies import Cuts, Strategy, StrategyTable, pin_allows
from ..strategy.traffic import Traffic
from ..strategy.turning import in_turns

Needs = tuple[Layout, ...]  # of every operand

# Share of the time after which only a few strategies of an operation are looked at; but of all operations together
# as many as are found in the other share.
PRICING, AT_LEAST = 0.4, 0.12


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Where an input, param, state or const lies before the run."""

    tensor: Tensor
    labels: tuple[str, ...]
    homes: tuple[Layout, ...]

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def needs(self) -> tuple[Needs, ...]:
        """Of a state's new value, which ends where the state lies."""
        return tuple((home,) for home in self.homes)


@dataclass(frozen=True, eq=False)
class OperationNode:
    """How an operation is sharded."""

    op: Operation
    tensor: Tensor
    strategies: tuple[Strategy, ...]

    @property
    def name(self) -> str:
        return self.op.name

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(strategy) for strategy in self.strategies)

    @cached_property
    def homes(self) -> tuple[Layout, ...]:
        """What each strategy leaves its tensor in."""
        return tuple(strategy.writes for strategy in self.strategies)

    @cached_property
    def needs(self) -> tuple[Needs, ...]:
        return tuple(strategy.needs for strategy in self.strategies)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Bytes that ranks receive while it is computed in turns."""
        return tuple(0 if strategy.turns is None else strategy.turns.moved for strategy in self.strategies)

    @cached_property
    def workspace(self) -> tuple[int, ...]:
        """Bytes that a rank takes beside operands and result while it is computed."""
        return tuple(0 if strategy.turns is None else strategy.turns.workspace for strategy in self.strategies)

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """Of the slowest rank."""
        return tuple(strategy.slowest for strategy in self.strategies)


@dataclass(frozen=True, eq=False)
class SinkNode:
    """How an output that may be partial ends."""

    tensor: Tensor
    labels: tuple[str, ...]
    ends: tuple[Layout, ...]

    @property
    def name(self) -> str:
        return f"{self.tensor.name} (end)"

    @property
    def needs(self) -> tuple[Needs, ...]:
        return tuple((end,) for end in self.ends)


Node = SourceNode | OperationNode | SinkNode


def op_node(
    op: Operation,
    table: StrategyTable,
    objective: str,
    pins: Sequence[Pin],
    clock: Clock,
    turning: Traffic | None = None,
    late: Callable[[], bool] = lambda: False,
) -> OperationNode:
    """The strategies that its pins, and for the objective ``bytes`` an equal share of the work, allow.

    ``turning``: also those strategies in turns, with transfers at these prices. ``late``: whether only few are priced.
    """
    clock.demand()
    clock.demand_left()
    options = _evaluated(op, table, _pinned_cuts(op, table, pins), late)
    options += [] if _op_pins(op.name, pins) else table.in_boxes(op)
    options = [s for s in options if _tensor_pin_allows(s, op, table, pins)]
    if not options:
        raise _pin_error(
            f"operation {op.name}", table.mesh, [d.name for d in op.dims if d.cut], _op_pins(op.name, pins)
        )
    if objective == "bytes":
        options = balanced(options, op)
    if turning is not None:
        options += [turned for option in options for turned in in_turns(op, option, table, turning)]
    return OperationNode(op, table.program.tensor(op.output), tuple(distinct(options)))


def _evaluated(op: Operation, table: StrategyTable, cuts: Sequence[Cuts], late: Callable[[], bool]) -> list[Strategy]:
    """All strategies; once much of the time is spent, those known already, the most and the least cut one."""
    found = []
    for k, chosen in enumerate(cuts):
        if k in (0, len(cuts) - 1) or table.knows(op, chosen) or not late():
            found.append(table.strategy(op, chosen))
    return found


def _op_pins(name: str, pins: Sequence[Pin]) -> list[Pin]:
    return [pin for pin in pins if pin.target == "op" and fnmatchcase(name, pin.pattern)]


def _tensor_pins(name: str, pins: Sequence[Pin]) -> list[Pin]:
    return [pin for pin in pins if pin.target == "tensor" and fnmatchcase(name, pin.pattern)]


def _pinned_cuts(op: Operation, table: StrategyTable, pins: Sequence[Pin]) -> list[Cuts]:
    found = _op_pins(op.name, pins)
    mine, forbidden = [pin for pin in found if not pin.forbid], [pin for pin in found if pin.forbid]
    options = _asked_cuts(op, table, mine) if mine else table.candidates(op)
    return [cuts for cuts in options if not any(forbids(pin, cuts, table.mesh) for pin in forbidden)]


def forbids(pin: Pin, cuts: Cuts, mesh: Mesh) -> bool:
    """Whether cuts are, in some kind, all that a pin forbids."""
    return any(pin_allows(cuts, mesh, dict(pin.cuts), kind) for kind in KINDS)


def _asked_cuts(op: Operation, table: StrategyTable, mine: Sequence[Pin]) -> list[Cuts]:
    kinds: list[CutKind] = sorted({"block", *(pin.kind for pin in mine)})
    options = [Cut(dim.name, kind) for dim in op.dims if dim.cut for kind in kinds]
    every = choices_per_axis([*options, None], table.mesh)
    return [c for c in every if all(pin_allows(c, table.mesh, dict(pin.cuts), pin.kind) for pin in mine)]


def _tensor_pin_allows(strategy: Strategy, op: Operation, table: StrategyTable, pins: Sequence[Pin]) -> bool:
    """A pinned value is written in the pinned layout, whole, and not in one that is forbidden."""
    tensor = table.program.tensor(op.output)
    return all(
        (strategy.writes in _pinned_layouts(tensor, table, pin)) is not pin.forbid
        for pin in _tensor_pins(op.output, pins)
    )


def _pinned_layouts(tensor: Tensor, table: StrategyTable, pin: Pin) -> list[Layout]:
    """All layouts of a tensor that a pin on it allows, or forbids; the axis ``@0`` is "on coordinate 0 alone"."""
    axes = {*tensor.axes, *map(str, range(len(tensor.axes))), SINGLE, None}
    if pin.forbid and any(name not in axes for _, name in pin.cuts):
        return []
    kinds: Sequence[CutKind] = tuple(KINDS) if pin.forbid else (pin.kind,)
    return [layout for kind in kinds for layout in _layouts_of_kind(tensor, table, pin, kind)]


def _layouts_of_kind(tensor: Tensor, table: StrategyTable, pin: Pin, kind: CutKind) -> list[Layout]:
    wanted = {axis: _axis_number(tensor, name) for axis, name in pin.cuts}
    options = [*(Cut(str(k), kind) for k in range(len(tensor.shape))), Cut(SINGLE, kind), None]
    found = [c for c in choices_per_axis(options, table.mesh) if pin_allows(c, table.mesh, wanted, kind)]
    return [table.layouts.cut(tensor.shape, cuts) for cuts in found]


def _axis_number(tensor: Tensor, name: str | None) -> str | None:
    if name is None or name == SINGLE:
        return name
    if name in tensor.axes:
        return str(tensor.axes.index(name))
    if name.isdigit() and int(name) < len(tensor.shape):
        return name
    raise UsageError(f"tensor {tensor.name} has no axis {name!r}", where="pins", sides={"axes": ", ".join(tensor.axes)})


def _pin_error(what: str, mesh: Mesh, dims: list[str], pins: Sequence[Pin]) -> UsageError:
    asked = "; ".join(
        ("not " if pin.forbid else "") + ", ".join(f"{axis} = {dim}" for axis, dim in pin.cuts) for pin in pins
    )
    return UsageError(
        f"no strategy of {what} satisfies its pins",
        where="pins",
        sides={
            "pinned": asked or "(through a tensor)",
            "can be cut": ", ".join(dims) or "nothing",
            "mesh": ", ".join(mesh.axes),
        },
        hint="name mesh axes on the left and dimensions of the operation (axes of the tensor) on the right",
    )


def check_pins(program: Program, mesh: Mesh, pins: Sequence[Pin]) -> None:
    """Every pin names mesh axes that exist and matches something."""
    for pin in pins:
        names = [op.name for op in program.operations] if pin.target == "op" else [t.name for t in program.tensors]
        if not any(fnmatchcase(name, pin.pattern) for name in names):
            raise UsageError(
                f"pin {pin.pattern!r} matches no {'operation' if pin.target == 'op' else 'tensor'}", where="pins"
            )
        for axis, _ in pin.cuts:
            if axis not in (*mesh.axes, "*"):
                raise UsageError(
                    f"pin {pin.pattern!r} names mesh axis {axis!r}",
                    where="pins",
                    sides={"mesh axes": ", ".join(mesh.axes)},
                )


def balanced(options: list[Strategy], op: Operation) -> list[Strategy]:
    """Strategies that give no rank more than its equal share of the points, up to rounding; else the most even."""
    ranks = len(options[0].points)
    total = min(sum(s.points) for s in options)
    rounding = 1.0
    for dim in op.dims:
        rounding *= 1 + ranks / dim.extent if dim.extent > 1 else 1
    even = [s for s in options if max(s.points) <= -(-total // ranks) * min(rounding, 1.5)]
    least = min(max(s.points) for s in options)
    return even or [s for s in options if max(s.points) == least]


def distinct(options: list[Strategy]) -> list[Strategy]:
    """Drop strategies that another one, earlier in the list, equals or beats: the same layouts in no more time."""
    kept: dict[tuple[int, ...], Strategy] = {}
    for option in options:
        key = (id(option.writes), *(id(need) for need in option.needs))
        if key not in kept or option.slowest < kept[key].slowest:
            kept[key] = option
    return list(kept.values())


def source_node(tensor: Tensor, table: StrategyTable, wanted: Sequence[Layout], pins: Sequence[Pin]) -> SourceNode:
    """Where an input, param, state or const may lie before the run; ``wanted`` are the layouts its consumers ask for.

    Inputs have one copy of each element unless pinned; params and states may be replicated; consts are everywhere.
    """
    homes: dict[Layout, str] = {}
    found = _tensor_pins(tensor.name, pins)
    mine, forbidden = [pin for pin in found if not pin.forbid], [pin for pin in found if pin.forbid]
    if mine:
        allowed = [_pinned_layouts(tensor, table, pin) for pin in mine]
        homes = {s: "pinned" for s in allowed[0] if all(s in others for others in allowed[1:])}
    elif tensor.role == "const":
        homes = {table.layouts.replicated(tensor.shape): "(replicated)"}
    else:
        homes = _free_homes(tensor, table, wanted)
    for pin in forbidden:
        homes = {home: label for home, label in homes.items() if home not in _pinned_layouts(tensor, table, pin)}
    if not homes:
        raise _pin_error(f"tensor {tensor.name}", table.mesh, list(tensor.axes), found)
    return SourceNode(tensor, tuple(homes.values()), tuple(homes))


def _source_nodes(
    tensors: Iterable[Tensor], table: StrategyTable, wanted: Mapping[str, Iterable[Layout]], pins: Sequence[Pin]
) -> list[SourceNode]:
    """Those of all tensors. Equal ones of which the same layouts are wanted, as in other layers, may lie as one of them
    may, where no pins tell them apart.
    """
    alike: dict[tuple[object, ...], SourceNode] = {}
    found = []
    for tensor in tensors:
        layouts = tuple(wanted.get(tensor.name, ()))
        key = (tensor.role, tensor.shape, tensor.axes, layouts)
        if pins or key not in alike:
            alike[key] = source_node(tensor, table, layouts, pins)
        found.append(replace(alike[key], tensor=tensor))
    return found


def _free_homes(tensor: Tensor, table: StrategyTable, wanted: Sequence[Layout]) -> dict[Layout, str]:
    single = tensor.role == "input"
    kinds: tuple[CutKind, ...] = ("block", "proportional") if table.mesh.weights else ("block",)
    options: list[Cut | None] = [Cut(str(k), kind) for k, n in enumerate(tensor.shape) if n > 1 for kind in kinds]
    options.append(Cut(SINGLE) if single else None)
    homes: dict[Layout, str] = {}
    for cuts in choices_per_axis(options, table.mesh):
        layout = table.layouts.cut(tensor.shape, cuts)
        if all(_fits(tensor, cuts, table.mesh)):
            homes.setdefault(layout, _label(tensor, cuts))
    for layout in wanted:
        homes.setdefault(resting(layout, table, single), "as needed")
    return homes


def resting(layout: Layout, table: StrategyTable, single: bool) -> Layout:
    """A layout to rest in that serves a needed one: what nobody needs is given to the last rank.

    With ``single`` each element of an overlap (a halo) stays with the first rank that needs it alone, or where that
    leaves a rank with nothing, is shared out among those that need it.
    """
    by_axes = layout.shared_out(single=single)
    if by_axes is not None:
        return table.layouts.of_columns(layout.shape, by_axes)
    taken, regions = Region(), list(layout.regions)
    if layout.tiled or not single:
        first = {region: rank for rank, region in reversed(list(enumerate(regions)))}
        regions = [region if not single or first[region] == rank else Region() for rank, region in enumerate(regions)]
        taken = layout.everything
    else:
        for rank, region in enumerate(regions):
            regions[rank] = region - taken
            taken = taken | region
        left_out = any(need and not region for need, region in zip(layout.regions, regions, strict=True))
        regions = (_shared_out(layout, len(layout.shape)) if left_out else None) or regions
    regions[-1] = regions[-1] | (full_box(layout.shape) - taken)
    return table.layouts.of(layout.shape, regions)


def _fits(tensor: Tensor, cuts: Sequence[Cut | None], mesh: Mesh) -> list[bool]:
    """Per axis of the tensor: at least one element for every shard, where it is cut."""
    parts = dict.fromkeys(range(len(tensor.shape)), 1)
    for axis, c in enumerate(cuts):
        if c is not None and c.dim != SINGLE:
            parts[int(c.dim)] *= mesh.shape[axis]
    return [n == 1 or tensor.shape[k] >= n for k, n in parts.items()]


def _label(tensor: Tensor, cuts: Sequence[Cut | None]) -> str:
    names = ["-" if c is None else c.dim if c.dim == SINGLE else tensor.axes[int(c.dim)] for c in cuts]
    return "(" + ", ".join(names) + ")"


def sink_node(tensor: Tensor, table: StrategyTable, partials: Iterable[Layout]) -> SinkNode:
    """How an output that may be partial ends: one copy of each element, cut along any axes, on one rank, or each part
    shared out among the ranks that have contributions to it, which no order of the mesh's axes may say.

    ``partials``: the layouts that its operation may leave it in.
    """
    able = tensor.shape[: free_axes(table.program, tensor.name)]
    options = [*(Cut(str(k)) for k, n in enumerate(able) if n > 1), Cut(SINGLE)]
    ends: dict[Layout, str] = {}
    for cuts in choices_per_axis(options, table.mesh):
        if all(_fits(tensor, cuts, table.mesh)):
            ends.setdefault(table.layouts.cut(tensor.shape, cuts), _label(tensor, cuts))
    for partial in partials:
        regions = _shared_out(partial, len(able)) if partial.parts is not None else None
        if regions is not None:
            ends.setdefault(table.layouts.of(tensor.shape, regions), "shared out")
    return SinkNode(tensor, tuple(ends.values()), tuple(ends))


def _shared_out(layout: Layout, able: int) -> list[Region] | None:
    """Per rank its share of what it has, or has a part of: of each piece that the same ranks have as many slices as
    there are of these, along the longest axis that may be cut. None where that leaves a rank without any, or a piece is
    not one dense box."""
    if not all(layout.regions):
        return None
    found = [Region()] * len(layout.regions)
    for region, ranks in refined(dict(enumerate(layout.regions)), apart=layout.tiled):
        axes = region.grids[0].axes if len(region.grids) == 1 else ()
        if not axes[:able] or any(axis.hi - axis.lo != axis.size for axis in axes):
            return None
        at = max(range(able), key=lambda k: axes[k].size)
        if axes[at].size < len(ranks):
            return None
        for number, rank in enumerate(ranks):
            ends = [axes[at].lo + end * axes[at].size // len(ranks) for end in (number, number + 1)]
            low, high = (
                tuple(ends[side] if k == at else (axis.lo, axis.hi)[side] for k, axis in enumerate(axes))
                for side in (0, 1)
            )
            found[rank] = found[rank] | Box(low, high).region()
    return found


def all_nodes(
    program: Program,
    table: StrategyTable,
    objective: str,
    pins: Sequence[Pin],
    clock: Clock,
    turning: Traffic | None = None,
) -> list[Node]:
    """Sources, operations and sinks, in that order; UsageError for pins that cannot hold.

    ``turning``: see `op_node`.
    """
    check_pins(program, table.mesh, pins)
    few = clock.after(0.0, AT_LEAST)
    ops: list[OperationNode] = []
    alike: dict[tuple[str, tuple[Cut, ...]], OperationNode] = {}  # of equal operations, where no pins tell them apart
    for op in program.operations:
        key = table.signature(op), table.offered(op)
        if pins or key not in alike:
            alike[key] = op_node(op, table, objective, pins, clock, turning, lambda: clock.spent(PRICING) and few())
        ops.append(replace(alike[key], op=op, tensor=program.tensor(op.output)))
    wanted: dict[str, dict[Layout, None]] = {}
    for node in ops:
        for j, name in enumerate(node.op.operands):
            wanted.setdefault(name, {}).update(dict.fromkeys(needs[j] for needs in node.needs))
    roles = program.of_role("input", "param", "state", "const")
    sources = _source_nodes(roles, table, wanted, pins)
    partial = {node.tensor.name: node.homes for node in ops if any(home.parts is not None for home in node.homes)}
    ends = [*program.outputs, *(value for _, value in program.states)]
    sinks = [sink_node(program.tensor(name), table, partial[name]) for name in dict.fromkeys(ends) if name in partial]
    return [*sources, *ops, *sinks]
