"""A random stream for each purpose, so that none depends on how often another was drawn from."""

import hashlib

import torch


def seed_for(seed: int, purpose: str) -> int:
    """Return a seed of 63 bits that follows from both."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_for(seed, purpose))
