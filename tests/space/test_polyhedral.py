"""Questions put to isl: what becomes of one that takes too much work."""

from __future__ import annotations

import pytest

from tapestry.errors import TooHard
from tapestry.space import polyhedral
from tapestry.space.polyhedral import read_set, within_limit


def test_a_question_beyond_the_limit_is_named_and_carries_no_error_of_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl's errors refuse ==, so that whoever follows a chain of errors (a debugger, hypothesis) would fail on them."""
    monkeypatch.setattr(polyhedral, "PROOF_LIMIT", 9)
    words = "whether it is empty takes more work than it may"
    with pytest.raises(TooHard, match=words) as caught, within_limit("whether it is empty", 3):
        read_set("{ [a, b, c] : 0 <= a < b < c <= 99 and (a + b) mod 7 = 3 }").is_empty()
    assert caught.value.__context__ is None
    assert not read_set("{ [a] : 0 <= a < 9 }").is_empty()


def test_other_errors_pass_through_a_limit() -> None:
    with pytest.raises(ZeroDivisionError), within_limit("nothing", 3):
        raise ZeroDivisionError
