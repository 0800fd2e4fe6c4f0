"""The plan document: records, JSON codec, resolution, and the messages that transfers stand for."""

from .document import (
    FORMAT,
    Buffer,
    Claims,
    Compute,
    Copy,
    Document,
    KernelTime,
    LayoutText,
    LowerBound,
    Predicted,
    Sharding,
    Task,
    Traffic,
    Transfer,
)
from .messages import Message
from .resolve import Resolved

__all__ = [
    "FORMAT",
    "Buffer",
    "Claims",
    "Compute",
    "Copy",
    "Document",
    "KernelTime",
    "LayoutText",
    "LowerBound",
    "Message",
    "Predicted",
    "Resolved",
    "Sharding",
    "Task",
    "Traffic",
    "Transfer",
]
