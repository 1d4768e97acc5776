"""What a sink writes of an operation."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from trainops.plain import Json


class SinkPoint(NamedTuple):
    """One value of one metric at one step; it may be NaN or infinite."""

    name: str
    step: int
    value: float
    at: datetime


Pages: TypeAlias = Iterable[Sequence[SinkPoint]]  # in order of step for each metric


class SinkPointsChanged(Exception):
    """A resume retired points while they were read: what was written so far is discarded."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"{operation_id} was resumed while its points were read; try again")


@dataclass(frozen=True, slots=True)
class Details:
    """An operation without its points."""

    id: str
    name: str
    kind: str
    owner: str  # empty: none
    state: str
    config: Mapping[str, Json]
    started_at: datetime
    finished_at: datetime | None


def flattened(config: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a config by dotted path; text as it is, all else as JSON."""
    for name, value in config.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{path}.")
        else:
            yield path, value if isinstance(value, str) else json.dumps(value)
