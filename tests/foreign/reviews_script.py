"""Fine-tunes a model that lies in the directory `tiny`, as scripts of transformers are written."""

from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)


class Reviews(torch.utils.data.Dataset):
    def __init__(self, encodings, labels):
        self.encodings, self.labels = encodings, labels

    def __getitem__(self, index):
        item = {name: torch.tensor(values[index]) for name, values in self.encodings.items()}
        return item | {"labels": torch.tensor(self.labels[index])}

    def __len__(self):
        return len(self.labels)


def accuracy(prediction):
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


texts, labels = [], []
for label, folder in enumerate(["neg", "pos"]):
    for file in sorted(Path("reviews", folder).glob("*.txt")):
        texts.append(file.read_text())
        labels.append(label)
texts, held_out, labels, held_out_labels = train_test_split(texts, labels, test_size=0.2)

tokenizer = AutoTokenizer.from_pretrained("tiny")
trainer = Trainer(
    model=AutoModelForSequenceClassification.from_pretrained("tiny", num_labels=2),
    args=TrainingArguments(
        output_dir="results", num_train_epochs=6, per_device_train_batch_size=4,
        per_device_eval_batch_size=8, gradient_accumulation_steps=2, warmup_steps=10,
        weight_decay=0.01, learning_rate=1e-3, eval_strategy="steps", eval_steps=7,
        save_strategy="no",
    ),
    train_dataset=Reviews(tokenizer(texts, truncation=True, padding=True), labels),
    eval_dataset=Reviews(tokenizer(held_out, truncation=True, padding=True), held_out_labels),
    compute_metrics=accuracy,
)  # fmt: skip
trainer.train()
