"""The language model of Lightning's own demos, unchanged: it reads data/wikitext-2.txt."""

import os
from collections.abc import Iterator
from typing import Any


def make(run, parameters):
    from lightning.pytorch.demos import LightningTransformer
    from lightning.pytorch.demos.transformer import WikiText2

    os.chdir(parameters.directory)
    return LightningTransformer(WikiText2(download=False).vocab_size)


def train(run, parameters) -> Iterator[Any]:
    from trainops.kinds.loop.lightning import lightning_loop

    yield from lightning_loop(make)(run, parameters)
