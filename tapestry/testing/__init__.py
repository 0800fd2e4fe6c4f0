"""Property-based tests: strategies for programs, partitions, machines, plans and inputs, proofs, a fair comparison.

Needs `hypothesis`. A rewrite or an executor is tested so::

    @given(st.data())
    def test_mine(data):
        program = data.draw(programs())
        inputs = data.draw(inputs_for(program))
        assert_close(program, inputs, my_execution(program, inputs), evaluate(program, inputs))

A rewrite rule is proved by one call, `check_rule(rule)`, and so are an operation with its adjoint,
`check_operation(operation, *arrays)`, and the laws of a monoid, `check_monoid(monoid)`. docs/testing.md has an example
of each.
"""

from typing import Any

from ..closeness import assert_close
from ..lazy import lazy_names
from .functions import outputs_of, program_of
from .inputs import inputs_for
from .monoids import check_monoid
from .partitions import CutKind, partitions
from .programs import programs
from .rules import check_rule

__all__ = [
    "CutKind",
    "assert_close",
    "check_monoid",
    "check_operation",
    "check_rule",
    "inputs_for",
    "machines",
    "outputs_of",
    "partitions",
    "plans",
    "program_of",
    "programs",
]

# These plan and run, which the language knows nothing of: they are found when they are first asked for.
_load, __dir__ = lazy_names(__name__, {".planner.testing": "check_operation machines plans"})


def __getattr__(name: str) -> Any:
    return _load(name)
