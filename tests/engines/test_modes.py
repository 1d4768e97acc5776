"""Modes of the parts of a model of tensor ingredients: as their recipe leaves them."""

import copy
from dataclasses import replace

import pytest
import torch

from tests.engines import toy_model
from tests.engines.contract import Case, require_stop_changes_nothing, undisturbed
from trainops.kind import KINDS
from trainops.runtime.errors import IncompatibleState

CONFIG = {"recipe": "toy", "epochs": 3, "batch_size": 10, "threads": 1, "device": "cpu"}
TOY = Case("training", "toy", CONFIG, ())
NUM_STEPS = 12


class Switching(toy_model.Noise):
    """Sets a batch normalisation to eval mode at the sixth batch."""

    def forward(self, values):
        if self.training and self.batches == 5:
            self.norm[0].eval()
        return super().forward(values)


@pytest.fixture
def with_model(monkeypatch):
    original = toy_model.build

    def use(change):
        def build(parameters, context):
            made = original(parameters, context)
            return replace(made, model=change(made.model, parameters))

        monkeypatch.setattr(toy_model, "build", build)

    return use


def still(model, parameters):
    model[1].eval()
    return model


def switching(model, parameters):
    model[2] = Switching(parameters)
    model[2].norm = [model[1]]  # no part of it
    return model


@pytest.mark.parametrize(("change", "num_batches"), [(still, 0), (switching, 6)])
def test_modes_outlast_validations_and_resumes(with_model, tmp_path, change, num_batches):
    with_model(change)
    expected = undisturbed(TOY, tmp_path)
    assert expected.progress[-1].step == NUM_STEPS
    path = expected.checkpoints[-1].path / "model.pt"
    weights = torch.load(path, weights_only=True)  # noqa: TID251
    assert weights["1.num_batches_tracked"] == num_batches
    require_stop_changes_nothing(TOY, tmp_path / "stops", expected, [2, 7, 10])


@pytest.mark.parametrize("given", [None, {"model": True}, {"model": {"0": 1}}])
def test_modes_that_cannot_be_read_are_refused_before_the_weights_are_loaded(given):
    kind = KINDS["training"]
    config = kind.parse_config(CONFIG)
    job, other = (kind.make_job(config, {}, None) for _ in range(2))
    job.advance()
    before = copy.deepcopy(other.state_dict()["model"])
    state = copy.deepcopy(job.state_dict())
    state["state"]["modes"] = given
    with pytest.raises(IncompatibleState, match="the modes of the state cannot be read"):
        other.load_state_dict(state)
    after = other.state_dict()["model"]
    assert all(torch.equal(after[name], each) for name, each in before.items())


@pytest.mark.parametrize("change", [None, still])
def test_a_state_of_a_version_that_forgot_modes_is_not_called_exact(with_model, change):
    if change:
        with_model(change)
    kind = KINDS["training"]
    config = kind.parse_config(CONFIG)
    job, other, newer = (kind.make_job(config, {}, None) for _ in range(3))
    job.advance()
    state = copy.deepcopy(job.state_dict())
    newer.load_state_dict(copy.deepcopy(state))
    assert not newer.inexact
    del state["state"]["num_examples"]
    other.load_state_dict(state)
    assert list(other.inexact) == (["modes"] if change else [])
