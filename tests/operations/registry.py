"""The operations that tests go through: how each is called, on what, and what torch or NumPy makes of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tapestry.dtypes import DTYPES, name_of
from tapestry.program import Program
from tapestry.testing import program_of

Array = np.ndarray[Any, Any]


def floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Numbers in an interval, all different, none of them near 0 or another multiple of 1/2: corners are there."""
    size = int(np.prod(shape))
    spread = low + (high - low) * (np.arange(size) + 0.37 + 0.013 * seed) / max(size, 1)
    near = np.abs(spread * 2 - np.round(spread * 2)) < 0.05
    return np.random.default_rng(seed).permutation(np.where(near, spread + 0.06, spread)).reshape(shape)


def whole(*shape: int, low: int = -9, high: int = 10, dtype: str = "int64", seed: int = 0) -> Array:
    """Integers."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """A call of a public operation.

    name    what it is called under `tapestry`
    call    the call, of tensors
    oracle  what torch (or NumPy) computes from the same arrays
    torch   whether the oracle is torch's
    held    the arguments that nobody differentiates along
    within  how far the oracle may be off, relative to a value
    """

    name: str
    call: Callable[..., Any]
    oracle: Callable[..., Any]
    arrays: tuple[Array, ...]
    torch: bool
    held: tuple[int, ...] = ()
    within: float = 1e-12

    @property
    def inputs(self) -> dict[str, Array]:
        return {f"x{k}": array for k, array in enumerate(self.arrays)}

    @cached_property
    def program(self) -> Program:
        return program_of(self.call, **self.inputs)

    @property
    def differentiates(self) -> bool:
        """Whether there is a derivative to compare: torch's, of floats, of something that is not flat everywhere."""
        return self.torch and any(value.requires_grad for value in self.expected(grad=True))

    @property
    def floats(self) -> list[int]:
        """The arguments to differentiate along."""
        return [k for k, array in enumerate(self.arrays) if array.dtype.kind == "f" and k not in self.held]

    def expected(self, *, grad: bool = False) -> list[Any]:
        """What the oracle says, result by result."""
        arrays: list[Any] = list(self.arrays)
        if self.torch:
            arrays = [torch.from_numpy(np.array(array)) for array in arrays]
            for k in self.floats if grad else ():
                arrays[k].requires_grad_()
        found = self.oracle(*arrays)
        return list(found) if isinstance(found, tuple | list) else [found]

    def in_dtype(self, dtype: str) -> Mapping[str, Array]:
        """The inputs with floats of another dtype."""
        from tapestry.dtypes import numpy_dtype

        return {
            name: array.astype(numpy_dtype(dtype)) if DTYPES[name_of(array.dtype)].kind == "float" else array
            for name, array in self.inputs.items()
        }


class Cases(list[Case]):
    """The cases of a family, in order."""

    def torch(
        self,
        name: str,
        call: Callable[..., Any],
        oracle: Callable[..., Any],
        *arrays: Array,
        held: tuple[int, ...] = (),
    ) -> None:
        self.append(Case(name, call, oracle, arrays, torch=True, held=held))

    def numpy(
        self,
        name: str,
        call: Callable[..., Any],
        oracle: Callable[..., Any],
        *arrays: Array,
        within: float = 1e-12,
    ) -> None:
        self.append(Case(name, call, oracle, arrays, torch=False, within=within))

    def alike(self, name: str, library: Any, arrays: tuple[Array, ...], *settings: Any, **options: Any) -> None:
        """A function that a library of torch's has under the same name, with the same settings."""
        import tapestry

        ours, theirs = getattr(tapestry, name), getattr(library, name)
        self.torch(
            name,
            lambda *tensors: ours(*tensors, *settings, **options),
            lambda *tensors: theirs(*tensors, *settings, **options),
            *arrays,
        )
