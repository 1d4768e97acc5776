"""What an event strategy remembers, as part of a checkpoint."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from trainops.kinds.backtest.strategy import EventStrategy
from trainops.market.indicators.indicator import Indicator
from trainops.runtime.config import Strict
from trainops.runtime.errors import IncompatibleState, UnfreezableState

PLAIN = (bool, int, float, str, type(None))


def remembered(strategy: EventStrategy) -> dict[str, Any]:
    """Return its attributes by name; parameters are no state. Raises UnfreezableState."""
    return {
        name: _saved(f"{type(strategy).__name__}.{name}", value)
        for name, value in vars(strategy).items()
        if not isinstance(value, Strict)
    }


def remember(strategy: EventStrategy, saved: dict[str, Any]) -> None:
    """Give a new strategy what another one remembered. It is changed only if all of it fits.

    Raises IncompatibleState.
    """
    expected = remembered(strategy)
    if type(saved) is not dict or saved.keys() != expected.keys():
        raise IncompatibleState(
            f"the strategy remembers {sorted(expected)}, not {sorted(saved or ())}"
        )
    for name, value in saved.items():
        if not _fits(value, expected[name]):
            raise IncompatibleState(f"strategy.{name} is of another kind or shape")
    for name, value in saved.items():
        current = getattr(strategy, name)
        if isinstance(current, Indicator):
            current.state[:] = value.numpy()
        elif isinstance(current, np.ndarray):
            current[...] = value.numpy()
        else:
            setattr(strategy, name, deepcopy(value))


def _saved(place: str, value: Any) -> Any:
    if isinstance(value, Indicator):
        return torch.from_numpy(value.state)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return torch.from_numpy(value)
    return _plain(place, value)


def _plain(place: str, value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if type(value) in (list, tuple):
        return type(value)(_plain(f"{place}[{i}]", each) for i, each in enumerate(value))
    if type(value) is dict:
        return {key: _plain(f"{place}.{key}", each) for key, each in value.items()}
    raise UnfreezableState(
        f"{place} is a {type(value).__name__}; a strategy keeps indicators, NumPy arrays, numbers, "
        "texts, and lists and dicts of numbers and texts"
    )


def _fits(value: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(value, torch.Tensor)
            and value.shape == expected.shape
            and value.dtype == expected.dtype
        )
    return not isinstance(value, torch.Tensor)
