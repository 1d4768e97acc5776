"""The weights of a checkpoint, for everyone who wants no more of it: safetensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

import torch
from safetensors.torch import load_file
from torch import Tensor

from trainops.formats import own, step_directory
from trainops.formats.errors import FaultyExport, UnknownFormat
from trainops.formats.federated import FederatedFile
from trainops.formats.known import ForeignFile
from trainops.formats.reading import read
from trainops.formats.rl import RlFile
from trainops.formats.training import TrainingFile
from trainops.formats.writing import write_safetensors


@dataclass(frozen=True, slots=True)
class Weights:
    """`what` says which model of the checkpoint it is."""

    what: str
    tensors: Mapping[str, Tensor]


def export_weights(
    path: Path, target: Path, which: Literal["best", "last"] | None = None
) -> Weights:
    """Write one model of a checkpoint to a safetensors file, and return it.

    Without `which`: the best one where the checkpoint has it, else the last. Raises FormatErrors
    and OSErrors.
    """
    if step_directory.is_one(path):
        found = _foreign_weights(step_directory.read(path), which)
    elif own.is_own(path):
        found = _own_weights(path, which)
    else:
        found = _foreign_weights(read(path), which)
    write_safetensors(found.tensors, target, {"format": "pt", "source": found.what})
    if not _is_read_back(found.tensors, target):
        target.unlink()
        raise FaultyExport(f"{target.name} is not read back as it was written")
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
        return Weights("best model", state["best_model"])
    if which == "best" or "model" not in state:
        raise UnknownFormat(f"the checkpoint has no {which or 'last'} model; {', '.join(state)}")
    return Weights("last model", state["model"])


def _foreign_weights(file: ForeignFile, which: str | None) -> Weights:
    if which == "best":
        raise UnknownFormat("a file of this format holds one model, the last; export that")
    match file:
        case TrainingFile():
            return Weights("last model", file.model)
        case RlFile():
            return Weights("q_network", file.population.q_network)
        case FederatedFile():
            return Weights("global model", _named(file))
    assert_never(file)


def _named(file: FederatedFile) -> dict[str, Tensor]:
    """Return the server's parameters by the names that some client's model gives them, if any."""
    parameters = [torch.from_numpy(each) for each in file.server.parameters]
    for client in file.clients.values():
        model = client.model_state or {}
        if _shapes(list(model.values())) == _shapes(parameters):
            return dict(zip(model, parameters, strict=True))
    return {f"parameters.{number}": each for number, each in enumerate(parameters)}


def _shapes(tensors: Sequence[Tensor]) -> list[torch.Size]:
    return [each.shape for each in tensors]
