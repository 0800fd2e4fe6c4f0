"""Programs as JSON: names, shapes and readable algebra; exact both ways.

    {"format": "tapestry.program/1", "name": "net", "bindings": [["n", 8]],
     "tensors": [{"name": "x", "dtype": "f32", "shape": [8, 3], "role": "input", "axes": ["n", "c"]}, ...],
     "operations": [{"name": "matmul", "dims": "n=8 k=4 c=3", "write": "y[n, k]", "monoid": "sum", "over": "c",
                     "body": "x[n, c] * w[c, k]"}, ...],
     "outputs": ["y"], "states": [], "pins": [], "meta": {}}

A dimension marked ``!`` may not be cut. Order is significant in lists only, so a writer may sort the keys of objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from .errors import TapestryError, UsageError
from .notation import format_expr, format_read
from .parse import parse_bound, parse_expr, parse_read
from .program import Block, Dim, Operation, Pin, Program, Tensor
from .verify import verify

FORMAT = "tapestry.program/1"
T = TypeVar("T")


def program_to_json(program: Program) -> dict[str, Any]:
    """The program as plain dicts, lists, strings and numbers; deterministic. Non-finite numbers are strings."""
    return {
        "format": FORMAT,
        "name": program.name,
        "bindings": [[name, _plain(value)] for name, value in program.bindings],
        "tensors": [_tensor(tensor) for tensor in program.tensors],
        "operations": [_operation(op) for op in program.operations],
        "outputs": list(program.outputs),
        "states": [list(pair) for pair in program.states],
        "pins": [
            {"target": p.target, "pattern": p.pattern, "cuts": [list(cut) for cut in p.cuts], "kind": p.kind}
            | ({"forbid": True} if p.forbid else {})
            for p in program.pins
        ],
        "meta": dict(program.meta),
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "role": tensor.role,
    }
    found["axes"] = list(tensor.axes)
    if tensor.data is not None:
        found["data"] = [_plain(value) for value in tensor.data]
    return found


def _operation(op: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": op.name,
        "dims": " ".join(f"{d.name}={d.extent}{'' if d.cut else '!'}" for d in op.dims),
    }
    found["write"] = f"{op.output}[{', '.join(map(str, op.write))}]"
    if op.monoid is not None or op.reduce_dims:
        found |= {"monoid": op.monoid, "over": " ".join(op.reduce_dims)}
    if isinstance(op.body, Block):
        attributes = [[name, _plain(value)] for name, value in op.body.attributes]
        found["body"] = {
            "kernel": op.body.kernel,
            "reads": [format_read(r) for r in op.body.reads],
            "attributes": attributes,
        }
    else:
        found["body"] = format_expr(op.body)
    if op.where:
        found["where"] = [str(bound) for bound in op.where]
    return found | {key: value for key, value in (("group", op.group), ("source", op.source)) if value}


def _plain(value: Any) -> Any:
    """JSON has no infinities and no tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def _value(value: Any, place: str) -> Any:
    if isinstance(value, list):
        return tuple(_value(v, place) for v in value)
    if isinstance(value, dict) and set(value) == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    return _is(value, (bool, int, float, str, type(None)), place)


def program_from_json(data: Mapping[str, Any]) -> Program:
    """The program that `program_to_json` wrote, verified.

    Raises UsageError naming the place of anything missing, unknown or malformed, and ProgramError for a program that
    means nothing.
    """
    fields = _Fields(data, "program")
    if fields.take("format", str) != FORMAT:
        raise UsageError(
            "not a program of this version", where="program.format", sides={"reads": data["format"], "knows": FORMAT}
        )
    program = Program(
        fields.take("name", str),
        fields.items("tensors", _read_tensor),
        fields.items("operations", _read_operation),
        fields.items("outputs", lambda v, at: cast(str, _is(v, (str,), at))),
        fields.items("states", lambda v, at: cast("tuple[str, str]", _pair(v, at, (str,)))),
        fields.items("pins", _read_pin),
        fields.items("bindings", _binding),
        {str(k): cast(str, _is(v, (str,), f"program.meta.{k}")) for k, v in fields.take("meta", dict).items()},
    )
    fields.done()
    verify(program)
    return program


def _is(value: Any, kinds: tuple[type, ...], place: str) -> Any:
    """The value, if it is of one of the kinds (a bool is not an integer)."""
    if type(value) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{_short(value)} is not of type {wanted}", where=place)
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Fields:
    """An object whose fields are taken one by one; what is left over is an error."""

    def __init__(self, data: Any, place: str) -> None:
        self.data = dict(data) if isinstance(data, Mapping) else _is(data, (dict,), place)
        self.place = place

    def take(self, name: str, *kinds: type, default: Any = ...) -> Any:
        if name not in self.data:
            if default is ...:
                raise UsageError(f"{name} is missing", where=self.place)
            return default
        return _is(self.data.pop(name), kinds, f"{self.place}.{name}")

    def items(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        values = self.take(name, list, tuple)
        return tuple(read(value, f"{self.place}.{name}[{k}]") for k, value in enumerate(values))

    def done(self) -> None:
        if self.data:
            raise UsageError(f"unknown fields {', '.join(map(str, self.data))}", where=self.place)


def _at(place: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except TapestryError as error:
        raise UsageError(error.what, where=place, sides=error.sides, hint=error.hint) from None


def _pair(value: Any, place: str, kinds: tuple[type, ...]) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UsageError(f"{_short(value)} is not a pair", where=place)
    return _is(value[0], (str,), place), _is(value[1], kinds, place)


def _binding(value: Any, place: str) -> tuple[str, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UsageError(f"{_short(value)} is not a pair", where=place)
    return _is(value[0], (str,), place), _value(value[1], place)


def _read_tensor(data: Any, place: str) -> Tensor:
    fields = _Fields(data, place)
    values = fields.take("data", list, tuple, default=None)
    tensor = Tensor(
        fields.take("name", str),
        fields.take("dtype", str),
        fields.items("shape", lambda v, at: cast(int, _is(v, (int,), at))),
        fields.take("role", str),
        fields.items("axes", lambda v, at: cast(str, _is(v, (str,), at))),
        None if values is None else tuple(_value(v, f"{place}.data[{k}]") for k, v in enumerate(values)),
    )
    fields.done()
    return tensor


def _read_operation(data: Any, place: str) -> Operation:
    fields = _Fields(data, place)
    write = _at(f"{place}.write", parse_read, fields.take("write", str))
    texts = fields.take("where", list, tuple, default=())
    body = fields.take("body", str, dict)
    op = Operation(
        fields.take("name", str),
        tuple(_dim(token, f"{place}.dims") for token in fields.take("dims", str).split()),
        write.tensor,
        write.index,
        _at(f"{place}.body", parse_expr, body) if isinstance(body, str) else _block(body, f"{place}.body"),
        tuple(fields.take("over", str, default="").split()),
        fields.take("monoid", str, type(None), default=None),
        tuple(_at(f"{place}.where", parse_bound, _is(t, (str,), f"{place}.where")) for t in texts),
        fields.take("group", str, default=""),
        fields.take("source", str, default=""),
    )
    fields.done()
    if write.guard:
        raise UsageError("a write has no guard", where=f"{place}.write")
    return op


def _dim(token: str, place: str) -> Dim:
    name, _, extent = token.partition("=")
    cut = not extent.endswith("!")
    digits = extent if cut else extent[:-1]
    if not name or not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise UsageError(f"{token[:60]!r} is not a dimension", where=place, hint="n=8, or n=8! where it may not be cut")
    return Dim(name, int(digits), cut)


def _block(data: Any, place: str) -> Block:
    fields = _Fields(data, place)
    reads = fields.items("reads", lambda v, at: _at(at, parse_read, _is(v, (str,), at)))
    block = Block(fields.take("kernel", str), reads, fields.items("attributes", _binding))
    fields.done()
    return block


def _read_pin(data: Any, place: str) -> Pin:
    fields = _Fields(data, place)
    cuts = fields.items("cuts", lambda v, at: _pair(v, at, (str, type(None))))
    pin = Pin(fields.take("target", str), fields.take("pattern", str), cuts, fields.take("kind", str))
    pin = replace(pin, forbid=fields.take("forbid", bool, default=False))
    fields.done()
    return pin


__all__ = ["FORMAT", "program_from_json", "program_to_json"]
