"""Shares of fields in a target by a random forest; computed in a confined process.

This module imports scikit-learn and Optuna, which takes seconds: `importance` calls it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import MeanDecreaseImpurityImportanceEvaluator, get_param_importances

optuna.logging.set_verbosity(optuna.logging.WARNING)
NUM_TREES, SEED = 64, 0


class ForestRequest(TypedDict):
    """A value of each field and the target for each operation; null where there is no value.

    Each field has at least two different values.
    """

    fields: dict[str, list[float | str | None]]
    targets: list[float]


class EncodedField(TypedDict):
    """The values of a field as Optuna takes them."""

    distribution: BaseDistribution
    values: Sequence[Any]


NO_VALUE: Final = "—"


def answer(request: ForestRequest) -> dict[str, float]:
    """Return the share of each field, from 0 to 1; together 1, or 0 if no field explains any.

    The mean decrease of impurity in the trees that predict the target from the fields.
    """
    columns = {name: column(values) for name, values in request["fields"].items()}
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.create_trial(
                params={name: each["values"][i] for name, each in columns.items()},
                distributions={name: each["distribution"] for name, each in columns.items()},
                value=target,
            )
            for i, target in enumerate(request["targets"])
        ]
    )
    evaluator = MeanDecreaseImpurityImportanceEvaluator(n_trees=NUM_TREES, seed=SEED)
    shares: Mapping[str, float] = get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def column(values: Sequence[float | str | None]) -> EncodedField:
    """Return numbers as numbers, a missing one below all of them; anything else as choices."""
    known = [each for each in values if each is not None]
    numbers = [float(each) for each in known if not isinstance(each, str)]
    if len(numbers) < len(known):
        texts = [NO_VALUE if each is None else str(each) for each in values]
        return {"distribution": CategoricalDistribution(sorted(set(texts))), "values": texts}
    low, high = min(numbers), max(numbers)
    below = low - max(high - low, abs(low), 1.0)
    filled = [below if each is None else float(each) for each in values]
    return {"distribution": FloatDistribution(min(filled), high), "values": filled}
