"""Values of the worker protocol and of the registry as JSON."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from apps.operations.lifecycle import ReportedError


class Gpu(TypedDict):
    """A GPU that a worker can use."""

    id: str
    name: str
    memory_bytes: int
    driver: str


def gpus_of(capabilities: Mapping[str, object]) -> list[Gpu]:
    """Return the GPUs of a worker's capabilities; workers of others write what they like."""
    gpus = capabilities.get("gpus")
    return [
        {
            "id": str(gpu.get("id", "")),
            "name": str(gpu.get("name", "GPU")),
            "memory_bytes": whole_or_none(gpu.get("memory_bytes")) or 0,
            "driver": str(gpu.get("driver", "")),
        }
        for gpu in (gpus if isinstance(gpus, list) else ())
        if isinstance(gpu, Mapping)
    ]


def whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None


class GpuLoad(TypedDict):
    """What a GPU of a machine is used for."""

    id: str
    percent: float  # of the time, with a kernel that runs
    memory_bytes: int


class Capabilities(TypedDict):
    """A worker's machine and versions."""

    gpu: bool
    gpu_type: str | None  # name of the first GPU
    gpus: list[Gpu]
    cpu_count: int | None
    ram_bytes: int
    trainops: str
    torch: str
    python: str
    os: str


class AttemptKey(TypedDict):
    """An attempt that a worker runs."""

    operation_id: str
    attempt: int


class AttemptEnd(AttemptKey):
    """An attempt that has ended, as `EndedSerializer` validates it."""

    outcome: str
    result: dict[str, object] | None
    error: ReportedError | None
    completed_at: datetime | None
