"""Rows of studies and of their operations, and studies as the API shows them."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from apps.operations.studies.designs import FoldJson, LeftOut, Values
from trainops.plain import Config, JsonObject


class StudyRow(TypedDict):
    """A study as lists show it."""

    id: str
    name: str
    kind: str
    recipe: str
    project: str
    metric: str
    mode: str
    num_planned: int
    num_trials: int
    created_at: datetime
    stopped_at: datetime | None
    owner_name: str | None


class Trial(TypedDict):
    """An operation of a study; `id` and `state` are older names of the first two fields."""

    operation_id: str
    status: str
    id: str
    name: str
    state: str
    reason: str
    stop_requested: str
    step: int
    total_steps: int
    study_values: Values
    fold: int
    is_test: bool
    percent: float
    value: float | None  # of the study's metric, once completed
    figures: dict[str, float | None]


class ChosenFold(FoldJson):
    """A fold of a walk-forward, and what its values came to."""

    values: Values | None
    in_sample: float | None
    out_of_sample: float | None
    operation_id: str | None  # of the test


class StudyJson(TypedDict):
    """What StudySerializer describes."""

    id: str
    name: str
    kind: str
    recipe: str
    project: str
    metric: str
    mode: str
    num_planned: int
    num_trials: int
    created_at: datetime
    stopped_at: datetime | None
    owner: str | None
    counts: Mapping[str, int]
    percent: float
    is_active: bool


class BestJson(TypedDict):
    """What BestSerializer describes."""

    operation_id: str
    value: float | None
    values: Values


class StudyDetailJson(StudyJson):
    """What StudyDetailSerializer describes."""

    config: Config
    design: JsonObject
    left_out: list[LeftOut]
    max_seconds: float | None
    seconds_spent: float
    best: BestJson | None
    front: list[str]
    folds: list[ChosenFold]
    operations: list[Trial]
