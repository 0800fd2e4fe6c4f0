"""Reads what ``print(program)`` shows: `parse` gives the same program; errors say the line and the column.

program net(n=8)                           the head, with bindings
  # Doc.                                   comments right below are the docstring
  input x: f32[n=8, c=3]                   declarations
  const t: f32[n=2] = [1.0, 2.0]
  sum (n=8 | c=3) -> f32   # net.py:3      an operation: index space, type, source; its algebra in the next line
    y[n] = sum[c] x[n, c]
  repeat k in 0:9                          9 copies of what is further to the right, {2*k+1} for a number that counts
  output y: f32[n=8]
  update s = y
  pin tensor y: mesh0=n
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from .dtypes import DTYPES
from .errors import TapestryError, UsageError, close_match
from .expr import Affine
from .lines import Line, LineParser, unrolled
from .program import Dim, Operation, Pin, PinKind, Program, Role, Tensor
from .space.cuts import KINDS
from .text import digest, format_type, written_axes
from .verify import verify

_PIN = re.compile(r"\s*(pin|forbid) (op|tensor) (.*?): ?(.*?)(?: \((\w+)\))?\s*")
_LONG = re.compile(r"\s*,?\s*\.\.\. (\d+) values, sha256 ([0-9a-f]{16})\]\s*", re.ASCII)
_ROLES = tuple(role for role in get_args(Role) if role != "value")
Number = float | int | bool


def parse(text: str, *, constants: Mapping[str, Any] | None = None) -> Program:
    """The program that ``str(program)`` shows, verified.

    constants  the arrays of constants of more than 9 values, by name (`constants_of`), of which the text has a hash

    Of the program's JSON it leaves out the order in which tensors are listed (here: declared ones, then what operations
    write, in order), fields of ``meta`` other than source and doc, and blanks at the ends of the docstring's lines.
    Raises UsageError with line and column for what is malformed, and what `verify` raises, with the line, for a program
    that means nothing.
    """
    if type(text) is not str:
        raise UsageError(f"a program's text is a string, not {type(text).__name__}", hint="tp.parse(str(program))")
    reader = _Reader(constants or {})
    lines = unrolled(text)
    for line in lines:
        if line.text.strip() or line.comment is not None:
            reader.statement(line, lines)
    return reader.finished()


def constants_of(program: Program) -> dict[str, Any]:
    """The program's constants by name, as NumPy arrays that a safetensors file can hold: what `parse` asks for.

    Floats of fewer than 32 bits are given as f32, which holds each of their values.
    """
    import numpy as np

    from .dtypes import numpy_dtype

    narrow = {name: "f32" for name, of in DTYPES.items() if of.kind == "float" and of.bytes < 4}
    return {
        t.name: np.array(t.data, numpy_dtype(narrow.get(t.dtype, t.dtype))).reshape(t.shape)
        for t in program.of_role("const")
    }


@dataclass
class _Reader:
    """What has been read so far. ``lines``: the line of each tensor and operation, for errors found at the end."""

    constants: Mapping[str, Any]
    name: str = ""
    bindings: tuple[tuple[str, Any], ...] = ()
    meta: dict[str, str] = field(default_factory=dict)
    doc: list[str] = field(default_factory=list)
    declared: list[Tensor] = field(default_factory=list)
    written: list[Tensor] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    outputs: list[tuple[str, str, Line]] = field(default_factory=list)
    states: list[tuple[str, str]] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    lines: dict[str, Line] = field(default_factory=dict)

    def statement(self, line: Line, following: Iterator[Line]) -> None:
        """Read one statement; an operation takes the line below too."""
        if not line.text.strip():
            if self.name and not self.lines:
                self.doc.append(line.comment or "")
            return
        try:
            self._statement(line, following)
        except RecursionError:
            raise line.error("an index or a tuple is nested too deeply") from None

    def _statement(self, line: Line, following: Iterator[Line]) -> None:
        parser = LineParser(line)
        word = re.match(r"\s*(\w*) +(?!\()|", line.text)
        assert word is not None
        if not self.name:
            self._head(parser)
        elif word[1] in _ROLES:
            self._tensor(parser)
        elif word[1] == "output":
            self._output(parser)
        elif word[1] == "update":
            self._update(parser)
        elif word[1] in ("pin", "forbid"):
            self.pins.append(_pin(line))
        else:
            self._operation(parser, following)

    def _head(self, parser: LineParser) -> None:
        if not parser.at("program"):
            raise parser.error("'program', the head of the text")
        parser.advance()
        self.name = parser.name("the program's name")
        parser.expect("(")
        self.bindings = tuple(parser.separated(parser.named, ")"))
        parser.end()
        if parser.line.comment:
            self.meta["source"] = parser.line.comment.strip()

    def _tensor(self, parser: LineParser) -> None:
        role = cast("Role", parser.advance())
        name = parser.name("a tensor's name")
        parser.expect(":")
        dtype, axes, shape = parser.type()
        data = self._values(parser, name) if role == "const" else None
        parser.end()
        self.lines.setdefault(name, parser.line)
        self.declared.append(Tensor(name, dtype, shape, role, axes, data))

    def _values(self, parser: LineParser, name: str) -> tuple[Number, ...]:
        parser.expect("=")
        first = parser.start
        long = re.search(_LONG.pattern + r"\Z", parser.text[first:], re.ASCII)
        if long is None:
            parser.expect("[")
            return tuple(parser.separated(parser.signed, "]"))
        return self._long(parser, name, long)

    def _long(self, parser: LineParser, name: str, long: re.Match[str]) -> tuple[Number, ...]:
        """``[1.0, 2.0, ... 300 values, sha256 0123456789abcdef]``: the values given, if they are these."""
        first = parser.start
        shown = LineParser(Line(parser.line.number, parser.text[: first + long.start()] + "]", None, parser.line.copy))
        while shown.start < first:
            shown.advance()
        shown.expect("[")
        beginning = shown.separated(shown.signed, "]")
        parser.kind, parser.token = "", ""
        given = self.constants.get(name)
        if given is None:
            hint = "tp.parse(text, constants=...), the arrays that tp.constants_of(program) gave, by name"
            raise parser.line.error(f"the values of {name} are not in the text", first, hint)
        values = tuple(given.ravel().tolist()) if hasattr(given, "ravel") else ()
        if not values or any(type(value) not in (bool, int, float) for value in values):
            raise parser.line.error(f"what is given for {name} is not an array of numbers", first)
        found, text = f"{len(values)} values, sha256 {digest(values)}", f"{long[1]} values, sha256 {long[2]}"
        if found != text or digest(beginning) != digest(values[: len(beginning)]):
            raise parser.line.error(f"the values given for {name} are others", first, says=text, given=found)
        return values

    def _output(self, parser: LineParser) -> None:
        parser.advance()
        start, name = parser.start, parser.name("a tensor's name")
        parser.expect(":")
        dtype, axes, shape = parser.type()
        parser.end()
        shown = format_type(Tensor(name, dtype, shape, "value", axes))
        self.outputs.append((name, shown, parser.line))
        if name not in self.lines and name not in {t.name for t in self.written}:
            known = [t.name for t in (*self.declared, *self.written)]
            raise parser.line.error(f"there is no tensor {name}", start, close_match(name, known))

    def _update(self, parser: LineParser) -> None:
        parser.advance()
        old = parser.name("a state's name")
        parser.expect("=")
        self.states.append((old, parser.name("a tensor's name")))
        parser.end()

    def _operation(self, parser: LineParser, following: Iterator[Line]) -> None:
        """The header, and the algebra in the line below it."""
        line = parser.line
        name = parser.name("a declaration, an operation, 'output', 'update' or 'pin'")
        parser.expect("(")
        dims, folded = parser.space()
        parser.expect("->")
        dtype_start = re.search(r"->\s*\w+\s*\[", line.text)
        declared = parser.type() if dtype_start else None
        dtype = declared[0] if declared else parser.dtype()
        parser.end()
        below = next(following, None)
        if below is None or not below.text.strip():
            raise line.error(f"the operation {name} has no algebra", hint="y[n] = x[n] + 1, in the line below")
        source, group = _origin(line.comment or "")
        op = _algebra(LineParser(below), name, dims, folded, group, source)
        written = written_axes(op)
        if declared is None and written is None:
            hint = f"say them: -> {dtype}[n=8, ...]"
            raise line.error(f"the axes of {op.output} are not dimensions of {name}", hint=hint)
        axes = tuple(zip(*declared[1:], strict=True)) if declared else written or ()
        self.lines.setdefault(name, line)
        self.written.append(
            Tensor(op.output, dtype, tuple(n for _, n in axes), "value", tuple(axis for axis, _ in axes))
        )
        self.operations.append(op)

    def finished(self) -> Program:
        """The program, verified. What `verify` finds gets the line of the operation or tensor that it names."""
        if not self.name:
            raise Line(1, "").error("there is no program", hint="program net(n=8), and what it consists of")
        tensors = {t.name: t for t in (*self.declared, *self.written)}
        for name, shown, line in self.outputs:
            if (actual := format_type(tensors[name])) != shown:
                raise line.error(f"the output {name} is of another type", output=shown, tensor=actual)
        meta = self.meta | ({"doc": "\n".join(self.doc)} if self.doc else {})
        outputs = tuple(name for name, _, _ in self.outputs)
        program = Program(
            self.name, (*self.declared, *self.written), tuple(self.operations), outputs, tuple(self.states),
            tuple(self.pins), self.bindings, meta,
        )  # fmt: skip
        try:
            verify(program)
        except TapestryError as error:
            named = re.match(r"(?:tensor )?([\w.]+)", error.where or error.what)
            if named and named[1] in self.lines:
                place = f"line {self.lines[named[1]].number}"
                error.where = f"{place}: {error.where}" if error.where else place
            raise
        return program


def _algebra(
    parser: LineParser, name: str, dims: tuple[Dim, ...], folded: list[str], group: str, source: str
) -> Operation:
    """``y[n] = sum[c] x[n, c]  where n - c < 1``."""
    output = parser.name("the tensor that the operation writes")
    parser.expect("[")
    write: list[Affine] = parser.separated(parser.index, "]")
    parser.expect("=")
    monoid, reduce_dims = parser.fold(folded)
    body = parser.body()
    where = parser.where()
    parser.end()
    return Operation(name, dims, output, tuple(write), body, reduce_dims, monoid, where, group, source)


def _origin(comment: str) -> tuple[str, str]:
    """Source and group of ``net.py:3, in softmax``.

    >>> _origin("net.py:3, in softmax"), _origin("in softmax"), _origin("net.py:3")
    (('net.py:3', 'softmax'), ('', 'softmax'), ('net.py:3', ''))
    """
    found = re.fullmatch(r"(?:(.*), )?in (\S+)", comment)
    return (found[1] or "", found[2]) if found else (comment, "")


def _pin(line: Line) -> Pin:
    """``pin tensor y: mesh0=n, mesh1=replicated (cyclic)``, or ``forbid`` and the same."""
    found = _PIN.fullmatch(line.text)
    cuts = [cut.partition("=") for cut in found[4].split(", ") if cut] if found else []
    if found is None or not all(mesh and equals and axis for mesh, equals, axis in cuts):
        hint = "pin tensor y: mesh0=n, mesh1=replicated"
        raise line.error("not a pin", len(line.text) - len(line.text.lstrip()), hint)
    if found[5] and found[5] not in KINDS:
        raise line.error(f"{found[5]!r} is no kind of cut", found.start(5), close_match(found[5], list(KINDS)))
    pairs = tuple((mesh, None if axis == "replicated" else axis) for mesh, _, axis in cuts)
    kind = cast("PinKind", found[5] or "block")
    return Pin("op" if found[2] == "op" else "tensor", found[3], pairs, kind, found[1] == "forbid")
