"""Pins in a TOML file beside the program:

[[pin]]
op = "conv2d*"              # or tensor = "w1": a name, or a pattern with * and ?
cut = { mesh0 = "n" }       # mesh axis = dimension of the operation, or axis of the tensor
whole = ["mesh1"]           # mesh axes along which it is not cut
kind = "block"              # or "zigzag", "cyclic", "balanced"; "block" where it is missing

[[forbid]]                  # what must not be, all of it together, whatever the kind of cut
op = "layers.*.gate"
cut = { mesh0 = "f" }
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from ...program import Pin, PinKind
from ...space.cuts import KINDS
from ..machine.toml_table import TomlTable, read_toml


def load_pins(path: Path) -> tuple[Pin, ...]:
    """The pins of a file, in order, and then what it forbids. Raises UsageError with file, table and key."""
    top = read_toml(path)
    pins = tuple(_pin(table, forbid=False) for table in top.tables("pin"))
    pins += tuple(_pin(table, forbid=True) for table in top.tables("forbid"))
    top.close()
    return pins


def _pin(table: TomlTable, *, forbid: bool) -> Pin:
    if ("op" in table) == ("tensor" in table):
        raise table.error("op", "either op or tensor", "both" if "op" in table else None)
    target: Literal["op", "tensor"] = "op" if "op" in table else "tensor"
    pattern = table.text(target)
    cuts = dict(table.text_pairs("cut"))
    whole = table.texts("whole")
    if twice := [axis for axis in whole if axis in cuts]:
        raise table.error("whole", "mesh axes that `cut` does not name", twice)
    kind = cast("PinKind", table.choice("kind", tuple(KINDS))) if "kind" in table else "block"
    if forbid and kind != "block":
        raise table.error("kind", "cuts to forbid, of any kind", kind)
    table.close(("op", "tensor", "cut", "whole", "kind"))
    if not (cuts or whole):
        raise table.error("cut", "what is cut, or `whole`: along which mesh axes nothing is", None)
    return Pin(target, pattern, (*cuts.items(), *((axis, None) for axis in whole)), kind, forbid)
