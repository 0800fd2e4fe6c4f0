"""The processes of a run: who they are, how they say that they failed, and what they tell one another."""

from __future__ import annotations

import atexit
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ...errors import TapestryError, UsageError
from ...planner.format import Resolved
from ..device import Device
from ..faults import PeerFailed, described
from ..memory import Memory
from ..transport.company import Post
from ..transport.torch_distributed import TorchDistributed, poster
from ..transport.transport import Transport

# Ranks that do not hear of a failure within this time are left to their fate.
FAREWELL_S = 3.0
# What another rank is about to say is looked for this often.
LOOK_S = 1e-3


@dataclass(frozen=True)
class Failure:
    """Who failed first, and its error as data."""

    origin: int
    cause: dict[str, Any]


class Group:
    """All processes that torchrun started. ``rank`` is this one."""

    def __init__(self) -> None:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            if name not in os.environ:
                raise UsageError(f"{name} is not set", hint="start the ranks with torchrun")
        torch.set_num_threads(1)
        store, self.rank, self.size = next(iter(rendezvous("env://", timeout=timedelta(minutes=5))))
        self.store = PrefixStore("tapestry", store)
        self.own = not dist.is_initialized()
        self.handle = self._connect()
        self.handles = {"gloo": self.handle}
        self.runs = 0
        self.failed = False
        atexit.register(self._leave)

    def _connect(self) -> Any:
        if not self.own:
            return dist.new_group(backend="gloo")
        dist.init_process_group(
            "gloo", store=PrefixStore("gloo", self.store), rank=self.rank, world_size=self.size,
            timeout=timedelta(hours=24),
        )  # fmt: skip
        return None  # the default group

    # -- failures --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new run: failures are told apart by its number, which is the same on all ranks."""
        self.runs += 1

    def _key(self, name: str) -> str:
        return f"run{self.runs}/{name}"

    def publish(self, error: BaseException) -> None:
        """Tell the others that this rank failed, unless one did before, and give them time to hear it."""
        self.failed = True
        said = json.dumps([self.rank, described(error, self.rank)])
        first = self.store.compare_set(self._key("failure"), "", said).decode()
        if first == said:
            self.store.add(self._key("heard"), 1)
            until = monotonic() + FAREWELL_S
            while monotonic() < until and self.store.add(self._key("heard"), 0) < self.size:
                sleep(0.02)

    def accuse(self, error: TapestryError, rank: int) -> None:
        """Publish for a rank that cannot speak for itself."""
        said = json.dumps([rank, described(error, rank)])
        self.store.compare_set(self._key("failure"), "", said)

    def tell(self, name: str, value: str) -> None:
        """Leave a word for the other ranks, under this one's number."""
        self.store.set(self._key(f"{name}{self.rank}"), value)

    def told(self, name: str, rank: int) -> str | None:
        """What a rank left under a name, if it did."""
        key = self._key(f"{name}{rank}")
        return self.store.get(key).decode() if self.store.check([key]) else None

    def heard_from(self, name: str, rank: int) -> str:
        """What a rank leaves under a name, once it has. PeerFailed where one failed meanwhile.

        It is looked for again and again: a store that waits lets no other thread of this process ask it anything.
        """
        while (said := self.told(name, rank)) is None:
            failure = self.failure()
            if failure is not None:
                raise PeerFailed(failure.origin, failure.cause)
            sleep(LOOK_S)
        return said

    def failure(self) -> Failure | None:
        """What was published, if anything was."""
        if not self.store.check([self._key("failure")]):
            return None
        origin, cause = json.loads(self.store.get(self._key("failure")))
        return Failure(int(origin), cause)

    def heard(self, failure: Failure) -> PeerFailed:
        """Acknowledge another rank's failure."""
        self.failed = True
        self.store.add(self._key("heard"), 1)
        return PeerFailed(failure.origin, failure.cause)

    # -- data ------------------------------------------------------------------------------------------------------

    def transport(self, device: Device, plan: Resolved, memory: Memory | None) -> Transport:
        """The way of a device's arrays between the processes of the group, all of which call it."""
        own = device.transport(self, plan, memory)
        return TorchDistributed(device, self.rank, self.post(device.backend)) if own is None else own

    def post(self, backend: str) -> Post:
        """Packets through a backend of torch.distributed. The first call for a backend is one of all processes."""
        if backend not in self.handles:
            self.handles[backend] = dist.new_group(backend=backend)
        return poster(self.handles[backend])

    def barrier(self) -> None:
        """All ranks are here."""
        dist.barrier(group=self.handle)

    def maximum(self, value: float) -> float:
        """The largest value of any rank."""
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.handle)
        return float(tensor.item())

    def gathered(self, data: bytes) -> list[bytes]:
        """What every rank passed, at rank 0; elsewhere an empty list."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self.handle)
        if self.rank:
            self.post("gloo")([(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0)], [], 0)()
            return []
        parts = [torch.empty(int(size), dtype=torch.uint8) for size in sizes]
        self.post("gloo")([], [(part, src) for src, part in enumerate(parts) if src], 0)()
        return [data, *(part.numpy().tobytes() for part in parts[1:])]

    def close(self) -> None:
        """Leave; Gloo's threads must have ended before the interpreter does, so nothing may hold on to the group."""
        self.handle, self.handles = None, {}
        if self.own and dist.is_initialized():
            dist.destroy_process_group()

    def _leave(self) -> None:
        """At the end of the process.

        After a failure threads may still wait for ranks that are gone, and nothing wakes them. One that woke while the
        interpreter is taken down would abort it, so the process ends here, as failed.
        """
        if not self.failed:
            self.close()
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


@cache
def group() -> Group:
    """The group of this process, connected on first use and kept."""
    return Group()
