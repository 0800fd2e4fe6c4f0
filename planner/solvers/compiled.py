"""Functions compiled at their first call and kept on disk, which run without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: Any) -> Any:
    """Compiled once for the types of its arguments."""
    return _compiled(function, cache=True, nogil=True)


def compiled_uncounted(function: F) -> F:
    """For functions that make no array, so that none is counted: counting references to the fields of a named tuple
    can take five times as long as all else.
    """
    return cast(F, _compiled(function, cache=True, nogil=True, _nrt=False))


def _compiled(function: Any, **options: Any) -> Any:
    """numba would compile it again for each number that a call writes out: `touch(state, 0, n)`, `touch(state, 1, n)`.

    The machine code is no quicker for that, and two fifths of the time of compiling went there.
    """
    dispatcher: Any = njit(**options)(function)
    asked = dispatcher.get_call_template
    as_type: Callable[[Any], Any] = types.unliteral

    def without_values(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return asked(tuple(map(as_type, args)), {name: as_type(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = without_values
    return dispatcher
