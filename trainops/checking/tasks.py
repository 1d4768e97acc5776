"""What a process of a check does: one request, one answer."""

import socket
from collections.abc import Iterator
from itertools import islice

from trainops.checking.attempting import attempt
from trainops.checking.costs import measure
from trainops.checking.messages import (
    Answer,
    AttemptRequest,
    CheckpointDifferences,
    Compare,
    Measure,
    Request,
)
from trainops.messages import prepare
from trainops.process.state_digests import digest
from trainops.process.wire import Wire
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpoint.stream import Stream

MAX_PATHS = 100
prepare(Request)  # once, by the server


def work(end: socket.socket) -> None:
    """Answer the request that arrives on this end."""
    wire = Wire[Request](end, Request, float("inf"))
    while True:
        for request in wire.read():
            wire.send(_answer(request))
            return


def _answer(request: Request) -> Answer:
    match request:
        case AttemptRequest():
            return attempt(request)
        case Compare():
            paths = differing(_loaded(request.one), _loaded(request.other))
            return CheckpointDifferences(tuple(islice(paths, MAX_PATHS)))
        case Measure():
            return measure(request)


def differing(one: object, other: object, path: str = "") -> Iterator[str]:
    """Yield the paths under which two states differ, bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            inner = f"{path}.{name}" if path else str(name)
            if name not in one or name not in other:
                yield inner
            else:
                yield from differing(one[name], other[name], inner)
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            yield path
        for number, pair in enumerate(zip(one, other, strict=False)):
            yield from differing(*pair, f"{path}[{number}]")
    elif _bits(one) != _bits(other):
        yield path


def _bits(value: object) -> str:
    if isinstance(value, Stream):
        return digest({name: value.column(name) for name in value.columns})
    return digest(value)


def _loaded(candidate: Candidate) -> dict[str, object]:
    return CheckpointStore(candidate.path.parent, identity={}).load(candidate)
