"""Every verdict of the checker, provoked."""

from __future__ import annotations

import dataclasses

import pytest

from tapestry.planner.solvers.assign import (
    FORBIDDEN,
    Assignment,
    AssignmentProblem,
    Conflict,
    EngineClaim,
    ProblemBuilder,
    solve,
)
from tapestry.planner.solvers.assign.check import check, check_choice

from .problems import ladder


def small() -> AssignmentProblem:
    builder = ProblemBuilder()
    r = builder.add_resource(10, "hbm")
    a, b = builder.add_node([1, 2, FORBIDDEN], "a"), builder.add_node([3, 4], "b")
    builder.add_edge(a, b, [[5, FORBIDDEN], [6, 7], [8, 9]])
    builder.use(a, r, 0, 5, [4, 8, 4])
    builder.use(b, r, 4, 9, [3, 4])
    return builder.build()


RIGHT = solve(small())


def test_the_right_answer_passes() -> None:
    assert (RIGHT.status, RIGHT.choice, RIGHT.cost, RIGHT.bound) == ("optimal", (0, 0), 9, 9)
    assert check(small(), RIGHT) == []


@pytest.mark.parametrize(
    ("choice", "verdict", "text"),
    [
        ((0,), "wrong length", "1 strategies for 2 nodes"),
        ((3, 0), "no such strategy", "a: strategy 3 of 3"),
        ((-1, 0), "no such strategy", "a: strategy -1 of 3"),
        ((2, 0), "forbidden strategy", "a: strategy 2"),
        ((0, 1), "forbidden pair", "edge 0 between a and b: strategies 0, 1"),
        ((1, 0), "over the limit", "hbm holds 11 at instant 4, limit 10"),
    ],
)
def test_a_wrong_choice_is_named(choice: tuple[int, ...], verdict: str, text: str) -> None:
    faults = check_choice(small(), choice)[1]
    assert (verdict, text) in [(fault.verdict, fault.text) for fault in faults]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"cost": 8, "bound": 8}, "wrong cost"),
        ({"bound": 10, "status": "feasible"}, "wrong bound"),
        ({"bound": 8}, "wrong status"),
        ({"status": "feasible"}, "wrong status"),
        ({"certificate": None}, "wrong bound"),
        ({"certificate": None, "claim": EngineClaim("an engine", "optimal", 9)}, "wrong bound"),
        ({"status": "infeasible", "choice": (), "cost": None, "bound": None, "certificate": None}, "wrong status"),
        ({"status": "infeasible", "choice": (), "cost": None, "bound": None}, "wrong status"),
        ({"conflict": Conflict((0, 1), ((0, 4),), True)}, "no conflict"),
    ],
)
def test_a_wrong_statement_is_named(change: dict[str, object], verdict: str) -> None:
    answer = dataclasses.replace(RIGHT, **change)  # type: ignore[arg-type]
    assert verdict in [fault.verdict for fault in check(small(), answer)]


def test_a_bound_above_what_its_duals_give_is_named() -> None:
    from .plain.test_bounds import certificate_of

    problem = ladder(seed=7, nodes=8, strategies=3)
    certificate = certificate_of(problem, steps=10)[0]
    answer = Assignment("unknown", (), None, 10**6, certificate, None, 0.0, 0)
    assert [fault.verdict for fault in check(problem, answer)] == ["wrong bound"]
