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
    MeshTried,
    Origin,
    Place,
    Predicted,
    Rewrite,
    Sharding,
    Task,
    Traffic,
    Transfer,
    Workspace,
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
    "MeshTried",
    "Message",
    "Origin",
    "Place",
    "Predicted",
    "Resolved",
    "Rewrite",
    "Sharding",
    "Task",
    "Traffic",
    "Transfer",
    "Workspace",
]
