"""The CUDA source of a job: one thread a point, or several threads where there are few points and long folds.

Threads that are neighbours share a fold where its points lie together in memory, otherwise they have neighbouring
points. Where records stand at places that the data say, each of a point's threads sees to some of the places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...expr import Affine, Bound, Expr, Read, reads
from ...kernels.elementwise.emit import Emitter, Value, literal
from ...kernels.elementwise.indices import condition, text
from ...kernels.elementwise.loop import MAX_32
from ...kernels.elementwise.source import coordinates, indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from .arrays import DeviceArray
from .guards import ask_together
from .jobs import Dims, Field, Fold, Job, Store
from .limits import limits
from .machine import THREADS, Unit
from .places import Place, place
from .statements import ROOM, Tree, inside
from .threads import SHARED, along_fold, into_places, seeing, sharing

# Neighbouring points that a block has, where neighbours among threads have points of their own.
NEIGHBOURS = 32
# Places that are asked for before one is gone to: nothing is read between them that might just have been written.
AHEAD = 8
HEADER = "#include <tapestry/functions.cuh>\n\nnamespace tapestry {\n"


@dataclass(frozen=True)
class Written:
    """A kernel and the arrays whose addresses it takes."""

    unit: Unit
    arrays: tuple[DeviceArray, ...]


def written(job: Job, axes: Sequence[int] = (), outside: DeviceArray | None = None) -> Written:
    """The kernel of a job that has points. An index that is outside of one of the axes, given by their extents, is left
    in the word of that axis in ``outside``.
    """
    return Writer(job, axes, outside).written()


def places_of(dims: Dims, kind: str, number: str) -> list[str]:
    """Statements that take the number of a point apart into the dimensions' values."""
    return coordinates(dims, 1, kind, number) if dims else []


class Writer:
    """A kernel being written."""

    headers = HEADER

    def __init__(self, job: Job, axes: Sequence[int], outside: DeviceArray | None) -> None:
        self.job, self.ranges = job, job.ranges
        self.axes, self.outside = axes, outside
        self.places: dict[Read, Place] = {
            r: place(r.index, job.fields[r.tensor].stored, self.ranges) for r in job.reads()
        }
        self.targets = [place(store.index, store.into.stored, self.ranges) for store in job.stores]
        self.kept = tuple(sorted(job.threads, key=lambda dim: -abs(self.targets[0].plain.coefficient(dim[0]))))
        self.arrays: list[DeviceArray] = []
        self.parameters: list[str] = []
        self.group, self.into = sharing(job), into_places(job)
        self.lanes = 1 if self.into else seeing(job)
        longest = max((fold.points for fold in job.folds), default=1)
        self.wanted = job.points * (longest if self.into else max(self.group, self.lanes))  # threads
        few = job.record is not None and len(job.record.dtypes) * NEIGHBOURS * SHARED <= ROOM * THREADS
        self.across = self.group > 1 and few and not along_fold(job)
        self.threads = max(THREADS, self.group * NEIGHBOURS) if self.across else THREADS
        self.kind = "Int" if self._wide() else "int"
        self.names = {name: name for name in self.ranges}
        self.emitters = 0
        self.dtypes = {name: field.dtype for name, field in job.fields.items()}
        record = job.record
        if record is not None:
            for letter in "abr":
                self.dtypes |= record.named(letter)

    def _wide(self) -> bool:
        """Whether some index or offset needs 64 bits."""
        exprs = [e for p in (*self.places.values(), *self.targets) for e in p.expressions]
        exprs += self.job.indices()
        sizes = [field.stored.array.size for field in self.job.fields.values()]
        sizes += [store.into.stored.array.size for store in self.job.stores]
        items = max([1, *(store.into.stored.array.dtype.itemsize for store in self.job.stores)])
        most = max([self.wanted, *(fold.points for fold in self.job.folds), *(n * items for n in sizes)])
        return most > MAX_32 or any(max(map(abs, expr.bounds(self.ranges))) > MAX_32 for expr in exprs)

    # -- the kernel --------------------------------------------------------------------------------------------------

    def written(self) -> Written:
        body = ["follow();", *self._reporting(), *self._body()]
        head = (
            f'{self.headers}extern "C" __global__ void __launch_bounds__({self.threads})\n'
            f"NAME({', '.join(self.parameters)}) {{\n"
        )
        source = f"{head}{indented(body, 1)}}}\n\n}}  // namespace tapestry\n"
        blocks = -(-self.wanted // self.threads)
        digest = hashlib.sha256(f"{blocks} {source}".encode()).hexdigest()[:16]
        entry = f"general_{digest}"
        record = self.job.record
        exact = record is None or "float" in record.monoid.exact
        unit = Unit(source.replace("NAME(", f"{entry}(", 1), entry, blocks, self.threads, exact=exact, follows=True)
        return Written(unit, tuple(self.arrays))

    def _reporting(self) -> list[str]:
        """A function that hides the one of its name, which stops the kernel."""
        if self.outside is None:
            return []
        words = self._parameter(self.outside, "Int", constant=False)
        *others, last = range(len(self.axes))
        which = " : ".join([*(f"extent == {self.axes[k]} ? {k}" for k in others), f"{last}"])
        return [
            "const auto within = [=](const Int index, const Int extent) -> Int {",
            "    if (0 <= index && index < extent) return index;",
            f"    {words}[{which}] = index;",
            "    return 0;",
            "};",
        ]

    def _natural(self) -> str:
        return "Natural" if self.kind == "Int" else "unsigned"

    def _body(self) -> list[str]:
        if self.into is not None:
            return self._scattered(self.into)
        return self._shared() if self.group > 1 else self._single()

    def _scattered(self, into: str) -> list[str]:
        """One thread a point of a fold, whose value goes into the record where it stands, in whatever order."""
        [store], [target] = self.job.stores, self.targets
        lines = [f"const {self._natural()} k = {self._natural()}(blockIdx.x) * {THREADS}u + threadIdx.x;"]
        for fold in self.job.folds:
            emitter = self._emitter()
            value = emitter.as_type(emitter.value(fold.values[0]), "Int")
            here = f"&{self._element(store.into, target, constant=False)}"
            point = [*emitter.outer, *emitter.inner, f"{into.format(here, value)};"]
            dims = (*self.kept, *fold.looped)
            inner = [*places_of(dims, self.kind, "k"), *self._under(self.job.where, self._counting(fold, point))]
            lines += [f"if (k < {self.job.points * fold.points}u) {{", *inside(inner), "}"]
        return lines

    def _single(self) -> list[str]:
        """One thread a point."""
        number, points = self._natural(), self.job.points
        lines = [f"const {number} thread = {number}(blockIdx.x) * {THREADS}u + threadIdx.x;"]
        lines += [f"if (thread >= {points * self.lanes}u) return;"]
        if self.lanes > 1:
            lines += [f"const {number} k = thread % {points}u, lane = thread / {points}u;"]
        lines += places_of(self._counted(), self.kind, "k" if self.lanes > 1 else "thread")
        inner = [] if self.job.placed else self._state()
        for fold in self.job.folds:
            inner += self._ahead(fold) if self.lanes > 1 else self._loops(fold)
        inner += [] if self.job.placed else self._only(self._stores())
        return [*lines, *self._windows(self._under(self.job.where, inner))]

    # -- points that count -------------------------------------------------------------------------------------------

    def _counted(self) -> Dims:
        """The dimensions of a thread's point; of those that have a window the place in it."""
        names = {one.dim: f"in_{one.dim}" for one in self.job.only.windows} if self.job.only else {}
        return tuple((names.get(name, name), n) for name, n in self.kept)

    def _windows(self, lines: list[str]) -> list[str]:
        """What a thread does for a point, if its places in windows are within their dimensions."""
        for one in self.job.only.windows if self.job.only else ():
            emitter = self._emitter()
            first = emitter.as_type(emitter.value(one.first), "Int")
            at, extent = f"at_{one.dim}", self.ranges[one.dim][1]
            head = [*emitter.outer, *emitter.inner, f"const Int {at} = {first} + in_{one.dim};"]
            here = [f"const {self.kind} {one.dim} = {self.kind}({at});", *lines]
            lines = [*head, f"if (0 <= {at} && {at} < {extent}) {{", *inside(here), "}"]
        return lines

    def _only(self, lines: list[str]) -> list[str]:
        """What is stored where its conditions hold."""
        for one in self.job.only.conditions[::-1] if self.job.only else ():
            emitter = self._emitter()
            value = emitter.as_type(emitter.value(one), "bool")
            lines = [*emitter.outer, *emitter.inner, f"if ({value}) {{", *inside(lines), "}"]
        return lines

    def _shared(self) -> list[str]:
        """Some threads a point, whose records are folded in shared memory."""
        natural, group, points = self._natural(), self.group, self.threads // self.group
        own = (f"% {points}u", f"/ {points}u") if self.across else (f"/ {group}u", f"% {group}u")
        lines = [
            f"const {natural} k = {natural}(blockIdx.x) * {points}u + threadIdx.x {own[0]};",
            f"const unsigned lane = threadIdx.x {own[1]};",
            *places_of(self.kept, self.kind, "k"),
            *self._state(),
        ]
        loops = [line for fold in self.job.folds for line in self._strided(fold)]
        lines += [f"if (k < {self.job.points}u) {{", *inside(loops), "}", *self._tree()]
        return [*lines, f"if (k < {self.job.points}u && lane == 0) {{", *inside(self._stores()), "}"]

    def _under(self, bounds: Sequence[Bound], lines: list[str]) -> list[str]:
        if not bounds:
            return lines
        return [f"if ({self._condition(bounds)}) {{", *inside(lines), "}"]

    # -- folds -------------------------------------------------------------------------------------------------------

    def _components(self) -> list[tuple[str, str]]:
        """The names and compute types of the record's components."""
        record = self.job.record
        if record is None:
            return []
        emitter = self._emitter()
        return [(f"s{k}", emitter.wide(dtype)) for k, dtype in enumerate(record.dtypes)]

    def _state(self) -> list[str]:
        record = self.job.record
        if record is None:
            return []
        pairs = zip(self._components(), record.monoid.components, record.dtypes, strict=True)
        return [f"{kind} {name} = {literal(c.identity_in(dtype), kind)};" for (name, kind), c, dtype in pairs]

    def _loops(self, fold: Fold) -> list[str]:
        """The points of a fold one after another; loops go no further than conditions hold."""
        lines = self._counting(fold, self._placed(fold) if self.job.placed else self._point(fold))
        inner: set[str] = set()
        for name, extent in reversed(fold.looped):
            ends = limits(fold.where, name, extent, inner, lambda expr: text(expr, self.ranges, self.names, self.kind))
            head = f"for ({self.kind} {name} = {ends.first}; {name} < {ends.end}; ++{name}) {{"
            loop = [*ends.declared(self.kind), head, *inside(lines), "}"]
            lines = ["{", *inside(loop), "}"] if ends.told else loop
            inner.add(name)
        return lines if fold.looped else ["{", *inside(lines), "}"]

    def _ahead(self, fold: Fold) -> list[str]:
        """The points of a fold at the places that the thread sees to, some of which are asked for at a time."""
        [one], (*others, (inner, count)) = fold.chosen, fold.looped
        emitter, extent = self._emitter(), self.ranges[one.dim][1]
        value = emitter.as_type(emitter.value(one.value), "Int")
        at = f"const {self.kind} {inner} = first + u;"
        asking = [
            at,
            f"if ({inner} < {count}) {{",
            *inside([*emitter.outer, *emitter.inner, f"asked[u] = {value};"]),
            "}",
        ]
        mine = f"0 <= asked[u] && asked[u] < {extent} && unsigned(asked[u]) % {self.lanes}u == lane"
        found = [
            at,
            f"const {self.kind} {one.dim} = {self.kind}(asked[u]);",
            *self._under(fold.where, self._placed(fold)),
        ]
        lines = [
            f"Int asked[{AHEAD}];",
            "#pragma unroll",
            f"for (int u = 0; u < {AHEAD}; ++u) {{",
            "    asked[u] = -1;",
        ]
        lines += [
            *inside(asking),
            "}",
            f"for (int u = 0; u < {AHEAD}; ++u) {{",
            f"    if ({mine}) {{",
            *inside(inside(found)),
        ]
        lines = [
            f"for ({self.kind} first = 0; first < {count}; first += {AHEAD}) {{",
            *inside([*lines, "    }", "}"]),
            "}",
        ]
        for name, extent in reversed(others):
            lines = [f"for ({self.kind} {name} = 0; {name} < {extent}; ++{name}) {{", *inside(lines), "}"]
        return lines

    def _counting(self, fold: Fold, point: list[str]) -> list[str]:
        """One point; along dimensions that are selected from, the one that counts, if there is such."""
        lines = self._under(fold.where, point)
        for one in reversed(fold.chosen):
            emitter = self._emitter()
            value = emitter.as_type(emitter.value(one.value), "Int")
            asked, extent = f"asked_{one.dim}", self.ranges[one.dim][1]
            found = [f"const {self.kind} {one.dim} = {self.kind}({asked});", *lines]
            head = [*emitter.outer, *emitter.inner, f"const Int {asked} = {value};"]
            lines = [*head, f"if (0 <= {asked} && {asked} < {extent}) {{", *inside(found), "}"]
        return lines

    def _placed(self, fold: Fold) -> list[str]:
        """One point, folded into the record where it stands."""
        [(name, kind)], [store], [target] = self._components(), self.job.stores, self.targets
        here = self._element(store.into, target, constant=False)
        return [f"{kind} {name} = widen({here});", *self._point(fold), *self._stores()]

    def _strided(self, fold: Fold) -> list[str]:
        """Every so many points of a fold; of one dimension, those where conditions hold."""
        unrolled = ["#pragma unroll 8"] if self.across and not fold.chosen else []
        if len(fold.looped) == 1:
            [(name, extent)] = fold.looped
            ends = limits(fold.where, name, extent, (), lambda expr: text(expr, self.ranges, self.names, self.kind))
            if ends.told:
                step = f"{name} = {ends.first} + {self.kind}(lane); {name} < {ends.end}; {name} += {self.group}"
                inner = [
                    *unrolled, f"for ({self.kind} {step}) {{", *inside(self._counting(fold, self._point(fold))), "}"
                ]  # fmt: skip
                return ["{", *inside([*ends.declared(self.kind), *inner]), "}"]
        head = f"for ({self._natural()} q = lane; q < {fold.points}u; q += {self.group}u) {{"
        inner = [*places_of(fold.looped, self.kind, "q"), *self._counting(fold, self._point(fold))]
        return [*unrolled, head, *inside(inner), "}"]

    def _point(self, fold: Fold) -> list[str]:
        """One point's values, folded into the record."""
        record = self.job.record
        assert record is not None
        components = record.monoid.components
        steps = [(None if fold.whole else component.step) or component.combine for component in components]
        read = {node.tensor for step in steps for node in reads(step)}
        emitter = self._emitter()
        ask_together(emitter, [v for c, v in zip(components, fold.values, strict=True) if f"b.{c.name}" in read])
        lines, second = [], {}
        for k, (value, (_, kind)) in enumerate(zip(fold.values, self._components(), strict=True)):
            second[f"{k}"] = f"b{k}"
            if f"b.{components[k].name}" in read:
                lines.append(f"const {kind} b{k} = {emitter.as_type(emitter.value(value), kind)};")
        return [*emitter.outer, *emitter.inner, *lines, *self._combine(second, steps)]

    def _combine(self, second: dict[str, str], exprs: Sequence[Expr] | None = None) -> list[str]:
        """The record, folded with another whose components have the given names."""
        record = self.job.record
        assert record is not None
        exprs = exprs or [component.combine for component in record.monoid.components]
        known = {}
        for k, component in enumerate(record.monoid.components):
            known[f"a.{component.name}"], known[f"b.{component.name}"] = f"s{k}", second[str(k)]
        emitter = self._emitter(known)
        values = [emitter.value(expr) for expr in exprs]
        lines = [*emitter.outer, *emitter.inner]
        texts = [emitter.as_type(value, kind) for value, (_, kind) in zip(values, self._components(), strict=True)]
        return [*lines, *(f"s{k} = {found};" for k, found in enumerate(texts))]

    def _tree(self) -> list[str]:
        """The records of a group of threads folded into that of the first."""
        names = self._components()
        combine = self._combine({f"{k}": f"b{k}" for k in range(len(names))})
        return Tree(names, combine, self.threads, self.group, across=self.across).folded()

    # -- results -----------------------------------------------------------------------------------------------------

    def _stores(self) -> list[str]:
        record = self.job.record
        known = {}
        if record is not None:
            known = {f"r.{c.name}": f"s{k}" for k, c in enumerate(record.monoid.components)}
        emitter = self._emitter(known)
        values = [emitter.value(store.value) for store in self.job.stores]
        lines = [*emitter.outer, *emitter.inner]
        pairs = zip(self.job.stores, self.targets, values, strict=True)
        return [*lines, *(self._store(store, target, emitter, value) for store, target, value in pairs)]

    def _store(self, store: Store, target: Place, emitter: Emitter, value: Value) -> str:
        stored = ELEMENT_TYPES[store.into.dtype].stored
        at = self._element(store.into, target, constant=False)
        return f"{at} = narrow<{stored}>({emitter.as_type(value, value.type)});"

    # -- leaves ------------------------------------------------------------------------------------------------------

    def _emitter(self, known: dict[str, str] | None = None) -> Emitter:
        self.emitters += 1
        names = known or {}

        def read(node: Read) -> tuple[str, bool]:
            return (names[node.tensor] if node.tensor in names else self._read(node)), False

        def index(expr: Affine) -> tuple[str, bool]:
            return text(expr, self.ranges, self.names, self.kind), False

        def inside(bounds: tuple[Bound, ...]) -> tuple[str, bool]:
            return self._condition(bounds), False

        return Emitter(read, index, inside, self.dtypes, prefix=f"t{self.emitters}_")

    def _condition(self, bounds: Sequence[Bound]) -> str:
        return condition(bounds, self.ranges, self.names, self.kind)

    def _read(self, node: Read) -> str:
        field = self.job.fields[node.tensor]
        if isinstance(field.stored.array, np.ndarray):  # nothing is stored: every read is guarded away
            return f"widen({ELEMENT_TYPES[field.dtype].stored}{{}})"
        return f"widen({self._element(field, self.places[node], constant=True)})"

    def _element(self, field: Field, at: Place, *, constant: bool) -> str:
        """An element, or the part of one, as an lvalue."""
        array, stored = field.stored.array, ELEMENT_TYPES[field.dtype].stored
        offset = at.written(self.ranges, self.names, self.kind)
        if not array.dtype.names:
            return f"{self._parameter(array, stored, constant)}[{offset}]"
        pointer = self._parameter(array, "unsigned char", constant)
        const = "const " if constant else ""
        return f"*reinterpret_cast<{const}{stored}*>({pointer} + ({offset}) * {array.dtype.itemsize} + {field.offset})"

    def _parameter(self, array: DeviceArray, stored: str, constant: bool) -> str:
        declared = f"{'const ' if constant else ''}{stored}* p"
        for k, known in enumerate(self.arrays):
            if known.pointer == array.pointer and self.parameters[k].startswith(declared):
                return f"p{k}"
        self.arrays.append(array)
        self.parameters.append(f"{declared}{len(self.arrays) - 1}")
        return f"p{len(self.arrays) - 1}"
