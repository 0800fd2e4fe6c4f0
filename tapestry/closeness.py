"""When two executions of a program agree: how far roundings alone may take them apart.

Integers, truths, infinities and what is no number have to be the same. Of floats, what is right follows from the
program and its inputs: the reference is evaluated again with every rounding that executions may make otherwise made at
random (`reference.rounding`), in sizes that follow from the dtypes and the lengths of the folds. The largest distance
of these executions from the reference says what roundings do to each output. Twice as much is allowed in the norm of
the whole output, which hardly varies where there are many elements, and four times as much for its worst element, or
where there are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DTYPES, numpy_dtype
from .program import Program
from .reference import Shaken, evaluate

Array = NDArray[Any]

_OF_NORMS, _OF_ELEMENTS = 2.0, 4.0
_ELEMENTS = 64
"""Of an output smaller than this, one shaken execution says little; then there are `_MOST` of them, else `_FEWEST`."""
_FEWEST, _MOST = 3, 12


@dataclass(frozen=True)
class Difference:
    """One tensor beside the reference.

    max_abs_error   the largest difference of an element
    relative_error  the norm of the difference over that of the reference; infinite where the latter alone is 0
    limit_used      how much of what roundings may do was used, by the norm or by the worst element; above 1 is wrong
    """

    tensor: str
    max_abs_error: float
    relative_error: float
    limit_used: float

    @property
    def ok(self) -> bool:
        return self.limit_used <= 1

    def __str__(self) -> str:
        """One line.

        >>> print(Difference("y", 3.1e-7, 2.5e-8, 0.117))
        y: error 3.1e-07, relative 2.5e-08, 12 % of the limit
        """
        error = f"{self.tensor}: error {self.max_abs_error:.2g}, relative {self.relative_error:.2g}"
        return f"{error}, {self.limit_used:.2g} times the limit" if not self.ok else f"{error}, {self._percent()}"

    def _percent(self) -> str:
        return f"{100 * self.limit_used:.2g} % of the limit" if self.limit_used else "exact"


@dataclass(frozen=True)
class Yardstick:
    """What the reference gives for some inputs, and what it gives with its roundings at random."""

    want: Mapping[str, Array]
    shaken: Sequence[Mapping[str, Array]]

    @classmethod
    def of(cls, program: Program, inputs: Mapping[str, Array], want: Mapping[str, Array] | None = None) -> Yardstick:
        """``want``: what the reference gives, where it is known already."""
        want = evaluate(program, inputs) if want is None else want
        sizes = [value.size for name, value in want.items() if DTYPES[program.tensor(name).dtype].kind == "float"]
        fewest = min(filter(None, sizes), default=0)
        count = 0 if not fewest else _MOST if fewest < _ELEMENTS else _FEWEST
        return cls(want, [evaluate(program, inputs, rounding=Shaken(seed)) for seed in range(count)])

    def differences(self, got: Mapping[str, Array]) -> list[Difference]:
        """How far an execution is from the reference, for each output and new state, in the program's order."""
        return [
            _difference(name, got[name], want, [one[name] for one in self.shaken]) for name, want in self.want.items()
        ]


def assert_close(
    program: Program, inputs: Mapping[str, Array], got: Mapping[str, Array], want: Mapping[str, Array]
) -> None:
    """An execution on the inputs agrees with another: the same tensors, of the same dtypes and shapes, as close as
    roundings leave them.

    Names are outputs, or states (whose values are those that replace them). AssertionError with the tensor, and with
    the first element that differs where all have to be equal.
    """
    assert set(got) == set(want), f"tensors {sorted(got)} are not {sorted(want)}"
    for name, expected in want.items():
        dtype = program.tensor(name).dtype
        assert got[name].dtype == numpy_dtype(dtype), f"{name}: dtype {got[name].dtype}, not {dtype}"
        assert got[name].shape == expected.shape, f"{name}: shape {got[name].shape}, not {expected.shape}"
    if all(_same(got[name], want[name]).all() for name in want):
        return
    for difference in Yardstick.of(program, inputs, want).differences(got):
        name = difference.tensor
        if not difference.ok:
            raise AssertionError(f"{_first(name, got[name], want[name])}; {difference}")


def _same(got: Array, want: Array) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (got == want) | ((got != got) & (want != want))
    return same


def _difference(name: str, got: Array, want: Array, shaken: Sequence[Array]) -> Difference:
    error = _distance(got, want)
    if not error.any():
        return Difference(name, 0.0, 0.0, 0.0)
    relative = _over(_norm(error), _norm(np.where(np.isfinite(_wide(want)), _wide(want), 0.0)))
    used = float("inf")
    if want.dtype.kind not in "biu" and np.isfinite(error).all():
        # Where a shaken execution leaves the range of its dtype it says nothing of sizes.
        moved = [np.nan_to_num(_distance(one, want), posinf=0.0) for one in shaken]
        in_norm, at_worst = max(map(_norm, moved)), max(float(one.max()) for one in moved)
        margin = _OF_NORMS if want.size >= _ELEMENTS else _OF_ELEMENTS
        used = max(_over(_norm(error), margin * in_norm), _over(float(error.max()), _OF_ELEMENTS * at_worst))
    return Difference(name, float(error.max()), relative, used)


def _over(part: float, whole: float) -> float:
    return part / whole if whole else float("inf")


def _wide(array: Array) -> Array:
    return array.astype(np.float64, copy=False)


def _distance(got: Array, want: Array) -> Array:
    """Per element; infinite between what is finite and what is not."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.nan_to_num(np.abs(_wide(got) - _wide(want)), nan=np.inf, posinf=np.inf)
    if want.dtype.kind in "biu":  # two large integers may differ and yet be one float
        apart = np.maximum(apart, 1.0)
    return np.where(_same(got, want), 0.0, apart)


def _norm(array: Array) -> float:
    """The root of the sum of squares, of numbers of any size."""
    largest = float(np.abs(array).max(initial=0.0))
    if not largest or largest == float("inf"):
        return largest
    return largest * float(np.sqrt(np.square(array / largest).sum()))


def _first(name: str, got: Array, want: Array) -> str:
    wrong = ~_same(got, want)
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{name}: element {at} is {got[at]}, not {want[at]}; {int(wrong.sum())} of {wrong.size} differ"
