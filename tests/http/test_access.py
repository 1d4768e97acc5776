"""Who may come in, how, and what they may do."""

from base64 import b64encode
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.cache import cache
from django.utils import timezone
from rest_framework.permissions import AllowAny
from rest_framework.test import APIRequestFactory

from trainops.http.models import Token, TokenScope
from trainops.http.permissions import (
    IsAdmin,
    IsWorker,
    RolePermission,
    WorkersWriteViewersRead,
)
from trainops.http.roles import Role, ensure_roles, has_role, role_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.http.urls")]
PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _nobody_guessed_before():
    cache.clear()


@pytest.fixture
def make_user():
    def make_user(role=None, name="ana", **fields):
        user = User.objects.create_user(name, password=PASSWORD, **fields)
        if role:
            user.groups.add(Group.objects.get(name=role))
        return user

    return make_user


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def post_json(client, path, body=None, **more):
    return client.post(path, body or {}, content_type="application/json", **more)


# --- roles


def test_the_groups_are_there_after_a_migration():
    assert set(Group.objects.values_list("name", flat=True)) >= {"viewer", "operator", "admin"}


def test_missing_groups_come_back():
    Group.objects.all().delete()
    ensure_roles()
    ensure_roles()
    assert Group.objects.count() == 3


@pytest.mark.parametrize("role", Role)
def test_a_group_is_a_role(make_user, role):
    assert role_of(make_user(role)) is role


def test_the_highest_of_several_groups_counts(make_user):
    user = make_user(Role.VIEWER)
    user.groups.add(Group.objects.get(name="operator"))
    assert role_of(user) is Role.OPERATOR
    assert has_role(user, Role.VIEWER) and not has_role(user, Role.ADMIN)


def test_superusers_are_admins_and_inactive_users_have_no_role(make_user):
    assert role_of(make_user(is_superuser=True)) is Role.ADMIN
    assert role_of(make_user(Role.ADMIN, name="gone", is_active=False)) is None
    assert role_of(AnonymousUser()) is None


def allowed(permission, method, user, auth=None):
    request = getattr(APIRequestFactory(), method)("/")
    request.user, request.auth = user, auth
    return permission.has_permission(request, view=None)


@pytest.mark.parametrize(
    ("role", "reads", "writes"),
    [
        (None, False, False),
        (Role.VIEWER, True, False),
        (Role.OPERATOR, True, True),
        (Role.ADMIN, True, True),
    ],
)
def test_viewers_read_and_operators_write(make_user, role, reads, writes):
    user = make_user(role)
    assert allowed(RolePermission(), "get", user) is reads
    assert allowed(RolePermission(), "post", user) is writes
    assert allowed(IsAdmin(), "get", user) is (role is Role.ADMIN)


def test_a_refusal_says_which_role_is_needed(make_user):
    permission = RolePermission()
    allowed(permission, "post", make_user(Role.VIEWER))
    assert (
        permission.message == "This requires the role operator; your account has the role viewer."
    )
    allowed(permission, "get", make_user(name="new"))
    assert "no role yet" in permission.message


def test_a_worker_token_opens_worker_endpoints_and_nothing_else(make_user):
    user = make_user(Role.ADMIN)
    token, _ = Token.objects.create(user, scope=TokenScope.WORKER)
    assert allowed(IsWorker(), "post", user, token)
    assert allowed(WorkersWriteViewersRead(), "post", user, token)
    assert not allowed(RolePermission(), "get", user, token)


def test_an_operator_is_no_worker(make_user):
    user = make_user(Role.OPERATOR)
    assert not allowed(IsWorker(), "post", user)
    assert allowed(WorkersWriteViewersRead(), "get", user)
    assert not allowed(WorkersWriteViewersRead(), "post", user)


# --- signing in


def test_without_anything_one_stays_outside(client):
    response = client.get("/api/v1/me")
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "NOT_AUTHENTICATED"


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer x y", "Bearer nonsense", "Bearer \xff\xfe", "Token nope"]
)
def test_a_bad_token_is_reported(client, header):
    response = client.get("/api/v1/me", headers={"authorization": header})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "AUTHENTICATION_FAILED"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Token"])
def test_a_token_says_who_one_is(client, make_user, scheme):
    user = make_user(Role.OPERATOR, email="ana@example.org")
    token, secret = Token.objects.create(user)
    response = client.get("/api/v1/me", headers={"authorization": f"{scheme} {secret}"})
    assert response.json()["data"] == {
        "username": "ana",
        "email": "ana@example.org",
        "role": "operator",
        "is_superuser": False,
        "token_id": token.public_id,
    }


def test_an_expired_token_is_gone(client, make_user):
    _, secret = Token.objects.create(make_user(), expiry=timedelta(seconds=-1))
    assert client.get("/api/v1/me", headers=bearer(secret)).status_code == 401


def test_a_session_says_who_one_is(client, make_user):
    client.force_login(make_user(Role.VIEWER))
    assert client.get("/api/v1/me").json()["data"]["token_id"] is None


def test_a_form_of_another_site_is_refused_in_the_envelope(make_user):
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.VIEWER))
    response = post_json(client, "/api/v1/tokens")
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "PERMISSION_DENIED"
    assert "CSRF" in response.json()["error"]["message"]


# --- tokens


def test_a_password_buys_a_token(client, make_user):
    make_user(Role.OPERATOR)
    body = {"username": "ana", "password": PASSWORD, "name": "laptop"}
    response = post_json(client, "/api/v1/tokens", body)
    made = response.json()["data"]
    assert response.status_code == 201
    assert made["name"] == "laptop" and made["scope"] == "user" and made["expires_at"] is None
    assert client.get("/api/v1/me", headers=bearer(made["token"])).status_code == 200
    assert made["token"] not in str(Token.objects.values())


def test_basic_authentication_buys_a_token_too(client, make_user):
    make_user()
    credentials = b64encode(f"ana:{PASSWORD}".encode()).decode()
    headers = {"authorization": f"Basic {credentials}"}
    assert post_json(client, "/api/v1/tokens", headers=headers).status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 401, None),
        ({"username": "ana", "password": "wrong"}, 401, None),
        ({"username": "ana"}, 400, "password"),
        ({"username": "ana", "password": PASSWORD, "nmae": "x"}, 400, "nmae"),
        ({"username": "ana", "password": PASSWORD, "scope": "root"}, 400, "scope"),
        ({"username": "ana", "password": PASSWORD, "name": "x" * 101}, 400, "name"),
        ({"username": "ana", "password": PASSWORD, "expires_at": "soon"}, 400, "expires_at"),
        ({"username": "ana", "password": PASSWORD, "expires_at": "2001-01-01"}, 400, "expires_at"),
        ({"username": "ana", "password": PASSWORD, "scope": "worker"}, 403, None),
        (["ana"], 401, None),
    ],
)
def test_what_buys_no_token(client, make_user, body, status, field):
    make_user(Role.OPERATOR)
    response = client.post("/api/v1/tokens", body, content_type="application/json")
    assert response.status_code == status
    if field is not None:
        assert list(response.json()["error"]["details"]["fields"]) == [field]
    assert not Token.objects.exists()


def test_guessing_is_slowed_down(client, make_user):
    make_user()
    codes = [
        post_json(client, "/api/v1/tokens", {"username": "ana", "password": "x"}).status_code
        for _ in range(11)
    ]
    assert codes == [401] * 10 + [429]


def test_one_sees_and_revokes_ones_own_tokens_only(client, make_user):
    ana, eve = make_user(), make_user(name="eve")
    mine, secret = Token.objects.create(ana, name="mine")
    other, _ = Token.objects.create(eve, name="hers")
    listed = client.get("/api/v1/tokens", headers=bearer(secret)).json()["data"]
    assert [(token["name"], token["is_current"]) for token in listed] == [("mine", True)]
    assert "token" not in listed[0]
    gone = client.delete(f"/api/v1/tokens/{other.public_id}", headers=bearer(secret))
    assert gone.status_code == 404 and gone.json()["error"]["code"] == "TOKEN_NOT_FOUND"
    assert client.delete("/api/v1/tokens/current", headers=bearer(secret)).status_code == 200
    assert list(Token.objects.all()) == [other]
    assert mine.public_id.startswith("tok_")


def test_an_admin_makes_worker_tokens_and_they_make_none(client, make_user):
    _, secret = Token.objects.create(make_user(is_superuser=True))
    expires = (timezone.now() + timedelta(days=1)).isoformat()
    body = {"scope": "worker", "expires_at": expires}
    made = post_json(client, "/api/v1/tokens", body, headers=bearer(secret)).json()["data"]
    assert made["scope"] == "worker" and made["expires_at"]
    refused = post_json(client, "/api/v1/tokens", headers=bearer(made["token"]))
    assert refused.status_code == 403


def test_tokens_are_listed_for_their_user_only(client):
    assert client.get("/api/v1/tokens").status_code == 401


def test_permission_classes_of_the_token_view_are_open_on_purpose():
    from trainops.http.api import TokensView

    assert TokensView.permission_classes == (AllowAny,)
