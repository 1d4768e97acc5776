"""Whether checkpoints without a signature are refused; read once, at the start."""

import os
from collections.abc import Mapping

VARIABLE = "TRAINOPS_REQUIRE_SIGNATURES"


def required(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether every checkpoint must have an accepted signature. Raises ValueError."""
    given = environment.get(VARIABLE, "").strip() or "0"
    if given not in ("0", "1"):
        raise ValueError(f"{VARIABLE}: got {given!r}; allowed: 0, 1")
    return given == "1"
