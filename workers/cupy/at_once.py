"""Small kernels that have nothing to do with one another as one launch, each with blocks of its own.

    before    a(p, q) by 4 blocks;  b(r) by 1
    after     a_and_b(p, q, r) by 5: the first 4 do what a does, the last what b does

A launch of a graph takes 1.1 us and waits for the one before it (H200, 2026-11-22), so much as a small kernel itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..device import Runner, kernels_of
from .machine import Unit
from .writing import Written

# Threads of a kernel that may have others beside it, about as many as a GPU has at once; kernels of a launch; bytes of
# shared memory that need no asking, and of the widest type that stands there.
MOST_THREADS, MOST_KERNELS, SHARED, WIDEST = 1 << 18, 16, 48 << 10, 8
# What a kernel's text has whose threads meet, in it or in what it calls.
MEETING = ("__syncthreads", "fold_", "thin_across")

_KERNEL = re.compile(
    r"(?P<headers>(?:#include <[^>]+>\n)+)\nnamespace tapestry \{\n"
    r'extern "C" __global__ void __launch_bounds__\(\d+\)\n'
    r"\w+\((?P<parameters>[^)]*)\) \{\n(?P<body>.*)\}\n\n\}  // namespace tapestry\n",
    re.DOTALL,
)
_SHARED = re.compile(r"__shared__ [^;\[]*\[(\d+)\]")


@dataclass(frozen=True)
class Launched:
    """A launch and what is launched."""

    run: Runner
    written: Written

    def __call__(self) -> None:
        self.run()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The name of the kernel."""
        return kernels_of(self.run)


@dataclass(frozen=True)
class _Part:
    """The text of a kernel taken apart."""

    unit: Unit
    headers: tuple[str, ...]
    types: tuple[str, ...]
    names: tuple[str, ...]
    body: str

    @property
    def meets(self) -> bool:
        """Whether the threads of a block meet at barriers."""
        return any(word in self.body for word in MEETING)

    @property
    def shared(self) -> int:
        """Bytes of shared memory, at most."""
        return sum(WIDEST * int(count) for count in _SHARED.findall(self.body))


def fit(runs: Sequence[Runner]) -> bool:
    """Whether runners are launches of small kernels that one can be made of."""
    parts = [_part(run.written.unit) if isinstance(run, Launched) else None for run in runs]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len(found) > MOST_KERNELS or len({part.unit.exact for part in found}) > 1:
        return False
    threads = max(part.unit.threads for part in found)
    meeting = any(part.meets and part.unit.threads < threads for part in found)
    return not meeting and sum(part.shared for part in found) <= SHARED


def _part(unit: Unit) -> _Part | None:
    """None for a kernel that is large, or written in another way."""
    found = _KERNEL.fullmatch(unit.source)
    if found is None or unit.own or unit.shared or unit.cluster > 1 or unit.blocks * unit.threads > MOST_THREADS:
        return None
    parameters = [parameter.rsplit(" ", 1) for parameter in found["parameters"].split(", ")]
    headers = tuple(found["headers"].splitlines())
    types, names = zip(*parameters, strict=True)
    return _Part(unit, headers, types, names, found["body"])


def at_once(runs: Sequence[Runner]) -> Written:
    """The kernel of launches that fit."""
    launched = [run.written for run in runs if isinstance(run, Launched)]
    parts = [part for one in launched if (part := _part(one.unit)) is not None]
    assert len(parts) == len(runs)
    headers = dict.fromkeys(line for part in parts for line in part.headers)
    threads, blocks = max(part.unit.threads for part in parts), sum(part.unit.blocks for part in parts)
    lines = ["struct NAME_Block {\n    unsigned x;\n};\n"]
    lines += [
        f"static TAPESTRY_FN void NAME_{k}({_parameters(part)}) {{\n{part.body}}}\n" for k, part in enumerate(parts)
    ]
    parameters = [f"{kind} p{k}_{j}" for k, part in enumerate(parts) for j, kind in enumerate(part.types)]
    lines.append(
        f'extern "C" __global__ void __launch_bounds__({threads})\nNAME({", ".join(parameters)}) {{\n'
        f"{_calls(parts, threads)}}}\n"
    )
    body = "\n".join(lines)
    source = "\n".join([*headers, "", "namespace tapestry {", body, "}  // namespace tapestry\n"])
    entry = f"beside_{hashlib.sha256(f'{blocks} {source}'.encode()).hexdigest()[:16]}"
    follows = all(part.unit.follows for part in parts)
    unit = Unit(source.replace("NAME", entry), entry, blocks, threads, exact=parts[0].unit.exact, follows=follows)
    return Written(unit, tuple(array for one in launched for array in one.arrays))


def _parameters(part: _Part) -> str:
    """Those of a part: the block that it takes for its own hides the one that the GPU knows."""
    given = [f"{kind} {name}" for kind, name in zip(part.types, part.names, strict=True)]
    return ", ".join(["const NAME_Block blockIdx", *given])


def _calls(parts: Sequence[_Part], threads: int) -> str:
    found, first = "", 0
    for k, part in enumerate(parts):
        last = first + part.unit.blocks
        own = f" && threadIdx.x < {part.unit.threads}u" if part.unit.threads < threads else ""
        given = "".join(f", p{k}_{j}" for j in range(len(part.names)))
        within = f"blockIdx.x >= {first}u && blockIdx.x < {last}u{own}"
        found += f"    if ({within}) NAME_{k}(NAME_Block{{blockIdx.x - {first}u}}{given});\n"
        first = last
    return found
