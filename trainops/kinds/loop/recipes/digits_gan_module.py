"""The module of the digits_gan recipe: two networks that step one after the other on each batch.

The loss is the non-saturating one of Goodfellow et al., "Generative Adversarial Nets", 2014.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Adam, Optimizer
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.recipes.digits_gan import Parameters
from trainops.kinds.loop.run import Run

NUM_TRAINING, NUM_PIXELS, MAX_PIXEL = 1437, 64, 16.0


class Gan(TrainingModule):
    def __init__(self, run: Run, parameters: Parameters) -> None:
        super().__init__()
        self.settings, width = parameters, parameters.width
        self.generator = nn.Sequential(
            nn.Linear(parameters.noise, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, NUM_PIXELS), nn.Sigmoid(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Linear(NUM_PIXELS, width), nn.LeakyReLU(0.2), nn.Dropout(0.3),
            nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Dropout(0.3),
            nn.Linear(width, 1),
        )  # fmt: skip

    def loaders(self, run: Run) -> dict[str, Passes]:
        images = torch.tensor(load_digits().data).float() / MAX_PIXEL
        training = TensorDataset(images[:NUM_TRAINING])
        held_out = TensorDataset(images[NUM_TRAINING:])
        return {
            "train": run.loader("train", training, batch_size=self.settings.batch_size),
            "validation": run.loader("validation", held_out, batch_size=360, shuffle=False),
        }

    def optimizers(self) -> dict[str, Optimizer]:
        rate, betas = self.settings.learning_rate, (0.5, 0.999)
        return {
            "discriminator": Adam(self.discriminator.parameters(), rate, betas),
            "generator": Adam(self.generator.parameters(), rate, betas),
        }

    def training_step(self, batch: list[Tensor], network: str) -> Tensor:
        (images,) = batch
        made = self.generator(torch.randn(len(images), self.settings.noise, device=images.device))
        if network == "generator":
            return _loss(self.discriminator(made), is_real=True)
        real = _loss(self.discriminator(images), is_real=True)
        return real + _loss(self.discriminator(made.detach()), is_real=False)

    def validation_step(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """Return the distance between the means of generated and of held-out images.

        The noise is the same in every validation, and draws nothing from the streams of the run.
        """
        (images,) = batch
        fixed = torch.Generator().manual_seed(0)
        noise = torch.randn(len(images), self.settings.noise, generator=fixed).to(images.device)
        distance = (self.generator(noise).mean(0) - images.mean(0)).abs().mean()
        return {"loss": distance, "val_distance": distance}


def _loss(scores: Tensor, *, is_real: bool) -> Tensor:
    return binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(is_real)))


train = module_loop(Gan)
