"""A script that makes a Trainer and calls its train(), run as it is up to that call."""

import os
import runpy
from collections.abc import Iterator
from typing import Any
from unittest import mock


def make(run, parameters):
    from transformers import Trainer

    os.chdir(parameters.directory)
    with mock.patch.object(Trainer, "train"):
        return runpy.run_path(parameters.script, run_name="__main__")["trainer"]


def train(run, parameters) -> Iterator[Any]:
    from trainops.kinds.loop.transformers import transformers_loop

    yield from transformers_loop(make)(run, parameters)
