"""Curves of the load of a worker's machine, as the page draws them."""

from collections.abc import Iterable, Sequence
from typing import TypedDict

from apps.workers.load import SAMPLE_SECONDS
from apps.workers.models import LoadSample
from apps.workers.rows import Gpu, GpuLoad

GAP_SECONDS = 3 * SAMPLE_SECONDS  # without a sample, after which a curve is interrupted


class LoadCurve(TypedDict):
    """The curve of one chart; a value is null where no sample is."""

    label: str
    values: list[float | None]


class LoadCharts(TypedDict):
    """Charts by name, over the same times (Unix seconds)."""

    times: list[float]
    charts: dict[str, list[LoadCurve]]


def load_curves(samples: Iterable[LoadSample], gpus: Sequence[Gpu]) -> LoadCharts:
    """Return the charts of samples in order; those of GPUs have a curve for each."""
    rows = _with_gaps(samples)
    found = [each for _, each in rows]
    charts = {
        "load/cpu_percent": [_curve("CPU", [each.cpu_percent if each else None for each in found])],
        "load/memory_bytes": [
            _curve("memory", [each.memory_bytes if each else None for each in found])
        ],
    }
    if gpus:
        loads = [[_of_gpu(each, gpu["id"]) for each in found] for gpu in gpus]
        labels = [f"{number}: {gpu['name']}" for number, gpu in enumerate(gpus)]
        charts["load/gpu_percent"] = [
            _curve(label, [each["percent"] if each else None for each in own])
            for label, own in zip(labels, loads, strict=True)
        ]
        charts["load/gpu_memory_bytes"] = [
            _curve(label, [each["memory_bytes"] if each else None for each in own])
            for label, own in zip(labels, loads, strict=True)
        ]
    return {"times": [at for at, _ in rows], "charts": charts}


def _with_gaps(samples: Iterable[LoadSample]) -> list[tuple[float, LoadSample | None]]:
    rows: list[tuple[float, LoadSample | None]] = []
    for each in samples:
        at = each.at.timestamp()
        if rows and at - rows[-1][0] > GAP_SECONDS:
            rows.append(((rows[-1][0] + at) / 2, None))
        rows.append((at, each))
    return rows


def _curve(label: str, values: Iterable[float | None]) -> LoadCurve:
    return {"label": label, "values": list(values)}


def _of_gpu(sample: LoadSample | None, gpu_id: str) -> GpuLoad | None:
    loads: Sequence[GpuLoad] = sample.gpus if sample else []
    return next((each for each in loads if each["id"] == gpu_id), None)
