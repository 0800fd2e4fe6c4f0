"""What the tests of ranges ask: the extents that were found, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry.program import Operation
from tapestry.testing import outputs_of, program_of


def counting(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(np.int32)


def ranges_of(call: Callable[..., Any], **arrays: np.ndarray) -> dict[str, int]:
    """Extents of the last operation's dimensions."""
    operation: Operation = program_of(call, **arrays).operations[-1]
    return operation.extents


def refused(operation: Any, error: type[tp.TapestryError], line: int, says: str, **arrays: np.ndarray) -> str:
    """All that is said of the `line`-th line of the operation's text, decorators counted from 0; `says` comes first."""
    code = operation.function.__code__
    with pytest.raises(error) as caught:
        outputs_of(operation, **arrays)
    said = str(caught.value)
    assert said.startswith(f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno + line}){says}")
    return said
