"""What the price direction recipe trains."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainops.kinds.training.recipes.price_direction import PriceDirectionParameters
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy
from trainops.market.bars import Floats
from trainops.market.features import features_of, measured, prepared
from trainops.market.labels import forward_return, zigzag
from trainops.market.network import DOWN, UP, Pipeline
from trainops.market.prices import Prices, read_prices
from trainops.market.resampling import resample
from trainops.market.times import bar_of_day, iso
from trainops.runtime.errors import InputError

FLAT = "flat"
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lessons:
    """Bars whose features and label are known; those of several symbols follow one another."""

    features: Mapping[str, Floats]
    values: Floats  # of the labels
    bars: Rows
    known_at: Rows  # the bars at which the labels were known

    def __len__(self) -> int:
        return len(self.bars)

    def where(self, chosen: NDArray[np.bool_]) -> "Lessons":
        features = {name: values[chosen] for name, values in self.features.items()}
        return Lessons(features, self.values[chosen], self.bars[chosen], self.known_at[chosen])


def build(parameters: PriceDirectionParameters, context: Context) -> Ingredients:
    """Raises InputError: unusable prices, or too few bars on one side of the split."""
    with _fields_of_parameters():
        prices = _prices(parameters, context)
    first, end = _validation_span(parameters, prices)
    lessons = _lessons(parameters, prices)
    # A label that was known only later would carry prices of the validation into the training.
    train = lessons.where(lessons.known_at < first)
    validation = _validated_on(lessons, first, end, context.constants)
    _require_some(parameters, first, training=len(train), validation=len(validation))
    constants = dict(context.constants) or {
        **_measure(parameters, prices, train, first),
        "validated_until": _first_unseen(prices, validation),
    }
    return Ingredients(
        model=Pipeline(constants).network(),
        train=_examples(train, parameters, constants),
        validation=_examples(validation, parameters, constants),
        **_judgement(constants),
        constants=constants,
        description={
            "features": constants["scale"]["names"],
            "classes": constants["classes"],
            "symbols": list(prices.symbols),
            "training_bars": len(train),
            "validation_bars": len(validation),
            **{
                name: iso(constants[name])
                for name in ("trained_until", "validated_until")
                if name in constants
            },
        },
    )


@contextmanager
def _fields_of_parameters() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        named = {f"parameters.{field}": problem for field, problem in error.errors.items()}
        raise InputError(named) from error


def _prices(parameters: PriceDirectionParameters, context: Context) -> Prices:
    prices = read_prices(
        context.table(parameters.dataset),
        parameters.columns,
        symbol="asset",
        symbols=parameters.symbols,
        timezone=parameters.timezone,
    )
    return resample(prices, parameters.resample) if parameters.resample else prices


def _validation_span(parameters: PriceDirectionParameters, prices: Prices) -> tuple[int, int]:
    """Return the first bar to validate on, and the bar before which that ends."""

    def bar_of(day: date | None, otherwise: int) -> int:
        return otherwise if day is None else bar_of_day(prices.times, parameters.timezone, day)

    validated, tested = parameters.validation_fraction, parameters.test_fraction
    first, end = (round(len(prices) * (1 - share)) for share in (validated + tested, tested))
    return bar_of(parameters.train_until, first), bar_of(parameters.validate_until, end)


def _validated_on(
    lessons: Lessons, first: int, end: int, constants: Mapping[str, object]
) -> Lessons:
    """Return the lessons whose bar and label are known from the first bar on, before the end.

    A training that an earlier version began is resumed as it began: with labels past the end.
    """
    is_earlier = bool(constants) and "validated_until" not in constants
    last = lessons.bars if is_earlier else lessons.known_at
    return lessons.where((lessons.bars >= first) & (last < end))


def _first_unseen(prices: Prices, validation: Lessons) -> int:
    """Return the time of the first bar after those that a validation label was made of."""
    last = int(validation.known_at.max())
    return int(prices.times[last + 1] if last + 1 < len(prices) else prices.times[last] + 1)


def _lessons(parameters: PriceDirectionParameters, prices: Prices) -> Lessons:
    each = [_lessons_of(parameters, prices, i) for i in range(len(prices.symbols))]
    return Lessons(
        {name: np.concatenate([one.features[name] for one in each]) for name in each[0].features},
        np.concatenate([one.values for one in each]),
        np.concatenate([one.bars for one in each]),
        np.concatenate([one.known_at for one in each]),
    )


def _lessons_of(parameters: PriceDirectionParameters, prices: Prices, symbol: int) -> Lessons:
    features = features_of(prices.bars, symbol, parameters.features)
    closes = prices.closes(symbol)
    if parameters.label == "zigzag":
        labels = zigzag(closes, parameters.reversal)
    else:
        labels = forward_return(closes, parameters.horizon)
    every_bar = Lessons(features, labels.values, np.arange(len(closes)), labels.known_at)
    known = [~np.isnan(column) for column in (labels.values, *features.values())]
    return every_bar.where(np.logical_and.reduce(known))


def _require_some(parameters: PriceDirectionParameters, first: int, **counts: int) -> None:
    for purpose, count in counts.items():
        if not count:
            field = "train_until" if parameters.train_until else "validation_fraction"
            problem = (
                f"no bar is left for {purpose}: {first} bars lie before the split; features need "
                "bars before them, labels bars after"
            )
            raise InputError({f"parameters.{field}": problem})


def _measure(
    parameters: PriceDirectionParameters, prices: Prices, train: Lessons, first: int
) -> dict[str, Any]:
    """Return the pipeline: all that turns bars into what the network is given, as plain values."""
    classes = [DOWN, FLAT, UP] if parameters.threshold else [DOWN, UP]
    until = prices.times[min(first, len(prices) - 1)]
    return {
        "features": parameters.features.model_dump(mode="json"),
        "scale": measured(train.features),
        "classes": classes if parameters.task == "classification" else [],
        "target": {"deviation": float(train.values.std()) or 1.0},
        "hidden_sizes": list(parameters.hidden_sizes),
        "dropout": parameters.dropout,
        "bar_seconds": float(np.median(np.diff(prices.times))) / 1e6,
        "trained_until": int(until),
    }


def _examples(
    lessons: Lessons, parameters: PriceDirectionParameters, constants: Mapping[str, Any]
) -> Examples:
    inputs = prepared(lessons.features, constants["scale"], parameters.features.fuzzy)
    targets = _targets(lessons.values, parameters, constants)
    return Examples((torch.from_numpy(inputs).to(torch.float32),), targets)


def _targets(
    values: Floats, parameters: PriceDirectionParameters, constants: Mapping[str, Any]
) -> Tensor:
    """Return the number of each class (int64), or returns in deviations (N, 1) float32."""
    classes = constants["classes"]
    if not classes:
        scaled = values / constants["target"]["deviation"]
        return torch.from_numpy(scaled).to(torch.float32).unsqueeze(1)
    numbers = np.where(values > parameters.threshold, classes.index(UP), classes.index(DOWN))
    if FLAT in classes:
        numbers[np.abs(values) <= parameters.threshold] = classes.index(FLAT)
    return torch.from_numpy(numbers.astype(np.int64))


def _judgement(constants: Mapping[str, Any]) -> dict[str, Any]:
    if constants["classes"]:
        return {"loss": nn.functional.cross_entropy, "measures": {"accuracy": accuracy}}
    deviation = constants["target"]["deviation"]
    measures: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "absolute_error": lambda outputs, targets: ((outputs - targets).abs() * deviation)[:, 0],
        "accuracy": lambda outputs, targets: ((outputs > 0) == (targets > 0)).float()[:, 0],
    }
    return {
        "loss": nn.functional.mse_loss,
        "measures": measures,
        "loss_factor": deviation**2,
    }
