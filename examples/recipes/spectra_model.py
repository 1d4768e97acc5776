"""Ingredients over a dataset, second half: the model and the datasets."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from examples.recipes.spectra import SpectraParameters
from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.learning.data import split
from trainops.learning.ingredients import Context, DatasetIngredients, accuracy
from trainops.learning.readers import ArrayRows


class Spectra(Dataset[tuple[Tensor, Tensor]]):
    """(spectrum, class) of each row; `noise` is drawn anew in each pass."""

    def __init__(self, rows: ArrayRows, noise: float) -> None:
        self.rows, self.noise = rows, noise

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        return row["spectra"] + self.noise * torch.randn_like(row["spectra"]), row["classes"]


def build(parameters: SpectraParameters, context: Context) -> DatasetIngredients:
    rows = ArrayRows(context.directory(parameters.directory))
    train, validation = split(len(rows), 0.2, context.seed)
    num_values = len(rows[0]["spectra"])
    return DatasetIngredients(
        model=nn.Sequential(
            nn.Linear(num_values, parameters.width), nn.ReLU(), nn.Linear(parameters.width, 2)
        ),
        train=Subset(Spectra(rows, parameters.noise), train.tolist()),
        validation=Subset(Spectra(rows, noise=0.0), validation.tolist()),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        description={"values": num_values},
    )


train = ingredients_loop(build)
