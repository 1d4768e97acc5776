"""The weights of a checkpoint, for everyone who wants no more of it: safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from trainops.files import own
from trainops.files.description import Weights
from trainops.files.errors import FaultyExport, UnknownFormat
from trainops.files.known import directory_format_of, format_of
from trainops.files.reading import read
from trainops.files.writing import write_safetensors
from trainops.runtime import monitors


def export_weights(
    path: Path,
    target: Path,
    which: Literal["best", "last"] | None = None,
    metric: str | None = None,
) -> Weights:
    """Write one model of a checkpoint to a safetensors file, and return it.

    Without `which`: the best one where the checkpoint has it, else the last. `metric`: the best
    by which monitored metric, by default `monitor`. Raises FormatErrors and OSErrors.
    """
    if metric is not None and not own.is_own(path):
        raise UnknownFormat("a file of another tool has no models by metric; allowed: none")
    if directory := directory_format_of(path):
        found = _foreign_weights(directory.read(path), which)
    elif own.is_own(path):
        found = _own_weights(path, which) if metric is None else _best_weights(path, metric)
    else:
        found = _foreign_weights(read(path), which)
    write_safetensors(found.tensors, target, {"format": "pt", "source": found.what})
    if not _is_read_back(found.tensors, target):
        target.unlink()
        raise FaultyExport(f"{target.name} differs when read back")
    return found


def _is_read_back(tensors: Mapping[str, Tensor], target: Path) -> bool:
    found = load_file(target)
    return found.keys() == tensors.keys() and all(
        _bytes(found[name]) == _bytes(each) for name, each in tensors.items()
    )


def _bytes(tensor: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return tensor.dtype, tensor.shape, flat.numpy().tobytes()


def _own_weights(path: Path, which: str | None) -> Weights:
    state = own.load_parts(path)
    if which != "last" and "best_model" in state:
        return Weights("best model", _tensors(state["best_model"]))
    if which == "best" or "model" not in state:
        raise UnknownFormat(f"the checkpoint has no {which or 'last'} model; {', '.join(state)}")
    return Weights("last model", state["model"])


def _best_weights(path: Path, metric: str) -> Weights:
    """Return the best model by one of the monitored metrics of our own checkpoint."""
    config = own.submission_of(path).get("config")
    known = {}
    if isinstance(config, Mapping):
        known = {name: monitors.part_of(name) for name in monitors.further(config)}
        known |= {str(config.get("monitor")): monitors.BEST_MODEL}
    state = own.load_parts(path)
    saved = {name: part for name, part in known.items() if part in state}
    if metric not in saved:
        allowed = ", ".join(sorted(saved)) or "nothing: the checkpoint has no best model"
        raise UnknownFormat(f"got the metric {metric!r:.60}; allowed: {allowed}")
    return Weights(f"best model by {metric}", _tensors(state[saved[metric]]))


def _tensors(model: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """Return the tensors of a best model.

    A loop saves the states of all its modules by name: of several, the names are MODULE.TENSOR.
    """
    modules = {name: each for name, each in model.items() if isinstance(each, Mapping)}
    if len(modules) < len(model) or not modules:
        return model
    if len(modules) == 1:
        return next(iter(modules.values()))
    return {f"{name}.{key}": v for name, each in modules.items() for key, v in each.items()}


def _foreign_weights(file: object, which: str | None) -> Weights:
    if which == "best":
        raise UnknownFormat("a file of this format holds one model, the last; export that")
    return format_of(file).weights(file)
