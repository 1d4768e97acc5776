"""Modes and frozen parameters of a Hugging Face model after a resume."""

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="the extra transformers is not installed")

DATA = [{"x": torch.tensor([i / 8, 1.0]), "labels": torch.tensor([float(i)])} for i in range(8)]
NUM_STEPS = 6  # with 3 epochs of 2 batches


class Net(nn.Module):
    """A body in eval mode as it is made, and a head that is frozen at first."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)).eval()
        self.head = nn.Linear(4, 1).requires_grad_(False)

    def forward(self, x, labels):
        found = self.head(self.body(x))
        return {"loss": (found - labels).square().mean(), "logits": found}


class Still(Net):
    """Keeps its batch normalisation in eval mode."""

    def train(self, mode=True):
        super().train(mode)
        self.body[1].eval()
        return self


class Unfreezing(transformers.TrainerCallback):
    def on_epoch_begin(self, args, state, control, model, **_):
        if round(state.epoch or 0) == 1:
            model.head.requires_grad_(True)


@pytest.mark.slow
@pytest.mark.parametrize(("made", "num_batches"), [(Net, NUM_STEPS), (Still, 0)])
def test_what_is_evaluated_and_frozen_is_so_after_a_resume(
    require_exact, tmp_path, made, num_batches
):
    from trainops.kinds.loop.transformers import transformers_loop

    def make(run, parameters):
        args = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=3, per_device_train_batch_size=4,
            eval_strategy="epoch", save_strategy="no", report_to=[], use_cpu=True,
        )  # fmt: skip
        data = {"train_dataset": DATA, "eval_dataset": DATA}
        return transformers.Trainer(made(), args, callbacks=[Unfreezing()], **data)

    def train(run, parameters):
        yield from transformers_loop(make)(run, parameters)

    path = require_exact(train).checkpoints[-1].path / "model.pt"
    weights = torch.load(path, weights_only=True)  # noqa: TID251
    assert weights["body.1.num_batches_tracked"] == num_batches
