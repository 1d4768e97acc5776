"""Scalars and hyperparameters of the event files of one directory, as TensorBoard shows them."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainops.plain import Json
from trainops.sinks.foreign_runs import MAX_RECORD_BYTES, ForeignRun
from trainops.sinks.protobuf import (
    BYTES,
    DOUBLE,
    FIXED32,
    FIXED64,
    FLOAT,
    Malformed,
    WireField,
    fields,
)

MARK = "tfevents"
# Fields of Event, Summary.Value, TensorProto and the data of the plugin hparams.
WALL_TIME, STEP, SUMMARY = 1, 2, 5
TAG, SIMPLE_VALUE, TENSOR, METADATA = 1, 2, 8, 9
DTYPE, CONTENT, FLOATS, DOUBLES, INTS, LONGS = 1, 4, 5, 6, 7, 10
SESSION_START = 3
FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}  # by the number of a data type
TABLE = [0] * 256
for _byte in range(256):
    _rest = _byte
    for _ in range(8):
        _rest = (_rest >> 1) ^ (0x82F63B78 if _rest & 1 else 0)
    TABLE[_byte] = _rest


def read(directory: Path, root: Path) -> ForeignRun:
    """Return the run of a directory with event files. Raises RunUnreadable, OSError."""
    place = directory.relative_to(root).as_posix()
    name = directory.resolve().name if place == "." else place
    run = ForeignRun("tensorboard", name, name, directory)
    plugins: dict[str, str] = {}
    first = None
    for path in sorted(directory.iterdir()):
        if MARK not in path.name or not path.is_file() or path.is_symlink():
            continue
        try:
            with path.open("rb") as file:
                for record in _records(file):
                    at = _event(run, plugins, record)
                    first = at if first is None else first
        except Malformed as problem:
            run.notes.append(f"{path.name} is read up to where {problem}")
    run.started_at = first
    # The directory's name alone may be that of another run in another place.
    run.run = f"{directory.resolve().name} {0.0 if first is None else first:.6f}"
    return run


def _records(file: BinaryIO) -> Iterator[bytes]:
    while head := file.read(12):
        if len(head) < 12:
            raise Malformed("the file is cut off")
        size, check = struct.unpack("<QI", head)
        if _masked(head[:8]) != check:
            raise Malformed("a length is damaged")
        if size > MAX_RECORD_BYTES:
            raise Malformed(f"a record has more than {MAX_RECORD_BYTES} bytes")
        content, tail = file.read(size), file.read(4)
        if len(content) < size or len(tail) < 4:
            raise Malformed("the file is cut off")
        if _masked(content) != struct.unpack("<I", tail)[0]:
            raise Malformed("a record is damaged")
        yield content


def _masked(content: bytes) -> int:
    """Return the masked CRC-32C of TFRecord files."""
    rest = 0xFFFFFFFF
    for byte in content:
        rest = TABLE[(rest ^ byte) & 0xFF] ^ (rest >> 8)
    rest ^= 0xFFFFFFFF
    return (((rest >> 15) | (rest << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _event(run: ForeignRun, plugins: dict[str, str], record: bytes) -> float:
    at, step, summaries = 0.0, 0, []
    for each in fields(record):
        if each.id == WALL_TIME:
            at = each.floating
        elif each.id == STEP:
            step = each.signed
        elif each.id == SUMMARY:
            summaries.append(each.raw)
    for summary in summaries:
        for value in fields(summary):
            if value.id == 1 and value.type == BYTES:
                _value(run, plugins, value.raw, step, at)
    return at


def _value(run: ForeignRun, plugins: dict[str, str], raw: bytes, step: int, at: float) -> None:
    found = {each.id: each for each in fields(raw)}
    tag = found[TAG].text if TAG in found else ""
    if METADATA in found:
        plugin, content = _plugin(found[METADATA].raw)
        plugins.setdefault(tag, plugin)
        if plugin == "hparams":
            run.parameters |= dict(_hyperparameters(content))
    number = None
    if SIMPLE_VALUE in found:
        number = found[SIMPLE_VALUE].floating
    elif TENSOR in found and plugins.get(tag) == "scalars":
        number = _scalar(found[TENSOR].raw)
    if number is not None:
        run.add(tag, step, number, at)


def _plugin(metadata: bytes) -> tuple[str, bytes]:
    name, content = "", b""
    for each in fields(metadata):
        if each.id == 1 and each.type == BYTES:
            for part in fields(each.raw):
                name, content = (part.text, content) if part.id == 1 else (name, part.raw)
    return name, content


def _scalar(tensor: bytes) -> float | None:
    """Return the only element of a tensor; None if it has others, or a type without numbers."""
    dtype, found = 0, None
    for each in fields(tensor):
        if each.id == DTYPE:
            dtype = each.number
        elif each.id == CONTENT and (form := FORMATS.get(dtype)):
            is_one = len(each.raw) == struct.calcsize(form)
            found = float(struct.unpack(form, each.raw)[0]) if is_one else None
        elif each.id in (FLOATS, DOUBLES):
            found = _packed(each)
        elif each.id in (INTS, LONGS):
            found = float(each.signed) if each.type != BYTES else _first_integer(each.raw)
    return found


def _packed(each: WireField) -> float | None:
    if each.type in (FIXED32, FIXED64):
        return each.floating
    form = FLOAT if each.id == FLOATS else DOUBLE
    return float(form.unpack(each.raw)[0]) if len(each.raw) == form.size else None


def _first_integer(raw: bytes) -> float:
    packed = bytes([0x08]) + raw  # as a field of its own
    return float(next(fields(packed)).signed)


def _hyperparameters(content: bytes) -> Iterator[tuple[str, Json]]:
    """Yield the values of a session of the plugin hparams."""
    for part in fields(content):
        if part.id != SESSION_START or part.type != BYTES:
            continue
        for entry in fields(part.raw):
            if entry.id == 1 and entry.type == BYTES:
                pair = {each.id: each for each in fields(entry.raw)}
                if 1 in pair and 2 in pair:
                    yield pair[1].text, _plain(pair[2].raw)


def _plain(value: bytes) -> Json:
    for each in fields(value):
        match each.id:
            case 2:
                number = each.floating
                is_whole = re.fullmatch(r"-?\d{1,15}\.0", repr(number))
                return int(number) if is_whole else number
            case 3:
                return each.text
            case 4:
                return bool(each.number)
    return None
