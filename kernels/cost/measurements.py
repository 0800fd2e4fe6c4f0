"""The committed measurements: what was timed, with what configuration, in how many microseconds between events.

Layers of timm's models (`timm.` in their names) were timed between kernels of torch's in a CUDA graph, up to five cuts
of each: 1.7 us are added, what 224 cuts that were timed both ways took longer between events in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, get_args

from ..convolution.configuration import ForwardConfiguration
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import WeightGradientConfiguration
from .model import FAMILY, Configuration, Pass

LATER: list[Any] = [(1, 1), None, None]  # what older tables leave out: cell, taps, channels_out


@dataclass(frozen=True)
class Measured:
    """One problem and pass: medians in microseconds, one for each configuration that was tried."""

    name: str
    what: Pass
    problem: ConvolutionProblem
    configurations: tuple[Configuration, ...]
    microseconds: tuple[float, ...]


@dataclass(frozen=True)
class Table:
    """Everything measured on one GPU. `copy_bytes_per_s` is the copy rate of the same session."""

    gpu: str
    date: str
    copy_bytes_per_s: float
    measured: tuple[Measured, ...]


def table() -> Table:
    """The measurements as shipped."""
    return from_json(_text())


def _text() -> str:
    return files(__package__).joinpath("data/measurements.json").read_text(encoding="utf-8")


@lru_cache(maxsize=4096)
def microseconds(problem: ConvolutionProblem, what: Pass) -> dict[Configuration, float]:
    """As shipped, by configuration, of whichever half precision: they take the same time. Not to be changed."""
    kind = _kind(what)
    return {kind(*cut): time for *cut, time in _rows().get((_key(astuple(problem)), what), ())}


@cache
def _rows() -> dict[tuple[tuple[Any, ...], Pass], list[list[Any]]]:
    """The rows of all problems, as the text has them: a process asks for a few, and waits for this first."""
    found: dict[tuple[tuple[Any, ...], Pass], list[list[Any]]] = {}
    for entry in json.loads(_text())["measured"]:
        found.setdefault((_key(entry["problem"]), entry["pass"]), []).extend(entry["rows"])
    return found


def _key(values: Sequence[Any]) -> tuple[Any, ...]:
    """What tells problems from one another, but for their type, of what `problem_of` takes."""
    channels, later = values[3], list(values[11:])
    cell, taps, out = later + LATER[len(later) :]
    many = (*values[:10], cell, taps, None if out == channels else out)
    return tuple([tuple(value) if type(value) is list else value for value in many])


def from_json(text: str) -> Table:
    """Raises ValueError or KeyError for a text that is no table, BadConvolution for problems that are none."""
    document = json.loads(text)
    measured = tuple(_measured(entry) for entry in document["measured"])
    return Table(document["gpu"], document["date"], document["copy_bytes_per_s"], measured)


def problem_of(values: Sequence[Any]) -> ConvolutionProblem:
    """The problem of which `dataclasses.astuple` gave the values, from JSON too.

    A table may be older than cells of outputs, and than other channels out than in.
    """
    key = _key(values)
    given: tuple[Any, ...] = (*key[:10], values[10], *key[10:])
    return ConvolutionProblem(*given)


def _measured(entry: dict[str, Any]) -> Measured:
    problem, what = problem_of(entry["problem"]), entry["pass"]
    if what not in get_args(Pass):
        raise ValueError(f"no pass {what!r}: one of {get_args(Pass)}")
    kind, rows = _kind(what), entry["rows"]
    return Measured(
        entry["name"], what, problem, tuple(kind(*row[:-1]) for row in rows), tuple(row[-1] for row in rows)
    )


def _kind(what: Pass) -> type[Any]:
    return ForwardConfiguration if FAMILY[what] == "forward" else WeightGradientConfiguration


def to_json(table: Table) -> str:
    """One line a problem, so that changes can be read."""
    head = {"gpu": table.gpu, "date": table.date, "copy_bytes_per_s": table.copy_bytes_per_s}
    lines = ",\n".join(json.dumps(_entry(item), separators=(",", ":")) for item in table.measured)
    return f'{json.dumps(head)[:-1]}, "measured": [\n{lines}\n]}}\n'


def _entry(item: Measured) -> dict[str, Any]:
    rows = [[*astuple(cut), time] for cut, time in zip(item.configurations, item.microseconds, strict=True)]
    return {"name": item.name, "pass": item.what, "problem": list(astuple(item.problem)), "rows": rows}


def merged(first: Sequence[Measured], second: Sequence[Measured]) -> list[Measured]:
    """Both, the second's times where a configuration was timed twice."""
    times: dict[tuple[str, Pass, ConvolutionProblem], dict[Configuration, float]] = {}
    for item in (*first, *second):
        known = times.setdefault((item.name, item.what, item.problem), {})
        known.update(zip(item.configurations, item.microseconds, strict=True))
    return [Measured(*key, tuple(found), tuple(found.values())) for key, found in times.items()]
