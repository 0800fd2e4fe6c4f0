"""Rules applied to programs: where they match, the program they make, and which operations came from which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

from ..errors import UsageError, close_match
from ..notation import format_operation
from ..program import Operation, Program, Tensor
from ..verify import place, verify
from .bodies import reading
from .forms import kept, known_operation, known_program, pinned
from .rule import Change, Rule, rule_named

Wanted = Callable[[Program, "Match"], bool]
MOST_ROUNDS = 1000  # of one rule over a program; beyond, it undoes what it did


@dataclass(frozen=True)
class Match:
    """A place where a rule applies, and what it would do."""

    rule: Rule
    op: Operation
    change: Change

    def __str__(self) -> str:
        return f"{self.rule.name} at {place(self.op)}"


@dataclass(frozen=True)
class Step:
    """One change that was made: the rule, the operation it was asked at, what came and what that was made of."""

    rule: str
    at: str
    made: tuple[str, ...]
    of: tuple[str, ...]

    def __str__(self) -> str:
        """One line.

        >>> print(Step("fuse_pointwise", "gelu", ("gelu",), ("add", "gelu")))
        fuse_pointwise at gelu: gelu from add, gelu
        """
        return f"{self.rule} at {self.at}: {', '.join(self.made) or 'nothing'} from {', '.join(self.of)}"


@dataclass(frozen=True)
class Rewritten:
    """A program, what rules made of it, and each change in order."""

    before: Program
    program: Program
    steps: tuple[Step, ...] = ()

    @cached_property
    def origins(self) -> Mapping[str, tuple[str, ...]]:
        """Operation of the new program -> the operations of the old one that it computes, in their order."""
        order = {op.name: k for k, op in enumerate(self.before.operations)}
        found = {name: {name} for name in order}
        for step in self.steps:
            came = set().union(*(found.get(name, set()) for name in step.of))
            found |= dict.fromkeys(step.made, came)
        return {op.name: tuple(sorted(found[op.name], key=order.__getitem__)) for op in self.program.operations}

    @property
    def changed(self) -> tuple[str, ...]:
        """The operations of the new program that are not as they were."""
        old = self.before.op_by_name
        return tuple(op.name for op in self.program.operations if old.get(op.name) != op)

    def then(self, other: Rewritten) -> Rewritten:
        """What was made of this program, by these steps and further ones."""
        return Rewritten(self.before, other.program, (*self.steps, *other.steps))


def matches(rule: Rule | str, program: Program) -> tuple[Match, ...]:
    """Every place where a rule (or the one of this name) applies, in the order of the operations."""
    return tuple(matches_at(rule_named(rule) if isinstance(rule, str) else rule, program, program.operations))


def matches_at(rule: Rule, program: Program, operations: Iterable[Operation]) -> Iterator[Match]:
    """The places among some operations where a rule applies."""
    if not known_program(program):
        return
    for op in operations:
        if known_operation(op):
            for change in rule.changes(program, op):
                if _may(program, change):
                    yield Match(rule, op, change)


def _may(program: Program, change: Change) -> bool:
    """Whether a change leaves alone what is pinned, seen from outside, or read by what no rule knows."""
    stays = {op.name: op for op in change.added}
    written = {op.output for op in change.added}
    for name in change.removed:
        op = program.op_by_name[name]
        if not known_operation(op) or (pinned(program, "op", name) and stays.get(name, op).dims != op.dims):
            return False
        if (pinned(program, "op", name) and name not in stays) or (
            op.output not in written and (kept(program, op.output) or pinned(program, "tensor", op.output))
        ):
            return False
    changed = (program.op_by_name[op.name] for op in change.changed)
    readers = (reader for old, _ in change.instead for reader in program.consumers[old])
    return all(map(known_operation, (*changed, *readers)))


def apply(
    program: Program,
    *rules: Rule | str,
    at: str | None = None,
    wanted: Wanted | None = None,
) -> Rewritten:
    """Apply rules, one after another, each until it applies no more; only at the operation ``at`` where that is given.

    ``wanted`` is asked before each change, if given. The result is verified. UsageError for a name that is not there,
    and where ``at`` is given and no rule applies.

    >>> import tapestry as tp
    >>> @tp.program
    ... def net(x: tp.f32[tp.Tensor, "n"]) -> tp.Tensor:
    ...     return tp.exp(x + 1) * tp.exp(x + 1)
    >>> [op.name for op in apply(net.bind(n=3), "common_subexpressions").program.operations]
    ['add', 'exp', 'multiply']
    """
    chosen = [rule_named(one) if isinstance(one, str) else one for one in rules]
    if at is not None and at not in program.op_by_name:
        raise UsageError(f"there is no operation {at!r}", hint=close_match(at, list(program.op_by_name)))
    found = Rewritten(program, program)
    for one in chosen:
        found = found.then(_exhausted(found.program, one, at, wanted))
    if at is not None and not found.steps:
        raise _refused(program, chosen, at)
    return found


def _exhausted(program: Program, rule: Rule, at: str | None, wanted: Wanted | None) -> Rewritten:
    found = Rewritten(program, program)
    done: set[str] = set()
    for _ in range(MOST_ROUNDS):
        now = found.program
        asked = tuple(op for op in now.operations if at in (None, op.name) and op.name not in done)
        batch = apart(now, (match for match in matches_at(rule, now, asked) if wanted is None or wanted(now, match)))
        if not batch:
            break
        found = found.then(carried_out(now, batch))
        done |= {name for match in batch for name in match.change.made} if rule.once else set()
    else:
        hint = "after: is to hold no before: of the same rule"
        raise UsageError(f"the rule {rule.name} applies again and again", where=program.name, hint=hint)
    if found.steps:
        verify(found.program)
    return found


def _refused(program: Program, rules: Sequence[Rule], at: str) -> UsageError:
    sides = {f"{one.name} wants": "; ".join(one.before) for one in rules}
    op = program.op_by_name[at]
    hint = "tapestry rewrite without --at says where it applies"
    what = f"{' and '.join(one.name for one in rules)} does not apply here"
    return UsageError(what, where=place(op), sides={**sides, "there is": format_operation(op)}, hint=hint)


def apart(program: Program, found: Iterable[Match]) -> list[Match]:
    """The first of the matches and all further ones that touch none of the same operations."""
    touched: set[str] = set()
    batch = []
    for match in found:
        mine = _touched(program, match.change)
        if not mine & touched:
            touched |= mine
            batch.append(match)
    return batch


def _touched(program: Program, change: Change) -> set[str]:
    readers = {reader.name for old, _ in change.instead for reader in program.consumers[old]}
    changed = {op.name for op in change.changed}
    return {*change.removed, *change.sources, *change.made, *changed, *readers}


def carried_out(program: Program, batch: Sequence[Match]) -> Rewritten:
    """The program with the changes made, which touch different operations; not verified."""
    changes = [match.change for match in batch]
    removed = {name for change in changes for name in change.removed}
    instead = dict(pair for change in changes for pair in change.instead)
    added = {change.removed[-1]: change.added for change in changes}
    changed = {op.name: op for change in changes for op in change.changed}
    operations: list[Operation] = []
    for op in program.operations:
        operations += [] if op.name in removed else [changed.get(op.name, op)]
        operations += added.get(op.name, ())
    operations = [_reading(op, instead) for op in operations]
    tensors = _tensors(program, operations, [tensor for change in changes for tensor in change.tensors])
    made = replace(program, tensors=tensors, operations=_in_order(operations))
    return Rewritten(program, made, tuple(_step(program, match) for match in batch))


def _step(program: Program, match: Match) -> Step:
    change = match.change
    kept_instead = tuple(program.producer[new].name for _, new in change.instead if new in program.producer)
    return Step(match.rule.name, match.op.name, change.made or kept_instead, change.sources)


def _reading(op: Operation, instead: Mapping[str, str]) -> Operation:
    """The operation with other tensors read in place of some."""
    if not any(name in instead for name in op.operands):
        return op
    return replace(op, body=reading(op.body, instead))


def _tensors(program: Program, operations: Sequence[Operation], new: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Those of the program in their order, without values and constants that are no longer needed, then new ones."""
    by_name = {tensor.name: tensor for tensor in new}
    used = {op.output for op in operations} | {name for op in operations for name in op.operands}
    stay = [t for t in program.tensors if t.name in used or t.role not in ("value", "const")]
    stay += [t for t in program.tensors if t.role == "const" and t not in stay and pinned(program, "tensor", t.name)]
    known = {tensor.name for tensor in stay}
    return (*(by_name.get(t.name, t) for t in stay), *(t for name, t in by_name.items() if name not in known))


def _in_order(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """An order in which they can run, the given one as far as possible."""
    made_at = {op.output: k for k, op in enumerate(operations)}
    waits = [{made_at[name] for name in op.operands if name in made_at} for op in operations]
    if all(max(before, default=-1) < k for k, before in enumerate(waits)):
        return tuple(operations)
    readers: dict[int, list[int]] = {}
    for k, before in enumerate(waits):
        for maker in before:
            readers.setdefault(maker, []).append(k)
    left = [len(before) for before in waits]
    ready = [k for k, count in enumerate(left) if not count]
    heapify(ready)
    found = []
    while ready:
        k = heappop(ready)
        found.append(operations[k])
        for reader in readers.get(k, ()):
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, reader)
    return tuple(found)
