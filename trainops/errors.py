"""The exception behind error responses: a request that cannot be met, and the reason."""

from collections.abc import Mapping
from typing import Any

MAX_PROBLEMS = 20  # that a response names; of more it gives the number


class DomainError(Exception):
    """A request that the rules refuse; the message says why and what to do instead.

    `code` is for programs (UPPER_SNAKE_CASE, stable), `message` for people, `details` is JSON-safe
    (problems of single fields stand under `fields`: name → what was given and what is allowed),
    `status` is the HTTP status. `retry_after_seconds` says when to ask again, where that helps.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        status: int = 400,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return self.message
