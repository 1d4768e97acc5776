"""The config of walks."""

from typing import Literal

from pydantic import Field

from trainops.runtime.config import OperationConfig


class WalksConfig(OperationConfig):
    stages: int = Field(2, ge=1, description="Groups of walks, one after the other.")
    walks: int = Field(3, ge=1, description="Walks in a stage.")
    moves: int = Field(4, ge=1, description="Moves of a walk.")
    move_seconds: float = Field(0.0, ge=0, description="Seconds that a move takes.")
    placement: Literal["in_process", "distributed"] = Field(
        "in_process", description="Where walks run."
    )

    @property
    def is_distributed(self) -> bool:
        return self.placement == "distributed"
