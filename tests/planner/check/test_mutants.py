"""The checker against every single alteration of the hand-written plans.

A mutant that the checker rejects must be rejected for a reason that fits the alteration. One that it passes must be
harmless: in every order that its lanes and waits allow (all, when there are few; else 200 seeded unfair ones), from
poisoned memory, the toy machine gets the reference's values.
"""

from __future__ import annotations

import pytest

from . import plans, writing
from .harm import show
from .mutations import mutants


@pytest.mark.parametrize("name", plans.ALL)
def test_every_mutant_is_rejected_rightly_or_harmless(name: str) -> None:
    document = plans.ALL[name]()
    show(document, mutants(document, writing.read(document)))
