"""The forward kernel of groups of many channels: its source and its launch.

Where a group is no multiple of 8 channels, as many groups as make one are taken together, with zeros between them in
the filter. A GPU with the instructions of sm_90a is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from ..dimensions.declarations import declarations
from ..dimensions.specification import Parameter, Specification
from ..runtime.tensor_map import ALIGNMENT as MAP_ALIGNMENT
from ..runtime.tensor_map import BYTES as MAP_BYTES
from . import wide_slabs
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import View, lines
from .wide_forward_configuration import BOX_POSITIONS, WideCut, groups
from .wide_launch import WideLaunch
from .wide_rows import octets_apart, octets_brought, row_map, swizzled

NAME = "wide_forward"


def source(launch: WideLaunch, flags: Mapping[str, Any]) -> str:
    """The CUDA source of a launch. Sweeps that differ in extents, padding and number of groups alone share one.

    `flags` say what is done with the sums: scale, bias, residual (bool), activation (name).
    """
    headers = ("async", "divisor", "epilogue", "lines", "mma", "numeric", "registers", "wgmma")
    includes = [f"#include <tapestry/{name}.cuh>" for name in headers]
    instances = dict.fromkeys(product(cut.product_octets, cut.sweep.dtype, "plain") for cut in launch.cuts)
    sweeps = [_sweep(launch, number, flags) for number in range(len(launch.cuts))]
    return "\n".join([*includes, *instances, *sweeps, _entry(launch)])


def _sweep(launch: WideLaunch, number: int, flags: Mapping[str, Any]) -> str:
    """What a block does that has a stretch of one of the sweeps."""
    cut = launch.cuts[number]
    sweep, chosen, read = cut.sweep, cut.configuration, cut.sweep.octets[0]
    rows, columns = sweep.rows, sweep.columns
    inner = sweep.written if sweep.transposed else sweep.read
    numbers: dict[str, int | bool] = {
        "READ": read, "WRITTEN": cut.written, "WIDTH_READ": sweep.read, "WIDTH_WRITTEN": sweep.written, "INNER": inner,
        "FLAT": cut.flat, "OCTETS_BROUGHT": octets_brought(cut.octets_met),
        "OCTETS_APART": cut.octets_met if cut.flat else octets_apart(cut.octets_met),
        "GROUPS": chosen.groups, "PARTS": chosen.parts, "APART": cut.apart, "SHARES": chosen.shares,
        "TILES": chosen.tiles, "IMAGES": chosen.images,
        "UNITS": chosen.units or 1, "MET_COLUMNS": cut.met_columns, "PACKED": cut.packed,
        "STAGES": chosen.stages, "LEAVING": cut.leaving,
        "BOXED": cut.boxed, "HANDED": cut.handed, "BATCH": cut.batch,
        "DEFERRED": cut.deferred and not flags.get("residual"),
        "FETCHED": cut.lies == "beside", **_slab_numbers(cut),
        **cut.thread_numbers(launch.trades), "R": max(1, rows.taps), "S": max(1, columns.taps),
        "STORED_R": rows.stored, "STORED_S": columns.stored,
        "TAP_R": rows.first, "TAP_STEP_R": rows.step, "TAP_SKEW_R": rows.skew, "TAP_UNIT_R": rows.unit,
        "TAP_S": columns.first, "TAP_STEP_S": columns.step, "TAP_SKEW_S": columns.skew, "TAP_UNIT_S": columns.unit,
        "CELL_Y": rows.cell, "CELL_X": columns.cell, "OUTPUT_OCTETS": cut.outputs,
        "STRIDE_Y": rows.stride, "STRIDE_X": columns.stride,
        "DILATION_Y": rows.dilation, "DILATION_X": columns.dilation, "EMPTY": sweep.empty,
        "ALL_PLACES_R": wide_slabs.places(rows, range(rows.stored)),
        "ALL_PLACES_S": wide_slabs.places(columns, range(columns.stored)),
        "TRANSPOSED": sweep.transposed,
        **{name.upper(): bool(flags.get(name)) for name in ("scale", "bias", "residual")},
    }  # fmt: skip
    parameters = tuple(Parameter(name, value) for name, value in numbers.items())
    text = [
        declarations(Specification(f"numbers_{number}", (), parameters=parameters)),
        f"namespace sweep_{number} {{",
        "namespace spec {",
        f"using namespace numbers_{number};",
        f"constexpr tapestry::Activation ACTIVATION = tapestry::Activation::{flags.get('activation') or 'none'};",
        f"using Half = {HALVES[sweep.dtype]};",
        "}",
        "using namespace tapestry;",
        *map(kernel_text, ("wide_rows.cu", "wide_filter.cu", "wide_slabs.cu", "wide_staging.cu", "wide_forward.cu")),
        "}",
    ]
    return "\n".join(text)


def _slab_numbers(cut: WideCut) -> dict[str, int | bool]:
    """Of slabs, where the filter comes in such."""
    found, (rows, columns) = cut.slabs, (cut.sweep.rows, cut.sweep.columns)
    if found is None:
        names = ("SLABS", "SLAB_INNER", "SLAB_BROUGHT", "SLAB_APART", "PLACES_R", "PLACES_S")
        ones = ("SLAB_ROWS", "SLAB_OCTETS", "TAPS_R", "TAPS_S")
        return dict.fromkeys(names, 0) | dict.fromkeys(ones, 1) | {"SLAB_SWIZZLED": False}
    return {
        "SLABS": found.number, "SLAB_ROWS": found.rows, "SLAB_OCTETS": found.octets, "SLAB_INNER": found.inner,
        "SLAB_BROUGHT": octets_brought(found.inner), "SLAB_APART": octets_apart(found.inner),
        "SLAB_SWIZZLED": swizzled(found.inner), "TAPS_R": found.taps[0], "TAPS_S": found.taps[1],
        "PLACES_R": wide_slabs.places(rows, rows.brought), "PLACES_S": wide_slabs.places(columns, columns.brought),
    }  # fmt: skip


# The parameters of a sweep, as wide_forward.cu takes them: each its type, but for what is fused.
OPERANDS = {
    "input": "Walked", "boxes": "Boxes", "output": "Outside", "residual": "Outside", "weights": "Weights",
    "scale": "", "bias": "", "work": "Work",
}  # fmt: skip


def _entry(launch: WideLaunch) -> str:
    """The kernel: the blocks of the grid are of one sweep after the other."""
    last = len(launch.cuts) - 1
    parameters = [_parameter(number, *operand) for number in range(last + 1) for operand in OPERANDS.items()]
    lines = []
    for number in range(last + 1):
        call = f"sweep_{number}::sweep({', '.join(f'{name}_{number}' for name in OPERANDS)}, shared);"
        others = f"if (blockIdx.x < work_{number + 1}.first_block) return " if number < last else ""
        lines.append(others + call)
    body = "\n    ".join(lines)
    return f"""
extern "C" __global__ void __launch_bounds__({launch.threads}, {launch.blocks}) {NAME}({", ".join(parameters)}) {{
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned shared = tapestry::shared_address(memory);
    {body}
}}
"""


def _parameter(number: int, name: str, kind: str) -> str:
    declared = f"const __grid_constant__ sweep_{number}::{kind}" if kind else "const float*"
    return f"{declared} {name}_{number}"


def product(written: int, dtype: str, lies: str) -> str:
    """The instance of `multiply_group` for so many octets of columns."""
    count = 4 * written
    sums = ", ".join(f"%{i}" for i in range(count))
    left = ", ".join(f"%{count + i}" for i in range(4))
    turned = int(lies == "turned")
    shape = f"m64n{8 * written}k16.f32.{dtype}.{dtype}"
    text = (
        f"{{\\n.reg .pred p;\\nsetp.eq.b32 p, %{count + 5}, 0;\\nwgmma.mma_async.sync.aligned.{shape} "
        f"{{{sums}}}, {{{left}}}, %{count + 4}, p, 1, 1, {turned};\\n}}\\n"
    )
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    half = HALVES[dtype]
    operands = f'"{text}" : {outputs} : {inputs}, "l"(b), "r"(int(fresh))'
    return f"TAPESTRY_PRODUCT({half}, tapestry::Lies::{lies}, {count}, {operands})"


def arguments(
    launch: WideLaunch,
    sms: int,
    x: View,
    outputs: Sequence[View],
    residuals: Sequence[View],
    pointers: tuple[int, int, int],
) -> tuple[int, list[Any]]:
    """(blocks of the grid, the kernel's arguments in order), with each sweep's part of the output and of what is added
    to it, where anything is. `pointers` are the filter, scale and bias."""
    given: list[Any] = []
    first_block = 0
    for number, (cut, stretches) in enumerate(zip(launch.cuts, launch.stretches(sms), strict=True)):
        output, residual = outputs[number], (residuals or outputs)[number]
        given += _operands(cut, stretches, first_block, x, output, residual, pointers)
        first_block += cut.channel_blocks * stretches
    return first_block, given


def _operands(
    cut: WideCut,
    stretches: int,
    first_block: int,
    x: View,
    output: View,
    residual: View,
    pointers: tuple[int, int, int],
) -> list[Any]:
    """The `OPERANDS` of a sweep."""
    sweep, chosen = cut.sweep, cut.configuration
    stretch, longer = divmod(cut.line, stretches)
    divisors = (cut.channel_blocks, chosen.parts, cut.column_tiles, sweep.rows.cells)
    maps, left = (lines(x), (sweep.columns.before, 0)) if cut.flat else cut.walked.maps(x, sweep.columns.before)
    numbers = (
        stretch, longer, sweep.rows.inputs, sweep.rows.before, *left, groups(sweep), sweep.octets[1],
        sweep.n, sweep.rows.outputs, sweep.columns.outputs, first_block,
    )  # fmt: skip
    work = b"".join([*map(packed_divisor, divisors), struct.pack("<12i", *numbers)])
    weights = _weights(cut, pointers[0])
    boxes = _boxes(cut, output) if cut.boxed else bytes(MAP_BYTES)  # nobody reads it
    return [maps, boxes, _outside(output), _outside(residual), weights, pointers[1], pointers[2], work]


def _weights(cut: WideCut, pointer: int) -> bytes:
    """`Weights` of wide_filter.cu. Where the copy engine cannot read the filter, nobody reads the map."""
    sweep, found = cut.sweep, cut.slabs
    map_ = bytes(wide_slabs.filter_map(sweep, found, pointer)) if found and pointer % 16 == 0 else bytes(MAP_BYTES)
    numbers = struct.pack("<Q2i", pointer, sweep.groups * sweep.read, sweep.groups * sweep.written)
    return map_ + numbers.ljust(MAP_ALIGNMENT, b"\0")


def _boxes(cut: WideCut, output: View) -> Any:
    """The maps of boxes of the output: one for every number of rows that a box may have, or of images side by side for
    every number of columns."""
    if cut.flat:
        return lines(output)
    channels = 8 * cut.configuration.groups * cut.outputs
    if not cut.packed:
        images, rows, columns = _box(cut)
        if cut.leaving == 1:
            return row_map(output, (images, rows, columns), channels)
        view, boxes = output.rows_outermost(), [(1 + more, images, columns) for more in range(cut.leaving)]
    else:
        least = gcd(cut.box_positions, cut.met_columns)
        most = min(cut.met_columns, cut.box_positions)
        view, boxes = output, [(1, 1, count) for count in range(least, most + 1, least)]
    return b"".join(bytes(row_map(view, box, channels)) for box in boxes)


def _box(cut: WideCut) -> tuple[int, int, int]:
    """Images, rows and columns of the output that leave at once."""
    chosen, (rows, columns) = cut.configuration, (cut.sweep.rows, cut.sweep.columns)
    if cut.handed:
        return chosen.images, rows.cell // chosen.parts, cut.met_columns * columns.cell
    images = 2 if chosen.units == 1 else 1
    return images, rows.cell // (chosen.parts * chosen.shares), BOX_POSITIONS // images * columns.cell


def _outside(view: View) -> bytes:
    """`Outside` of wide_forward.cu."""
    return struct.pack("<Q3q", view.pointer, *view.strides)
