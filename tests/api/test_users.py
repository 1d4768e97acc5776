"""Accounts over the API: who may change whom, what a change ends, and what is logged."""

import logging

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.api.answers import data, error
from tests.api.conftest import Api, signed_in
from trainops.http import users
from trainops.http.models import Token, TokenScope
from trainops.http.roles import Role, role_of


@pytest.fixture
def root(db, settings):
    """A superuser. Hashes are fast."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    return Api(user, client)


def patch(api, path, body):
    return api.client.patch(f"/api/v1/{path}", body, content_type="application/json")


def test_an_account_is_created_with_a_role_and_a_password_that_works(root, caplog):
    with caplog.at_level(logging.INFO, "trainops.access"):
        response = root.post("users", {"username": "ben", "role": "operator"})
    made = data(response, 201)
    assert response["Location"] == "/api/v1/users/ben"
    user = User.objects.get(username="ben")
    assert user.check_password(made["password"]) and len(made["password"]) >= 16
    assert role_of(user) is Role.OPERATOR
    assert (user.is_staff, user.is_superuser) == (False, False)
    assert "user created by=root from=127.0.0.1 user=ben" in caplog.text
    assert "role given by=root from=127.0.0.1 user=ben role=operator" in caplog.text
    assert made["password"] not in caplog.text
    error(root.post("users", {"username": "ben"}), 409, "USER_EXISTS")
    assert "password" not in data(root.get("users/ben"))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"username": "a b"}, "username"),
        ({"username": "a" * 151}, "username"),
        ({"username": "ben", "role": "king"}, "role"),
        ({"username": "ben", "email": "x"}, "email"),
        ({"username": "ben", "is_superuser": True}, "is_superuser"),
        ({"username": "ben", "password": "chosen by the admin"}, "password"),
    ],
)
def test_a_bad_account_is_refused_by_field(root, body, field):
    assert field in error(root.post("users", body), 400, "VALIDATION_ERROR")["details"]["fields"]


def test_the_list_has_a_fixed_number_of_queries(root, django_assert_num_queries):
    for number in range(3):
        users.create(f"user{number}", role=Role.VIEWER)
    with django_assert_num_queries(4):  # session, caller; users, their roles
        rows = data(root.get("users"))
    assert [row["username"] for row in rows] == ["root", "user0", "user1", "user2"]
    assert [row["role"] for row in rows] == ["admin", "viewer", "viewer", "viewer"]


def test_only_superusers_manage_accounts(root):
    ada = signed_in("ada", "admin")
    worker, secret = Token.objects.create(root.user, scope=TokenScope.WORKER)
    requests = [
        ("get", "users", None),
        ("post", "users", {"username": "mine", "role": "admin"}),
        ("get", "users/root", None),
        ("patch", "users/ada", {"role": "admin"}),
        ("post", "users/root/password", {}),
        ("get", "users/root/tokens", None),
        ("post", "users/root/tokens", {}),
        ("delete", "users/root/tokens/tok_0", None),
    ]
    for method, path, body in requests:
        for client, headers in [
            (ada.client, {}),
            (Client(), {"authorization": f"Bearer {secret}"}),
        ]:
            response = getattr(client, method)(
                f"/api/v1/{path}", body, content_type="application/json", headers=headers
            )
            error(response, 403, "PERMISSION_DENIED")
        assert getattr(Client(), method)(f"/api/v1/{path}").status_code == 401
    assert set(User.objects.values_list("username", flat=True)) == {"root", "ada"}
    worker.refresh_from_db()


def test_a_role_replaces_the_present_one_and_null_takes_it(root):
    vera = signed_in("vera", "viewer")
    assert data(patch(root, "users/vera", {"role": "admin"}))["role"] == "admin"
    assert [group.name for group in vera.user.groups.all()] == ["admin"]
    assert data(patch(root, "users/vera", {"role": None}))["role"] is None
    error(vera.get("operations"), 403, "PERMISSION_DENIED")
    error(patch(root, "users/vera", {}), 400, "VALIDATION_ERROR")
    error(patch(root, "users/none", {"role": "admin"}), 404, "USER_NOT_FOUND")


def test_a_disabled_account_has_no_access_until_it_is_enabled(root, caplog):
    vera = signed_in("vera", "viewer")
    _, secret = Token.objects.create(vera.user)
    bearer = {"authorization": f"Bearer {secret}"}
    assert Client().get("/api/v1/me", headers=bearer).status_code == 200
    with caplog.at_level(logging.INFO, "trainops.access"):
        assert data(patch(root, "users/vera", {"is_active": False}))["is_active"] is False
    assert "user disabled by=root from=127.0.0.1 user=vera" in caplog.text
    assert Client().get("/api/v1/me", headers=bearer).status_code == 401
    assert vera.get("me").status_code == 401
    patch(root, "users/vera", {"is_active": True})
    assert Client().get("/api/v1/me", headers=bearer).status_code == 200


def test_a_new_password_revokes_tokens_and_ends_sessions(root, caplog):
    vera = signed_in("vera", "viewer")
    Token.objects.create(vera.user)
    with caplog.at_level(logging.INFO, "trainops.access"):
        made = data(root.post("users/vera/password"))
    assert User.objects.get(username="vera").check_password(made["password"])
    assert not Token.objects.filter(user=vera.user).exists()
    assert vera.get("me").status_code == 401
    assert "password set by=root from=127.0.0.1 user=vera tokens_revoked=1" in caplog.text
    error(root.post("users/vera/password", {"password": "12345678"}), 400, "VALIDATION_ERROR")
    chosen = data(root.post("users/vera/password", {"password": "battery staple 9"}))
    assert chosen["password"] == "battery staple 9"


def test_a_change_of_the_own_account_is_refused(root):
    for change in ({"role": "viewer"}, {"is_active": False}):
        error(patch(root, "users/root", change), 409, "OWN_ACCOUNT")
    error(root.post("users/root/password"), 409, "OWN_ACCOUNT")
    User.objects.create_superuser("other")
    error(patch(root, "users/other", {"role": "viewer"}), 409, "IS_SUPERUSER")
    assert data(patch(root, "users/other", {"is_active": False}))["is_active"] is False


def test_a_service_account_has_tokens_that_a_superuser_makes_and_no_password(root, caplog):
    with caplog.at_level(logging.INFO, "trainops.access"):
        made = data(
            root.post("users", {"username": "ci", "role": "viewer", "is_service": True}), 201
        )
        token = data(root.post("users/ci/tokens", {"name": "nightly", "scope": "read"}), 201)
    assert (made["password"], made["is_service"]) == (None, True)
    assert "service account created by=root from=127.0.0.1 user=ci" in caplog.text
    assert f"token created by=root from=127.0.0.1 user=ci token={token['token_id']}" in caplog.text
    for password in ("", "!"):
        body = {"username": "ci", "password": password}
        answer = Client().post("/api/v1/tokens", body, content_type="application/json")
        assert answer.status_code in (400, 401)
    bearer = {"authorization": f"Bearer {token['token']}"}
    me = Client().get("/api/v1/me", headers=bearer).json()["data"]
    assert (me["username"], me["role"]) == ("ci", "viewer")
    _, own = Token.objects.create(User.objects.get(username="ci"))
    own_bearer = {"authorization": f"Bearer {own}"}
    answer = Client().post("/api/v1/tokens", {}, "application/json", headers=own_bearer)
    error(answer, 403, "PERMISSION_DENIED")  # a token that has leaked makes no others
    Token.objects.exclude(public_id=token["token_id"]).delete()
    listed = data(root.get("users/ci/tokens"))
    assert [(each["name"], each["scope"]) for each in listed] == [("nightly", "read")]
    assert not any("token" in each for each in listed)
    path = f"users/ci/tokens/{token['token_id']}"
    assert "was revoked" in data(root.delete(path))["message"]
    assert Client().get("/api/v1/me", headers=bearer).status_code == 401
    error(root.delete(path), 404, "TOKEN_NOT_FOUND")
    error(root.post("users/ci/tokens", {"scope": "worker"}), 403, "PERMISSION_DENIED")
    error(root.post("users/ci/tokens", {"scope": "all"}), 400, "VALIDATION_ERROR")
    error(root.post("users/ci/tokens", {"username": "x"}), 400, "VALIDATION_ERROR")


def test_tokens_that_act_for_another_person_are_refused(root):
    users.create("ben", role=Role.OPERATOR)
    User.objects.create_superuser("other")
    User.objects.create_user("ann")  # without a password, like one that another service signs in
    users.create("ci", is_service=True)
    for name in ("ben", "root", "other", "ann"):
        error(root.post(f"users/{name}/tokens"), 409, "NO_SERVICE_ACCOUNT")
    assert not Token.objects.exists()


def test_a_service_account_is_given_no_password(root):
    users.create("ci", is_service=True)
    data(root.post("users/ci/tokens"), 201)
    error(root.post("users/ci/password"), 409, "IS_SERVICE_ACCOUNT")
    assert Token.objects.count() == 1
    user = User.objects.get(username="ci")
    user.set_password("battery staple 9")  # as the admin and `manage.py changepassword` do
    user.save()
    assert data(root.get("users/ci"))["is_service"] is False
    error(root.post("users/ci/tokens"), 409, "NO_SERVICE_ACCOUNT")


@pytest.mark.slow
def test_passwords_are_set_at_a_limited_rate(root):
    signed_in("vera", "viewer")
    statuses = [root.post("users/vera/password").status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    assert root.get("users").status_code == 200
