"""The loop of waves: it logs numbers, audio, images, a histogram, a table, a confusion matrix."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import trainops
from examples.recipes.waves import WavesParameters
from trainops.kinds.loop.run import Run
from trainops.media import Audio, ConfusionMatrix, Histogram, Image, Table

WAVES, RATE, LENGTH, NUM_SOUNDS = ("sine", "square", "saw"), 8000, 2048, 240


def train(run: Run, parameters: WavesParameters) -> Iterator[dict[str, Tensor]]:
    sounds, waves = make_sounds(torch.Generator().manual_seed(1))
    pictures = spectrograms(sounds)
    batches = run.loader("train", TensorDataset(pictures[:180], waves[:180]), batch_size=30)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(len(WAVES))
    )
    model(pictures[:1])  # gives the last layer its size
    run.keep("model", model.to(run.device))
    optimizer = run.keep(
        "optimizer", torch.optim.Adam(model.parameters(), parameters.learning_rate)
    )

    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            loss = functional.cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            trainops.log("gradient_norm", nn.utils.get_total_norm(gradients_of(model)))
            optimizer.step()
            yield {"train_loss": loss}
        with torch.no_grad():
            scores = model(pictures[180:].to(run.device)).cpu()
        show(scores, sounds[180:], pictures[180:], waves[180:], model[0].weight)
        yield {"val_loss": functional.cross_entropy(scores, waves[180:])}


def show(scores: Tensor, sounds: Tensor, pictures: Tensor, waves: Tensor, weight: Tensor) -> None:
    """Log what a person wants to look at after an epoch."""
    found = scores.argmax(1)
    trainops.log("confusion", ConfusionMatrix(WAVES, truths=waves, predictions=found))
    trainops.log("weights", Histogram(weight, bins=30))

    losses = functional.cross_entropy(scores, waves, reduction="none")
    worst = {
        i: f"{WAVES[waves[i]]}, taken for {WAVES[found[i]]}"
        for i in losses.argsort(descending=True)[:4].tolist()
    }
    rows = [[i, worst[i], losses[i]] for i in worst]
    trainops.log("worst", Table(["sound", "what", "loss"], rows))
    trainops.log("sounds", [Audio(sounds[i], RATE, caption=worst[i]) for i in worst])
    trainops.log("spectrograms", [Image(pictures[i], caption=worst[i]) for i in worst])


def gradients_of(model: nn.Module) -> list[Tensor]:
    return [each.grad for each in model.parameters() if each.grad is not None]


def make_sounds(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sounds (number, samples) from -1 to 1, and the number of the wave of each."""
    waves = torch.arange(NUM_SOUNDS) % len(WAVES)
    pitch = 100 + 700 * torch.rand(NUM_SOUNDS, 1, generator=generator)
    turn = pitch * torch.arange(LENGTH) / RATE
    noise = 0.3 * torch.randn(NUM_SOUNDS, LENGTH, generator=generator)
    shapes = torch.stack([(6.2832 * turn).sin(), (6.2832 * turn).sin().sign(), 2 * (turn % 1) - 1])
    clean = shapes[waves, torch.arange(NUM_SOUNDS)]
    return (0.5 * clean + noise).clamp(-1, 1), waves


def spectrograms(sounds: Tensor) -> Tensor:
    """Return pictures (number, 1, frequencies, times) from 0 to 1."""
    found = torch.stft(sounds, 126, 64, window=torch.hann_window(126), return_complex=True)
    loud = found.abs().log1p()
    return (loud / loud.max())[:, None]
