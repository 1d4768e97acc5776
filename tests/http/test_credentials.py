"""Which person the gateway counts a request for: proved by a token or a session, never claimed."""

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from tests.api.conftest import signed_in
from trainops.gateway.gateway import PROVED
from trainops.http import admission
from trainops.http.admission import Admission
from trainops.http.models import Token, TokenScope

pytestmark = pytest.mark.django_db
ME = "/api/v1/me"


@pytest.fixture(autouse=True)
def _one_connection(monkeypatch):
    """The transaction of a test is in one connection; the gateway's threads have their own."""
    monkeypatch.setattr(admission, "close_old_connections", lambda: None)


@pytest.fixture
def otto(db):
    return signed_in("otto", "operator")


def token_of(user, scope=TokenScope.USER):
    return Token.objects.create(user, scope=scope)[1]


def asked(client, path=ME, **headers):
    """Return the environment after a request."""
    return client.get(path, headers=headers).wsgi_request.META


def proved(environ):
    """Return the person, of whom a credential of the same request must be."""
    proof = environ.get(PROVED)
    assert proof is None or proof.credential in Admission().credentials(environ)
    return proof and proof.person


@pytest.mark.parametrize("path", [ME, "/", "/account/password"])
def test_a_session_is_of_its_user(otto, path):
    environ = asked(otto.client, path)
    assert proved(environ) == f"user {otto.user.pk}"
    assert Admission().prove(environ) == environ[PROVED]


@pytest.mark.parametrize("scheme", ["Bearer", "token", "bearer  "])
def test_a_token_is_of_its_user_however_it_is_written(otto, scheme):
    secret = token_of(otto.user)
    environ = asked(Client(), authorization=f"{scheme} {secret}")
    assert proved(environ) == f"user {otto.user.pk}"
    usual = asked(Client(), authorization=f"Bearer {secret}")
    assert Admission().credentials(environ) == Admission().credentials(usual)
    assert Admission().prove(environ) == environ[PROVED] == usual[PROVED]


def test_each_worker_counts_by_itself(db):
    admin = signed_in("ada", "admin").user
    people = {
        proved(asked(Client(), authorization=f"Bearer {token_of(admin, TokenScope.WORKER)}"))
        for _ in range(2)
    }
    assert len(people) == 2 and all(each.startswith("worker tok_") for each in people)


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer x"}, {"cookie": "sessionid=x"}, {"authorization": ""}]
)
def test_what_is_not_valid_proves_nothing(db, headers):
    environ = asked(Client(), **headers)
    assert proved(environ) is None
    assert Admission().prove(environ) is None


def test_a_static_file_asks_for_no_session(otto, django_assert_num_queries):
    with django_assert_num_queries(0):
        response = otto.client.get("/static/css/trainops.css")
        response.close()
    assert proved(response.wsgi_request.META) is None


def test_the_session_shown_at_a_sign_in_proves_nothing(db):
    User.objects.create_user("ana", password="correct horse")
    client = Client()
    client.cookies["sessionid"] = "chosen-by-somebody"
    form = {"username": "ana", "password": "correct horse"}
    response = client.post("/login/", form)
    assert (response.status_code, proved(response.wsgi_request.META)) == (302, None)


def test_the_session_of_a_sign_out_proves_nothing_any_more(otto):
    response = otto.client.post("/logout/")
    assert proved(response.wsgi_request.META) is None


def test_an_empty_request_shows_nothing():
    environ = RequestFactory().get("/").META
    assert Admission().credentials({**environ, "HTTP_COOKIE": "a=1; =; sessionid="}) == []
