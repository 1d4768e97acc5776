"""The log of accesses: who, from where, what; never a secret."""

import logging
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError
from django.db.models import QuerySet

from trainops.http import login_throttle
from trainops.http.models import Token
from trainops.text import LineFormatter

pytestmark = pytest.mark.django_db
PASSWORD, TOKENS = "correct horse", "/api/v1/tokens"


@pytest.fixture
def ana(db):
    user = User.objects.create_user("ana", password=PASSWORD)
    user.groups.add(Group.objects.get(name="viewer"))
    return user


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="trainops.access")
    return lambda: [
        record.getMessage() for record in caplog.records if record.name == "trainops.access"
    ]


def sign_in(client, password=PASSWORD, name="ana"):
    return client.post("/login/", {"username": name, "password": password})


def test_a_sign_in_is_logged_with_name_and_address(client, ana, lines, monkeypatch):
    monkeypatch.setattr(login_throttle, "MAX_FAILURES", 1)
    sign_in(client)
    client.post("/logout/")
    sign_in(client, "secret guess")
    sign_in(client, "secret guess")
    assert lines() == [
        "sign-in ok by=- from=127.0.0.1 user=ana method=password",
        "sign-out by=ana from=127.0.0.1 user=ana",
        "sign-in failed by=- from=127.0.0.1 user=ana",
        "sign-in throttled by=- from=127.0.0.1 user=ana",
    ]


def test_the_life_of_a_token_is_logged_without_its_secret(client, ana, lines):
    client.force_login(ana)
    answer = client.post(TOKENS, {"name": "laptop"}, content_type="application/json")
    made = answer.json()["data"]
    client.logout()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    for _ in range(2):
        client.get("/api/v1/me", headers=bearer)
    client.delete(f"{TOKENS}/current", headers=bearer)
    client.get("/api/v1/me", headers=bearer)
    token = made["token_id"]
    assert [each for each in lines() if "token" in each] == [
        f"token created by=ana from=127.0.0.1 user=ana token={token} scope=user",
        f"token used first by=ana from=127.0.0.1 token={token}",
        f"token revoked by=ana from=127.0.0.1 user=ana token={token}",
        "token refused by=- from=127.0.0.1 method=GET path=/api/v1/me",
    ]
    assert made["token"] not in "".join(lines())


def test_a_token_shows_when_and_from_where_it_was_used_last(client, ana):
    token, secret = Token.objects.create(ana)
    bearer = {"Authorization": f"Bearer {secret}"}

    def used(address):
        client.get("/api/v1/me", headers=bearer, REMOTE_ADDR=address)
        token.refresh_from_db()
        return token.last_used_from

    listed = client.get(TOKENS, headers=bearer).json()["data"][0]  # not used before
    assert (listed["last_used_at"], listed["last_used_from"]) == (None, "")
    assert used("10.0.0.5") == "127.0.0.1"  # within a minute
    long_ago = token.last_used_at - timedelta(minutes=2)
    Token.objects.update(last_used_at=long_ago)
    assert used("10.0.0.5") == "10.0.0.5" and token.last_used_at > long_ago
    assert client.get(TOKENS, headers=bearer).json()["data"][0]["last_used_from"] == "10.0.0.5"


def test_a_response_does_not_depend_on_whether_the_use_can_be_written(
    client, ana, lines, monkeypatch
):
    def fail(*_, **__):
        raise DatabaseError("database is locked")

    secret = Token.objects.create(ana)[1]
    monkeypatch.setattr(QuerySet, "update", fail)
    answer = client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 200
    assert any("was not written: database is locked" in each for each in lines())


def test_refused_permissions_are_logged(client, ana, lines):
    client.force_login(ana)
    client.get("/operations/new")
    client.post("/api/v1/checkpoints/cleanup")
    assert lines() == [
        "permission refused by=ana from=127.0.0.1 method=GET path=/operations/new",
        "permission refused by=ana from=127.0.0.1 method=POST path=/api/v1/checkpoints/cleanup",
    ]


def test_passwords_and_roles_are_logged(client, ana, lines):
    client.force_login(ana)
    new = "battery staple 9"
    body = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    client.post("/account/password", body)
    ana.groups.set([Group.objects.get(name="admin")])
    ana.groups.clear()
    assert lines() == [
        "password set by=ana from=127.0.0.1 user=ana tokens_revoked=0",
        "role taken by=- from=- user=ana role=viewer",
        "role given by=- from=- user=ana role=admin",
        "role taken by=- from=- user=ana role=admin",
    ]


def test_no_log_has_a_control_character_of_a_caller():
    formatter = LineFormatter("%(levelname)s %(message)s")
    text = "ana\n12:00:00 INFO forged\x1b[31m\u202e\x85"
    record = logging.LogRecord("x", logging.INFO, "", 0, "from %s", (text,), None)
    assert formatter.format(record) == (r"INFO from ana\n12:00:00 INFO forged\x1b[31m\u202e\x85")
    try:
        raise ValueError(text)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    _, *below = formatter.format(record).splitlines()
    assert all(line.startswith("    ") and "\x1b" not in line for line in below)
