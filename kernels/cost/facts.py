"""What a configuration makes a GPU do, by counting: the features of the learned model, and a prediction on their own.

Every fact is a time, a ratio or a small count, so that what is learned at one extent means something at another. Times
are in units of the roofline, the least time in which input, output and weights pass the memory once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log, prod

from ..convolution import direct_weight_gradient
from ..convolution.candidates import FIT as FORWARD
from ..convolution.candidates import filter_ns, guess
from ..convolution.configuration import REGISTERS, Filter, ForwardConfiguration, footprint, group_block
from ..convolution.launch import Rows, grid
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_candidates import FIT as WEIGHT_GRADIENT
from ..convolution.weight_gradient_candidates import estimate, fold_passes, launch_saved_s, places
from ..convolution.weight_gradient_configuration import Cut, WeightGradientConfiguration, live_rows
from .columns import Number, anywhere, ceil, each, larger, pick, smaller
from .gpu import Gpu, fitted, tuned_gpu

LINE = 32  # bytes of a sector
WARP = 32
FILTER_PLACES: tuple[Filter, ...] = ("registers", "staged", "shared")


@dataclass(frozen=True)
class CountedFit:
    """The constants of the counting; `data/gpus.json` says what each is and where it comes from."""

    mma_clocks: float
    matrix_clocks: float
    row_clocks: float
    start_clocks: float
    plain_load_clocks: float
    plain_flops: float


COUNTED = fitted(CountedFit, "facts")


@dataclass(frozen=True)
class Facts:
    """One configuration of one problem on one GPU. Fields named `*_time` are multiples of the roofline.

    `counted_time` is the prediction by counting alone. Those of many configurations hold columns.
    """

    counted_time: Number
    memory_time: Number  # what is loaded and stored, halos included, over the copy rate
    mma_time: Number  # tensor cores
    shared_time: Number  # shared memory to registers
    row_time: Number  # one row after another: the waits of the longest chain of rows, divided among resident blocks
    start_time: Number  # launch and first rows
    filter_time: Number  # until the weights are there
    fold_time: Number  # partial sums written and read again
    imbalance: Number  # items of the busiest block over the mean, at least 1
    occupancy: Number  # blocks at work over the places of the GPU, at most 1
    halo: Number  # bytes loaded over bytes of the input
    waste: Number  # positions computed over positions of the output
    in_flight: Number  # KiB of loads a multiprocessor has under way
    warps: Number  # that compute, a multiprocessor
    registers: Number  # a thread, estimated, over what there is for one
    images: Number  # of a block at a time
    own: Number  # units of positions and channels that one warp keeps sums of
    residents: Number  # blocks a multiprocessor holds
    l2_share: Number  # input, output and weights over the L2
    roofline_us: Number
    channel_bytes: Number  # of one position in a block: the length of a run in memory
    row_bytes: Number  # KiB of one load
    chain: Number  # rows of a chunk, or of a block that has one stretch
    dynamic: Number  # whether blocks take chunks as they come
    ahead: Number  # rows in the ring
    taps: Number
    width: Number
    stride: Number
    transposed: Number
    filter_place: Number  # 0: in registers; 1: there, through shared memory; 2: in shared memory
    cell: Number  # outputs of a position: more than one in the input gradient of a strided convolution
    spare: Number  # channels of all blocks over channels there are
    parts: Number  # sectors that a block has a part of, over sectors of a position in it

    def features(self) -> tuple[Number, ...]:
        """The facts in order, large ranges as logarithms."""
        values = tuple(self.__dict__.values())
        return tuple([_logarithm(value) if wide else value for value, wide in zip(values, _WIDE, strict=True)])


def _logarithm(value: Number) -> Number:
    return each(log, larger(value, 1e-6))


FEATURES = tuple(field.name for field in fields(Facts))
_LOGARITHMIC = frozenset(name for name in FEATURES if name.endswith("_time")) | {
    "in_flight", "l2_share", "roofline_us", "row_bytes", "chain", "ahead", "halo", "waste", "imbalance", "occupancy",
}  # fmt: skip
_WIDE = tuple(name in _LOGARITHMIC for name in FEATURES)


def forward_facts(problem: ConvolutionProblem, cut: ForwardConfiguration, gpu: Gpu, transposed: bool = False) -> Facts:
    """A forward pass (`transposed`: the same kernel as an input gradient)."""
    taken, roofline = footprint(problem, cut), gpu.roofline_s(problem.bytes_moved)
    cells = grid(problem, cut, Rows(0, problem.p), gpu.sms)
    line = cells.image_blocks * cells.column_tiles * problem.p
    chunk = smaller(cut.chunk, line)
    chunks, places = cells.channel_blocks * ceil(line / chunk), smaller(cells.blocks, gpu.sms * cut.blocks)
    longest = ceil(chunks / places)
    walk = _walked_rows(problem, chunk)
    walked = chunks * walk
    loaded = walked / cells.channel_blocks * _row_bytes(problem, cut, taken.box_x, cells.column_tiles)
    octets = ceil(problem.c / cut.channels) * cut.channels / 8
    positions = ceil(problem.n / cut.images) * cut.images * cells.column_tiles * 8 * cut.units
    wide = group_block(problem) // 8
    taps = ceil(problem.s / 2) if wide == 1 else problem.s * wide / 2
    mmas = positions / 16 * problem.p * problem.tap_count / problem.s * taps * octets
    matrices = walked * cut.images * cut.units * 2 * ceil(problem.s / 2) * cut.channels / 8 * wide / cut.octets
    matrices = matrices + pick(cut.filter == "shared", 2 * mmas / cut.tiles, 0.0)
    working = places / cut.blocks
    seconds = {
        "memory": (loaded + 2 * problem.output_elements + 2 * problem.weight_elements) / gpu.copy_bytes_per_s,
        "mma": mmas * COUNTED.mma_clocks / gpu.clock_hz / working,
        "shared": matrices * COUNTED.matrix_clocks / gpu.clock_hz / working,
        "row": longest * walk / cut.stage_rows * COUNTED.row_clocks / gpu.clock_hz / cut.blocks,
        "start": gpu.launch_s + COUNTED.start_clocks / gpu.clock_hz,
        "filter": filter_ns(problem, cut) * 1e-9,
    }
    times = {f"{name}_time": value / roofline for name, value in seconds.items()}
    return Facts(
        # In units of the roofline that the guess's constants are of, so that it scales to other memories.
        counted_time=guess(problem, cut, gpu.sms) * FORWARD.memory_bytes_per_ns * tuned_gpu().sms / problem.bytes_moved,
        **times,
        fold_time=0.0,
        imbalance=longest * places / chunks,
        occupancy=places / (gpu.sms * cut.blocks),
        halo=loaded / (2 * problem.input_elements),
        waste=positions / (problem.n * problem.q),
        in_flight=cut.stages * cut.stage_rows * taken.row_bytes * cut.blocks / 1024,
        warps=taken.threads / 32 * cut.blocks,
        registers=taken.registers * taken.threads * cut.blocks / REGISTERS,
        images=cut.images,
        own=cut.tiles * cut.octets,
        residents=cut.blocks,
        l2_share=problem.bytes_moved / gpu.l2_bytes,
        roofline_us=roofline * 1e6,
        channel_bytes=cut.channels * 2,
        row_bytes=taken.row_bytes / 1024,
        chain=walk,
        dynamic=1.0 * cut.dynamic,
        ahead=cut.stages * cut.stage_rows,
        taps=problem.r * problem.s,
        width=problem.width,
        stride=problem.stride[0] * problem.stride[1],
        transposed=float(transposed),
        filter_place=1.0 * each(FILTER_PLACES.index, cut.filter),
        cell=prod(problem.cell),
        spare=octets * 8 / problem.c,
        parts=_parts_of_sectors(problem, cut.channels),
    )


def _parts_of_sectors(problem: ConvolutionProblem, channels: Number) -> Number:
    """Ends of a position's run of channels within a sector, over the run's sectors: the mean of all positions."""
    whole = (2 * problem.c % LINE == 0) & (2 * channels % LINE == 0)
    return pick(whole, 0.0, LINE / 2 / larger(channels, 1))


def _walked_rows(problem: ConvolutionProblem, rows: Number) -> Number:
    """Input rows under a stretch of `rows` output rows: each image it meets begins with the rows above its first."""
    above = max(0, (problem.r - 1) * problem.dilation[0] + 1 - problem.stride[0])
    images = 1 + (rows - 1) / problem.p
    return smaller(rows * problem.stride[0] + above * images, problem.h * (images + 1 / problem.p))


def _row_bytes(problem: ConvolutionProblem, cut: ForwardConfiguration, box_x: Number, tiles: Number) -> Number:
    """Bytes of one row of an item in all channels, on average: what lies inside the tensor."""
    images = problem.n / ceil(problem.n / cut.images)
    halo = box_x - 8 * cut.units * problem.stride[1]
    return 2 * images * smaller(problem.w, problem.w / tiles + larger(halo, 0)) * problem.c


def weight_gradient_facts(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, gpu: Gpu) -> Facts:
    """A weight gradient, its fold included. Of many configurations none may be the plain kernel."""
    if anywhere(chosen.direct):
        return _direct_facts(problem, chosen, gpu)
    return _split_facts(Cut(problem, chosen), gpu)


def _split_facts(cut: Cut, gpu: Gpu) -> Facts:
    problem, chosen = cut.problem, cut.configuration
    roofline = gpu.roofline_s(problem.bytes_moved)
    rows = max(1, len(live_rows(problem)))
    work = cut.image_blocks * cut.column_tiles * rows
    per_split = ceil(work / chosen.splits)
    pieces = larger(1, ceil(per_split / rows))
    chain = per_split * problem.stride[0] + pieces * min((problem.r - 1) * problem.dilation[0], problem.h)
    blocks = cut.channel_blocks * chosen.row_parts * chosen.splits
    room = places(chosen, gpu.sms) * chosen.residents
    waves = ceil(blocks / room)
    halo = larger(cut.x_columns - 8 * chosen.units * problem.stride[1], 0)
    columns = smaller(problem.w, problem.w / cut.column_tiles + halo)
    images = problem.n / cut.image_blocks
    x_bytes = 2 * problem.c * images * columns * chain * chosen.splits * chosen.row_parts
    dy_bytes = 2 * problem.output_elements * chosen.row_parts
    steps = blocks * chain * cut.consumers * cut.own_steps
    mmas = steps * cut.filter_rows / problem.stride[0] * cut.tap_pairs * chosen.out_blocks
    matrices = steps * (2 * problem.s + 2 * chosen.out_blocks / problem.stride[0])
    working = smaller(blocks, room) / chosen.residents
    seconds = {
        "memory": (x_bytes + dy_bytes) / gpu.copy_bytes_per_s,
        "mma": mmas * COUNTED.mma_clocks / gpu.clock_hz / working,
        "shared": matrices * COUNTED.matrix_clocks / gpu.clock_hz / working,
        "row": waves * chain * COUNTED.row_clocks / gpu.clock_hz / chosen.residents,
        "start": gpu.launch_s * 1.5 - launch_saved_s(chosen) + waves * COUNTED.start_clocks / gpu.clock_hz,
        "fold": fold_passes(chosen) * cut.quadruples * 16 / gpu.copy_bytes_per_s,
    }
    times = {f"{name}_time": value / roofline for name, value in seconds.items()}
    return Facts(
        counted_time=estimate(problem, chosen, gpu.sms) * WEIGHT_GRADIENT.bytes_per_s / problem.bytes_moved,
        **times,
        filter_time=0.0,
        imbalance=pick(waves > 1, waves * room / blocks, per_split * chosen.splits / work),
        occupancy=smaller(1.0, blocks / room),
        halo=x_bytes / (2 * problem.input_elements),
        waste=cut.image_blocks * chosen.images * cut.column_tiles * 8 * chosen.units / (problem.n * problem.q),
        in_flight=chosen.stages * cut.stage_bytes * chosen.residents / 1024,
        warps=cut.consumers * chosen.residents,
        registers=cut.registers / cut.register_limit,
        images=chosen.images,
        own=cut.own_steps * chosen.out_blocks,
        residents=chosen.residents,
        l2_share=problem.bytes_moved / gpu.l2_bytes,
        roofline_us=roofline * 1e6,
        channel_bytes=chosen.channel_block * 2,
        row_bytes=cut.stage_bytes / 1024,
        chain=chain,
        dynamic=0.0,
        ahead=chosen.stages,
        taps=problem.r * problem.s,
        width=problem.width,
        stride=problem.stride[0] * problem.stride[1],
        transposed=0.0,
        filter_place=0.0,
        cell=1.0,
        spare=cut.channel_blocks * chosen.channel_block / problem.c,
        parts=_parts_of_sectors(problem, chosen.channel_block),
    )


def _direct_facts(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, gpu: Gpu) -> Facts:
    """The plain kernel: a load of x and dy for every tap and product, nothing shared."""
    roofline = gpu.roofline_s(problem.bytes_moved)
    threads = prod((*direct_weight_gradient.grid(problem, chosen.splits), *direct_weight_gradient.block(problem)))
    warps = gpu.threads_per_sm // WARP
    loads = problem.output_elements * problem.r * problem.s * (1 + problem.width)
    clocks = loads * COUNTED.plain_load_clocks / max(1, min(threads / WARP, gpu.sms * warps)) / WARP
    return Facts(
        counted_time=1.0 + clocks / gpu.clock_hz / roofline,
        memory_time=1.0, mma_time=0.0, shared_time=clocks / gpu.clock_hz / roofline, row_time=0.0,
        start_time=(gpu.launch_s * 1.5 - launch_saved_s(chosen)) / roofline, filter_time=0.0, fold_time=0.0,
        imbalance=1.0, occupancy=min(1.0, threads / (gpu.sms * 1024)), halo=1.0, waste=1.0, in_flight=1.0, warps=32.0,
        registers=0.5, images=1.0, own=1.0,
        residents=1.0, l2_share=problem.bytes_moved / gpu.l2_bytes, roofline_us=roofline * 1e6, channel_bytes=0.0,
        row_bytes=1.0, chain=1.0, dynamic=0.0, ahead=1.0, taps=problem.r * problem.s, width=problem.width,
        stride=problem.stride[0] * problem.stride[1], transposed=0.0, filter_place=0.0, cell=1.0,
        spare=1.0, parts=0.0,
    )  # fmt: skip
