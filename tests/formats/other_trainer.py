"""A training loop with the other tool's habits, which saves files as that tool does.

Its schedules move at each step, and once more at the end of each epoch. A file that is saved at the
end of an epoch still names that epoch, one that is saved after the last epoch names the next.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from tests.formats.recipe import Parameters
from tests.formats.recipe_model import build
from trainops.kinds.training.files.file import ResumeState, TrainingFile
from trainops.kinds.training.files.loaders import IteratorState, LoaderManagerState, LoaderState
from trainops.learning.ingredients import Context

BATCHES, BATCH = 38, 8

SCHEDULES = {
    "step": lambda optimizer, steps: torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5),
    "cosine": lambda optimizer, steps: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
    "onecycle": lambda optimizer, steps: torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, total_steps=steps + 8
    ),
}


@dataclass
class Trainer:
    """Trains the network of the recipe `foreign`; `rates` are those of each batch."""

    schedule: str
    epochs: int = 3
    accumulation: int = 1
    files: dict[str, TrainingFile] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)

    def run(self, every_steps: int) -> "Trainer":
        torch.manual_seed(0)
        made = build(Parameters(), Context(1, {}, {}))
        self.model, examples = made.model, made.train
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.steps = 0
        total = self.epochs * -(-BATCHES // self.accumulation)
        self.scheduler = SCHEDULES[self.schedule](self.optimizer, total)
        for epoch in range(self.epochs):
            for batch in range(BATCHES):
                self.rates.append(self.optimizer.param_groups[0]["lr"])
                chosen = slice(batch * BATCH, batch * BATCH + BATCH)
                loss = nn.functional.cross_entropy(
                    self.model(examples.inputs[0][chosen]), examples.targets[chosen]
                )
                (loss / self.accumulation).backward()
                if (batch + 1) % self.accumulation and batch + 1 < BATCHES:
                    continue
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.steps += 1
                self.scheduler.step()
                if self.steps % every_steps == 0:
                    self._save(f"step {self.steps}", epoch, batch + 1)
            self.scheduler.step()
            self._save(f"end of epoch {epoch}", epoch, BATCHES)
        self._save("end of training", self.epochs, BATCHES)
        return self

    def _save(self, name: str, epoch: int, batches: int) -> None:
        loader = LoaderState(number=0, name="main", batch_idx=batches)
        loaders = LoaderManagerState(train=IteratorState(batches, (loader,), batches, (0,)))
        self.files[name] = TrainingFile(
            save_timestamp=1.0,
            epoch=epoch,
            global_step=self.steps,
            model={key: each.clone() for key, each in self.model.state_dict().items()},
            optimizers=(copied(self.optimizer.state_dict()),),
            schedulers=(dict(self.scheduler.state_dict()),),
            resume_state=ResumeState("SCHEDULER_BATCH_STEP", epoch, self.steps, loaders=loaders),
        )


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, list) else value
