"""A photograph under the shard maps: encoded once as PNG, referred to by every map of the same extents."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...drawing.svg import number, tag
from ...errors import UsageError

if TYPE_CHECKING:
    import numpy as np

LARGEST = 1600  # pixels along an axis; larger pictures are thinned


@dataclass(frozen=True)
class Background:
    """Rows and columns of the array (the extents it lies under), and the picture's definition."""

    rows: int
    columns: int
    definition: str

    def part(self, x: float, y: float, width: float, height: float, window: tuple[float, float, float, float]) -> str:
        """The window (left, top, width, height in elements) of the picture, drawn into a rectangle."""
        use = tag("use", href="#background")
        box = " ".join(number(value) for value in window)
        style = "image-rendering:pixelated" if width > 4 * window[2] else None
        return tag(
            "svg", use, x=x, y=y, width=width, height=height, viewBox=box, preserveAspectRatio="none", style=style
        )


def background(pixels: np.ndarray) -> Background:
    """From uint8 [y, x, 3]. UsageError for anything else."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype.name != "uint8" or not pixels.size:
        got = f"{pixels.dtype.name} {list(pixels.shape)}"
        raise UsageError("a background is a picture of uint8 [y, x, 3]", sides={"given": got})
    rows, columns = pixels.shape[:2]
    step = -(-max(rows, columns) // LARGEST)
    data = b64encode(png(pixels[::step, ::step])).decode()
    definition = tag(
        "image",
        id="background",
        width=columns,
        height=rows,
        preserveAspectRatio="none",
        href=f"data:image/png;base64,{data}",
    )
    return Background(rows, columns, definition)


def png(pixels: np.ndarray) -> bytes:
    """uint8 [y, x, 3] as a PNG file (RFC 2083): every row filtered by the one above it, which photographs like."""
    import numpy as np

    rows, columns, _ = pixels.shape
    flat = np.ascontiguousarray(pixels).reshape(rows, 3 * columns)
    filtered = np.empty((rows, 3 * columns + 1), np.uint8)
    filtered[:, 0] = 2  # the filter "up"
    filtered[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
