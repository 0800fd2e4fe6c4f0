"""The CUDA source of a planned loop.

    load phase      every read of every vector of the thread, into words
    compute phase   widen, compute, round, store

Both phases are gone through again and again by a thread that goes along a dimension, after what is the same along it.
Reads that are turned go through a tile in shared memory before the two phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...arithmetic import explicit
from ...expr import Affine, Bound, Read, walk
from ...expr import Cast as CastNode
from .emit import BOOL, DOUBLE, INT, SINGLE, Emitter, Value
from .indices import condition, text
from .plan import Along, Load, Plan, depends
from .steady import Steady, name_of, taken_apart
from .types import element_type

HEADER = """#include <tapestry/functions.cuh>
#include <tapestry/elements.cuh>

namespace tapestry {
"""
# A dtype whose elements are computed in each type.
_DTYPES = {BOOL: "bool", INT: "int64", SINGLE: "f32", DOUBLE: "f64"}


def source(plan: Plan, name: str) -> str:
    """A translation unit with the kernel ``name(operands..., out)``."""
    return _Writer(plan, name).text()


def floating(dtypes: Sequence[str]) -> str:
    """The type that floats are computed in: double where a 64-bit float takes part."""
    return DOUBLE if "f64" in dtypes else SINGLE


def is_quick(dtype: str, casts: Sequence[str] = ()) -> bool:
    """Whether a result shows no more than 16 bits of a float; casts to whole numbers on the way show more."""
    short = element_type(dtype).kind == "float" and element_type(dtype).bytes <= 2
    return short and all(element_type(name).kind == "float" for name in casts)


def indented(lines: Sequence[str], depth: int) -> str:
    """Lines of C++ at a depth."""
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


@dataclass(frozen=True)
class Names:
    """Index expressions as text, for a loop whose innermost dimension is ``inner`` and, of one element, ``element``."""

    ranges: Mapping[str, tuple[int, int]]
    names: Mapping[str, str]
    inner: str
    kind: str

    def index(self, expr: Affine, element: str | None = None) -> str:
        names = {**self.names, self.inner: element} if element else self.names
        return text(expr, self.ranges, names, self.kind)

    def condition(self, bounds: Sequence[Bound], element: str | None = None) -> str:
        names = {**self.names, self.inner: element} if element else self.names
        return condition(bounds, self.ranges, names, self.kind)

    def uniform(self, expr: Affine) -> bool:
        return self.inner not in expr.dims


class _Writer:
    """Puts the parts of one kernel together."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.loop, self.name = plan, plan.loop, name
        self.inner = plan.inner[0]
        self.kind = "Int" if self.loop.wide else "int"
        self.numbers = {tensor: k for k, (tensor, _) in enumerate(self.loop.operands)}
        self.names = Names(self.loop.ranges, {d: d for d, _ in self.loop.dims}, self.inner, self.kind)
        self.stored = self.loop.output.type.stored
        self.masked = depends(self.loop.where, self.inner)

    def text(self) -> str:
        tile = _TileWriter(self) if self.plan.tile else None
        raw = [self._raw(k) for k in range(len(self.plan.loads))]
        if self.plan.along is not None:
            lines = self._going(self.plan.along, raw)
        else:
            lines = [*(tile.fetched if tile else []), *raw, *self._phase(self._loads(), tile)]
            lines += [*(tile.turned if tile else []), *self._phase(self._compute(), tile)]
        head = f'extern "C" __global__ void __launch_bounds__({self.plan.threads})\n{self.name}({self.parameters}) {{\n'
        return "".join([HEADER, head, indented(["follow();", *lines], 1), "}\n\n}  // namespace tapestry\n"])

    @cached_property
    def parameters(self) -> str:
        given = [f"const {layout.type.stored}* p{k}" for k, (_, layout) in enumerate(self.loop.operands)]
        return ", ".join([*given, f"{self.stored}* out"])

    def _direct(self) -> list[tuple[int, Load]]:
        """Loads that go straight to registers, with their numbers."""
        return [(k, load) for k, load in enumerate(self.plan.loads) if load.kind != "tile"]

    def _raw(self, k: int) -> str:
        load = self.plan.loads[k]
        count = 1 if load.kind == "uniform" else self.plan.vector
        return f"Raw<{load.layout.type.stored}, {count}> r{k}[{self.plan.unroll}];"

    # -- the vectors of a thread -------------------------------------------------------------------------------------

    def _phase(self, body: list[str], tile: _TileWriter | None) -> list[str]:
        """A loop over the vectors of the thread around some lines."""
        if not body:
            return []
        position, inside = tile.position() if tile else self._position()
        lines = ["#pragma unroll", f"for (int u = 0; u < {self.plan.unroll}; ++u) {{"]
        head = [f"    {line}" for line in position[:1]]
        lines += [*head, f"    if ({inside}) {{", *(f"        {line}" for line in [*position[1:], *body])]
        return [*lines, "    }", "}"]

    def _going(self, along: Along, raw: list[str]) -> list[str]:
        """Along a dimension, some vectors at a time, with what is the same for all of them before."""
        plan, kind, first = self.plan, self.kind, f"first_{along.dim}"
        natural = "Natural" if kind == "Int" else "unsigned"
        dims = [(first, n // along.times) if name == along.dim else (name, n) for name, n in self.loop.dims]
        at = f"const {kind} {along.dim} = {first} * {along.times} + v + u;"
        lines = [f"const {natural} k = {natural}(blockIdx.x) * {plan.threads}u + threadIdx.x;"]
        lines += [f"if (k >= {plan.vectors // along.times}u) return;", *coordinates(dims, plan.vector, kind, "k")]
        lines += [*self._steadily(), "#pragma unroll 1", f"for (int v = 0; v < {along.times}; v += {plan.unroll}) {{"]
        for body in (raw, self._each([at, *self._loads()]), self._each([at, *self._compute()])):
            lines += [f"    {line}" for line in body]
        return [*lines, "}"]

    def _each(self, body: list[str]) -> list[str]:
        head = ["#pragma unroll", f"for (int u = 0; u < {self.plan.unroll}; ++u) {{"]
        return [*head, *(f"    {line}" for line in body), "}"]

    def _position(self) -> tuple[list[str], str]:
        """Coordinates of vector u of the thread, and the condition that it exists."""
        plan, kind = self.plan, self.kind
        natural = "Natural" if kind == "Int" else "unsigned"
        block = f"{natural}(blockIdx.x) * {plan.threads * plan.unroll}u"
        first = f"const {natural} k = {block} + u * {plan.threads}u + threadIdx.x;"
        lines = coordinates(self.loop.dims, plan.vector, kind, "k")
        lines += [f"const bool whole = {self.inner} + {plan.vector} <= {plan.inner[1]};"] if plan.ragged else []
        return [first, *lines], f"k < {plan.vectors}u"

    # -- loading -----------------------------------------------------------------------------------------------------

    def _loads(self) -> list[str]:
        return [line for k, load in self._direct() for line in self._load(k, load)]

    def _load(self, k: int, load: Load) -> list[str]:
        pointer = f"p{self.numbers[load.read.tensor]}"
        guard = (*load.read.guard, *self.loop.where)
        if load.kind == "gather":
            return self._gather(k, load, pointer, guard)
        at = f"{pointer} + ({self.names.index(load.offset)})"
        if load.kind == "uniform":
            line = f"r{k}[u].set(0, load_one({at}));"
        else:
            line = f"load<{load.width}, {'true' if load.stream else 'false'}>(r{k}[u], {at});"
            if self.plan.ragged:
                line = f"if (whole) {line} else load_some(r{k}[u], {at}, {self.plan.inner[1]} - {self.inner});"
        return [f"if ({self.names.condition(guard)}) {{ {line} }}" if guard else line]

    def _gather(self, k: int, load: Load, pointer: str, guard: Sequence[Bound]) -> list[str]:
        stored = load.layout.type.stored
        inside = [self.names.condition(guard, "at")] if guard else []
        inside += [f"at < {self.plan.inner[1]}"] if self.plan.ragged else []
        take = f"one = load_one({pointer} + ({self.names.index(load.offset, 'at')}));"
        return [
            "#pragma unroll",
            f"for (int e = 0; e < {self.plan.vector}; ++e) {{",
            f"    const {self.kind} at = {self.inner} + e;",
            f"    {stored} one = {{}};",
            f"    if ({' && '.join(inside)}) {take}" if inside else f"    {take}",
            f"    r{k}[u].set(e, one);",
            "}",
        ]

    # -- computing ---------------------------------------------------------------------------------------------------

    @cached_property
    def _apart(self) -> Steady:
        """The body, and its parts that are computed once."""
        body = explicit(self.loop.body, {tensor: layout.dtype for tensor, layout in self.loop.operands})
        return taken_apart(body, self.plan.along.dim) if self.plan.along else Steady(body, (), 0)

    @cached_property
    def _steady(self) -> tuple[Emitter, list[Value]]:
        emitter = self._emitter("s", {})
        return emitter, [emitter.value(part) for part in self._apart.parts]

    def _steadily(self) -> list[str]:
        """The parts that are the same along the dimension that the thread goes along."""
        (emitter, values), count = self._steady, self.plan.vector
        varied = [(k, value) for k, value in enumerate(values) if not value.uniform]
        lines = [*emitter.outer, *(f"{value.type} steady{k}[{count}];" for k, value in varied)]
        lines += ["#pragma unroll", f"for (int e = 0; e < {count}; ++e) {{"]
        lines += [f"    [[maybe_unused]] const {self.kind} at = {self.inner} + e;"]
        lines += [f"    {line}" for line in emitter.inner]
        return [*lines, *(f"    steady{k}[e] = {value.text};" for k, value in varied), "}"]

    def _emitter(self, prefix: str, steady: dict[str, str]) -> Emitter:
        dtypes = {tensor: layout.dtype for tensor, layout in self.loop.operands}
        casts = [node.dtype for node in walk(self.loop.body) if isinstance(node, CastNode)]
        quick = is_quick(self.loop.output.dtype, casts)
        return Emitter(self._read, self._index, self._condition, dtypes | steady, quick=quick, prefix=prefix)

    def _compute(self) -> list[str]:
        steady = {name_of(k): _DTYPES[value.type] for k, value in enumerate(self._steady[1])}
        emitter = self._emitter("t", steady)
        value = emitter.value(self._apart.body)
        count, result = self.plan.vector, emitter.as_type(value, value.type)
        lines = [*emitter.outer, f"{value.type} y[{count}];"]
        lines += [f"bool keep[{count}];"] if self._partial else []
        lines += ["#pragma unroll", f"for (int e = 0; e < {count}; ++e) {{"]
        lines += [f"    [[maybe_unused]] const {self.kind} at = {self.inner} + e;"]
        lines += [f"    {line}" for line in emitter.inner]
        lines += [f"    keep[e] = {self._kept()};"] if self._partial else []
        lines += [f"    y[e] = {result};", "}", *self._store()]
        if self.loop.where and not self.masked:
            return [f"if ({self.names.condition(self.loop.where)}) {{", *(f"    {line}" for line in lines), "}"]
        return lines

    @property
    def _partial(self) -> bool:
        return self.masked or self.plan.ragged

    def _kept(self) -> str:
        parts = [self.names.condition(self.loop.where, "at")] if self.masked else []
        return " && ".join([*parts, *([f"at < {self.plan.inner[1]}"] if self.plan.ragged else [])])

    def _store(self) -> list[str]:
        to = f"out + ({self.names.index(self.loop.out)})"
        lines = [f"Raw<{self.stored}, {self.plan.vector}> w;", "round(w, y);"]
        whole = f"store<{self.plan.store}>({to}, w);"
        single = f"if (keep[e]) store_one({to} + e, w.get(e));"
        if self.loop.out.coefficient(self.inner) != 1:  # one element a vector
            single = f"if (keep[e]) store_one({to}, w.get(e));"
        every = ["#pragma unroll", f"for (int e = 0; e < {self.plan.vector}; ++e) {single}"]
        if self.masked:
            return [*lines, *every]
        if self.plan.ragged:
            return [*lines, "if (whole) {", f"    {whole}", "} else {", *(f"    {line}" for line in every), "}"]
        return [*lines, whole]

    def _read(self, read: Read) -> tuple[str, bool]:
        for k, part in enumerate(self._steady[1] if read.tensor not in self.numbers else ()):
            if read.tensor == name_of(k):
                return (part.text if part.uniform else f"steady{k}[e]"), part.uniform
        k = next(k for k, load in enumerate(self.plan.loads) if load.read == read)
        load = self.plan.loads[k]
        if load.kind == "uniform":
            return f"widen(r{k}[u].get(0))", True
        return f"widen(r{k}[u].get(e))", False

    def _index(self, expr: Affine) -> tuple[str, bool]:
        uniform = self.names.uniform(expr)
        return self.names.index(expr, None if uniform else "at"), uniform

    def _condition(self, bounds: tuple[Bound, ...]) -> tuple[str, bool]:
        uniform = not depends(bounds, self.inner)
        return self.names.condition(bounds, None if uniform else "at"), uniform


def coordinates(dims: Sequence[tuple[str, int]], vector: int, kind: str, number: str) -> list[str]:
    """Statements that take the number of a vector apart into the dimensions' values."""
    natural = "Natural" if kind == "Int" else "unsigned"
    counts = [extent for _, extent in dims[:-1]] + [-(-dims[-1][1] // vector)]
    lines, left = [], number
    for k in range(len(dims) - 1, -1, -1):
        name, scale = dims[k][0], f" * {vector}" if k == len(dims) - 1 and vector > 1 else ""
        if k == 0:
            lines.append(f"const {kind} {name} = {kind}({left}){scale};")
        else:
            lines.append(f"const {kind} {name} = {kind}({left} % {counts[k]}u){scale};")
            lines.append(f"const {natural} q{k} = {left} / {counts[k]}u;")
            left = f"q{k}"
    return lines


class _TileWriter:
    """Fetches the reads that are turned, and says where the vectors of a thread lie in the tile.

    Item by item: neighbouring threads take neighbouring groups of lines (up to 8, all banks between them), then
    columns; a thread then takes the next groups, so that what it writes lies behind what it has written.
    """

    def __init__(self, writer: _Writer) -> None:
        assert writer.plan.tile is not None
        self.writer, self.plan, self.tile = writer, writer.plan, writer.plan.tile
        self.extents = dict(writer.loop.dims)
        self.tiles = [(k, load) for k, load in enumerate(self.plan.loads) if load.kind == "tile"]

    @property
    def fetched(self) -> list[str]:
        """Block coordinates, then each tile: all copies of a thread."""
        lines = self._block()
        for k, load in self.tiles:
            lines.append(f"__shared__ __align__(16) unsigned char tile{k}[{self._pitch(load) * self.tile.high}];")
        return [*lines, *(line for k, load in self.tiles for line in self._fetch(k, load)), "commit_copies();"]

    @property
    def turned(self) -> list[str]:
        """From the tiles to registers, once all of the block is there."""
        columns, turns = self.tile.columns, []
        for k, load in self.tiles:
            turn = f"turn_tile<{self._pitch(load)}, {self.plan.vector}, {columns}>"
            turns.append(f"    {turn}(r{k} + {columns} * p, tile{k}, line, column);")
        count = self.plan.unroll // columns
        loop = ["#pragma unroll", f"for (int p = 0; p < {count}; ++p) {{", f"    {self._item('p')}", *turns, "}"]
        return ["wait_copies<0>();", "__syncthreads();", *loop]

    def _pitch(self, load: Load) -> int:
        """Bytes from line to line."""
        return self.tile.wide * load.layout.type.bytes

    def _block(self) -> list[str]:
        kind, (along, across) = self.writer.kind, (self.tile.along, self.tile.across)
        high, wide = -(-self.extents[across] // self.tile.high), -(-self.extents[along] // self.tile.wide)
        others = [dim for dim in self.writer.loop.dims if dim[0] not in (along, across)]
        lines = [f"const {kind} first_{across} = {kind}(blockIdx.x % {high}u) * {self.tile.high};"]
        lines.append(f"const {kind} first_{along} = {kind}(blockIdx.x / {high}u % {wide}u) * {self.tile.wide};")
        if others:
            lines += coordinates(others, 1, kind, f"(blockIdx.x / {high * wide}u)")
        return lines

    def _fetch(self, k: int, load: Load) -> list[str]:
        names, (along, across) = self.writer.names, (self.tile.along, self.tile.across)
        row, kind = self.tile.wide // load.width, self.writer.kind
        chunks = -(-self.tile.high * row // self.plan.threads)
        at = f"p{self.writer.numbers[load.read.tensor]} + ({names.index(load.offset)})"
        inside = f"line < {self.tile.high} && {across} < {self.extents[across]} && {along} < {self.extents[along]}"
        guard = f" && {names.condition(load.read.guard)}" if load.read.guard else ""
        fetch = f"fetch_tile<{self._pitch(load)}, {self.plan.vector}, {load.width}>(tile{k}, line, column, {at});"
        return [
            "#pragma unroll" if load.width > 1 else "#pragma unroll 8",
            f"for (int c = 0; c < {chunks}; ++c) {{",
            f"    const int chunk = threadIdx.x + c * {self.plan.threads};",
            f"    const int line = chunk / {row}, column = chunk % {row} * {load.width};",
            f"    const {kind} {across} = first_{across} + line, {along} = first_{along} + column;",
            f"    if ({inside}{guard}) {fetch}",
            "}",
        ]

    def _item(self, number: str) -> str:
        """Line and column of an item of the thread: a vector of lines in each of some columns."""
        groups, slots = self.tile.high // self.plan.vector, self.tile.wide // self.tile.columns
        near = min(8, groups)
        some, far = min(slots, self.plan.threads // near), groups // near
        item = f"const int item = threadIdx.x + {number} * {self.plan.threads}, slot = item / {near};"
        group = f"slot / {some} % {far} * {near} + item % {near}"
        column = f"slot / {some * far} * {some} + slot % {some}"
        return f"{item} const int line = ({group}) * {self.plan.vector}, column = ({column}) * {self.tile.columns};"

    def position(self) -> tuple[list[str], str]:
        """Coordinates of vector u of the thread, and the condition that it exists."""
        kind, columns = self.writer.kind, self.tile.columns
        along, across = self.tile.along, self.tile.across
        place = f"const {kind} {across} = first_{across} + line, {along} = first_{along} + column + u % {columns};"
        # The condition needs the coordinates, so they come before it, in one line.
        inside = f"line < {self.tile.high} && {across} < {self.extents[across]} && {along} < {self.extents[along]}"
        return [f"{self._item(f'(u / {columns})')} {place}"], inside
