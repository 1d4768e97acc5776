"""Leaving pieces of a saved state out of its restore, one at a time."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt, bytes_of, merged_curve
from trainops.runtime.checkpoint.store import Candidate, Checkpoint, CheckpointStore, CheckpointType
from trainops.runtime.job import StateDict
from trainops.runtime.loop import Failed

Piece = tuple[Any, ...]  # the keys that lead to it
GONE = object()


class Mutations:
    """One case, stopped at some steps, and restored from there without this piece or that."""

    def __init__(self, case: Case, root: Path, stops: Sequence[int]) -> None:
        self.case, self.root, self.stops = case, root, stops
        self.expected = ScriptedSupervisor()
        attempt(case, root / "undisturbed", self.expected)
        self.fresh = self._state_at(0)
        self.states = {step: self._state_at(step) for step in stops}
        self.final = load(self.expected.checkpoints[-1])
        self._number = 0

    def pieces(self) -> list[Piece]:
        """Return the paths of every part and of every leaf, at any of the stops."""
        found: dict[Piece, None] = {}
        for state in self.states.values():
            found |= dict.fromkeys([*((part,) for part in state), *leaves(state)])
        return list(found)

    def is_noticed(self, piece: Piece) -> bool:
        """Whether a restore without this piece breaks the contract, from one stop at least."""
        return any(
            not self.keeps_contract(step, left_out(state, self.fresh, piece))
            for step, state in self.states.items()
            if value_at(state, piece) is not GONE
        )

    def keeps_contract(self, step: int, state: StateDict) -> bool:
        """Whether a run that is resumed from this state ends as if nothing had happened."""
        self._number += 1
        root = self.root / f"mutation-{self._number}"
        saved = CheckpointStore(root, identity={}).write(
            CheckpointType.PERIODIC, step=step, state=state
        )
        supervisor = ScriptedSupervisor()
        outcome = attempt(self.case, root, supervisor, resume=[saved], number=2)
        if isinstance(outcome, Failed):
            return False
        later = {at: point for at, point in self.expected.curve.items() if at > step}
        return (
            bytes_of(supervisor.checkpoints[-1]) == bytes_of(self.expected.checkpoints[-1])
            and merged_curve([supervisor]) == later
        )

    def is_constant(self, piece: Piece) -> bool:
        """Whether a new job, the stopped ones and the finished one all have the same here."""
        values = [value_at(state, piece) for state in (self.fresh, *self.states.values())]
        return all(is_same(value, value_at(self.final, piece)) for value in values)

    def _state_at(self, step: int) -> StateDict:
        supervisor = ScriptedSupervisor(at=step)
        attempt(self.case, self.root / f"stopped-at-{step}", supervisor)
        return load(supervisor.checkpoints[-1])


def load(checkpoint: Checkpoint) -> StateDict:
    store = CheckpointStore(checkpoint.path.parent, identity={})
    return store.load(Candidate(checkpoint.path, checkpoint.digest))


def leaves(value: Any, path: Piece = ()) -> Iterator[Piece]:
    """Yield the path of everything that is neither a dict nor a list of dicts or lists."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    else:
        yield path


def left_out(state: StateDict, fresh: StateDict, piece: Piece) -> StateDict:
    """Return the state as it is for a restore that forgets this piece.

    It has there what a new job has; where a new job has nothing, the piece is missing.
    """
    mutated = copy.deepcopy(state)
    owner = mutated
    for key in piece[:-1]:
        owner = owner[key]
    replacement = value_at(fresh, piece)
    if replacement is GONE:
        del owner[piece[-1]]
    else:
        owner[piece[-1]] = copy.deepcopy(replacement)
    return mutated


def value_at(value: Any, piece: Piece) -> Any:
    for key in piece:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return GONE
    return value


def is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)
