"""The state of attention as operations that differentiate: the scores and weights that its kernel never stores.

    x[t, h, s] = scale * sum over c of q[t, h, c] k[s, g, c]        w = exp(x - m), from the m of the state
    o[t, h, c] = sum over s of w v[s, g, c]                         l[t, h] = sum over s of w

m counts as a constant: the result o / l is the same for every m (Dao et al., arXiv:2205.14135, appendix B.2).
"""

from __future__ import annotations

from dataclasses import replace

from ..dsl.trace import Trace
from ..expr import Affine, Const, Inside, Read
from ..expr.derivatives import call
from ..program import Block, Dim, Operation
from ..space.projection import everywhere
from .scalar import times

LEAST = -3.0e38  # about the least number of f32


def pieces(trace: Trace, op: Operation) -> list[Operation]:
    """Scores and weights, computed again, and the two parts of the state that they make up."""
    assert isinstance(op.body, Block)
    q, k, v = (replace(read, guard=()) for read in op.body.reads)
    *outer, s, c = op.dims
    width = c.extent - 2
    inner = Dim(c.name, width)
    places = tuple(Affine.dim(dim.name) for dim in (*outer, s))
    scores = trace.compute("scores", [*outer, s, inner], call("multiply", q, k), reduce_dims=[c.name], monoid="sum",
                           dtype=trace.dtypes[op.output], anonymous=True)  # fmt: skip
    largest = Read(op.output, (*places[:-1], Affine.of(width + 1)))
    score = times(Const(op.body.attrs["scale"]), Read(scores.key, places))
    weight = call("exp", call("subtract", score, largest))
    if not everywhere(op.extents, [dim.name for dim in outer], op.where):  # m is -inf where no key is seen
        weight = call("exp", call("subtract", score, call("maximum", largest, Const(LEAST))))
    if op.where:
        weight = call("where", Inside(op.where), weight, Const(0.0))
    weights = trace.compute("weights", [*outer, s], weight, dtype=trace.dtypes[op.output], anonymous=True)
    drafts = {draft.operation.output: draft.operation for draft in trace.ops[-2:]}
    read = Read(weights.key, places)
    share = replace(op, monoid="sum", dims=(*outer, s, inner), body=call("multiply", read, v))
    total = replace(op, monoid="sum", dims=(*outer, s), body=read, write=(*places[:-1], Affine.of(width)))
    return [drafts[scores.key], drafts[weights.key], share, total]
