"""How files of federated training are read and written: version "2.0"."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainops.files.description import FileFormat, Weights
from trainops.kinds.federated.files.file import (
    FederatedFile,
    check_version,
    disagreements,
    notices,
    to_tree,
)
from trainops.kinds.federated.files.parsing import parse


def describe(file: FederatedFile) -> str:
    return f"round {file.round.current} of {file.round.total}, {file.round.status}"


def weights(file: FederatedFile) -> Weights:
    return Weights("global model", _named(file))


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


FEDERATED = FileFormat(
    file=FederatedFile,
    title="federated training",
    hint="a federated one server and clients",
    marks=(
        frozenset({"server", "clients"}),
        frozenset({"parameters", "round"}),  # 1.x
        frozenset({"model", "dice"}),  # older still
    ),
    check_version=check_version,
    parse=parse,
    to_tree=to_tree,
    describe=describe,
    notices=notices,
    disagreements=disagreements,
    weights=weights,
)
