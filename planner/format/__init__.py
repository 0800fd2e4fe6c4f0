"""The plan document: records, JSON codec, resolution, and the messages that transfers stand for."""

from .document import (
    FORMAT,
    Buffer,
    Compute,
    Copy,
    Document,
    LayoutText,
    Predicted,
    Sharding,
    Solver,
    Task,
    Traffic,
    Transfer,
)
from .messages import Message
from .resolve import Resolved

__all__ = [
    "FORMAT",
    "Buffer",
    "Compute",
    "Copy",
    "Document",
    "LayoutText",
    "Message",
    "Predicted",
    "Resolved",
    "Sharding",
    "Solver",
    "Task",
    "Traffic",
    "Transfer",
]
