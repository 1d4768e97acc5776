"""Signing in and out, and API tokens."""

import pytest
from django.contrib.auth.models import User

from tests.pages import making
from trainops.http.models import Token


@pytest.fixture
def zoe(db):
    user = making.person("zoe", "operator")
    user.set_password("correct horse")
    user.save()
    return user


def sign_in(client, password, to=""):
    return client.post("/login/", {"username": "zoe", "password": password, "next": to})


def test_sign_in_leads_to_where_one_wanted(client, zoe):
    assert sign_in(client, "correct horse", "/workers/").url == "/workers/"
    assert client.get("/workers/").status_code == 200


def test_an_anonymous_visitor_is_led_to_the_login(client, zoe):
    assert sign_in(client, "correct horse", "https://evil.example/").url == "/"


def test_a_wrong_password_says_so_and_keeps_the_name(client, zoe):
    text = sign_in(client, "wrong").content.decode()
    assert 'role="alert"' in text and 'value="zoe"' in text


def test_guessing_is_slowed_down(client, zoe, monkeypatch):
    monkeypatch.setattr("trainops.http.login_throttle.MAX_FAILURES", 2)
    sign_in(client, "wrong")
    sign_in(client, "wrong")
    assert "Too many wrong passwords" in sign_in(client, "correct horse").content.decode()


def test_signing_out_is_a_post(page):
    assert page.get("/logout/").status_code == 405
    assert page.post("/logout/").url == "/login/"
    assert page.get("/").status_code == 302


def test_a_token_is_shown_once_and_works(page, client):
    response = page.post("/account/", {"name": "laptop", "days": "30"})
    secret = response.context["secret"]
    assert secret in response.content.decode()
    assert secret not in page.get("/account/").content.decode()
    me = client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert me.json()["data"]["username"] == "ana"


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", ""), ("name", "x" * 101), ("days", "0"), ("days", "x"), ("scope", "worker")],
)
def test_a_wrong_token_is_refused_beside_its_field(page, field, value):
    response = page.post("/account/", {"name": "laptop", "days": "", field: value})
    assert response.status_code == 422 and field in response.context["errors"]
    assert not Token.objects.exists()


def test_a_token_that_only_reads_is_made_and_shows_its_last_use(page, client):
    made = page.post("/account/", {"name": "dashboard", "scope": "read"})
    bearer = {"Authorization": f"Bearer {made.context['secret']}"}
    assert "never" in page.get("/account/").content.decode()
    assert client.get("/api/v1/operations", headers=bearer).status_code == 200
    assert client.post("/api/v1/operations", headers=bearer).status_code == 403
    text = page.get("/account/").content.decode()
    assert "Reads for its owner" in text and "from 127.0.0.1" in text


def test_an_admin_makes_worker_tokens(as_, ada):
    as_(ada).post("/account/", {"name": "gpu box", "scope": "worker"})
    assert Token.objects.get().scope == "worker"


def test_revoked_by_its_owner_only(page, as_, ben):
    page.post("/account/", {"name": "laptop"})
    path = f"/account/tokens/{Token.objects.get().public_id}/revoke"
    as_(ben).post(path)
    assert Token.objects.exists()
    page.post(path)
    assert not Token.objects.exists()


def test_a_password_is_changed(page, ana):
    ana.set_password("correct horse")
    ana.save()
    page.force_login(ana)
    new = "battery staple 9"
    data = {"old_password": "correct horse", "new_password1": new, "new_password2": new}
    assert page.post("/account/password", data).url == "/account/"
    assert User.objects.get(username="ana").check_password(new)


def test_password_pages_need_a_login(client, db):
    assert client.get("/account/password").url.startswith("/login/")
