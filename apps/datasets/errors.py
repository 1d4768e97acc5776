"""Errors of requests about datasets; a request that raises one has changed nothing."""

from collections.abc import Mapping, Sequence

from trainops.errors import DomainError


class DatasetError(DomainError):
    """An upload that is not accepted. `errors` maps what was given to what is wrong with it."""

    def __init__(
        self,
        errors: Mapping[str, str],
        code: str,
        *,
        details: Mapping[str, object] | None = None,
        status: int = 400,
    ) -> None:
        self.errors = dict(errors)
        message = " ".join(self.errors.values())
        super().__init__(code, message, {"fields": self.errors, **(details or {})}, status)


class DatasetNotFound(DomainError):
    def __init__(self, dataset_id: str) -> None:
        shown = dataset_id[:40]
        super().__init__(
            "DATASET_NOT_FOUND", f"There is no dataset {shown!r}.", {"dataset_id": shown}, 404
        )


class DatasetInUse(DomainError):
    def __init__(self, dataset_id: str, users: Sequence[str]) -> None:
        super().__init__(
            "DATASET_IN_USE",
            f"Dataset {dataset_id} is used by unfinished operations: "
            f"{', '.join(users[:5])}. Cancel them or wait until they finish, then delete it.",
            {"dataset_id": dataset_id, "operation_ids": list(users[:100])},
            status=409,
        )


class DatasetDamaged(DomainError):
    """The bytes in the storage are gone or altered; uploading the same table again mends it."""

    def __init__(self, dataset_id: str, problem: str) -> None:
        super().__init__(
            "DATASET_DAMAGED",
            f"The file of dataset {dataset_id} {problem}. Upload the same table to repair it.",
            {"dataset_id": dataset_id},
            status=409,
        )


class DatasetNotDirectory(DomainError):
    def __init__(self, dataset_id: str) -> None:
        super().__init__(
            "NOT_A_DIRECTORY",
            f"Dataset {dataset_id} is an upload; only registered directories are verified on "
            "request. An upload is verified whenever it is used.",
            {"dataset_id": dataset_id},
            status=409,
        )


class UploadNotFound(DomainError):
    """There is no such upload, or it is another person's."""

    def __init__(self, upload_id: str) -> None:
        shown = upload_id[:40]
        super().__init__(
            "UPLOAD_NOT_FOUND",
            f"You have no open upload {shown!r}; it may have expired. Create a new one.",
            {"upload_id": shown},
            404,
        )


class UploadConflict(DomainError):
    """The state of the upload does not allow it; `offset` is the number of bytes received."""

    def __init__(self, code: str, message: str, upload_id: str, offset: int) -> None:
        super().__init__(code, message, {"upload_id": upload_id, "offset": offset}, 409)
