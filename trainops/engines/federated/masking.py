"""Hiding tensors in a checkpoint from whoever lacks the ledger's secret.

Under user-level privacy a client's own model must not leave the server's memory without noise, but
a checkpoint within a round must hold it. So it is masked there: each tensor's bytes are combined
with a stream of as many that only the secret gives. The stream is chosen by the content, so equal
states are masked equally and no stream serves two different contents.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainops.engines.errors import IncompatibleState
from trainops.engines.federated.drawing import Secrets

MASKED = "masked"


def mask(value: Any, secrets: Secrets) -> Any:
    """Return the value with every tensor masked; plain values stay as they are."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous()
        stream = secrets.identity("mask", content)
        flat = content.view(-1).view(torch.uint8)
        return {
            MASKED: flat ^ _stream(secrets, stream, len(flat)),
            "stream": stream,
            "type": str(content.dtype).removeprefix("torch."),
            "shape": list(content.shape),
        }
    if isinstance(value, Mapping):
        return {name: mask(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask(each, secrets) for each in value]
    return value


def unmask(value: Any, secrets: Secrets) -> Any:
    """Undo mask. Raises IncompatibleState where it was masked with another secret."""
    if isinstance(value, Mapping) and MASKED in value:
        return _unmasked(value, secrets)
    if isinstance(value, Mapping):
        return {name: unmask(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [unmask(each, secrets) for each in value]
    return value


def _unmasked(value: Mapping[str, Any], secrets: Secrets) -> Tensor:
    try:
        flat = value[MASKED] ^ _stream(secrets, value["stream"], len(value[MASKED]))
        content: Tensor = flat.view(getattr(torch, value["type"])).view(value["shape"])
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise IncompatibleState(f"a masked tensor cannot be read: {error!r}") from error
    if secrets.identity("mask", content) != value["stream"]:
        raise IncompatibleState("the clients' updates were masked with another secret")
    return content


def _stream(secrets: Secrets, name: str, size: int) -> Tensor:
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(secrets.draw(size, "mask", name)), dtype=torch.uint8)
