"""What people can ask of operations: one call per wish, keywords only."""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unicodedata import category

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.dispatch import dispatch
from apps.operations.errors import CheckpointNotFound, NotAllowed, OperationNotFound
from apps.operations.lifecycle import ACTIVE, RESUMABLE, WAITING, Reason, State
from apps.operations.models import DatasetUse, Operation, Tag
from trainops.clock import DatabaseNow
from trainops.engines.config import OperationConfig
from trainops.engines.errors import ConfigError
from trainops.engines.registry import ENGINES

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_TAGS, MAX_TAG_LENGTH, MAX_NAME_LENGTH = 20, 64, 120


@dataclass(frozen=True, slots=True)
class Resumption:
    operation: Operation
    checkpoint: Checkpoint
    message: str  # e.g. "Training resumed from epoch 29"


def submit(
    *,
    kind: str,
    config: Mapping[str, Any],
    owner: "User | None",
    name: str = "",
    tags: Iterable[str] = (),
    priority: int = 0,
    queue: str = "",
    idempotency_key: str = "",
) -> Operation:
    """Validate and write down what a person wants; a worker is woken once it is committed.

    The same owner's same `idempotency_key` returns the first operation again.

    Raises:
        ConfigError: unknown kind, recipe or parameter, wrong types, values out of range.
    """
    if first := _by_key(owner, idempotency_key):
        return first
    tags = _clean_tags(tags)
    if kind not in ENGINES:
        raise ConfigError({"kind": f"{kind!r} is not a kind; there are: {', '.join(ENGINES)}"})
    engine = ENGINES[kind]
    parsed = engine.parse_config(_with_house_defaults(kind, config))
    dataset_ids = engine.dataset_ids(parsed)
    validated = parsed.model_dump(mode="json")
    try:
        with transaction.atomic():
            _check_datasets(dataset_ids, parsed)
            operation = Operation.objects.create(
                id=new_id(kind),
                kind=kind,
                recipe=validated.get("recipe", ""),
                name=_clean_name(name)
                or f"{validated.get('recipe', kind)} {timezone.now():%b %d %H:%M}",
                owner=owner,
                config_given=config,
                config=validated,
                config_hash=config_hash(validated),
                priority=priority,
                queue=queue,
                idempotency_key=idempotency_key,
                unit=engine.unit,
            )
            Tag.objects.bulk_create(Tag(operation=operation, name=tag) for tag in tags)
            DatasetUse.objects.bulk_create(
                DatasetUse(operation=operation, dataset_id=each) for each in dataset_ids
            )
            operation.record("SUBMITTED", actor=_name(owner))
            transaction.on_commit(partial(dispatch, operation.pk))
    except IntegrityError:
        if first := _by_key(owner, idempotency_key):
            return first  # the same request, a moment earlier
        raise
    return get(operation.pk)


def get(operation_id: str) -> Operation:
    try:
        return Operation.objects.select_related("owner").get(pk=operation_id)
    except Operation.DoesNotExist:
        raise OperationNotFound(operation_id) from None


def cancel(*, operation_id: str, actor: "User") -> Operation:
    """Ask it to save a checkpoint at its next safe point and stop; at once if nobody runs it."""
    return _stop(operation_id, actor, Operation.Stop.CANCEL, Reason.CANCELLED_BY_PERSON)


def kill(*, operation_id: str, actor: "User") -> Operation:
    """Stop it now: the last committed checkpoint stands, the work since then is lost."""
    return _stop(operation_id, actor, Operation.Stop.KILL, Reason.KILLED_BY_PERSON)


def _stop(operation_id: str, actor: "User", how: Operation.Stop, reason: Reason) -> Operation:
    operation = get(operation_id)
    name = _name(actor)
    waiting = operation.row.filter(state__in=WAITING)
    if waiting.move(State.CANCELLED, actor=name, note="it was waiting", reason=reason):
        return get(operation_id)
    with transaction.atomic():
        asked = operation.row.filter(state=State.RUNNING)
        if how is Operation.Stop.CANCEL:
            asked = asked.filter(stop_requested="")
        else:
            asked = asked.exclude(stop_requested=Operation.Stop.KILL)
        if asked.update(
            stop_requested=how, stop_requested_at=DatabaseNow(), stop_requested_by=name
        ):
            operation.record(f"{how.upper()}_REQUESTED", actor=name)
            return get(operation_id)
    operation = get(operation_id)
    if operation.state in WAITING:  # handed back between the two questions
        return _stop(operation_id, actor, how, reason)
    raise _cannot_stop(operation, how)


def _cannot_stop(operation: Operation, how: Operation.Stop) -> NotAllowed:
    if operation.state == State.RUNNING:
        return NotAllowed(
            "ALREADY_STOPPING",
            f"{operation.stop_requested_by} already asked to {operation.stop_requested} it; "
            "it stops at its next safe point.",
            current_status=operation.state,
        )
    return NotAllowed(
        f"OPERATION_NOT_{'CANCELLABLE' if how is Operation.Stop.CANCEL else 'KILLABLE'}",
        f"It is {operation.state}: only what waits or runs can be stopped.",
        current_status=operation.state,
        allowed_statuses=sorted(ACTIVE),
    )


def resume(*, operation_id: str, actor: "User", checkpoint_id: str = "") -> Resumption:
    """Continue the same operation from its newest healthy checkpoint, or from a chosen one.

    Its bytes are verified first: an altered checkpoint is marked and the next older one is used,
    unless it was chosen by name. A refused resume leaves the operation exactly as it was.
    """
    operation = get(operation_id)
    _require_resumable(operation)
    checkpoint, skipped = _first_healthy(operation, checkpoint_id)
    note = f"from the {checkpoint}" + "".join(f"; {problem}" for problem in skipped)
    with transaction.atomic():
        moved = operation.row.filter(state__in=RESUMABLE).move(
            State.RESUMING,
            actor=_name(actor),
            note=note,
            reason=Reason.NONE,
            error=None,
            not_before=None,
            restarts_used=0,
            resume_from=checkpoint_id,
            step=checkpoint.step,
        )
        if not moved:
            _require_resumable(get(operation_id))
            raise NotAllowed(
                "OPERATION_NOT_RESUMABLE", "Somebody else changed it meanwhile; look again."
            )
        # Deleting locks the same row: it was before, and is seen here, or it is refused.
        if not Checkpoint.objects.filter(pk=checkpoint.pk).exists():
            raise CheckpointNotFound(operation_id, checkpoint_id)
        transaction.on_commit(partial(dispatch, operation_id))
    return Resumption(
        get(operation_id),
        checkpoint,
        f"{kind_label(operation)} resumed from {position(checkpoint, operation)}",
    )


def _require_resumable(operation: Operation) -> None:
    if operation.state not in RESUMABLE:
        raise NotAllowed(
            "OPERATION_NOT_RESUMABLE",
            f"It is {operation.state}: only {' and '.join(sorted(RESUMABLE))} operations resume.",
            current_status=operation.state,
            resumable_statuses=sorted(RESUMABLE),
        )


def _first_healthy(operation: Operation, checkpoint_id: str) -> tuple[Checkpoint, list[str]]:
    """Return the checkpoint to resume from and what was wrong with newer ones."""
    skipped: list[str] = []
    problem = None
    for checkpoint in checkpoints.to_resume_from(operation.pk, checkpoint_id):
        problem = checkpoints.check(checkpoint)
        if problem is None:
            return checkpoint, skipped
        skipped.append(f"the one at step {checkpoint.step} is corrupted ({problem})")
        operation.record("CHECKPOINT_CORRUPTED", actor="verification", note=str(problem))
    if problem is None:
        raise _nothing_to_resume_from(operation, checkpoint_id)
    raise NotAllowed(
        "CHECKPOINT_CORRUPTED",
        "The bytes of its checkpoints are not what was saved; nothing was changed.",
        missing_artifacts=problem.missing,
        altered_artifacts=problem.altered,
    )


def _nothing_to_resume_from(operation: Operation, checkpoint_id: str) -> Exception:
    mine = Checkpoint.objects.filter(operation=operation, health=Checkpoint.Health.CORRUPTED)
    if checkpoint_id:
        mine = mine.filter(pk=checkpoint_id)
    if known := mine.newest_first().first():
        return NotAllowed(
            "CHECKPOINT_CORRUPTED",
            f"The {known} is marked corrupted: {known.problem}",
            missing_artifacts=[],
            altered_artifacts=[],
            problem=known.problem,
        )
    return CheckpointNotFound(operation.pk, checkpoint_id)


def delete(*, operation_id: str, actor: "User") -> checkpoints.Freed:
    """Delete an operation with everything that belongs to it; refused while it may still run."""
    operation = get(operation_id)
    if operation.state in ACTIVE:
        raise NotAllowed(
            "OPERATION_ACTIVE",
            f"It is {operation.state}: cancel it first, then delete it.",
            current_status=operation.state,
        )
    with transaction.atomic():
        finished = operation.row.exclude(state__in=ACTIVE).select_for_update().first()
        if finished is None:
            raise NotAllowed("OPERATION_ACTIVE", "It was resumed a moment ago; cancel it first.")
        freed = checkpoints.delete(Checkpoint.objects.filter(operation_id=operation_id))
        finished.delete()
    return freed


def delete_checkpoints(
    *, operation_id: str, actor: "User", checkpoint_id: str = ""
) -> checkpoints.Freed:
    """Delete one checkpoint of an operation, or all; refused while it runs."""
    with transaction.atomic():
        # The lock makes a resume wait: it finds its checkpoint gone, or this finds it resumed.
        operation = Operation.objects.select_for_update().filter(pk=operation_id).first()
        if operation is None:
            raise OperationNotFound(operation_id)
        if operation.state in ACTIVE:
            raise NotAllowed(
                "OPERATION_ACTIVE",
                f"It is {operation.state}: its checkpoints are in use.",
                current_status=operation.state,
            )
        chosen = Checkpoint.objects.filter(operation_id=operation_id)
        if checkpoint_id:
            chosen = chosen.filter(pk=checkpoint_id)
            if not chosen.exists():
                raise CheckpointNotFound(operation_id, checkpoint_id)
        freed = checkpoints.delete(chosen)
        operation.record(
            "CHECKPOINTS_DELETED",
            actor=_name(actor),
            note=f"{freed.num_checkpoints} checkpoints, {freed.freed_bytes} bytes",
        )
    return freed


def new_id(kind: str) -> str:
    """Return e.g. op_training_20241213_143022_abc123: sortable, and safe in paths and URLs."""
    return f"op_{kind}_{timezone.now():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON: sorted keys, no spaces."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def kind_label(operation: Operation) -> str:
    return ENGINES[operation.kind].label


def position(checkpoint: Checkpoint, operation: Operation) -> str:
    """Return where a checkpoint stands, in the words of its kind: "epoch 29", "step 1500"."""
    epoch = checkpoint.state.get("epoch")
    return f"epoch {epoch}" if epoch is not None else f"{operation.unit} {checkpoint.step}"


def _by_key(owner: "User | None", key: str) -> Operation | None:
    return Operation.objects.filter(owner=owner, idempotency_key=key).first() if key else None


def _with_house_defaults(kind: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in how often this installation saves, where the person did not say."""
    given = config.get("checkpoint", {})
    if not isinstance(given, Mapping):
        return config  # the config's own validation says what is wrong
    limits = settings.THRESHOLDS
    house: dict[str, Any] = {"every_seconds": limits.checkpoint_time_interval_seconds}
    if kind == "training":
        house["every_epochs"] = limits.training_epoch_interval
    return {**config, "checkpoint": {**house, **given}}


def _check_datasets(dataset_ids: Sequence[str], config: OperationConfig) -> None:
    """Refuse what names datasets that are not there, or that do not fit."""
    if absent := datasets.missing(dataset_ids):
        raise ConfigError(
            {"parameters.dataset": f"there is no dataset {', '.join(absent)}; upload it first"}
        )
    if problems := config.check_columns(datasets.columns_of(dataset_ids)):
        raise ConfigError(problems)


def _clean_name(name: str) -> str:
    if len(name) > MAX_NAME_LENGTH:
        raise ConfigError({"name": f"has {len(name)} characters; at most {MAX_NAME_LENGTH}"})
    if odd := {character for character in name if category(character) in ("Cc", "Cf", "Cs")}:
        shown = ", ".join(sorted(f"U+{ord(each):04X}" for each in odd))
        raise ConfigError({"name": f"holds characters that nobody sees ({shown}); leave them out"})
    return name.strip()


def _clean_tags(tags: Iterable[str]) -> list[str]:
    cleaned = sorted({_clean_name(tag) for tag in tags if tag.strip()})
    if len(cleaned) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in cleaned):
        raise ConfigError({"tags": f"at most {MAX_TAGS} tags of {MAX_TAG_LENGTH} characters each"})
    return cleaned


def _name(person: "User | None") -> str:
    return person.get_username() if person else "system"
