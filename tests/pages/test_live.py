"""Responses that pages follow: people share one rendering only where they see the same."""

import pytest
from django.test import Client

from tests.pages import making
from trainops.gateway.live import FOLLOWED

pytestmark = pytest.mark.django_db


def followed(user, path):
    """Return what the gateway learns of a response, and the response."""
    client = Client()
    client.force_login(user)
    response = client.get(path, headers={"Accept": "text/event-stream"})
    assert response.status_code == 200
    return response.wsgi_request.META[FOLLOWED], response


def digests(response):
    return {name: part["digest"] for name, part in response.json()["parts"].items()}


def test_people_of_one_role_share_the_page_of_an_operation_its_owner_does_not(ana, ben, vera, ada):
    operation = making.operation(ana, "RUNNING")
    path = f"/operations/{operation.pk}/live?have=header:&points=0"
    keys = {user.username: followed(user, path)[0].alike for user in (ana, ben, vera, ada)}
    assert len(set(keys.values())) == 4
    carl = making.person("carl", "operator")
    theirs, response = followed(carl, path)
    assert theirs.alike == keys["ben"]
    assert digests(response) == digests(followed(ben, path)[1])


def test_the_time_zone_of_the_reader_keeps_renderings_apart(vera):
    path = f"/operations/{making.operation(vera).pk}/live?have=&points=0"
    client = Client()
    client.force_login(vera)
    client.cookies["time_zone"] = "Asia/Tokyo"
    elsewhere = client.get(path).wsgi_request.META[FOLLOWED].alike
    assert elsewhere != followed(vera, path)[0].alike


def test_a_query_that_follows_asks_for_what_changes_afterwards(ana):
    operation = making.operation(ana, "RUNNING")
    making.curve(operation)
    path = f"/operations/{operation.pk}/live"
    first, response = followed(ana, f"{path}?have=header:,progress:&points=0")
    assert set(response.json()["parts"]) >= {"header", "progress"}
    following, response = followed(ana, f"{path}?{first.query}")
    assert (response.json()["parts"], response.json()["points"]["series"]) == ({}, [])
    assert following == first


def test_lists_are_shared_by_people_without_operations(ana, ben, vera):
    making.operation(ana)
    carl = making.person("carl", "operator")
    keys = {user.username: followed(user, "/operations/live")[0].alike for user in (ana, ben, vera)}
    assert followed(carl, "/operations/live")[0].alike == keys["ben"]
    assert len(set(keys.values())) == 3


def test_the_operations_of_deleted_users_belong_to_no_reader(ana, ben):
    making.operation(ana, "RUNNING", name="orphan")
    ana.delete()
    _, response = followed(ben, "/operations/live?q=owner:me")
    assert response.json()["counts"][""] == "0"


def test_the_list_follows_its_rows_and_filters(ana):
    operation = making.operation(ana, "RUNNING")
    path = "/operations/live?tab=active&rows="
    first, response = followed(ana, f"{path}{operation.pk}:")
    assert operation.pk in response.json()["rows"]
    following, response = followed(ana, f"/operations/live?{first.query}")
    assert (response.json()["rows"], "tab=active" in following.query) == ({}, True)


@pytest.mark.parametrize("name", ["list", "operation", "others"])
def test_the_counts_of_the_menu_are_followed(ana, name):
    operation = making.operation(ana, "RUNNING")
    making.operation(ana, "FAILED")
    making.operation(ana, "FAILED")
    path = {
        "list": "/operations/live",
        "operation": f"/operations/{operation.pk}/live?have=&points=0",
        "others": "/menu/counts",
    }[name]
    given = followed(ana, path)[1].json()
    counts = given if name == "others" else given["menu"]
    assert counts == {"active": 1, "attention": 2, "workers": 0}
