"""The plan document: records, JSON codec, resolution, and the messages that transfers stand for."""

from .messages import Message
from .model import (
    FORMAT,
    Buffer,
    Compute,
    Copy,
    Document,
    Layout,
    Predicted,
    Sharding,
    Solver,
    Task,
    Traffic,
    Transfer,
)
from .resolve import Resolved

__all__ = [
    "FORMAT",
    "Buffer",
    "Compute",
    "Copy",
    "Document",
    "Layout",
    "Message",
    "Predicted",
    "Resolved",
    "Sharding",
    "Solver",
    "Task",
    "Traffic",
    "Transfer",
]
