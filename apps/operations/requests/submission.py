"""From what a person wants to a row: validated, written down once, and a worker woken."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.operations import inputs
from apps.operations.errors import NotAllowed
from apps.operations.ids import new_id
from apps.operations.models import MAX_NAME_LENGTH, DatasetUse, Operation, Tag
from apps.operations.placement import need_of
from apps.operations.requests import limits, projects
from apps.operations.requests.initial_checkpoints import InitialCheckpoint
from apps.operations.scheduling.dispatch import dispatch
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError
from trainops.runtime.labels import LABEL_RULE, is_label
from trainops.text import name_problem
from trainops.tracing import TRACING

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Path in the config -> the threshold that it takes where nothing is given.
DEFAULTS = {"checkpoint.every_seconds": "checkpoint_time_interval_seconds"}
MAX_TAGS, MAX_TAG_LENGTH = 20, 64


@dataclass(frozen=True, slots=True)
class InStudy:
    """Which part of a study an operation is."""

    study_id: str
    values: Mapping[str, object]
    fold: int = 0
    is_test: bool = False


class StudyFields(TypedDict, total=False):
    """The fields of an operation that name its place in a study."""

    study_id: str
    study_values: dict[str, object]
    fold: int
    is_test: bool


@dataclass(frozen=True, slots=True)
class SubmissionRequest:
    """All that was asked for; an Idempotency-Key stands for exactly this."""

    kind: str
    config: Mapping[str, object]
    name: str
    tags: Sequence[str]
    priority: int
    queue: str
    project: str

    @property
    def hash(self) -> str:
        asked = asdict(self)
        if not self.project:  # as before there were projects in requests
            del asked["project"]
        return canonical_hash(asked)


def submit(
    *,
    kind: str,
    config: Mapping[str, object],
    owner: "User | None",
    name: str = "",
    tags: Iterable[str] = (),
    priority: int = 0,
    queue: str = "",
    project: str = "",
    idempotency_key: str = "",
    initial_checkpoint: InitialCheckpoint | None = None,
    part: InStudy | None = None,
) -> Operation:
    """Validate a submission and store it; workers are notified once it is committed.

    The same owner's same `idempotency_key` returns the first operation again. With an
    `initial_checkpoint` the first attempt resumes from it. It may be a `part` of a study.

    Raises:
        ConfigError: unknown kind, recipe or parameter, wrong types, values out of range.
        NotAllowed: the key was used for something else, or the project has other members.
        LimitReached: the owner has as many waiting and running as allowed.
        DomainError: the file to begin with is not usable; nothing is left of it.
    """
    label = clean_label(queue)
    wanted = SubmissionRequest(
        kind, config, clean_name(name), clean_tags(tags), priority, label, projects.clean(project)
    )
    if first := _submitted_before(wanted, owner, idempotency_key):
        return first
    if part is None:  # of a study, when it is submitted
        projects.require_member(wanted.project, owner)
    KINDS.require_computed(kind)
    parsed = KINDS[kind].parse_config(with_platform_defaults(kind, config))
    if part is None:  # a study is counted as a whole, before it is written
        limits.require_active(owner)
    operation_id = new_id(kind)
    person = owner.get_username() if owner else ""
    with _with_initial_checkpoint(initial_checkpoint, operation_id, kind, parsed, person) as begin:
        try:
            with transaction.atomic():
                operation = _write(operation_id, wanted, parsed, owner, idempotency_key, part)
                begin(operation)
                transaction.on_commit(partial(dispatch, operation.pk, kind, label))
        except IntegrityError:
            if first := _submitted_before(wanted, owner, idempotency_key):
                return first  # the same request, a moment earlier
            raise
    return Operation.objects.select_related("owner").get(pk=operation.pk)


@contextmanager
def _with_initial_checkpoint(
    initial_checkpoint: InitialCheckpoint | None,
    operation_id: str,
    kind: str,
    parsed: OperationConfig,
    person: str,
) -> Iterator[Callable[[Operation], None]]:
    """Make the files that an operation begins with; they are gone again if it is not written."""
    if initial_checkpoint is None:
        yield lambda operation: None
        return
    inputs.check(KINDS[kind].dataset_ids(parsed), parsed)
    initial_checkpoint.prepare(operation_id, kind, parsed, person=person)
    try:
        yield initial_checkpoint.commit
    except BaseException:
        initial_checkpoint.discard(operation_id)
        raise


def _submitted_before(
    wanted: SubmissionRequest, owner: "User | None", key: str
) -> Operation | None:
    if not key:
        return None
    first = Operation.objects.filter(owner=owner, idempotency_key=key).first()
    if first is not None and first.request_hash not in ("", wanted.hash):
        raise NotAllowed(
            "IDEMPOTENCY_KEY_REUSED",
            f"This Idempotency-Key was already used for {first.pk}, with a different request.",
            operation_id=first.pk,
        )
    return first


def _write(
    operation_id: str,
    wanted: SubmissionRequest,
    parsed: OperationConfig,
    owner: "User | None",
    key: str,
    part: InStudy | None,
) -> Operation:
    engine = KINDS[wanted.kind]
    dataset_ids = engine.dataset_ids(parsed)
    inputs.check(dataset_ids, parsed)
    config = parsed.model_dump(mode="json")
    recipe = config.get("recipe", "")
    need = need_of(parsed)
    operation = Operation.objects.create(
        id=operation_id,
        kind=wanted.kind,
        recipe=recipe,
        name=wanted.name or f"{recipe or wanted.kind} {timezone.now():%b %d %H:%M}",
        owner=owner,
        config_given=wanted.config,
        config=config,
        config_hash=canonical_hash(config),
        priority=wanted.priority,
        queue=wanted.queue,
        project=wanted.project,
        device=need.device,
        gpu_memory_bytes=need.gpu_memory_bytes,
        memory_bytes=need.memory_bytes,
        takes_slot=need.takes_slot,
        processes=need.processes,
        nodes=need.nodes,
        min_nodes=need.min_nodes,
        first_checkpoint_seconds=need.first_checkpoint_seconds,
        uses_datasets=need.uses_datasets,
        idempotency_key=key,
        request_hash=wanted.hash if key else "",
        unit=engine.unit,
        traceparent=TRACING.current(),
        **_of_study(part),
    )
    Tag.objects.bulk_create(Tag(operation=operation, name=tag) for tag in wanted.tags)
    DatasetUse.objects.bulk_create(
        DatasetUse(operation=operation, dataset_id=each) for each in dataset_ids
    )
    inputs.use_models(operation, parsed)
    operation.record("SUBMITTED", actor=owner.get_username() if owner else "system")
    return operation


def _of_study(part: InStudy | None) -> StudyFields:
    if part is None:
        return {}
    return {
        "study_id": part.study_id,
        "study_values": dict(part.values),
        "fold": part.fold,
        "is_test": part.is_test,
    }


def canonical_hash(asked: Mapping[str, object]) -> str:
    """Return the SHA-256 of the canonical JSON: sorted keys, no spaces."""
    canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def with_platform_defaults(kind: str, config: Mapping[str, object]) -> Config:
    """Fill in how often this installation saves, where the person did not say."""
    filled = dict(config)
    of_kind = {each.field: each.name for each in KINDS[kind].thresholds}
    for path, threshold in (DEFAULTS | of_kind).items():
        section, name = path.split(".")
        given = filled.get(section, {})
        if isinstance(given, Mapping):  # else the config's own validation says what is wrong
            filled[section] = {name: getattr(settings.THRESHOLDS, threshold), **given}
    return filled


def clean_name(name: str) -> str:
    if len(name) > MAX_NAME_LENGTH:
        raise ConfigError({"name": f"has {len(name)} characters; at most {MAX_NAME_LENGTH}"})
    if problem := name_problem(name):
        raise ConfigError({"name": problem})
    return name.strip()


def clean_tags(tags: Iterable[str]) -> list[str]:
    cleaned = sorted({tag.strip() for tag in tags if tag.strip()})
    if len(cleaned) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in cleaned):
        raise ConfigError({"tags": f"at most {MAX_TAGS} tags of {MAX_TAG_LENGTH} characters each"})
    if problem := next(filter(None, map(name_problem, cleaned)), ""):
        raise ConfigError({"tags": problem})
    return cleaned


def clean_label(label: str) -> str:
    if not is_label(label):
        raise ConfigError({"queue": f"got {label[:80]!r}; {LABEL_RULE}"})
    return label
