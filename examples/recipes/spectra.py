"""Ingredients over a dataset, first half: spectra in NPY files, larger than memory."""

from pydantic import Field

from trainops.kinds.loop.settings import IngredientsParameters
from trainops.recipes import Recipe
from trainops.runtime.config import DirectoryId


class SpectraParameters(IngredientsParameters):
    directory: DirectoryId = Field(description="Directory with spectra.npy and classes.npy.")
    width: int = Field(32, ge=1, le=4096, description="Units of the hidden layer.")
    noise: float = Field(0.01, ge=0, le=1, description="Deviation of noise added for training.")


RECIPE = Recipe(
    name="spectra",
    kind="loop",
    label="Spectra",
    description="Classifies spectra that are read from NPY files batch by batch",
    parameters="examples.recipes.spectra:SpectraParameters",
    build="examples.recipes.spectra_model:train",
    example={
        "recipe": "spectra",
        "parameters": {"directory": "ds_0000000000000000", "epochs": 5, "num_workers": 2},
    },
)
