"""Metrics of torchmetrics in modules and ingredients: of all examples, also after stops."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from tests.engines.contract import Case, attempt
from tests.engines.toy import RECIPE as TOY
from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.settings import IngredientsParameters, ModuleParameters
from trainops.learning.ingredients import DatasetIngredients, Examples, Ingredients
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Failed

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
classification = pytest.importorskip("torchmetrics.classification")
NUMBERS = torch.Generator().manual_seed(3)
INPUTS = torch.randn(20, 4, generator=NUMBERS)
LABELS = (INPUTS.sum(1) + torch.randn(20, generator=NUMBERS) > 0).float()
TRAIN = TensorDataset(INPUTS[:9], LABELS[:9])
HELD_OUT = TensorDataset(INPUTS[9:], LABELS[9:])  # batches of 4, 4 and 3


def area(scores, labels):
    """The area under the curve by its definition: of batches, the mean is another number."""
    ones, zeros = scores[labels == 1], scores[labels == 0]
    return (ones[:, None] > zeros[None, :]).double().mean().item()


class Measured(TrainingModule):
    """Returns a metric with lists of what it has seen, and a collection with a common state."""

    def __init__(self, run, parameters):
        super().__init__()
        del parameters
        self.net = nn.Linear(4, 1)
        self.area = classification.BinaryAUROC()
        self.several = torchmetrics.MetricCollection(
            {"precision": classification.BinaryPrecision(), "recall": classification.BinaryRecall()}
        )
        self.seen = []

    def loaders(self, run):
        return {
            "train": run.loader("train", TRAIN, batch_size=3),
            "validation": run.loader("validation", HELD_OUT, batch_size=4, shuffle=False),
        }

    def optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch):
        inputs, labels = batch
        return functional.binary_cross_entropy_with_logits(self.net(inputs)[:, 0], labels)

    def validation_step(self, batch):
        inputs, labels = batch
        scores = self.net(inputs)[:, 0]
        self.area.update(scores, labels.long())
        self.several.update(scores, labels.long())
        loss = functional.binary_cross_entropy_with_logits(scores, labels)
        return {"loss": loss, "val_area": self.area, **self.several}


@pytest.fixture
def trained_by(monkeypatch):
    """Let the recipe have these parameters."""

    def use(made):
        monkeypatch.setattr("trainops.recipes.Recipe.parse_parameters", lambda *_: made)

    return use


def curve_of(supervisor, name):
    return [each.metrics[name] for each in supervisor.progress if name in each.metrics]


def test_values_are_those_of_all_examples_of_a_validation(follow, trained_by):
    trained_by(ModuleParameters(epochs=2))
    seen = []

    class Noted(Measured):
        def validation_step(self, batch):
            with torch.no_grad():
                seen.append((self.net(batch[0])[:, 0].cpu(), batch[1].cpu()))
            return super().validation_step(batch)

    found = follow(module_loop(Noted), log_every_steps=1)
    for number in range(2):
        scores, labels = map(torch.cat, zip(*seen[3 * number : 3 * number + 3], strict=True))
        said, right = scores > 0, labels == 1
        hits = (said & right).sum().item()
        assert curve_of(found, "val_area")[number] == pytest.approx(area(scores, labels), abs=1e-6)
        assert curve_of(found, "precision")[number] == pytest.approx(hits / max(1, int(said.sum())))
        assert curve_of(found, "recall")[number] == pytest.approx(hits / int(right.sum()))
        of_batches = [area(*each) for each in seen[3 * number : 3 * number + 3]]
        assert sum(of_batches) / 3 != pytest.approx(area(scores, labels), abs=1e-3)


def test_one_metric_of_a_collection_begins_each_validation_anew(follow, trained_by):
    trained_by(ModuleParameters(epochs=3))
    labels = []

    class One(Measured):
        """Has other scores in its first validation; the state is that of the first metric."""

        def validation_step(self, batch):
            scores = torch.where(batch[1] > 0, 0.9, 0.1 if len(labels) < 3 else 0.9)
            self.several.update(scores, torch.ones_like(batch[1], dtype=torch.int64))
            labels.append(scores)
            return {"loss": scores.sum(), "val_recall": self.several["recall"]}

    found = follow(module_loop(One), log_every_steps=1)
    for number, value in enumerate(curve_of(found, "val_recall")):
        seen = torch.cat(labels[3 * number : 3 * number + 3])
        assert value == pytest.approx((seen > 0.5).float().mean().item())


@pytest.mark.slow
def test_a_stop_within_a_validation_changes_no_value(require_exact, trained_by):
    trained_by(ModuleParameters(epochs=2, ema_decay=0.5, validate_every_steps=2))
    expected = require_exact(module_loop(Measured))
    assert len(curve_of(expected, "val_area")) == 3


def test_a_metric_stops_the_training_early(follow, trained_by):
    trained_by(
        ModuleParameters(epochs=9, patience=1, stopping_metric="val_area", stopping_mode="max")
    )
    areas = curve_of(follow(module_loop(Measured), log_every_steps=1), "val_area")
    assert len(areas) < 9 and areas[-1] <= areas[-2]
    assert all(one < other for one, other in pairwise(areas[:-1]))


def test_a_metric_is_not_compiled(follow, trained_by, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(type(module)))
    trained_by(ModuleParameters(epochs=1, compile=True))
    follow(module_loop(Measured))
    assert compiled == [nn.Linear]


class Elsewhere(Measured):
    def validation_step(self, batch):
        metric = classification.BinaryAccuracy().to(batch[0].device)
        metric.update(self.net(batch[0])[:, 0], batch[1].long())
        return super().validation_step(batch) | {"val_accuracy": metric}


class Whole(Measured):
    def validation_step(self, batch):
        return super().validation_step(batch) | {"several": self.several}


class Never(Measured):
    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.never = classification.BinaryAccuracy()

    def validation_step(self, batch):
        return super().validation_step(batch) | {"val_never": self.never}


WRONG = {
    Elsewhere: r"got a BinaryAccuracy as 'val_accuracy'; allowed: a Metric .* an attribute of the",
    Whole: r"got a MetricCollection as 'several'; allowed: a Metric of torchmetrics",
    Never: r"the metric 'val_never' has seen no batch of the validation",
}


@pytest.mark.parametrize("module", WRONG)
def test_a_metric_that_cannot_be_measured_is_refused(follow, trained_by, module):
    trained_by(ModuleParameters(epochs=1))
    with pytest.raises(InputError, match=WRONG[module]):
        follow(module_loop(module))


def ingredients(**changes):
    parts = {
        "model": nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), "train": TRAIN,
        "validation": HELD_OUT, "loss": functional.binary_cross_entropy_with_logits,
        "measures": {
            "area.under": classification.BinaryAUROC(),
            "right": lambda outputs, targets: ((outputs > 0) == targets).float(),
        },
    }  # fmt: skip
    return DatasetIngredients(**parts | changes)


def test_a_measure_of_ingredients_may_be_a_metric(follow, trained_by):
    trained_by(IngredientsParameters(epochs=2, batch_size=4))
    seen = []

    def loss(outputs, targets):
        if not outputs.requires_grad:
            seen.append((outputs.cpu(), targets.cpu()))
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    loop = ingredients_loop(lambda *_: ingredients(loss=loss))
    found = follow(loop, log_every_steps=1)
    for number, value in enumerate(curve_of(found, "val_area.under")):
        scores, labels = map(torch.cat, zip(*seen[3 * number : 3 * number + 3], strict=True))
        assert value == pytest.approx(area(scores, labels), abs=1e-6)
    assert len(curve_of(found, "val_right")) == len(curve_of(found, "val_area.under")) == 2
    assert not curve_of(found, "train_area.under") and curve_of(found, "train_right")


@pytest.mark.slow
def test_ingredients_with_a_metric_are_resumed_exactly(require_exact, trained_by):
    trained_by(IngredientsParameters(epochs=2, batch_size=4))
    require_exact(ingredients_loop(lambda *_: ingredients()))


BAD = {
    "collection": (
        {"measures": {"all": torchmetrics.MetricCollection([classification.BinaryAUROC()])}},
        r"got a MetricCollection as the measure 'all'; allowed: its metrics, each by a name",
    ),
    "no validation": (
        {"validation": None},
        r"got a BinaryAUROC as the measure 'area.under' without a validation; allowed: with one",
    ),
    "options": (
        {"validation_options": {"num_workers": 3}},
        r"got num_workers in validation_options; allowed: collate_fn of the ingredients",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_ingredients_that_cannot_be_measured_are_refused(follow, trained_by, name):
    changes, problem = BAD[name]
    trained_by(IngredientsParameters(epochs=1))
    with pytest.raises(InputError, match=problem):
        follow(ingredients_loop(lambda *_: ingredients(**changes)))


def test_tensors_have_no_metrics(monkeypatch, tmp_path):
    examples = Examples((INPUTS,), LABELS)
    build = lambda *_: Ingredients(  # noqa: E731
        model=nn.Linear(4, 1), train=examples, validation=examples, loss=functional.mse_loss,
        measures={"area": classification.BinaryAUROC()},
    )  # fmt: skip
    monkeypatch.setattr(type(TOY), "builder", lambda _: build)
    outcome = attempt(Case("training", "toy", {"recipe": "toy"}, ()), tmp_path)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, InputError)
    problem = "got a BinaryAUROC of torchmetrics as the measure 'area'"
    assert f"{problem}; allowed: functions with a value for each example" in str(outcome.error)
