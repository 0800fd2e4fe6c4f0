"""A convolution of one shard of an image's rows: its own rows in one buffer, its neighbours' halo rows in two more.

Nothing is concatenated. Halo rows stand where padding would be: of the `padding` of the shard's problem the rows next
to the image are read from the upper buffer, the rest is zero; likewise below. Output rows that read no halo
(`interior`) are launched first; the others (`boundary`) when the halo has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import WrongShape, WrongType, WrongValue
from ..runtime.array import DeviceArray
from ..runtime.compiler import Recipe
from . import direct, prepare
from .configuration import ForwardConfiguration, legal
from .input_gradient import walk
from .launch import Rows, Taps, View
from .operands import fetchable, filters, view
from .problem import ConvolutionProblem

if TYPE_CHECKING:
    from ..runtime.module import Prepared


class Halo(NamedTuple):
    """The rows of the neighbouring shards: [n, rows, w, c], or None at an edge of the image."""

    above: DeviceArray | None = None
    below: DeviceArray | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """How many there are above and below."""
        return (self.above.shape[1] if self.above else 0, self.below.shape[1] if self.below else 0)


@dataclass(frozen=True)
class ShardSteps:
    """The launches of a shard: those that need no halo, and those that do."""

    interior: prepare.Steps
    boundary: prepare.Steps

    def run(self, stream: int, arrived: object = None) -> None:
        """Queue the interior; then, behind the event `arrived` where one is given, the boundary."""
        self.interior.run(stream)
        if arrived is not None:
            from ..runtime.bindings import runtime

            runtime().streamWaitEvent(stream, event_pointer(arrived))
        self.boundary.run(stream)


def event_pointer(event: object) -> int:
    """The handle of a CUDA event: an integer, CuPy's (`ptr`) or torch's (`cuda_event`)."""
    for name in ("ptr", "cuda_event"):
        if hasattr(event, name):
            return int(getattr(event, name))
    if isinstance(event, int):
        return event
    raise WrongType(
        "not a CUDA event",
        where="arrived",
        expected="a CuPy event, a torch.cuda.Event, or a handle as an int",
        came=f"{type(event).__name__} {event!r:.80}",
    )


def interior(problem: ConvolutionProblem, above: int, below: int) -> tuple[int, int]:
    """The rows of cells [begin, end) whose windows touch none of the halo rows; begin == end where there are none."""
    top, stride, span = problem.padding[0], problem.stride[0], (problem.r - 1) * problem.dilation[0] + 1
    begin = min(problem.p, max(0, -(-top // stride))) if above else 0
    end = min(problem.p, (problem.h - span + top) // stride + 1) if below else problem.p
    return begin, max(begin, end)


def parts(problem: ConvolutionProblem, above: int, below: int) -> tuple[list[Rows], list[Rows]]:
    """The row ranges of the interior and of the boundary, empty ones left out."""
    begin, end = interior(problem, above, below)
    inner, outer = [Rows(begin, end)], [Rows(0, begin, above, below), Rows(end, problem.p, above, below)]
    return [rows for rows in inner if rows.begin < rows.end], [rows for rows in outer if rows.begin < rows.end]


@lru_cache(maxsize=prepare.REMEMBERED)
def forward_steps(
    problem: ConvolutionProblem,
    x: DeviceArray,
    halo: Halo,
    w: DeviceArray,
    out: DeviceArray,
    fused: prepare.Fused,
    configuration: ForwardConfiguration | None,
) -> ShardSteps:
    """The forward pass of a shard; `problem` is that of its own rows, its padding counts the halo rows."""
    where = "conv2d_shard"
    check(halo, problem.input_shape, x, where)
    pointers = prepare.checked(problem, x, w, fused, where)
    added = view(fused.residual, "residual", where) if fused.residual else None
    inputs, taps = _inputs(x, halo, where), Taps.plain(problem.r, problem.s)
    pass_ = Pass(problem, taps, inputs, view(out, "out", where), added, pointers, "forward", fused.flags)
    return _steps(pass_, pass_, configuration, halo, x.device)


@lru_cache(maxsize=prepare.REMEMBERED)
def input_gradient_steps(
    problem: ConvolutionProblem,
    dy: DeviceArray,
    halo: Halo,
    w: DeviceArray,
    out: DeviceArray,
    configuration: ForwardConfiguration | None,
) -> ShardSteps:
    """The input gradient of a shard of dx, from its own rows of dy (as many as `problem` has) and those of a halo."""
    where = "conv2d_input_gradient_shard"
    check(halo, problem.output_shape, dy, where)
    inputs, target, pointers = _inputs(dy, halo, where), view(out, "out", where), (filters(w, dy, problem, where), 0, 0)
    walked, flags = walk(problem), {"transposed": True}
    pass_ = Pass(walked.problem, walked.taps, inputs, target, None, pointers, "input_gradient", flags)
    return _steps(pass_, pass_._replace(problem=problem), configuration, halo, dy.device)


class Pass(NamedTuple):
    """One walk over the rows of three buffers, as the forward kernel makes it."""

    problem: ConvolutionProblem
    taps: Taps
    inputs: tuple[View, View, View]
    output: View
    residual: View | None
    pointers: tuple[int, int, int]
    what: str
    flags: dict[str, Any]

    def copyable(self, device: int) -> bool:
        """Whether forward.cu can do it."""
        fetched = fetchable(*self.inputs, self.output, self.residual)
        return fetched and prepare.chosen(self.problem, self.what, device, whole=False) is not None


def _steps(pass_: Pass, plain: Pass, configuration: ForwardConfiguration | None, halo: Halo, device: int) -> ShardSteps:
    """The launches of a pass; `plain` is what the plain kernel would have to do in its place."""
    if not pass_.copyable(device):
        return _plainly(plain, halo, device)
    first, later = parts(pass_.problem, *halo.rows)
    inner = _prepared(pass_, configuration, first, device, sharded=False)
    outer = _prepared(pass_, configuration, later, device, sharded=True)
    return ShardSteps(prepare.Steps(tuple(inner)), prepare.Steps(tuple(outer)))


def strip(problem: ConvolutionProblem, rows: Rows) -> ConvolutionProblem:
    """A problem of so many output rows: what a launch of `rows` is to the cost model.

    A boundary is a row or two of every image: cut as the whole is, a few blocks of the grid would walk them all.
    """
    span = (problem.r - 1) * problem.dilation[0] + 1
    _, _, left, right = problem.padding
    height = (rows.end - rows.begin - 1) * problem.stride[0] + span
    return replace(problem, h=height, padding=(0, 0, left, right))


def _prepared(
    pass_: Pass, given: ForwardConfiguration | None, ranges: Sequence[Rows], device: int, sharded: bool
) -> Iterator[Prepared]:
    flags = {**pass_.flags, "sharded": sharded}
    for rows in ranges:
        alone = strip(pass_.problem, rows)
        cut = _held(alone, given, device) if given else prepare.chosen(alone, pass_.what, device, whole=False)
        short = replace(cut, chunk=max(1, min(cut.chunk, rows.end - rows.begin)))
        yield prepare.by_copy_engine(
            pass_.problem, short, rows, pass_.taps, pass_.inputs, pass_.output, pass_.residual, pass_.pointers, device,
            flags,
        )  # fmt: skip


def _held(rows: ConvolutionProblem, given: ForwardConfiguration, device: int) -> ForwardConfiguration:
    """A configuration whose ring holds what rows of a shard meet, which are more with halos. Others are refused."""
    from ..runtime.device import properties

    if not legal(rows, given, properties(device).shared_per_block):
        raise WrongValue(
            "a configuration that the rows of a shard do not fit",
            where="conv2d_shard",
            expected=f"one that is legal for {rows}",
            came=given,
        )
    return given


def _plainly(pass_: Pass, halo: Halo, device: int) -> ShardSteps:
    """The same by the direct kernel, in one launch behind the halo."""
    recipe = Recipe(direct.NAME, direct.source(pass_.problem, **pass_.flags))
    rows = Rows(0, pass_.output.shape[1], *halo.rows)
    made = direct.launch(pass_.problem, rows, pass_.inputs, pass_.output, pass_.residual, pass_.pointers)
    from ..runtime.device import device_architecture
    from ..runtime.module import load

    kernel = load(recipe.compile(device_architecture(device)), device)
    return ShardSteps(prepare.Steps(()), prepare.Steps((kernel.prepare(made.grid, made.block, (made.argument,)),)))


def check(halo: Halo, shape: tuple[int, int, int, int], x: DeviceArray, where: str) -> None:
    """Refuse halo rows that do not continue the rows of `shape`."""
    n, _, w, c = shape
    if x.shape != shape:
        raise WrongShape("the shard has the wrong shape", where=where, expected=shape, came=x.shape)
    for name, rows in zip(("above", "below"), halo, strict=True):
        if rows is not None and (rows.shape[0], *rows.shape[2:], rows.dtype, rows.device) != (
            n,
            w,
            c,
            x.dtype,
            x.device,
        ):
            raise WrongShape(
                f"halo {name} does not continue the shard",
                where=where,
                expected=f"[{n}, rows, {w}, {c}] of {x.dtype} on device {x.device}",
                came=f"{rows.shape} of {rows.dtype} on device {rows.device}",
            )


def _inputs(x: DeviceArray, halo: Halo, where: str) -> tuple[View, View, View]:
    middle = view(x, "x", where)
    above, below = (view(rows, "halo", where) if rows else middle for rows in halo)
    return above, middle, below
