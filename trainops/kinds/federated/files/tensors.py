"""Arrays of a federated file as tensors, by the names of the model that they are for."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from trainops.kinds.federated.files.file import Arrays
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.runtime.errors import IncompatibleState

MOST_BYTES = 8  # of a number that a tensor can have


def tensors_of(arrays: Arrays, place: str) -> list[Tensor]:
    """Return arrays of any byte order and strides as tensors. Raises IncompatibleState."""
    found = []
    for number, each in enumerate(arrays):
        native = np.ascontiguousarray(each, each.dtype.newbyteorder("=")).reshape(each.shape)
        if native.dtype.kind not in "biuf" or native.dtype.itemsize > MOST_BYTES:
            raise IncompatibleState(f"{place}[{number}] is of {each.dtype}, which is no number")
        found.append(torch.from_numpy(native))
    return found


def fitted(
    given: Sequence[Tensor], own: Mapping[str, Tensor], layout: ParameterLayout, place: str
) -> dict[str, Tensor]:
    """Return the given tensors by the model's names. Raises IncompatibleState.

    They are all its tensors, those that it saves, its parameters, or those that are trained:
    files do not say which, so how many there are decides.
    """
    parameters, saved = dict(layout.model.named_parameters()), layout.model.state_dict()
    lists = {len(names): list(names) for names in (layout.names, parameters, saved, own)}
    if len(given) not in lists:
        raise IncompatibleState(f"{place} are {len(given)}; the model has {len(own)}")
    named = dict(zip(lists[len(given)], given, strict=True))
    for number, (name, each) in enumerate(named.items()):
        if each.shape != own[name].shape:
            raise IncompatibleState(
                f"{place}[{number}] is {tuple(each.shape)}, the model's {name} "
                f"{tuple(own[name].shape)}"
            )
    return {name: each.to(own[name]) for name, each in named.items()}
