"""Erasure of a user's data: nothing is left, others keep theirs, what was killed is continued."""

import json
from datetime import timedelta
from io import BytesIO

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core import serializers
from django.db import ProgrammingError
from django.test import Client
from django.utils import timezone

from apps.backups import making, snapshots
from apps.backups.store import opened
from apps.checkpoints import cleaning, storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.datasets import storage as dataset_files
from apps.datasets.models import Dataset, Upload
from apps.datasets.uploads import files as upload_files
from apps.datasets.uploads import services as uploads
from apps.erasure import backups, certificates, erasing
from apps.erasure import plan as plans
from apps.erasure.erasing import Shared
from apps.erasure.errors import ErasureProblem, NotDone, UsedByOthers
from apps.installation.models import BackupPlace, Erasure
from apps.notifications.models import Delivery, Rule
from apps.operations.lifecycle import State
from apps.operations.models import DatasetUse, Event, ModelUse, Operation, PastUse, SavedView, Study
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.operations import rows
from trainops.http import users
from trainops.http.models import AuditEntry, Identity, SecondFactor, Token
from trainops.http.roles import ensure_roles

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
TABLE = b"a,b\n1,2\n2,3\n"


@pytest.fixture(autouse=True)
def admin(in_process):
    return User.objects.create_superuser("ada", password="x")


@pytest.fixture
def ben():
    return User.objects.create_user("ben", "ben@example.org", "x")


@pytest.fixture
def cleo():
    return User.objects.create_user("cleo")


@pytest.fixture
def owned(ben, cleo):
    """Everything that a user can have."""
    operation = rows.in_state(State.CANCELLED, ben)
    operation.row.update(name="ben's secret plan")
    saved(operation, step=10), saved(operation, step=20)
    (storage.operation_directory(operation.pk) / "a0009-s0000000001-periodic").mkdir()  # no row
    dataset = datasets.add_table(BytesIO(TABLE), filename="ben.csv", name="ben's", owner=ben)
    Study.objects.create(
        pk="st_1", name="s", kind="training", owner=ben, config={}, design={}, submission={},
        metric="m", mode="min", num_planned=0,
    )  # fmt: skip
    upload = uploads.create(owner=ben, filename="part.csv", size_bytes=100)
    uploads.append(upload.pk, owner=ben, offset=0, num_bytes=4, content=BytesIO(b"a,b\n"))
    Token.objects.create(user=ben, expiry=None, name="ci")
    session = SessionStore()
    session["_auth_user_id"] = str(ben.pk)
    session.create()
    SecondFactor.objects.create(user=ben, secret="x")
    Identity.objects.create(user=ben, issuer="https://id.example.org", subject="1")
    rule = Rule.objects.create(name="r", user=ben, target="https://example.org")
    Delivery.objects.create(rule=rule, what="FAILED", body={})
    others_rule = Rule.objects.create(
        name="c", user=cleo, target="https://example.org", owner="ben"
    )
    Delivery.objects.create(
        rule=others_rule, what="FAILED", body={"name": "ben's"}, operation_id=operation.pk
    )
    SavedView.objects.create(owner=ben, name="mine")
    others = rows.in_state(State.CANCELLED, cleo)
    others.record("CANCEL_REQUESTED", actor="ben")
    saved(others)
    return operation, dataset, upload, others


def erase(**options):
    return erasing.erase("ben", backups=[], **options)


def test_nothing_is_left_of_a_user_and_others_keep_theirs(owned, ben, cleo):
    operation, dataset, upload, others = owned
    digest, part = dataset.digest, upload_files.path_of(upload.pk)
    assert dataset_files.exists(digest) and part.exists()
    row = erase()
    assert not User.objects.filter(username="ben").exists()
    assert not storage.operation_directory(operation.pk).exists()
    assert not dataset_files.exists(digest) and not part.exists()
    assert list(Operation.objects.values_list("pk", flat=True)) == [others.pk]
    assert storage.directory(Checkpoint.objects.get().artifacts_path).exists()
    for model in (
        Dataset,
        Upload,
        Study,
        Token,
        Session,
        SecondFactor,
        Identity,
        Delivery,
        SavedView,
    ):
        assert not model.objects.exists(), model
    assert list(Rule.objects.values_list("user__username", "owner", "is_active")) == [
        ("cleo", "erased user", False)
    ]
    assert not Event.objects.filter(actor="ben").exists()
    assert others.events.filter(actor="erased user").exists()
    assert not PastUse.objects.exclude(owner=None).exists()
    # The audit log stays, and holds nothing of what was in the operation.
    entries = json.dumps(list(AuditEntry.objects.values_list("details", flat=True)))
    assert operation.pk in entries and "secret plan" not in entries
    erased = row.certificate["erased"]
    assert [each["id"] for each in erased["operations"]] == [operation.pk]
    assert erased["operations"][0]["num_checkpoints"] == 2
    assert [each["id"] for each in erased["datasets"]] == [dataset.pk]
    assert erased["numbers"]["sessions"] == erased["numbers"]["tokens"] == 1


def test_the_address_and_the_name_are_nowhere_else(owned, ben, admin, cleo):
    ensure_roles()
    ben.groups.add(Group.objects.get(name="admin"))
    client = Client()
    client.force_login(ben)
    mail = Rule.Channel.MAIL
    Rule.objects.create(name="r", user=cleo, channel=mail, target="Ben@example.org")
    Worker.objects.create(worker_id="w1")
    response = client.post("/api/v1/workers/w1/drain", "{}", content_type="application/json")
    assert response.status_code == 200 and Worker.objects.get().drain_reason == "by ben"
    users.set_active(ben, False, by=admin)
    row = erase()
    left = {
        model._meta.label
        for model in apps.get_models()
        for each in model._default_manager.all()
        if "ben" in serializers.serialize("json", [each]).lower()
    }
    assert left == {"access.AuditEntry", "installation.Erasure"}
    rule = Rule.objects.get(channel=mail)
    assert (rule.target, rule.is_active) == ("", False)
    naming = [
        each for each in AuditEntry.objects.all() if "ben" in (each.actor, each.details.get("user"))
    ]
    assert {"user disabled"} < {each.event for each in naming}
    assert row.certificate["kept"]["entries of the audit log"] == len(naming)
    erased = row.certificate["erased"]["numbers"]
    assert erased["notification rules of others by mail to the user"] == 1


def test_an_address_that_another_user_has_stays_in_rules(owned, ben, cleo):
    User.objects.create_user("zoe", ben.email)
    Rule.objects.create(name="r", user=cleo, channel=Rule.Channel.MAIL, target=ben.email)
    erase()
    assert Rule.objects.get(target=ben.email).is_active


def test_a_certificate_is_signed_and_kept(owned):
    row = erase()
    kept = Erasure.objects.get().certificate
    assert kept == row.certificate and Erasure.objects.get().plan == {}
    assert certificates.signer_of(json.loads(json.dumps(kept))) == "this installation"
    assert "secret plan" not in json.dumps(kept)
    with pytest.raises(ErasureProblem, match="was altered"):
        certificates.signer_of({**kept, "user": "another"})
    with pytest.raises(ErasureProblem, match="allowed: trainops-erasure"):
        certificates.signer_of({"format": "x"})


STEPS = [
    "_close_account", "_stop", "_erase_operation", "_erase_operations", "cleaning.remove_all_of",
    "_erase_datasets", "datasets.delete", "_require_gone", "_finish", "certificates.of",
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_what_was_killed_in_between_is_finished_by_the_next_call(
    step, is_before, owned, monkeypatch
):
    """The process dies right before or right after a step has done its work."""
    operation, dataset, *_ = owned
    owner, _, name = step.rpartition(".")
    module = getattr(erasing, owner) if owner else erasing
    real = getattr(module, name)

    def killed(*arguments, **named):
        if not is_before:
            real(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(KeyboardInterrupt):
            erase()
    if (step, is_before) == ("_finish", False):
        return done(operation, dataset)
    assert User.objects.filter(username="ben").exists()
    row = erase()
    assert [each["id"] for each in row.certificate["erased"]["operations"]] == [operation.pk]
    assert row.certificate["erased"]["operations"][0]["num_checkpoints"] == 2
    assert [each["id"] for each in row.certificate["erased"]["datasets"]] == [dataset.pk]
    assert row.certificate["erased"]["numbers"]["tokens"] == 1
    return done(operation, dataset)


def done(operation, dataset):
    assert not User.objects.filter(username="ben").exists()
    assert not storage.operation_directory(operation.pk).exists()
    assert not dataset_files.exists(dataset.digest)
    assert Erasure.objects.get().finished_at is not None


def test_files_that_are_left_keep_the_erasure_unfinished(owned, monkeypatch):
    operation, *_ = owned
    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "remove_all_of", lambda operation_id: None)
        with pytest.raises(NotDone, match=f"Files are left of {operation.pk}"):
            erase()
    assert User.objects.filter(username="ben").exists()
    erase()
    assert not cleaning.has_files(operation.pk)


def test_shared_datasets_need_a_decision(owned, cleo):
    _, dataset, _, others = owned
    DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
    with pytest.raises(UsedByOthers, match=f"{dataset.pk}.*--shared keep"):
        erase()
    assert User.objects.get(username="ben").is_active  # nothing was changed
    row = erase(shared=Shared.KEEP)
    kept = Dataset.objects.get()
    assert (kept.owner, kept.name, kept.filename) == (None, dataset.pk, "")
    assert dataset_files.exists(dataset.digest)
    assert row.certificate["kept"]["datasets"] == [
        {"id": dataset.pk, "digest": dataset.digest, "used_by": [others.pk], "other owners": 0}
    ]
    assert row.certificate["erased"]["datasets"] == []


def test_shared_datasets_of_ended_operations_can_be_deleted(owned):
    _, dataset, _, others = owned
    DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
    others.row.update(state=State.PENDING)
    with pytest.raises(UsedByOthers, match="which have not ended"):
        erase(shared=Shared.DELETE)
    others.row.update(state=State.CANCELLED)
    erase(shared=Shared.DELETE)
    assert not dataset_files.exists(dataset.digest)


def test_a_dataset_that_others_use_since_the_plan_was_made_is_not_deleted(owned, monkeypatch):
    """An erasure that was interrupted continues with what is true now."""
    _, dataset, _, others = owned
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "_erase_operations", interrupted)
        with pytest.raises(KeyboardInterrupt):
            erase()
    DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
    row = erase(shared=Shared.KEEP)
    assert Dataset.objects.get().pk == dataset.pk and dataset_files.exists(dataset.digest)
    assert row.certificate["erased"]["datasets"] == []


def test_what_the_admin_noted_about_the_account_is_erased(owned, admin, ben, cleo):
    for person in (ben, cleo):
        LogEntry.objects.create(
            user=admin, object_id=str(person.pk), object_repr=person.username, action_flag=2,
            content_type=ContentType.objects.get_for_model(User),
        )  # fmt: skip
    erase()
    assert list(LogEntry.objects.values_list("object_repr", flat=True)) == ["cleo"]


def interrupted(*arguments, **named):
    raise KeyboardInterrupt


def test_a_dataset_that_others_use_since_the_account_was_closed_needs_a_decision(
    owned, monkeypatch
):
    _, dataset, _, others = owned
    real = erasing._stop

    def stop(*given):
        real(*given)
        DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)

    monkeypatch.setattr(erasing, "_stop", stop)
    with pytest.raises(NotDone, match=r"--shared keep.*The account is disabled"):
        erase()
    assert dataset_files.exists(dataset.digest)


def test_what_was_saved_until_the_end_of_an_operation_is_in_the_certificate(owned, monkeypatch):
    operation, *_ = owned
    real, found = erasing._stop, []

    def stop(*given):
        real(*given)
        found.append(saved(operation, step=30))

    monkeypatch.setattr(erasing, "_stop", stop)
    (erased,) = erase().certificate["erased"]["operations"]
    assert erased["num_checkpoints"] == 3
    assert found[0].manifest_digest in erased["manifest_digests"]


def test_files_of_subtasks_are_erased(owned, monkeypatch):
    operation, *_ = owned
    subtask = rows.subtask_of(operation, State.COMPLETED)
    saved(subtask)
    directory = storage.operation_directory(subtask.pk)
    (directory / "a0009-s0000000001-periodic").mkdir()  # no row
    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "remove_all_of", lambda operation_id: None)
        with pytest.raises(NotDone, match=f"Files are left of .*{subtask.pk}"):
            erase()
    row = erase()
    assert not directory.exists()
    assert row.certificate["erased"]["operations"][0]["subtasks"] == [subtask.pk]


def test_a_model_that_others_use_is_not_erased(owned):
    operation, *_, others = owned
    ModelUse.objects.create(operation=others, source=operation)
    others.row.update(state=State.PENDING)
    with pytest.raises(UsedByOthers, match=f"model of {operation.pk} is in use by {others.pk}"):
        erase()
    assert Operation.objects.filter(pk=operation.pk).exists()


def test_what_waits_is_stopped_and_what_does_not_end_keeps_the_account_disabled(ben):
    waiting, running = rows.in_state(State.PENDING, ben), rows.in_state(State.RUNNING, ben)
    with pytest.raises(NotDone, match=f"still ending: {running.pk}"):
        erase(stop_seconds=0)
    assert not User.objects.get(username="ben").is_active
    running.refresh_from_db()
    waiting.refresh_from_db()
    assert (running.stop_requested, waiting.state) == ("kill", State.CANCELLED)
    running.row.update(state=State.CANCELLED, lease_expires_at=None)
    erase()
    assert not Operation.objects.exists()


def test_the_only_superuser_and_unknown_users_are_refused(admin):
    with pytest.raises(ErasureProblem, match="the only active superuser"):
        erasing.erase("ada", backups=[])
    with pytest.raises(ErasureProblem, match="no user 'zoe'"):
        erasing.erase("zoe", backups=[])
    User.objects.create_superuser("eve", password="x")
    erasing.erase("ada", backups=[])
    assert list(User.objects.values_list("username", flat=True)) == ["eve"]


def test_the_plan_names_what_stays(owned, ben, cleo):
    operation, *_, others = owned
    others.row.update(forked_from=operation)
    plan = plans.of(ben)
    assert plan.forks == [others.pk]
    assert plan.numbers["names in events of others"] == 1
    again = plans.Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.extended(plan) == plan


def test_a_backup_is_complete_where_its_place_cannot_be_recorded(tmp_path, monkeypatch, caplog):
    """A database that is not migrated yet is backed up before it is."""

    def refused(*arguments, **named):
        raise ProgrammingError("no such table")

    monkeypatch.setattr(BackupPlace.objects, "update_or_create", refused)
    for _ in range(2):
        making.make(opened(str(tmp_path / "one"), None, tmp_path), keep=1)
    assert len(snapshots.newest_first(opened(str(tmp_path / "one"), None, tmp_path))) == 1
    assert "erase will not list the backups" in caplog.text


@pytest.mark.parametrize("is_mount_point_left", [True, False])
def test_backups_in_a_directory_that_is_not_mounted_are_listed(is_mount_point_left, ben, tmp_path):
    place = tmp_path / "one"
    making.make(opened(str(place), None, tmp_path))
    place.rename(tmp_path / "unmounted")
    if is_mount_point_left:
        place.mkdir()
    (found,) = backups.holding(
        ben.date_joined, backups.known_locations(), lambda each: opened(each, None, tmp_path)
    )
    assert (found.location, found.name) == (str(place), "")
    date = f"{timezone.now():%Y-%m-%d}"
    assert found.expires.startswith("unknown")
    assert f", though a backup was written on {date}" in found.expires


def test_backups_since_the_account_exists_are_listed_with_their_end(owned, ben, tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    for place, keep in zip(places, (2, None), strict=True):
        making.make(opened(str(place), None, tmp_path), keep=keep)
    assert set(backups.known_locations()) == {str(each) for each in places}
    gone = str(tmp_path / "gone" / "away")
    BackupPlace.objects.create(pk=gone)

    def held(joined_at):
        locations = backups.known_locations()
        return list(
            backups.holding(joined_at, locations, lambda each: opened(each, None, tmp_path))
        )

    found = {each.location: each for each in held(ben.date_joined)}
    assert "(--keep 2)" in found[str(places[0])].expires
    assert "never by itself" in found[str(places[1])].expires
    later = timezone.now() + timedelta(days=1)
    assert not {each.location for each in held(later)} & {str(each) for each in places}
    row = erasing.erase("ben", backups=list(found.values()))
    assert {each["location"] for each in row.certificate["backups"]} == {*found}


class TestAnotherUploaderOfTheSameFile:
    """The row of a dataset is of the first uploader; the file belongs to all."""

    def uploaded(self, cleo, by_parts):
        if not by_parts:
            return datasets.add_table(BytesIO(TABLE), filename="cleo.csv", owner=cleo)
        upload = uploads.create(owner=cleo, filename="cleo.csv", size_bytes=len(TABLE))
        content = BytesIO(TABLE)
        uploads.append(upload.pk, owner=cleo, offset=0, num_bytes=len(TABLE), content=content)
        return uploads.finish(upload.pk, owner=cleo)

    @pytest.mark.parametrize("by_parts", [False, True], ids=["whole", "parts"])
    @pytest.mark.parametrize("shared", [None, Shared.KEEP, Shared.DELETE])
    def test_keeps_it_without_the_names_of_the_erased_user(self, owned, cleo, by_parts, shared):
        _, dataset, _, others = owned
        self.uploaded(cleo, by_parts)
        DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
        row = erase(shared=shared)
        kept = Dataset.objects.get()
        assert (kept.pk, kept.owner, kept.name, kept.filename) == (dataset.pk, cleo, kept.pk, "")
        assert dataset_files.exists(dataset.digest)
        (named,) = row.certificate["kept"]["datasets"]
        assert (named["id"], named["other owners"]) == (dataset.pk, 1)
        assert "others have uploaded the same" in row.certificate["reasons"]["datasets"]
        assert row.certificate["erased"]["datasets"] == []
        erasing.erase("cleo", backups=[])  # the last one: now it goes
        assert not dataset_files.exists(dataset.digest)

    def test_is_erased_and_the_first_one_keeps_theirs(self, owned, ben, cleo):
        self.uploaded(cleo, by_parts=False)
        row = erasing.erase("cleo", backups=[])
        kept = Dataset.objects.get()
        assert (kept.owner, kept.name) == (ben, "ben's")
        assert not kept.further_uploads.exists()
        assert row.certificate["kept"]["datasets of others that the user uploaded, too"] == 1

    def test_after_a_deletion_stores_it_anew(self, owned, cleo):
        _, dataset, *_ = owned
        datasets.delete(dataset_id=dataset.pk)
        assert datasets._is_also_of(cleo, dataset) is False
        assert self.uploaded(cleo, by_parts=False).owner == cleo

    def test_erases_it_with_the_last_of_them_where_it_has_no_owner(self, owned, ben, cleo):
        _, dataset, *_ = owned
        self.uploaded(cleo, by_parts=False)
        ben.delete()
        row = erasing.erase("cleo", backups=[])
        assert not Dataset.objects.exists() and not dataset_files.exists(dataset.digest)
        assert [each["id"] for each in row.certificate["erased"]["datasets"]] == [dataset.pk]
        assert row.certificate["kept"]["datasets of others that the user uploaded, too"] == 0

    def test_leaves_it_to_the_others_where_it_has_no_owner(self, owned, admin, ben, cleo):
        _, dataset, *_ = owned
        self.uploaded(cleo, by_parts=False)
        datasets.add_table(BytesIO(TABLE), filename="ada.csv", owner=admin)
        ben.delete()
        row = erasing.erase("cleo", backups=[])
        assert [each.user for each in dataset.further_uploads.all()] == [admin]
        assert row.certificate["kept"]["datasets of others that the user uploaded, too"] == 1

    def test_loses_a_kept_one_with_the_user_that_uploaded_it_again(self, owned, cleo):
        _, dataset, _, others = owned
        others.row.update(owner=None)
        DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
        erase(shared=Shared.KEEP)
        self.uploaded(cleo, by_parts=True)
        with pytest.raises(UsedByOthers, match="--shared keep"):
            erasing.erase("cleo", backups=[])
        erasing.erase("cleo", backups=[], shared=Shared.KEEP)
        assert Dataset.objects.get().owner is None
        assert not dataset.further_uploads.exists() and not Upload.objects.exists()


class TestAnAccountThatWasDeletedDuringItsErasure:
    @pytest.fixture
    def interrupted_at(self, monkeypatch):
        def interrupt(step):
            with monkeypatch.context() as patch:
                patch.setattr(erasing, step, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    erase()

        return interrupt

    @pytest.mark.parametrize("step", ["_close_account", "_erase_operations", "_finish"])
    def test_is_erased_by_the_next_call(self, owned, admin, ben, interrupted_at, step):
        operation, dataset, *_ = owned
        Operation.objects.filter(pk=operation.pk).update(state=State.PENDING)
        interrupted_at(step)
        LogEntry.objects.create(
            user=admin, object_id=str(ben.pk), object_repr="ben", action_flag=3,
            content_type=ContentType.objects.get_for_model(User),
        )  # fmt: skip
        ben.delete()
        row = erase()
        done(operation, dataset)
        assert not Operation.objects.filter(pk=operation.pk).exists()
        assert not Study.objects.exists() and not Dataset.objects.exists()
        assert not Event.objects.filter(actor="ben").exists()
        assert not LogEntry.objects.exists()
        assert [each["id"] for each in row.certificate["erased"]["operations"]] == [operation.pk]

    def test_has_its_address_removed_from_rules_of_others(self, owned, ben, cleo, interrupted_at):
        mail = Rule.Channel.MAIL
        Rule.objects.create(name="r", user=cleo, channel=mail, target="Ben@example.org")
        interrupted_at("_erase_operations")
        ben.delete()
        row = erase()
        rule = Rule.objects.get(channel=mail)
        assert (rule.target, rule.is_active) == ("", False)
        assert "ben@example.org" not in json.dumps([row.certificate, row.plan])

    def test_leaves_the_address_in_rules_where_another_account_has_it(
        self, owned, ben, cleo, interrupted_at
    ):
        Rule.objects.create(name="r", user=cleo, channel=Rule.Channel.MAIL, target=ben.email)
        interrupted_at("_erase_operations")
        ben.delete()
        User.objects.create_user("zoe", ben.email)
        erase()
        assert Rule.objects.get(target=ben.email).is_active

    def test_leaves_another_account_of_the_same_name_alone(self, owned, ben, cleo, interrupted_at):
        operation, dataset, *_ = owned
        interrupted_at("_erase_operations")
        ben.delete()
        second = User.objects.create_user("ben")
        theirs = rows.in_state(State.CANCELLED, second)
        theirs.record("CANCEL_REQUESTED", actor="ben")
        theirs.row.update(stop_requested_by="ben")
        own_rule = Rule.objects.create(name="o", user=second, target="m@x.org", owner="ben")
        Delivery.objects.create(rule=own_rule, what="FAILED", body=notification(theirs, "ben"))
        rule = Rule.objects.create(name="d", user=cleo, target="https://example.org", owner="ben")
        about = notification(theirs, "ben")
        digest = {"event": "DIGEST", "counts": {}, "notifications": [about]}
        Delivery.objects.create(rule=rule, what="DIGEST", body=digest)
        Delivery.objects.create(rule=rule, what="FAILED", body=about, operation_id=theirs.pk)
        row = erase()
        assert User.objects.get(username="ben").is_active
        assert Operation.objects.get(pk=theirs.pk).stop_requested_by == "ben"
        assert theirs.events.filter(actor="ben").exists()
        assert not Operation.objects.filter(pk=operation.pk).exists()
        assert not Event.objects.filter(actor="ben").exclude(operation=theirs).exists()
        assert not Dataset.objects.filter(pk=dataset.pk).exists()
        assert all(Rule.objects.filter(owner="ben").values_list("is_active", flat=True))
        assert [each.body for each in own_rule.deliveries.all()] == [about]
        assert [each.body for each in rule.deliveries.order_by("pk")] == [digest, about]
        assert row.certificate["kept"][certificates.RULES_BY_NAME] == 3
        assert certificates.RULES_BY_NAME in row.certificate["reasons"]

    @pytest.mark.parametrize("shared", [None, *Shared])
    def test_still_needs_a_decision_about_shared_datasets(self, owned, ben, interrupted_at, shared):
        _, dataset, _, others = owned
        interrupted_at("_erase_operations")
        DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
        ben.delete()
        if shared is None:
            with pytest.raises(UsedByOthers, match=f"{dataset.pk}.*--shared keep"):
                erase()
        else:
            erase(shared=shared)
        assert Dataset.objects.exists() is (shared is not Shared.DELETE)
        assert dataset_files.exists(dataset.digest) is (shared is not Shared.DELETE)

    @pytest.mark.parametrize("shared", [None, Shared.DELETE])
    def test_leaves_what_was_kept_before(self, owned, ben, monkeypatch, shared):
        _, dataset, _, others = owned
        DatasetUse.objects.create(operation=others, dataset_id=dataset.pk)
        with monkeypatch.context() as patch:
            patch.setattr(erasing, "_finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                erase(shared=Shared.KEEP)
        ben.delete()
        row = erase(shared=shared)
        assert dataset_files.exists(dataset.digest)
        (kept,) = row.certificate["kept"]["datasets"]
        assert (kept["id"], kept["used_by"]) == (dataset.pk, [others.pk])


@pytest.mark.parametrize("has_namesake", [False, True])
def test_an_account_that_was_renamed_during_its_erasure_is_erased(
    owned, ben, monkeypatch, has_namesake
):
    operation, dataset, _, others = owned
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "_erase_operations", interrupted)
        with pytest.raises(KeyboardInterrupt):
            erase()
    User.objects.filter(pk=ben.pk).update(username="benjamin")
    others.record("CANCEL_REQUESTED", actor="benjamin")
    if has_namesake:
        User.objects.create_user("ben")
    erase()
    assert not storage.operation_directory(operation.pk).exists()
    assert not dataset_files.exists(dataset.digest)
    assert not User.objects.filter(pk=ben.pk).exists()
    assert User.objects.filter(username="ben").exists() is has_namesake
    assert not Event.objects.filter(actor__in=["ben", "benjamin"]).exists()


def notification(operation, owner):
    about = {"operation_id": operation.pk, "name": "a name", "owner": owner}
    return {"event": "FAILED", "actor": "ben", "operation": about}


def test_notifications_about_operations_that_the_user_deleted_before_are_erased(owned, cleo):
    *_, others = owned
    deleted = rows.in_state(State.CANCELLED)
    gone, theirs = notification(deleted, "ben"), notification(others, "cleo")
    rule = Rule.objects.create(name="d", user=cleo, target="https://example.org")
    digest = {"event": "DIGEST", "counts": {"FAILED": 2}, "notifications": [gone, theirs]}
    Delivery.objects.create(rule=rule, what="FAILED", body=gone, operation_id=deleted.pk)
    Delivery.objects.create(rule=rule, what="DIGEST", body=digest)
    deleted.delete()
    erase()
    (left,) = Delivery.objects.filter(rule=rule)
    assert left.body["notifications"] == [theirs | {"actor": "erased user"}]


def test_the_audit_log_has_the_erasure_by_its_number_and_nothing_of_the_user(owned):
    before = set(AuditEntry.objects.values_list("pk", flat=True))
    row = erase()
    entries = AuditEntry.objects.exclude(pk__in=before)
    found = {each.event: each.details for each in entries}
    assert found["erasure begun"] == found["erasure finished"] == {"erasure": str(row.pk)}
    text = json.dumps(list(entries.values_list("event", "actor", "address", "details")))
    assert "ben" not in text and "secret plan" not in text


def test_operations_of_others_that_used_weights_and_models_are_named(owned):
    operation, *_, others = owned
    others.record("WARM_STARTED", actor="cleo", note=f"weights of {operation.pk}, step 3; same")
    ModelUse.objects.create(operation=others, source=operation)
    kept = erase().certificate["kept"]
    assert kept["operations of others that started with erased weights"] == [others.pk]
    assert kept["operations of others that used erased models"] == [others.pk]


def test_digests_of_others_lose_erased_operations_and_the_name(owned, cleo):
    operation, *_, others = owned
    rule = Rule.objects.create(name="d", user=cleo, target="https://example.org", digest_hour=7)

    def about(which, name):
        about_it = {"operation_id": which.pk, "name": name, "owner": "x"}
        return {"event": "FAILED", "actor": "ben", "operation": about_it}

    items = [about(operation, "ben's secret plan"), about(others, "cleo's")]
    body = {"event": "DIGEST", "counts": {"FAILED": 2}, "notifications": items}
    Delivery.objects.create(rule=rule, what="DIGEST", body=body)
    Delivery.objects.create(rule=rule, what="FAILED", body=about(others, "cleo's"))
    erase()
    digest, event = (each.body for each in Delivery.objects.filter(rule=rule).order_by("pk"))
    assert digest["counts"] == {"FAILED": 2}
    assert digest["notifications"] == [event]
    assert (event["actor"], event["operation"]["name"]) == ("erased user", "cleo's")
