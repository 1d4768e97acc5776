"""A Trainer as people write it, of a tiny model that is made here; nothing is downloaded."""

import tempfile

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tests.loop.hugging_callbacks import MADE

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


class Damaged(Lines):
    """The last line cannot be decoded."""

    def __getitem__(self, index):
        if index == len(self) - 1:
            raise ValueError("no text")
        return super().__getitem__(index)


class Flow(IterableDataset):
    """The same lines in their order, which nothing can be skipped of."""

    def __init__(self, first, last):
        self.lines = Lines(first, last)

    def __iter__(self):
        for index in range(len(self.lines)):
            yield self.lines[index]


class StatefulFlow(Flow):
    """Has a position, and begins each pass one line further on."""

    def __init__(self, first, last):
        super().__init__(first, last)
        self.position, self.passes = 0, 0

    def state_dict(self):
        return {"position": self.position, "passes": self.passes}

    def load_state_dict(self, state):
        self.position, self.passes = state["position"], state["passes"]

    def __iter__(self):
        while self.position < len(self.lines):
            self.position += 1
            yield self.lines[(self.position + self.passes) % len(self.lines)]
        self.position, self.passes = 0, self.passes + 1


class SizedFlow(Flow):
    def __len__(self):
        return len(self.lines)


FLOWS = {"": Lines, "plain": Flow, "stateful": StatefulFlow, "sized": SizedFlow}


def measure(prediction):
    guessed = prediction.predictions.argmax(-1)[:, :-1]
    found = {"accuracy": (guessed == prediction.label_ids[:, 1:]).mean()}
    for name in ("inputs", "losses"):
        if (included := getattr(prediction, name)) is not None:
            found[name] = included[1:].sum() / included.sum()
    return found


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
    kind = FLOWS[parameters.iterable]
    held_out, training = kind(30, 37), kind(0, 22)
    if parameters.damaged:
        kind, num_lost = (Damaged, 0) if parameters.skip_undecodable else (Lines, 1)
        held_out, training = kind(30, 37 - num_lost), kind(0, 22 - num_lost)
    if parameters.several:
        held_out = {"Near by": held_out, "far": Lines(60, 65)}
    trainer = Trainer(
        model=model, args=args, train_dataset=training, eval_dataset=held_out,
        compute_metrics=measure if parameters.metrics else None,
        callbacks=[MADE[name]() for name in parameters.callbacks],
    )  # fmt: skip
    trainer.model_accepts_loss_kwargs &= parameters.counts_items
    return trainer


def train(run, parameters):
    from trainops.kinds.loop.transformers import transformers_loop

    yield from transformers_loop(make)(run, parameters)
