"""A rewrite rule as data: its name, its family, what it does in two lines of algebra, and where it applies.

A rule is a function that is asked at one operation of a program and yields each `Change` that it can make there:

    @rule(example=doubled)
    def twice_the_same(program: Program, op: Operation) -> Iterator[Change]:
        '''Write x + x as a product.

        before:
            y[i] = x[i] + x[i]
        after:
            y[i] = x[i] * 2
        '''

The lines under ``before`` and ``after`` are what the operations of the ``example`` that change print as (lines that are
indented further go on with the one before): they are proved like the rest, by `tapestry.testing.check_rule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError, close_match
from ..program import Operation, Program, Tensor

Finder = Callable[..., Iterator["Change"]]


@dataclass(frozen=True)
class Change:
    """What a rule does at one place.

    removed   the operations that go, by name; a tensor that nobody writes any more goes with its operation
    added     the operations that come, where the last one went
    changed   operations that stay where they are and read or compute something else, as they then are
    tensors   the tensors that these write, where they are new or change
    instead   pairs of tensors: wherever the first was read, the second is
    made_of   the operations that the added ones, or what is read instead, came from; the removed ones if not given
    """

    removed: tuple[str, ...]
    added: tuple[Operation, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    made_of: tuple[str, ...] = ()
    changed: tuple[Operation, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        return self.made_of or self.removed

    @property
    def made(self) -> tuple[str, ...]:
        """The names of the operations that come."""
        return tuple(op.name for op in self.added)


@dataclass(frozen=True)
class Rule:
    """One rewrite.

    find         asked with a program and one of its operations; yields the changes it can make there
    example      a function of the language, its extents integer keywords, in which the rule applies; bound at other
                 extents it is what the proofs run on
    algebraic    whether the values are computed from the same elements in another way (other roundings, other counts of
                 reads) rather than by the same arithmetic in another place
    once         whether it is not asked again at what it made, as a split that could go on and on
    options      settings of ``find``
    """

    name: str
    family: str
    doc: str
    find: Finder
    example: Callable[..., Any]
    algebraic: bool = False
    once: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return self.doc.partition("\n")[0]

    @property
    def before(self) -> tuple[str, ...]:
        """The lines of algebra that it replaces."""
        return self._section("before:")

    @property
    def after(self) -> tuple[str, ...]:
        """The lines of algebra that it puts in their place."""
        return self._section("after:")

    def _section(self, title: str) -> tuple[str, ...]:
        lines = self.doc.splitlines()
        start = lines.index(title) + 1 if title in lines else len(lines)
        found: list[str] = []
        for line in lines[start:]:
            indent = len(line) - len(line.lstrip())
            if not indent:
                break
            if indent > len(lines[start]) - len(lines[start].lstrip()):  # goes on with the line before
                found[-1] += f" {line.strip()}"
            else:
                found.append(line.strip())
        return tuple(found)

    def with_options(self, **options: Any) -> Rule:
        """The same rule with other settings. UsageError for one that it does not have, or a value of another type."""
        known = dict(list(inspect.signature(self.find).parameters.items())[2:])
        for name, value in options.items():
            if name not in known:
                raise UsageError(f"the rule {self.name} has no setting {name!r}", hint=close_match(name, list(known)))
            default = known[name].default
            if default is not None and type(value) is not type(default):
                sides = {"given": repr(value), "wanted": type(default).__name__}
                raise UsageError(f"the setting {name} of {self.name} is of another type", sides=sides)
        return replace(self, options={**self.options, **options})

    def changes(self, program: Program, op: Operation) -> Iterator[Change]:
        """Each change that it can make at an operation."""
        yield from self.find(program, op, **self.options)


RULES: dict[str, Rule] = {}
"""Every rule that is there, by name, family after family."""


def rule(*, example: Callable[..., Any], algebraic: bool = False, once: bool = False) -> Callable[[Finder], Rule]:
    """Make a rule of a function of a program and an operation, and add it to `RULES`; see `Rule`.

    Its name is the function's, its family the name of the module. UsageError for a name that is taken by another
    module, or a docstring that does not show the rule.
    """

    def made(find: Finder) -> Rule:
        family = find.__module__.rpartition(".")[2]
        found = Rule(find.__name__, family, inspect.getdoc(find) or "", find, example, algebraic, once)
        if not found.before:
            hint = "its docstring shows the algebra: lines under before: and after:"
            raise UsageError("a rule says what it does", where=f"rule {found.name}", hint=hint)
        other = RULES.get(found.name)
        if other is not None and other.find.__module__ != find.__module__:
            raise UsageError(f"there is a rule {found.name} already", where=other.find.__module__)
        RULES[found.name] = found
        return found

    return made


def rule_named(name: str) -> Rule:
    """A rule of the registry. UsageError for a name that is not there."""
    found = RULES.get(name)
    if found is None:
        raise UsageError(f"there is no rule {name!r}", hint=close_match(name, list(RULES)))
    return found
