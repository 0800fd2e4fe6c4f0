"""Rules that are wrong on purpose: a fault put into a rule that is right, and which proofs can see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from inspect import getdoc
from typing import Any

import pytest

from tapestry.expr import rewrite
from tapestry.program import Block, Operation, Program
from tapestry.rewrites import RULES, Change
from tapestry.rewrites.rule import Rule
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof


@dataclass(frozen=True)
class Wrong:
    find: Callable[[Program, Operation], Iterator[Change]]
    example: Callable[..., Any]
    seen_by: tuple[Proof, ...]
    algebraic: bool = False

    @property
    def rule(self) -> Rule:
        doc = getdoc(self.find) or ""
        return Rule(self.find.__name__, "wrong", doc, self.find, self.example, self.algebraic)

    def prove_seen_by(self, proof: Proof) -> None:
        """Prove the rule wrong by one proof."""
        with pytest.raises(AssertionError) as error:
            check_rule(self.rule, proofs=[proof], examples=12)
        assert self.find.__name__ in str(error.value)


def cases(wrong: list[Wrong]) -> list[Any]:
    """Each wrong rule with each proof that can see what is wrong with it, for `pytest.mark.parametrize`."""
    return [pytest.param(one, proof, id=f"{one.find.__name__}-{proof}") for one in wrong for proof in one.seen_by]


def with_leaves(op: Operation, leaf: Callable[[Any], Any]) -> Operation:
    """The operation with the leaves of its body changed."""
    assert not isinstance(op.body, Block)
    return replace(op, body=rewrite(op.body, leaf))


def spoiled(name: str, program: Program, op: Operation, fault: Callable[[Operation], Operation]) -> Iterator[Change]:
    """The changes of a rule that is right, with a fault in every operation that comes."""
    for change in RULES[name].changes(program, op):
        yield replace(change, added=tuple(map(fault, change.added)))
