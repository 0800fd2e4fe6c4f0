"""The weight gradient of groups of many channels: how it is cut, its source, and its launches.

Where a group is no multiple of 8 channels, as many groups as make one are taken together, and what is summed between
them is dropped. A GPU with the instructions of sm_90a is needed. The order of the sums is fixed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from ..cost.gpu import tuned_gpu
from ..dimensions.declarations import declarations
from ..dimensions.specification import Parameter, Specification
from . import fold_quadruples
from .configuration import MAX_BOX
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import Launch, View, tensor_map
from .problem import ConvolutionProblem
from .weight_gradient_configuration import MOST_RANKS
from .wide_forward import product
from .wide_forward_configuration import fits
from .wide_rows import Walked, octets_apart, octets_brought
from .wide_sweep import together
from .wide_threads import WARPS_A_GROUP, Warpgroups

NAME = "wide_weight_gradient"
FOLDS = ("wide_fold_partial", "wide_fold_rounded")  # of sums that lie as lanes have them
TILE_OCTETS = 8  # of filter columns and channels of x, a warpgroup
REGISTER_ROOM = 26  # beside sums and what is loaded for the next products
EVEN_ROOM = 8  # more where rows of which octets are gathered lie an even number of them apart
STEP = 16  # positions that are multiplied at once
BATCH = 4  # steps of wide_weight_gradient.cu
BARRIER_BYTES = 8
FRAGMENT_BYTES = 16  # of the sums of a thread, that one block of a cluster adds


@dataclass(frozen=True)
class WideWeightGradient:
    """One way to cut a weight gradient.

    A block owns `groups` groups, or of one group a part: one of `parts` of its channels of dy, and one of `x_parts` of
    its channels of x. It takes `images` images x `columns` columns of one of `splits` stretches of rows; `stages` rows
    of x are under way; `blocks` blocks share a multiprocessor. Splits that are `clustered` add their sums in the launch
    that makes them; others leave theirs to a second one. Octets of filter columns and channels of x that are left over
    of whole warpgroups may be `gathered`: those of all filter rows are multiplied side by side. `spare` rows of dy
    arrive while those before are multiplied with.
    """

    groups: int
    parts: int
    x_parts: int
    images: int
    columns: int
    stages: int
    blocks: int
    splits: int
    clustered: bool = False
    gathered: bool = False
    spare: int = 2

    @property
    def apart(self) -> bool:
        """Whether the splits' sums are added by a second launch."""
        return self.splits > 1 and not self.clustered


@dataclass(frozen=True)
class WideGradientCut(Warpgroups):
    """What follows from a problem and a configuration, by the formulas of wide_weight_gradient.cu."""

    problem: ConvolutionProblem
    configuration: WideWeightGradient

    @cached_property
    def together(self) -> int:
        """Groups that are one of the kernel's."""
        return together(self.problem.width, self.problem.width_out)

    @cached_property
    def octets(self) -> int:
        """Octets of x of a group of the kernel."""
        return self.together * self.problem.width // 8

    @cached_property
    def octets_out(self) -> int:
        """Those of dy."""
        return self.together * self.problem.width_out // 8

    @property
    def groups(self) -> int:
        """Groups as the kernel sees them."""
        return ceil(self.problem.groups / self.together)

    @cached_property
    def written(self) -> int:
        """Octets of dy of a warpgroup."""
        return ceil(self.octets_out / self.configuration.parts)

    @cached_property
    def read(self) -> int:
        """Octets of x of a block, of each of its groups."""
        return ceil(self.octets / self.configuration.x_parts)

    @cached_property
    def tiles(self) -> int:
        """Warpgroups among which filter columns and octets of x are divided."""
        return ceil(self.problem.s * self.read / TILE_OCTETS)

    @property
    def warpgroups(self) -> int:
        return self.configuration.groups * self.tiles

    @property
    def blocks(self) -> int:
        return self.configuration.blocks

    @property
    def gathered(self) -> int:
        """Products for a row of dy of the octets left over, where they are gathered."""
        return self._gathered if self.configuration.gathered else 0

    @property
    def _gathered(self) -> int:
        return ceil(self.problem.s * self.read % TILE_OCTETS * self.problem.r / TILE_OCTETS)

    @property
    def gathers(self) -> bool:
        """Whether octets left over can be gathered, in fewer products, with rows of x that stay while they are met."""
        taps, stride, dilation = self.problem.r, self.problem.stride[0], self.problem.dilation[0]
        every = stride == 1 or (stride <= taps and dilation % stride > 0)  # row of x is met
        return 0 < self._gathered < taps and every and self.configuration.stages >= self.span

    @property
    def span(self) -> int:
        """Rows of x that a row of dy meets, and those between."""
        return (self.problem.r - 1) * self.problem.dilation[0] + 1

    @cached_property
    def positions(self) -> int:
        """Of a row of a block."""
        return self.configuration.images * self.configuration.columns

    @cached_property
    def walked(self) -> Walked:
        """A row of x, as it lies in its ring."""
        problem, chosen = self.problem, self.configuration
        steps = problem.s, problem.stride[1], problem.dilation[1]
        return Walked(chosen.columns, chosen.images, self.octets_met, *steps)

    @cached_property
    def octets_met(self) -> int:
        """Octets of a position of x that a block reads."""
        return self.configuration.groups * self.read

    @cached_property
    def line(self) -> int:
        """Bytes of a line of dy in shared memory."""
        octets = self.configuration.groups * self.written
        return 32 if octets <= 2 else 64 if octets <= 4 else 128

    @cached_property
    def planes(self) -> int:
        """Lines of the swizzle that a position of dy has."""
        return ceil(16 * self.configuration.groups * self.written / self.line)

    @property
    def channels_brought(self) -> int:
        """Channels of dy that a box brings: no more than are wanted, but as many as have the swizzle of the line."""
        return 8 * max(2, self.configuration.groups * self.written) if self.planes == 1 else self.line // 2

    @cached_property
    def dy_bytes(self) -> int:
        return self.planes * self.positions * self.line

    @property
    def open_rows(self) -> int:
        """Rows of dy that a row of x meets, and those between."""
        return ceil(self.span / self.problem.stride[0])

    @cached_property
    def dy_stages(self) -> int:
        return self.open_rows + self.configuration.spare

    @property
    def as_lanes(self) -> bool:
        """Whether splits leave sums as lanes have them: of groups that are taken together half and more are zeros."""
        whole = self.problem.width % 8 == self.problem.width_out % 8 == 0
        return self.configuration.apart and whole

    @property
    def few_zeros(self) -> bool:
        """Whether zeros are those of a step alone: a row of them has no room. Each position has one line of dy then."""
        return self.planes == 1 and not fits(self._shared(self.dy_bytes), self.blocks, tuned_gpu().shared_per_block)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: the rings and zeros, later what a cluster exchanges; barriers."""
        return self._shared(STEP * self.line if self.few_zeros else self.dy_bytes)

    def _shared(self, zeros: int) -> int:
        rows = self.dy_stages * _whole(self.dy_bytes) + self.configuration.stages * self.walked.size + _whole(zeros)
        return max(rows, self.exchanged) + 2 * BARRIER_BYTES * (self.dy_stages + self.configuration.stages)

    @property
    def quadruples(self) -> int:
        """Places for four sums each: where they lie as lanes have them, of what is no octet, too."""
        if not self.as_lanes:
            return self.problem.weight_elements // 4
        return self.channel_blocks * self.problem.r * self.written * 32 * WARPS_A_GROUP * self.warpgroups

    @property
    def exchanged(self) -> int:
        """Bytes of the sums that the blocks of a cluster leave with one of them, where its rings have been."""
        chosen = self.configuration
        threads = 32 * WARPS_A_GROUP * self.warpgroups
        turns = ceil(self.problem.r * self.written / chosen.splits)
        return chosen.splits * turns * threads * FRAGMENT_BYTES if chosen.clustered else 0

    @cached_property
    def registers(self) -> int:
        """An estimate."""
        steps = self.positions // STEP * max(1, self.gathered)
        even = octets_apart(self.octets_met) % 2 == 0
        room = REGISTER_ROOM + EVEN_ROOM * (even and self.configuration.gathered)
        return self.problem.r * (4 * self.written + 2 + self.few_zeros) + 4 * min(steps, 2 * BATCH) + room

    @property
    def channel_blocks(self) -> int:
        return ceil(self.groups / self.configuration.groups) * self.configuration.parts * self.configuration.x_parts

    @property
    def column_tiles(self) -> int:
        return ceil(self.problem.q / self.configuration.columns)

    @property
    def work(self) -> int:
        """Rows of all images and column tiles."""
        return ceil(self.problem.n / self.configuration.images) * self.column_tiles * self.problem.p


def _whole(size: int) -> int:
    """Bytes of what begins where the swizzle does, and what follows it, too."""
    return ceil(size / 1024) * 1024


def legal(cut: WideGradientCut, shared: int) -> bool:
    """Whether the kernel can be built and launched so."""
    chosen = cut.configuration
    width = 8 * cut.written
    lines = [group * width * 2 % cut.line for group in range(chosen.groups)]
    return (
        cut.problem.octets
        and chosen.splits <= max(1, cut.work)
        and (not chosen.clustered or 1 < chosen.splits <= MOST_RANKS)
        and (chosen.groups == 1 or chosen.parts * chosen.x_parts == 1)
        and all(start == 0 or start + 2 * width <= cut.line for start in lines)
        and cut.written <= 32
        and cut.positions % STEP == 0
        and (chosen.images == 1 or cut.column_tiles == 1)
        and max(cut.walked.columns, chosen.images, chosen.columns, 8 * octets_brought(cut.octets_met)) <= MAX_BOX
        and (not chosen.gathered or cut.gathers)
        and cut.threads <= 1024
        and fits(cut.shared, chosen.blocks, shared)
        and (not cut.trades or cut.registers <= cut.taken_registers)
    )


def source(problem: ConvolutionProblem, chosen: WideWeightGradient, partial: bool) -> str:
    """The CUDA source. Problems that differ in extents, padding and number of groups alone share one.

    A single split, or several that are a cluster, leave the gradient itself, as f32 where a `partial` one is wanted.
    """
    cut = WideGradientCut(problem, chosen)
    numbers: dict[str, int | bool] = {
        "READ": cut.read, "GROUP_READ": cut.octets, "WRITTEN": cut.written, "WIDTH": problem.width,
        "WIDTH_WRITTEN": problem.width_out, "GROUPS": chosen.groups, "TILES": cut.tiles,
        "FLAT": False,
        "OCTETS_BROUGHT": octets_brought(cut.octets_met), "OCTETS_APART": octets_apart(cut.octets_met),
        "BROUGHT_CHANNELS": cut.channels_brought,
        "IMAGES": chosen.images, "MET_COLUMNS": chosen.columns, "PACKED": 0, "GATHERED": cut.gathered,
        "X_STAGES": chosen.stages,
        "DY_STAGES": cut.dy_stages, "BLOCKS": chosen.blocks, "LINE": cut.line,
        "RANKS": chosen.splits if chosen.clustered else 1, "AS_LANES": cut.as_lanes, "FEW_ZEROS": cut.few_zeros,
        **cut.thread_numbers(cut.trades), "LAUNCHED": cut.threads,
        "R": problem.r, "S": problem.s, "STRIDE_Y": problem.stride[0], "STRIDE_X": problem.stride[1],
        "DILATION_Y": problem.dilation[0], "DILATION_X": problem.dilation[1],
    }  # fmt: skip
    parameters = tuple(Parameter(name, value) for name, value in numbers.items())
    declared = declarations(Specification("spec", (), parameters=parameters))
    headers = ("async", "divisor", "lines", "mma", "numeric", "registers", "wgmma")
    includes = [f"#include <tapestry/{name}.cuh>" for name in headers]
    left = "float" if chosen.apart or partial else "unsigned short"
    half = f"namespace spec {{ using Half = {HALVES[problem.dtype]}; using Left = {left}; }}"
    instance = product(cut.written, problem.dtype, "turned")
    folds = (fold_quadruples.TEXT, *(("wide_fold.cu",) if cut.as_lanes else ())) if chosen.apart else ()
    names = ("wide_rows.cu", "wide_weight_gradient.cu", *folds)
    texts = [kernel_text(name) for name in names]
    return "\n".join([*includes, declared, half, instance, "using namespace tapestry;", *texts])


def workspace_bytes(problem: ConvolutionProblem, chosen: WideWeightGradient) -> int:
    """Bytes of the sums of all splits, where a second launch adds them."""
    return 16 * WideGradientCut(problem, chosen).quadruples * chosen.splits if chosen.apart else 0


def names(problem: ConvolutionProblem, chosen: WideWeightGradient, partial: bool) -> tuple[str, ...]:
    """The kernels of `launches`, in their order; of a `partial` gradient, in f32."""
    folds = FOLDS if WideGradientCut(problem, chosen).as_lanes else fold_quadruples.NAMES
    return (NAME, folds[0 if partial else 1]) if chosen.apart else (NAME,)


def launches(
    problem: ConvolutionProblem, chosen: WideWeightGradient, x: View, dy: View, workspace: int, out: int
) -> tuple[Launch, ...]:
    """The launch that leaves the sums of every split, and the one that adds them into `out`, dense like the filter.

    Of a single split or a cluster, the launch that leaves its sums in `out`.
    """
    cut = WideGradientCut(problem, chosen)
    x_maps, left = cut.walked.maps(x, problem.padding[2])
    dy_map = tensor_map(dy, (chosen.images, 1, chosen.columns), cut.channels_brought)
    divisors = (cut.channel_blocks, chosen.parts, cut.column_tiles, problem.p)
    stretch, longer = divmod(cut.work, chosen.splits)
    numbers = (
        stretch, longer, problem.h, problem.padding[0], *left, cut.groups, cut.octets_out,
        chosen.x_parts, problem.k,
    )  # fmt: skip
    work = b"".join([*map(packed_divisor, divisors), struct.pack("<10i", *numbers)])
    made = (x_maps, dy_map, workspace if chosen.apart else out, work)
    along_y = chosen.splits if chosen.clustered else 1
    grid, cluster = (cut.channel_blocks * (chosen.splits // along_y), along_y), (1, along_y)
    first = Launch(grid, (cut.threads,), made, cut.shared, cluster, residents=chosen.blocks)
    if not chosen.apart:
        return (first,)
    further = (work,) if cut.as_lanes else ()
    return first, fold_quadruples.launch(cut.quadruples, chosen.splits, workspace, out, *further)
