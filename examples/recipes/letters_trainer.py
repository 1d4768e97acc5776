"""A Hugging Face Trainer as it is, and the line that trains by it here. Nothing is downloaded."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from trainops.kinds.loop.transformers import transformers_loop

LENGTH = 12


class Alphabet(Dataset):
    """Pieces of the alphabet, as the numbers of their letters."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        letters = torch.arange(index, index + LENGTH) % 26
        return {"input_ids": letters, "labels": letters}


def make(run, parameters):
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=26, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),  # nothing is written to it
        num_train_epochs=parameters.epochs,
        learning_rate=parameters.learning_rate,
        per_device_train_batch_size=16,
        eval_strategy="epoch",
        report_to="none",
        seed=run.seed % 2**32,
        use_cpu=run.device.type == "cpu",
        dataloader_pin_memory=False,
    )
    return Trainer(
        model=model, args=arguments, train_dataset=Alphabet(208), eval_dataset=Alphabet(26)
    )


train = transformers_loop(make)
