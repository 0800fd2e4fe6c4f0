"""What is raised for machines."""

from __future__ import annotations

from ...errors import UsageError


class MachineError(UsageError):
    """A machine that is not known, not well described, or asked for something it does not have."""
