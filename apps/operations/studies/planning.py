"""What a study will submit, checked before anything is written down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.datasets import services as datasets
from apps.operations import inputs
from apps.operations.models import Study
from apps.operations.requests.submission import InStudy, with_platform_defaults
from apps.operations.studies.designs import (
    MAX_OPERATIONS,
    Design,
    Fold,
    LeftOut,
    TooMany,
    Values,
    WalkForward,
    folds,
    put,
)
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What a study is going to submit: the parts of a walk-forward analysis, else trials."""

    parts: Sequence[tuple[Config, InStudy]] = ()  # the config and the place of each
    left_out: Sequence[LeftOut] = ()
    folds: Sequence[Fold] = ()
    num_trials: int = 0
    num_first: int = 0  # at most as many operations are submitted at once


def parse(design: Mapping[str, object]) -> Design:
    try:
        return Design.parse(design)
    except ConfigError as error:
        named = {f"design.{path}".rstrip("."): why for path, why in error.errors.items()}
        raise ConfigError(named, error.num_more) from error


def judged_by(kind: str, config: Mapping[str, object], metric: str, mode: str) -> tuple[str, str]:
    """Return the metric and whether more of it is better, as given, else the kind's objective."""
    if mode not in ("", "min", "max"):
        raise ConfigError({"mode": f"got {mode!r}; allowed: min, max"})
    return metric or KINDS[kind].objective.metric, mode or KINDS[kind].mode(config)


def require_distinct(design: Design, metric: str) -> None:
    """Raise ConfigError where an objective is given twice; `metric` is that of the first."""
    seen = {metric}
    for place, objective in enumerate(design.further_objectives):
        if objective.metric in seen:
            problem = f"got {objective.metric!r}; allowed: a metric that is no objective yet"
            raise ConfigError({f"design.further_objectives.{place}.metric": problem})
        seen.add(objective.metric)


def completed(design: Design, kind: str, config: Mapping[str, object]) -> Design:
    """Return the design with the pruner's metric and mode, by default those of the config."""
    if design.pruner is None:
        return design
    declared = KINDS[kind].json_schema()["properties"].get("monitor", {})
    metric = design.pruner.metric or config.get("monitor") or declared.get("default")
    if not metric:
        problem = f"got none; {kind} has no default; allowed: the name of a reported metric"
        raise ConfigError({"design.pruner.metric": problem})
    mode = design.pruner.mode or KINDS[kind].mode(config)
    pruner = design.pruner.model_copy(update={"metric": metric, "mode": mode})
    return design.model_copy(update={"pruner": pruner})


def plan(study_id: str, kind: str, config: Mapping[str, object], design: Design) -> StudyPlan:
    try:
        num_trials = design.num_trials
    except TooMany as error:
        raise ConfigError({"design.values": str(error)}) from error
    if design.walk_forward:
        return _walk_forward(study_id, kind, config, design, design.walk_forward)
    return StudyPlan(num_trials=num_trials, num_first=min(num_trials, design.max_active))


def _walk_forward(
    study_id: str, kind: str, config: Mapping[str, object], design: Design, wanted: WalkForward
) -> StudyPlan:
    spans = _spans(kind, config, wanted)
    sets = _sets(study_id, design)
    if len(sets) * len(spans) > MAX_OPERATIONS:
        problem = (
            f"{len(sets)} combinations in {len(spans)} folds; at most {MAX_OPERATIONS} operations"
        )
        raise ConfigError({"design.walk_forward": problem})
    parts: list[tuple[Config, InStudy]] = []
    left_out: list[LeftOut] = []
    problems = ConfigError({})
    for values in sets:
        try:
            _require_usable(kind, put(config, values))
        except ConfigError as error:
            problems = error
            left_out.append(LeftOut(values=values, problem=str(error)[:300]))
            continue
        for fold in spans:
            varied = values | fold.config(is_test=False)
            parts.append((put(config, varied), InStudy(study_id, values, fold.number)))
    if not parts:
        raise problems
    return StudyPlan(parts, left_out, spans, num_first=len(parts))


def _sets(study_id: str, design: Design) -> list[Values]:
    """Return the values that all folds try, each set once."""
    from apps.operations.studies.sampling import StudySearch  # noqa: PLC0415 - imports Optuna

    search = StudySearch(study_id, design, ["min"])
    suggested = [search.suggest().values for _ in range(design.num_trials)]
    return [each for number, each in enumerate(suggested) if each not in suggested[:number]]


def require_usable(study: Study, values: Values) -> None:
    """Raise ConfigError where the config of the study with these values is not valid."""
    _require_usable(study.kind, put(study.config, values))


def _require_usable(kind: str, config: Mapping[str, object]) -> None:
    engine = KINDS[kind]
    parsed = engine.parse_config(with_platform_defaults(kind, config))
    inputs.check(engine.dataset_ids(parsed), parsed)


def _spans(kind: str, config: Mapping[str, object], wanted: WalkForward) -> list[Fold]:
    """Return the folds over the days of the data. Raises ConfigError."""
    chosen = KINDS[kind]
    parsed = chosen.parse_config(with_platform_defaults(kind, config))
    first, last = chosen.span(parsed, datasets.columns_of(chosen.dataset_ids(parsed)))
    try:
        return folds(wanted, first, last)
    except ValueError as error:
        raise ConfigError({"design.walk_forward": str(error)}) from error
