"""torchmetrics that are kept continue in the middle of a validation, with what they have seen."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.engines.contract import bytes_of
from trainops.kinds.loop.metric_states import MetricStates
from trainops.runtime.errors import IncompatibleState

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
classification = pytest.importorskip("torchmetrics.classification")
SCORES = torch.tensor([0.9, 0.2, 0.7, 0.4, 0.6, 0.1, 0.3, 0.8, 0.55, 0.45, 0.35])
LABELS = torch.tensor([1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0])


class Measured(nn.Module):
    """A module with a metric beside its weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.accuracy = classification.BinaryAccuracy()


def train(run, parameters):
    model = run.keep("model", Measured())
    area = run.keep("area", classification.BinaryAUROC())  # keeps lists of what it has seen
    several = run.keep(
        "several",
        torchmetrics.MetricCollection(
            [classification.BinaryPrecision(), classification.BinaryRecall()]
        ),
    )
    data = TensorDataset(SCORES, LABELS)
    batches = run.loader("validation", data, batch_size=3, shuffle=False)
    for _ in run.epochs(2):
        for scores, labels in batches:
            for each in (model.accuracy, area, several):
                each.update(scores, labels)
            yield {}
        yield {
            "val_loss": 1.0,
            "val_accuracy": model.accuracy.compute(),
            "val_area": area.compute(),
            **{f"val_{name}": each for name, each in several.compute().items()},
        }
        for each in (model.accuracy, area, several):
            each.reset()


def expected():
    """The measures by their definitions."""
    said = SCORES > 0.5
    right = (said == LABELS.bool()).double().mean().item()
    hits = (said & LABELS.bool()).sum().item()
    ones, zeros = SCORES[LABELS == 1], SCORES[LABELS == 0]
    above = (ones[:, None] > zeros[None, :]).double().mean().item()
    return {
        "val_accuracy": right, "val_area": above,
        "val_BinaryPrecision": hits / said.sum().item(),
        "val_BinaryRecall": hits / LABELS.sum().item(),
    }  # fmt: skip


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 7])
def test_a_validation_continues_with_what_its_metrics_have_seen(follow, at):
    whole = follow(train)
    first = follow(train, at=at)
    second = follow(train, resume=first.checkpoints, number=2)
    assert second.receipts[0].exact
    assert bytes_of(second.checkpoints[-1]) == bytes_of(whole.checkpoints[-1])
    assert second.progress[-1].metrics == whole.progress[-1].metrics
    found = second.progress[-1].metrics
    assert {name: found[name] for name in expected()} == pytest.approx(expected(), abs=1e-6)


def test_a_kept_metric_is_no_model(follow):
    last = follow(train).checkpoints[-1]
    names = {each.name for each in last.artifacts}
    assert {"area.pt", "several.pt", "model.pt", "model_metrics.pt"} <= names
    best = torch.load(last.path / "best_model.pt", weights_only=True)  # noqa: TID251
    assert best.keys() == {"model"}


def test_metrics_that_share_a_state_are_saved_with_all_updates():
    several = torchmetrics.MetricCollection(
        [classification.BinaryPrecision(), classification.BinaryRecall()]
    )
    for _ in range(3):
        several.update(SCORES, LABELS)
    saved = MetricStates(several).state_dict()
    assert {name: each["count"] for name, each in saved.items()} == {
        "BinaryPrecision": 3, "BinaryRecall": 3,
    }  # fmt: skip


def seen(metric, first, last):
    """Return the states of a metric that has seen these examples."""
    metric.reset()
    if last > first:
        is_number = isinstance(metric, torchmetrics.PearsonCorrCoef)
        labels = LABELS.float() if is_number else LABELS
        metric.update(SCORES[first:last], labels[first:last])
    return MetricStates(metric).state_dict()


@pytest.mark.parametrize("kind", ["BinaryAUROC", "BinaryAccuracy"])
def test_states_of_several_ranks_are_merged(kind):
    metric = getattr(classification, kind)()
    parts = [seen(metric, *each) for each in ((0, 0), (0, 3), (3, 8), (8, 11))]
    states = MetricStates(metric)
    for given, number in ((parts, 11), (parts[1:2], 3), ([], 0)):
        states.load_state_dict(states.merged(given))
        found = metric.compute() if number else None
        expected = seen(metric, 0, number)
        assert metric.update_called is bool(number)
        states.load_state_dict(expected)
        assert found is None or torch.equal(found, metric.compute())


def test_states_that_cannot_be_merged_are_refused():
    metric = torchmetrics.PearsonCorrCoef()
    parts = [seen(metric, 0, 5), seen(metric, 5, 11)]
    assert MetricStates(metric).merged(parts[:1]) is not None
    with pytest.raises(
        IncompatibleState, match=r"PearsonCorrCoef .* is not merged .none.; allowed"
    ):
        MetricStates(metric).merged(parts)


def test_a_value_that_was_asked_for_is_computed_again():
    metric = classification.BinaryAccuracy()
    metric.update(SCORES, LABELS)
    before = metric.compute()
    metric.tp.zero_()
    assert metric.compute() is before
    MetricStates(metric).forget_values()
    assert metric.compute() != before
