"""Whether two states are of the same shape, so that one can take the other's place."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from trainops.engines.errors import IncompatibleState


def require_same_shape(own: Any, given: Any, place: str) -> None:
    """Raise IncompatibleState, which names the place, unless keys, lengths and shapes are equal.

    Plain values may differ: they are what a state is for.
    """
    if isinstance(own, Tensor):
        _require_tensor(own, given, place)
    elif isinstance(own, dict):
        if not isinstance(given, dict) or own.keys() != given.keys():
            raise IncompatibleState(f"{place} has {_keys(given)}, this job {_keys(own)}")
        for key, each in own.items():
            require_same_shape(each, given[key], f"{place}.{key}")
    elif isinstance(own, list | tuple):
        if not isinstance(given, list | tuple) or len(own) != len(given):
            raise IncompatibleState(f"{place} differs in length from this job's")
        for number, each in enumerate(own):
            require_same_shape(each, given[number], f"{place}[{number}]")


def require_same_optimizers(own: Sequence[Optimizer], given: Any) -> None:
    """Raise IncompatibleState unless each optimizer can take over the state of its number."""
    if not isinstance(given, list) or len(own) != len(given):
        raise IncompatibleState(f"this job has {len(own)} optimizers, the state another number")
    for number, (mine, theirs) in enumerate(zip(own, given, strict=True)):
        place = f"optimizer[{number}]"
        if not isinstance(theirs, dict) or theirs.keys() != {"state", "param_groups"}:
            raise IncompatibleState(f"{place} has {_keys(theirs)}")
        require_same_shape(mine.state_dict()["param_groups"], theirs["param_groups"], place)
        _require_moments(mine, theirs["state"], place)


def _require_moments(optimizer: Optimizer, given: Any, place: str) -> None:
    """Each parameter's saved tensors are scalars or have the parameter's shape."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    known: dict[Any, Tensor] = dict(enumerate(parameters))
    for index, moments in given.items():
        if index not in known:
            raise IncompatibleState(f"{place} knows parameter {index}, the model does not")
        for name, value in moments.items():
            shape = tuple(getattr(value, "shape", ()))
            if shape and shape != tuple(known[index].shape):
                raise IncompatibleState(
                    f"{place}.{index}.{name} is {shape}, its parameter {tuple(known[index].shape)}"
                )


def _require_tensor(own: Tensor, given: Any, place: str) -> None:
    if not isinstance(given, Tensor):
        raise IncompatibleState(f"{place} is no tensor")
    if (own.shape, own.dtype) != (given.shape, given.dtype):
        raise IncompatibleState(f"{place} is {_shape(given)}, this job's {_shape(own)}")


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _keys(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
