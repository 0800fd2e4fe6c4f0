"""All cases, and the first of each operation."""

from __future__ import annotations

from . import elementwise, gathering, ordering, randoms, scans, tensors, transforms
from .registry import Case

CASES: list[Case] = [
    *elementwise.CASES,
    *tensors.CASES,
    *gathering.CASES,
    *scans.CASES,
    *randoms.CASES,
    *ordering.CASES,
    *transforms.CASES,
]
FIRST: dict[str, Case] = {case.name: case for case in reversed(CASES)}
