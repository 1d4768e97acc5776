"""What the recipe has logged since the last safe point of its job."""

import os
from collections.abc import Sequence
from typing import get_args

from trainops.media.errors import MediaError
from trainops.media.items import MediaItem
from trainops.media.limits import MAX_ITEM_BYTES, MAX_ITEMS, MAX_LOGGED_BYTES, MAX_NAME
from trainops.media.values import Audio, ConfusionMatrix, Histogram, Image, Table

Single = Image | Histogram | Table | ConfusionMatrix | Audio
Several = Image | Audio  # of which a list can be logged


def log(name: str, value: Single | Sequence[Image] | Sequence[Audio]) -> None:
    """Log an image, a histogram, a table, a confusion matrix, a clip, or a list of images or clips.

    It belongs to the step that is computed; of values with one name in one step the last counts.
    Raises MediaError.
    """
    try:
        RECORDER.add(_name(name), _values(value))
    except MediaError as error:
        raise MediaError(f"log({name!r:.80}): {error}") from None


def _name(name: object) -> str:
    is_text = isinstance(name, str) and name.isprintable() and bool(name.strip())
    if not is_text or len(str(name)) > MAX_NAME:
        raise MediaError(f"got {name!r:.80}; allowed: 1 to {MAX_NAME} printable characters")
    return str(name)


def _values(value: object) -> list[Single]:
    if isinstance(value, get_args(Single)):
        return [value]
    if not isinstance(value, list | tuple):
        names = ", ".join(each.__name__ for each in get_args(Single))
        raise MediaError(f"got a {type(value).__name__}; allowed: {names}, or a list of one type")
    if not 1 <= len(value) <= MAX_ITEMS:
        raise MediaError(f"got a list of {len(value)}; allowed: 1 to {MAX_ITEMS}")
    types = {type(each) for each in value}
    if len(types) > 1 or not types <= set(get_args(Several)):
        given = ", ".join(sorted(each.__name__ for each in types))
        raise MediaError(f"got a list of {given}; allowed: lists of Image, or of Audio")
    return list(value)


class Recorder:
    """What was logged in this process.

    It is closed where no run reads it: in the process that checks the first checkpoint, in ranks
    but rank 0, and while a resume leads back to its place. What is logged then is only checked.
    """

    def __init__(self) -> None:
        self.is_open, self.is_preparing = False, False
        self.logged: dict[str, list[MediaItem]] = {}
        self._process = 0

    def open(self) -> None:
        self.is_open, self._process = True, os.getpid()

    def close(self) -> None:
        self.is_open = self.is_preparing = False
        self.logged = {}

    def add(self, name: str, values: Sequence[Single]) -> None:
        if self.is_preparing:
            raise MediaError("got a call before the first step; allowed: in steps and evaluations")
        if not self.is_open:
            return
        if os.getpid() != self._process:
            allowed = "in the process that trains"
            raise MediaError(f"got a call in a worker process of a loader; allowed: {allowed}")
        items = [
            MediaItem(0, False, name, index, each.type, each.caption, each.encode())
            for index, each in enumerate(values)
        ]
        _require_size(items)
        self.logged[name] = items

    def take(self) -> tuple[MediaItem, ...]:
        taken, self.logged = self.logged, {}
        return tuple(each for items in taken.values() for each in items)


def _require_size(items: Sequence[MediaItem]) -> None:
    largest, total = max(len(e.content) for e in items), sum(len(e.content) for e in items)
    if largest > MAX_ITEM_BYTES:
        problem = f"got {largest} bytes, encoded"
        raise MediaError(f"{problem}; allowed: up to {MAX_ITEM_BYTES}; make it smaller or shorter")
    if total > MAX_LOGGED_BYTES:
        problem = f"got {total} bytes in {len(items)} items"
        raise MediaError(f"{problem}; allowed: up to {MAX_LOGGED_BYTES} in one call")


RECORDER = Recorder()
