import os
from dataclasses import dataclass, field

import pytest

from trainops.kind import KINDS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType


@pytest.fixture(autouse=True, scope="session")
def _engine_settings():
    reproducibility.set_determinism(deterministic=True, threads=1)


@pytest.fixture
def foreign(monkeypatch):
    """Register the recipe whose network the other tool's training file is of."""
    known = os.environ["TRAINOPS_RECIPES"]
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{known},tests.formats.recipe:RECIPE")


def parse(**config):
    """Return a config that fits the other tool's file, but for what is given."""
    fitting = {
        "recipe": "foreign", "batch_size": 8, "epochs": 2, "optimizer": "adamw",
        "weight_decay": 0.01, "scheduler": "step", "scheduler_step_epochs": 1,
    }  # fmt: skip
    return KINDS["training"].parse_config({**fitting, **config})


@dataclass
class Run:
    """A training run in this process."""

    config: object
    job: object = field(init=False)
    curve: dict = field(default_factory=dict, init=False)

    def __post_init__(self):
        self.job = KINDS["training"].make_job(self.config)

    def until(self, step):
        while self.job.step < min(step, self.job.total_steps):
            if metrics := self.job.advance():
                self.curve[self.job.step] = dict(metrics)
        return self

    def to_the_end(self):
        return self.until(self.job.total_steps)

    def parts(self):
        return self.job.state_dict() | {"random": reproducibility.state_dict()}

    def load(self, parts):
        parts = dict(parts)
        streams = parts.pop("random")
        self.job.load_state_dict(parts)
        reproducibility.load_state_dict(streams)
        return self

    def save(self, root):
        config = self.config.model_dump(mode="json")
        identity = {"operation_id": "op_1", "kind": "training", "config": config}
        store = CheckpointStore(root, identity=identity)
        return store.write(CheckpointType.PERIODIC, step=self.job.step, state=self.parts()).path
