"""Recipes of programs that others wrote: a LightningModule, a Trainer's script, a plain script."""

from pydantic import Field

from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class ModuleInDirectory(LightningParameters):
    directory: str = ""


class Script(Strict):
    directory: str = ""
    script: str = ""
    arguments: list[str] = Field(default_factory=list)


def recipe_of(name: str, parameters: type[Strict], build: str) -> Recipe:
    return Recipe(
        name=f"foreign_{name}",
        kind="loop",
        label=name,
        description="For tests",
        parameters=f"tests.foreign.programs:{parameters.__name__}",
        build=f"tests.foreign.{build}",
        example={"recipe": f"foreign_{name}", "threads": 1},
    )


LIGHTNING = recipe_of("lightning", ModuleInDirectory, "lightning_demo:train")
TRANSFORMERS = recipe_of("transformers", Script, "trainer_script:train")
PLAIN = recipe_of("plain", Script, "plain_script:train")
NAMES = ("LIGHTNING", "TRANSFORMERS", "PLAIN")
