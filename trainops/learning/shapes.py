"""Whether two states are of the same shape, so that one can take the other's place."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainops.learning.optimizer_state import template
from trainops.runtime.errors import IncompatibleState


def require_same_shape(own: object, given: object, place: str) -> None:
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


def require_same_schedulers(own: Sequence[Any], given: object) -> None:
    """Raise IncompatibleState unless each schedule can take over the state of its number.

    A list of a schedule may have grown since it was new.
    """
    if not isinstance(given, list) or len(own) != len(given):
        raise IncompatibleState(f"this job has {len(own)} schedules, the state another number")
    for number, (mine, theirs) in enumerate(zip(own, given, strict=True)):
        place, state = f"scheduler[{number}]", mine.state_dict()
        if not isinstance(theirs, dict) or state.keys() != theirs.keys():
            raise IncompatibleState(f"{place} has {_keys(theirs)}, this job {_keys(state)}")
        for key, each in state.items():
            kept = theirs[key]
            has_grown = isinstance(each, list) and isinstance(kept, list) and len(kept) > len(each)
            require_same_shape(each, kept[: len(each)] if has_grown else kept, f"{place}.{key}")


def require_same_optimizers(own: Sequence[Optimizer], given: object) -> None:
    """Raise IncompatibleState unless each optimizer can take over the state of its number."""
    if not isinstance(given, list) or len(own) != len(given):
        raise IncompatibleState(f"this job has {len(own)} optimizers, the state another number")
    for number, (mine, theirs) in enumerate(zip(own, given, strict=True)):
        place = f"optimizer[{number}]"
        if not isinstance(theirs, dict) or theirs.keys() != {"state", "param_groups"}:
            raise IncompatibleState(f"{place} has {_keys(theirs)}")
        require_same_shape(mine.state_dict()["param_groups"], theirs["param_groups"], place)
        _require_moments(mine, theirs["state"], place)


def _require_moments(optimizer: Optimizer, given: object, place: str) -> None:
    """Each parameter's saved values are those that the optimizer itself would keep.

    A parameter that never had a gradient may have none. Values that the optimizer does not keep
    from its first step on are its own affair.
    """
    if not isinstance(given, dict):
        raise IncompatibleState(f"{place}.state is no dict")
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    own = template(optimizer) if given else {}
    for index, moments in given.items():
        if index not in range(count):
            raise IncompatibleState(f"{place} knows parameter {index}, the model does not")
        if not isinstance(moments, dict):
            raise IncompatibleState(f"{place}.{index} is no dict")
        for name, mine in own.get(index, {}).items() if moments else ():
            if name not in moments:
                raise IncompatibleState(f"{place}.{index} lacks {name}")
            _require_moment(mine, moments[name], f"{place}.{index}.{name}")


def _require_moment(own: object, given: object, place: str) -> None:
    """A single number may be of any type: torch changed that of steps more than once."""
    if not isinstance(own, Tensor):
        return
    if own.ndim == 0 and (isinstance(given, int | float) or getattr(given, "shape", None) == ()):
        return
    _require_tensor(own, given, place)


def _require_tensor(own: Tensor, given: object, place: str) -> None:
    if not isinstance(given, Tensor):
        raise IncompatibleState(f"{place} is no tensor")
    if is_lazy(own):  # which takes the shape of what it loads
        return
    if (own.shape, own.dtype) != (given.shape, given.dtype):
        raise IncompatibleState(f"{place} is {_shape(given)}, this job's {_shape(own)}")


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _keys(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
