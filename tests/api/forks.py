"""Forks that begin without the files of a checkpoint."""

import pytest

from apps.operations.requests.initial_checkpoints import Fork, InitialCheckpoint


def begun(monkeypatch: pytest.MonkeyPatch) -> list[InitialCheckpoint]:
    """Let forks write no files from now on; return those that begin, as they do."""
    found: list[InitialCheckpoint] = []
    monkeypatch.setattr(InitialCheckpoint, "prepare", lambda fork, *_, **__: found.append(fork))
    monkeypatch.setattr(Fork, "commit", lambda *_: None)
    return found
