"""The fields of a protocol buffer, read without the classes of its schema."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DOUBLE, FLOAT = struct.Struct("<d"), struct.Struct("<f")


class Malformed(ValueError):
    """The bytes are not what they should be."""


class WireField(NamedTuple):
    """One field. `raw` has the bytes of all types but VARINT, whose value is `number`."""

    id: int
    type: int
    number: int = 0
    raw: bytes = b""

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")

    @property
    def signed(self) -> int:
        """The value of an int32 or int64."""
        return self.number - 2**64 if self.number >= 2**63 else self.number

    @property
    def zigzag(self) -> int:
        """The value of a sint32 or sint64."""
        return (self.number >> 1) ^ -(self.number & 1)

    @property
    def floating(self) -> float:
        """The value of a float or double. Raises Malformed."""
        if self.type not in (FIXED32, FIXED64):
            raise Malformed(f"field {self.id} is no floating-point number")
        value: float = (FLOAT if self.type == FIXED32 else DOUBLE).unpack(self.raw)[0]
        return value


def fields(content: bytes) -> Iterator[WireField]:
    """Yield the fields of a message in their order. Raises Malformed."""
    place, end = 0, len(content)
    while place < end:
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _varint(content, place)
            yield WireField(number, kind, value)
            continue
        if kind == BYTES:
            size, place = _varint(content, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Malformed(f"got the wire type {kind}")
        if size > end - place:
            raise Malformed(f"field {number} is longer than its message")
        yield WireField(number, kind, 0, content[place : place + size])
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
    raise Malformed("a number does not end")
