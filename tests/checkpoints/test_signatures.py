"""Signed checkpoints: what is altered, foreign or in another place is refused, and says why."""

import io
import json
import shutil
import threading
import zipfile
from contextlib import closing
from dataclasses import replace

import pytest
from django.contrib.auth.models import Group

from apps.checkpoints import integrity, serializers, signatures, signing, signing_keys, storage
from apps.checkpoints.models import Checkpoint, SigningKey
from apps.checkpoints.signatures import Standing
from apps.operations.attempts import preparation, recovery, recovery_records, remote_claims
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.attempts.work import WorkerRuntime
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.files import exchange, verification
from apps.operations.files.archives import OperationArchive
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Operation, Subtask
from apps.operations.placement import Offer
from apps.operations.requests import services
from apps.operations.subtasks import services as subtasks
from apps.operations.subtasks.manager import SubtaskManager
from apps.workers.diagnosis import stores
from tests.api.saved import saved
from tests.operations import rows
from tests.operations.test_recovery import cancelled, restore
from tests.waiting import wait_until
from trainops.errors import DomainError
from trainops.http.models import AuditEntry
from trainops.runtime import lossless
from trainops.runtime import subtasks as port
from trainops.runtime.checkpoint import staged_json
from trainops.runtime.checkpoint.manifest import CheckpointType, staged, verify
from trainops.runtime.errors import CheckpointCorrupted
from trainops.signature_settings import required

pytestmark = [pytest.mark.django_db, pytest.mark.database]
NEW, OTHER = "a new secret key, " * 3, "the key of another installation, " * 3


@pytest.fixture(autouse=True)
def enrolled():
    assert signing_keys.enroll() == []


@pytest.fixture
def operator(person):
    person.groups.add(Group.objects.get_or_create(name="operator")[0])
    return person


@pytest.fixture
def checkpoint(operator):
    return signed(cancelled(operator))


def signed(operation, **values):
    """Commit a checkpoint as a supervisor does: its signature is in the storage, too."""
    checkpoint = saved(operation, **values)
    signatures.write(checkpoint.artifacts_path, checkpoint.manifest_digest)
    return checkpoint


def as_other_installation(settings):
    """Have another secret key, in a process that has not asked this database yet."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OTHER, []
    signing_keys.forget()


def altered(checkpoint, **values):
    Checkpoint.objects.filter(pk=checkpoint.pk).update(**values)
    checkpoint.refresh_from_db()
    return checkpoint


def forged():
    """A signature that names the own key, and is not by it."""
    return f"{signing_keys.own_key()}:{'0' * 128}"


def standing(checkpoint):
    return signatures.of(checkpoint).standing


def test_a_commit_signs_the_row_and_the_storage(checkpoint):
    assert standing(checkpoint) is Standing.OWN
    assert signatures.read(checkpoint.artifacts_path) == checkpoint.signature
    assert integrity.check(checkpoint) is None
    found = json.loads(
        (storage.directory(checkpoint.artifacts_path) / "signature.json").read_text()
    )
    assert found["public_key"] == signing_keys.own_key()


def test_a_changed_manifest_is_refused_also_where_the_row_has_its_digest(checkpoint):
    """Who can write to storage and database can make them agree, but not sign."""
    problem = integrity.check(altered(checkpoint, manifest_digest="0" * 64))
    assert problem is not None and "the signature does not match" in str(problem)
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY  # nothing is known of its bytes


def test_a_genuine_signature_of_another_checkpoint_is_refused(checkpoint, operator):
    other = signed(checkpoint.operation, step=20)
    moved = altered(other, signature=checkpoint.signature)
    assert standing(moved) is Standing.INVALID
    # The same manifest in another place: an old state for a new one.
    assert (
        signatures.SignatureChecks()
        .check(other.artifacts_path, checkpoint.manifest_digest, checkpoint.signature)
        .standing
        is Standing.INVALID
    )


@pytest.mark.parametrize("text", ["x", "f" * 64 + ":" + "0" * 128, ":", "é" * 193])
def test_what_is_no_signature_of_an_accepted_key_is_not_accepted(checkpoint, text, settings):
    unclear = altered(checkpoint, signature=text)
    assert standing(unclear) is Standing.UNKNOWN
    assert signatures.problem_of(unclear) is None  # the digest in its row vouches for it
    settings.REQUIRE_SIGNATURES = True
    assert "not accepted" in str(signatures.problem_of(unclear))


def test_an_attempt_starts_from_the_newest_accepted_checkpoint_and_says_why(operator):
    operation = cancelled(operator)
    good, bad = signed(operation, step=10), signed(operation, step=20)
    claimed = resumed(operation, operator)
    altered(bad, signature=good.signature)  # the request of the resume has looked at it before
    assert [each.pk for each in preparation.acceptable(claimed)] == [good.pk]
    event = operation.events.filter(what="CHECKPOINT_CORRUPTED").get()
    assert "altered: signature.json" in event.note and "trying an older one" in event.note


def resumed(operation, actor):
    services.resume(operation_id=operation.pk, actor=actor)
    return rows.claim()


def test_a_person_cannot_resume_or_fork_from_a_refused_one(checkpoint, operator):
    altered(checkpoint, signature=forged())
    with pytest.raises(NotAllowed, match="signature"):
        services.resume(operation_id=checkpoint.operation_id, actor=operator)
    with pytest.raises(DomainError, match="the signature does not match"):
        exchange.have_here(checkpoint)


def test_signatures_of_another_installation_are_named_as_foreign_until_trusted(
    checkpoint, settings
):
    key = checkpoint.signature.partition(":")[0]
    as_other_installation(settings)
    SigningKey.objects.all().delete()
    signing_keys.enroll()
    assert str(signatures.of(checkpoint)) == "signed with a key that is not accepted"
    assert integrity.check(checkpoint) is None  # its row has its digest
    settings.REQUIRE_SIGNATURES = True
    problem = integrity.check(checkpoint)
    assert problem is not None and f"signing-keys trust {key}" in str(problem)
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY  # it may be accepted later

    signing_keys.trust(key, "the lab next door")
    assert str(signatures.of(checkpoint)) == f"signed by the lab next door ({key[:16]})"
    assert integrity.check(checkpoint) is None
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY

    signing_keys.distrust(key[:12])
    assert standing(checkpoint) is Standing.UNKNOWN


def test_a_replaced_secret_key_still_accepts_what_the_old_one_signed(checkpoint, settings):
    old = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    assert standing(checkpoint) is Standing.OWN
    signing_keys.enroll()
    settings.SECRET_KEY_FALLBACKS = []  # the old line was removed
    assert standing(checkpoint) is Standing.OWN
    assert signing_keys.is_enrolled()

    newer = signed(checkpoint.operation, step=20)
    assert newer.signature.partition(":")[0] == signing_keys.own_key()
    signing_keys.distrust(checkpoint.signature[:16])  # it has leaked
    assert standing(checkpoint) is Standing.UNKNOWN
    assert standing(newer) is Standing.OWN


def test_a_lost_secret_key_refuses_nothing_and_the_new_one_is_recorded_if_asked_for(
    checkpoint, settings
):
    settings.SECRET_KEY = NEW
    (warning,) = signing_keys.enroll()
    assert f"signing-keys enroll` records the new key {signing_keys.own_key()}" in warning
    assert list(SigningKey.objects.values_list("pk", flat=True)) == [checkpoint.signature[:64]]
    assert saved(checkpoint.operation, step=20).signature == ""
    assert standing(checkpoint) is Standing.UNKNOWN
    assert [each.step for each in preparation.acceptable(checkpoint.operation)] == [20, 10]

    (warning,) = signing_keys.enroll(is_asked=True)
    assert "no longer accepted" in warning and checkpoint.signature[:64] in warning
    assert saved(checkpoint.operation, step=30).signature[:64] == signing_keys.own_key()
    assert [each.step for each in preparation.acceptable(checkpoint.operation)] == [30, 20, 10]
    signing_keys.trust(checkpoint.signature[:64], "before the fire")
    assert signing_keys.enroll() == []
    assert standing(checkpoint) is Standing.TRUSTED


def test_a_row_in_the_database_alone_makes_no_key_accepted(checkpoint, settings):
    """Who can write to the database can insert a key, but not endorse it."""
    own = settings.SECRET_KEY
    as_other_installation(settings)
    settings.SECRET_KEY = OTHER
    foreign = signing_keys.sign(signatures._payload(checkpoint.artifacts_path, "0" * 64))
    endorsement = signing_keys.sign(signing_keys._endorsed_bytes(foreign[:64], "mine"))
    settings.SECRET_KEY = own
    SigningKey.objects.create(pk=foreign[:64], name="mine", endorsement=endorsement)
    planted = altered(checkpoint, manifest_digest="0" * 64, signature=foreign)
    assert standing(planted) is Standing.UNKNOWN
    settings.REQUIRE_SIGNATURES = True
    assert signatures.problem_of(planted) is not None
    SigningKey.objects.filter(pk=signing_keys.own_key()).update(name="renamed")
    signing_keys.forget()
    assert not signing_keys.is_enrolled()


def test_the_audit_log_has_each_key_that_was_recorded_accepted_and_removed(settings):
    key = "a" * 64
    with pytest.raises(signing_keys.KeyRefused):
        signing_keys.trust("b" * 64, " ")
    signing_keys.trust(key, "lab")
    signing_keys.distrust(key[:8])
    settings.SECRET_KEY = NEW
    signing_keys.enroll(is_asked=True)
    signing_keys.enroll(is_asked=True)  # it is recorded already
    entries = AuditEntry.objects.filter(event__startswith="signing key").order_by("pk")
    assert list(entries.values_list("event", "details")) == [
        ("signing key accepted", {"key": key, "name": "lab"}),
        ("signing key removed", {"key": key, "name": "lab"}),
        (
            "signing key recorded",
            {"key": signing_keys.own_key(), "name": signing_keys.OWN_NAME},
        ),
    ]


def test_what_a_removed_key_endorses_is_not_accepted(settings):
    old, key = settings.SECRET_KEY, signing_keys.own_key()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    signing_keys.enroll()
    settings.SECRET_KEY_FALLBACKS = []
    signing_keys.distrust(key)
    settings.SECRET_KEY = old  # it has leaked
    signing_keys.trust("a" * 64, "lab")
    settings.SECRET_KEY = NEW
    signing_keys.enroll(is_asked=True)
    assert "a" * 64 not in signing_keys.accepted()
    assert [each.pk for each in signing_keys.not_accepted()] == ["a" * 64]


@pytest.mark.parametrize(
    ("key", "name", "problem"),
    [
        ("abc", "x", "64 hexadecimal digits"),
        ("A" * 64, "x", "64 hexadecimal digits"),
        ("a" * 64, " ", "1 to 100 printable"),
        ("a" * 64, "n" * 101, "1 to 100 printable"),
        ("a" * 64, " this  installation", "which only keys of this installation have"),
    ],
)
def test_what_is_no_key_or_no_name_is_refused(key, name, problem):
    with pytest.raises(signing_keys.KeyRefused, match=problem):
        signing_keys.trust(key, name)


def test_the_own_key_is_neither_renamed_nor_removed():
    own = signing_keys.own_key()
    with pytest.raises(signing_keys.KeyRefused, match="accepted already"):
        signing_keys.trust(own, "x")
    with pytest.raises(signing_keys.KeyRefused, match="still has"):
        signing_keys.distrust(own[:10])
    with pytest.raises(signing_keys.KeyRefused, match=f"0 keys begin with ''; known: {own[:16]}"):
        signing_keys.distrust("")


def test_unsigned_checkpoints_are_accepted_until_the_setting_refuses_them(
    checkpoint, settings, operator
):
    unsigned = altered(checkpoint, signature="")
    assert standing(unsigned) is Standing.UNSIGNED
    assert integrity.check(unsigned) is None
    assert "1 checkpoints are not signed" in next(stores.signatures()).message
    settings.REQUIRE_SIGNATURES = True
    assert next(stores.signatures()).level == "problem"
    problem = integrity.check(unsigned)
    assert problem is not None and problem.is_incomplete and "not signed" in str(problem)

    assert [each.problem for each in signing.sign_all()] == [""]
    unsigned.refresh_from_db()
    assert (standing(unsigned), unsigned.health) == (Standing.OWN, "healthy")
    assert signatures.read(unsigned.artifacts_path) == unsigned.signature
    assert list(signing.sign_all()) == []
    assert next(stores.signatures()).level == "ok"


def test_what_is_damaged_or_not_accepted_is_not_signed(checkpoint):
    signed(checkpoint.operation, step=20)
    (storage.directory(checkpoint.artifacts_path) / "model.pt").write_bytes(b"other")
    altered(checkpoint, signature="")
    signed(checkpoint.operation, step=30)
    Checkpoint.objects.filter(step=20).update(signature=forged())
    Checkpoint.objects.filter(step=30).update(signature="x")
    found = {each.checkpoint.step: each.problem for each in signing.sign_all()}
    assert "altered: model.pt" in found[10] and "the signature does not match" in found[20]
    assert "not accepted" in found[30]
    kept = Checkpoint.objects.order_by("step").values_list("signature", flat=True)
    assert list(kept) == ["", forged(), "x"]


def test_what_is_deleted_while_it_is_signed_leaves_nothing(checkpoint, monkeypatch):
    altered(checkpoint, signature="")
    real = signatures.store

    def store(path, digest):
        real(path, digest)
        Checkpoint.objects.all().delete()

    monkeypatch.setattr(signatures, "store", store)
    assert list(signing.sign_all()) == []
    assert not (storage.directory(checkpoint.artifacts_path) / storage.SIGNATURE).exists()


def test_what_is_deleted_before_it_is_signed_is_passed_over(checkpoint, monkeypatch):
    altered(checkpoint, signature="")
    gone = checkpoint.artifacts_path
    real = signatures.store

    def store(path, digest):
        shutil.rmtree(storage.directory(gone))
        Checkpoint.objects.all().delete()
        real(path, digest)

    monkeypatch.setattr(signatures, "store", store)
    assert list(signing.sign_all()) == []


def test_a_process_with_another_secret_key_neither_signs_nor_judges(checkpoint, settings):
    """A worker whose administrator forgot the key: its checkpoints are as those of before."""
    as_other_installation(settings)
    assert not signing_keys.is_enrolled()
    assert saved(checkpoint.operation, step=20).signature == ""
    assert signatures.problem_of(checkpoint) is None
    assert "another secret key" in next(stores.signatures()).message


def test_a_process_with_the_former_secret_key_alone_accepts_what_the_new_one_signs(
    checkpoint, settings
):
    """A rolling replacement: this process has looked before, another one has the new key."""
    old = settings.SECRET_KEY
    assert signing_keys.is_enrolled()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    signing_keys.enroll()
    newer = signed(checkpoint.operation, step=20)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = old, []
    assert signing_keys.is_enrolled()  # it signs on: the others accept its key
    assert standing(newer) is Standing.UNKNOWN
    assert [each.step for each in preparation.acceptable(newer.operation)] == [20, 10]
    assert integrity.check(newer) is None
    settings.REQUIRE_SIGNATURES = True
    with pytest.raises(signing_keys.KeyNotEnrolled):
        preparation.acceptable(newer.operation)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [old]
    later = signed(checkpoint.operation, step=30)
    assert [each.step for each in preparation.acceptable(later.operation)] == [30, 20, 10]


def test_where_signatures_are_required_a_process_with_another_key_claims_and_marks_nothing(
    checkpoint, settings, operator
):
    services.resume(operation_id=checkpoint.operation_id, actor=operator)
    as_other_installation(settings)
    settings.REQUIRE_SIGNATURES = True
    runtime = WorkerRuntime()
    runtime.look_at_storage()
    assert "is not in the list" in runtime.storage_problem
    assert runtime.offer().free_slots == ()
    with pytest.raises(StorageUnavailable, match="is not in the list"):
        remote_claims.claim(worker_id="w", host="h", offer=Offer(kinds=frozenset({"training"})))
    for call in (integrity.check, integrity.glance):
        with pytest.raises(signing_keys.KeyNotEnrolled):
            call(checkpoint)
    with pytest.raises(StorageUnavailable):
        verification.verify(checkpoint, person="ana")
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY
    with pytest.raises(signing_keys.KeyNotEnrolled):
        saved(checkpoint.operation, step=20)
    assert Checkpoint.objects.count() == 1


def test_what_is_claimed_before_the_key_is_missed_is_handed_back_for_free(
    checkpoint, settings, operator, monkeypatch
):
    services.resume(operation_id=checkpoint.operation_id, actor=operator)
    as_other_installation(settings)
    settings.REQUIRE_SIGNATURES = True
    monkeypatch.setattr(signing_keys, "require_enrolled", first_passes(signing_keys))
    offer = Offer(kinds=frozenset({checkpoint.operation.kind}))
    assert remote_claims.claim(worker_id="w", host="h", offer=offer) is None
    operation = Operation.objects.get(pk=checkpoint.operation_id)
    assert (operation.state, operation.restarts_used) == (State.RESUMING, 0)
    assert operation.attempts.latest("number").reason == Reason.SHUTDOWN


def first_passes(keys):
    """Return `require_enrolled` as it answers where the key is missed after the claim."""
    real, answers = keys.require_enrolled, iter([lambda: None])
    return lambda: next(answers, real)()


def test_files_without_a_row_are_taken_over_only_if_signed(operator):
    """A checkpoint that others put into the storage, of an attempt that was never begun."""
    operation = cancelled(operator)
    old, genuine = signed(operation, step=10), signed(operation, step=20)
    planted = saved(operation, step=40, attempt=7)
    restore([old.pk], operation)
    claimed = resumed(operation, operator)
    claimed.attempt = 2
    writer = ReportWriter(claimed)
    taken = recovery.take_over_newest(writer, recovery.in_storage(claimed))
    assert taken is not None and taken.step == genuine.step
    assert not Checkpoint.objects.filter(step=planted.step).exists()
    assert "signed by this installation" in claimed.events.first().note


def test_a_signed_checkpoint_moved_to_a_newer_place_is_not_taken_over(operator):
    operation = cancelled(operator)
    old, genuine = signed(operation, step=10), signed(operation, step=20)
    restore([old.pk], operation)
    directory = storage.directory(genuine.artifacts_path)
    shutil.move(directory, directory.with_name("a0009-s0000000099-cancellation"))
    claimed = resumed(operation, operator)
    assert recovery.take_over_newest(ReportWriter(claimed), recovery.in_storage(claimed)) is None


def left_behind(operation, checkpoint, **altered):
    """Delete the row of a checkpoint, and write a recovery record beside its files."""
    directory = storage.directory(checkpoint.artifacts_path)
    record = replace(staged(verify(directory)), **altered)
    Checkpoint.objects.filter(pk=checkpoint.pk).delete()
    content = {"staged": lossless.encode(staged_json.to_json(record)), "points": []}
    (directory / storage.RECOVERY_RECORD).write_text(lossless.dumps(content))
    return directory


def test_a_recovery_record_cannot_move_a_genuine_checkpoint_to_another_place(operator):
    """The record is not signed: who writes to the storage could name a newer place in it."""
    operation = cancelled(operator)
    signed(operation, step=10)
    place = "a0001-s0000000900-final"
    directory = left_behind(operation, signed(operation, step=20), directory=place, step=900)
    shutil.copytree(directory, directory.with_name(place))
    claimed = resumed(operation, operator)
    assert recovery_records.recover(ReportWriter(claimed), 1) is None
    assert [each.step for each in Checkpoint.objects.all()] == [10]


def test_what_a_recovery_record_says_of_the_files_is_read_from_their_manifest(operator):
    operation = cancelled(operator)
    signed(operation, step=10)
    genuine = signed(operation, step=20)
    left_behind(operation, genuine, type=CheckpointType.FINAL, metric=1e9, state={"epoch": 99})
    claimed = resumed(operation, operator)
    recovered = recovery_records.recover(ReportWriter(claimed), 1)
    assert recovered is not None
    assert (recovered.type, recovered.metric) == (genuine.type, genuine.metric)
    assert recovered.state == genuine.state


def completed_subtask(parent):
    subtask = rows.subtask_of(parent, State.COMPLETED)
    return signed(subtask, type="final")


@pytest.mark.parametrize("is_required", [False, True])
def test_a_refused_result_of_a_subtask_stays_and_is_not_computed_again(
    operator, settings, is_required
):
    parent = rows.in_state(State.RUNNING, operator)
    final = completed_subtask(parent)
    settings.REQUIRE_SIGNATURES = is_required
    altered(final, signature="" if is_required else forged())
    manager = SubtaskManager(parent, threading.Event())
    manager._running = {final.operation_id}
    with pytest.raises(signatures.SignatureRefused):
        wait_until(lambda: list(manager.ended()))
    integrity.check(final)
    requested = port.Subtask(1, 0, {}, 2, begins_with="x")
    Subtask.objects.update(identity=requested.identity)
    assert subtasks._found(parent, requested) is not None
    assert Checkpoint.objects.filter(pk=final.pk, health="healthy").exists()


def test_the_result_of_a_subtask_with_a_key_that_is_not_accepted_is_used(operator, settings):
    parent = rows.in_state(State.RUNNING, operator)
    final = completed_subtask(parent)
    as_other_installation(settings)
    manager = SubtaskManager(parent, threading.Event())
    manager._running = {final.operation_id}
    found = []
    wait_until(lambda: found.extend(manager.ended()) or found)
    assert found[0].result.outcome == "done"


def test_a_user_may_recover_an_unsigned_one_and_the_event_says_so(operator, settings):
    operation = cancelled(operator)
    old, _ = signed(operation, step=10), saved(operation, step=20)
    restore([old.pk], operation)
    settings.REQUIRE_SIGNATURES = True
    done = recovery.recover(operation_id=operation.pk, actor=operator)
    assert done.checkpoints == [] and "not signed" in done.problems[0]
    settings.REQUIRE_SIGNATURES = False
    done = recovery.recover(operation_id=operation.pk, actor=operator)
    assert [each.step for each in done.checkpoints] == [20]
    assert "not signed" in operation.events.filter(what=recovery.EVENT).get().note
    assert standing(done.checkpoints[0]) is Standing.UNSIGNED
    assert [each.problem for each in signing.sign_all()] == [""]  # a user vouches for it
    done.checkpoints[0].refresh_from_db()
    assert standing(done.checkpoints[0]) is Standing.OWN


UNREADABLE = [
    b"{",
    json.dumps(
        {
            "format": "trainops-signature",
            "version": 1,
            "public_key": "a\0",
            "signature": "x" * 3000,
        }
    ).encode(),
]


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_is_recovered_with_an_unreadable_signature_has_none_and_can_be_signed(
    operator, content
):
    operation = cancelled(operator)
    old, newer = signed(operation, step=10), signed(operation, step=20)
    (storage.directory(newer.artifacts_path) / storage.SIGNATURE).write_bytes(content)
    restore([old.pk], operation)
    (recovered,) = recovery.recover(operation_id=operation.pk, actor=operator).checkpoints
    assert recovered.signature == ""
    assert "not accepted" in operation.events.filter(what=recovery.EVENT).get().note
    assert [each.problem for each in signing.sign_all()] == [""]
    recovered.refresh_from_db()
    assert standing(recovered) is Standing.OWN


@pytest.mark.parametrize("is_trusted", [True, False])
def test_what_is_recovered_keeps_the_signature_of_the_installation_that_made_it(
    operator, settings, is_trusted
):
    operation = cancelled(operator)
    old, newer = signed(operation, step=10), signed(operation, step=20)
    foreign = newer.signature
    restore([old.pk], operation)
    as_other_installation(settings)
    SigningKey.objects.all().delete()
    signing_keys.enroll()
    if is_trusted:
        signing_keys.trust(foreign[:64], "the lab")
    (recovered,) = recovery.recover(operation_id=operation.pk, actor=operator).checkpoints
    assert recovered.signature == foreign
    assert standing(recovered) is (Standing.TRUSTED if is_trusted else Standing.UNKNOWN)


def test_what_an_attempt_takes_over_keeps_its_signature(operator, settings):
    operation = cancelled(operator)
    old, newer = signed(operation, step=10), signed(operation, step=20, attempt=7)
    former = newer.signature
    restore([old.pk], operation)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [settings.SECRET_KEY]
    signing_keys.enroll()
    claimed = resumed(operation, operator)
    taken = recovery.take_over_newest(ReportWriter(claimed), recovery.in_storage(claimed))
    assert taken is not None and taken.signature == former
    assert standing(taken) is Standing.OWN


class TestACopyOfAnArchive:
    @pytest.fixture
    def copy(self, checkpoint, tmp_path):
        """The checkpoint as another installation unpacks it."""
        with zipfile.ZipFile(io.BytesIO(b"".join(archive_of(checkpoint)))) as packed:
            packed.extractall(tmp_path)
        return tmp_path / checkpoint.artifacts_path

    def test_is_verified_by_an_installation_that_accepts_the_key(self, checkpoint, copy, settings):
        key = checkpoint.signature[:64]
        as_other_installation(settings)
        SigningKey.objects.all().delete()
        signing_keys.enroll()
        assert signatures.of_copy(copy).standing is Standing.UNKNOWN
        signing_keys.trust(key, "the lab")
        assert str(signatures.of_copy(copy)) == f"signed by the lab ({key[:16]})"

    def test_is_refused_where_it_was_altered_moved_or_is_unsigned(self, copy):
        assert signatures.of_copy(copy).standing is Standing.OWN
        moved = copy.rename(copy.with_name(copy.name.replace("a0001", "a0002")))
        assert signatures.of_copy(moved).standing is Standing.INVALID
        copy = moved.rename(copy)
        (copy / "model.pt").write_bytes(b"other")
        with pytest.raises(CheckpointCorrupted, match=r"altered: model\.pt"):
            signatures.of_copy(copy)

    def test_without_the_file_is_not_signed(self, copy):
        (copy / storage.SIGNATURE).unlink()
        assert signatures.of_copy(copy).standing is Standing.UNSIGNED

    def test_with_a_directory_in_place_of_the_file_has_an_unknown_signature(self, copy):
        (copy / storage.SIGNATURE).unlink()
        (copy / storage.SIGNATURE).mkdir()
        assert signatures.of_copy(copy).standing is Standing.UNKNOWN


def archive_of(checkpoint):
    with closing(OperationArchive(checkpoint.operation, person="ana")) as archive:
        return list(archive)


def test_a_verification_says_who_signed(checkpoint, own_process):
    found = verification.verify(checkpoint, person="ana")
    assert {each["name"]: each["detail"] for each in found.checks}["signature"] == (
        "signed by this installation"
    )
    found = verification.verify(altered(checkpoint, signature=""), person="ana")
    (line,) = (each for each in found.checks if each["name"] == "signature")
    assert line["level"] == "ok"  # checkpoints of earlier versions have none
    assert line["detail"].startswith("not signed") and found.health == "healthy"
    found = verification.verify(altered(checkpoint, signature="x"), person="ana")
    assert "signed with a key that is not accepted" in found.message
    assert (found.level, found.health) == ("warning", "healthy")
    found = verification.verify(altered(checkpoint, signature=forged()), person="ana")
    assert [each["name"] for each in found.checks] == ["signature"]
    assert (found.level, found.health) == ("failed", "healthy")


def test_an_unreadable_file_of_a_signature_is_no_signature(checkpoint):
    path = storage.directory(checkpoint.artifacts_path) / "signature.json"
    for content in (b"", b"[]", b"{}", b'{"format": "trainops-signature", "version": 2}'):
        path.write_bytes(content)
        with pytest.raises(CheckpointCorrupted, match="not accepted"):
            signatures.require_stored(
                checkpoint.artifacts_path, checkpoint.manifest_digest, is_asked=False
            )


def test_the_setting_is_0_or_1():
    assert required({}) is False
    assert required({"TRAINOPS_REQUIRE_SIGNATURES": "1"}) is True
    with pytest.raises(ValueError, match="got 'yes'; allowed: 0, 1"):
        required({"TRAINOPS_REQUIRE_SIGNATURES": "yes"})


def test_the_page_and_the_api_show_the_signature(checkpoint, client, operator):
    client.force_login(operator)
    row = serializers.detail(checkpoint)
    assert (row["signature"], row["signed_by"]) == ("own", "this installation")
    altered(checkpoint, signature="")
    assert serializers.detail(checkpoint)["signature"] == "unsigned"
    assert "not signed" in client.get("/checkpoints/").content.decode()
    page = client.get(f"/operations/{checkpoint.operation_id}/").content.decode()
    assert 'data-testid="signature"' in page and "not signed" in page
