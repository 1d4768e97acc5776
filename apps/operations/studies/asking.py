"""The trials of a study: suggested from the rows of those before, and submitted.

`fill` runs under the lock of the study's row and is one transaction with what it submits, so a
crash leaves either a trial with its operation or neither. Nothing is stored when an operation
ends: its row is what the next suggestion reads.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from django.core import signing
from django.db import transaction

from apps.operations.comparisons.values import number as number_of
from apps.operations.lifecycle import ACTIVE, Reason, State
from apps.operations.models import Operation, Study, Suggestion
from apps.operations.requests import limits
from apps.operations.requests.submission import InStudy, submit
from apps.operations.studies import reports
from apps.operations.studies.designs import BY_RESULTS, Design, LeftOut, Values, put
from apps.operations.studies.reports import Reports
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

if TYPE_CHECKING:
    from apps.operations.studies.sampling import OptunaState, StudySearch

logger = logging.getLogger(__name__)
SHOWN_LEFT_OUT = 100
SALT = "trainops.studies.sampling"  # a state may hold a pickle: it is unpacked only if we wrote it


def fill(study: Study) -> int:
    """Submit trials until as many are active as the design and the limit of the owner allow.

    Returns how many operations; at the limit the others are submitted by a later call.
    Called in a transaction with the study's row locked. A trial with an invalid config is left out.
    """
    design = Design.of_row(study.design)
    room = design.max_active - study.suggestions.filter(operation__state__in=ACTIVE).count()
    room = limits.granted_active(study.owner, room)
    if room <= 0 or not has_more(study):
        return 0
    goes_by_results = design.method in BY_RESULTS
    reported = reports.of_pruned(study, design.pruner) if design.pruner and goes_by_results else {}
    search, known = search_of(study, design, reported), _operations(study)
    num_submitted = 0
    for number in range(len(search.trials), study.num_trials):
        if room <= 0:
            break
        suggested = search.suggest()
        key = _key(suggested.values)
        if key not in known:
            known[key] = _submitted(study, suggested.values)
            num_submitted += known[key] is not None
        operation = known[key]
        Suggestion.objects.create(
            study=study, number=number, values=suggested.values,
            state=packed(suggested.state), operation=operation,
        )  # fmt: skip
        if operation is None:
            search.fail(number)
        elif operation.state in ACTIVE:
            room -= 1
    study.sampler_state = packed(search.state)
    study.num_planned = _num_planned(study)
    study.save(update_fields=["sampler_state", "num_planned", "left_out"])
    return num_submitted


def has_more(study: Study) -> bool:
    """Whether the study has trials left, and compute time for them."""
    if study.stopped_at is not None or study.suggestions.count() >= study.num_trials:
        return False
    return study.max_seconds is None or study.seconds_spent < study.max_seconds


def may_extend(study: Study) -> bool:
    """Whether its sampler has further trials: a grid and a walk-forward analysis have none."""
    return study.num_trials > 0 and study.design["method"] != "grid"


def submit_part(study: Study, config: Mapping[str, object], part: InStudy) -> Operation:
    return submit(
        kind=study.kind, config=config, owner=study.owner, name=_name(study, part), part=part,
        project=study.project, **study.submission,
    )  # fmt: skip


def value_of(result: object, metric: str) -> float | None:
    """Return the number at a dotted path of a result; None where there is none.

    A number in the path is the index of a list, as in `comparison.lines`.
    """
    value = result
    for name in metric.split("."):
        value = _item(value, name)
    found = number_of(value)
    try:
        return None if found is None else float(found)
    except OverflowError:
        return None


def _item(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return None


def objectives(study: Study) -> list[tuple[str, str]]:
    """Return the metric and the mode of each objective."""
    further = study.design.get("further_objectives", [])
    return [(study.metric, study.mode), *((each["metric"], each["mode"]) for each in further)]


def search_of(study: Study, design: Design, reported: Reports) -> "StudySearch":
    """Return Optuna's study of the trials so far."""
    from apps.operations.studies import sampling  # noqa: PLC0415 - imports Optuna

    metrics, modes = zip(*objectives(study), strict=True)
    trials = []
    for suggestion in study.suggestions.select_related("operation").order_by("number"):
        outcome, results = _outcome(suggestion.operation, metrics)
        trials.append(
            sampling.Known(
                suggestion.values,
                outcome,
                results,
                reported.get(suggestion.operation_id, {}),
                state=_unpacked(suggestion.state),
            )
        )
    return sampling.StudySearch(study.pk, design, modes, trials, _unpacked(study.sampler_state))


def _outcome(operation: Operation | None, metrics: Iterable[str]) -> tuple[str, list[float] | None]:
    """Return the name of Optuna's state of a trial, and its results if it is complete."""
    if operation is None:
        return "FAIL", None
    if operation.state in ACTIVE:
        return "RUNNING", None
    if operation.reason == Reason.PRUNED:
        return "PRUNED", None
    results = [value_of(operation.result, metric) for metric in metrics]
    found = [value for value in results if value is not None]
    if operation.state == State.COMPLETED and len(found) == len(results):
        return "COMPLETE", found
    return "FAIL", None


def _operations(study: Study) -> dict[str, Operation | None]:
    """Return the operation of each set of values that was suggested before."""
    made = study.suggestions.exclude(operation=None).select_related("operation")
    return {_key(each.values): each.operation for each in made}


def _submitted(study: Study, values: Values) -> Operation | None:
    try:
        with transaction.atomic():
            return submit_part(study, put(study.config, values), InStudy(study.pk, values))
    except (ConfigError, DomainError) as error:
        logger.info("%s: %s is left out: %s", study.pk, values, error)
        left_out = LeftOut(values=values, problem=str(error)[:300])
        if left_out not in study.left_out and len(study.left_out) < SHOWN_LEFT_OUT:
            study.left_out.append(left_out)
        return None


def _num_planned(study: Study) -> int:
    """Return the number of operations, if each trial to come needs one."""
    num_operations = study.suggestions.exclude(operation=None).values("operation").distinct()
    return num_operations.count() + study.num_trials - study.suggestions.count()


def _name(study: Study, part: InStudy) -> str:
    shown = ", ".join(f"{path.rpartition('.')[2]} {_short(v)}" for path, v in part.values.items())
    where = (
        f"fold {part.fold} {'out-of-sample' if part.is_test else 'in-sample'}: "
        if part.fold
        else ""
    )
    return f"{study.name[:50]} · {where}{shown}"[:120]


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else f"{value}"


def _key(values: Values) -> str:
    return json.dumps(values, sort_keys=True)


def packed(state: "OptunaState") -> str:
    return signing.dumps(state, salt=SALT, compress=True) if state else ""


def _unpacked(state: str) -> "OptunaState":
    return dict(signing.loads(state, salt=SALT)) if state else {}
