"""Compiled Hugging Face models with batches of many shapes."""

import pytest
import torch
from torch import nn

from trainops.runtime.errors import InputError

transformers = pytest.importorskip("transformers", reason="the extra transformers is not installed")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": (self.layer(x[..., None]) - 1).square().mean(), "logits": labels}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch, in torch
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of torch's compiler
def test_more_shapes_than_torch_compiles_are_refused(follow, tmp_path):
    from trainops.kinds.loop.transformers import transformers_loop

    def make(run, parameters):
        args = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=1, per_device_train_batch_size=1,
            save_strategy="no", report_to=[], use_cpu=True, torch_compile_backend="eager",
        )  # fmt: skip
        data = [{"x": torch.ones(n), "labels": torch.ones(1)} for n in range(2, 14)]
        return transformers.Trainer(Net(), args, train_dataset=data)

    def train(run, parameters):
        yield from transformers_loop(make)(run, parameters)

    with pytest.raises(InputError, match="at most 8 shapes"):
        follow(train)
