"""The loop of the image_folders recipe: images are decoded batch by batch."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Subset

from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.recipes.image_folders import Parameters
from trainops.kinds.loop.run import Run
from trainops.learning.data import split
from trainops.learning.readers import ImageFolder
from trainops.learning.tasks.layers import small_cnn


def train(run: Run, parameters: Parameters) -> Iterator[dict[str, Tensor | float]]:
    images = ImageFolder(
        run.directory(parameters.directory), parameters.folder,
        mode="L" if parameters.is_grey else "RGB", size=(parameters.side, parameters.side),
    )  # fmt: skip
    train_indices, held_out = split(len(images), parameters.validation_fraction, run.seed)
    options = parameters.model_dump(include={"batch_size", "num_workers", "skip_undecodable"})
    batches = run.loader("train", Subset(images, train_indices.tolist()), **options)
    validation = run.loader("val", Subset(images, held_out.tolist()), shuffle=False, **options)

    model = small_cnn(
        (1 if parameters.is_grey else 3, parameters.side, parameters.side), len(images.classes),
        channels=parameters.channels, hidden=4 * parameters.channels, dropout=parameters.dropout,
    )  # fmt: skip
    run.keep("model", model.to(run.device))
    net = run.wrap(model)  # averages gradients if there are several processes
    optimizer = run.keep(
        "optimizer", torch.optim.AdamW(model.parameters(), parameters.learning_rate)
    )
    sums = run.keep("sums", {"loss": 0.0, "correct": 0.0, "number": 0})

    for _ in run.epochs(parameters.epochs):
        for pixels, labels in batches:
            loss = functional.cross_entropy(net(scaled(pixels, run)), labels.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield {"train_loss": loss}
        yield from evaluate(run, model, validation, sums)


def evaluate(
    run: Run, model: nn.Module, validation: Passes, sums: dict[str, float]
) -> Iterator[dict[str, Tensor | float]]:
    """Yield the means over the held-out images; may be stopped between their batches."""
    sums |= {"loss": 0.0, "correct": 0.0, "number": 0}
    for pixels, labels in validation:
        labels = labels.to(run.device)
        with torch.no_grad():
            scores = model.eval()(scaled(pixels, run))
        model.train()
        found = run.totals(
            validation,
            loss=functional.cross_entropy(scores, labels, reduction="sum"),
            correct=(scores.argmax(1) == labels).sum(),
            number=len(labels),
        )
        sums |= {name: sums[name] + each for name, each in found.items()}
        yield {}
    number = sums["number"]
    yield {"val_loss": sums["loss"] / number, "val_accuracy": sums["correct"] / number}


def scaled(pixels: Tensor, run: Run) -> Tensor:
    """Return bytes as numbers from 0 to 1, on the device."""
    return pixels.to(run.device, torch.float32) / 255
