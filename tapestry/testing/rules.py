"""Proofs of a rewrite rule: as sets, by execution, and as text. See `check_rule`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..closeness import assert_close
from ..dsl.program import program as program_function
from ..dtypes import numpy_dtype
from ..errors import ProgramError, TooHard
from ..notation import format_operation
from ..program import Program
from ..reference import evaluate
from ..rewrites import Rewritten, Rule, matches
from ..rewrites.applying import carried_out
from ..space.polyhedral import within_limit
from ..verify import verify
from .inputs import inputs_for
from .programs import programs as generated
from .relations import TooManyWays, relations
from .widening import in_f64

Proof = Literal["sets", "values", "text"]
PROOFS: tuple[Proof, ...] = ("sets", "values", "text")
DIMENSIONS = 8  # of a set about which isl is asked, on the average
LARGEST = 5  # extents at which an example is bound
NEAR = 1e-9  # of its largest element, an output in f64 may change by where the arithmetic does
DTYPES = ("f32", "int32", "f64", "bf16", "int8")


_QUIET = settings(
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
)


def check_rule(
    rule: Rule,
    *,
    proofs: Sequence[Proof] = PROOFS,
    programs: st.SearchStrategy[Program] | None = None,
    examples: int = 40,
) -> int:
    """Prove a rewrite rule; AssertionError with the program before and after where it is wrong.

    - sets: each element of each result is computed from the same elements as before, and folds go over them as often
      (for an ``algebraic`` rule: from the same elements), as sets of isl
    - values: the reference gives the same integers and truths, and floats as close as roundings leave them (for an
      ``algebraic`` rule: or to 1e-9 where all floats have 64 bits)
    - text: the operations of its example that change print as its docstring says, before and after

    The first two are held on the rule's example at drawn extents (and dtypes, where it has a setting ``dtype``) and on
    drawn ``programs`` (`tapestry.testing.programs` if not given), wherever the rule matches, ``examples`` in all.
    Returns on how many the rule matched.
    """
    if "text" in proofs:
        prove_text(rule)
    matched = 0

    def hold(drawn: Program, data: st.DataObject) -> None:
        nonlocal matched
        found = matches(rule, drawn)
        if not found:
            return
        matched += 1
        change = carried_out(drawn, [data.draw(st.sampled_from(found))])
        prove_valid(rule, change)
        if "sets" in proofs:
            prove_sets(rule, change)
        if "values" in proofs:
            prove_values(rule, change, data.draw(inputs_for(drawn)))

    # The example first: what is wrong shows on a program that is quickly made smaller.
    for source in (_bindings(rule), programs if programs is not None else generated(5, wide=True)):
        settings(_QUIET, max_examples=examples // 2)(given(source, st.data())(hold))()
    assert matched, f"{rule.name} matched none of {examples} programs, its example neither"
    return matched


def _bindings(rule: Rule) -> st.SearchStrategy[Program]:
    """The rule's example at any small extents, in any dtype in which it is a program."""
    function = program_function(rule.example)
    names = inspect.signature(rule.example).parameters

    def bound(chosen: Mapping[str, Any]) -> Program:
        try:
            return function.bind(**chosen)
        except ProgramError:
            return function.bind(**{name: value for name, value in chosen.items() if name != "dtype"})

    one = st.integers(1, LARGEST)
    return st.fixed_dictionaries({n: st.sampled_from(DTYPES) if n == "dtype" else one for n in names}).map(bound)


def prove_valid(rule: Rule, found: Rewritten) -> None:
    """What the rule made is a program, with the outputs, inputs, params and states that were there."""
    try:
        verify(found.program)
    except ProgramError as error:
        raise AssertionError(_shown(rule, found, f"is no program any more: {error}")) from None
    old, new = found.before, found.program
    same = (old.outputs, old.states, old.pins) == (new.outputs, new.states, new.pins)
    same = same and old.of_role("input", "param", "state") == new.of_role("input", "param", "state")
    ends = [*old.outputs, *(name for _, name in old.states)]
    same = same and all(old.by_name[name] == new.by_name.get(name) for name in ends)
    assert same, _shown(rule, found, "has other inputs, outputs or states")


def prove_sets(rule: Rule, found: Rewritten) -> None:
    """Every result element is computed from the same source elements, as often unless the rule is algebraic."""
    try:
        with within_limit("what is computed from what", DIMENSIONS):
            before, after = relations(found.before), relations(found.program)
    except (TooManyWays, TooHard):
        return
    for key in sorted(before.keys() | after.keys()):
        output, source = key
        if key not in before or key not in after:
            side = "before" if key in before else "after"
            raise AssertionError(_shown(rule, found, f"{output} is computed from {source} only {side}"))
        old, new = before[key], after[key]
        for what, more, less in (("no longer", old, new), ("newly", new, old)):
            rest = more.pairs.subtract(less.pairs)
            if not rest.is_empty():
                witness = rest.sample_point()
                raise AssertionError(_shown(rule, found, f"{output} is {what} computed from {source}: {witness}"))
        counted = old.count is not None and new.count is not None and not rule.algebraic
        if counted and old.count != new.count:
            how = f"{source} enters {output} at {new.count} points, not {old.count}"
            raise AssertionError(_shown(rule, found, how))


def prove_values(rule: Rule, found: Rewritten, inputs: Mapping[str, Any]) -> None:
    """The reference computes the same for the program before and after."""
    try:
        want, got = evaluate(found.before, inputs), evaluate(found.program, inputs)
        assert_close(found.before, inputs, got, want)
    except AssertionError as error:
        if rule.algebraic and _agree_in_f64(found, inputs):
            return
        raise AssertionError(_shown(rule, found, f"computes something else: {error}")) from None


def _agree_in_f64(found: Rewritten, inputs: Mapping[str, Any]) -> bool:
    """Whether a rule that changes roundings changes nothing else: in floats of 64 bits the same comes out."""
    want, got = (_in_f64(program, inputs) for program in (found.before, found.program))
    for name, value in want.items():
        limit = NEAR * float(np.abs(value).max(initial=0)) if value.dtype.kind == "f" else 0
        if not np.allclose(got[name], value, rtol=0, atol=limit, equal_nan=True):
            return False
    return True


def _in_f64(program: Program, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    wide = in_f64(program)
    return evaluate(wide, {name: value.astype(numpy_dtype(wide.tensor(name).dtype)) for name, value in inputs.items()})


def prove_text(rule: Rule) -> None:
    """The operations of the example that change are those that the docstring shows."""
    example = program_function(rule.example).bind()
    found = matches(rule, example)
    assert found, f"{rule.name} does not match its example\n{example}"
    change = carried_out(example, [found[0]])
    old, new = change.before.op_by_name, change.program.op_by_name
    before = [format_operation(op) for name, op in old.items() if new.get(name) != op]
    after = [format_operation(op) for name, op in new.items() if old.get(name) != op]
    wrong = "the docstring of {} does not say what it does\n{}: it says\n    {}\nbut there is\n    {}"
    for title, said, there in (("before", rule.before, before), ("after", rule.after, after)):
        assert list(said) == there, wrong.format(rule.name, title, "\n    ".join(said), "\n    ".join(there))


def _shown(rule: Rule, found: Rewritten, fault: str) -> str:
    steps = "; ".join(map(str, found.steps))
    return f"{rule.name} {fault}\n{steps}\nbefore\n{found.before}\nafter\n{found.program}"
