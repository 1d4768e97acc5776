"""What recipes logged besides numbers, over HTTP."""

import io
import wave

import pytest

from apps.operations.models import Media
from tests.api.answers import data, error
from tests.operations.rows import claimed
from trainops.media import Audio, ConfusionMatrix, Image
from trainops.media.items import MediaItem


@pytest.fixture
def operation(operator):
    return claimed(operator.user)


def logged(operation, *values, name="x", step=1, attempt=1):
    found = []
    for index, value in enumerate(values):
        item = MediaItem(step, False, name, index, value.type, value.caption, value.encode())
        row = Media.of(item, operation.pk, attempt, 0.0)
        row.save()
        found.append(row)
    return found


def test_items_are_listed_by_name_and_step_without_retired_ones(operator, operation):
    first, second = logged(operation, Image([[0.0]], caption="<b>"), Image([[1.0]]))
    logged(operation, Image([[1.0]]), step=2)
    Media.objects.filter(step=2).update(retired_by=2)
    (third,) = logged(operation, Image([[0.5]]), step=2, attempt=2)
    (matrix,) = logged(operation, ConfusionMatrix("ab", [[1, 0], [0, 2]]), name="a")
    found = data(operator.get(f"operations/{operation.pk}/media"))
    assert [each["name"] for each in found] == ["a", "x"]
    assert found[0]["steps"][0]["type"] == "confusion_matrix"
    assert found[0]["steps"][0]["items"][0]["id"] == matrix.pk
    assert [(each["step"], each["attempt"]) for each in found[1]["steps"]] == [(1, 1), (2, 2)]
    assert [each["id"] for each in found[1]["steps"][0]["items"]] == [first.pk, second.pk]
    assert found[1]["steps"][0]["items"][0]["caption"] == "<b>"
    assert found[1]["steps"][1]["items"][0]["id"] == third.pk
    only = data(operator.get(f"operations/{operation.pk}/media", name="a"))
    assert [each["name"] for each in only] == ["a"]


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (Image([[0.0, 1.0]]), "image/png"),
        (Audio([0.0, 0.5, -0.5], 8000), "audio/wav"),
    ],
)
def test_content_has_the_type_of_what_was_logged_and_no_other(
    viewer, operation, value, content_type
):
    """A viewer of the operation of another user reads its media, as its metrics."""
    (row,) = logged(operation, value)
    response = viewer.get(f"operations/{operation.pk}/media/{row.pk}")
    assert response.status_code == 200
    assert response["Content-Type"] == content_type
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("inline; filename=")
    assert response.content == value.encode()


def test_other_content_is_json_and_the_page_has_it_as_a_file(operator, operation):
    value = ConfusionMatrix(["<script>", "b"], [[1, 0], [0, 2]])
    (row,) = logged(operation, value)
    content = {"labels": ["<script>", "b"], "counts": [[1, 0], [0, 2]]}
    assert data(operator.get(f"operations/{operation.pk}/media/{row.pk}")) == content
    response = operator.client.get(f"/operations/{operation.pk}/media/{row.pk}")
    assert (response["Content-Type"], response.json()) == ("application/json", content)
    assert response["X-Content-Type-Options"] == "nosniff"


def test_a_range_is_a_part_of_the_content(operator, operation):
    (row,) = logged(operation, Audio([0.0] * 100, 8000))
    address, whole = f"/api/v1/operations/{operation.pk}/media/{row.pk}", bytes(row.content)
    for asked, first, last in (("0-9", 0, 9), ("240-", 240, 243), ("-4", 240, 243)):
        part = operator.client.get(address, headers={"Range": f"bytes={asked}"})
        assert (part.status_code, part.content) == (206, whole[first : last + 1])
        assert part["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
    for asked in ("bytes=9-1", "bytes=999-", "bytes=-", "bytes=0-1,3-4", "items=0-1"):
        assert operator.client.get(address, headers={"Range": asked}).content == whole
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getnframes(), file.getframerate()) == (100, 8000)


def test_items_of_another_operation_and_unknown_ones_are_not_found(operator, operation):
    (row,) = logged(operation, Image([[0.0]]))
    other = claimed(operator.user)
    for address in (f"{other.pk}/media/{row.pk}", f"{operation.pk}/media/{row.pk + 1}"):
        error(operator.get(f"operations/{address}"), 404, "MEDIA_NOT_FOUND")
    assert operator.get("operations/op_none/media").status_code == 404


def test_media_need_a_session_or_a_token(client, operation):
    (row,) = logged(operation, Image([[0.0]]))
    assert client.get(f"/api/v1/operations/{operation.pk}/media").status_code == 401
    assert client.get(f"/api/v1/operations/{operation.pk}/media/{row.pk}").status_code == 401
    assert client.get(f"/operations/{operation.pk}/media/{row.pk}").status_code == 302


def test_the_page_reads_the_same_with_its_session(operator, operation):
    (row,) = logged(operation, Image([[0.0]]))
    names = operator.client.get(f"/operations/{operation.pk}/media").json()["names"]
    assert names == data(operator.get(f"operations/{operation.pk}/media"))
    content = operator.client.get(f"/operations/{operation.pk}/media/{row.pk}")
    assert (content.content, content["Content-Type"]) == (bytes(row.content), "image/png")
