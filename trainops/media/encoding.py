"""PNG and WAV, by the standard library."""

import io
import struct
import wave
import zlib
from typing import TYPE_CHECKING

from trainops.media.errors import MediaError
from trainops.media.limits import MAX_RATE, MAX_SIDE, MIN_RATE

if TYPE_CHECKING:
    from trainops.media.arrays import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # by channels: grey, RGB, RGBA
HEADER = struct.Struct(">IIBBBBB")
SAMPLE_BYTES = 2


def png(pixels: "Array") -> bytes:
    """Return bytes (height, width, channels) as PNG."""
    height, width, channels = pixels.shape
    header = HEADER.pack(width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: rows without a filter
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def require_png(content: bytes) -> None:
    """Raise MediaError unless it begins as a PNG of an allowed size."""
    start = SIGNATURE + struct.pack(">I", HEADER.size) + b"IHDR"
    header = content[len(start) : len(start) + HEADER.size]
    if not content.startswith(start) or len(header) < HEADER.size:
        raise MediaError(f"content: got {content[:8]!r}…; allowed: a PNG file")
    width, height, *_ = HEADER.unpack(header)
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        problem = f"got an image of {width} x {height} pixels"
        raise MediaError(f"content: {problem}; allowed: 1 to {MAX_SIDE} each")


def wav(samples: "Array", rate: int) -> bytes:
    """Return 16-bit samples (number, channels) as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(samples.shape[1])
        writer.setsampwidth(SAMPLE_BYTES)
        writer.setframerate(rate)
        writer.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def require_wav(content: bytes) -> None:
    """Raise MediaError unless it is a WAV file as `wav` writes it."""
    try:
        with wave.open(io.BytesIO(content)) as reader:
            found = reader.getnchannels(), reader.getsampwidth(), reader.getframerate()
    except (wave.Error, EOFError) as error:
        raise MediaError(f"content: got {content[:8]!r}… ({error}); allowed: a WAV file") from None
    channels, width, rate = found
    if channels > 2 or width != SAMPLE_BYTES or not MIN_RATE <= rate <= MAX_RATE:
        problem = f"got {channels} channels, {8 * width} bits, {rate} samples per second"
        allowed = f"1 or 2 channels, 16 bits, {MIN_RATE} to {MAX_RATE}"
        raise MediaError(f"content: {problem}; allowed: {allowed}")
