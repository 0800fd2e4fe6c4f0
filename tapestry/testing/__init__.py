"""Property-based tests of whole programs: strategies for programs, partitions and inputs, and a fair comparison.

Needs `hypothesis`. A rewrite or an executor is tested so:

    @given(st.data())
    def test_mine(data):
        program = data.draw(programs())
        inputs = data.draw(inputs_for(program))
        assert_close(program, inputs, my_execution(program, inputs), evaluate(program, inputs))

A rewrite rule is proved by one call, `check_rule(rule)`, and so are the laws of a monoid, `check_monoid(monoid)`.
"""

from ..closeness import assert_close
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
    "check_rule",
    "inputs_for",
    "outputs_of",
    "partitions",
    "program_of",
    "programs",
]
