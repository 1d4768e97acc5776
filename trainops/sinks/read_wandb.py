"""Runs of Weights & Biases, from the files `run-ID.wandb` of their directories.

Such a file is a log of LevelDB with a header of its own: blocks of 32 KiB with parts of records,
each with a checksum; a record is a protocol buffer.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from trainops.plain import Json
from trainops.sinks.foreign_runs import (
    MAX_RECORD_BYTES,
    MAX_TIME,
    MIN_TIME,
    ForeignRun,
    RunUnreadable,
    flattened,
)
from trainops.sinks.protobuf import BYTES, Malformed, WireField, fields

HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
BLOCK, PART = 32768, struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
# Fields of Record, RunRecord, ConfigRecord, HistoryRecord and RunExitRecord.
HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
RUN_ID, PROJECT, RUN_CONFIG, RUN_NAME, RUN_TAG, STARTED = 1, 3, 4, 8, 10, 17
KEY, NESTED_KEY, VALUE_JSON = 1, 2, 16
STEP_KEYS = ("trainops/step", "_step")  # the first is that of our own exports


def read(path: Path) -> ForeignRun:
    """Return the run of a file. Raises RunUnreadable, OSError."""
    run_id = path.stem.removeprefix("run-")
    run = ForeignRun("wandb", run_id, run_id, path.parent)
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise RunUnreadable("it does not begin as a file of Weights & Biases does")
        try:
            for record in _records(file):
                for part in fields(record):
                    _read(run, part)
        except Malformed as problem:
            run.notes.append(f"{path.name} is read up to where {problem}")
    return run


def _records(file: BinaryIO) -> Iterator[bytes]:
    content: list[bytes] = []
    for kind, part in _parts(file):
        if (kind in (FULL, FIRST)) == bool(content):
            raise Malformed("a record is not complete")
        content.append(part)
        if sum(map(len, content)) > MAX_RECORD_BYTES:
            raise Malformed(f"a record has more than {MAX_RECORD_BYTES} bytes")
        if kind in (FULL, LAST):
            yield b"".join(content)
            content = []
    if content:
        raise Malformed("the file is cut off")


def _parts(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    place = len(HEADER)
    while True:
        if (left := BLOCK - place % BLOCK) < PART.size:
            file.read(left)  # too few bytes for a part
            place += left
        head = file.read(PART.size)
        if not head:
            return
        if len(head) < PART.size:
            raise Malformed("the file is cut off")
        check, size, kind = PART.unpack(head)
        part = file.read(size)
        if len(part) < size:
            raise Malformed("the file is cut off")
        if check != zlib.crc32(head[6:] + part) or not FULL <= kind <= LAST:
            raise Malformed("a record is damaged")
        yield kind, part
        place += PART.size + size


def _read(run: ForeignRun, part: WireField) -> None:
    if part.type != BYTES:
        return
    if part.id == HISTORY:
        _history(run, part.raw)
    elif part.id == CONFIG:
        _config(run, part.raw)
    elif part.id == EXIT:
        codes = [each.signed for each in fields(part.raw) if each.id == 1]
        run.status = f"exit code {codes[-1] if codes else 0}"
    elif part.id == RUN:
        _describe(run, part.raw)


def _describe(run: ForeignRun, raw: bytes) -> None:
    project, run_id, tags = "", run.run, []
    for each in fields(raw):
        if each.id == RUN_ID:
            run_id = each.text
        elif each.id == PROJECT:
            project = each.text
        elif each.id == RUN_NAME:
            run.name = each.text
        elif each.id == RUN_TAG:
            tags.append(each.text)
        elif each.id == RUN_CONFIG:
            _config(run, each.raw)
        elif each.id == STARTED:
            clock = {part.id: part.number for part in fields(each.raw)}
            run.started_at = clock.get(1, 0) + clock.get(2, 0) / 1e9
    run.run = f"{project}/{run_id}" if project else run_id
    run.tags = tags


def _config(run: ForeignRun, raw: bytes) -> None:
    for update in fields(raw):
        if update.id != 1 or update.type != BYTES:
            continue
        name, value = _item(update.raw)
        if not name.startswith("_"):
            inner = value.get("value", value) if isinstance(value, dict) else value
            run.parameters |= dict(flattened({name: inner}))


def _history(run: ForeignRun, raw: bytes) -> None:
    row: dict[str, Json] = {}
    for each in fields(raw):
        if each.id == 1 and each.type == BYTES:
            name, value = _item(each.raw)
            row[name] = value
        elif each.id == 2 and each.type == BYTES:
            row.setdefault("_step", next((p.signed for p in fields(each.raw) if p.id == 1), 0))
    step, at = _step(row), _number(row.get("_timestamp"))
    values = dict(flattened(row))
    media = (name.removesuffix("_type") for name in values if name.endswith("._type"))
    other = ("_", *media)  # the parts of an image, histogram or table have its name and a dot first
    for name, value in values.items():
        is_other = name.startswith(other) or name in STEP_KEYS
        if is_other or (number := _number(value)) is None:
            continue
        if step is None:
            run.leave_out(name, "steps that are no numbers")
        else:
            run.add(name, step, number, at or 0.0)
    if at is not None and MIN_TIME <= at <= MAX_TIME:
        run.finished_at = max(run.finished_at or 0.0, at)


def _step(row: Mapping[str, Json]) -> int | None:
    """Return the step of a row, 0 where it has none; None where it is no finite number."""
    given = next((row[key] for key in STEP_KEYS if row.get(key) is not None), 0)
    if isinstance(given, int):
        return given
    number = _number(given)
    return int(number) if number is not None and math.isfinite(number) else None


def _number(value: Json) -> float | None:
    if isinstance(value, int | float):  # booleans, too
        try:
            return float(value)
        except OverflowError:
            return None
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else None


def _item(raw: bytes) -> tuple[str, Json]:
    """Return name and value of an item. What cannot be read has None."""
    name, nested, value = "", [], None
    for each in fields(raw):
        if each.id == KEY:
            name = each.text
        elif each.id == NESTED_KEY:
            nested.append(each.text)
        elif each.id == VALUE_JSON:
            value = _parsed(each.text)
        elif each.id == 4:
            value = bool(each.number)
        elif each.id == 5:
            value = each.zigzag
        elif each.id == 6:
            value = each.floating
    return name or ".".join(nested), value


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
