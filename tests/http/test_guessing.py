"""No door lets passwords be guessed quickly, and no trick opens one."""

import base64

import pytest
from django.core.cache import cache

from trainops.http import guessing

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _fresh():
    cache.clear()
    yield
    cache.clear()


def by_basic(client, name, password, **headers):
    basic = base64.b64encode(f"{name}:{password}".encode()).decode()
    answer = client.get("/api/v1/tokens", HTTP_AUTHORIZATION=f"Basic {basic}", **headers)
    return answer.status_code == 200


def by_body(client, name, password, **headers):
    body = {"username": name, "password": password, "name": "x"}
    answer = client.post("/api/v1/tokens", body, content_type="application/json", **headers)
    return answer.status_code == 201


def by_admin(client, name, password, **headers):
    body = {"username": name, "password": password}
    return client.post("/admin/login/", body, **headers).status_code == 302


def by_page(client, name, password, **headers):
    body = {"username": name, "password": password}
    return client.post("/login/", body, **headers).status_code == 302


@pytest.mark.parametrize("enter", [by_basic, by_body, by_admin, by_page])
def test_after_several_wrong_passwords_the_right_one_must_wait(client, admin_user, enter):
    admin_user.set_password(PASSWORD)
    admin_user.save()
    assert enter(client, "admin", PASSWORD)
    client.logout()
    for number in range(guessing.MAX_FAILURES):
        address = {"HTTP_X_FORWARDED_FOR": f"10.0.0.{number}"}
        assert not enter(client, "admin", f"wrong {number}", **address)
    assert not enter(client, "admin", PASSWORD)


def test_nobody_can_shut_out_somebody_else(client, admin_user):
    admin_user.set_password(PASSWORD)
    admin_user.save()
    for number in range(guessing.MAX_FAILURES):
        by_basic(client, "admin", f"wrong {number}", REMOTE_ADDR="10.0.0.66")
    assert by_basic(client, "admin", PASSWORD)
