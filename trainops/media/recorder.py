"""What the recipe has logged since the last safe point of its job."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, SupportsFloat, get_args

from trainops.media.arrays import array_of, described
from trainops.media.errors import MediaError
from trainops.media.items import MediaItem
from trainops.media.limits import (
    MAX_ITEM_BYTES,
    MAX_ITEMS,
    MAX_LOGGED_BYTES,
    MAX_NAME,
    MAX_NUMBERS,
)
from trainops.media.names import SYSTEM
from trainops.media.values import Audio, ConfusionMatrix, Histogram, Image, Table

Single = Image | Histogram | Table | ConfusionMatrix | Audio
Several = Image | Audio  # of which a list can be logged
MEDIA = get_args(Single)


def log(name: str, value: SupportsFloat | Single | Sequence[Image] | Sequence[Audio]) -> None:
    """Log a number, an image, a histogram, a table, a confusion matrix, or a clip.

    Also a list of images or of clips. A number, or a tensor or an array of one element, is a point
    of the operation's curves. What is logged belongs to the step that is computed; of values with
    one name in one step the last counts. Outside of an operation it is only checked. Raises
    MediaError.
    """
    try:
        if isinstance(value, (*MEDIA, list, tuple)):
            RECORDER.add(_name(name), _values(value))
        else:
            RECORDER.add_number(_name(name), _number(value))
    except MediaError as error:
        raise MediaError(f"log({name!r:.80}): {error}") from None


def _name(name: object) -> str:
    is_text = isinstance(name, str) and name.isprintable() and bool(name.strip())
    if not is_text or len(str(name)) > MAX_NAME:
        raise MediaError(f"got {name!r:.80}; allowed: 1 to {MAX_NAME} printable characters")
    return str(name)


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        if not hasattr(value, "__array__"):  # neither of NumPy nor of torch
            names = ", ".join(each.__name__ for each in MEDIA)
            allowed = f"a number, {names}, or a list of one type of these but numbers"
            raise MediaError(f"got {described(value)}; allowed: {allowed}")
        array = array_of(value, "number")
        if array.size != 1:
            raise MediaError(f"got {described(value)}; allowed: one element, or a Histogram of all")
        value = array.item()
    try:
        return float(value)
    except OverflowError:
        raise MediaError("got an integer beyond 1.8e308; allowed: what a float can hold") from None


def _values(value: Any) -> list[Single]:
    if not isinstance(value, list | tuple):
        return [value]
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
        self.numbers: dict[str, float] = {}
        self._process = 0

    def open(self, numbers: Mapping[str, float]) -> None:
        """Begin to keep what is logged. numbers: what the step had logged before its evaluation."""
        self.is_open, self._process = True, os.getpid()
        self.numbers = dict(numbers)

    def close(self) -> None:
        self.is_open = self.is_preparing = False
        self.logged, self.numbers = {}, {}

    def add_number(self, name: str, number: float) -> None:
        if name.startswith(SYSTEM):
            raise MediaError(f"got a name that begins with {SYSTEM}; allowed: others")
        if not self._is_kept():
            return
        if len(self.numbers) >= MAX_NUMBERS and name not in self.numbers:
            raise MediaError(f"got {MAX_NUMBERS + 1} names in one step; allowed: {MAX_NUMBERS}")
        self.numbers[name] = number

    def add(self, name: str, values: Sequence[Single]) -> None:
        if not self._is_kept():
            return
        items = [
            MediaItem(0, False, name, index, each.type, each.caption, each.encode())
            for index, each in enumerate(values)
        ]
        _require_size(items)
        self.logged[name] = items

    def _is_kept(self) -> bool:
        if self.is_preparing:
            raise MediaError("got a call before the first step; allowed: in steps and evaluations")
        if self.is_open and os.getpid() != self._process:
            allowed = "in the process that trains"
            raise MediaError(f"got a call in a worker process of a loader; allowed: {allowed}")
        return self.is_open

    def take(self) -> tuple[MediaItem, ...]:
        taken, self.logged = self.logged, {}
        return tuple(each for items in taken.values() for each in items)

    def take_numbers(self, recorded: Collection[str]) -> dict[str, float]:
        """Return the numbers. recorded: names that the job itself records at this step."""
        taken, self.numbers = self.numbers, {}
        for name in recorded:
            if name in taken:
                problem = f"log({name!r}): got a name of a metric that the recipe records itself"
                raise MediaError(f"{problem}; allowed: another name")
        return taken


def _require_size(items: Sequence[MediaItem]) -> None:
    largest, total = max(len(e.content) for e in items), sum(len(e.content) for e in items)
    if largest > MAX_ITEM_BYTES:
        problem = f"got {largest} bytes, encoded"
        raise MediaError(f"{problem}; allowed: up to {MAX_ITEM_BYTES}; make it smaller or shorter")
    if total > MAX_LOGGED_BYTES:
        problem = f"got {total} bytes in {len(items)} items"
        raise MediaError(f"{problem}; allowed: up to {MAX_LOGGED_BYTES} in one call")


RECORDER = Recorder()
