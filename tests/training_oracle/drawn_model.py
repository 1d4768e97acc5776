import torch
from torch import nn

from tests.training_oracle.drawn import Parameters
from trainops.learning.ingredients import Context, Examples, Ingredients

FEATURES, CLASSES = 4, 3


class Branches(nn.Module):
    """Two inputs, as models of tables have; (N, 4) numbers and (N,) codes -> (N, 3)."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.codes = nn.Embedding(5, 3)
        self.first = nn.Linear(FEATURES + 3, 6)
        self.norm = nn.LayerNorm(6)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(6, CLASSES)
        self.unused = nn.Parameter(torch.ones(2))  # never has a gradient

    def forward(self, numbers, codes):
        together = torch.cat([numbers, self.codes(codes)], dim=1)
        return self.last(self.dropout(self.norm(self.first(together)).relu()))


def build(parameters: Parameters, context: Context) -> Ingredients:
    make = _Maker(parameters)
    return Ingredients(
        model=Branches(parameters.dropout),
        train=make.examples(parameters.examples),
        validation=make.examples(parameters.validation) if parameters.validation else None,
        loss=LOSSES[parameters.loss],
        measures={"worst": lambda outputs, targets: (outputs - 1).abs().amax(dim=1)},
        loss_factor=parameters.loss_factor,
    )


class _Maker:
    def __init__(self, parameters: Parameters) -> None:
        self.has_classes = parameters.loss == "entropy"
        self.generator = torch.Generator().manual_seed(5)

    def examples(self, count: int) -> Examples:
        numbers = torch.randn(count, FEATURES, generator=self.generator)
        codes = torch.randint(5, (count,), generator=self.generator)
        targets = numbers[:, :CLASSES] * 2 - codes[:, None]
        return Examples((numbers, codes), targets.argmax(1) if self.has_classes else targets)


def mixed(outputs, targets):
    """Return a sum of two losses, as recipes may have it."""
    return nn.functional.l1_loss(outputs, targets) + 0.3 * nn.functional.mse_loss(outputs, targets)


LOSSES = {
    "entropy": nn.functional.cross_entropy,
    "squared": nn.functional.mse_loss,
    "smooth": nn.functional.smooth_l1_loss,
    "mixed": mixed,
}
