"""A Trainer as people write it, of a tiny model that is made here; nothing is downloaded."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

TEXT = "the quick brown fox jumps over the lazy dog " * 3
LETTERS = sorted(set(TEXT))


class Lines(Dataset):
    def __init__(self, first, last):
        ids = [LETTERS.index(each) for each in TEXT]
        self.lines = [torch.tensor(ids[at : at + 8]) for at in range(first, last)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return {"input_ids": self.lines[index], "labels": self.lines[index], "unused": index}


def measure(prediction):
    guessed = prediction.predictions.argmax(-1)[:, :-1]
    return {"accuracy": (guessed == prediction.label_ids[:, 1:]).mean()}


def make(run, parameters):
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(LETTERS), n_positions=8, n_embd=8, n_layer=1, n_head=2,
            resid_pdrop=parameters.dropout, embd_pdrop=parameters.dropout,
            attn_pdrop=parameters.dropout,
        )
    )  # fmt: skip
    args = TrainingArguments(
        **{
            "output_dir": tempfile.gettempdir(), "report_to": "none", "seed": 7,
            "use_cpu": run is None or run.device.type == "cpu",
            "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4,
            "num_train_epochs": 2, "learning_rate": 0.01, "eval_strategy": "epoch",
            "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no",
            "max_steps": parameters.max_steps,
            "dataloader_num_workers": parameters.num_workers, "dataloader_pin_memory": False,
            **parameters.arguments,
        }
    )  # fmt: skip
    return Trainer(
        model=model, args=args, train_dataset=Lines(0, 22), eval_dataset=Lines(30, 37),
        compute_metrics=measure if parameters.metrics else None,
    )  # fmt: skip


def train(run, parameters):
    from trainops.kinds.loop.transformers import transformers_loop

    yield from transformers_loop(make)(run, parameters)
