"""The threads of a block of the kernels of wide groups: warpgroups that multiply, and warps that load and store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from .configuration import register_limit, traded_registers

WARPS_A_GROUP = 4
LEFT_REGISTERS = 32  # of a loader that leaves some


class Warpgroups(ABC):
    """What a cut says of its threads, and what follows."""

    @property
    @abstractmethod
    def warpgroups(self) -> int:
        """Those of a block that multiply."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """An estimate of what one of their threads wants."""

    @property
    @abstractmethod
    def blocks(self) -> int:
        """Blocks that share a multiprocessor."""

    @property
    def helpers(self) -> int:
        """Warps beside those that multiply: one loads rows."""
        return 1

    @cached_property
    def trades(self) -> bool:
        """Whether the loader leaves registers to the warpgroups, where those want more than an equal share of them.

        It is one of four warps then.
        """
        return self.scarce(self.helpers)

    @property
    def threads(self) -> int:
        return self.threads_beside(WARPS_A_GROUP if self.trades else self.helpers)

    def threads_beside(self, others: int) -> int:
        """Threads of a block with so many warps that do not multiply."""
        return 32 * (WARPS_A_GROUP * self.warpgroups + others)

    def scarce(self, others: int) -> bool:
        """Whether one that multiplies wants more registers than an equal share of them beside so many warps."""
        return bool(self.registers > register_limit(self.threads_beside(others), self.blocks))

    @property
    def taken_registers(self) -> int:
        """Registers of a thread of a warpgroup where some are left to it."""
        return int(traded_registers(self.warpgroups, self.blocks, LEFT_REGISTERS))

    def thread_numbers(self, trades: bool) -> dict[str, int | bool]:
        """The constants of wide_rows.cu that say the same."""
        return {
            "WARPGROUPS": self.warpgroups,
            "HELPERS": self.helpers,
            "TAKEN_REGISTERS": self.taken_registers if trades else 0,
            "LEFT_REGISTERS": LEFT_REGISTERS,
        }
