"""Which device a job computes on."""

import torch

from trainops.runtime.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """Return the device that "auto", "cpu" or "cuda" stands for. Raises ConfigError."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            {"device": "got 'cuda'; this machine has no usable GPU; allowed: auto, cpu"}
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
