import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from tests.recipes.scripted import ScriptedParameters
from trainops.learning.ingredients import Context, Examples, Ingredients

EXAMPLES = 64


def build(parameters: ScriptedParameters, context: Context) -> Ingredients:
    time.sleep(parameters.build_seconds)
    inputs = torch.randn(EXAMPLES, 4)
    examples = Examples((inputs,), inputs.sum(dim=1, keepdim=True))
    return Ingredients(
        model=Scripted(parameters),
        train=examples,
        validation=examples,
        loss=nn.functional.mse_loss,
    )


class Scripted(nn.Module):
    def __init__(self, parameters: ScriptedParameters) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.parameters_given = parameters
        self.num_steps = self.num_validated = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layers(inputs)
        if not self.training:
            self.num_validated += 1
            time.sleep(self.parameters_given.validation_seconds)
            if self.num_validated == self.parameters_given.validation_at:
                return misbehave(self.parameters_given.what, outputs)
            return outputs
        self.num_steps += 1
        if self.parameters_given.what == "counter":  # which no checkpoint has
            outputs = outputs * (1 + 0.01 * self.num_steps)
        if self.parameters_given.what == "grow":
            self.register_buffer("grown", torch.zeros(self.num_steps))
        if self.parameters_given.trace:
            with Path(self.parameters_given.trace).open("a") as trace:
                trace.write(f"{os.getpid()}\n")
        time.sleep(self.parameters_given.step_seconds)
        if self.num_steps == self.parameters_given.at:
            return misbehave(self.parameters_given.what, outputs)
        return outputs


def misbehave(what: str, outputs: torch.Tensor) -> torch.Tensor:  # noqa: C901 - a list
    match what:
        case "raise":
            raise ValueError("the data of this step is broken")
        case "odd_words":
            raise FileNotFoundError("a file named \udcff and \0")
        case "nan":
            return outputs * float("nan")
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "memory":
            raise MemoryError
        case "hang":
            time.sleep(3600)
        case "hold_gil":
            ctypes.PyDLL(None).sleep(
                3600
            )  # as a stuck extension would, with the interpreter's lock
        case "ignore_and_fork":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.Popen(["sleep", "3600"])
            time.sleep(3600)
        case "print":
            print("a line from the job", flush=True)  # noqa: T201
            sys.stderr.write("a warning from the job\n")
    return outputs
