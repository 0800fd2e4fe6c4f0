"""Records at places that the data say, many places of few points each: every warp seeks the points of some places.

    out[v, d] = sum[t] x[t, d] if at[t] == v else 0

The threads of a warp look at as many places that are asked for at a time, and then fold, one after another, the points
that ask for one of the warp's own: each thread into records of its own. The order is that of the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...expr import depends_on
from ...kernels.elementwise.source import indented
from .jobs import Fold, Job
from .machine import THREADS, WARP

# Places from which on a warp has few points to fold; warps that a GPU needs to be busy.
MANY, BUSY = 64, 1 << 13
# Times that each thread looks before the warp folds; records of a thread at one place.
LOOKS, RECORDS = 8, 4


@dataclass(frozen=True)
class Seeking:
    """A warp has ``records`` records of each of ``places`` places, of which there are ``extent``."""

    dim: str
    extent: int
    places: int
    points: int
    records: int

    @property
    def parts(self) -> int:
        """Warps of one place."""
        return -(-self.points // self.records)

    @property
    def warps(self) -> int:
        return -(-self.extent // self.places) * self.parts

    def lines(
        self, fold: Fold, kinds: tuple[str, str], asked: tuple[Sequence[str], str], found: Sequence[str]
    ) -> list[str]:
        """The statements. ``asked``: those that find which place the point ``q`` of the fold asks for, and the value;
        ``found``: those that fold the point ``q`` into the record ``k`` of a place.
        """
        kind, natural = kinds
        count = fold.points
        preparing, value = asked
        mine = f"0 <= asked[u] && asked[u] < {self.extent} && asked[u] / {self.places} == own"
        looking = [
            "asked[u] = -1;",
            f"const {natural} q = first + u * {WARP}u + lane;",
            f"if (q < {count}u) {{",
            *indented([*preparing, f"asked[u] = {value};"], 1).splitlines(),
            "}",
        ]
        each = [
            "const unsigned from = lowest(there);",
            "there &= there - 1u;",
            f"const {natural} q = first + u * {WARP}u + from;",
            f"const {kind} {self.dim} = {kind}(of_lane(asked[u], int(from)));",
            f"for ({natural} k = begin + lane; k < end; k += {WARP}u) {{",
            *indented(found, 1).splitlines(),
            "}",
        ]
        folding = [
            f"unsigned there = lanes_with({mine});",
            "while (there) {",
            *indented(each, 1).splitlines(),
            "}",
        ]
        return [
            f"const {natural} thread = {natural}(blockIdx.x) * {THREADS}u + threadIdx.x;",
            f"const {natural} warp = thread / {WARP}u, lane = thread % {WARP}u, part = warp % {self.parts}u;",
            f"if (warp >= {self.warps}u) return;",
            f"const Int own = Int(warp / {self.parts}u);",
            f"const {natural} begin = part * {self.records}u;",
            f"const {natural} end = begin + {self.records}u < {self.points}u ? begin + {self.records}u : {self.points}u;",
            f"for ({natural} first = 0; first < {count}u; first += {LOOKS * WARP}u) {{",
            f"    Int asked[{LOOKS}];",
            "    #pragma unroll",
            f"    for (unsigned u = 0; u < {LOOKS}u; ++u) {{",
            *indented(looking, 2).splitlines(),
            "    }",
            "    #pragma unroll",
            f"    for (unsigned u = 0; u < {LOOKS}u; ++u) {{",
            *indented(folding, 2).splitlines(),
            "    }",
            "}",
        ]


def seeking(job: Job) -> Seeking | None:
    """How warps share the places of a job; None where they are few, or which place is asked for is not the same for all
    records of a place.
    """
    if len(job.placed) != 1 or len(job.folds) != 1 or not job.points:
        return None
    [fold] = job.folds
    looped = {name for name, _ in fold.looped}
    if len(fold.chosen) != 1 or not looped or not depends_on(fold.chosen[0].value) <= looped:
        return None
    [dim] = job.placed
    extent, points = dict(job.kept)[dim], job.points
    if extent < MANY:
        return None
    records, places = WARP, 1
    while records < RECORDS * WARP and extent * -(-points // records) > BUSY:
        records *= 2
    while -(-extent // places) * -(-points // records) > BUSY:
        places *= 2
    return Seeking(dim, extent, places, points, records)
