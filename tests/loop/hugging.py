"""A recipe of a Hugging Face Trainer, for tests."""

from typing import Any, Literal

from pydantic import Field

from trainops.kinds.loop.trainer_settings import TransformersParameters
from trainops.recipes import Recipe


class Parameters(TransformersParameters):
    dropout: float = 0.1
    counts_items: bool = True
    metrics: bool = True
    num_workers: int = 0
    max_steps: int = -1
    several: bool = False  # datasets of evaluations
    iterable: Literal["", "plain", "stateful", "sized"] = ""
    damaged: bool = False  # the last example of each dataset
    callbacks: list[str] = Field(default_factory=list)
    arguments: dict[str, Any] = Field(default_factory=dict)


RECIPE = Recipe(
    name="hugging",
    kind="loop",
    label="Hugging Face",
    description="For tests",
    parameters="tests.loop.hugging:Parameters",
    build="tests.loop.hugging_trainer:train",
    example={"recipe": "hugging", "threads": 1},
)
