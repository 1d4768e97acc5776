"""The endpoints: what an upload may be, who may do what, and how each refusal is reported."""

import json
from io import BytesIO

import numpy as np
import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.datasets import services, usage
from apps.datasets.models import Dataset

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_process")]
CSV = b"a,b\n1,x\n2,y\n"
URL = "/api/v1/datasets"


@pytest.fixture
def sign_in(client):
    def sign_in(role, name="ana"):
        user, _ = User.objects.get_or_create(username=name)
        user.groups.set([Group.objects.get(name=role)])
        client.force_login(user)
        return user

    return sign_in


@pytest.fixture
def upload(client):
    def upload(content=CSV, filename="t.csv", **fields):
        file = SimpleUploadedFile(filename, content, content_type="text/csv")
        return client.post(URL, {"file": file, **fields})

    return upload


def error(response, status, code):
    assert response.status_code == status, response.content
    found = response.json()["error"]
    assert found["code"] == code, found
    return found


def test_an_upload_is_answered_with_its_description(client, sign_in, upload):
    sign_in("operator")
    response = upload(name="Sales")
    assert response.status_code == 201
    data = response.json()["data"]
    assert response["Location"] == f"{URL}/{data['id']}"
    assert data["owner"] == "ana" and data["name"] == "Sales" and data["num_rows"] == 2
    assert data["columns"][0] == {
        "name": "a",
        "type": "integer",
        "missing": 0,
        "distinct": 2,
        "min": 1,
        "max": 2,
        "examples": [1, 2],
        "note": "",
        "histogram": {"start": 1.0, "width": 1.0, "counts": [1, 1]},
    }
    assert client.get(response["Location"]).json() == {"success": True, "data": data}
    again = upload(name="Other")
    assert again.status_code == 200 and again.json()["data"] == data


def test_options_of_an_upload(sign_in, upload):
    sign_in("operator")
    content = "größe;b\n1;x\n".encode("cp1252")
    types = json.dumps({"größe": "number"})
    data = upload(content, encoding="cp1252", delimiter=";", columns=types).json()["data"]
    assert data["columns"][0]["type"] == "number"
    assert upload(b"a\tb\n1\t2\n", delimiter="\t").json()["data"]["num_columns"] == 2


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"content": b""}, "EMPTY_FILE", "file"),
        ({"content": b"a,b\n"}, "NO_ROWS", "file"),
        ({"content": b"a,a\n1,2\n"}, "DUPLICATE_COLUMN_NAME", "file"),
        ({"content": b"PK\x03\x04..."}, "COMPRESSED_FILE", "file"),
        ({"content": b"a\n\xe9\n"}, "WRONG_ENCODING", "file"),
        (
            {"content": ",".join(f"c{n}" for n in range(10_000)).encode()},
            "TOO_MANY_COLUMNS",
            "file",
        ),
        ({"content": b"a\n1\nx\n", "columns": '{"a": "number"}'}, "WRONG_TYPE", "columns.a"),
        ({"columns": '{"z": "number"}'}, "UNKNOWN_COLUMN", "columns.z"),
        ({"columns": '{"a": "float"}'}, "UNKNOWN_TYPE", "columns.a"),
        ({"columns": "a=number"}, "VALIDATION_ERROR", "columns"),
        ({"columns": "[" * 100_000}, "VALIDATION_ERROR", "columns"),
        ({"columns": '{"a": 1}'}, "VALIDATION_ERROR", "columns"),
        ({"encoding": "rot13"}, "UNKNOWN_ENCODING", "encoding"),
        ({"delimiter": "#"}, "UNKNOWN_DELIMITER", "delimiter"),
        ({"name": "x" * 201}, "VALIDATION_ERROR", "name"),
        ({"target": "a"}, "VALIDATION_ERROR", "target"),
    ],
)
def test_a_refused_upload_names_the_field_and_leaves_nothing(
    settings, sign_in, upload, fields, code, field
):
    sign_in("operator")
    found = error(upload(**fields), 400, code)
    assert list(found["details"]["fields"]) == [field]
    assert found["message"]
    assert not Dataset.objects.exists()
    assert not [path for path in settings.DATA_DIR.rglob("*") if path.is_file()]


def test_an_upload_without_a_file(client, sign_in):
    sign_in("operator")
    found = error(client.post(URL, {"name": "x"}), 400, "VALIDATION_ERROR")
    assert "file" in found["details"]["fields"]
    error(client.post(URL, {"file": "text"}), 400, "VALIDATION_ERROR")
    json_body = client.post(URL, {"file": "x"}, content_type="application/json")
    found = error(json_body, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert found["details"]["allowed"] == ["multipart/form-data"]
    broken = client.post(URL, b"--x", content_type="multipart/form-data; boundary=")
    error(broken, 400, "PARSE_ERROR")


def test_a_body_that_is_too_large_is_not_read(settings, client, sign_in, upload):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"max_upload_bytes": 20})
    sign_in("operator")
    found = error(upload(b"a\n" + b"1\n" * 20), 413, "UPLOAD_TOO_LARGE")
    assert found["details"]["allowed"] == 20
    announced = str(3 * 1024**2)
    response = client.post(
        URL, b"", content_type="multipart/form-data; boundary=x", CONTENT_LENGTH=announced
    )
    error(response, 413, "UPLOAD_TOO_LARGE")


def test_who_may_do_what(client, sign_in, upload):
    error(upload(), 401, "NOT_AUTHENTICATED")
    error(client.get(URL), 401, "NOT_AUTHENTICATED")
    sign_in("viewer")
    error(upload(), 403, "PERMISSION_DENIED")
    sign_in("operator")
    dataset_id = upload().json()["data"]["id"]
    sign_in("viewer", "vera")
    assert client.get(f"{URL}/{dataset_id}").status_code == 200
    error(client.delete(f"{URL}/{dataset_id}"), 403, "PERMISSION_DENIED")
    sign_in("operator", "otto")
    error(client.delete(f"{URL}/{dataset_id}"), 403, "PERMISSION_DENIED")
    sign_in("admin", "ada")
    response = client.delete(f"{URL}/{dataset_id}")
    assert response.status_code == 200 and dataset_id in response.json()["data"]["message"]
    error(client.delete(f"{URL}/{dataset_id}"), 404, "DATASET_NOT_FOUND")


def test_a_dataset_in_use_is_kept(client, sign_in, upload, monkeypatch):
    monkeypatch.setattr(usage, "_registered", [lambda dataset_id: ["op_1"]])
    sign_in("operator")
    dataset_id = upload().json()["data"]["id"]
    found = error(client.delete(f"{URL}/{dataset_id}"), 409, "DATASET_IN_USE")
    assert found["details"]["operation_ids"] == ["op_1"]
    assert services.local_path(dataset_id).exists()


@pytest.mark.parametrize("dataset_id", ["ds_0", "ds_0000000000000000", "x" * 500, "..", "%2e%2e"])
@pytest.mark.parametrize("end", ["", "/preview"])
def test_ids_that_do_not_exist(client, sign_in, dataset_id, end):
    sign_in("viewer")
    response = client.get(f"{URL}/{dataset_id}{end}")
    assert response.status_code == 404 and response.json()["success"] is False


def test_slashes_and_dots_in_an_id_lead_nowhere(client, sign_in):
    sign_in("admin")
    for path in ("/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/ds_1/../x"):
        response = client.delete(URL + path)
        assert response.status_code in (404, 405) and response.json()["success"] is False


def test_the_preview_shows_the_first_rows(client, sign_in, upload):
    sign_in("operator")
    content = b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(80))
    dataset_id = upload(content).json()["data"]["id"]
    data = client.get(f"{URL}/{dataset_id}/preview").json()["data"]
    assert data["columns"] == ["a", "b"] and data["num_rows"] == 80 and len(data["rows"]) == 50
    assert client.get(f"{URL}/{dataset_id}/preview?limit=1").json()["data"]["rows"] == [[0, "x"]]
    for limit in ("0", "51", "x"):
        response = client.get(f"{URL}/{dataset_id}/preview?limit={limit}")
        assert "limit" in error(response, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_the_list(client, sign_in, upload, django_assert_num_queries):
    sign_in("operator")
    for n in range(5):
        upload(b"a\n%d\n" % n, name=f"table {n}")
    with django_assert_num_queries(5):  # session, user, groups, count, rows with owners
        body = client.get(f"{URL}?limit=2").json()
    assert [row["name"] for row in body["data"]] == ["table 4", "table 3"]
    assert body["total_count"] == 5 and body["previous"] is None
    assert "columns" not in body["data"][0]
    following = client.get(body["next"]).json()
    assert [row["name"] for row in following["data"]] == ["table 2", "table 1"]

    def names(query):
        return [row["name"] for row in client.get(f"{URL}?{query}").json()["data"]]

    assert names("search=TABLE 3") == ["table 3"]
    assert names("owner=nobody") == []
    assert names("ordering=name&limit=1") == ["table 0"]
    error(client.get(f"{URL}?nmae=x"), 400, "VALIDATION_ERROR")
    error(client.get(f"{URL}?ordering=digest"), 400, "VALIDATION_ERROR")


def test_images_are_answered_with_shape_counts_and_small_pictures(client, sign_in, upload):
    sign_in("operator")
    file = BytesIO()
    images = np.zeros((3, 3, 8, 9), np.uint16)
    np.savez(file, images=images, labels=np.array([4, 4, -1]))
    response = upload(file.getvalue(), "scans.npz")
    assert response.status_code == 201, response.content
    data = response.json()["data"]
    assert data["format"] == "npz" and data["name"] == "scans" and data["num_rows"] == 3
    image, label = data["columns"]
    assert image["type"] == "image" and image["shape"] == [8, 9, 3]
    assert label["counts"] == [{"value": -1, "count": 1}, {"value": 4, "count": 2}]
    preview = client.get(f"{response['Location']}/preview?limit=2").json()["data"]
    assert preview["columns"] == ["image", "label"] and len(preview["rows"]) == 2
    assert preview["rows"][0][0].startswith("data:image/png;base64,")
    np.savez(file := BytesIO(), images=images)
    assert error(upload(file.getvalue()), 400, "MISSING_ARRAY")["details"]["given"] == ["images"]
