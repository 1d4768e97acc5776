"""Random streams of a training file in the form that our checkpoints keep them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.kinds.training.files.streams import NumpyState, RngStates
from trainops.runtime.job import StateDict
from trainops.runtime.receipt import ReceiptItem


def fit_streams(given: RngStates | None, fresh: StateDict) -> tuple[StateDict, list[ReceiptItem]]:
    """Return each stream as the file has it, or as `fresh` has it where the file does not."""
    given = given or RngStates()
    cpu, cuda = given.torch_cpu, given.torch_cuda or ()
    is_torch, is_cuda = _is_state(cpu), len(cuda) == len(fresh["cuda"])
    streams: StateDict = {
        "python": given.python or fresh["python"],
        "numpy": _numpy(given.numpy) if given.numpy else fresh["numpy"],
        "torch": cpu if is_torch else fresh["torch"],
        "cuda": list(cuda) if is_cuda else fresh["cuda"],
    }
    return streams, [
        _item("random: python", given.python is not None),
        _item("random: numpy", given.numpy is not None),
        _item("random: torch cpu", is_torch),
        _item("random: cuda", is_cuda),
    ]


def _item(part: str, is_taken: bool) -> ReceiptItem:
    note = "" if is_taken else "not in the file, or of another length; seeded anew"
    return ReceiptItem(part, is_taken, is_taken, note)


def _is_state(state: Tensor | None) -> bool:
    """Whether torch takes it as a state of its generator on the CPU."""
    if state is None:
        return False
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        return False
    return True


def _numpy(state: NumpyState) -> dict[str, Any]:
    kind, words, position, has_gauss, gauss = state
    key = torch.from_numpy(words.astype(np.int64))
    return {
        "bit_generator": kind,
        "state": {"key": key, "pos": position},
        "has_gauss": has_gauss,
        "gauss": gauss,
    }
