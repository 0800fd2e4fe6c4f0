"""Convolutions of one shard of an image's rows, its halo rows in buffers of their own: nothing is concatenated.

The shard is [n, h, w, c]; `above` and `below` are the neighbours' rows next to it, [n, rows, w, c], or None at an edge
of the image. `padding` counts them: with a 3 x 3 filter an inner shard has padding 1 and one halo row on either side.
Rows of the result that need no halo are computed first; the others after the event `arrived` (CuPy's, torch's or a
handle), which is recorded when the halo is there. The rest is as in `conv2d`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .conv2d import Pair, input_gradient_problem, problem_of, weight_gradient_problem
from .convolution import operands, sharded, weight_gradient_shard
from .convolution.configuration import ForwardConfiguration
from .convolution.prepare import Fused
from .convolution.sharded import Halo
from .convolution.weight_gradient_configuration import WeightGradientConfiguration
from .runtime.array import array
from .runtime.stream import stream_pointer


def conv2d_shard(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    above: Any = None,
    below: Any = None,
    arrived: object = None,
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    scale: Any = None,
    activation: str | None = None,
    residual: Any = None,
    out: Any = None,
    stream: object = None,
    configuration: ForwardConfiguration | None = None,
) -> Any:
    """activation(conv(x, w) * scale + bias + residual) of a shard -> [n, p, q, k]."""
    given, taps = operands.images(x, "x", "conv2d_shard"), array(w, "w")
    problem = problem_of(given, taps.shape, groups, stride, padding, dilation)
    fused = Fused.of(scale, bias, residual, activation)
    queue = stream_pointer(stream, given)
    result = operands.given_or_empty(out, x, given, problem.output_shape, given.dtype, queue)
    steps = sharded.forward_steps(problem, given, _halo(above, below), taps, array(result, "out"), fused, configuration)
    steps.run(queue, arrived)
    return result


def conv2d_input_gradient_shard(
    dy: Any,
    w: Any,
    *,
    shape: Sequence[int],
    above: Any = None,
    below: Any = None,
    arrived: object = None,
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    out: Any = None,
    stream: object = None,
) -> Any:
    """The shard dx [n, h, w, c] of `shape` of an input gradient, from the shard dy [n, p, q, k] and its halo rows.

    `padding` is the forward one, which makes p output rows of the h rows of this shard.
    """
    problem, given, taps = input_gradient_problem(
        dy, w, shape, groups, stride, padding, dilation, "conv2d_input_gradient_shard"
    )
    queue = stream_pointer(stream, given)
    result = operands.given_or_empty(out, dy, given, problem.input_shape, given.dtype, queue)
    steps = sharded.input_gradient_steps(problem, given, _halo(above, below), taps, array(result, "out"), None)
    steps.run(queue, arrived)
    return result


def conv2d_weight_gradient_shard(
    x: Any,
    dy: Any,
    *,
    filter: tuple[int, int],
    above: Any = None,
    below: Any = None,
    arrived: object = None,
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    partial: bool = True,
    out: Any = None,
    workspace: Any = None,
    stream: object = None,
    configuration: WeightGradientConfiguration | None = None,
) -> Any:
    """This shard's part of the filter's gradient [k, r, s, c / groups], from its rows of x and dy and x's halo rows.

    In f32, to be added to the other shards' parts, unless `partial` is false. The order of the sums is fixed. All of
    the shard's own rows are summed before `arrived` is waited for.
    """
    problem, given, other = weight_gradient_problem(
        x, dy, filter, groups, stride, padding, dilation, weight_gradient_shard.WHERE
    )
    halo, queue = _halo(above, below), stream_pointer(stream, given)
    chosen = configuration or weight_gradient_shard.choice(problem, given, halo, other)
    size = weight_gradient_shard.workspace_bytes(problem, chosen, *halo.rows)
    dtype = "f32" if partial else given.dtype
    result = operands.given_or_empty(out, x, given, problem.weight_shape, dtype, queue)
    if workspace is None and size:
        workspace = operands.empty(x, given, (size,), "uint8", queue)
    space = array(workspace, "workspace") if size else None
    steps = weight_gradient_shard.steps(problem, given, halo, other, array(result, "out"), dtype, space, chosen)
    steps.run(queue, arrived)
    return result


def _halo(above: Any, below: Any) -> Halo:
    return Halo(
        None if above is None else operands.images(above, "above", "conv2d_shard"),
        None if below is None else operands.images(below, "below", "conv2d_shard"),
    )
