"""Whole programs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ..program import Block, Program
from .choices import Choices, Draw
from .growing import Growing, Size
from .layers import Layers
from .places import EVERY_KIND
from .shapes import KINDS


@st.composite
def _programs(draw: Draw, max_ops: int, size: Size) -> Program:
    ch = Choices(draw)
    if ch.chance(25):
        return Layers(ch, size).program(max_ops)
    g = Growing(ch, size)
    wanted = ch.integer(1, max_ops)
    while len(g.operations) < wanted:
        ch.pick(EVERY_KIND if size.wide else KINDS)(g)
    return _finished(g)


def programs(max_ops: int = 4, largest: int = 9, *, wide: bool = False) -> st.SearchStrategy[Program]:
    """Valid small programs of about ``max_ops`` operations; a quarter are layers of the standard operations.

    They cover elementwise chains with broadcasts, folds (over triangles too, and to several results), contractions,
    windows with stride, dilation and uneven padding, stencils, composed views, attention, the common dtypes, constants,
    params, states, tensors with several readers, several outputs, and scalars. With ``wide`` also scans, lookups in
    tables and sums at places that data say, and every dtype (floats of 8 bits as what comes in). Extents are 1 to
    ``largest`` (views and windows somewhat more). Evaluating one takes milliseconds with the default. Float programs
    are well conditioned for inputs in [-1, 1], which is what `inputs_for` draws: see `assert_close`.
    """
    return _programs(max_ops, Size(largest, wide))


def _finished(g: Growing) -> Program:
    """Sinks come out, and some other values; sometimes a value becomes the next state of an input like it."""
    read = {name for op in g.operations for name in op.operands}
    written = [op.output for op in g.operations]
    extra = g.ch.pick(written)
    hidden = {op.output for op in g.operations if isinstance(op.body, Block)}
    outputs = tuple(name for name in written if name not in read or (name == extra and name not in hidden))
    tensors, states = _with_state(g, outputs)
    return Program("generated", tuple(tensors), tuple(g.operations), outputs, states)


def _with_state(g: Growing, outputs: tuple[str, ...]) -> tuple[list[Any], tuple[tuple[str, str], ...]]:
    tensors = list(g.tensors)
    values = {t.name: t for t in tensors if t.name in outputs}
    for k, tensor in enumerate(tensors):
        like = [v.name for v in values.values() if (v.dtype, v.shape) == (tensor.dtype, tensor.shape)]
        if tensor.role == "input" and like and g.ch.chance(50):
            tensors[k] = type(tensor)(tensor.name, tensor.dtype, tensor.shape, "state")
            return tensors, ((tensor.name, like[0]),)
    return tensors, ()
