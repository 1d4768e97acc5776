"""The module of the characters recipe: a transformer that predicts the next byte of a text."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import Dataset, Subset

from trainops.datasets.directory import Directory
from trainops.kinds.loop.module import TrainingModule, make_optimizer, module_loop
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.recipes.characters import Parameters
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import InputError

NUM_BYTES, NUM_HEADS = 256, 4


class Pieces(Dataset[Tensor]):
    """Pieces of `length` bytes and the byte after them, one after the other; int64 (length + 1)."""

    def __init__(self, text: Tensor, length: int) -> None:
        self.text, self.length = text, length

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.length

    def __getitem__(self, index: int) -> Tensor:
        start = index * self.length
        return self.text[start : start + self.length + 1].long()


class Characters(TrainingModule):
    def __init__(self, run: Run, parameters: Parameters) -> None:
        super().__init__()
        self.settings, width = parameters, parameters.width
        self.letters = nn.Embedding(NUM_BYTES, width)
        self.places = nn.Embedding(parameters.length, width)
        layer = nn.TransformerEncoderLayer(
            width, NUM_HEADS, 4 * width, parameters.dropout, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, parameters.layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, NUM_BYTES)

    def loaders(self, run: Run) -> dict[str, Passes]:
        pieces = Pieces(text_of(run, self.settings), self.settings.length)
        num_training = len(pieces) - max(1, len(pieces) // 10)
        if num_training < 1:
            problem = f"the text has {len(pieces.text)} bytes"
            allowed = f"at least {2 * self.settings.length + 1}"
            field = "directory" if self.settings.dataset is None else "dataset"
            raise InputError({f"parameters.{field}": f"{problem}; allowed: {allowed}"})
        size = self.settings.batch_size
        training = Subset(pieces, range(num_training))
        held_out = Subset(pieces, range(num_training, len(pieces)))
        return {
            "train": run.loader("train", training, batch_size=size, is_random=False),
            "validation": run.loader(
                "validation", held_out, batch_size=size, shuffle=False, is_random=False
            ),
        }

    def optimizers(self) -> Optimizer:
        return make_optimizer(self.settings.optimizer, self.parameters())

    def forward(self, text: Tensor) -> Tensor:
        """Return scores (batch, length, 256) of the byte after each of `text` (batch, length)."""
        length = text.shape[1]
        places = torch.arange(length, device=text.device)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        hidden = self.letters(text) + self.places(places)
        scores: Tensor = self.scores(self.layers(hidden, mask=mask, is_causal=True))
        return scores

    def training_step(self, batch: Tensor) -> Tensor:
        return functional.cross_entropy(self(batch[:, :-1]).transpose(1, 2), batch[:, 1:])

    def validation_step(self, batch: Tensor) -> Tensor:
        return self.training_step(batch)


def text_of(run: Run, parameters: Parameters) -> Tensor:
    """Return the bytes of the text; uint8, one per byte."""
    if parameters.dataset is not None:
        return _text_of_rows(run.table(parameters.dataset), parameters.column)
    if parameters.directory is None:
        raise InputError({"parameters.directory": "got none; allowed: a directory or a dataset"})
    return _text_of_files(run.directory(parameters.directory))


def _text_of_rows(table: Path, column: str) -> Tensor:
    """Return the rows of a column as lines; missing ones are empty."""
    rows = pq.read_table(table, columns=[column]).column(column)
    lines = b"".join(f"{line or ''}\n".encode() for line in rows.to_pylist())
    return torch.from_numpy(np.frombuffer(lines, dtype=np.uint8).copy())


def _text_of_files(directory: Directory) -> Tensor:
    """Return the bytes of all files of data, one after the other."""
    texts = []
    for index in directory.data_files():
        with directory.reading(index) as path:
            texts.append(np.fromfile(path, dtype=np.uint8))
    return torch.from_numpy(np.concatenate(texts))


train = module_loop(Characters)
