"""Sources of the forward kernel: the constants of one problem and configuration in front of forward.cu."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ..dimensions.declarations import declarations
from .configuration import LEFT_REGISTERS, ForwardConfiguration, group_block, taken_registers, trades
from .forward_dimensions import specification
from .launch import TapLine, Taps
from .problem import ConvolutionProblem


@cache
def kernel_text(name: str) -> str:
    """A CUDA source that stands beside this module."""
    return files(__package__).joinpath(name).read_text()


# The kernel's text, in order: of octets of channels, of pairs of them, and of these where rows are summed up together.
PARTS = ("_cells", "_weights", "_place", "_staging", "_filter", "_circle", "_products", "_stream", "_turns", "")
PAIRED_PARTS = ("_cells", "_weights", "_circle", "_pairs", "_pairs_circle", "_stream", "_turns", "")
BLOCK_PARTS = ("_cells", "_weights", "_pairs", "_stream", "_blocks", "")
HALVES = {"f16": "tapestry::F16", "bf16": "tapestry::Bf16"}


def constants(problem: ConvolutionProblem, cut: ForwardConfiguration, taps: Taps) -> dict[str, int]:
    """The numbers that forward.cu is specialised by."""
    return {
        **_line("R", taps.rows),
        **_line("S", taps.columns),
        "CELL_ROWS": problem.cell[0],
        "CELL_COLUMNS": problem.cell[1],
        "WIDTH": problem.width,
        "GROUP": group_block(problem),
        "R": problem.r,
        "S": problem.s,
        "STRIDE_Y": problem.stride[0],
        "STRIDE_X": problem.stride[1],
        "DILATION_Y": problem.dilation[0],
        "DILATION_X": problem.dilation[1],
        "CHANNELS": cut.channels,
        "PITCH": cut.pitch,
        "IMAGES": cut.images,
        "UNITS_Q": cut.units,
        "TILES": cut.tiles,
        "CHANNEL_OCTETS": cut.octets,
        "STAGES": cut.stages,
        "STAGE_ROWS": cut.stage_rows,
        "OUT_STAGES": cut.out_stages,
        "BLOCKS": cut.blocks,
        "LATE": int(cut.late),
        "LEAVING": cut.leaving,
        "TOGETHER": cut.together,
        "LATE_ROWS": int(cut.late and not cut.pairs),
        "TAKEN_REGISTERS": taken_registers(cut) if trades(problem, cut) else 0,
        "LEFT_REGISTERS": LEFT_REGISTERS,
        "KEPT": int(cut.pairs > 0),
    }


def filter_flags(cut: ForwardConfiguration) -> dict[str, bool]:
    """Whether the filter passes through shared memory, and whether it stays there."""
    return {"FILTER_STAGED": cut.filter != "registers", "FILTER_SHARED": cut.filter == "shared"}


def _line(axis: str, taps: TapLine) -> dict[str, int]:
    return {
        f"STORED_{axis}": taps.stored,
        f"TAP_{axis}": taps.first,
        f"TAP_STEP_{axis}": taps.step,
        f"TAP_SKEW_{axis}": taps.skew,
        f"TAP_UNIT_{axis}": taps.unit,
    }


def source(
    problem: ConvolutionProblem,
    cut: ForwardConfiguration,
    *,
    transposed: bool = False,
    sharded: bool = False,
    scale: bool = False,
    bias: bool = False,
    residual: bool = False,
    activation: str | None = None,
    hints: tuple[str, str] = ("none", "none"),
    taps: Taps | None = None,
    whole: bool = True,
) -> str:
    """The CUDA source of a pass. `transposed` reads the filter as the input gradient does, by default last tap first.

    `sharded`: rows come from three buffers. `scale`, `bias` (a channel), `residual` and `activation` follow the sum.
    `hints` are the cache's, of loads and stores. A flat cut's rows come and leave `whole`, or in boxes. Problems that
    differ in extents and padding alone share a source.
    """
    usual = Taps.flipped(problem.r, problem.s) if transposed else Taps.plain(problem.r, problem.s)
    ints = constants(problem, cut, taps or usual)
    flags = {"TRANSPOSED": transposed, "SHARDED": sharded, "WHOLE": cut.flat and whole, **filter_flags(cut)}
    flags |= {"SCALE": scale, "BIAS": bias, "RESIDUAL": residual}
    lines = [f"constexpr tapestry::Activation ACTIVATION = tapestry::Activation::{activation or 'none'};"]
    lines += [
        f"constexpr tapestry::Hint LOAD_HINT = tapestry::Hint::{hints[0]}, STORE_HINT = tapestry::Hint::{hints[1]};"
    ]
    lines += [f"using Half = {HALVES[problem.dtype]};"]
    headers = ("async", "divisor", "epilogue", "lines", "mma", "numeric", "registers")
    includes = [f"#include <tapestry/{name}.cuh>" for name in headers]
    declared = declarations(specification(problem, cut, {**ints, **flags}))
    parts = BLOCK_PARTS if cut.leaving > 1 else PAIRED_PARTS if cut.pairs else PARTS
    texts = [kernel_text(f"forward{part}.cu") for part in parts]
    return "\n".join([*includes, declared, "namespace spec {", *lines, "}", "using namespace tapestry;", *texts])
