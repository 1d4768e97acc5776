"""The module of the digit_classifier recipe: models, loaders, optimizer and steps as methods."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import (
    Extent,
    Optimizers,
    Schedule,
    TrainingModule,
    make_optimizer,
    make_schedule,
    module_loop,
)
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.recipes.digit_classifier import Parameters
from trainops.kinds.loop.run import Run


class Classifier(TrainingModule):
    def __init__(self, run: Run, parameters: Parameters) -> None:
        super().__init__()
        self.settings, width = parameters, parameters.width
        self.net = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10)
        )

    def loaders(self, run: Run) -> dict[str, Passes]:
        digits = load_digits()
        images, labels = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
        training = TensorDataset(images[:1437], labels[:1437])
        held_out = TensorDataset(images[1437:], labels[1437:])
        return {
            "train": run.loader("train", training, batch_size=self.settings.batch_size),
            "validation": run.loader("validation", held_out, batch_size=256, shuffle=False),
        }

    def optimizers(self) -> Optimizer:
        return make_optimizer(self.settings.optimizer, self.parameters())

    def schedulers(self, optimizers: Optimizers, extent: Extent) -> list[Schedule]:
        return make_schedule(self.settings.schedule, optimizers["optimizer"], extent)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: list[Tensor]) -> dict[str, Tensor]:
        images, labels = batch
        scores = self.net(images)
        accuracy = (scores.argmax(1) == labels).float().mean()
        return {"loss": functional.cross_entropy(scores, labels), "val_accuracy": accuracy}


train = module_loop(Classifier)
