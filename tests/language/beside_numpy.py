"""Small programs, each beside what NumPy makes of the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapestry.planner import plan
from tapestry.testing import outputs_of, program_of

Program = Callable[..., Any]


def ints(*shape: int, seed: int = 0, low: int = -9, high: int = 10) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(np.int32)


@dataclass(frozen=True)
class Case:
    """A program, its inputs, and NumPy's own way from them to the output."""

    program: Program
    arrays: dict[str, np.ndarray]
    numpy: Callable[..., Any]

    @property
    def wanted(self) -> np.ndarray:
        return np.asarray(self.numpy(*self.arrays.values()))

    def assert_numpy_agrees(self) -> None:
        (got,) = outputs_of(self.program, **self.arrays)
        assert got.shape == self.wanted.shape
        np.testing.assert_allclose(got, self.wanted, rtol=1e-6)

    def assert_three_devices_agree(self) -> None:
        built = program_of(self.program, **self.arrays)
        planned = plan(built, "cpu-4", mesh=(3,))
        planned.check()
        got = planned.run(self.arrays).outputs[built.outputs[0]]
        np.testing.assert_allclose(got, self.wanted, rtol=1e-6)


class Cases(dict[str, Case]):
    """The cases of a file by their programs' names; an instance decorates a program with what it has to compute."""

    def __call__(self, wanted: Callable[..., Any], **arrays: np.ndarray) -> Callable[[Program], Program]:
        def register(program: Program) -> Program:
            self[getattr(program, "__name__", "")] = Case(program, arrays, wanted)
            return program

        return register
