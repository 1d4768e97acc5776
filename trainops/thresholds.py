"""Every number an installation may change: one name in the environment, the README and here.

Each is read once, at start, from `TRAINOPS_<NAME>`; a value that contradicts another is refused
with the reason, before anything runs on it.
"""

from typing import Any, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

CONTAINER_GRACE_SECONDS = 30  # docker/compose.yaml's stop_grace_period


class Thresholds(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TRAINOPS_", extra="ignore", frozen=True)

    health_check_interval_seconds: PositiveFloat = Field(
        10, description="How often a worker writes its heartbeat and renews its leases."
    )
    health_check_timeout_seconds: PositiveFloat = Field(
        30, description="Without a heartbeat for so long, a worker shows TEMPORARILY_UNAVAILABLE."
    )
    worker_gone_seconds: PositiveFloat = Field(
        600, description="Without a heartbeat for so long, a worker shows GONE."
    )
    reregistration_check_interval_seconds: PositiveFloat = Field(
        10, description="How often a worker makes sure that its row still exists."
    )
    orphan_timeout_seconds: PositiveFloat = Field(
        60, description="The lease: an operation unclaimed for so long goes to its restart policy."
    )
    orphan_check_interval_seconds: PositiveFloat = Field(
        15, description="How often web, beat and every worker look for orphans."
    )
    cancel_poll_seconds: PositiveFloat = Field(
        2, description="How often a worker asks whether its operations are to stop."
    )
    fence_kill_seconds: PositiveFloat = Field(
        40, description="A supervisor whose last renewal is older kills its own children."
    )
    child_deadline_seconds: PositiveFloat = Field(
        45, description="A child that has not been granted more time ends itself."
    )
    training_epoch_interval: PositiveInt = Field(
        10, description="Training saves a checkpoint every so many epochs."
    )
    backtest_bar_interval: PositiveInt = Field(
        10_000, description="A backtest saves a checkpoint every so many bars."
    )
    checkpoint_time_interval_seconds: PositiveFloat = Field(
        300, description="Every kind saves a checkpoint at least so often."
    )
    checkpoint_max_age_days: PositiveFloat = Field(
        30, description="Older checkpoints of operations that are not running are removed."
    )
    checkpoint_reserve_bytes: NonNegativeInt = Field(
        1024**3,
        description="Bytes of the disk that periodic checkpoints and uploads leave free.",
    )
    checkpoint_quota_bytes: NonNegativeInt = Field(
        0, description="Above it for one owner's checkpoints, periodic saving pauses; 0: no limit."
    )
    cleanup_interval_hours: PositiveFloat = Field(
        24, description="How often old checkpoints and unowned files are removed."
    )
    unowned_file_age_seconds: PositiveFloat = Field(
        3600, description="Files that no row owns are removed at this age, never younger."
    )
    trash_days: PositiveFloat = Field(
        7, description="Days between finding a whole checkpoint that no row owns and deleting it."
    )
    shutdown_timeout_seconds: PositiveFloat = Field(
        25, description="A worker told to stop has saved and handed back everything by then."
    )
    restart_delay_seconds: PositiveFloat = Field(
        5, description="The first pause before a restart; it doubles with each."
    )
    restart_delay_max_seconds: PositiveFloat = Field(
        300, description="The longest pause before a restart."
    )
    host_fault_operations: PositiveInt = Field(
        3, description="A host on which so many operations crashed, and nowhere else, is drained."
    )
    host_fault_window_seconds: PositiveFloat = Field(
        600, description="Only crashes of the last so many seconds count against a host."
    )
    max_upload_bytes: PositiveInt = Field(
        512 * 1024**2, description="The largest file that may be uploaded."
    )
    max_active_operations_per_person: NonNegativeInt = Field(
        10_000, description="Waiting and running operations of one person; 0: no limit."
    )
    max_studies_per_person: NonNegativeInt = Field(
        10_000, description="Studies of one person; 0: no limit."
    )
    max_tokens_per_person: NonNegativeInt = Field(
        1000, description="API tokens of one person that have not expired; 0: no limit."
    )
    max_datasets_per_person: NonNegativeInt = Field(
        10_000, description="Datasets of one person; 0: no limit."
    )
    max_dataset_bytes_per_person: NonNegativeInt = Field(
        200 * 10**9, description="Bytes of all datasets of one person; 0: no limit."
    )
    checkpoint_cache_bytes: PositiveInt = Field(
        50 * 10**9, description="Of checkpoints in a bucket, so many bytes are kept here as copies."
    )
    log_bytes_per_attempt: PositiveInt = Field(
        5 * 1024**2, description="The newest so many bytes of an attempt's log are kept."
    )

    @property
    def patience_seconds(self) -> float:
        """How long anyone waits for one answer of the database, that may be frozen.

        Several times before an attempt that cannot renew its lease must be ended.
        """
        return self.fence_kill_seconds / 4

    @model_validator(mode="after")
    def _do_not_contradict(self) -> Self:
        for smaller, larger, factor, reason in _ORDER:
            if getattr(self, smaller) * factor > getattr(self, larger):
                raise ValueError(
                    f"{_variable(larger)} is {getattr(self, larger):g}; it must be at least "
                    f"{factor:g} x {_variable(smaller)} ({getattr(self, smaller):g}): {reason}"
                )
        if self.shutdown_timeout_seconds >= CONTAINER_GRACE_SECONDS:
            raise ValueError(
                f"{_variable('shutdown_timeout_seconds')} is {self.shutdown_timeout_seconds:g}; it "
                f"must be below the grace period of containers ({CONTAINER_GRACE_SECONDS} s)"
            )
        return self


_ORDER = [
    ("health_check_interval_seconds", "orphan_timeout_seconds", 3,
     "an operation must miss three heartbeats before it is called an orphan"),
    ("health_check_interval_seconds", "health_check_timeout_seconds", 3,
     "a worker must miss three heartbeats before it is called unavailable"),
    ("health_check_timeout_seconds", "worker_gone_seconds", 1,
     "a worker is unavailable before it is gone"),
    ("health_check_interval_seconds", "fence_kill_seconds", 2,
     "a supervisor must miss a renewal before it gives up its children"),
    ("fence_kill_seconds", "child_deadline_seconds", 1,
     "the supervisor acts before the child has to"),
    ("child_deadline_seconds", "orphan_timeout_seconds", 1,
     "the child has ended before anyone may take its operation"),
    ("restart_delay_seconds", "restart_delay_max_seconds", 1,
     "the longest pause cannot be below the first"),
]  # fmt: skip


def read() -> Thresholds:
    """Return the thresholds of this installation.

    Raises:
        ValueError: for every variable that is wrong, what it is and what it must be.
    """
    try:
        return Thresholds()
    except ValidationError as error:
        raise ValueError("; ".join(_explain(each) for each in error.errors())) from None


def _explain(error: Any) -> str:
    told = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "it must")
    if not error["loc"]:
        return told
    return f"{_variable(error['loc'][0])} is {error['input']!r}; {told}"


def _variable(name: str) -> str:
    return f"TRAINOPS_{name.upper()}"
