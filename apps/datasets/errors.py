"""What the doors answer about datasets; nothing has changed then."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainops.errors import Refusal


class DatasetError(Refusal):
    """An upload that is not accepted. `errors` maps what was given to what is wrong with it."""

    def __init__(
        self,
        errors: Mapping[str, str],
        code: str,
        *,
        details: Mapping[str, Any] | None = None,
        status: int = 400,
    ) -> None:
        self.errors = dict(errors)
        message = " ".join(self.errors.values())
        super().__init__(code, message, {"fields": self.errors, **(details or {})}, status)


class DatasetNotFound(Refusal):
    def __init__(self, dataset_id: str) -> None:
        shown = dataset_id[:40]
        super().__init__(
            "DATASET_NOT_FOUND", f"There is no dataset {shown!r}.", {"dataset_id": shown}, 404
        )


class DatasetInUse(Refusal):
    def __init__(self, dataset_id: str, users: Sequence[str]) -> None:
        super().__init__(
            "DATASET_IN_USE",
            f"Dataset {dataset_id} is needed by operations that are not finished: "
            f"{', '.join(users[:5])}. Cancel them, or wait for them, then delete it.",
            {"dataset_id": dataset_id, "operation_ids": list(users[:100])},
            status=409,
        )


class DatasetDamaged(Refusal):
    """The bytes in the storage are gone or altered; uploading the same table again mends it."""

    def __init__(self, dataset_id: str, problem: str) -> None:
        super().__init__(
            "DATASET_DAMAGED",
            f"The file of dataset {dataset_id} {problem}. Upload the same table again to mend it.",
            {"dataset_id": dataset_id},
            status=409,
        )
