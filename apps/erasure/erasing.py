"""Erase the data of one person; what was killed in between is continued by the next call."""

import time
from collections.abc import Collection
from enum import StrEnum

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.checkpoints import cleaning
from apps.checkpoints.removals import REMOVALS
from apps.datasets import services as datasets
from apps.datasets import storage as dataset_files
from apps.datasets import usage
from apps.datasets.models import Dataset, FurtherUpload, Upload
from apps.datasets.uploads import services as uploads
from apps.erasure import certificates
from apps.erasure import plan as plans
from apps.erasure.backups import ListedBackup
from apps.erasure.errors import ErasureProblem, NotDone, UsedByOthers
from apps.erasure.plan import Plan
from apps.installation.models import Erasure
from apps.notifications import digests
from apps.notifications.bodies import DeliveryBody
from apps.notifications.models import Delivery, Rule
from apps.operations.files import exports
from apps.operations.models import Event, Operation, Study
from apps.operations.requests import deletion
from apps.operations.requests import services as operations
from apps.operations.studies import services as studies
from trainops.errors import DomainError
from trainops.http import audit
from trainops.http.models import Token

STOP_SECONDS = 120.0  # for the workers to end what still runs
LOOK_SECONDS = 0.5
ERASED = "erased user"  # in the place of the name


class Shared(StrEnum):
    """What becomes of datasets that operations of others use."""

    KEEP = "keep"  # without owner, name and file name
    DELETE = "delete"


def require_possible(user: User | None, plan: Plan, shared: Shared | None) -> None:
    """Raise ErasureProblem where others need what would be erased, or the last superuser goes."""
    if user is not None:
        _require_dispensable(user)
    if plan.shared and shared is None:
        names = ", ".join(each.id for each in plan.shared[:5])
        raise UsedByOthers(
            f"Operations of others use {len(plan.shared)} of the datasets ({names}). Say what "
            "becomes of them: --shared keep (without owner and names) or --shared delete."
        )
    if shared is Shared.DELETE:
        _require_unused(plan)


def _require_dispensable(user: User) -> None:
    """Raise ErasureProblem for the last superuser, and where others use models of the account."""
    superusers = User.objects.filter(is_superuser=True, is_active=True)
    if user.is_superuser and not superusers.exclude(pk=user.pk).exists():
        raise ErasureProblem(
            f"{user.username} is the only active superuser. Make another account a superuser first."
        )
    for source, used_by in plans.models_in_use(user).items():
        raise UsedByOthers(
            f"The model of {source} is in use by {', '.join(used_by[:5])} of others: cancel them "
            "or wait for them."
        )


def erase(
    username: str,
    *,
    shared: Shared | None = None,
    backups: list[ListedBackup],
    stop_seconds: float | None = None,
) -> Erasure:
    """Erase all that belongs to a user, and the account; return the row with the certificate.

    Raises ErasureProblem, and OSError where a storage is away; the next call continues.
    """
    user, plan = found(username)
    require_possible(user, plan, shared)
    row = Erasure.objects.filter(username=username, finished_at=None).first()
    if row is None:
        with transaction.atomic():
            row = Erasure.objects.create(username=username, plan=plan.to_json())
            audit.record("erasure begun", actor="", address="", erasure=row.pk)
    if user is not None:
        _close_account(user)
    _stop(user, plan, STOP_SECONDS if stop_seconds is None else stop_seconds)
    if user is not None:
        plan = plan.extended(plans.of(user))  # it may have saved or submitted until now
        Erasure.objects.filter(pk=row.pk).update(plan=plan.to_json())
        try:
            require_possible(user, plan, shared)
        except UsedByOthers as problem:
            raise NotDone(f"{problem} The account is disabled.") from problem
    _erase_operations(user, plan)
    _erase_datasets(row, user, plan, shared)
    _require_gone(plan)
    return _finish(row, user, plan, backups)


def found(username: str) -> tuple[User | None, Plan]:
    """Return the account, and what an erasure would erase, with what an unfinished one planned.

    The account is None where it was deleted during an erasure, also if another one has its name by
    now; it may have been renamed since the erasure began. Raises ErasureProblem where there is
    neither.
    """
    row = Erasure.objects.filter(username=username, finished_at=None).first()
    plan = Plan.from_json(row.plan) if row else Plan()
    accounts = User.objects.all()
    if plan.user_id is not None:
        user = accounts.filter(pk=plan.user_id).first()
    else:  # none has begun, or an earlier version began it
        user = accounts.filter(username=username).first()
    if user is None and row is None:
        raise ErasureProblem(f"There is no user {username!r}.")
    return user, plan.without_account() if user is None else plan.extended(plans.of(user))


def has_begun(username: str) -> bool:
    """Whether an erasure of the user is unfinished: something may be deleted already."""
    return Erasure.objects.filter(username=username, finished_at=None).exists()


def _close_account(user: User) -> None:
    """Let nothing further be submitted: no password, session or token is accepted."""
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(is_active=False)
        Token.objects.filter(user=user).delete()
    for session in plans.sessions_of(user):
        session.delete()


def _stop(user: User | None, plan: Plan, seconds: float) -> None:
    """Kill what has not ended: its result would be deleted anyway. Raises NotDone."""
    for study in Study.objects.filter(plans.owned(user, plan.studies)):
        studies.kill(study_id=study.pk, actor=user)
    active = plans.active(user, plan)
    deadline = time.monotonic() + seconds
    while left := list(active.values_list("pk", flat=True)):
        for operation_id in left:
            try:
                operations.kill(operation_id=operation_id, actor=user)
            except DomainError:
                continue  # it has ended meanwhile
        if time.monotonic() > deadline:
            raise NotDone(
                f"{len(left)} operations are still ending: {', '.join(left[:5])}. The account "
                "is disabled. Run the same command again to continue."
            )
        if active.exists():
            time.sleep(LOOK_SECONDS)


def _erase_operations(user: User | None, plan: Plan) -> None:
    ids = plan.operation_ids
    Delivery.objects.filter(operation_id__in=ids).delete()
    if user is not None:
        Rule.objects.filter(user=user).delete()
    own = Operation.objects.filter(plans.owned(user, ids), subtask=None)
    for operation_id in own.values_list("pk", flat=True):
        _erase_operation(operation_id, user)
    Study.objects.filter(plans.owned(user, plan.studies)).delete()
    for operation_id in ids:
        try:
            cleaning.remove_all_of(operation_id)
        except ValueError as error:  # something was saved meanwhile
            raise NotDone(f"{operation_id} is not deleted yet: {error}") from error
        exports.remove(operation_id)
    REMOVALS.join()


def _erase_operation(operation_id: str, user: User | None) -> None:
    # The audit log keeps the name of what is deleted: the id takes its place before.
    Operation.objects.filter(pk=operation_id).update(name=operation_id, notes="")
    try:
        deletion.delete(operation_id=operation_id, actor=user)
    except DomainError as error:
        raise NotDone(f"{operation_id} cannot be deleted yet: {error}") from error


def _erase_datasets(row: Erasure, user: User | None, plan: Plan, shared: Shared | None) -> None:
    if user is not None:
        _erase_uploads(user)
    kept = {each.id for each in plan.shared} if shared is Shared.KEEP else set()
    for dataset in plans.datasets(user, plan):
        with transaction.atomic():
            # An upload of the same file waits for the lock, and stores it anew then.
            Dataset.objects.select_for_update().filter(pk=dataset.pk).first()
            heir = plans.other_owners(dataset, user).first()
            if heir is not None or dataset.pk in kept:
                _leave(dataset, user, heir)
                plan.left.append(dataset.pk)
                Erasure.objects.filter(pk=row.pk).update(plan=plan.to_json())
                continue
            try:
                datasets.delete(dataset_id=dataset.pk)
            except DomainError as error:
                raise NotDone(f"The dataset {dataset.pk} cannot be deleted yet: {error}") from error


def _erase_uploads(user: User) -> None:
    for upload in Upload.objects.filter(owner=user, dataset=None):
        try:
            uploads.discard(upload.pk, owner=user)
        except DomainError as error:
            raise NotDone(f"The upload {upload.pk} is not deleted yet: {error}") from error


def _leave(dataset: Dataset, user: User | None, heir: User | None) -> None:
    """Leave a dataset to another user that uploaded it, too, or to none, without names."""
    Dataset.objects.filter(pk=dataset.pk).update(owner=heir, name=dataset.pk, filename="")
    FurtherUpload.objects.filter(dataset=dataset, user__in=filter(None, (user, heir))).delete()
    if user is not None:
        Upload.objects.filter(owner=user, dataset=dataset).delete()


def _require_unused(plan: Plan) -> None:
    for each in plan.shared:
        if users := usage.users_of(each.id):
            raise UsedByOthers(
                f"The dataset {each.id} is in use by {', '.join(users[:5])}, which have not ended."
            )


def _require_gone(plan: Plan) -> None:
    """Raise NotDone where files are still in the storages."""
    left = [each for each in plan.operation_ids if cleaning.has_files(each)]
    left += [
        each.id
        for each in plan.datasets
        if not Dataset.objects.filter(digest=each.digest).exists()
        and dataset_files.exists(each.digest)
    ]
    if left:
        raise NotDone(f"Files are left of {', '.join(left[:5])}. Run the same command again.")


def _finish(row: Erasure, user: User | None, plan: Plan, backups: list[ListedBackup]) -> Erasure:
    """Delete the account and write the certificate, both or none."""
    user_id = plan.user_id if user is None else user.pk
    account_ids = [] if user_id is None else [user_id]
    names = dict.fromkeys([row.username] if user is None else [row.username, user.username])
    datasets_kept = set(
        Dataset.objects.filter(pk__in=[each.id for each in plan.datasets]).values_list(
            "pk", flat=True
        )
    )
    with transaction.atomic():
        for name in names:
            _erase_name(
                name, User.objects.filter(username=name).exclude(pk__in=account_ids).first(), plan
            )
        LogEntry.objects.filter(user=user_id).delete()
        account = ContentType.objects.get_for_model(User)
        LogEntry.objects.filter(content_type=account, object_id=str(user_id)).delete()
        FurtherUpload.objects.filter(user_id__in=account_ids).delete()  # no constraint deletes them
        plans.mail_rules(plan.addresses, user_id).update(target="", is_active=False)
        if user is not None:
            user.delete()
        plan.kept[plans.AUDIT] = plans.num_audit_entries(list(names))
        audit.record("erasure finished", actor="", address="", erasure=row.pk)
        row.finished_at = timezone.now()
        row.certificate = certificates.of(row, plan, datasets_kept, backups)
        row.plan = {}
        row.save(update_fields=["finished_at", "certificate", "plan"])
    return row


def _erase_name(name: str, namesake: User | None, plan: Plan) -> None:
    """Erase a name of the account where others have it.

    What belongs to another account that has the name now is that account's, and rules by the name
    are about it.
    """
    theirs = Q(pk__in=()) if namesake is None else Q(owner=namesake)
    operations_of_others = Operation.objects.exclude(theirs)
    Event.objects.filter(actor=name, operation__in=operations_of_others).update(actor=ERASED)
    operations_of_others.filter(stop_requested_by=name).update(stop_requested_by=ERASED)
    by_name = Rule.objects.filter(owner=name)
    if namesake is None:
        by_name.update(owner=ERASED, is_active=False)
    elif kept := by_name.count():
        plan.kept[certificates.RULES_BY_NAME] = kept
    _erase_name_in_notifications(name, namesake, plan)


def _erase_name_in_notifications(name: str, namesake: User | None, plan: Plan) -> None:
    """Erase the name in notifications, and what they say of the operations of the account.

    Those are named by the plan, or were deleted by the user before.
    """
    theirs: set[str] = set()
    rows = Delivery.objects.all()
    if namesake is not None:
        own = Operation.objects.filter(owner=namesake)
        theirs = set(own.values_list("pk", flat=True))
        rows = rows.exclude(rule__user=namesake).exclude(operation_id__in=own.values("pk"))
    rows.filter(body__operation__owner=name).delete()
    ids = {*plan.operation_ids}
    for row in rows.filter(Q(body__actor=name) | Q(what=digests.WHAT)).iterator(chunk_size=500):
        body: DeliveryBody = row.body
        changed = _without(body, name, ids, theirs)
        if changed != body:
            Delivery.objects.filter(pk=row.pk).update(body=changed)


def _without(
    body: DeliveryBody, name: str, ids: Collection[str], theirs: Collection[str]
) -> DeliveryBody:
    """Return the body of a notification or digest without a name, and without operations.

    `theirs`: operations of another account that has the name now.
    """
    changed = body.copy()
    if changed.get("actor") == name:
        changed["actor"] = ERASED
    if "notifications" in changed:
        changed["notifications"] = [
            each if _operation_id(each) in theirs else _without(each, name, ids, theirs)
            for each in body["notifications"]
            if _operation_id(each) in theirs
            or (_operation_id(each) not in ids and _owner(each) != name)
        ]
    return changed


def _operation_id(body: DeliveryBody) -> str:
    return body["operation"].get("operation_id", "") if "operation" in body else ""


def _owner(body: DeliveryBody) -> str:
    return body["operation"].get("owner", "") if "operation" in body else ""
