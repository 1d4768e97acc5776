import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from tests.memory import peak_bytes
from tests.recipes.scripted import ScriptedParameters
from trainops.learning.ingredients import Context, Examples, Ingredients
from trainops.media import Audio, ConfusionMatrix, Histogram, Image, Table, log

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
        if self.parameters_given.media:
            log_all(self.training, inputs, outputs)
        if not self.training:
            self.num_validated += 1
            time.sleep(self.parameters_given.validation_seconds)
            if self.num_validated == self.parameters_given.validation_at:
                return self.misbehave(outputs)
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
            return self.misbehave(outputs)
        return outputs

    def misbehave(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.parameters_given.once:
            try:
                Path(self.parameters_given.once).touch(exist_ok=False)
            except FileExistsError:
                return outputs
        return misbehave(self.parameters_given.what, outputs)


def log_all(is_training: bool, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
    log("mean", outputs.mean())
    if is_training:
        log("train_mean", outputs.mean())
        log("inputs", [Image(each[None], low=-10, high=10, caption="x") for each in inputs[:2]])
        log("outputs", Histogram(outputs, bins=4))
    else:
        log("validated_mean", outputs.mean())
        rows = [[float(each), bool(each > 0)] for each in outputs[:, 0]]
        log("validated", Table(["output", "is positive"], rows))
        log("signs", ConfusionMatrix(["-", "+"], truths=inputs.sum(1) > 0, predictions=outputs > 0))
        log("sound", Audio(outputs[:, 0].tanh(), 1000))


def misbehave(what: str, outputs: torch.Tensor) -> torch.Tensor:  # noqa: C901, PLR0912 - a list
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
        case "leave":
            sys.exit(4)
        case "memory":
            raise MemoryError
        case "fill" | "fill_and_kill":
            fill(is_killed=what == "fill_and_kill")
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
        case "flood":
            flood()
    return outputs


def flood() -> None:
    """Print 100 MB in lines of 1000 characters."""
    lines = ("x" * 999 + "\n") * 1000
    for _ in range(100):
        sys.stdout.write(lines)


def fill(*, is_killed: bool) -> None:
    """Use 400 MB for long enough to be noticed."""
    filled = torch.ones(100_000_000)
    print("peak bytes:", peak_bytes(), flush=True)  # noqa: T201
    time.sleep(0.6)
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    raise MemoryError(f"{len(filled)} numbers were too many")
