"""The lines of a program's text, repeated ones written out, and a parser of one line that says where it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from .blocks import BLOCKS
from .dtypes import DTYPES
from .errors import UsageError, close_match
from .expr import MONOIDS, Bound, Expr, Read
from .parse import Parser
from .program import Block, Dim

_MOST = 1_000_000  # lines of a text whose repeats are written out
_COUNTED = re.compile(r"\{(?:(?:(-?\d+)\*)?k(?:\+(\d+))?)\}", re.ASCII)
_COMMENT = re.compile(r"((?:[^#'\"]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")*)#(.*)")


@dataclass(frozen=True)
class Line:
    """One line without its comment; ``copy`` says which copy of a repeated line it is."""

    number: int
    text: str
    comment: str | None = None
    copy: str = ""

    @staticmethod
    def of(number: int, text: str, copy: str = "") -> Line:
        found = _COMMENT.fullmatch(text)
        return Line(number, found[1], found[2].removeprefix(" "), copy) if found else Line(number, text, None, copy)

    def error(self, what: str, column: int = 0, hint: str | None = None, **sides: object) -> UsageError:
        """An error at a column of this line, counted from 0."""
        marked = f"{self.text[:column].strip()[-60:]} >>> {self.text[column:][:60]}".strip()
        where = f"line {self.number}, column {column + 1}" + (f" ({self.copy})" if self.copy else "")
        return UsageError(what, where=where, sides={"text": marked, **sides}, hint=hint)


def unrolled(text: str) -> Iterator[Line]:
    """Every line, those below a ``repeat`` as often as it says."""
    raw = text.split("\n")
    at = 0
    while at < len(raw):
        head = re.fullmatch(r"  repeat k in 0:(\d+)\s*", raw[at], re.ASCII)
        at += 1
        if head is None:
            yield Line.of(at, raw[at - 1])
            continue
        start = at
        while at < len(raw) and raw[at].startswith("    "):
            at += 1
        if len(head[1]) > 9 or int(head[1]) * (at - start) > _MOST:
            raise Line(start, raw[start - 1]).error(f"more than {_MOST} lines are repeated", 2)
        for k in range(int(head[1])):
            for n in range(start, at):
                yield Line.of(n + 1, _copy(raw[n][2:], k), f"k={k}")


def _copy(line: str, k: int) -> str:
    """One copy of a repeated line.

    >>> _copy("w{k+1}: f32[n={2*k}]", 3)
    'w4: f32[n=6]'
    """
    return _COUNTED.sub(lambda m: str(int(m[1] or 1) * k + int(m[2] or 0)), line)


class LineParser(Parser):
    """A parser of one line, whose errors say where in the text it stands."""

    def __init__(self, line: Line) -> None:
        self.line = line
        super().__init__(line.text)

    def error(self, expected: str) -> UsageError:
        return self.line.error(f"expected {expected}", self.start)

    def end(self) -> None:
        if self.kind:
            raise self.error("the end of the line")

    def name(self, what: str) -> str:
        """A name, or a string in quotes that stands for one."""
        if self.kind == "string":
            return cast("str", self.string())
        if self.kind not in ("name", "number"):
            raise self.error(what)
        return self.advance()

    def string(self) -> Any:
        return ast.literal_eval(self.advance())

    def extent(self) -> int:
        if self.kind != "number" or not self.token.isdigit() or len(self.token) > 19:
            raise self.error("an extent (an integer from 0)")
        return int(self.advance())

    def literal(self) -> Any:
        """A value of a binding or an attribute: a number, a string, a word, or a tuple of these."""
        if self.kind == "string":
            return self.string()
        if self.at("None"):
            self.advance()
            return None
        if not self.at("("):
            return self.signed()
        self.advance()
        found = []
        while not self.at(")"):
            found.append(self.literal())
            if not self.at(")"):
                self.expect(",")
        self.advance()
        return tuple(found)

    def named(self) -> tuple[str, Any]:
        """``name=value``."""
        name = self.name("a name")
        self.expect("=")
        return name, self.literal()

    def type(self) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """``f32[n=8, k=64]``: dtype, axes, shape."""
        dtype = self.dtype()
        self.expect("[")
        axes = self.separated(self.axis, "]")
        return dtype, tuple(name for name, _ in axes), tuple(extent for _, extent in axes)

    def dtype(self) -> str:
        if self.token not in DTYPES:
            raise self.line.error(f"{self.token!r} is no dtype", self.start, close_match(self.token, list(DTYPES)))
        return self.advance()

    def axis(self) -> tuple[str, int]:
        name = self.name("an axis")
        self.expect("=")
        return name, self.extent()

    def space(self) -> tuple[tuple[Dim, ...], list[str]]:
        """``n=8 k=4! | c=3)``: the dimensions, and which are folded."""
        dims, folded, all_folded = [], list[str](), False
        while not self.at(")"):
            bar = self.at("|")
            if bar:
                after = self.text[self.start + 1 : self.start + 2]
                self.advance()
                all_folded |= after.isspace()
            name, extent = self.axis()
            cut = not self.at("!")
            if not cut:
                self.advance()
            dims.append(Dim(name, extent, cut))
            if bar or all_folded:
                folded.append(name)
        self.advance()
        return tuple(dims), folded

    def fold(self, folded: list[str]) -> tuple[str | None, tuple[str, ...]]:
        """``sum[c]``, where dimensions are folded."""
        if not folded:
            return None, ()
        if self.names_block:
            return None, tuple(folded)
        if self.token not in MONOIDS:
            hint = close_match(self.token, list(MONOIDS))
            raise self.line.error(f"{self.token!r} is no monoid", self.start, hint, folds=" ".join(folded))
        start, monoid = self.start, self.advance()
        self.expect("[")
        dims = tuple(self.separated(lambda: self.name("a dimension"), "]"))
        if sorted(dims) != sorted(folded):
            hint = "the dimensions behind the bar are those that are folded"
            raise self.line.error("another fold than above", start, hint, above=" ".join(folded), here=" ".join(dims))
        return monoid, dims

    @property
    def names_block(self) -> bool:
        """Whether a call of a block kernel stands here."""
        called = self.kind == "name" and self.text[self.position : self.position + 1] == "("
        return called and self.token in BLOCKS

    def body(self) -> Expr | Block:
        if not self.names_block:
            return self.expression()
        kernel = self.advance()
        self.expect("(")
        reads: list[Read] = []
        attributes: list[tuple[str, Any]] = []
        while not self.at(")"):
            if reads or attributes:
                self.expect(",")
            if attributes or re.match(r"\w+=(?!=)", self.text[self.start :]):
                attributes.append(self.named())
            else:
                reads.append(self.read())
        self.advance()
        return Block(kernel, tuple(reads), tuple(attributes))

    def read(self) -> Read:
        start = self.start
        found = self.expression()
        if not isinstance(found, Read):
            raise self.line.error("a block operation reads tensors, and nothing else stands here", start)
        return found

    def where(self) -> tuple[Bound, ...]:
        if not self.at("where"):
            return ()
        self.advance()
        found = [self.bound()]
        while self.at("and"):
            self.advance()
            found.append(self.bound())
        return tuple(found)
