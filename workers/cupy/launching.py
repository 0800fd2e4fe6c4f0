"""Launches of kernels on the current stream of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...kernels.elementwise.launch import PORTABLE_CLUSTER
from ...kernels.runtime.module import Prepared, load
from .capturing import behind_a_kernel
from .machine import Unit

if TYPE_CHECKING:
    from .cuda import CudaMachine


class Launch:
    """A launch that is loaded when it first runs. It keeps its arrays alive."""

    def __init__(self, machine: CudaMachine, unit: Unit, arguments: Sequence[Any], held: tuple[object, ...]) -> None:
        self.machine, self.unit, self.arguments, self.held = machine, unit, arguments, held
        self.prepared: Prepared | None = None
        self.early: Prepared | None = None  # the launch that may overlap the end of the kernel ahead

    @property
    def kernels(self) -> tuple[str, ...]:
        """Its name."""
        return (self.unit.entry,)

    def load(self) -> Prepared:
        """The kernel loaded, the launch laid out, once."""
        if self.prepared is None:
            kernel = load(self.machine.compiled(self.unit), self.machine.device)
            if self.unit.cluster > PORTABLE_CLUSTER:
                kernel.allow_large_clusters()
            launch = self.unit.blocks, self.unit.threads, self.arguments, self.unit.shared
            self.prepared = kernel.prepare(*launch)
            if self.unit.follows and self.machine.overlaps:
                self.early = kernel.prepare(*launch, programmatic=True)
        return self.prepared

    def __call__(self) -> None:
        plain, stream = self.prepared or self.load(), self.machine.stream
        early = self.early if self.machine.capturing and behind_a_kernel(stream) else None
        (early or plain).launch(stream)
