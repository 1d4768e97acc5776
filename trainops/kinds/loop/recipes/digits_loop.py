"""The loop of the digits_loop recipe: plain PyTorch, with `keep`, the run's loops and `yield`."""

from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from trainops.kinds.loop.recipes.digits import Parameters
from trainops.kinds.loop.run import Run
from trainops.media import ConfusionMatrix, log

NUM_TRAINING, MAX_PIXEL = 1437, 16.0


def train(run: Run, parameters: Parameters) -> Iterator[dict[str, Tensor]]:
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / MAX_PIXEL
    targets = torch.tensor(digits.target)
    batches = run.loader(
        "train",
        TensorDataset(images[:NUM_TRAINING], targets[:NUM_TRAINING]),
        batch_size=parameters.batch_size,
    )
    held_out = images[NUM_TRAINING:].to(run.device), targets[NUM_TRAINING:].to(run.device)

    model = nn.Sequential(
        nn.Linear(64, parameters.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(parameters.width, 10)
    )
    run.keep("model", model.to(run.device))
    net = run.wrap(model)  # averages gradients if there are several processes
    optimizer = run.keep(
        "optimizer", torch.optim.AdamW(model.parameters(), parameters.learning_rate)
    )
    schedule = run.keep(
        "schedule", torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, parameters.epochs)
    )

    for _ in run.epochs(parameters.epochs):
        for inputs, labels in batches:
            loss = functional.cross_entropy(net(inputs.to(run.device)), labels.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield {"train_loss": loss}
        schedule.step()
        yield validate(model, *held_out)


def validate(model: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
    model.eval()
    with torch.no_grad():
        scores = model(images)
    model.train()
    found = scores.argmax(1)
    log("confusion", ConfusionMatrix(range(10), truths=targets, predictions=found))
    accuracy = (found == targets).float().mean()
    return {"val_loss": functional.cross_entropy(scores, targets), "val_accuracy": accuracy}
