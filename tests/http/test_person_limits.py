"""What one person may have of everything that is stored, on every way that adds to it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier, BrokenBarrierError

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from apps.checkpoints import place
from apps.datasets.models import Dataset, Upload
from apps.datasets.uploads import services as uploads
from apps.operations.lifecycle import State
from apps.operations.models import Operation, Study
from apps.operations.requests import services
from tests import storages
from tests.api.conftest import signed_in
from tests.api.saved import saved
from tests.operations.rows import CONFIG, in_state, subtask_of
from trainops import person_limits
from trainops.http import tokens
from trainops.http.models import Token, TokenScope
from trainops.person_limits import LimitReached

pytestmark = [pytest.mark.database, pytest.mark.django_db]
WANTED = {"kind": "training", "config": CONFIG}
STUDY = WANTED | {"design": {"values": {"learning_rate": [0.1, 0.2, 0.3]}}}


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    storages.place(settings, tmp_path)
    settings.DATA_DIR = tmp_path
    place.require()


@pytest.fixture
def otto(db):
    return signed_in("otto", "operator")


@pytest.fixture
def limit(settings):
    def set_to(**limits):
        settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=limits)

    return set_to


def upload(api, content=b"a,b\n1,x\n2,y\n", path="/api/v1/datasets"):
    file = SimpleUploadedFile("table.csv", content)
    return api.client.post(path, {"file": file})


def require_refused(response, limit, *, allowed, current, requested):
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (409, "LIMIT_REACHED")
    assert error["details"] == {
        "limit": limit, "allowed": allowed, "current": current, "requested": requested,
    }  # fmt: skip
    assert limit in error["message"]


def test_a_submission_above_the_limit_is_refused_and_names_it(otto, limit):
    limit(max_active_operations_per_person=1)
    assert otto.post("operations", WANTED).status_code == 202
    require_refused(
        otto.post("operations", WANTED),
        "TRAINOPS_MAX_ACTIVE_OPERATIONS_PER_PERSON",
        allowed=1, current=1, requested=1,
    )  # fmt: skip
    assert Operation.objects.count() == 1
    assert signed_in("carla", "operator").post("operations", WANTED).status_code == 202


@pytest.mark.parametrize(
    ("state", "status"),
    [(State.PENDING, 409), (State.RUNNING, 409), (State.RESUMING, 409),
     (State.COMPLETED, 202), (State.FAILED, 202), (State.CANCELLED, 202)],
)  # fmt: skip
def test_what_has_ended_does_not_count(otto, limit, state, status):
    in_state(state, otto.user)
    limit(max_active_operations_per_person=1)
    assert otto.post("operations", WANTED).status_code == status


def test_clients_of_an_operation_do_not_count(otto, limit):
    subtask_of(in_state(State.RUNNING, otto.user), State.PENDING)
    limit(max_active_operations_per_person=2)
    assert otto.post("operations", WANTED).status_code == 202


def test_the_same_request_again_is_answered_at_the_limit(otto, limit):
    limit(max_active_operations_per_person=1)
    first, again = (
        otto.post("operations", WANTED, headers={"idempotency-key": "k"}) for _ in range(2)
    )
    assert first.json()["data"]["operation_id"] == again.json()["data"]["operation_id"]


def test_resuming_above_the_limit_is_refused_and_changes_nothing(otto, limit):
    operation = in_state(State.CANCELLED, otto.user)
    saved(operation)
    in_state(State.PENDING, otto.user)
    limit(max_active_operations_per_person=1)
    response = otto.post(f"operations/{operation.pk}/resume")
    assert response.json()["error"]["code"] == "LIMIT_REACHED"
    assert services.get(operation.pk).state == State.CANCELLED
    limit(max_active_operations_per_person=2)
    assert otto.post(f"operations/{operation.pk}/resume").status_code == 200


@pytest.mark.slow
def test_a_study_counts_with_all_of_its_operations(otto, limit):
    limit(max_active_operations_per_person=2)
    require_refused(
        otto.post("studies", STUDY),
        "TRAINOPS_MAX_ACTIVE_OPERATIONS_PER_PERSON",
        allowed=2, current=0, requested=3,
    )  # fmt: skip
    assert (Study.objects.count(), Operation.objects.count()) == (0, 0)
    limit(max_active_operations_per_person=3)
    assert otto.post("studies", STUDY).status_code == 202
    study_id = Study.objects.get().pk
    otto.post(f"studies/{study_id}/cancel")
    limit(max_active_operations_per_person=2)
    response = otto.post(f"studies/{study_id}/resume")
    assert response.json()["error"]["details"]["requested"] == 3
    assert set(Operation.objects.values_list("state", flat=True)) == {State.CANCELLED}


def test_studies_have_a_limit(otto, limit):
    limit(max_studies_per_person=1)
    assert otto.post("studies", STUDY).status_code == 202
    require_refused(
        otto.post("studies", STUDY),
        "TRAINOPS_MAX_STUDIES_PER_PERSON",
        allowed=1, current=1, requested=1,
    )  # fmt: skip


def test_tokens_have_a_limit_which_expired_ones_do_not_fill(otto, limit):
    limit(max_tokens_per_person=1)
    lifetime = timedelta(seconds=-1)
    Token.objects.create(otto.user, expiry=lifetime, scope=TokenScope.USER)
    assert otto.post("tokens", {"name": "a"}).status_code == 201
    require_refused(
        otto.post("tokens", {"name": "b"}),
        "TRAINOPS_MAX_TOKENS_PER_PERSON",
        allowed=1, current=1, requested=1,
    )  # fmt: skip
    page = otto.client.post("/account/", {"name": "c", "days": ""})
    assert page.status_code == 422
    assert "TRAINOPS_MAX_TOKENS_PER_PERSON" in page.content.decode()
    assert Token.objects.filter(user=otto.user).count() == 2


@pytest.mark.usefixtures("in_process")
def test_datasets_have_a_limit_by_number(otto, limit):
    limit(max_datasets_per_person=1)
    first = upload(otto)
    assert first.status_code == 201
    assert upload(otto).json()["data"] == first.json()["data"]  # the same table again
    require_refused(
        upload(otto, b"c\n1\n2\n"),
        "TRAINOPS_MAX_DATASETS_PER_PERSON",
        allowed=1, current=1, requested=1,
    )  # fmt: skip


@pytest.mark.usefixtures("in_process")
def test_datasets_have_a_limit_by_bytes_and_nothing_is_left(otto, limit, settings):
    assert upload(otto).status_code == 201
    size = Dataset.objects.get().size_bytes
    limit(max_dataset_bytes_per_person=size + 1)
    response = upload(otto, b"c\n1\n2\n")
    assert response.json()["error"]["details"]["limit"] == "TRAINOPS_MAX_DATASET_BYTES_PER_PERSON"
    assert response.json()["error"]["details"]["current"] == size
    assert Dataset.objects.count() == 1
    assert len([*settings.DATA_DIR.rglob("*.parquet")]) == 1


@pytest.mark.usefixtures("in_process")
def test_the_page_tells_of_a_limit_of_datasets(otto, limit):
    upload(otto)
    limit(max_datasets_per_person=1)
    response = upload(otto, b"c\n1\n", path="/datasets/upload")
    assert response.status_code == 409
    assert "TRAINOPS_MAX_DATASETS_PER_PERSON" in response.content.decode()


def new_token(person):
    return tokens.create(person, name="x", scope=TokenScope.USER, lifetime=None)


def new_upload(person):
    return uploads.create(owner=person, filename="a.csv", size_bytes=10)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("create", "model", "limited"),
    [
        (new_token, Token, "max_tokens_per_person"),
        (new_upload, Upload, "max_open_uploads_per_person"),
    ],
)
def test_requests_at_the_same_time_do_not_exceed_a_limit(
    limit, monkeypatch, create, model, limited
):
    limit(**{limited: 1})
    person, both = User.objects.create_user("ana"), Barrier(2)
    require = person_limits.require

    def after_both_have_counted(*given, **named):
        require(*given, **named)
        with suppress(BrokenBarrierError):
            both.wait(0.5)

    def created(_):
        try:
            return bool(create(person))
        except LimitReached:
            return False
        finally:
            connection.close()

    monkeypatch.setattr(person_limits, "require", after_both_have_counted)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(created, range(2))) == [False, True]
    assert model.objects.count() == 1


def test_zero_means_no_limit(otto, limit):
    limit(max_active_operations_per_person=0, max_tokens_per_person=0, max_studies_per_person=0)
    assert otto.post("operations", WANTED).status_code == 202
    assert otto.post("studies", STUDY).status_code == 202
    assert otto.post("tokens", {"name": "b"}).status_code == 201


def test_the_platform_itself_has_no_limits(limit, db):
    limit(max_active_operations_per_person=1)
    for _ in range(2):
        services.submit(**WANTED, owner=None)
    assert Operation.objects.count() == 2


def test_a_limit_holds_for_each_person(limit, db):
    limit(max_tokens_per_person=1)
    for name in ("ana", "ben"):
        person = User.objects.create_user(name)
        tokens.create(person, name="a", scope=TokenScope.USER, lifetime=None)
        with pytest.raises(LimitReached):
            tokens.create(person, name="b", scope=TokenScope.USER, lifetime=None)
