"""Altered programs, blocks and machines: a plan that passes computes what its program means, all others are refused.

Alterations are seeded and blind. A refusal is a verdict or a typed error, never a crash; and a verdict is not the two
engines of the checker differing.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest

from tapestry.errors import TapestryError
from tapestry.planner.check import Code, check
from tapestry.planner.format.codec import decode, encode

from .bases import BASES, BLOCKS
from .program_harm import harm
from .program_mutations import altered


@cache
def raw(base: str) -> Any:
    return json.loads(encode(BASES[base]()))


@pytest.mark.parametrize(
    ("part", "bases", "count"),
    [
        ("program", tuple(BASES), 160),
        ("blocks", BLOCKS, 60),
        ("machine", tuple(BASES), 60),
        ("anything", tuple(BASES), 100),
    ],
)
def test_every_mutant_is_refused_or_computes_what_it_embeds(part: str, bases: tuple[str, ...], count: int) -> None:
    rng = random.Random(part)
    for _ in range(count):
        base = rng.choice(bases)
        what, made = altered(raw(base), part, rng)
        try:
            document = decode(json.dumps(made))
        except TapestryError:
            continue
        report = check(document)
        assert Code.DISAGREEMENT not in report.codes, f"{base}: {what}: {report}"
        if report.ok:
            wrong = harm(document)
            assert wrong is None, f"{base}: {what}: passed, and {wrong}"


def test_every_altered_figure_is_refused() -> None:
    rng = random.Random("figures")
    for _ in range(150):
        base = rng.choice(tuple(BASES))
        what, made = altered(raw(base), "figures", rng)
        try:
            document = decode(json.dumps(made))
        except TapestryError:
            continue
        assert document == BASES[base]() or not check(document).ok, f"{base}: {what}"


@pytest.mark.parametrize("base", BASES)
def test_the_plans_themselves_pass_and_compute_what_they_embed(base: str) -> None:
    document = BASES[base]()
    assert check(document).ok
    assert harm(document) is None
