"""The CUDA source of a planned row program.

load phase    all vectors of all rows of the thread, into words or, in a cluster, into shared memory
each stage    its fold over the thread's elements, then over the threads of the row; or its map, rounded and stored
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...arithmetic import explicit
from ...expr import FUNCTIONS, MONOIDS, Affine, Bound, Cast, Read, walk
from ..elementwise.emit import BOOL, DOUBLE, INT, Emitter, Value, literal
from ..elementwise.plan import Load, depends
from ..elementwise.source import HEADER, Names, floating, indented, is_quick
from ..elementwise.types import ELEMENT_TYPES
from .plan import Part, RowPlan, store_width
from .program import COLUMN, ROW, Output, Stage


def row_source(plan: RowPlan, name: str) -> str:
    """A translation unit with the kernel ``name(operands..., outputs...)``."""
    return _RowWriter(plan, name).text()


class _RowWriter:
    def __init__(self, plan: RowPlan, name: str) -> None:
        self.plan, self.program, self.name = plan, plan.program, name
        self.kind = "Int" if self.program.wide else "int"
        self.numbers = {tensor: k for k, (tensor, _) in enumerate(self.program.operands)}
        self.names = Names(self.program.loop.ranges, {ROW: ROW, COLUMN: COLUMN}, COLUMN, self.kind)
        self.values: dict[str, Value] = {}
        stored = [output.layout.dtype for output in self.program.outputs]
        casts = [n.dtype for s in self.program.stages for n in walk(s.body) if isinstance(n, Cast)]
        self.quick = all(is_quick(dtype, casts) for dtype in stored)
        self.floating = floating(list(self.program.dtypes.values()))

    # -- the frame ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        plan = self.plan
        body = ["follow();", *self._shared(), *self._early_declarations(), *self._place()]
        body += self._expecting()
        body += [*self._row_loop(self._early())]
        # Before anything is written to another block: every one has to have started, in less time than the loads take.
        body += ["cluster_wait();"] if plan.cluster > 1 else []
        stages = [line for k, stage in enumerate(self.program.stages) for line in self._stage(k, stage)]
        lines = [*self._uniform_loads(), *stages]
        body += self._turn_loop(lines) if plan.turns > 1 else self._row_loop(lines)
        bounds = f"__launch_bounds__({plan.threads})"
        if plan.cluster > 1:  # so many registers that the blocks which were counted on find room
            bounds = (
                f"__cluster_dims__({plan.cluster}, 1, 1) __launch_bounds__({plan.threads}, {min(plan.resident, 4)})"
            )
        head = f'extern "C" __global__ void {bounds}\n{self.name}({self._parameters}) {{\n'
        include = HEADER.replace("elements.cuh>\n", "elements.cuh>\n#include <tapestry/rows.cuh>\n")
        used = dict.fromkeys(stage.fold for stage in self.program.stages if stage.fold)
        folds = "".join(map(_fold_type, used))
        return f"{include}{folds}{head}{indented(body, 1)}}}\n\n}}  // namespace tapestry\n"

    @cached_property
    def _parameters(self) -> str:
        given = [f"const {layout.type.stored}* p{k}" for k, (_, layout) in enumerate(self.program.operands)]
        return ", ".join([*given, *(f"{o.layout.type.stored}* out{k}" for k, o in enumerate(self.program.outputs))])

    def _shared(self) -> list[str]:
        """A place for each warp's part of each fold, where a row has several warps, and for each block's."""
        plan = self.plan
        if plan.lanes <= 32:
            return []
        folds = [(k, s) for k, s in enumerate(self.program.stages) if s.monoid]
        sets = plan.rows if plan.cluster == 1 else self._sets
        lines = [f"__shared__ {self._accumulator(s)} part{k}[{sets}][{plan.lanes // 32}];" for k, s in folds]
        told = [f"__shared__ Told<{self._accumulator(s)}, {plan.cluster}, {sets}> told{k};" for k, s in folds]
        return [*lines, *told] if plan.cluster > 1 else lines

    @property
    def _sets(self) -> int:
        """Of what the blocks of a cluster tell each other: used in turns."""
        return min(2, self.plan.turns)

    def _expecting(self) -> list[str]:
        """The barriers on which the other blocks' parts arrive, and word that this block has started."""
        if self.plan.cluster == 1:
            return []
        each = [f"    told{k}.init();" for k, stage in enumerate(self.program.stages) if stage.monoid]
        return ["if (threadIdx.x == 0) {", *each, "}", "cluster_arrive();"]

    def _place(self) -> list[str]:
        plan, kind = self.plan, self.kind
        natural = "Natural" if kind == "Int" else "unsigned"
        if plan.cluster > 1:
            return [
                f"const int lane = blockIdx.x % {plan.cluster}u * {plan.lanes}u + threadIdx.x;",
                f"const {natural} first = blockIdx.x / {plan.cluster}u;",
            ]
        return [
            f"const int lane = threadIdx.x % {plan.lanes};",
            f"const {natural} first = {natural}(blockIdx.x) * {plan.rows_a_block}u + threadIdx.x / {plan.lanes}u;",
        ]

    def _row_loop(self, lines: Sequence[str]) -> list[str]:
        """Over the rows of the thread."""
        if not lines:
            return []
        between = self.plan.threads // self.plan.lanes
        exact = self.program.rows % self.plan.rows_a_block == 0
        there = "true" if exact else f"{ROW} < {self.program.rows}"
        return [
            "#pragma unroll",
            f"for (int q = 0; q < {self.plan.rows}; ++q) {{",
            f"    const {self.kind} {ROW} = {self.kind}(first + q * {between}u);",
            f"    const bool there = {there};",
            *(f"    {line}" for line in lines),
            "}",
        ]

    def _turn_loop(self, lines: Sequence[str]) -> list[str]:
        """Over the rows of a cluster, one after another: while one is written, the next takes its place."""
        kind, clusters = self.kind, self.plan.blocks // self.plan.cluster
        return [
            f"for (int turn = 0; turn < {self.plan.turns}; ++turn) {{",
            f"    const {kind} {ROW} = {kind}(first + turn * {clusters}u), next = {ROW} + {clusters};",
            f"    if ({ROW} >= {self.program.rows}) break;",
            f"    const bool more = turn + 1 < {self.plan.turns} && next < {self.program.rows};",
            "    constexpr int q = 0;",
            "    constexpr bool there = true;",
            *(f"    {line}" for line in lines),
            "}",
        ]

    def _chunk_loop(self, part: Part, lines: Sequence[str]) -> list[str]:
        """Over the vectors of the thread in one part of the row."""
        if not lines:
            return []
        plan = self.plan
        inside = [] if plan.exact else [f"{COLUMN} < {self.program.width}"]
        inside += [] if self.program.rows % plan.rows_a_block == 0 else ["there"]
        return [
            {"registers": "#pragma unroll", "shared": "#pragma unroll 2", "again": "#pragma unroll 4"}[part.storage],
            f"for (int c = {part.first}; c < {part.first + part.vectors}; ++c) {{",
            f"    const {self.kind} {COLUMN} = {self.kind}(c * {plan.spread} + lane) * {plan.vector};",
            f"    if ({' && '.join(inside) or 'true'}) {{",
            *(f"        {line}" for line in lines),
            "    }",
            "}",
        ]

    def _row_chunks(self, k: int, stage: Stage, lines: Sequence[str]) -> list[str]:
        """Over all vectors of the thread in one row, with what stage ``k`` reads of them.

        The first takes what is copied as it arrives; the last asks for the next row once it has read a vector.
        """
        first, last = k == self._stages[0], k == self._stages[-1] and self.plan.turns > 1
        parts, found = self.plan.arriving if first or last else self.plan.parts, []
        groups = sum(part.storage == "shared" for part in parts)
        for n, part in enumerate(parts):
            if first and part.storage == "shared":
                found.append(f"wait_copies<{groups - 1 - n}>();")
            refill = self._refill(part) if last else []
            found += self._chunk_loop(part, [*self._fetched(stage, part), *lines, *refill])
            found += ["commit_copies();"] if last and part.storage == "shared" else []
        return found

    @cached_property
    def _stages(self) -> list[int]:
        """Those that go over the vectors."""
        return [k for k, stage in enumerate(self.program.stages) if not stage.whole_row]

    def _refill(self, part: Part) -> list[str]:
        """A vector of the next row in place of the one that was read."""
        loads = [
            (k, load)
            for k, load in enumerate(self.plan.loads)
            if self._is_early(load, part) and not self.plan.is_weight(load)
        ]
        lines = [line for k, load in loads for line in self._first_load(k, load, part)]
        return (
            ["if (more) {", f"    const {self.kind} {ROW} = next;", *(f"    {line}" for line in lines), "}"]
            if lines
            else []
        )

    # -- loading -----------------------------------------------------------------------------------------------------

    def _is_early(self, load: Load, part: Part) -> bool:
        """Whether the part's vectors of a load stay where they are from the load phase on."""
        return part.storage != "again" and load.kind != "uniform" and not (self.plan.late and self.plan.is_weight(load))

    def _early_declarations(self) -> list[str]:
        plan, lines = self.plan, []
        for part in plan.parts:
            for k, load in enumerate(plan.loads):
                if part.storage == "registers" and self._is_early(load, part):
                    lines.append(f"Raw<{load.layout.type.stored}, {plan.vector}> r{k}[{plan.rows}][{part.vectors}];")
        for k, at in plan.parked_loads.items():
            lines.append(f"unsigned char* const parked{k} = dynamic_shared() + {at};")
        return lines

    def _early(self) -> list[str]:
        """All loads of a row: those to shared memory, which no register waits for, go out first."""
        lines = []
        for part in self.plan.arriving:
            early = [(k, load) for k, load in enumerate(self.plan.loads) if self._is_early(load, part)]
            lines += self._chunk_loop(part, [line for k, load in early for line in self._first_load(k, load, part)])
            lines += ["commit_copies();"] if part.storage == "shared" else []
        return lines

    def _first_load(self, k: int, load: Load, part: Part) -> list[str]:
        """A vector to where it stays."""
        if part.storage == "shared":
            return self._park(load, self._parked(k))
        return self._load(load, f"r{k}[q][c - {part.first}]")

    def _parked(self, k: int) -> str:
        """Where a vector of the thread is in shared memory."""
        size = f"parked_bytes<{self.plan.loads[k].layout.type.stored}, {self.plan.vector}>()"
        return f"parked{k} + (c * {self.plan.lanes} + threadIdx.x) * {size}"

    def _park(self, load: Load, to: str) -> list[str]:
        """A vector to shared memory."""
        stored = load.layout.type.stored
        if load.kind != "vector":
            return [f"Raw<{stored}, {self.plan.vector}> one;", *self._load(load, "one"), f"park({to}, one);"]
        line = f"park_async<{load.width}, {stored}, {self.plan.vector}>({to}, {self._at(load)});"
        return [f"if ({self.names.condition(load.read.guard)}) {{ {line} }}" if load.read.guard else line]

    def _uniform_loads(self) -> list[str]:
        """One element for the whole row."""
        lines = []
        for k, load in enumerate(self.plan.loads):
            if load.kind == "uniform":
                stored = load.layout.type.stored
                inside = " && ".join(["there", *([self.names.condition(load.read.guard)] if load.read.guard else [])])
                lines.append(f"{stored} u{k} = {{}};")
                lines.append(f"if ({inside}) u{k} = load_one({self._at(load)});")
        return lines

    def _at(self, load: Load, element: str | None = None) -> str:
        return f"p{self.numbers[load.read.tensor]} + ({self.names.index(load.offset, element)})"

    def _load(self, load: Load, into: str) -> list[str]:
        if load.kind == "vector":
            stream = "true" if load.stream and self.plan.held else "false"
            line = f"load<{load.width}, {stream}>({into}, {self._at(load)});"
            return [f"if ({self.names.condition(load.read.guard)}) {{ {line} }}" if load.read.guard else line]
        inside = f"if ({self.names.condition(load.read.guard, 'at')}) " if load.read.guard else ""
        return [
            "#pragma unroll",
            f"for (int e = 0; e < {self.plan.vector}; ++e) {{",
            f"    const {self.kind} at = {COLUMN} + e;",
            f"    {load.layout.type.stored} one = {{}};",
            f"    {inside}one = load_one({self._at(load, 'at')});",
            f"    {into}.set(e, one);",
            "}",
        ]

    def _fetched(self, stage: Stage, part: Part) -> list[str]:
        """What a stage reads of one vector, as ``l0``, ``l1``...: from where it stays, or loaded."""
        lines = []
        mine = {node for node in walk(stage.body) if isinstance(node, Read)}
        for k, load in enumerate(self.plan.loads):
            if load.kind == "uniform" or load.read not in mine:
                continue
            raw = f"Raw<{load.layout.type.stored}, {self.plan.vector}>"
            if not self._is_early(load, part):
                lines += [f"{raw} l{k};", *self._load(load, f"l{k}")]
            elif part.storage == "shared":
                lines += [f"{raw} l{k};", f"unpark(l{k}, {self._parked(k)});"]
            else:
                lines.append(f"{raw}& l{k} = r{k}[q][c - {part.first}];")
                lines += [f"forget(l{k});"] if self.plan.forgetful else []
        return lines

    # -- stages ------------------------------------------------------------------------------------------------------

    def _stage(self, k: int, stage: Stage) -> list[str]:
        emitter = Emitter(
            self._read, self._index, self._condition, self.program.dtypes,
            quick=self.quick, relaxed=True, prefix=f"s{k}_",
        )  # fmt: skip
        value = emitter.value(explicit(stage.body, self.program.dtypes))
        if stage.monoid:
            return self._fold(k, stage, emitter, value)
        if stage.whole_row:
            return self._row_value(k, stage, emitter, value)
        return self._map(k, stage, emitter, value)

    def _accumulator(self, stage: Stage) -> str:
        """The type a fold is carried out in."""
        kind = ELEMENT_TYPES[stage.dtype].kind
        if stage.fold and FUNCTIONS[stage.fold].truths == "only":
            return BOOL
        return INT if kind in ("int", "bool") else DOUBLE if stage.dtype == "f64" else self.floating

    def _fold(self, k: int, stage: Stage, emitter: Emitter, value: Value) -> list[str]:
        kind, fold = self._accumulator(stage), f"By_{stage.fold}"
        step = f"acc{k} = {fold}::of(acc{k}, {emitter.as_type(value, kind)});"
        if stage.where:
            step = f"if ({self.names.condition(stage.where, 'at')}) {step}"
        loop = self._row_chunks(k, stage, self._elements([*emitter.inner, step]))
        identity = MONOIDS[stage.monoid or ""].components[0].identity_in(stage.dtype)
        lines = [*emitter.outer, f"{kind} acc{k} = {literal(identity, kind)};", *loop]
        if self.plan.cluster > 1:
            turn = "turn" if self.plan.turns > 1 else "0"
            template = f"fold_cluster<{self.plan.lanes}, {self.plan.cluster}, {fold}>"
            folded = f"{template}(acc{k}, part{k}[{turn} % {self._sets}], told{k}, {turn})"
        elif self.plan.lanes > 32:
            folded = f"fold_block<{self.plan.lanes}, {fold}>(acc{k}, part{k}[q])"
        else:
            folded = f"fold_lanes<{self.plan.lanes}, {fold}>(acc{k})"
        lines.append(f"const {kind} fold{k} = {folded};")
        return [*lines, *self._row_result(k, stage, Value(f"fold{k}", kind))]

    def _row_value(self, k: int, stage: Stage, emitter: Emitter, value: Value) -> list[str]:
        return [*emitter.outer, *self._row_result(k, stage, Value(emitter.as_type(value, value.type), value.type))]

    def _row_result(self, k: int, stage: Stage, value: Value) -> list[str]:
        """A value of the row, rounded to the stage's dtype, stored if it is an output."""
        rounding = Emitter(self._read, self._index, self._condition, self.program.dtypes)
        rounding.prefix = f"v{k}_"
        self.values[stage.name] = rounding.cast(value, stage.dtype)
        lines = list(rounding.outer)
        stored = ELEMENT_TYPES[stage.dtype].stored
        for n, output in self._outputs(stage):
            to = f"out{n} + ({self.names.index(output.offset)})"
            lines.append(f"if (there && lane == 0) store_one({to}, narrow<{stored}>({value.text}));")
        return lines

    def _map(self, k: int, stage: Stage, emitter: Emitter, value: Value) -> list[str]:
        count = self.plan.vector
        lines = [f"{value.type} y[{count}];"]
        lines += self._elements([*emitter.inner, f"y[e] = {emitter.as_type(value, value.type)};"])
        lines += [f"Raw<{ELEMENT_TYPES[stage.dtype].stored}, {count}> w;", "round(w, y);"]
        for n, output in self._outputs(stage):
            lines.append(f"store<{store_width(self.plan, n)}>(out{n} + ({self.names.index(output.offset)}), w);")
        return ["{", *(f"    {line}" for line in [*emitter.outer, *self._row_chunks(k, stage, lines)]), "}"]

    def _outputs(self, stage: Stage) -> list[tuple[int, Output]]:
        return [(n, output) for n, output in enumerate(self.program.outputs) if output.stage == stage.name]

    def _elements(self, lines: Sequence[str]) -> list[str]:
        """Over the elements of a vector."""
        return [
            "#pragma unroll",
            f"for (int e = 0; e < {self.plan.vector}; ++e) {{",
            f"    [[maybe_unused]] const {self.kind} at = {COLUMN} + e;",
            *(f"    {line}" for line in lines),
            "}",
        ]

    # -- what an expression reads --------------------------------------------------------------------------------------

    def _read(self, read: Read) -> tuple[str, bool]:
        if not read.index:
            return self.values[read.tensor].text, True
        k = next(k for k, load in enumerate(self.plan.loads) if load.read == read)
        load = self.plan.loads[k]
        if load.kind == "uniform":
            return f"widen(u{k})", True
        return f"widen(l{k}.get(e))", False

    def _index(self, expr: Affine) -> tuple[str, bool]:
        uniform = self.names.uniform(expr)
        return self.names.index(expr, None if uniform else "at"), uniform

    def _condition(self, bounds: tuple[Bound, ...]) -> tuple[str, bool]:
        uniform = not depends(bounds, COLUMN)
        return self.names.condition(bounds, None if uniform else "at"), uniform


def _fold_type(function: str) -> str:
    """What folds two values, for the templates that fold those of many threads."""
    body = FUNCTIONS[function].cuda.format("a", "b")
    lines = ["template <class V>", f"static TAPESTRY_FN V of(V a, V b) {{ return {body}; }}"]
    return f"struct By_{function} {{\n{indented(lines, 1)}}};\n"
