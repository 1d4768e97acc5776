"""A loop over texts and their labels, with a model and a tokenizer from a directory.

Only weights in safetensors are loaded, and no code of the directory: nothing is unpickled.
"""

import torch
from torch.utils.data import Subset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from trainops.learning.data import split
from trainops.learning.readers import JsonLines

LOCAL = {"local_files_only": True, "trust_remote_code": False}


def train(run, parameters):
    path = run.directory(parameters.model).unchanged()
    tokenizer = AutoTokenizer.from_pretrained(path, **LOCAL)

    def collate(rows):
        batch = tokenizer(
            [each["text"] for each in rows], padding=True, truncation=True,
            max_length=parameters.max_tokens, return_tensors="pt",
        )  # fmt: skip
        return {**batch, "labels": torch.tensor([each["label"] for each in rows])}

    texts = JsonLines(run.directory(parameters.texts))
    train_indices, held_out = split(len(texts), parameters.validation_fraction, run.seed)
    options = {"batch_size": parameters.batch_size, "collate_fn": collate}
    batches = run.loader("train", Subset(texts, train_indices.tolist()), **options)
    validation = run.loader("val", Subset(texts, held_out.tolist()), shuffle=False, **options)

    model = AutoModelForSequenceClassification.from_pretrained(
        path, num_labels=parameters.classes, use_safetensors=True, **LOCAL
    )
    run.keep("model", model.to(run.device).train())
    net = run.wrap(model, find_unused_parameters=True)  # those that are frozen have no gradient
    optimizer = run.keep(
        "optimizer", torch.optim.AdamW(model.parameters(), parameters.learning_rate)
    )
    sums = run.keep("sums", {"loss": 0.0, "correct": 0.0, "number": 0})

    for epoch in run.epochs(parameters.epochs):
        model.base_model.requires_grad_(epoch >= parameters.frozen_epochs)
        for batch in batches:
            loss = net(**on_device(batch, run)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield {"train_loss": loss}
        yield from evaluate(run, model, validation, sums)


def evaluate(run, model, validation, sums):
    """Yield the means over the texts that are held out; may be stopped between batches."""
    sums |= {"loss": 0.0, "correct": 0.0, "number": 0}
    for batch in validation:
        labels = batch["labels"].to(run.device)
        with torch.no_grad():
            found = model.eval()(**on_device(batch, run))
        model.train()
        totals = run.totals(
            validation,
            loss=found.loss * len(labels),
            correct=(found.logits.argmax(1) == labels).sum(),
            number=len(labels),
        )
        sums |= {name: sums[name] + each for name, each in totals.items()}
        yield {}
    number = sums["number"]
    yield {"val_loss": sums["loss"] / number, "val_accuracy": sums["correct"] / number}


def on_device(batch, run):
    return {name: each.to(run.device) for name, each in batch.items()}
