"""What belongs to a person, what of it others use, and what stays."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Q, QuerySet

from apps.checkpoints.models import Checkpoint
from apps.datasets.models import DIRECTORY, Dataset, Upload
from apps.notifications.models import Delivery, Rule
from apps.operations.lifecycle import ACTIVE
from apps.operations.models import (
    DatasetUse,
    Event,
    ModelUse,
    Operation,
    PastUse,
    SavedView,
    Study,
)
from apps.operations.requests.initial_checkpoints import WarmStart
from apps.sinks.models import SinkWrite
from trainops.http.models import AuditEntry, Identity, SecondFactor, Token

AUDIT = "entries of the audit log"  # that have the name


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    id: str
    config_hash: str
    num_subtasks: int
    num_checkpoints: int
    checkpoint_bytes: int
    manifest_digests: list[str]
    subtasks: list[str] = field(default_factory=list)  # their files are in directories of their own

    @property
    def ids(self) -> list[str]:
        """Its own id and those of its subtasks."""
        return [self.id, *self.subtasks]

    def extended(self, later: "PlannedOperation") -> "PlannedOperation":
        """Return it with what a later look found in addition: parts may be gone by then."""
        digests = sorted({*self.manifest_digests, *later.manifest_digests})
        subtasks = sorted({*self.subtasks, *later.subtasks})
        return PlannedOperation(
            id=self.id,
            config_hash=self.config_hash,
            num_subtasks=max(self.num_subtasks, later.num_subtasks, len(subtasks)),
            num_checkpoints=max(self.num_checkpoints, later.num_checkpoints, len(digests)),
            checkpoint_bytes=max(self.checkpoint_bytes, later.checkpoint_bytes),
            manifest_digests=digests,
            subtasks=subtasks,
        )


@dataclass(frozen=True, slots=True)
class PlannedDataset:
    id: str
    digest: str
    size_bytes: int
    is_registered: bool  # its files are not in our storage, only its manifest
    used_by: list[str]  # operations of others
    num_other_owners: int = 0  # users that uploaded the same


@dataclass(slots=True)
class Plan:
    """What an erasure deletes, and what it leaves."""

    operations: list[PlannedOperation] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    datasets: list[PlannedDataset] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of rows that go, by what they are
    forks: list[str] = field(default_factory=list)  # operations of others that began from these
    warm_starts: list[str] = field(default_factory=list)  # … that started with their weights
    model_users: list[str] = field(default_factory=list)  # … that used their models
    sink_files: list[str] = field(default_factory=list)  # operations with files in sinks
    kept: dict[str, int] = field(default_factory=dict)  # numbers of rows that stay
    user_id: int | None = None  # of the account: another one may get its name
    left: list[str] = field(default_factory=list)  # datasets that have been left to others
    addresses: list[str] = field(default_factory=list)  # for mail, of the account

    @property
    def operation_ids(self) -> list[str]:
        """The ids of the operations and of their subtasks."""
        return [each for operation in self.operations for each in operation.ids]

    @property
    def shared(self) -> list[PlannedDataset]:
        """Datasets that operations of others use, and that only this user has uploaded."""
        return [
            each
            for each in self.datasets
            if each.used_by and not each.num_other_owners and each.id not in self.left
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Plan":
        return cls(
            **content
            | {
                "operations": [PlannedOperation(**each) for each in content["operations"]],
                "datasets": [PlannedDataset(**each) for each in content["datasets"]],
            }
        )

    def extended(self, later: "Plan") -> "Plan":
        """Return this plan with what a later look found in addition.

        Who uses a dataset is what the later look found.
        """
        operations = {each.id: each for each in self.operations}
        for each in later.operations:
            before = operations.get(each.id)
            operations[each.id] = before.extended(each) if before else each
        datasets = {each.id: each for each in (*self.datasets, *later.datasets)}
        numbers = {**later.numbers, **self.numbers}
        return Plan(
            operations=list(operations.values()),
            studies=sorted({*self.studies, *later.studies}),
            datasets=list(datasets.values()),
            numbers={name: max(each, later.numbers.get(name, 0)) for name, each in numbers.items()},
            forks=sorted({*self.forks, *later.forks}),
            warm_starts=sorted({*self.warm_starts, *later.warm_starts}),
            model_users=sorted({*self.model_users, *later.model_users}),
            sink_files=sorted({*self.sink_files, *later.sink_files}),
            kept={**self.kept, **later.kept},
            user_id=self.user_id or later.user_id,
            left=self.left,
            addresses=sorted({*self.addresses, *later.addresses}),
        )

    def without_account(self) -> "Plan":
        """Return this plan of a deleted account with who uses its datasets now."""
        own = Q(operation_id__in=self.operation_ids)
        now = {each.pk: _dataset(each, None, own) for each in datasets(None, self)}
        gone = (
            each if each.id in self.left else replace(each, used_by=[]) for each in self.datasets
        )
        return replace(self, datasets=[now.get(each.id, each) for each in gone])


def of(user: User) -> Plan:
    """Return what an erasure of a user's data would delete now."""
    own = Operation.objects.filter(owner=user, subtask=None)
    return Plan(
        operations=[_operation(each) for each in own.order_by("created_at", "pk")],
        studies=sorted(Study.objects.filter(owner=user).values_list("pk", flat=True)),
        datasets=[_dataset(each, user, Q(operation__owner=user)) for each in _datasets_of(user)],
        numbers=_numbers(user, own),
        forks=sorted(_of_others(user).filter(forked_from__in=own).values_list("pk", flat=True)),
        warm_starts=_warm_starts(user, own),
        model_users=sorted(
            set(_of_others(user).filter(models_used__source__in=own).values_list("pk", flat=True))
        ),
        sink_files=sorted(
            set(SinkWrite.objects.filter(operation__in=own).values_list("operation_id", flat=True))
        ),
        kept={
            AUDIT: num_audit_entries([user.username]),
            "days of compute hours, without a name": PastUse.objects.filter(owner=user).count(),
            "datasets of others that the user uploaded, too": Dataset.objects.filter(
                further_uploads__user=user
            )
            .exclude(pk__in=_datasets_of(user))
            .count(),
        },
        user_id=user.pk,
        addresses=_addresses(user),
    )


def num_audit_entries(names: Collection[str]) -> int:
    """Return how many entries of the audit log have one of the names, of actor or subject."""
    is_named = Q(actor__in=names)
    for name in names:
        is_named |= Q(details__user=name)
    return AuditEntry.objects.filter(is_named).count()


def mail_rules(addresses: Iterable[str], user_id: int | None) -> QuerySet[Rule]:
    """Return the rules of others that send to mail addresses of an account, and of no other one."""
    others = User.objects.all() if user_id is None else User.objects.exclude(pk=user_id)
    is_to_them = Q(pk__in=())
    for address in addresses:
        if not others.filter(email__iexact=address).exists():
            is_to_them |= Q(target__iexact=address)
    rules = Rule.objects.filter(is_to_them, channel=Rule.Channel.MAIL)
    return rules if user_id is None else rules.exclude(user=user_id)


def _addresses(user: User) -> list[str]:
    return [user.email] if user.email else []


def active(user: User | None, plan: Plan) -> QuerySet[Operation]:
    """Return what has not ended of the operations of a user, or of a plan without an account."""
    return Operation.objects.filter(owned(user, plan.operation_ids), subtask=None).active()


def owned(user: User | None, ids: Iterable[str]) -> Q:
    """Return what a user owns; of a deleted account: what is planned, and has no owner by now."""
    return Q(owner=user) if user is not None else Q(owner=None, pk__in=ids)


def datasets(user: User | None, plan: Plan) -> QuerySet[Dataset]:
    """Return the datasets of a user, or of a plan without an account, that are still to erase."""
    if user is not None:
        return _datasets_of(user)
    return Dataset.objects.filter(owned(None, [each.id for each in plan.datasets])).exclude(
        pk__in=plan.left
    )


def _datasets_of(user: User) -> QuerySet[Dataset]:
    """Return the user's datasets, and those without an owner that no other user uploaded."""
    uploaded = Q(further_uploads__user=user) | Q(uploads__owner=user)
    without_owner = Dataset.objects.filter(uploaded, owner=None).distinct()
    only = [each.pk for each in without_owner if not other_owners(each, user).exists()]
    return Dataset.objects.filter(Q(owner=user) | Q(pk__in=only))


def sessions_of(user: User) -> Iterator[Session]:
    for session in Session.objects.iterator(chunk_size=500):
        if session.get_decoded().get("_auth_user_id") == str(user.pk):
            yield session


def models_in_use(user: User) -> dict[str, list[str]]:
    """Return the operations of others that have not ended and use models, by the model."""
    uses = ModelUse.objects.filter(source__owner=user, operation__state__in=ACTIVE)
    found: dict[str, list[str]] = {}
    for source, used_by in uses.exclude(operation__owner=user).values_list("source", "operation"):
        found.setdefault(source, []).append(used_by)
    return found


def _warm_starts(user: User, own: QuerySet[Operation]) -> list[str]:
    """Return the operations of others that started with weights of these."""
    sources = set(own.values_list("pk", flat=True))
    events = Event.objects.filter(what=WarmStart.what).exclude(operation__owner=user)
    notes = events.values_list("operation_id", "note")
    return sorted({pk for pk, note in notes.iterator() if WarmStart.source_in(note) in sources})


def _operation(operation: Operation) -> PlannedOperation:
    both = Q(operation=operation) | Q(operation__subtask__parent=operation)
    rows = Checkpoint.objects.filter(both)
    digests = list(rows.order_by("pk").values_list("manifest_digest", "counted_size_bytes"))
    subtasks = Operation.objects.filter(subtask__parent=operation).order_by("pk")
    ids = list(subtasks.values_list("pk", flat=True))
    return PlannedOperation(
        id=operation.pk,
        config_hash=operation.config_hash,
        num_subtasks=len(ids),
        num_checkpoints=len(digests),
        checkpoint_bytes=sum(size for _, size in digests),
        manifest_digests=sorted({digest for digest, _ in digests}),
        subtasks=ids,
    )


def _dataset(dataset: Dataset, user: User | None, own: Q) -> PlannedDataset:
    """`own`: the uses by operations that are erased, too."""
    users = DatasetUse.objects.filter(dataset_id=dataset.pk).exclude(own)
    return PlannedDataset(
        id=dataset.pk,
        digest=dataset.digest,
        size_bytes=dataset.size_bytes,
        is_registered=dataset.format == DIRECTORY,
        used_by=sorted(users.values_list("operation_id", flat=True)),
        num_other_owners=other_owners(dataset, user).count(),
    )


def other_owners(dataset: Dataset, user: User | None) -> QuerySet[User]:
    """Return the users, but this one, that uploaded the same as the owner of a dataset."""
    has_it = Q(further_uploads__dataset=dataset) | Q(uploads__dataset=dataset)
    found = User.objects.filter(has_it).distinct().order_by("pk")
    return found if user is None else found.exclude(pk=user.pk)


def _numbers(user: User, own: QuerySet[Operation]) -> dict[str, int]:
    name = user.username
    return {
        "unfinished uploads": Upload.objects.filter(owner=user, dataset=None).count(),
        "tokens": Token.objects.filter(user=user).count(),
        "sessions": sum(1 for _ in sessions_of(user)),
        "second factors": SecondFactor.objects.filter(user=user).count(),
        "identities of a provider": Identity.objects.filter(user=user).count(),
        "notification rules": Rule.objects.filter(user=user).count(),
        "notifications": Delivery.objects.filter(_notified(user, own)).count(),
        "notification rules of others by mail to the user": mail_rules(
            _addresses(user), user.pk
        ).count(),
        "saved views": SavedView.objects.filter(owner=user).count(),
        "names in events of others": Event.objects.filter(actor=name)
        .exclude(operation__owner=user)
        .count(),
    }


def _notified(user: User, own: QuerySet[Operation]) -> Q:
    return Q(rule__user=user) | Q(operation_id__in=own.values("pk"))


def _of_others(user: User) -> QuerySet[Operation]:
    return Operation.objects.exclude(owner=user).filter(subtask=None)
