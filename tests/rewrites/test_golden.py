"""What every rule makes of its example, as it is printed (`pytest --update-golden` writes the files anew)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tapestry.dsl.program import program
from tapestry.rewrites import RULES, matches
from tapestry.rewrites.applying import carried_out


@pytest.mark.parametrize("name", list(RULES))
def test_what_a_rule_makes_of_its_example(name: str, golden: Callable[[str, str], None]) -> None:
    example = program(RULES[name].example).bind()
    found = carried_out(example, matches(name, example)[:1])
    golden(name, f"{found.before}\n\n{found.steps[0]}\n\n{found.program}")
