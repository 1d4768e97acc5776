"""A recipe that misbehaves on request: what a supervisor has to live with."""

from typing import Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class ScriptedParameters(Strict):
    build_seconds: float = Field(0.0, ge=0)
    step_seconds: float = Field(0.0, ge=0)
    validation_seconds: float = Field(0.0, ge=0, description="For each batch of it")
    media: bool = Field(False, description="Whether it logs in every step and validation batch")
    trace: str = Field("", description="A file that gets a line, the process, at every step")
    at: int = Field(0, ge=0, description="The training step of this process that misbehaves")
    validation_at: int = Field(0, ge=0, description="The same, of its validation batches")
    once: str = Field("", description="A file: with it, the first process only misbehaves")
    what: Literal[
        "nothing", "raise", "nan", "segfault", "kill", "exit", "leave", "memory", "hang",
        "hold_gil", "ignore_and_fork", "print", "flood", "odd_words",
        "counter", "grow", "fill", "fill_and_kill",
    ] = "nothing"  # fmt: skip


RECIPE = Recipe(
    name="scripted",
    kind="training",
    label="Scripted",
    description="Misbehaves on request",
    parameters="tests.recipes.scripted:ScriptedParameters",
    build="tests.recipes.scripted_model:build",
    example={"recipe": "scripted"},
)
