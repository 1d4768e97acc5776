"""The operations that checkpoints belong to, as the app above tells of them.

`apps.operations` imports this app, so it registers itself here instead of being imported.
"""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from django.db.models import QuerySet


class Owners(Protocol):
    def lock(self, operation_ids: Iterable[str]) -> None:
        """Let nothing be committed or deleted of these operations until the transaction ends."""

    def needed_by_subtasks(self, operation_id: str) -> set[str]:
        """Return the ids of the operation's checkpoints that unfinished subtasks begin with."""

    def exchanged(self, operation_ids: Collection[str]) -> set[str]:
        """Return the paths of checkpoints that running operations and their subtasks exchange."""

    def running(self, operation_ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Return each running operation's id, and the checkpoint chosen for its start, if any."""

    def attempts_at_work(self, operation_id: str) -> dict[str, int]:
        """Return of every unfinished operation the oldest attempt whose files are in use.

        It is the one that began to compute last: until a later one has begun, its files may be
        recovered. An empty `operation_id` means all operations.
        """

    def not_succeeded(self, operation_id: str) -> QuerySet[Any]:
        """Return the operations that are not COMPLETED; of all where `operation_id` is empty."""

    def check_damage(self, operation_id: str) -> None:
        """Note whether any of the operation's checkpoints is altered."""

    def finished(self) -> QuerySet[Any]:
        """Return the operations that have ended, however."""


_registered: list[Owners] = []


def register(owners: Owners) -> None:
    """Called from AppConfig.ready; a later registration replaces an earlier one."""
    _registered[:] = [owners]


def owners() -> Owners:
    return _registered[0]
