import torch
from torch import nn

from trainops.kinds.federated.ingredients import Federation
from trainops.learning.ingredients import Context, Examples, Ingredients
from trainops.learning.tasks.unet import dice


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride, kernel):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.activation = nn.PReLU()
        self.residual = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)

    def forward(self, values):
        return torch.tanh(self.activation(self.conv(values)) + self.residual(values))


class Net(nn.Module):
    """(N, 1, 8, 8) -> (N, 2, 8, 8), with the fifteen parameters of the file, in its order."""

    def __init__(self):
        super().__init__()
        self.down = Residual(1, 16, 2, 3)
        self.bottom = Residual(16, 32, 1, 1)
        self.up = nn.ConvTranspose2d(48, 2, 3, 2, 1, 1)
        self.activation = nn.PReLU()
        self.last = nn.Conv2d(2, 2, 3, 1, 1)

    def forward(self, images):
        down = self.down(images)
        up = self.activation(self.up(torch.cat([down, self.bottom(down)], dim=1)))
        return torch.tanh(up + self.last(up))


def build(parameters, context: Context) -> Federation:
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(30, 1, 8, 8, generator=generator)
    masks = (images > 0.5).float()
    return Federation(
        ingredients=Ingredients(
            model=Net(),
            train=Examples((images[:24],), masks[:24]),
            validation=Examples((images[24:],), masks[24:]),
            loss=lambda scores, truth: nn.functional.binary_cross_entropy_with_logits(
                scores[:, :1], truth
            ),
            measures={"dice": lambda scores, truth: dice(scores[:, :1], truth)},
        )
    )
