"""A machine as plain JSON data, so that a plan holds the machine it was made for, budgets included."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import MachineError
from .machine import Machine


def machine_to_json(machine: Machine) -> dict[str, Any]:
    """Nested dicts and lists; `machine_from_json` gives an equal machine back.

    What few machines have (islands, shared links, several kinds of devices, shapes, workspaces, windows, starts of
    single operations) is left out where it is not there.
    """
    found = dict(msgspec.to_builtins(machine))
    _leave_out(found, devices_per_island=0, others=[])
    for link in found["links"]:
        _leave_out(link, shared_by=1)
    for device in (found["device"], *(other["device"] for other in found.get("others", ()))):
        _leave_out(device, workspaces=[])
        for pace in device["paces"]:
            for table in pace["shapes"]:
                _leave_out(table, window=0)
            _leave_out(pace, shapes=[])
            for own in pace["operations"]:
                _leave_out(own, start_s=None)
    return found


def _leave_out(holder: dict[str, Any], **unused: object) -> None:
    for name, value in unused.items():
        if holder[name] == value or (value == [] and not holder[name]):
            del holder[name]


def machine_from_json(data: object) -> Machine:
    """Raises MachineError, naming the field, for data that describes no machine."""
    try:
        return msgspec.convert(data, Machine)
    except msgspec.ValidationError as error:
        raise MachineError(f"the embedded machine is malformed: {error}") from error
