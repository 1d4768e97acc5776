"""Studies: operations that differ in some values of their config, submitted and stopped as one.

A walk-forward analysis goes in two steps: once all operations that a fold's values are chosen on
have ended, the best ones are tried on the days that follow.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.operations.errors import CheckpointNotFound, NotAllowed
from apps.operations.lifecycle import ACTIVE, RESUMABLE, State
from apps.operations.models import Operation, Study
from apps.operations.requests import limits, services
from apps.operations.requests.submission import (
    InStudy,
    canonical_hash,
    clean_label,
    clean_name,
    clean_tags,
    submit,
)
from apps.operations.scheduling.portions import Portions, for_each
from apps.operations.studies import planning
from apps.operations.studies.designs import Fold, put
from trainops.errors import Refusal
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)
SHOWN_LEFT_OUT = 100
PORTIONS = Portions()  # of this process's sweeps


class StudyNotFound(Refusal):
    def __init__(self, study_id: str) -> None:
        details = {"study_id": study_id}
        super().__init__("STUDY_NOT_FOUND", f"There is no study {study_id}.", details, status=404)


def get(study_id: str) -> Study:
    """Raises StudyNotFound."""
    found = Study.objects.select_related("owner").filter(pk=study_id).first()
    if found is None:
        raise StudyNotFound(study_id)
    return found


def create(
    *,
    kind: str,
    config: Mapping[str, Any],
    design: Mapping[str, Any],
    owner: "User | None",
    metric: str = "",
    mode: str = "",
    name: str = "",
    tags: Iterable[str] = (),
    priority: int = 0,
    queue: str = "",
    idempotency_key: str = "",
) -> Study:
    """Submit an operation for each set of values; all of them, or with an error none.

    Sets that the kind's config refuses (a slow average that is faster than the fast one) are left
    out and named in the study.

    Raises ConfigError: an unknown kind, a wrong design (as `design.…`), or no usable set.
    Raises LimitReached: the operations or studies exceed a limit of the owner.
    """
    clean_tags(tags), clean_label(queue)
    told = {"tags": list(tags), "priority": priority, "queue": queue}
    asked = canonical_hash(
        {"kind": kind, "config": config, "design": design, "name": name, "metric": metric,
         "mode": mode, **told}
    )  # fmt: skip
    if first := _created_before(asked, owner, idempotency_key):
        return first
    if kind not in KINDS:
        raise ConfigError({"kind": f"{kind!r} is not a kind; there are: {', '.join(KINDS)}"})
    wanted = planning.parse(design)
    metric, mode = planning.judged_by(kind, config, metric, mode)
    study_id = f"st_{timezone.now():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
    plan = planning.plan(study_id, kind, config, wanted)
    limits.require_studies(owner)
    limits.require_active(owner, len(plan.parts))
    study = Study(
        id=study_id, kind=kind, recipe=str(config.get("recipe", "")), owner=owner,
        name=clean_name(name) or f"study of {config.get('recipe') or kind}",
        config=dict(config), design=wanted.model_dump(mode="json"), submission=told,
        metric=metric, mode=mode, left_out=list(plan.left_out)[:SHOWN_LEFT_OUT],
        folds=[_as_json(fold) for fold in plan.folds],
        num_planned=len(plan.parts) + len(plan.folds),
        idempotency_key=idempotency_key, request_hash=asked if idempotency_key else "",
    )  # fmt: skip
    try:
        with transaction.atomic():
            study.save(force_insert=True)
            for made, part in plan.parts:
                _submit(study, made, part)
    except IntegrityError:
        if first := _created_before(asked, owner, idempotency_key):
            return first  # the same request, a moment earlier
        raise
    return get(study_id)


def cancel(*, study_id: str, actor: "User") -> int:
    """Cancel all of its operations that have not ended; no more are submitted. Returns how many."""
    return _stop(get(study_id), services.cancel, actor)


def kill(*, study_id: str, actor: "User") -> int:
    """Kill all of its operations that have not ended; no more are submitted. Returns how many."""
    return _stop(get(study_id), services.kill, actor)


def resume(*, study_id: str, actor: "User") -> int:
    """Resume what failed or was cancelled, where there is a checkpoint; else submit it anew.

    Returns how many go on. Raises LimitReached; nothing is changed then.
    """
    study = get(study_id)
    limits.require_active(study.owner, study.operations.filter(state__in=RESUMABLE).count())
    Study.objects.filter(pk=study.pk).update(stopped_at=None)
    num_resumed = 0
    for operation in study.operations.filter(state__in=RESUMABLE):
        try:
            services.resume(operation_id=operation.pk, actor=actor)
        except CheckpointNotFound:
            _begin_anew(study, operation, actor)
        except Refusal as refusal:  # somebody was quicker, or its bytes were altered
            logger.info("%s does not go on: %s", operation.pk, refusal)
            continue
        num_resumed += 1
    advance(study_id)
    return num_resumed


def _begin_anew(study: Study, operation: Operation, actor: "User") -> None:
    part = InStudy(study.pk, operation.study_values, operation.fold, operation.is_test)
    with transaction.atomic():
        services.delete(operation_id=operation.pk, actor=actor)
        _submit(study, operation.config_given, part)


def delete(*, study_id: str, actor: "User") -> int:
    """Delete it with all of its operations. Raises NotAllowed while one of them may still run."""
    study = get(study_id)
    active = study.operations.filter(state__in=ACTIVE).count()
    if active:
        raise NotAllowed(
            "STUDY_ACTIVE",
            f"{active} of its operations have not ended: cancel it first, then delete it.",
            num_active=active,
        )
    for operation_id in study.operations.values_list("pk", flat=True):
        services.delete(operation_id=operation_id, actor=actor)
    study.delete()
    return 1


def advance(study_id: str) -> int:
    """Try what was chosen, for each fold whose operations have all ended. Returns how many."""
    with transaction.atomic():
        # Two workers whose operations end at once: the second waits here, and finds it done.
        study = Study.objects.select_for_update().filter(pk=study_id, stopped_at=None).first()
        if study is None:
            return 0
        tried = set(study.operations.filter(is_test=True).values_list("fold", flat=True))
        waiting = set(study.operations.filter(state__in=ACTIVE).values_list("fold", flat=True))
        ready = [Fold(**_from_json(each)) for each in study.folds]
        ready = [fold for fold in ready if fold.number not in tried | waiting]
        return sum(_try(study, fold) for fold in ready)


def advance_all() -> int:
    """Do so for the next portion of the studies that have folds: a worker may have died."""
    waiting = Study.objects.filter(stopped_at=None).exclude(folds=[])
    portion = PORTIONS.next(waiting.values_list("pk", flat=True))
    return sum(for_each(portion, advance, "study"))


def value_of(operation: Operation, metric: str) -> float | None:
    """Return what an operation is judged by; None where its result has no such number."""
    value: Any = operation.result
    for name in metric.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value == value else None


def _try(study: Study, fold: Fold) -> bool:
    chosen = best(study, study.operations.filter(fold=fold.number, is_test=False))
    if chosen is None:
        return False  # none of them completed: there is nothing to try
    values = chosen.study_values | fold.config(is_test=True)
    part = InStudy(study.pk, chosen.study_values, fold.number, is_test=True)
    try:
        with transaction.atomic():
            _submit(study, put(study.config, values), part)
    except (ConfigError, Refusal) as error:  # what it needs was deleted meanwhile
        _give_up(study, fold, error)
        return False
    return True


def _give_up(study: Study, fold: Fold, error: Exception) -> None:
    """Leave a fold untried, and say why."""
    logger.warning("%s: fold %s cannot be tried: %s", study.pk, fold.number, error)
    study.left_out.append({"values": {"fold": fold.number}, "problem": str(error)[:300]})
    study.folds = [each for each in study.folds if each["number"] != fold.number]
    study.save(update_fields=["left_out", "folds"])


def best(study: Study, operations: Iterable[Operation]) -> Operation | None:
    """Return the best by the study's metric, the first of equals; None where none has it."""
    sign = 1 if study.mode == "min" else -1
    judged = [
        (sign * value, operation.pk, operation)
        for operation in operations
        if operation.state == State.COMPLETED
        and (value := value_of(operation, study.metric)) is not None
    ]
    return min(judged)[2] if judged else None


def _stop(study: Study, stop: Any, actor: "User") -> int:
    with transaction.atomic():
        # Under the lock of `advance`: what it submits is stopped here, or it finds this.
        Study.objects.select_for_update().get(pk=study.pk)
        Study.objects.filter(pk=study.pk, stopped_at=None).update(stopped_at=timezone.now())
    num_stopped = 0
    for operation_id in study.operations.filter(state__in=ACTIVE).values_list("pk", flat=True):
        try:
            stop(operation_id=operation_id, actor=actor)
        except Refusal as refusal:  # it has ended meanwhile, or is being stopped already
            logger.info("%s is not stopped: %s", operation_id, refusal)
        else:
            num_stopped += 1
    return num_stopped


def _submit(study: Study, config: Mapping[str, Any], part: InStudy) -> Operation:
    return submit(
        kind=study.kind, config=config, owner=study.owner, name=_name(study, part), part=part,
        **study.submission,
    )  # fmt: skip


def _name(study: Study, part: InStudy) -> str:
    shown = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in part.values.items())
    where = f"fold {part.fold} {'test' if part.is_test else 'choice'}: " if part.fold else ""
    return f"{study.name[:50]} · {where}{shown}"[:120]


def _created_before(asked: str, owner: "User | None", key: str) -> Study | None:
    if not key:
        return None
    first = Study.objects.filter(owner=owner, idempotency_key=key).first()
    if first is not None and first.request_hash != asked:
        raise NotAllowed(
            "IDEMPOTENCY_KEY_REUSED",
            f"This Idempotency-Key was used for {first.pk}, which asks for something else.",
            study_id=first.pk,
        )
    return first


def _as_json(fold: Fold) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in asdict(fold).items()
    }


def _from_json(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: date.fromisoformat(value) if isinstance(value, str) else value
        for name, value in told.items()
    }
