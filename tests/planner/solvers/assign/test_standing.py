"""Decisions node after node: what a supply of one reader brings is counted for all strategies at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.assign import AssignmentProblem
from tapestry.planner.solvers.assign.places import places_of
from tapestry.planner.solvers.assign.standing import OPEN, Standing, Terms

from .supplied import supply_problems


class OneByOne(Terms):
    """Every supply is counted set by set of what is asked for."""

    @cached_property
    def alone(self) -> list[None]:  # type: ignore[override]
        return [None] * len(self.supplies)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(supply_problems(), st.data())
def test_supplies_of_one_reader_are_counted_as_all_others_are(problem: AssignmentProblem, data: st.DataObject) -> None:
    few = tuple(replace(supply, readers=supply.readers[:1], asks=supply.asks[:1]) for supply in problem.supplies)
    terms = Terms.of(places_of(replace(problem, supplies=few)))
    assume(any(alone is not None for alone in terms.alone))
    apart = OneByOne(terms.costs, terms.limit, terms.supplies, terms.given, terms.priced)
    apart.near, apart.held = terms.near, terms.held
    counts = problem.strategy_counts.tolist()
    start = [data.draw(st.integers(OPEN, count - 1)) for count in counts]
    mine, theirs = Standing(terms, start), Standing(apart, start)
    for v in data.draw(st.lists(st.integers(0, len(counts) - 1), min_size=4, max_size=8)):
        assert mine.decide(v) == theirs.decide(v)
        assert mine.choice == theirs.choice
        assert np.array_equal(mine.profile, theirs.profile)
