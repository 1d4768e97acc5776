"""Small pictures of images, as PNG in data URIs: what a page can show without another request."""

import struct
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_SIDE = 48
COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # of PNG, by channels


def thumbnail(image: NDArray[Any]) -> str:
    """Return an image (H, W, C) as a data URI; bytes as they are, other numbers from their range.

    Of two channels the first is shown.
    """
    height, width, channels = image.shape
    step = max(1.0, max(height, width) / LARGEST_SIDE)
    rows, columns = (np.arange(0, size, step).astype(int) for size in (height, width))
    small = image[rows][:, columns]
    if channels == 2:
        small = small[:, :, :1]
    return f"data:image/png;base64,{b64encode(_png(_bytes(small))).decode()}"


def _bytes(image: NDArray[Any]) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    low, high = float(image.min()), float(image.max())
    spread = (high - low) or 1.0
    return ((image.astype(np.float64) - low) / spread * 255).round().astype(np.uint8)


def _png(image: NDArray[np.uint8]) -> bytes:
    """Return (H, W, C) bytes as a PNG file (ISO/IEC 15948), each line without a filter."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in image)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum
