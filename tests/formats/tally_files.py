"""The half that loads torch: the job, the other tool's file, and what is checked of our own."""

import re
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor

from trainops.files.description import Exported, FileFormat, Imported, StateChecks, Weights
from trainops.files.fields import Fields
from trainops.files.known import expected
from trainops.files.reading import read
from trainops.kind import KINDS
from trainops.runtime import reproducibility
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.receipt import Receipt, ReceiptItem


class TallyJob:
    unit: ClassVar[str] = "count"

    def __init__(self, config, inputs):
        self.config, self.total_steps = config, config.steps
        self.sums = torch.zeros(0)

    @property
    def step(self):
        return len(self.sums)

    @property
    def place(self):
        return f"count {self.step} of {self.total_steps}"

    def advance(self):
        last = self.sums[-1:] if self.step else torch.zeros(1)
        self.sums = torch.cat([self.sums, last + self.config.by])
        return {}

    def state_dict(self):
        return {"state": {"counted": self.step}, "sums": self.sums}

    def load_state_dict(self, state):
        if state.keys() != {"state", "sums"}:
            raise IncompatibleState(f"got {sorted(state)}; allowed: state, sums")
        self.sums = state["sums"]

    def result(self):
        return {"sum": float(self.sums[-1])}


@dataclass(frozen=True)
class TallyFile:
    sums: Tensor
    by: float


def parse(tree):
    fields = Fields(tree)
    file = TallyFile(fields.tensor("tally", "float32", 1), fields.number("by"))
    fields.finish()
    return file


def disagreements(file):
    wrong = len(file.sums) and float(file.sums[0]) != file.by
    return {"tally": f"begins with {float(file.sums[0])}, by is {file.by}"} if wrong else {}


def take_in(path, config, inputs, secret):
    file = expected(read(path), TallyFile)
    job = KINDS["tally"].make_job(config, inputs)
    job.sums = file.sums
    parts = job.state_dict() | {"random": reproducibility.state_dict()}
    return Imported(job.step, parts, Receipt(job.step, "tally", (ReceiptItem("sums"),)))


def write(state, config, wanted):
    file = TallyFile(state["sums"], config.by)
    return Exported(file, f"tally_{len(file.sums)}.pt")


def contradictions(step, state):
    found = {"state.counted": state["state"]["counted"], "sums": len(state["sums"])}
    return {place: f"is {each}; expected {step}" for place, each in found.items() if each != step}


def sums(job):
    return pd.DataFrame({"sum": job.sums.numpy()})


TALLY = FileFormat(
    file=TallyFile,
    title="tallies",
    hint="a tally has tally and by",
    marks=(frozenset({"tally", "by"}),),
    has_digest=True,
    named=re.compile(r"tally_(\d+)\.pt"),
    named_like="tally_N.pt",
    check_version=lambda tree: "a tally",
    parse=parse,
    to_tree=lambda file: {"tally": file.sums, "by": file.by},
    describe=lambda file: f"{len(file.sums)} sums",
    disagreements=disagreements,
    compared="compared: the first sum",
    weights=lambda file: Weights("sums", {"sums": file.sums}),
)
CHECKS = StateChecks(
    mark="counted", title="tallies", disagreements=contradictions, compared="numbers of sums"
)
