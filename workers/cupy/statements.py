"""Statements of kernels: those of a block, and those that fold the records of threads in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .machine import THREADS

# Components of 8 bytes that a block of so many threads has shared memory for, in the 48 KiB that need no asking.
ROOM = 16


def inside(lines: Sequence[str]) -> list[str]:
    """Lines a step further in."""
    return [f"    {line}" for line in lines]


@dataclass(frozen=True)
class Tree:
    """The records of a group of threads, whose components have names and types, folded into that of the first.

    ``combine``: the statements that fold the record b0, b1, .. into a thread's own. ``across``: the threads of a group
    are as far apart as there are groups.
    """

    names: Sequence[tuple[str, str]]
    combine: Sequence[str]
    threads: int
    group: int
    across: bool

    def folded(self) -> list[str]:
        """Half as many threads have a record from one round to the next."""
        if len(self.names) > ROOM and len({kind for _, kind in self.names}) == 1:
            return self._by_parts()
        far = f" * {self.threads // self.group}u" if self.across else ""
        lines = [f"__shared__ {kind} h{k}[{self.threads}];" for k, (_, kind) in enumerate(self.names)]
        put = [f"h{k}[threadIdx.x] = {name};" for k, (name, _) in enumerate(self.names)]
        take = [f"const {kind} b{k} = h{k}[threadIdx.x + d{far}];" for k, (_, kind) in enumerate(self.names)]
        step = ["if (lane < d) {", *inside([*take, *self.combine, *put]), "}", "__syncthreads();"]
        return [*lines, *put, "__syncthreads();", *self._halving(step)]

    def _by_parts(self) -> list[str]:
        """The same for records that shared memory does not hold at once: some components after others."""
        names, kind = self.names, self.names[0][1]
        step = [f"{kind} {', '.join(f'b{k}' for k in range(len(names)))};"]
        for start in range(0, len(names), ROOM):
            part = list(enumerate(names[start : start + ROOM]))
            step += [f"h{k}[threadIdx.x] = {name};" for k, (name, _) in part]
            take = [f"b{start + k} = h{k}[threadIdx.x + d];" for k, _ in part]
            step += ["__syncthreads();", "if (lane < d) {", *inside(take), "}", "__syncthreads();"]
        lines = [f"__shared__ {kind} h{k}[{THREADS}];" for k in range(ROOM)]
        return [*lines, *self._halving([*step, "if (lane < d) {", *inside(self.combine), "}"])]

    def _halving(self, step: Sequence[str]) -> list[str]:
        return [f"for (unsigned d = {self.group // 2}u; d > 0; d /= 2) {{", *inside(step), "}"]
