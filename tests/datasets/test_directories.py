"""Directories: registered by people who may, from allowed roots, and used by operations."""

import pytest
from django.contrib.auth.models import Group, User

from apps.datasets import services
from apps.datasets.directories import child, reading, registration
from apps.datasets.errors import DatasetError
from apps.datasets.models import Dataset
from apps.operations import inputs
from trainops.datasets.directory import Directory
from trainops.datasets.errors import DirectoryAway
from trainops.runtime.config import DatasetId, DirectoryId, OperationConfig
from trainops.runtime.errors import ConfigError

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_this_process")]
URL = "/api/v1/datasets/directories"


@pytest.fixture
def in_this_process(monkeypatch, in_process):
    """Reads directories in this process: the same code, without starting another."""
    monkeypatch.setattr(registration, "call", lambda module, request, _: child.answer(request))


@pytest.fixture
def roots(settings, tmp_path):
    root = tmp_path / "shared"
    root.mkdir()
    settings.DATASET_ROOTS = (root,)
    return root


@pytest.fixture
def notes(roots):
    """A directory of two text files."""
    root = roots / "notes"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("two\n")
    return root


@pytest.fixture
def sign_in(client):
    def sign_in(role, name="ana"):
        user, _ = User.objects.get_or_create(username=name)
        user.groups.set([Group.objects.get(name=role)])
        client.force_login(user)
        return user

    return sign_in


@pytest.fixture
def post(client):
    return lambda url, **body: client.post(url, body, content_type="application/json")


def test_a_directory_is_registered_and_nothing_is_copied(client, sign_in, post, notes):
    sign_in("operator")
    response = post(URL, path=str(notes))
    data = response.json()["data"]
    assert response.status_code == 201 and response["Location"].endswith(data["id"])
    assert (data["name"], data["format"], data["num_rows"]) == ("notes", "directory", 2)
    assert data["path"] == str(notes) and data["source_bytes"] == 8
    assert (data["layout"]["layout"], data["layout"]["num_files"]) == ("text", 2)
    assert client.get(response["Location"]).json()["data"] == data
    preview = client.get(f"{response['Location']}/preview").json()["data"]
    assert preview["columns"] == ["name", "size_bytes"]
    assert preview["rows"] == [["a.txt", 4], ["b.txt", 4]]
    assert post(URL, path=str(notes)).status_code == 200


def test_the_id_follows_from_names_and_contents(notes, roots):
    first, _ = registration.add_or_find(str(notes))
    (notes / "a.txt").write_text("1ne\n")
    second, is_new = registration.add_or_find(str(notes))
    assert is_new and first.pk != second.pk
    (notes / "a.txt").write_text("one\n")
    again, is_new = registration.add_or_find(str(notes))
    assert not is_new and again.pk == first.pk


def test_the_same_content_is_read_from_its_new_place_once_the_old_one_is_gone(notes, roots):
    ana, ben = (User.objects.create_user(name) for name in ("ana", "ben"))
    first, _ = registration.add_or_find(str(notes), owner=ana)
    other = roots / "other"
    other.mkdir()
    for each in notes.iterdir():
        (other / each.name).write_bytes(each.read_bytes())
    assert registration.add_or_find(str(other), owner=ben)[0].root == str(notes)
    notes.rename(roots / "moved")
    moved, is_new = registration.add_or_find(str(other), owner=ben)
    assert (moved.pk, moved.root, is_new) == (first.pk, str(other), False)
    assert len(Directory.open(reading.input_path(first.pk), seed=0)) == 2


def refused(response, status, code):
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code), error
    return error["details"]["fields"]["path"]


def test_without_allowed_roots_no_directory_is_registered(sign_in, post, notes, settings):
    sign_in("admin")
    settings.DATASET_ROOTS = ()
    problem = refused(post(URL, path=str(notes)), 403, "NO_DATASET_ROOTS")
    assert "TRAINOPS_DATASET_ROOTS" in problem


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("notes", 400, "INVALID_PATH"),
        ("/etc", 403, "PATH_NOT_ALLOWED"),
        ("{root}/../../etc", 403, "PATH_NOT_ALLOWED"),
        ("{root}/out", 403, "PATH_NOT_ALLOWED"),
        ("{root}x", 403, "PATH_NOT_ALLOWED"),
        ("{root}/nothing", 400, "NO_DIRECTORY"),
        ("{root}/notes/a.txt", 400, "NO_DIRECTORY"),
        ("{root}/empty", 400, "UNREADABLE_DIRECTORY"),
    ],
)
def test_a_path_that_is_not_allowed_is_refused_by_name(
    sign_in, post, notes, roots, tmp_path, path, status, code
):
    sign_in("operator")
    (roots / "empty").mkdir()
    (tmp_path / "outside").mkdir()
    (roots / "out").symlink_to(tmp_path / "outside")
    given = path.format(root=roots)
    assert refused(post(URL, path=given), status, code)
    assert not Dataset.objects.exists()


def test_a_link_out_of_the_roots_within_a_directory_is_refused(sign_in, post, notes, tmp_path):
    sign_in("operator")
    (tmp_path / "secret").write_text("secret")
    (notes / "c.txt").symlink_to(tmp_path / "secret")
    problem = refused(post(URL, path=str(notes)), 400, "UNREADABLE_DIRECTORY")
    assert "c.txt is a link" in problem and "outside the allowed roots" in problem


def test_viewers_register_and_verify_nothing(sign_in, post, notes):
    dataset, _ = registration.add_or_find(str(notes))
    sign_in("viewer")
    assert post(URL, path=str(notes)).status_code == 403
    assert post(f"/api/v1/datasets/{dataset.pk}/verify").status_code == 403


def test_the_whole_verification_names_what_differs(sign_in, post, notes):
    sign_in("operator")
    dataset, _ = registration.add_or_find(str(notes))
    url = f"/api/v1/datasets/{dataset.pk}/verify"
    read = {
        "num_files": 2, "num_files_read": 2, "num_bytes": 8, "num_bytes_read": 8, "seed": None,
    }  # fmt: skip
    assert post(url).json()["data"] == {"is_unchanged": True, "problems": [], **read}
    (notes / "b.txt").write_text("TWO\n")
    found = post(url).json()["data"]
    problems = ["b.txt has another content"]
    assert found == {"is_unchanged": False, "problems": problems, **read}


def test_a_sample_is_repeated_by_the_seed_of_the_response(sign_in, post, notes):
    sign_in("operator")
    dataset, _ = registration.add_or_find(str(notes))
    (notes / "b.txt").write_text("TWO\n")
    url = f"/api/v1/datasets/{dataset.pk}/verify"
    first = post(url, fraction=0.5).json()["data"]
    assert (first["num_files_read"], first["num_bytes_read"]) == (1, 4)
    assert post(url, sample=1, seed=first["seed"]).json()["data"] == first
    found = [post(url, sample=1, seed=seed).json()["data"]["is_unchanged"] for seed in range(8)]
    assert set(found) == {True, False}


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({"sample": 0}, "sample", "greater than or equal to 1"),
        ({"fraction": 0}, "fraction", "got 0.0; allowed: above 0 and at most 1"),
        ({"fraction": 1.5}, "fraction", "got 1.5; allowed: above 0 and at most 1"),
        ({"fraction": "nan"}, "fraction", "valid number"),
        ({"sample": 1, "fraction": 1}, "fraction", "got sample and fraction; allowed: one of"),
        ({"seed": 1}, "seed", "got a seed alone; allowed: with sample or fraction"),
        ({"sample": 1, "seed": -1}, "seed", "greater than or equal to 0"),
        ({"files": 1}, "files", "unknown field; allowed: sample, fraction, seed"),
    ],
)
def test_a_wrong_sample_is_refused_by_field(sign_in, post, notes, given, field, problem):
    sign_in("operator")
    dataset, _ = registration.add_or_find(str(notes))
    response = post(f"/api/v1/datasets/{dataset.pk}/verify", **given)
    assert response.status_code == 400
    assert problem in response.json()["error"]["details"]["fields"][field]


def test_an_upload_is_not_verified_on_request(sign_in, post, tmp_path):
    sign_in("operator")
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("rb") as file:
        table = services.add_table(file, filename="t.csv")
    response = post(f"/api/v1/datasets/{table.pk}/verify")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "NOT_A_DIRECTORY")


def test_deleting_a_registered_directory_leaves_its_files(notes):
    dataset, _ = registration.add_or_find(str(notes))
    services.delete(dataset_id=dataset.pk)
    assert sorted(each.name for each in notes.iterdir()) == ["a.txt", "b.txt"]
    assert not Dataset.objects.exists()


def test_a_directory_that_is_not_on_the_worker_is_named(notes):
    dataset, _ = registration.add_or_find(str(notes))
    reading.require_reachable([dataset.pk])
    notes.rename(notes.with_name("moved"))
    with pytest.raises(DirectoryAway, match=f"{notes} of dataset {dataset.pk} is not on this"):
        reading.require_reachable([dataset.pk])


class Config(OperationConfig):
    table: DatasetId | None = None
    folder: DirectoryId | None = None


def test_a_table_and_a_directory_do_not_take_each_others_place(notes, tmp_path):
    folder, _ = registration.add_or_find(str(notes))
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("rb") as file:
        table = services.add_table(file, filename="t.csv")
    right = Config(table=table.pk, folder=folder.pk)
    inputs.check(right.dataset_ids(), right)
    wrong = Config(table=folder.pk, folder=table.pk)
    with pytest.raises(ConfigError) as error:
        inputs.check(wrong.dataset_ids(), wrong)
    assert error.value.errors == {
        "table": f"got the directory {folder.pk}; allowed: uploaded datasets",
        "folder": f"got the upload {table.pk}; allowed: registered directories (datasets add)",
    }


def test_a_name_is_cleaned_and_checked(notes):
    assert registration.add_or_find(str(notes), name="  my   notes ")[0].name == "my notes"
    with pytest.raises(DatasetError):
        registration.add_or_find(str(notes), name="x" * 201)
