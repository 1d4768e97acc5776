"""Digests of the state of a job and of the random streams, for the comparison of two processes."""

from typing import Any

import torch
from blake3 import blake3

from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.job import ResumableJob

STREAM_BYTES = 2**22  # of a stream's newest rows; those before the checkpoint have digests


def digests(job: ResumableJob) -> dict[str, str]:
    """Return a digest of each part of a job's state, and of each global random stream."""
    state = job.state_dict()
    streams = reproducibility.state_dict()
    return {
        **{name: digest(part) for name, part in state.items()},
        **{f"{RANDOM}: {name}": digest(part) for name, part in streams.items()},
    }


def digest(part: object) -> str:
    """Return a digest of plain values, tensors and streams, by their types, too."""
    hasher = blake3()
    _feed(hasher, part)
    return hasher.hexdigest(length=16)


def _feed(hasher: Any, value: object) -> None:
    """Add a value with its types; the order of a dict's keys is ignored."""
    if isinstance(value, torch.Tensor):
        hasher.update(f"{value.dtype} {tuple(value.shape)}:".encode())
        plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1)
        if plain.numel() < 2:  # whose stride may be anything
            plain = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
        hasher.update(plain.view(torch.uint8).numpy())
    elif isinstance(value, Stream):
        _feed(hasher, _newest_rows(value))
    elif isinstance(value, dict):
        hasher.update(f"{len(value)} keys:".encode())
        for key in sorted(value, key=repr):
            _feed(hasher, key)
            _feed(hasher, value[key])
    elif isinstance(value, list | tuple):
        hasher.update(f"{type(value).__name__} of {len(value)}:".encode())
        for each in value:
            _feed(hasher, each)
    else:
        hasher.update(f"{type(value).__name__} {value!r};".encode())


def _newest_rows(stream: Stream) -> dict[str, object]:
    row_bytes = sum(
        torch.empty(shape, dtype=dtype, device="meta").nbytes
        for dtype, shape in stream.columns.values()
    )
    first = max(stream.first_row, len(stream) - STREAM_BYTES // max(1, row_bytes))
    return {"": len(stream), **{name: stream.column(name, first) for name in stream.columns}}
