"""Grouped convolution on a GPU, channels-last, in half precision with f32 sums: forward and both gradients.

    y[n, p, q, k] = sum over r, s, j of
        x[n, p * stride_y + r * dilation_y - top, q * stride_x + s * dilation_x - left, group(k) * width + j]
        * w[k, r, s, j]

Arrays are CuPy's, torch's or any other library's (`runtime/array.py`), of shape [n, h, w, c] with the channels dense in
memory and any other strides; filters [k, r, s, c / groups] are dense. c / groups and k / groups are at most 128; filter
extents are 1 to 7, strides and dilations 1 or 2. Work is queued on `stream`, or on the current stream of the library
the first array is of; nothing waits for it. Results are new arrays of that library unless `out` is given; a call with
`out` (and `workspace`) allocates nothing, and can be captured in a graph once the same kernel has run before.

`stride`, `dilation`: one integer or (rows, columns). `padding`: one integer, (rows, columns), or (top, bottom, left,
right), where negative numbers cut off. Errors are those of `tapestry.kernels.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .convolution import operands, prepare
from .convolution.choices import GradientConfiguration
from .convolution.configuration import ForwardConfiguration
from .convolution.prepare import Fused
from .convolution.problem import ConvolutionProblem
from .errors import WrongShape, WrongValue
from .runtime.array import DeviceArray, array, identities
from .runtime.stream import current_stream, stream_pointer

Pair = int | Sequence[int]


class Again(NamedTuple):
    """A call that was made before: its launches, what gives the current stream, and what repeats them without Python.

    That is a function of a stream which returns 0, or the error of a launch that was refused.
    """

    steps: prepare.Steps
    current: Callable[[], int]
    repeat: Callable[[int], int] | None

    def run(self, stream: object) -> None:
        """Launch it once more."""
        queue = self.current() if stream is None else stream_pointer(stream)
        if self.repeat is None or self.repeat(queue):
            self.steps.run(queue)


_prepared: dict[Hashable, Again] = {}
# For calls that allocate: a loop whose allocator hands out the same memory again pays for the preparation once.
_forward_steps = lru_cache(maxsize=prepare.REMEMBERED)(prepare.forward_steps)
_input_gradient_steps = lru_cache(maxsize=prepare.REMEMBERED)(prepare.input_gradient_steps)
_weight_gradient_steps = lru_cache(maxsize=prepare.REMEMBERED)(prepare.weight_gradient_steps)


def call_key(where: str, arrays: tuple[Any, ...], *settings: Any) -> Hashable:
    """What a call depends on; False where no key can be made of it (kinds of arrays not known by heart)."""
    try:
        return (where, settings, *[None if x is None else identities[type(x)](x) for x in arrays])
    except (TypeError, RuntimeError):  # torch: a sparse tensor has no address
        return False


def recalled(key: Hashable) -> Again | None:
    """The call that was made with a key before; None of one that is no key, as settings may be lists."""
    try:
        return _prepared.get(key)
    except TypeError:
        return None


def remember(key: Hashable, steps: prepare.Steps, like: DeviceArray) -> None:
    """Keep a call for its key, at the cost of the oldest where there are many; one that is no key is not kept."""
    if not key:
        return
    try:
        hash(key)
    except TypeError:
        return
    if len(_prepared) >= prepare.REMEMBERED:
        _prepared.pop(next(iter(_prepared)), None)
    _prepared[key] = Again(steps, current_stream(like), _repeated(steps) if like.framework == "torch" else None)


def forget() -> None:
    """Every call is prepared anew: what is chosen has changed."""
    _prepared.clear()
    for steps in (_forward_steps, _input_gradient_steps, _weight_gradient_steps):
        steps.cache_clear()


def _repeated(steps: prepare.Steps) -> Callable[[int], int] | None:
    """What repeats calls of torch tensors, once the extension is there; arrays have other keys from then on."""
    from .tensors import native_calls

    native_calls.begin()
    return native_calls.repeated(steps.launches)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
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
    """activation(conv(x, w) * scale + bias + residual) -> [n, p, q, k].

    `scale` and `bias` are f32 [k], `residual` is like the result; `activation` is relu, silu, gelu or hardswish.
    """
    arrays = (x, w, out, bias, scale, residual)
    key = out is not None and call_key("conv2d", arrays, groups, stride, padding, dilation, activation, configuration)
    if key and (again := recalled(key)):
        again.run(stream)
        return out
    given, taps = operands.images(x, "x", "conv2d"), array(w, "w")
    problem = problem_of(given, taps.shape, groups, stride, padding, dilation)
    fused = Fused.of(scale, bias, residual, activation)
    queue = stream_pointer(stream, given)
    result = operands.given_or_empty(out, x, given, problem.output_shape, given.dtype, queue)
    steps = _forward_steps(problem, given, taps, array(result, "out"), fused, configuration)
    steps.run(queue)
    remember(key, steps, given)
    return result


def conv2d_input_gradient(
    dy: Any,
    w: Any,
    *,
    shape: Sequence[int],
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    out: Any = None,
    stream: object = None,
    configuration: ForwardConfiguration | None = None,
) -> Any:
    """The gradient dx [n, h, w, c] of a convolution of an input of `shape`, from dy [n, p, q, k] and w.

    `configuration` is one of the walk over dy (`convolution.input_gradient.walk`).
    """
    where = "conv2d_input_gradient"
    key = out is not None and call_key(where, (dy, w, out), groups, stride, padding, dilation, (*shape,), configuration)
    if key and (again := recalled(key)):
        again.run(stream)
        return out
    problem, given, taps = input_gradient_problem(dy, w, shape, groups, stride, padding, dilation, where)
    queue = stream_pointer(stream, given)
    result = operands.given_or_empty(out, dy, given, problem.input_shape, given.dtype, queue)
    steps = _input_gradient_steps(problem, given, taps, array(result, "out"), configuration)
    steps.run(queue)
    remember(key, steps, given)
    return result


def conv2d_weight_gradient(
    x: Any,
    dy: Any,
    *,
    filter: tuple[int, int],
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    partial: bool = False,
    out: Any = None,
    workspace: Any = None,
    stream: object = None,
    configuration: GradientConfiguration | None = None,
) -> Any:
    """The gradient dw [k, r, s, c / groups] of a filter of extents (r, s), from x [n, h, w, c] and dy [n, p, q, k].

    The order of the sums is fixed: a configuration gives the same bits every time. With `partial` the result is in f32,
    to be added to those of other shards. `workspace` holds the sums of parts of the image: any array on the GPU with
    `weight_gradient_workspace` bytes, for small problems none; it is allocated where it is needed and none is given.
    """
    where, arrays = "conv2d_weight_gradient", (x, dy, out, workspace)
    key = out is not None and call_key(
        where, arrays, groups, stride, padding, dilation, (*filter, partial), configuration
    )
    if key and (again := recalled(key)):
        again.run(stream)
        return out
    problem, given, other = weight_gradient_problem(x, dy, filter, groups, stride, padding, dilation, where)
    chosen = configuration or prepare.weight_gradient_choice(problem, given, other)
    queue = stream_pointer(stream, given)
    size = prepare.workspace_bytes(problem, chosen)
    dtype = "f32" if partial else given.dtype
    result = operands.given_or_empty(out, x, given, problem.weight_shape, dtype, queue)
    if workspace is None and size:
        workspace, key = operands.empty(x, given, (size,), "uint8", queue), False  # another the next time
    room = array(workspace, "workspace") if size else None
    steps = _weight_gradient_steps(problem, given, other, array(result, "out"), dtype, room, chosen)
    steps.run(queue)
    remember(key, steps, given)
    return result


def weight_gradient_workspace(
    x: Any,
    dy: Any,
    *,
    filter: tuple[int, int],
    groups: int,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    configuration: GradientConfiguration | None = None,
) -> int:
    """Bytes of `workspace` that `conv2d_weight_gradient` wants for these arrays."""
    problem, given, other = weight_gradient_problem(
        x, dy, filter, groups, stride, padding, dilation, "conv2d_weight_gradient"
    )
    return prepare.workspace_bytes(problem, configuration or prepare.weight_gradient_choice(problem, given, other))


def input_gradient_problem(
    dy: Any, w: Any, shape: Sequence[int], groups: int, stride: Pair, padding: Pair, dilation: Pair, where: str
) -> tuple[ConvolutionProblem, DeviceArray, DeviceArray]:
    """The convolution whose input of `shape` a gradient is asked for, with dy and w as described arrays."""
    given = operands.images(dy, "dy", where)
    extents = tuple(int(extent) for extent in shape)
    if len(extents) != 4:
        raise WrongShape("shape of the input", where=where, expected="(n, h, w, c)", came=extents)
    taps = array(w, "w")
    like_x = given._replace(shape=extents)
    return problem_of(like_x, taps.shape, groups, stride, padding, dilation), given, taps


def weight_gradient_problem(
    x: Any, dy: Any, extents: tuple[int, int], groups: int, stride: Pair, padding: Pair, dilation: Pair, where: str
) -> tuple[ConvolutionProblem, DeviceArray, DeviceArray]:
    """The convolution whose filter's gradient is asked for, with x and dy as described arrays."""
    given, other = operands.images(x, "x", where), operands.images(dy, "dy", where)
    c, k, (r, s) = given.shape[3], other.shape[3], extents
    taps = (k, r, s, c // groups if type(groups) is int and groups > 0 else 0)
    return problem_of(given, taps, groups, stride, padding, dilation), given, other


def problem_of(
    x: DeviceArray, w: tuple[int, ...], groups: int, stride: Pair, padding: Pair, dilation: Pair
) -> ConvolutionProblem:
    if type(groups) is not int or groups < 1:
        raise WrongValue("groups", where="conv2d", expected="a positive integer", came=repr(groups))
    if not (type(stride) is type(padding) is type(dilation) is int):
        stride, padding, dilation = (v if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation))
    return _known_problem(x.shape, w, x.dtype, groups, stride, padding, dilation)


@lru_cache(maxsize=4096)
def _known_problem(
    x: tuple[int, ...],
    w: tuple[int, ...],
    dtype: str,
    groups: int,
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
) -> ConvolutionProblem:
    if len(w) != 4:
        raise WrongShape("not a filter", where="w", expected="[k, r, s, c / groups]", came=w)
    steps = (_pair(stride, "stride"), _pair(dilation, "dilation"), _sides(padding))
    n, h, width, c = x
    problem = ConvolutionProblem(n, h, width, c, groups, w[1], w[2], *steps, dtype, channels_out=w[0])
    if w != problem.weight_shape:
        raise WrongShape("w has the wrong shape", where="conv2d", expected=problem.weight_shape, came=w)
    return problem


def _pair(value: int | tuple[int, ...], what: str) -> tuple[int, int]:
    if isinstance(value, int):
        return (value, value)
    if len(value) != 2:
        raise WrongValue(what, where="conv2d", expected="one integer or (rows, columns)", came=value)
    return (value[0], value[1])


def _sides(value: int | tuple[int, ...]) -> tuple[int, int, int, int]:
    if isinstance(value, int):
        return (value, value, value, value)
    if len(value) == 2:
        return (value[0], value[0], value[1], value[1])
    if len(value) != 4:
        expected = "one integer, (rows, columns) or (top, bottom, left, right)"
        raise WrongValue("padding", where="conv2d", expected=expected, came=value)
    return (value[0], value[1], value[2], value[3])
