"""Which code a GPU runs: architecture names, and the fallback for a device newer than the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import WrongValue

OLDEST = 80  # ldmatrix, cp.async and bf16 matrix instructions begin here

_NAME = re.compile(r"(sm|compute)_(\d{2,3})([af]?)")


@dataclass(frozen=True)
class Architecture:
    """A compilation target: machine code (`sm_90`) or portable assembly the driver finishes (`compute_90`).

    `number` is ten times the compute capability. `feature` is `a` for what only this very architecture runs.
    """

    number: int
    portable: bool = False
    feature: str = ""

    def __str__(self) -> str:
        return f"{'compute' if self.portable else 'sm'}_{self.number}{self.feature}"


def architecture(name: str) -> Architecture:
    """Read an architecture's name.

    >>> str(architecture("sm_90")), architecture("compute_100").portable
    ('sm_90', True)
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[2]) < OLDEST:
        raise WrongValue(
            "no such architecture",
            expected=f"sm_NN, or compute_NN for assembly, NN from {OLDEST}: sm_80, sm_90, sm_90a, sm_100",
            came=repr(name),
        )
    return Architecture(int(match[2]), match[1] == "compute", match[3])


def target(capability: tuple[int, int], supported: Iterable[int]) -> str:
    """What to compile for a device of this compute capability with a compiler that supports these architectures.

    Machine code of the same major version and no newer minor version runs; failing that, the newest portable assembly
    that is not newer than the device, which its driver compiles when it is loaded.

    >>> target((9, 0), [80, 90, 100]), target((8, 9), [80, 86, 90]), target((13, 0), [80, 90, 120])
    ('sm_90', 'sm_86', 'compute_120')
    """
    major, minor = capability
    wanted = 10 * major + minor
    below = sorted(number for number in supported if OLDEST <= number <= wanted)
    if not below:
        raise WrongValue(
            "the GPU is too old for these kernels",
            expected=f"compute capability {OLDEST // 10}.{OLDEST % 10} or newer, known to the compiler",
            came=f"{major}.{minor}",
        )
    newest = below[-1]
    return f"sm_{newest}" if newest // 10 == major else f"compute_{newest}"
