"""Ids of operations."""

import secrets

from django.utils import timezone

SUBTASK = "subtask"  # in the ids of operations that are subtasks
OLD_SUBTASK = "client"  # the same, until 0.9


def new_id(kind: str, num_random_bytes: int = 3) -> str:
    """Return e.g. op_training_20241213_143022_abc123: sortable, and safe in paths and URLs."""
    return f"op_{kind}_{timezone.now():%Y%m%d_%H%M%S}_{secrets.token_hex(num_random_bytes)}"


def is_subtask(operation_id: str) -> bool:
    """Whether an operation is a subtask, by its id, which is generated in one place only."""
    return operation_id.startswith((f"op_{SUBTASK}_", f"op_{OLD_SUBTASK}_"))
