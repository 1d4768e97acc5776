"""Suggestions by Optuna, as a function of the trials so far.

The rows of a study are the only storage. Optuna's study is rebuilt from them in memory before each
suggestion, with a sampler that is seeded by the design's seed and the number of the trial. `state`
is what Optuna's samplers and pruners store with a study or a trial.

This module imports Optuna, which takes a second: import it where it is used.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from apps.operations.studies.designs import Design, Method, Pruner, Range, Values, is_same
from trainops.plain import Json

optuna.logging.set_verbosity(optuna.logging.WARNING)
OptunaState: TypeAlias = Mapping[str, Json]  # what Optuna stores with a study or a trial
DIRECTIONS: Final = {"min": "minimize", "max": "maximize"}


@dataclass(frozen=True, slots=True)
class Known:
    """A trial so far. `results` has a value for each objective once it is complete."""

    values: Values
    outcome: str  # a name of TrialState
    results: Sequence[float] | None = None
    reported: Mapping[int, float] = field(default_factory=dict)  # by step
    state: OptunaState = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggested:
    values: Values
    state: OptunaState


class StudySearch:
    """The search of one study, rebuilt from its trials in the order of their numbers."""

    def __init__(
        self,
        study_id: str,
        design: Design,
        modes: Sequence[str],
        trials: Iterable[Known] = (),
        state: OptunaState | None = None,
    ) -> None:
        self.design = design
        self._space = {path: _distribution(design, path) for path in design.values}
        self._storage = optuna.storages.InMemoryStorage()
        self.study = optuna.create_study(
            storage=self._storage, study_name=study_id, directions=[DIRECTIONS[m] for m in modes]
        )
        self._id = self._storage.get_study_id_from_name(study_id)
        for key, value in (state or {}).items():
            self._storage.set_study_system_attr(self._id, key, value)
        for trial in trials:
            self.study.add_trial(self._frozen(trial))

    def suggest(self) -> Suggested:
        """Return the values of the next trial, which counts as running from then on."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            self.study.sampler = self._sampler(len(self.trials))
            trial = self.study.ask()
            values: Values = {}
            for path in self.design.values:
                if self.design.has(path, values):
                    values[path] = self._suggest(trial, path)
        return Suggested(values, self.trials[-1].system_attrs)

    def fail(self, number: int) -> None:
        """The trial has no result."""
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        self._storage.set_trial_state_values(trial_id, TrialState.FAIL)

    def is_to_be_pruned(self, number: int) -> bool:
        """Whether a running trial is to be stopped, by what it and the others reported."""
        wanted = self.design.pruner
        return wanted is not None and bool(_pruner(wanted).prune(self.study, self.trials[number]))

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    @property
    def state(self) -> OptunaState:
        """What Optuna stores with the study."""
        return self._storage.get_study_system_attrs(self._id)

    def _suggest(self, trial: optuna.Trial, path: str) -> object:
        match self._space[path]:
            case IntDistribution(low=low, high=high, log=log):
                return trial.suggest_int(path, low, high, log=log)
            case FloatDistribution(low=low, high=high, log=log):
                return trial.suggest_float(path, low, high, log=log)
        choices = self.design.choices(path)
        return choices[trial.suggest_categorical(path, range(len(choices)))]

    def _frozen(self, trial: Known) -> FrozenTrial:
        return create_trial(
            state=TrialState[trial.outcome],
            values=trial.results,
            params={path: self._param(path, value) for path, value in trial.values.items()},
            distributions={path: self._space[path] for path in trial.values},
            intermediate_values=dict(trial.reported),
            system_attrs=dict(trial.state),
        )

    def _param(self, path: str, value: object) -> Any:
        if isinstance(self.design.values[path], Range):
            return value
        choices = self.design.choices(path)
        return next(index for index, each in enumerate(choices) if is_same(each, value))

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        return SAMPLERS[self.design.method](self, number)


def _distribution(design: Design, path: str) -> BaseDistribution:
    values = design.values[path]
    if not isinstance(values, Range):
        return CategoricalDistribution(range(len(design.choices(path))))
    if values.whole:
        low, high = math.ceil(values.low), math.floor(values.high)
        return IntDistribution(low, high, log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


class _QMC(optuna.samplers.QMCSampler):
    """A QMC sampler whose space is the design's, and not that of the first completed trial."""

    def __init__(self, space: Mapping[str, BaseDistribution], **options: Any) -> None:
        super().__init__(scramble=True, warn_independent_sampling=False, **options)
        self._of_design = {
            path: each
            for path, each in space.items()
            if not isinstance(each, CategoricalDistribution)
        }

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._of_design


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _grid(search: StudySearch, number: int) -> optuna.samplers.BaseSampler:
    paths = {path: range(len(search.design.choices(path))) for path in search.design.values}
    return optuna.samplers.GridSampler(paths, seed=_seed(search.design.seed))


def _random(search: StudySearch, number: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=_seed(search.design.seed, number))


def _qmc(search: StudySearch, number: int) -> optuna.samplers.BaseSampler:
    return _QMC(
        search._space,
        seed=_seed(search.design.seed),
        independent_sampler=_random(search, number),
    )


def _tpe(search: StudySearch, number: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=_seed(search.design.seed, number), constant_liar=True)


def _cmaes(search: StudySearch, number: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.CmaEsSampler(
        seed=_seed(search.design.seed, number), warn_independent_sampling=False
    )


SAMPLERS: Final[Mapping[Method, Callable[[StudySearch, int], optuna.samplers.BaseSampler]]] = {
    "grid": _grid,
    "random": _random,
    "qmc": _qmc,
    "tpe": _tpe,
    "cmaes": _cmaes,
}


def _pruner(wanted: Pruner) -> optuna.pruners.BasePruner:
    if wanted.method == "median":
        return optuna.pruners.MedianPruner(
            n_startup_trials=wanted.min_trials, n_warmup_steps=wanted.min_reports
        )
    if wanted.method == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=wanted.min_reports, reduction_factor=wanted.reduction
        )
    return optuna.pruners.HyperbandPruner(
        min_resource=wanted.min_reports, reduction_factor=wanted.reduction
    )
