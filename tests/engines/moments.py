"""The moments of a save, at each of which a test can let a process die.

The product has no hooks for this: what it calls at such a moment is wrapped from outside.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from trainops.process.supervisor_client import SupervisorClient
from trainops.process.wire import Wire
from trainops.runtime.checkpoint import archives, store
from trainops.runtime.checkpoint.durable import DurableFile
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpointer import Checkpointer

DIES_AT = "TEST_DIES_AT"  # "staged 2": at that moment of the second save of this process


@dataclass(frozen=True)
class Moment:
    """Before or after a call of `owner.name`; `word`: one with an argument of this class."""

    owner: Any
    name: str
    is_after: bool
    word: str = ""


def before(owner: Any, name: str) -> Moment:
    return Moment(owner, name, is_after=False)


def after(owner: Any, name: str, word: str = "") -> Moment:
    return Moment(owner, name, is_after=True, word=word)


MOMENTS = {  # in the order of a save
    "copy-to-begin": before(Checkpointer, "freeze"),
    "copied": before(Checkpointer, "_save_safe_point"),
    "directory-made": after(CheckpointStore, "_new_directory"),
    "part-begun": after(DurableFile, "_write"),
    "part-written": before(archives, "write_archive"),
    "parts-written": before(DurableFile, "finish"),
    "part-synced": after(DurableFile, "finish"),
    "parts-synced": after(store, "write_parts"),
    "directory-synced": before(store, "write_whole"),
    "manifest-drafted": before(Path, "rename"),
    "manifest-named": after(Path, "rename"),
    "checkpoint-synced": after(CheckpointStore, "_write"),
    "staged": after(Wire, "send", "Staged"),
    "committed": after(SupervisorClient, "checkpointed"),
}


def arm() -> None:
    """Let this process die at the moment that the environment names, if it names one."""
    if at := os.environ.get(DIES_AT):
        name, number = at.split()
        saves = _Saves(MOMENTS[name], int(number))
        _wrap(Checkpointer, "start_saving", saves.count)
        _wrap(MOMENTS[name].owner, MOMENTS[name].name, saves.die_around)


@dataclass
class _Saves:
    moment: Moment
    dies_in: int
    number: int = 0

    def count(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Count a save, and wait for it: else the last one may begin before this one is done."""
        attempt, _, kind = arguments
        self.number += 1
        result = function(*arguments, **named)
        if kind is CheckpointType.PERIODIC:
            for saving in attempt._savings:
                saving.join()
        return result

    def die_around(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        is_now = self.number == self.dies_in and (
            not self.moment.word or self.moment.word in map(_name, arguments)
        )
        if is_now and not self.moment.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def _name(argument: Any) -> str:
    return type(argument).__name__


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    function = getattr(owner, name)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return around(function, *arguments, **named)

    setattr(owner, name, call)
