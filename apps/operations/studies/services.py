"""Studies: operations that differ in some values of their config, submitted and stopped as one.

What follows from the operations that have ended is submitted by `advancing`.
"""

import logging
import math
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.checkpoints import services as checkpoints
from apps.operations.errors import CheckpointNotFound, NotAllowed
from apps.operations.lifecycle import ACTIVE, RESUMABLE, Reason
from apps.operations.models import Operation, Study
from apps.operations.requests import changed_code, deletion, limits, projects, services
from apps.operations.requests.submission import (
    InStudy,
    canonical_hash,
    clean_label,
    clean_name,
    clean_tags,
)
from apps.operations.studies import asking, planning
from apps.operations.studies.advancing import advance
from apps.operations.studies.asking import submit_part
from apps.operations.studies.designs import MAX_OPERATIONS
from trainops.errors import DomainError
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)


class StopRequest(Protocol):
    """`services.cancel` or `services.kill`."""

    def __call__(self, *, operation_id: str, actor: "User | None") -> Operation: ...


class StudyNotFound(DomainError):
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
    config: Mapping[str, object],
    design: Mapping[str, object],
    owner: "User | None",
    metric: str = "",
    mode: str = "",
    name: str = "",
    tags: Iterable[str] = (),
    priority: int = 0,
    queue: str = "",
    project: str = "",
    idempotency_key: str = "",
) -> Study:
    """Submit the first trials, up to the parallel limit; with an error none.

    Values that the kind's config refuses (a slow average that is faster than the fast one) are left
    out and named in the study.

    Raises ConfigError: an unknown kind, a wrong design (as `design.…`), or no usable values.
    Raises LimitReached: the operations or studies exceed a limit of the owner.
    """
    clean_tags(tags), clean_label(queue)
    submission = {"tags": list(tags), "priority": priority, "queue": queue}
    project = projects.clean(project)
    in_project = {"project": project} if project else {}  # else as it was without projects
    asked = canonical_hash(
        {"kind": kind, "config": config, "design": design, "name": name, "metric": metric,
         "mode": mode, **submission, **in_project}
    )  # fmt: skip
    if first := _created_before(asked, owner, idempotency_key):
        return first
    projects.require_member(project, owner)
    KINDS.require_computed(kind)
    wanted = planning.completed(planning.parse(design), kind, config)
    metric, mode = planning.judged_by(kind, config, metric, mode)
    planning.require_distinct(wanted, metric)
    study_id = f"st_{timezone.now():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
    plan = planning.plan(study_id, kind, config, wanted)
    limits.require_studies(owner)
    limits.require_active(owner, plan.num_first)
    study = Study(
        id=study_id, kind=kind, recipe=str(config.get("recipe", "")), owner=owner,
        name=clean_name(name) or f"study of {config.get('recipe') or kind}",
        config=dict(config), design=wanted.model_dump(mode="json"), submission=submission,
        project=project,
        metric=metric, mode=mode, left_out=list(plan.left_out)[:asking.SHOWN_LEFT_OUT],
        folds=[fold.to_json() for fold in plan.folds],
        num_planned=len(plan.parts) + len(plan.folds),
        num_trials=plan.num_trials, max_seconds=wanted.max_seconds,
        idempotency_key=idempotency_key, request_hash=asked if idempotency_key else "",
    )  # fmt: skip
    try:
        with transaction.atomic():
            study.save(force_insert=True)
            for made, part in plan.parts:
                submit_part(study, made, part)
            if plan.num_trials and not asking.fill(study) and study.left_out:
                planning.require_usable(study, study.left_out[-1]["values"])
    except IntegrityError:
        if first := _created_before(asked, owner, idempotency_key):
            return first  # the same request, a moment earlier
        raise
    return get(study_id)


def cancel(*, study_id: str, actor: "User") -> int:
    """Cancel all of its operations that have not ended; no more are submitted. Returns how many."""
    return _stop(get(study_id), services.cancel, actor)


def kill(*, study_id: str, actor: "User | None") -> int:
    """Kill all of its operations that have not ended; no more are submitted. Returns how many."""
    return _stop(get(study_id), services.kill, actor)


def resume(*, study_id: str, actor: "User", accept_inexact: bool = False) -> int:
    """Resume what failed or was cancelled, where there is a checkpoint; else submit it anew.

    Pruned operations are left as they are: each can be resumed on its own. Returns how many go on.
    Raises LimitReached, and NotAllowed where files of the recipe differ from those of a newest
    checkpoint, unless that is accepted; nothing is changed then.
    """
    study = get(study_id)
    resumable = study.operations.filter(state__in=RESUMABLE).exclude(reason=Reason.PRUNED)
    limits.require_active(study.owner, resumable.count())
    if not accept_inexact:
        _require_same_code(resumable)
    num_resumed = 0
    for operation in resumable:
        try:
            services.resume(operation_id=operation.pk, actor=actor, accept_inexact=accept_inexact)
        except CheckpointNotFound:
            _begin_anew(study, operation, actor)
        except DomainError as refusal:  # another request was faster, or its bytes were altered
            logger.info("%s is not resumed: %s", operation.pk, refusal)
            continue
        num_resumed += 1
    Study.objects.filter(pk=study.pk).update(stopped_at=None)
    advance(study_id)
    return num_resumed


def _require_same_code(operations: Iterable[Operation]) -> None:
    changed = set()
    for operation in operations:
        for newest in checkpoints.to_resume_from(operation.pk)[:1]:
            changed.update(changed_code.of(operation, newest))
    if changed:
        raise changed_code.refusal("A resume of the study", sorted(changed))


def _begin_anew(study: Study, operation: Operation, actor: "User") -> None:
    part = InStudy(study.pk, operation.study_values, operation.fold, operation.is_test)
    with transaction.atomic():
        before = Study.objects.select_for_update().get(pk=study.pk)
        suggestions = list(operation.suggestions.values_list("pk", flat=True))
        deletion.delete(operation_id=operation.pk, actor=actor)
        begun = submit_part(study, operation.config_given, part)
        study.suggestions.filter(pk__in=suggestions).update(operation=begun)
        before.save(update_fields=["folds", "left_out"])  # the fold of a test is not given up


def extend(*, study_id: str, trials: int, actor: "User", seconds: float = 0) -> int:
    """Continue a study with more trials, and with more compute time if it is limited.

    Returns how many operations were submitted at once: up to the parallel limit and the limit of
    the owner, the others follow. Raises NotAllowed, LimitReached where not one is allowed.
    """
    if not 0 <= seconds < math.inf:  # also where it is NaN
        raise ConfigError({"seconds": f"got {seconds}; allowed: a finite number from 0 on"})
    study = get(study_id)
    if not asking.may_extend(study):
        got = "walk-forward analysis" if study.folds else study.design["method"]
        problem = f"got a {got}; allowed: studies with the method random, qmc, tpe or cmaes"
        raise NotAllowed("STUDY_NOT_EXTENDABLE", f"The study has no more trials: {problem}.")
    projects.require_member(study.project, actor)
    limits.require_active(study.owner)
    with transaction.atomic():
        study = Study.objects.select_for_update().get(pk=study_id)
        if trials < 1 or study.num_trials + trials > MAX_OPERATIONS:
            problem = f"got {trials}; allowed: 1 to {MAX_OPERATIONS - study.num_trials}"
            raise ConfigError({"trials": problem})
        study.num_trials += trials
        study.num_planned += trials
        study.stopped_at = None
        if study.max_seconds is not None:
            study.max_seconds += seconds
        study.save(update_fields=["num_trials", "num_planned", "stopped_at", "max_seconds"])
        logger.info("%s: %s more trials, by %s", study_id, trials, actor)
        return asking.fill(study)


def delete(*, study_id: str, actor: "User") -> int:
    """Delete it with all of its operations. Raises NotAllowed while one of them may still run."""
    study = get(study_id)
    with transaction.atomic():
        # Under the lock of `advance`, so that a deletion of its operations submits no others.
        Study.objects.select_for_update().filter(pk=study_id).first()
        active = study.operations.filter(state__in=ACTIVE).count()
        if active:
            raise NotAllowed(
                "STUDY_ACTIVE",
                f"{active} of its operations have not ended; cancel the study first, "
                "then delete it.",
                num_active=active,
            )
        Study.objects.filter(pk=study_id, stopped_at=None).update(stopped_at=timezone.now())
    for operation_id in study.operations.values_list("pk", flat=True):
        deletion.delete(operation_id=operation_id, actor=actor)
    study.delete()
    return 1


def _stop(study: Study, stop: StopRequest, actor: "User | None") -> int:
    with transaction.atomic():
        # Under the lock of `advance`: what it submits is stopped here, or it finds this.
        Study.objects.select_for_update().get(pk=study.pk)
        Study.objects.filter(pk=study.pk, stopped_at=None).update(stopped_at=timezone.now())
    num_stopped = 0
    for operation_id in study.operations.filter(state__in=ACTIVE).values_list("pk", flat=True):
        try:
            stop(operation_id=operation_id, actor=actor)
        except DomainError as refusal:  # it has ended meanwhile, or is being stopped already
            logger.info("%s is not stopped: %s", operation_id, refusal)
        else:
            num_stopped += 1
    return num_stopped


def _created_before(asked: str, owner: "User | None", key: str) -> Study | None:
    if not key:
        return None
    first = Study.objects.filter(owner=owner, idempotency_key=key).first()
    if first is not None and first.request_hash != asked:
        raise NotAllowed(
            "IDEMPOTENCY_KEY_REUSED",
            f"This Idempotency-Key was already used for {first.pk}, with a different request.",
            study_id=first.pk,
        )
    return first
