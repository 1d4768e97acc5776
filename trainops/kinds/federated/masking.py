"""Hiding tensors in a checkpoint from readers without the ledger's secret.

Under user-level privacy a client's own model must not leave the server's memory without noise, but
a checkpoint within a round must hold it. So it is masked there: each tensor's bytes are combined
with a stream of as many that only the secret gives. The stream is chosen by the content and its
place (round, client, name): so equal states are masked equally, no stream serves two contents, and
equal values of two clients are not visible.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.federated.rng import Secrets
from trainops.runtime.errors import IncompatibleState

MASKED = "masked"


def mask(value: Any, secrets: Secrets, *place: object) -> Any:
    """Return the value with every tensor masked for a place; plain values stay as they are."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous()
        stream = secrets.identity(["mask", *place], content)
        flat = content.view(-1).view(torch.uint8)
        return {
            MASKED: flat ^ _stream(secrets, stream, len(flat)),
            "stream": stream,
            "type": str(content.dtype).removeprefix("torch."),
            "shape": list(content.shape),
        }
    if isinstance(value, Mapping):
        return {name: mask(each, secrets, *place, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask(each, secrets, *place, number) for number, each in enumerate(value)]
    return value


def unmask(value: Any, secrets: Secrets, *place: object) -> Any:
    """Undo mask. Raises IncompatibleState where secret or place were others."""
    if isinstance(value, Mapping) and MASKED in value:
        return _unmasked(value, secrets, place)
    if isinstance(value, Mapping):
        return {name: unmask(each, secrets, *place, name) for name, each in value.items()}
    if isinstance(value, list):
        return [unmask(each, secrets, *place, number) for number, each in enumerate(value)]
    return value


def _unmasked(value: Mapping[str, Any], secrets: Secrets, place: Sequence[object]) -> Tensor:
    try:
        flat = value[MASKED] ^ _stream(secrets, value["stream"], len(value[MASKED]))
        content: Tensor = flat.view(getattr(torch, value["type"])).view(value["shape"])
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise IncompatibleState(f"a masked tensor cannot be read: {error!r}") from error
    if secrets.identity(["mask", *place], content) != value["stream"]:
        raise IncompatibleState(
            "a client's tensor was masked with another secret or in another place"
        )
    return content


def _stream(secrets: Secrets, name: str, size: int) -> Tensor:
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(secrets.draw(size, "mask", name)), dtype=torch.uint8)
