"""The state of a Gymnasium environment: its attributes, where all of them are plain values.

Gymnasium has no way to ask an environment for its state. Classic control and toy text keep theirs
in numbers and arrays, which can be read and put back bit for bit; an environment that holds an
engine of its own (Box2D, MuJoCo) cannot be frozen.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch

from trainops.runtime.job import StateDict

# What follows from the id: spaces, pictures, the table of moves of toy text.
CONSTANT = {
    "env", "spec", "_spec", "action_space", "observation_space", "_action_space", "P", "desc",
    "_observation_space", "metadata", "_metadata", "np_random", "_np_random_seed", "_cached_spec",
}  # fmt: skip
ARRAY = "$array"


def capture(environment: gymnasium.Env[Any, Any]) -> StateDict:
    """Return everything in the environment that may change. Raises TypeError where it cannot."""
    unwrapped: Any = environment.unwrapped
    return {
        "random": unwrapped.np_random.bit_generator.state,
        "layers": [
            {name: _plain(value, name) for name, value in vars(layer).items() if _varies(name)}
            for layer in _layers(environment)
        ],
    }


def put_back(environment: gymnasium.Env[Any, Any], state: Mapping[str, Any]) -> None:
    """Undo capture. Raises ValueError where the environment is another."""
    layers = list(_layers(environment))
    if len(layers) != len(state["layers"]):
        raise ValueError(f"it has {len(layers)} layers, the state {len(state['layers'])}")
    for layer, values in zip(layers, state["layers"], strict=True):
        own = {name for name in vars(layer) if _varies(name)}
        if own != values.keys():
            raise ValueError(f"{type(layer).__name__} has other attributes than the state")
        for name, value in values.items():
            setattr(layer, name, _revived(value))
    environment.unwrapped.np_random.bit_generator.state = state["random"]


def obstacle(environment: gymnasium.Env[Any, Any]) -> str:
    """Return why the environment cannot be frozen, "" where it can."""
    try:
        capture(environment)
    except TypeError as error:
        return str(error)
    return ""


def _layers(environment: Any) -> Iterator[Any]:
    while isinstance(environment, gymnasium.Wrapper):
        yield environment
        environment = environment.env
    yield environment


def _varies(name: str) -> bool:
    return name not in CONSTANT and name != "_np_random"


def _plain(value: Any, name: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind == "U" and not array.ndim:
            return str(array)
        if array.dtype.kind in "biuf":
            return {ARRAY: torch.from_numpy(np.array(array)), "is_scalar": not array.ndim}
    if type(value) in (list, tuple):
        return type(value)(_plain(each, name) for each in value)
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {key: _plain(each, name) for key, each in value.items()}
    raise TypeError(f"{name} is a {type(value).__name__}, which cannot be saved")


def _revived(value: Any) -> Any:
    if type(value) is dict and ARRAY in value:
        array = value[ARRAY].numpy().copy()
        return array[()] if value["is_scalar"] else array
    if type(value) is dict:
        return {key: _revived(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_revived, value))
    return value
