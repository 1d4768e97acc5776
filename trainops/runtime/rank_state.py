"""What a rank saves of its own, and how ranks compare what must be equal in all of them."""

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from trainops.runtime import reproducibility
from trainops.runtime.errors import IncompatibleState, RanksDiverged
from trainops.runtime.job import ResumableJob, StateDict
from trainops.runtime.ranks import Devices, DividedJob, RankedJob

STREAMS, JOB = "random", "job"  # in the part of a rank
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element


def rank_part(job: RankedJob) -> StateDict:
    """Return the part of this rank."""
    return {STREAMS: reproducibility.state_dict(), JOB: job.rank_state_dict()}


def load_rank_part(job: RankedJob, part: StateDict) -> None:
    """Put the part of this rank back. Raises IncompatibleState."""
    job.load_rank_state_dict(part[JOB])
    reproducibility.load_state_dict(part[STREAMS])


def hand_over(job: ResumableJob, of_ranks: StateDict, *, is_check: bool = False) -> None:
    """Give a job that may be divided the parts of other ranks. Raises IncompatibleState.

    `is_check`: the job alone finds out whether the ranks of its config can load the state.
    """
    if not isinstance(job, DividedJob):
        return
    for name, part in of_ranks.items():
        if not isinstance(part, dict) or not isinstance(part.get(JOB), dict):
            raise IncompatibleState(f"{name} is no dict in the state")
    parts = {int(name.removeprefix("rank")): part[JOB] for name, part in of_ranks.items()}
    job.receive_parts(parts, is_check=is_check)


def seed_rank(seed: int, devices: Devices, step: int = 0) -> None:
    """Start the random streams of a rank, which follow from the seed, the rank and the step."""
    text = f"{seed}/rank {devices.rank} of {devices.num_ranks}/step {step}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    reproducibility.seed_all(int.from_bytes(digest) % 2**63)


def fingerprints(job: RankedJob) -> dict[str, str]:
    """Return a short digest of each replicated object: equal objects have equal ones."""
    replicated = {"the step": job.step, **job.replicated()}
    return {name: _fingerprint(thing) for name, thing in replicated.items()}


def require_equal(own: Mapping[str, str], others: Mapping[str, str], rank: int, step: int) -> None:
    """Raise RanksDiverged, which names the objects that differ between rank 0 and another."""
    differing = [name for name in {**own, **others} if own.get(name) != others.get(name)]
    if differing:
        raise RanksDiverged(
            f"after step {step}, {', '.join(differing)} differs between rank 0 and rank {rank}; "
            "average gradients over all ranks (a model: run.wrap), and draw no random numbers "
            "that change it"
        )


def _fingerprint(thing: object) -> str:
    """Digest plain values, and of each tensor the sum of its bits, which costs one read of it."""
    hasher, sums = hashlib.blake2b(digest_size=16), []
    for leaf in _leaves(thing):
        if isinstance(leaf, Tensor):
            hasher.update(f"{leaf.dtype} {tuple(leaf.shape)};".encode())
            sums.append(_sum_of_bits(leaf))
        else:
            hasher.update(f"{leaf!r};".encode())
    if sums:  # waits for a GPU once
        hasher.update(repr(torch.stack(sums).tolist()).encode())
    return hasher.hexdigest()


def _sum_of_bits(tensor: Tensor) -> Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return flat.view(WORDS[flat.element_size()]).sum(dtype=torch.int64)


def _leaves(thing: object) -> Iterator[object]:
    if isinstance(thing, dict):
        for key in thing:
            yield key
            yield from _leaves(thing[key])
    elif isinstance(thing, list | tuple):
        yield len(thing)
        for each in thing:
            yield from _leaves(each)
    else:
        yield thing
