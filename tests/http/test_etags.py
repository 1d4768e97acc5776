"""Responses that are read again and again have an ETag, and If-None-Match saves their transfer."""

import pytest

from tests.api.conftest import signed_in
from tests.pages import making


@pytest.fixture
def operator(db):
    return signed_in("otto", "operator")


@pytest.fixture
def operation(operator):
    return making.operation(operator.user)


def again(api, path, tag):
    return api.client.get(f"/api/v1/{path}", headers={"if-none-match": tag})


@pytest.mark.parametrize(
    "path",
    ["operations", "operations/{}", "operations/{}/live", "operations/{}/metrics",
     "operations/{}/events", "operations/{}/attempts", "studies"],
)  # fmt: skip
def test_the_same_content_is_not_sent_twice(operator, operation, path):
    path = path.format(operation.pk)
    first = operator.get(path)
    assert first["Cache-Control"] == "no-store"
    second = again(operator, path, first["ETag"])
    assert (second.status_code, second.content, second["ETag"]) == (304, b"", first["ETag"])
    assert second["Cache-Control"] == "no-store"


def test_changed_content_is_sent(operator, operation):
    path = f"operations/{operation.pk}"
    tag = operator.get(path)["ETag"]
    operation.row.update(name="renamed")
    response = again(operator, path, tag)
    assert response.json()["data"]["name"] == "renamed"
    assert response["ETag"] != tag


def test_a_weak_tag_and_one_of_several_tags_match(operator, operation):
    path = f"operations/{operation.pk}"
    tag = operator.get(path)["ETag"]
    for sent in (f"W/{tag}", f'"other", {tag}', "*"):
        assert again(operator, path, sent).status_code == 304
    assert again(operator, path, '"other"').status_code == 200


def test_errors_have_no_tag(operator, operation):
    response = again(operator, "operations/op_none", "*")
    assert (response.status_code, "ETag" in response) == (404, False)
    assert response["Cache-Control"] == "no-store"


def test_the_tag_of_another_user_does_not_match(operator, operation):
    """`allowed_actions` depend on the caller."""
    path = f"operations/{operation.pk}"
    tag = operator.get(path)["ETag"]
    assert again(signed_in("vera", "viewer"), path, tag).status_code == 200
