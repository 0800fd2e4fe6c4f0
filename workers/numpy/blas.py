"""BLAS on one thread: with more, sums may be split differently, and engines would differ in the last bit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> Any:
    import numpy as np

    np.dot(np.ones(1), np.ones(1))  # the library is loaded before it is looked for
    return ThreadpoolController()


def single_threaded() -> AbstractContextManager[Any]:
    """Limits BLAS to one thread inside."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit
