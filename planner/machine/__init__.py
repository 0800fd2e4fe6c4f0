"""The described hardware: devices, memory tiers and links, read from TOML (`planner/machines/` holds ours)."""

from .device import KERNEL_CLASSES, READ, DeviceModel, KernelWorkspace, OperationCurve, Pace, Rate, Tier, WorkCurve
from .embed import machine_from_json, machine_to_json
from .errors import MachineError
from .links import COLLECTIVES, Curve, Link, Scope
from .load import load_machine, machine_names
from .machine import Machine, OtherDevices
from .shapes import ShapeTable
from .timing import Points, Timing, monotone
from .units import format_bytes, parse_bytes

__all__ = [
    "COLLECTIVES",
    "KERNEL_CLASSES",
    "READ",
    "Curve",
    "DeviceModel",
    "KernelWorkspace",
    "Link",
    "Machine",
    "MachineError",
    "OperationCurve",
    "OtherDevices",
    "Pace",
    "Points",
    "Rate",
    "Scope",
    "ShapeTable",
    "Tier",
    "Timing",
    "WorkCurve",
    "format_bytes",
    "load_machine",
    "machine_from_json",
    "machine_names",
    "machine_to_json",
    "monotone",
    "parse_bytes",
]
