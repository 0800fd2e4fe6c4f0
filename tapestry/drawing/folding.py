"""Repeated layers of a program, for drawings: ``layers.0.q``, ``layers.1.q``, ... shown once.

A layer is what the first number in a dotted name counts. Neighbouring layers that are the same but for names, and whose
notes are the same, are one run; the first of them stands for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..notation import format_operation
from ..program import Operation, Program

_LAYER = re.compile(r"^((?:[^.\d][^.]*\.)*?)(\d+)\.(.*)$")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Run:
    """Layers ``first`` .. ``first + count - 1`` of ``scope`` ("layers.") are alike."""

    scope: str
    first: int
    count: int

    @property
    def label(self) -> str:
        return f"{self.scope}{self.first} … {self.first + self.count - 1}   × {self.count}"


def split_layer(name: str) -> tuple[str, int, str] | None:
    """Scope, number and the rest of a name in a layer.

    >>> split_layer("layers.12.rms_norm.mean"), split_layer("stem.h")
    (('layers.', 12, 'rms_norm.mean'), None)
    """
    match = _LAYER.match(name)
    return (match[1], int(match[2]), match[3]) if match else None


def anonymous(name: str) -> str:
    """The name with the number of its layer left open: ``layers.*.wq``."""
    found = split_layer(name)
    return f"{found[0]}*.{found[2]}" if found else name


def folded_name(names: Sequence[str]) -> str:
    """One name for those of repeated layers, with their number where there are several.

    >>> folded_name(["layers.0.wq"]), folded_name(["layers.0.wq", "layers.1.wq"])
    ('layers.0.wq', 'layers.*.wq × 2')
    """
    return names[0] if len(names) == 1 else f"{anonymous(names[0])} × {len(names)}"


def find_runs(program: Program, note: Callable[[Operation], str]) -> dict[str, Run]:
    """Operation name -> the run of at least two layers that it is in. Layers of different notes are different."""
    layers: dict[tuple[str, int], list[Operation]] = {}
    for op in program.operations:
        found = split_layer(op.name)
        if found:
            layers.setdefault(found[:2], []).append(op)
    marks = {key: _mark(program, ops, note) for key, ops in layers.items()}
    runs: dict[str, Run] = {}
    for scope, first, count in _stretches(marks):
        run = Run(scope, first, count)
        if count > 1:
            runs |= {op.name: run for k in range(first, first + count) for op in layers[scope, k]}
    return runs


def _stretches(marks: Mapping[tuple[str, int], object]) -> Iterable[tuple[str, int, int]]:
    scopes = dict.fromkeys(scope for scope, _ in marks)
    for scope in scopes:
        numbers = sorted(k for name, k in marks if name == scope)
        first = numbers[0]
        for k, after in zip(numbers, [*numbers[1:], None], strict=True):
            if after != k + 1 or marks[scope, after] != marks[scope, k]:
                yield scope, first, k - first + 1
                first = after if after is not None else 0


def _mark(program: Program, ops: list[Operation], note: Callable[[Operation], str]) -> tuple[str, ...]:
    """The layer's algebra with its own tensors numbered and the others by their type alone."""
    made = {op.output: f"%{k}" for k, op in enumerate(ops)}

    def stand_in(match: re.Match[str]) -> str:
        name = match[0]
        if name in made:
            return made[name]
        tensor = program.by_name.get(name)
        return f"@{tensor.dtype}{list(tensor.shape)}{tensor.role == 'param'}" if tensor else name

    return tuple(f"{op.dims}{_NAME.sub(stand_in, format_operation(op))}|{note(op)}" for op in ops)
