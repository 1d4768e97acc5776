"""Errors of requests about operations; a request that raises one has changed nothing."""

from trainops.errors import DomainError


class OperationNotFound(DomainError):
    def __init__(self, operation_id: str) -> None:
        super().__init__(
            "OPERATION_NOT_FOUND",
            f"There is no operation {operation_id[:64]!r}.",
            {"operation_id": operation_id[:64]},
            status=404,
        )


class ShareNotFound(DomainError):
    def __init__(self, share_id: int) -> None:
        super().__init__(
            "SHARE_NOT_FOUND",
            f"There is no share {share_id}; GET /api/v1/shares lists them.",
            {"share_id": share_id},
            status=404,
        )


class MediaNotFound(DomainError):
    def __init__(self, operation_id: str, media_id: int) -> None:
        super().__init__(
            "MEDIA_NOT_FOUND",
            f"Operation {operation_id} has no item {media_id}; its media are listed without "
            "an id. Items that are thinned or discarded get lost.",
            {"operation_id": operation_id, "media_id": media_id},
            status=404,
        )


class CheckpointNotFound(DomainError):
    def __init__(self, operation_id: str, checkpoint_id: str = "") -> None:
        wanted = f"checkpoint {checkpoint_id[:64]!r}" if checkpoint_id else "checkpoint"
        super().__init__(
            "CHECKPOINT_NOT_FOUND",
            f"Operation {operation_id} has no {wanted} to resume from.",
            {
                "operation_id": operation_id,
                "possible_reasons": [
                    "It completed, and its resume checkpoints were deleted.",
                    "Its checkpoints expired and were cleaned up.",
                    "It ended before its first checkpoint.",
                ],
            },
            status=404,
        )


class NotAllowed(DomainError):
    """The operation's state does not allow what was asked; status 409."""

    def __init__(self, code: str, message: str, **details: object) -> None:
        super().__init__(code, message, details, status=409)


class StorageUnavailable(DomainError):
    """That says nothing about the bytes that it holds."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            "STORAGE_UNAVAILABLE",
            f"The storage did not respond: {error.strerror or error}. Nothing was changed.",
            {"part": "storage"},
            status=503,
        )


class Forbidden(DomainError):
    def __init__(self, message: str) -> None:
        super().__init__("PERMISSION_DENIED", message, {}, status=403)
