"""Prefixes of buckets: registered by people who may, below allowed prefixes, and verified."""

import pytest
from django.contrib.auth.models import Group, User

from apps.datasets.directories import reading, registration
from apps.datasets.models import Dataset
from trainops import dataset_buckets
from trainops.confined.calling import call
from trainops.datasets.errors import DirectoryAway

pytestmark = [pytest.mark.slow, pytest.mark.django_db]
URL = "/api/v1/datasets/directories"


@pytest.fixture
def post(client):
    user = User.objects.create_user("ana")
    user.groups.set([Group.objects.get(name="operator")])
    client.force_login(user)
    return lambda url, **body: client.post(url, body, content_type="application/json")


@pytest.fixture
def photos(bucket):
    for label in "01":
        bucket.put(f"photos/{label}/a.png", b"image " + label.encode())
    bucket.put("photos/1/", b"")  # stands for a folder
    return "s3://data/shared/photos"


def test_a_prefix_is_registered_and_verified(post, client, photos, bucket):
    response = post(URL, path=photos)
    data = response.json()["data"]
    assert response.status_code == 201, data
    assert (data["name"], data["path"], data["num_rows"]) == ("photos", photos, 2)
    assert data["layout"]["classes"] == [{"name": "0", "count": 1}, {"name": "1", "count": 1}]
    assert post(URL, path=photos).status_code == 200
    assert b"s3://data/shared/photos" in client.get(f"/datasets/{data['id']}/").content
    url = f"{response['Location']}/verify"
    assert post(url).json()["data"]["is_unchanged"]
    bucket.put("photos/1/a.png", b"image 2")
    assert post(url).json()["data"]["problems"] == ["1/a.png has another content"]
    samples = [post(url, sample=1, seed=seed).json()["data"] for seed in range(8)]
    assert {each["num_files_read"] for each in samples} == {1}
    assert {each["is_unchanged"] for each in samples} == {True, False}


def test_the_same_files_in_a_directory_are_the_same_dataset(photos, settings, tmp_path):
    settings.DATASET_ROOTS = (tmp_path,)
    for label in "01":
        (tmp_path / "photos" / label).mkdir(parents=True)
        (tmp_path / "photos" / label / "a.png").write_bytes(b"image " + label.encode())
    ana, ben = (User.objects.create_user(name) for name in ("ana", "ben"))
    first, _ = registration.add_or_find(photos, owner=ana)
    path = str(tmp_path / "photos")
    again, is_new = registration.add_or_find(path, owner=ben)
    assert (again.pk, again.root, is_new) == (first.pk, photos, False)
    settings.DATASET_BUCKETS = ()
    assert registration.add_or_find(path, owner=ben)[0].root == path


def test_a_confined_process_reads_the_bucket(photos, monkeypatch):
    monkeypatch.setattr(registration, "call", call)
    dataset, _ = registration.add_or_find(photos)
    assert registration.verify(dataset.pk)["problems"] == []


@pytest.mark.parametrize(
    ("path", "status", "code", "problem"),
    [
        ("s3://data/sharedx", 403, "PATH_NOT_ALLOWED", "allowed: prefixes below s3://data/shared"),
        ("s3://data", 403, "PATH_NOT_ALLOWED", "allowed: prefixes below"),
        ("s3://other/shared", 403, "PATH_NOT_ALLOWED", "allowed: prefixes below"),
        ("s3://data/shared/../x", 400, "INVALID_PATH", "is not a prefix"),
        ("s3://data/shared?endpoint_url=http://evil", 400, "INVALID_PATH", "without options"),
        ("s3://key:secret@data/shared", 400, "INVALID_PATH", "holds a user or a password"),
        ("gs://data/shared", 400, "INVALID_PATH", "names 'gs'; allowed: s3://BUCKET/PREFIX"),
        ("s3://data/shared/none", 400, "UNREADABLE_DIRECTORY", "holds no object"),
        ("s3://data/shared/odd", 400, "UNREADABLE_DIRECTORY", "'a//b'; allowed: names of files"),
        ("s3://data/shared/both", 400, "UNREADABLE_DIRECTORY", "holds 'a' and 'a/b'"),
    ],
)
def test_a_prefix_that_is_not_allowed_is_refused_by_name(bucket, post, path, status, code, problem):
    for name in ("odd/a//b", "both/a", "both/a/b"):
        bucket.put(name, b"content")
    response = post(URL, path=path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code), error
    assert problem in error["details"]["fields"]["path"] and "secret" not in str(error)
    assert not Dataset.objects.exists()


def test_without_allowed_prefixes_none_is_registered_or_read(photos, post, settings):
    dataset, _ = registration.add_or_find(photos)
    allowed, settings.DATASET_BUCKETS = settings.DATASET_BUCKETS, ()
    error = post(URL, path=photos).json()["error"]
    assert error["code"] == "NO_DATASET_BUCKETS" and dataset_buckets.VARIABLE in error["message"]
    settings.DATASET_BUCKETS = allowed
    query = allowed[0].url.partition("?")[2]
    assert reading.source(dataset) == f"{photos}?{query}" and "endpoint_url=" in query
    settings.DATASET_BUCKETS = ()
    with pytest.raises(DirectoryAway, match=f"{photos} is not allowed by TRAINOPS_DATASET_BUCKETS"):
        reading.require_reachable([dataset.pk])


def test_a_bucket_that_does_not_answer_is_named(photos, post, s3_proxy):
    s3_proxy.arm("expired", methods=("GET",))
    error = post(URL, path=photos).json()["error"]
    assert error["code"] == "UNREADABLE_DIRECTORY"
    assert f"{photos} cannot be read" in error["message"] and "expired" in error["message"]


@pytest.mark.parametrize("given", ["gs://data/x", "/data", "s3://", "s3://data/x?acl=public"])
def test_a_setting_that_names_no_prefix_of_s3_is_refused(given):
    with pytest.raises(ValueError, match=f"{dataset_buckets.VARIABLE} .*; allowed: s3://BUCKET"):
        dataset_buckets.read({dataset_buckets.VARIABLE: given})
