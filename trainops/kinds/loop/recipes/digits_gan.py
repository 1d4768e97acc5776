"""Handwritten digits from noise: a generative adversarial network; see digits_gan_module."""

from pydantic import Field

from trainops.kinds.loop.settings import ModuleParameters
from trainops.recipes import Recipe


class Parameters(ModuleParameters):
    batch_size: int = Field(32, ge=1, le=1024, description="Number of examples per batch.")
    learning_rate: float = Field(5e-4, gt=0, le=1, description="Learning rate of both networks.")
    noise: int = Field(16, ge=1, le=1024, description="Numbers that an image is made of.")
    width: int = Field(128, ge=1, le=4096, description="Hidden units of both networks.")


RECIPE = Recipe(
    name="digits_gan",
    kind="loop",
    label="Handwritten digits, GAN",
    description="Generates 8 x 8 digits by two networks that are trained against each other",
    parameters="trainops.kinds.loop.recipes.digits_gan:Parameters",
    build="trainops.kinds.loop.recipes.digits_gan_module:train",
    example={
        "recipe": "digits_gan",
        "parameters": {"epochs": 20},
        "monitor": "val_distance",
        "threads": 1,
    },
)
