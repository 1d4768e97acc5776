"""Where the checkpoint of an evaluation stands. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position

SUMMARY = ("batch",)
ALSO_READ = ()
BEST = ()


def position(state: Mapping[str, Any], step: int) -> Position:
    return Position({"batch": step}, f"batch {step}")
