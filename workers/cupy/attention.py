"""The attention block: softmax statistics (o, l, m) of rows of queries over keys, one block of threads a row.

Keys are taken a tile at a time: each thread computes the score of a key, then columns of what the values add up to.
Formulas: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

import hashlib

import numpy as np

from ...dtypes import name_of
from ...expr import Affine, Read
from ...kernels.elementwise.indices import condition, text
from ...kernels.elementwise.loop import MAX_32
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from ...program import Block
from ..device import Evaluation, Stored
from .arrays import DeviceArray
from .cells import Cell, cells_of
from .jobs import Renaming
from .limits import Limits, limits
from .machine import Unit
from .places import Place, place
from .writing import HEADER, Written, places_of

THREADS = 128


def written_attention(task: Evaluation) -> list[Written]:
    """The kernels of an attention task: one for each box of its points."""
    return [_Attention(task, cell).written() for cell in cells_of(task.op, task.points)]


class _Attention:
    def __init__(self, task: Evaluation, cell: Cell) -> None:
        op = task.op
        assert isinstance(op.body, Block)
        column, key = op.dims[-1].name, op.dims[-2].name
        self.task, self.width = task, op.extents[column] - 2
        self.scale = float(op.body.attrs["scale"])
        self.rows = Renaming("d", {name: run for name, run in cell.kept.items() if name != column})
        self.inner = [Renaming("c", {column: range(self.width + 2)}, self._keys(key, fold[key])) for fold in cell.folds]
        self.keys = [self._keys(key, fold[key]) for fold in cell.folds]
        self.counts = [len(fold[key]) for fold in cell.folds]
        self.out = Renaming("c", {column: range(self.width + 2)}, self.rows)
        self.wide = "double" if name_of(task.write.array.dtype) == "f64" else "float"
        self.target = place([self.out.index(row) for row in op.write], task.write, self.out.ranges)
        self.reads = [[self._place(read, names) for read in op.body.reads] for names in self.inner]
        self.arrays: list[DeviceArray] = []
        self.kind = "Int" if self._large() else "int"
        self.names = {name: name for names in (*self.inner, self.out) for name in names.ranges}

    def _keys(self, key: str, run: range) -> Renaming:
        return Renaming("s", {key: run}, self.rows)

    def _place(self, read: Read, names: Renaming) -> Place:
        return place([names.index(row) for row in read.index], self.task.reads[read.tensor], names.ranges)

    def _large(self) -> bool:
        stored = [self.task.write, *self.task.reads.values()]
        return any(s.array.size > MAX_32 for s in stored) or self._points() * THREADS > MAX_32

    def _points(self) -> int:
        return int(np.prod([n for _, n in self.rows.dims], dtype=np.int64))

    def written(self) -> Written:
        """One block a row."""
        parameters = self._parameters()
        body = [
            "follow();",
            "const unsigned lane = threadIdx.x;",
            *places_of(self.rows.dims, self.kind, "blockIdx.x"),
            f"__shared__ {self.wide} query[{self.width}];",
            f"__shared__ {self.wide} weight[{THREADS}];",
            f"__shared__ {self.wide} fold[{THREADS}];",
            f"{self.wide} o[{self._columns()}] = {{}}, l = 0, m = -infinity();",
        ]
        for k in range(len(self.counts)):
            body += self._fold(k)
        body += self._store()
        head = f'{HEADER}extern "C" __global__ void __launch_bounds__({THREADS})\nNAME({parameters}) {{\n'
        source = f"{head}{indented(body, 1)}}}\n\n}}  // namespace tapestry\n"
        entry = f"attention_{hashlib.sha256(f'{self._points()} {source}'.encode()).hexdigest()[:16]}"
        unit = Unit(source.replace("NAME(", f"{entry}(", 1), entry, self._points(), THREADS, exact=False, follows=True)
        return Written(unit, tuple(self.arrays))

    def _columns(self) -> int:
        """Columns that a thread adds up."""
        return -(-self.width // THREADS)

    def _parameters(self) -> str:
        assert isinstance(self.task.op.body, Block)
        self.pointers, declared = [], []
        for read in self.task.op.body.reads:
            stored = self.task.reads[read.tensor]
            if isinstance(stored.array, np.ndarray):
                self.pointers.append("")
                continue
            self.pointers.append(f"p{len(self.arrays)}")
            declared.append(f"const {self._type(stored)}* p{len(self.arrays)}")
            self.arrays.append(stored.array)
        self.arrays.append(self.task.write.array)
        return ", ".join([*declared, f"{self._type(self.task.write)}* out"])

    def _type(self, stored: Stored) -> str:
        return ELEMENT_TYPES[name_of(stored.array.dtype)].stored

    def _load(self, k: int, which: int, column: str) -> str:
        """An element of q, k or v at the key and column at hand."""
        if not self.pointers[which]:
            return f"{self.wide}(0)"
        names = {**self.names, **({"c0": column} if self.width + 2 > 1 else {})}
        at = self.reads[k][which].written(self.inner[k].ranges, names, self.kind)
        return f"{self.wide}(widen({self.pointers[which]}[{at}]))"

    def _fold(self, k: int) -> list[str]:
        """The keys of one run."""
        count, keys = self.counts[k], self.keys[k]
        where = keys.bounds(self.task.op.where)
        if where is None:
            return []
        dim = keys.dims[-1][0] if count > 1 else None
        declared = f"const {self.kind} {dim} = {self.kind}(first + lane);" if dim else ""
        visible = condition(where, keys.ranges, self.names, self.kind)
        score = [
            f"{self.wide} dot = 0;",
            f"for (int c = 0; c < {self.width}; ++c) dot += query[c] * {self._load(k, 1, 'c')};",
            f"score = dot * {self.wide}({self.scale!r});",
        ]
        at = f"const {self.kind} {dim} = {self.kind}(first + j);" if dim else ""
        adding = [
            f"for (int j = 0; j < {THREADS} && first + j < {count}; ++j) {{",
            f"    const {self.wide} w = weight[j];",
            "    if (w == 0) continue;",
            f"    {at}",
            f"    for (int e = 0; e < {self._columns()}; ++e) {{",
            f"        const int c = int(lane) + e * {THREADS};",
            f"        if (c < {self.width}) o[e] += w * {self._load(k, 2, 'c')};",
            "    }",
            "}",
        ]
        tile = [
            f"{self.wide} score = -infinity();",
            f"if (first + int(lane) < {count}) {{",
            f"    {declared}",
            f"    if ({visible}) {{",
            *(f"        {line}" for line in score),
            "    }",
            "}",
            *self._reduced("score", "maximum(fold[lane], fold[lane + d])"),
            f"const {self.wide} larger = maximum(m, fold[0]);",
            f"const {self.wide} finite = larger == -infinity() ? {self.wide}(0) : larger;",
            f"const {self.wide} before = exponential(m - finite);",
            f"const {self.wide} mine = score == -infinity() ? {self.wide}(0) : exponential(score - finite);",
            "__syncthreads();",
            "weight[lane] = mine;",
            *self._reduced("mine", "fold[lane] + fold[lane + d]"),
            "l = l * before + fold[0];",
            "m = larger;",
            f"for (int e = 0; e < {self._columns()}; ++e) o[e] *= before;",
            *adding,
            "__syncthreads();",
        ]
        query = f"for (int c = int(lane); c < {self.width}; c += {THREADS}) query[c] = {self._load(k, 0, 'c')};"

        def text_of(expr: Affine) -> str:
            return text(expr, keys.ranges, self.names, self.kind)

        ends = limits(where, dim, count, (), text_of) if dim else Limits("", count, (), ())
        head = f"for (int first = int({ends.first}); first < int({ends.end}); first += {THREADS}) {{"
        loop = ["{", *ends.declared(self.kind), head, *(f"    {line}" for line in tile), "}", "}"]
        return ["__syncthreads();", query, "__syncthreads();", *loop]

    def _reduced(self, value: str, combined: str) -> list[str]:
        return [
            f"fold[lane] = {value};",
            "__syncthreads();",
            f"for (unsigned d = {THREADS // 2}u; d > 0; d /= 2) {{",
            f"    if (lane < d) fold[lane] = {combined};",
            "    __syncthreads();",
            "}",
        ]

    def _store(self) -> list[str]:
        stored = self._type(self.task.write)
        at = self.target.written(self.out.ranges, {**self.names, "c0": "c"}, self.kind)
        width = self.width
        return [
            f"for (int e = 0; e < {self._columns()}; ++e) {{",
            f"    const int c = int(lane) + e * {THREADS};",
            f"    if (c < {width}) out[{at}] = narrow<{stored}>(o[e]);",
            "}",
            f"for (int c = {width} + int(lane); c < {width + 2}; c += {THREADS}) "
            f"out[{at}] = narrow<{stored}>(c == {width} ? l : m);",
        ]
