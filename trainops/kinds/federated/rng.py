"""Where a federated run's random numbers come from: each is a function of what it is for.

Nothing is kept, so nothing can be restored wrongly: what is drawn again for the same purpose is the
same, and what is drawn for another is independent of it.
"""

import hashlib
import pickle
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from blake3 import blake3
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray
from torch import Tensor

from trainops.runtime import lossless, reproducibility

KEY_BYTES, IDENTITY_BYTES = 32, 16


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return a generator for this purpose, of torch's own kind."""
    digest = hashlib.blake2b("/".join(map(str, (seed, *purpose))).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest) % 2**63)


def begin_streams(seed: int, *purpose: object, secrets: "Secrets | None" = None) -> None:
    """Start every global stream anew for this purpose: whatever was drawn before, or elsewhere.

    Checkpoints hold the streams: with the seed, any reader can compute for which client they began;
    with secrets, only their owners.
    """
    if secrets is None:
        reproducibility.seed_all(generator(seed, "streams", *purpose).initial_seed())
    else:
        reproducibility.seed_all(int.from_bytes(secrets.draw(8, "streams", *purpose)) % 2**63)


class Secrets:
    """Draws that can be repeated only with the secret."""

    def __init__(self, secret: bytes, seed: int) -> None:
        self._key = hashlib.blake2b(
            seed.to_bytes(8), key=secret[:64], digest_size=KEY_BYTES
        ).digest()

    def identity(self, plain: Any, tensors: Any) -> str:
        """Return a name for all that a release follows from; 32 hexadecimal digits.

        Two releases have the same only if they follow from the same bits. It tells nothing about
        them to readers without the secret.
        """
        hasher = blake3(key=self._key)
        hasher.update(lossless.dumps(plain).encode())
        for each in _pieces(tensors):
            hasher.update(each)
        return hasher.hexdigest()[: 2 * IDENTITY_BYTES]

    def numbers(self, *purpose: object) -> np.random.Generator:
        """Return a generator for this purpose (Philox; its key is all that it starts from)."""
        return _numbers(self.draw(16, *purpose))

    def numbers_for(self, content: Tensor, *purpose: object) -> np.random.Generator:
        """Return a generator for this purpose and this content (P,): another one, for another."""
        plain = content.detach().cpu().contiguous()
        hasher = blake3(f"{'/'.join(map(str, purpose))}/{plain.dtype}:".encode(), key=self._key)
        return _numbers(hasher.update(plain.view(torch.uint8).numpy().data).digest(length=16))

    def draw(self, size: int, *purpose: object) -> bytes:
        """Return N bytes for this purpose."""
        hasher = blake3("/".join(map(str, purpose)).encode(), key=self._key)
        return hasher.digest(length=size)


class _Key(ISeedSequence):
    """A number of sixteen bytes, the highest first, as the words that a bit generator asks for.

    Given as `key=`, NumPy would have the system draw a seed, too, which is not used and takes
    twice as long as all the rest.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        words = np.frombuffer(self._key[::-1], np.dtype(dtype).newbyteorder("<"))
        return words[:n_words].astype(dtype)


def _numbers(key: bytes) -> np.random.Generator:
    seed = cast(np.random.SeedSequence, _Key(key))  # any ISeedSequence is taken
    return np.random.Generator(np.random.Philox(seed))


def normal(numbers: np.random.Generator, like: Tensor, deviation: float) -> Tensor:
    """Return Gaussian noise of a tensor's shape, type and device."""
    drawn = torch.from_numpy(np.asarray(numbers.standard_normal(like.shape) * deviation))
    return drawn.to(like)


def circumstances() -> list[bytes]:
    """Return what decides a step's last bits beside its state: streams, versions, device."""
    streams = reproducibility.state_dict()
    return [
        pickle.dumps(streams["python"]),
        *_pieces([streams["numpy"], streams["torch"], streams["cuda"]]),
        lossless.dumps(reproducibility.environment()).encode(),
    ]


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield the bytes of every tensor and plain value, each after its own length."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        yield f"{value.dtype}{tuple(value.shape)}:{len(content)}:".encode() + content
    elif isinstance(value, dict):
        for name, each in value.items():
            yield f"{name}=".encode()
            yield from _pieces(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _pieces(each)
    else:
        content = value if isinstance(value, bytes) else repr(value).encode()
        yield f"{len(content)}:".encode() + content
