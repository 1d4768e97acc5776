"""What a study will submit, checked before anything is written down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.datasets import services as datasets
from apps.operations import inputs
from apps.operations.requests.submission import InStudy, with_house_defaults
from apps.operations.studies.designs import (
    MAX_OPERATIONS,
    Design,
    Fold,
    TooMany,
    WalkForward,
    folds,
    put,
)
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study is going to submit at once."""

    parts: Sequence[tuple[dict[str, Any], InStudy]]  # the config and the place of each
    left_out: Sequence[dict[str, Any]]
    folds: Sequence[Fold]


def parse(design: Mapping[str, Any]) -> Design:
    try:
        return Design.parse(design)
    except ConfigError as error:
        named = {f"design.{path}".rstrip("."): why for path, why in error.errors.items()}
        raise ConfigError(named, error.num_more) from error


def judged_by(kind: str, config: Mapping[str, Any], metric: str, mode: str) -> tuple[str, str]:
    """Return the metric and whether more of it is better, as told or as is usual for the kind."""
    if mode not in ("", "min", "max"):
        raise ConfigError({"mode": f"got {mode!r}; allowed: min, max"})
    return metric or KINDS[kind].objective.metric, mode or KINDS[kind].mode(config)


def plan(study_id: str, kind: str, config: Mapping[str, Any], design: Design) -> Plan:
    try:
        sets = design.sets()
    except TooMany as error:
        raise ConfigError({"design.values": str(error)}) from error
    spans = _spans(kind, config, design.walk_forward)
    if len(sets) * max(1, len(spans)) > MAX_OPERATIONS:
        problem = f"{len(sets)} sets in {len(spans)} folds; at most {MAX_OPERATIONS} operations"
        raise ConfigError({"design.walk_forward": problem})
    parts, left_out, problems = [], [], ConfigError({})
    for values in sets:
        try:
            _require_usable(kind, put(config, values))
        except ConfigError as error:
            problems = error
            left_out.append({"values": values, "problem": str(error)[:300]})
            continue
        if not spans:
            parts.append((put(config, values), InStudy(study_id, values)))
        for fold in spans:
            told = values | fold.config(is_test=False)
            parts.append((put(config, told), InStudy(study_id, values, fold.number)))
    if not parts:
        raise problems
    return Plan(parts, left_out, spans)


def _require_usable(kind: str, config: Mapping[str, Any]) -> None:
    engine = KINDS[kind]
    parsed = engine.parse_config(with_house_defaults(kind, config))
    inputs.check(engine.dataset_ids(parsed), parsed)


def _spans(kind: str, config: Mapping[str, Any], wanted: WalkForward | None) -> list[Fold]:
    """Return the folds over the days of the data. Raises ConfigError."""
    if wanted is None:
        return []
    chosen = KINDS[kind]
    parsed = chosen.parse_config(with_house_defaults(kind, config))
    first, last = chosen.span(parsed, datasets.columns_of(chosen.dataset_ids(parsed)))
    try:
        return folds(wanted, first, last)
    except ValueError as error:
        raise ConfigError({"design.walk_forward": str(error)}) from error
