"""Random streams as other tools save them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from trainops.files.fields import Fields, is_integer, is_number, shown

PYTHON_VERSION, PYTHON_WORDS = 3, 625
NUMPY_KIND, NUMPY_WORDS = "MT19937", 624
NumpyState: TypeAlias = tuple[str, Any, int, int, float]  # as np.random.get_state() returns it


@dataclass(frozen=True, slots=True)
class RngStates:
    """Where each stream stands. `python` is random.getstate(), `numpy` np.random.get_state()."""

    python: tuple[Any, ...] | None = None
    numpy: NumpyState | None = None
    torch_cpu: Tensor | None = None
    torch_cuda: tuple[Tensor, ...] | None = None


def read_rng_states(fields: Fields) -> RngStates:
    return RngStates(
        python=_read_python(fields) if fields.has("python_random") else None,
        numpy=read_numpy_state(fields, "numpy_random"),
        torch_cpu=fields.tensor("torch_cpu", "uint8", 1) if fields.has("torch_cpu") else None,
        torch_cuda=_read_cuda(fields) if fields.has("torch_cuda") else None,
    )


def write_rng_states(states: RngStates) -> dict[str, Any]:
    return {
        "python_random": states.python,
        "numpy_random": states.numpy,
        "torch_cpu": states.torch_cpu,
        "torch_cuda": None if states.torch_cuda is None else list(states.torch_cuda),
    }


def read_numpy_state(fields: Fields, name: str) -> NumpyState | None:
    """Return the tuple of NumPy's legacy generator, or None where there is none."""
    if not fields.has(name):
        return None
    match fields.plain(name):
        case (str(kind), np.ndarray() as words, position, has_gauss, gauss) if (
            kind == NUMPY_KIND
            and words.shape == (NUMPY_WORDS,)
            and words.dtype == np.uint32
            and is_integer(position)
            and 0 <= position <= NUMPY_WORDS
            and has_gauss in (0, 1)
            and is_number(gauss)
        ):
            return kind, words, int(position), int(has_gauss), float(gauss)
    fields.wrong(name, f"is {shown(fields.plain(name))}; must be a state of {NUMPY_KIND}")
    return None


def _read_python(fields: Fields) -> tuple[Any, ...] | None:
    match fields.plain("python_random"):
        case (3, [*words], None | float() as gauss) if (
            len(words) == PYTHON_WORDS
            and all(is_integer(word) and 0 <= word < 2**32 for word in words)
            and words[-1] < PYTHON_WORDS
        ):
            return PYTHON_VERSION, tuple(words), gauss
    found = shown(fields.plain("python_random"))
    fields.wrong("python_random", f"is {found}; must be a state of Python's generator")
    return None


def _read_cuda(fields: Fields) -> tuple[Tensor, ...] | None:
    states = fields.plain("torch_cuda")
    if isinstance(states, list | tuple) and all(
        isinstance(each, Tensor) and str(each.dtype) == "torch.uint8" and each.dim() == 1
        for each in states
    ):
        return tuple(states)
    fields.wrong("torch_cuda", f"is {shown(states)}; must be a list of tensors uint8, or None")
    return None
