"""Reads the algebra that `tapestry.notation` writes; whatever is malformed is a UsageError that shows where."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar, cast

from .dtypes import DTYPES
from .errors import UsageError
from .expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read, Table
from .expr.conditions import any_of, none_of, truth
from .notation import BINARY, COMPARE, POWER, UNARY

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[-+]?\d+)?|\d+)|(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<symbol>\*\*|//|<<|>>|<=|>=|==|!=|->|[-+*/%&|^~<>()\[\],=:!])"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))",
    re.ASCII,
)
_FUNCTION_OF = {f.symbol: f.name for f in FUNCTIONS.values() if f.symbol and f.arity == 2}
_WORDS: dict[str, float | bool] = {"True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
T = TypeVar("T")
Rule = Generator["Rule", Expr, Expr]


def parse_expr(text: str) -> Expr:
    """A scalar expression. UsageError with the position where the text is not one.

    >>> str(parse_expr("x[n, 2*p + 1] * 0.5"))
    'multiply(x[n, 2*p + 1], 0.5)'
    """
    return _whole(text, lambda parser: parser.expression())


def parse_read(text: str) -> Read:
    """One read, guarded or not."""
    expr = parse_expr(text)
    if not isinstance(expr, Read):
        raise UsageError(f"{text!r} is not a read of a tensor", hint="x[n, k], or (x[n, k] if 0 <= n < 4 else 0.0)")
    return expr


def parse_bound(text: str) -> Bound:
    """One condition on an index expression."""
    return _whole(text, lambda parser: parser.bound())


def _whole(text: str, rule: Callable[[Parser], T]) -> T:
    parser = Parser(text)
    try:
        result = rule(parser)
    except RecursionError:
        raise UsageError("an index is nested too deeply", sides={"text": text[:80]}) from None
    if parser.kind:
        raise parser.error("the end")
    return result


def _run(rule: Rule) -> Expr:
    """What a rule finds. A rule yields each rule that it calls for, so that depth costs memory, not Python's stack."""
    waiting = [rule]
    found: Expr | None = None
    while waiting:
        try:
            called = next(waiting[-1]) if found is None else waiting[-1].send(found)
        except StopIteration as done:
            waiting.pop()
            found = cast("Expr", done.value)
        else:
            waiting.append(called)
            found = None
    assert found is not None
    return found


class Parser:
    """Descent over one text, each rule of scalar expressions a generator; ``kind``, ``token``: the next token's."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Consume the current token and look at the next."""
        taken = self.token
        match = _TOKEN.match(self.text, self.position)
        self.start = self.position
        if match is None:
            if self.text[self.position :].strip():
                raise self.error("a name, a number or an operator")
            self.kind, self.token = "", ""
            return taken
        self.kind = match.lastgroup or ""
        self.token = match.group(self.kind)
        self.start, self.position = match.start(self.kind), match.end()
        return taken

    def error(self, expected: str) -> UsageError:
        marked = f"{self.text[: self.start][-60:]} >>> {self.text[self.start :][:60]}"
        return UsageError(f"expected {expected} at position {self.start}", sides={"text": marked})

    def at(self, *tokens: str) -> bool:
        return self.kind != "number" and self.token in tokens

    def expect(self, token: str) -> None:
        if not self.at(token):
            raise self.error(repr(token))
        self.advance()

    def separated(self, item: Callable[[], T], end: str) -> list[T]:
        """Items between commas, up to the closing token."""
        found: list[T] = []
        while not self.at(end):
            if found:
                self.expect(",")
            found.append(item())
        self.advance()
        return found

    # Scalar expressions

    def expression(self) -> Expr:
        """A whole scalar expression, however deep."""
        return _run(self.expr(COMPARE))

    def expr(self, level: int) -> Rule:
        """An expression of operators that bind at least as tightly as ``level``."""
        left = yield self.unary()
        while self.kind == "symbol" and BINARY.get(self.token, 0) >= level:
            symbol = self.advance()
            own = BINARY[symbol]
            right = yield self.expr(own if own == POWER else own + 1)
            left = Call(_FUNCTION_OF[symbol], (left, right))
            if own == COMPARE and self.kind == "symbol" and BINARY.get(self.token) == COMPARE:
                raise self.error("no second comparison (use parentheses)")
        return left

    def unary(self) -> Rule:
        if self.at("-"):
            self.advance()
            if self.kind == "number" or self.at("inf", "nan"):
                value = self.number()
                return Const(-value)
            return Call("negative", ((yield self.expr(UNARY)),))
        if self.at("~"):
            self.advance()
            return Call("logical_not", ((yield self.expr(UNARY)),))
        return (yield self.atom())

    def number(self) -> float | int | bool:
        """A number without its sign, or one of the words."""
        if self.at(*_WORDS):
            return _WORDS[self.advance()]
        if self.kind != "number":
            raise self.error("a number")
        text = self.advance()
        return int(text) if text.isdigit() else float(text)

    def signed(self) -> float | int | bool:
        if self.at("-"):
            self.advance()
            return -self.number()
        return self.number()

    def atom(self) -> Rule:
        if self.kind == "number":
            return Const(self.number())
        if self.at("("):
            self.advance()
            return (yield self.parenthesised())
        if self.at("["):
            self.advance()
            return Inside(self.bounds("]"))
        if self.kind != "name":
            raise self.error("a value")
        name = self.advance()
        if self.at("["):
            self.advance()
            return Read(name, tuple(self.separated(self.index, "]")))
        if name in _WORDS:
            return Const(_WORDS[name])
        self.expect("(")
        return (yield self.call(name))

    def parenthesised(self) -> Rule:
        """The rest of ``(e)`` or of ``(read if bounds else fill)``."""
        inner = yield self.expr(COMPARE)
        if not self.at("if"):
            self.expect(")")
            return inner
        if not isinstance(inner, Read) or inner.guard:
            raise self.error("a plain read before 'if'")
        self.advance()
        guard = self.bounds("else")
        fill = self.signed()
        self.expect(")")
        return Read(inner.tensor, inner.index, guard, fill)

    def call(self, name: str) -> Rule:
        if name == "index":
            index = self.index()
            self.expect(")")
            return IndexValue(index)
        args: list[Expr] = []
        while not self.at(")"):
            if args:
                self.expect(",")
            args.append((yield self.expr(COMPARE)))
        self.advance()
        if name in DTYPES and len(args) == 1:
            return Cast(name, args[0])
        if name not in FUNCTIONS or len(args) != FUNCTIONS[name].arity:
            raise self.error(f"a known function instead of {name} with {len(args)} arguments")
        return Call(name, tuple(args))

    # Index expressions

    def bounds(self, end: str) -> tuple[Bound, ...]:
        found = () if self.at(end) else self.conjunction()
        self.expect(end)
        return found

    def conjunction(self) -> tuple[Bound, ...]:
        """Conditions with ``and`` between them."""
        found = [self.bound()]
        while self.at("and"):
            self.advance()
            found.append(self.bound())
        return tuple(found)

    def alternatives(self) -> Bound | None:
        """``(A or B)`` as one condition; None, nothing consumed, where the parenthesis is an index expression's."""
        before = self.position, self.start, self.kind, self.token
        try:
            self.advance()
            found = [self.conjunction()]
            self.expect("or")
            found.append(self.conjunction())
            while self.at("or"):
                self.advance()
                found.append(self.conjunction())
            self.expect(")")
            [bound] = any_of(found)
        except (UsageError, ValueError):
            self.position, self.start, self.kind, self.token = before
            return None
        return bound

    def bound(self) -> Bound:
        either = self.alternatives() if self.at("(") else None
        if either is not None:
            return either
        return self.comparison(self.index())

    def comparison(self, first: Affine) -> Bound:
        """The condition that begins with an index expression."""
        if self.at("!="):
            self.advance()
            value = self.constant(self.index())
            [differs] = none_of([Bound(first, value, value + 1)])
            return differs
        if self.at("<"):
            self.advance()
            return Bound(first, None, self.constant(self.index()))
        if not self.at("<="):
            return Bound(first)
        self.advance()
        lo, middle = self.constant(first), self.index()
        if not self.at("<"):
            return Bound(middle, lo)
        self.advance()
        return Bound(middle, lo, self.constant(self.index()))

    def constant(self, index: Affine) -> int:
        if index.terms:
            raise self.error("an integer on that side of the condition")
        return index.const

    def index(self) -> Affine:
        total = self.product()
        while self.at("+", "-"):
            sign = 1 if self.advance() == "+" else -1
            total += self.product() * sign
        return total

    def product(self) -> Affine:
        left = self.factor()
        while self.at("*", "//", "%"):
            symbol = self.advance()
            right = self.factor()
            if symbol == "*" and not right.terms:
                left = left * right.const
            elif symbol == "*" and not left.terms:
                left = right * left.const
            elif symbol != "*" and not right.terms and right.const >= 1:
                left = left // right.const if symbol == "//" else left % right.const
            else:
                raise self.error("a quasi-affine index (products with integers, division by positive integers)")
        return left

    def factor(self) -> Affine:
        if self.at("-"):
            self.advance()
            return -self.factor()
        if self.at("("):
            self.advance()
            inner = self.index()
            self.expect(")")
            return inner
        if self.at("["):
            self.advance()
            return self.bracketed()
        if self.kind == "number" and self.token.isdigit():
            return Affine.of(int(self.advance()))
        if self.kind == "name" and self.token.isidentifier():
            return Affine.dim(self.advance())
        raise self.error("an index")

    def bracketed(self) -> Affine:
        """The rest of ``[3, 5, 0*4][b]``, a table, or of ``[A and B]``, 1 where that holds and else 0."""
        values = self.values()
        if values is None:
            return truth(self.bounds("]"))
        self.expect("[")
        inner = self.index()
        self.expect("]")
        return Table(inner, values).over(inner)

    def values(self) -> tuple[int, ...] | None:
        """The numbers of a table and the bracket behind them; None, nothing consumed, where something else stands."""
        before = self.position, self.start, self.kind, self.token
        found: list[int] = []
        while not found or self.at(","):
            if found:
                self.advance()
            sign = -1 if self.at("-") and self.advance() else 1
            if self.kind != "number" or not self.token.isdigit():
                break
            value, count = sign * int(self.advance()), 1
            if self.at("*"):
                self.advance()
                count = int(self.advance()) if self.token.isdigit() else 0
            found += [value] * count
        if found and self.at("]"):
            self.advance()
            return tuple(found)
        self.position, self.start, self.kind, self.token = before
        return None
