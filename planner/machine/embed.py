"""A machine as plain JSON data, so that a plan holds the machine it was made for, budgets included."""

from __future__ import annotations

from typing import Any

import msgspec

from .machine import Machine, MachineError


def machine_to_json(machine: Machine) -> dict[str, Any]:
    """Nested dicts and lists; `machine_from_json` gives an equal machine back."""
    return dict(msgspec.to_builtins(machine))


def machine_from_json(data: object) -> Machine:
    """Raises MachineError, naming the field, for data that describes no machine."""
    try:
        return msgspec.convert(data, Machine)
    except msgspec.ValidationError as error:
        raise MachineError(f"the embedded machine is malformed: {error}") from error
