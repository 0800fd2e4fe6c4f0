"""Block kernels in NumPy, by name: each binds the pieces of one task that share their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...program import Block
from ..device import Runner, Stored
from .attention import bind_attention, identity_state
from .attention_slopes import bind_slopes
from .declared import bind_declared
from .maps import Context
from .pieces import Piece

BlockBinding = Callable[[Block, Sequence[Piece], Context, Stored], list[Runner]]


def _attention(block: Block, boxes: Sequence[Piece], context: Context, out: Stored) -> list[Runner]:
    scale = float(block.attrs["scale"])
    cleared = [identity_state(box, context, out) for box in boxes]
    return [*cleared, *(bind_attention(box, scale, context, out) for box in boxes)]


def bind_block(block: Block, boxes: Sequence[Piece], context: Context, out: Stored) -> list[Runner]:
    """The pieces of a block operation that share their output."""
    return BLOCKS.get(block.kernel, bind_declared)(block, boxes, context, out)


BLOCKS: dict[str, BlockBinding] = {
    "attention": _attention,
    **{f"attention_slopes_{side}": bind_slopes for side in "qkv"},
}
