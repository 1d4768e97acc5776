"""Every number an installation may change: one name in the environment and here.

Each is read once, at start, from `TRAINOPS_<NAME>`; a value that contradicts another is refused
with the reason, before anything runs on it. Kinds of operations declare further ones
(`Kind.thresholds`).
"""

from typing import Any, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from trainops.kind import KINDS, KindError, Threshold

CONTAINER_GRACE_SECONDS = 30  # docker/compose.yaml's stop_grace_period


class Thresholds(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="TRAINOPS_", extra="ignore", frozen=True)

    health_check_interval_seconds: PositiveFloat = Field(
        10, description="Seconds between heartbeats of a worker; each one also renews its leases."
    )
    health_check_timeout_seconds: PositiveFloat = Field(
        30,
        description="Seconds without a heartbeat before a worker is TEMPORARILY_UNAVAILABLE.",
    )
    worker_gone_seconds: PositiveFloat = Field(
        600, description="Seconds without a heartbeat before a worker is GONE."
    )
    reregistration_check_interval_seconds: PositiveFloat = Field(
        10, description="Seconds between a worker's checks that its database row still exists."
    )
    orphan_timeout_seconds: PositiveFloat = Field(
        60,
        description="Lease duration in seconds; when a lease expires, the restart policy applies.",
    )
    orphan_check_interval_seconds: PositiveFloat = Field(
        15,
        description="Seconds between searches for orphaned operations by web, beat and workers.",
    )
    cancel_poll_seconds: PositiveFloat = Field(
        2, description="Seconds between a worker's checks for stop requests."
    )
    fence_kill_seconds: PositiveFloat = Field(
        40,
        description="Seconds since the last lease renewal after which a supervisor kills its "
        "attempts.",
    )
    child_deadline_seconds: PositiveFloat = Field(
        45,
        description="Seconds without an extension after which an attempt process exits by itself.",
    )
    checkpoint_time_interval_seconds: PositiveFloat = Field(
        300, description="Seconds between checkpoints of every kind (default)."
    )
    checkpoint_max_age_days: PositiveFloat = Field(
        30, description="Days after which checkpoints of inactive operations are deleted."
    )
    checkpoint_reserve_bytes: NonNegativeInt = Field(
        1024**3,
        description="Disk space in bytes that periodic checkpoints and uploads leave free.",
    )
    checkpoint_quota_bytes: NonNegativeInt = Field(
        0, description="Checkpoint bytes per owner above which periodic saving pauses; 0: no limit."
    )
    cleanup_interval_hours: PositiveFloat = Field(
        24, description="Hours between cleanups of old checkpoints and orphaned files."
    )
    unowned_file_age_seconds: PositiveFloat = Field(
        3600,
        description="Minimum age in seconds at which files without a database row are deleted.",
    )
    trash_days: PositiveFloat = Field(
        7,
        description="Days after which a complete checkpoint without a database row is deleted.",
    )
    shutdown_timeout_seconds: PositiveFloat = Field(
        25,
        description="Seconds within which a stopping worker saves and returns all its operations.",
    )
    worker_end_margin_seconds: NonNegativeFloat = Field(
        30,
        description="Seconds to spare for an operation's first checkpoint before a worker whose "
        "time ends begins to save.",
    )
    restart_delay_seconds: PositiveFloat = Field(
        5, description="Seconds before the first restart; the delay doubles with each restart."
    )
    restart_delay_max_seconds: PositiveFloat = Field(
        300, description="Maximum seconds before a restart."
    )
    node_join_seconds: PositiveFloat = Field(
        60,
        description="Seconds within which the workers of an operation of several nodes connect to "
        "each other.",
    )
    node_wait_seconds: NonNegativeFloat = Field(
        30,
        description="Seconds since an operation was queued for which it waits for further workers "
        "though its min_nodes are free.",
    )
    stuck_after_seconds: PositiveFloat = Field(
        120,
        description="Seconds for which no worker can run a waiting operation before it needs "
        "attention.",
    )
    host_fault_operations: PositiveInt = Field(
        3,
        description="Number of operations that crash on one host only before that host is drained.",
    )
    host_fault_window_seconds: PositiveFloat = Field(
        600, description="Seconds for which a crash counts against its host."
    )
    max_upload_bytes: PositiveInt = Field(
        512 * 1024**2, description="Maximum size of an uploaded file in bytes."
    )
    preempt_after_seconds: NonNegativeFloat = Field(
        0,
        description="Seconds that an attempt runs before waiting operations of higher priority may "
        "have it saved and queued again; 0: never.",
    )
    max_active_operations_per_person: NonNegativeInt = Field(
        10_000, description="Maximum waiting and running operations per user; 0: no limit."
    )
    max_slots_per_person: NonNegativeInt = Field(
        0,
        description="Maximum slots of running operations per user without a share; 0: no limit.",
    )
    max_gpus_per_person: NonNegativeInt = Field(
        0, description="Maximum GPUs of running operations per user without a share; 0: no limit."
    )
    max_gpu_hours_per_person: NonNegativeFloat = Field(
        0,
        description="GPU hours of a week per user without a share after which no further "
        "operation starts on a GPU; 0: no limit.",
    )
    max_studies_per_person: NonNegativeInt = Field(
        10_000, description="Maximum studies per user; 0: no limit."
    )
    max_tokens_per_person: NonNegativeInt = Field(
        1000, description="Maximum unexpired API tokens per user; 0: no limit."
    )
    max_datasets_per_person: NonNegativeInt = Field(
        10_000, description="Maximum datasets per user; 0: no limit."
    )
    max_dataset_bytes_per_person: NonNegativeInt = Field(
        200 * 10**9, description="Maximum total bytes of datasets per user; 0: no limit."
    )
    max_open_uploads_per_person: NonNegativeInt = Field(
        20, description="Maximum unfinished uploads in parts per user; 0: no limit."
    )
    max_open_upload_bytes_per_person: NonNegativeInt = Field(
        200 * 10**9,
        description="Maximum total size in bytes of unfinished uploads per user; 0: no limit.",
    )
    checkpoint_cache_bytes: PositiveInt = Field(
        50 * 10**9, description="Maximum size in bytes of the local cache for remote checkpoints."
    )
    dataset_cache_bytes: PositiveInt = Field(
        50 * 10**9,
        description="Maximum size in bytes of the local cache for files of registered buckets.",
    )
    log_bytes_per_attempt: PositiveInt = Field(
        5 * 1024**2, description="Maximum log size in bytes per attempt; older output is discarded."
    )

    metric_names_per_operation: PositiveInt = Field(
        1000, description="Maximum names of metrics per operation; points of others are not kept."
    )
    points_full_days: NonNegativeFloat = Field(
        0,
        description="Days after its end for which an operation keeps all points of long curves; "
        "then about 2,000 of each are kept; 0: always.",
    )
    media_steps_per_name: PositiveInt = Field(
        100,
        description="Maximum steps per name of which an operation keeps logged media; "
        "they are thinned.",
    )
    media_bytes_per_name: PositiveInt = Field(
        16 * 1024**2,
        description="Maximum bytes of logged media per name of an operation; they are thinned.",
    )
    media_names_per_operation: PositiveInt = Field(
        32, description="Maximum names of logged media per operation; others are not kept."
    )

    @property
    def patience_seconds(self) -> float:
        """Client-side statement timeout: a quarter of the fencing deadline.

        So several tries fit before an attempt that cannot renew its lease must be killed.
        """
        return self.fence_kill_seconds / 4

    @property
    def node_silence_seconds(self) -> float:
        """Seconds without a message after which another node of an attempt counts as lost.

        Half of the fencing deadline: the attempt ends before it is fenced off. The nodes wait for
        the leader for the whole deadline.
        """
        return self.fence_kill_seconds / 2

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
     "an operation must miss three heartbeats before it counts as an orphan"),
    ("health_check_interval_seconds", "health_check_timeout_seconds", 3,
     "a worker must miss three heartbeats before it counts as unavailable"),
    ("health_check_timeout_seconds", "worker_gone_seconds", 1,
     "a worker is unavailable before it is gone"),
    ("health_check_interval_seconds", "fence_kill_seconds", 2,
     "a supervisor must miss a renewal before it kills its attempts"),
    ("fence_kill_seconds", "child_deadline_seconds", 1,
     "the supervisor must act before the attempt process exits by itself"),
    ("child_deadline_seconds", "orphan_timeout_seconds", 1,
     "the attempt process must have exited before another worker claims its operation"),
    ("restart_delay_seconds", "restart_delay_max_seconds", 1,
     "the maximum delay cannot be below the first"),
]  # fmt: skip


def with_kinds() -> type[Thresholds]:
    """Return the thresholds with those that kinds declare. Raises KindError."""
    fields: dict[str, Any] = {}
    declared: dict[str, Threshold] = {}
    for kind in KINDS.values():
        for each in kind.thresholds:
            if each.name in Thresholds.model_fields or declared.get(each.name, each) != each:
                raise KindError(f"the threshold {each.name!r} of {kind.name!r} is already another")
            declared[each.name] = each
            fields[each.name] = (int, Field(each.default, gt=0, description=each.description))
    return create_model("Thresholds", __base__=Thresholds, **fields)


def read() -> Thresholds:
    """Return the thresholds of this installation.

    Raises:
        ValueError: for every variable that is wrong, what it is and what it must be.
    """
    try:
        return with_kinds()()
    except ValidationError as error:
        raise ValueError("; ".join(_explain(each) for each in error.errors())) from None


def _explain(error: Any) -> str:
    problem = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "it must")
    if not error["loc"]:
        return problem
    return f"{_variable(error['loc'][0])} is {error['input']!r}; {problem}"


def _variable(name: str) -> str:
    return f"TRAINOPS_{name.upper()}"
