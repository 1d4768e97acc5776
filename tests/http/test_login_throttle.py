"""No endpoint allows passwords to be guessed quickly, and no trick circumvents the throttle."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connections
from django.test import Client

from tests.waiting import wait_until
from trainops.clock import seconds_from_now
from trainops.http import login_throttle, passwords, rate_limits, recent_counts
from trainops.http.admission import Admission
from trainops.http.models import RecentCount, Token

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse"


def by_basic(client, name, password, **headers):
    basic = base64.b64encode(f"{name}:{password}".encode()).decode()
    answer = client.get("/api/v1/tokens", HTTP_AUTHORIZATION=f"Basic {basic}", **headers)
    return answer.status_code == 200


def by_body(client, name, password, **headers):
    body = {"username": name, "password": password, "name": "x"}
    answer = client.post("/api/v1/tokens", body, content_type="application/json", **headers)
    return answer.status_code == 201


def by_page(client, name, password, **headers):
    body = {"username": name, "password": password}
    return client.post("/login/", body, **headers).status_code == 302


@pytest.mark.parametrize("enter", [by_basic, by_body, by_page])
def test_after_several_wrong_passwords_the_right_one_must_wait(client, admin_user, enter):
    admin_user.set_password(PASSWORD)
    admin_user.save()
    assert enter(client, "admin", PASSWORD)
    client.logout()
    for number in range(login_throttle.MAX_FAILURES):
        address = {"HTTP_X_FORWARDED_FOR": f"10.0.0.{number}"}
        assert not enter(client, "admin", f"wrong {number}", **address)
    assert not enter(client, "admin", PASSWORD)


def test_no_client_can_lock_out_another_user(client, admin_user):
    admin_user.set_password(PASSWORD)
    admin_user.save()
    for number in range(login_throttle.MAX_FAILURES):
        by_basic(client, "admin", f"wrong {number}", REMOTE_ADDR="10.0.0.66")
    assert by_basic(client, "admin", PASSWORD)


def test_behind_a_proxy_wrong_passwords_count_for_the_address_of_the_client(client, ana, settings):
    """All of them connect from the address of the proxy."""
    settings.BEHIND_HTTPS_PROXY = True
    for number in range(login_throttle.MAX_FAILURES):
        forged = {"HTTP_X_FORWARDED_FOR": f"10.9.9.{number}, 10.0.0.66"}
        assert not by_page(client, "ana", f"wrong {number}", **forged)
    assert not by_page(client, "ana", PASSWORD, HTTP_X_FORWARDED_FOR="10.0.0.66")
    assert by_page(client, "ana", PASSWORD, HTTP_X_FORWARDED_FOR="10.0.0.7")


def test_the_addresses_of_one_ipv6_customer_count_together(client, ana, monkeypatch):
    monkeypatch.setattr(login_throttle, "MAX_FAILURES_OF_ADDRESS", 4)
    for number in range(4):
        assert not by_page(client, f"name-{number}", "wrong", REMOTE_ADDR=f"2001:db8::{number}")
    assert not by_page(client, "ana", PASSWORD, REMOTE_ADDR="2001:db8::99")
    assert by_page(client, "ana", PASSWORD, REMOTE_ADDR="2001:db8:0:1::99")


@pytest.fixture
def ana(db):
    return User.objects.create_user("ana", password=PASSWORD)


def fail(client, name, times, enter=by_page):
    for number in range(times):
        assert not enter(client, name, f"wrong {number}")


def test_many_names_from_one_address_are_slowed_and_other_addresses_are_not(
    client, ana, monkeypatch
):
    monkeypatch.setattr(login_throttle, "MAX_FAILURES_OF_ADDRESS", 4)
    for number in range(4):
        fail(client, f"name-{number}", 1)
    assert not by_basic(client, "ana", PASSWORD)
    assert by_basic(client, "ana", PASSWORD, REMOTE_ADDR="10.0.0.66")


def try_password(client, **headers):
    body = {"username": "ana", "password": PASSWORD, "name": "x"}
    return client.post("/api/v1/tokens", body, content_type="application/json", **headers)


def test_passwords_in_bodies_are_limited_by_address(client, ana):
    statuses = [try_password(client).status_code for _ in range(rate_limits.MAX_PASSWORDS_TRIED)]
    assert statuses == [201] * rate_limits.MAX_PASSWORDS_TRIED
    cache.clear()  # the counters survive a restart
    refused = try_password(client)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "THROTTLED")
    assert 1 <= int(refused["Retry-After"]) <= rate_limits.SECONDS
    assert try_password(client, REMOTE_ADDR="10.0.0.66").status_code == 201
    RecentCount.objects.update(expires_at=seconds_from_now(-1))
    assert try_password(client).status_code == 201


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_counts_of_several_connections_are_added():
    """As in several web processes: each thread has a connection of its own."""
    with ThreadPoolExecutor(4) as pool:
        counted = list(pool.map(lambda _: count_once(), range(40)))
    assert RecentCount.objects.get(pk="one").number == 40
    assert max(found.number for found in counted) == 40


def count_once():
    try:
        return recent_counts.count("one", seconds=300)
    finally:
        connections.close_all()


@pytest.mark.slow
def test_other_names_do_not_evict_a_counter(client, ana):
    fail(client, "ana", login_throttle.MAX_FAILURES, by_basic)
    for number in range(400):
        recent_counts.count(f"other {number}", seconds=300)
    assert not by_basic(client, "ana", PASSWORD)


def test_a_success_does_not_forget_the_failures_of_the_address(client, ana, monkeypatch):
    monkeypatch.setattr(login_throttle, "MAX_FAILURES_OF_ADDRESS", 4)
    for number in range(3):
        fail(client, f"name-{number}", 1)
    assert by_basic(client, "ana", PASSWORD)
    fail(client, "another", 1)
    assert not by_basic(client, "ana", PASSWORD)


def test_counters_expire_and_are_cleaned(client, ana):
    fail(client, "ana", login_throttle.MAX_FAILURES, by_basic)
    RecentCount.objects.update(expires_at=seconds_from_now(-1))
    assert by_basic(client, "ana", PASSWORD)
    fail(client, "ana", 1, by_basic)
    assert not recent_counts.forget_expired()
    RecentCount.objects.update(expires_at=seconds_from_now(-1))
    assert recent_counts.forget_expired() == 2


@pytest.fixture
def django_client():
    return Client()


def change(client, old, new="battery staple 9"):
    body = {"old_password": old, "new_password1": new, "new_password2": new}
    return client.post("/account/password", body)


def test_the_old_password_cannot_be_guessed_either(client, ana):
    client.force_login(ana)
    assert client.get("/admin/password_change/").url == "/account/password"
    for number in range(login_throttle.MAX_FAILURES):
        assert change(client, f"wrong {number}").status_code == 200
    assert "Too many wrong passwords" in change(client, PASSWORD).content.decode()
    ana.refresh_from_db()
    assert ana.check_password(PASSWORD)


def test_a_new_password_revokes_tokens_and_ends_other_sessions(client, django_client, ana):
    _, secret = Token.objects.create(ana)
    client.force_login(ana)
    django_client.force_login(ana)
    assert change(client, PASSWORD).status_code == 302
    assert not Token.objects.exists()
    bearer = {"Authorization": f"Bearer {secret}"}
    assert django_client.get("/api/v1/me", headers=bearer).status_code == 401
    assert django_client.get("/account/password").status_code == 302
    assert client.get("/account/password").status_code == 200


def test_a_password_that_is_set_elsewhere_revokes_tokens_too(ana):
    Token.objects.create(ana)
    ana.set_password("battery staple 9")  # as the admin's form and `changepassword` do
    ana.save()
    assert not Token.objects.exists()


@pytest.fixture
def slow_hashes(settings, monkeypatch):
    """Hashes of two threads that do not end before they are released."""
    settings.PASSWORD_HASHERS = ["trainops.http.passwords.LimitedHasher"]
    begun, go_on = [], threading.Event()

    def encode(self, password, salt, iterations=None):
        begun.append(password)
        go_on.wait(20)
        return "pbkdf2_sha256$1$salt$hash"

    monkeypatch.setattr(passwords.PBKDF2PasswordHasher, "encode", encode)
    hasher = passwords.LimitedHasher()
    threads = [
        threading.Thread(target=hasher.encode, args=["x", "salt"])
        for _ in range(passwords.MAX_HASHES)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == passwords.MAX_HASHES)
    yield begun
    go_on.set()
    for thread in threads:
        thread.join()


def test_more_passwords_at_once_are_asked_to_wait(client, admin_user, slow_hashes):
    """And before that they wait in the gateway, which knows each of these addresses."""
    body = {"username": "nobody", "password": "x"}
    answers = [
        client.post("/login/", body),
        client.post("/api/v1/tokens", body | {"name": "x"}, content_type="application/json"),
        client.get("/api/v1/tokens", HTTP_AUTHORIZATION="Basic YTpi"),
    ]
    client.force_login(admin_user)
    User.objects.create(username="ben")
    chosen = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    person, is_json = {"username": "eva", "role": "viewer"}, "application/json"
    new = {"password": "battery staple 9"}
    answers += [
        client.post("/account/password", {"old_password": "x"}),
        client.post("/account/second-factor", {"password": "x", "code": "000000"}),
        client.post("/account/second-factor/remove", {"password": "x"}),
        client.post("/account/second-factor/recovery-codes", {"password": "x"}),
        client.post("/admin/auth/user/add/", chosen | {"username": "eva"}),
        client.post(f"/admin/auth/user/{admin_user.pk}/password/", chosen),
        client.post("/api/v1/users", person, content_type=is_json),
        client.post("/api/v1/users/ben/password", new, content_type=is_json),
    ]
    for answer in answers:
        path = answer.wsgi_request.path
        assert (answer.status_code, answer.get("Retry-After")) == (503, "2"), (path, answer.content)
        assert Admission().checks_password(answer.wsgi_request.environ), path
    assert "Too many passwords" in answers[0].content.decode()
    assert answers[1].json()["error"]["code"] == "TOO_MANY_PASSWORDS"
    assert client.get("/api/v1/health").status_code == 200
    assert len(slow_hashes) == passwords.MAX_HASHES
