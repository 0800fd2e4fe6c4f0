"""Devices whose tasks are late, and poison what they are about to write. Ranks load them by name, "delayed:Late".

The file that DELAYS names says how late, a record for each plan of a run: ``seed`` of random pauses ahead of all tasks,
or the one task that is ``aimed`` at, ahead of which the pause is long.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar

from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.machine import Unit
from tapestry.workers.device import Bound, Device, Evaluation, Replay, Runner, in_order
from tapestry.workers.numpy.device import NumpyDevice

PAUSES_US = (0, 0, 20, 100, 400)
AIMED_US = 5000

SPIN = """
extern "C" __global__ void {name}() {{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {{
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    }} while (now - start < {us}000ull);
}}
"""


class Delaying(Device):
    """What both have in common. A process opens one for each plan."""

    opened: ClassVar[int] = 0

    def pause(self, us: int) -> Runner:
        """So long is the lane busy."""
        raise NotImplementedError

    def compute(self, task: Evaluation) -> Runner:
        run = super().compute(task)  # type: ignore[safe-super]
        if any(_address(read.array) == _address(task.write.array) for read in task.reads.values()):
            return run
        return in_order([lambda: self.poison(task.write.array), run])

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        said = json.loads(Path(os.environ["DELAYS"]).read_text())[Delaying.opened]
        Delaying.opened += 1
        random = Random(f"{said.get('seed')} {os.environ['RANK']}")
        late = []
        for bound in tasks:
            us = random.choice(PAUSES_US) if "seed" in said else AIMED_US * (bound.task.id == said["aimed"])
            late.append(replace(bound, run=in_order([self.pause(us), bound.run])) if us else bound)
        return super().replay(late)  # type: ignore[safe-super]


def _address(array: object) -> int:
    return array.pointer if hasattr(array, "pointer") else array.ctypes.data  # type: ignore[attr-defined]


class LateOnHost(Delaying, NumpyDevice):
    def pause(self, us: int) -> Runner:
        return lambda: time.sleep(us * 1e-6)


class Late(Delaying, CupyDevice):
    def pause(self, us: int) -> Runner:
        name = f"spin_{us}"
        return self.machine.launch(Unit(SPIN.format(name=name, us=us), name, 1, 1), [])
