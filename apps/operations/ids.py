"""Ids of operations."""

import secrets

from django.utils import timezone

PART = "client"  # in the ids of operations that are a client's part of another one


def new_id(kind: str, num_random_bytes: int = 3) -> str:
    """Return e.g. op_training_20241213_143022_abc123: sortable, and safe in paths and URLs."""
    return f"op_{kind}_{timezone.now():%Y%m%d_%H%M%S}_{secrets.token_hex(num_random_bytes)}"


def is_part(operation_id: str) -> bool:
    """Whether an operation is a client's part of another, by its id: made in one place only."""
    return operation_id.startswith(f"op_{PART}_")
