"""Reads of a point whose guards have bounds in common: those of a window, of which a row may lie outside.

    before     t0 = (row < 512 && column - 1 >= 0) ? x[..] : 0;  t1 = t0 * w0;  t2 = (row < 512) ? x[..] : 0;  ..
    after      if (row < 512) { t0 = (column - 1 >= 0) ? x[..] : 0;  t2 = x[..]; }  ..

Of the first text ptxas leaves some reads between the arithmetic, how many by what the bound looks like (CUDA 13, sm_90:
a depthwise convolution of 7 x 7 takes 220 us where the bound is from below and 270 us where it is from above, with as
many instructions and registers). Those of a branch are all asked for before the first is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr import Expr, reads
from ...kernels.elementwise.emit import Emitter

# Distinct reads that are asked for together. Of fewer ptxas mingles the turns of a loop, which a branch hinders; of
# more a thread would have to keep too many at once.
FEWEST, MOST = 8, 32


def ask_together(emitter: Emitter, values: Sequence[Expr]) -> None:
    """The reads of values, before anything else is computed, if there are many whose guards have bounds in common."""
    distinct = dict.fromkeys(read for value in values for read in reads(value))
    guarded = [read for read in distinct if read.guard]
    if len(guarded) < FEWEST or len(distinct) > MOST:
        return
    shared = tuple(bound for bound in guarded[0].guard if all(bound in read.guard for read in guarded))
    if shared:
        for read in distinct:
            if not read.guard:
                emitter.value(read)
        emitter.read_together(guarded, shared)
