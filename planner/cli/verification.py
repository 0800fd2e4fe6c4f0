"""What is said of a run's values beside the reference's."""

from __future__ import annotations

from typing import Any

from ...closeness import Difference
from ...errors import CheckFailed


def summary(found: list[Difference]) -> dict[str, Any]:
    """What `tapestry run --json --verify` adds: of the worst tensor each, see `closeness.Difference`."""
    return {
        "max_abs_error": max((difference.max_abs_error for difference in found), default=0.0),
        "max_rel_error": max((difference.relative_error for difference in found), default=0.0),
        "limit_used": max((difference.limit_used for difference in found), default=0.0),
        "verified": all(difference.ok for difference in found),
    }


def demand_equal(found: list[Difference]) -> None:
    """Raises CheckFailed with the tensor that is farthest beyond its limit."""
    wrong = [difference for difference in found if not difference.ok]
    if wrong:
        worst = max(wrong, key=lambda difference: difference.limit_used)
        what = f"the run does not give the reference's values: {worst}"
        hint = "the limit is what the roundings of this program do to it on these inputs"
        raise CheckFailed(what, hint=hint)
