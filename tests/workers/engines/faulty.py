"""Devices that fail in one way each. Ranks of other processes load them by name, "faulty:Stopped"."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from tapestry.workers.numpy.device import NumpyDevice
from tapestry.workers.transport.torch_distributed import TorchDistributed
from tapestry.workers.transport.transport import Transport


class Sleeping(NumpyDevice):
    """Every task takes a minute; the process leaves its number."""

    def compute(self, task):
        def sleep():
            Path(os.environ["SEEN"], str(os.getpid())).touch()
            time.sleep(60)

        return sleep


class Stopped(NumpyDevice):
    """Rank 1 stops itself in its first task."""

    def compute(self, task):
        compute = super().compute(task)

        def run():
            if os.environ["RANK"] == "1":
                # To this thread: of a signal to the process another may take notice, and this one goes on for a while.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            compute()

        return run


class Deaf(Transport):
    """Rank 1 keeps what it should send, and waits for ever."""

    def bind(self, movement):
        return threading.Event().wait


class Hanging(NumpyDevice):
    def transport(self, company, plan, memory):
        return Deaf() if company.rank == 1 else None


class Spendthrift(NumpyDevice):
    """Rank 1 says of its transfers that they brought a byte more."""

    def transport(self, company, plan, memory):
        return Counting(self, company.rank, company.post(self.backend)) if company.rank == 1 else None


class Killed(NumpyDevice):
    """Rank 1 is killed: while it starts, or in its first transfer."""

    def __init__(self):
        die("start")
        super().__init__()

    def transport(self, company, plan, memory):
        return Ending(self, company.rank, company.post(self.backend))


class Ending(TorchDistributed):
    def bind(self, movement):
        run = super().bind(movement)

        def carry():
            die("transfer")
            run()

        return carry


def die(when):
    if os.environ["RANK"] == "1" and os.environ["WHEN"] == when:
        os.kill(os.getpid(), signal.SIGKILL)


class Counting(TorchDistributed):
    def bind(self, movement):
        run = super().bind(movement)

        def carry():
            run()
            self.received[movement.place.task, 0, 1] += 1

        return carry
