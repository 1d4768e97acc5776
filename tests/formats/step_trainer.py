"""A training loop that saves directories as the transformer trainer does."""

import json
import math

import torch
from safetensors.torch import save_file
from torch import nn

from tests.formats.recipe import Parameters
from tests.formats.recipe_model import build
from trainops.learning.ingredients import Context

BATCHES, BATCH = 38, 8


def train(root, *, epochs=2, every=16, accumulation=1, weights="pytorch_model.bin"):
    """Save below `root` after each epoch, and after N batches; return the model's weights.

    Epochs count from 1, and `step` is 0 where an epoch has ended.
    """
    torch.manual_seed(0)
    made = build(Parameters(), Context(1, {}, {}))
    model, examples = made.model, made.train
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total = epochs * math.ceil(BATCHES / accumulation)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - 0.5 * step / total)
    saved = {}

    def save(name, epoch, step):
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True)
        state = {
            "optimizer_state_dict": optimizer.state_dict(),
            "best_val_f1": 0.5,
            "best_val_acc": 0.75,
            "epoch": epoch,
            "step": step,
            "total_batches": BATCHES,
            "scheduler_state_dict": schedule.state_dict(),
        }
        torch.save(state, directory / "training_state.pth")
        tensors = {key: each.clone() for key, each in model.state_dict().items()}
        if weights == "pytorch_model.bin":
            torch.save(tensors, directory / weights)
        else:
            save_file(tensors, directory / weights, {"format": "pt"})
        (directory / "config.json").write_text(json.dumps({"num_labels": 3}))
        saved[name] = tensors

    for epoch in range(1, epochs + 1):
        for batch in range(BATCHES):
            chosen = slice(batch * BATCH, batch * BATCH + BATCH)
            loss = nn.functional.cross_entropy(
                model(examples.inputs[0][chosen]), examples.targets[chosen]
            )
            (loss / accumulation).backward()
            if (batch + 1) % accumulation == 0 or batch + 1 == BATCHES:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            if (batch + 1) % every == 0:
                save(f"checkpoint_epoch{epoch}_step{batch + 1}", epoch, batch + 1)
                save("recovery_checkpoint", epoch, batch + 1)
        save("last_checkpoint", epoch, 0)
    return saved
