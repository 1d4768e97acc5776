"""Sign-outs that the provider reports: whose sessions end, and which tokens end none."""

import time

import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from tests.identity.provider import EVENT
from tests.identity.test_oidc import signed_in
from tests.pages import making
from trainops.http.models import AuditEntry, Identity, RecentCount
from trainops.http.oidc import flow, logout
from trainops.http.oidc import provider as published
from trainops.http.oidc.flow import AT_PROVIDER

pytestmark = pytest.mark.django_db
ADDRESS = "/login/oidc/back-channel"


@pytest.fixture
def browser(provider, sign_in):
    """Return a function that makes a browser which a person has signed in with."""

    def browser(sid=None, **person):
        claims = {"iat": person.pop("iat")} if "iat" in person else {}
        provider.control(claims=provider.person(sid=sid, **person), id_token=claims)
        client = Client()
        sign_in(client)
        assert signed_in(client)
        return client

    return browser


@pytest.fixture
def report(provider):
    """Return a function with which the provider reports a sign-out, as it would: with no cookie."""

    def report(token=None, **claims):
        form = {"logout_token": provider.logout_token(**claims) if token is None else token}
        return Client(enforce_csrf_checks=True).post(ADDRESS, form)

    return report


def test_a_sign_out_at_the_provider_ends_all_sessions_that_it_began(browser, report):
    ben, bens_phone = browser(sid="a"), browser(sid="b")
    ana = browser(sub="2", name="ana")
    by_password = Client()
    by_password.force_login(User.objects.get(username="ben"))
    answer = report(sub="1")
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    assert [signed_in(each) for each in (ben, bens_phone, ana)] == [None, None, "ana"]
    assert signed_in(by_password) == "ben", "the provider did not begin this session"
    entry = AuditEntry.objects.filter(event="signed out by provider").get()
    assert entry.details == {"users": "ben", "sessions": "2"}


@pytest.mark.parametrize("claims", [{"sid": "a"}, {"sub": "1", "sid": "a"}])
def test_a_session_at_the_provider_ends_its_own_only(browser, report, claims):
    here, phone = browser(sid="a"), browser(sid="b")
    other = browser(sub="2", name="ana", sid="c")
    assert report(**claims).status_code == 200
    assert [signed_in(each) for each in (here, phone, other)] == [None, "ben", "ana"]


def test_a_session_of_another_person_is_not_ended(browser, report):
    ben = browser(sid="a")
    browser(sub="2", name="ana", sid="b")
    assert report(sub="2", sid="a").status_code == 200
    assert report(sub="unknown").status_code == 200
    assert signed_in(ben) == "ben"


def test_a_session_that_has_a_new_key_is_ended(browser, report):
    """As after a new password, which keeps the session under another key."""
    ben = browser(sid="a")
    session = ben.session
    session.cycle_key()
    ben.cookies["sessionid"] = session.session_key
    assert signed_in(ben) == "ben"
    report(sid="a")
    assert signed_in(ben) is None


WRONG = {
    "of another issuer": {"iss": "https://elsewhere.example.org"},
    "for another client": {"aud": "another"},
    "without an age": {"iat": None},
    "too old": {"iat": int(time.time()) - 3600},
    "without an end": {"exp": None},
    "expired": {"exp": int(time.time()) - 3600},
    "without a name of its own": {"jti": None},
    "an ID token": {"nonce": "of a sign-in", "events": None},
    "with a nonce": {"nonce": "of a sign-in"},
    "of another event": {"events": {"http://schemas.example.org/else": {}}},
    "of no event": {"events": [EVENT]},
    "without a subject": {"sub": None},
    "with a number as its subject": {"sub": 1},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_token_that_is_not_of_a_sign_out_ends_nothing(browser, report, claims):
    ben = browser()
    answer = report(**{"sub": "1", **claims})
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_request"
    assert signed_in(ben) == "ben"


@pytest.mark.parametrize("sign_with", ["foreign", "HS256", "none", "nothing"])
def test_a_token_that_the_provider_did_not_sign_ends_nothing(browser, provider, report, sign_with):
    ben = browser()
    provider.control(sign_with=sign_with)
    assert report(sub="1").status_code == 400
    assert report(token="").status_code == 400
    assert signed_in(ben) == "ben"


def test_an_id_token_of_a_sign_in_is_no_logout_token(browser, provider, report):
    ben = browser()
    token = provider.logout_token(sub="1", nonce="n", events=None, jti=None)
    assert report(token=token).status_code == 400
    assert signed_in(ben) == "ben"


def test_a_token_that_is_received_twice_ends_no_later_session(browser, provider, report):
    before = browser()
    token = provider.logout_token(sub="1")
    assert report(token=token).status_code == 200
    later = browser(iat=int(time.time()) + 1)
    assert report(token=token).status_code == 200
    assert [signed_in(before), signed_in(later)] == [None, "ben"]


def test_a_person_whose_identity_was_disconnected_is_signed_out_too(browser, report):
    ben = browser()
    Identity.objects.all().delete()
    report(sub="1")
    assert signed_in(ben) is None


def test_a_session_that_an_earlier_version_began_is_ended(browser, report):
    ben, ana = browser(sid="a"), browser(sub="2", name="ana", sid="b")
    for client in (ben, ana):
        session = client.session
        del session[AT_PROVIDER]
        session.save()
    report(sub="1", sid="a")
    assert [signed_in(ben), signed_in(ana)] == [None, "ana"]


NAMED = [
    ({"sub": "1"}, "a"), ({"sub": "1", "sid": "a"}, "a"), ({"sub": None, "sid": "a"}, "a"),
    ({"sub": "1", "sid": "a"}, None),
]  # fmt: skip
OTHERS = [
    ({"sub": "2"}, "a"), ({"sub": "1", "sid": "b"}, "a"), ({"sub": None, "sid": "b"}, "a"),
    ({"sub": None, "sid": "a"}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reported", "sid", "is_ended"),
    [*((*each, True) for each in NAMED), *((*each, False) for each in OTHERS)],
)
def test_a_sign_in_that_is_completed_after_its_report_is_ended(
    provider, sign_in, report, monkeypatch, reported, sid, is_ended
):
    provider.control(claims=provider.person(sid=sid))
    complete = flow.sign_in.complete

    def while_the_provider_reports(*given, **named):
        done = complete(*given, **named)
        assert report(**reported).status_code == 200
        return done

    monkeypatch.setattr(flow.sign_in, "complete", while_the_provider_reports)
    client = Client()
    answer = sign_in(client)
    assert signed_in(client) == (None if is_ended else "ben")
    if is_ended:
        assert answer.status_code == 403 and "ended this sign-in meanwhile" in answer.text
        assert client.get("/account/").status_code == 302


def test_a_person_who_was_signed_out_signs_in_again(browser, report):
    before = browser(sid="a")
    assert report(sub="1", sid="a").status_code == 200
    later = browser(sid="a", iat=int(time.time()) + 2)
    assert [signed_in(before), signed_in(later)] == [None, "ben"]


def test_without_a_session_id_in_id_tokens_the_subject_decides(browser, report):
    ben, ana = browser(), browser(sub="2", name="ana")
    report(sid="a", sub=None)
    assert [signed_in(ben), signed_in(ana)] == ["ben", "ana"]
    report(sid="a", sub="1")
    assert [signed_in(ben), signed_in(ana)] == [None, "ana"]


def test_the_provider_is_asked_for_its_keys_once(browser, provider, report, monkeypatch):
    ben = browser()
    published.forget()
    before = provider.requests().count("GET /jwks")
    for token in ("", "x", "a.b.c", "..", provider.logout_token(sub="1", aud="another")):
        assert report(token=token).status_code == 400
    assert provider.requests().count("GET /jwks") == before
    provider.control(sign_with="foreign")
    for _ in range(5):
        assert report(sub="1").status_code == 400
    assert provider.requests().count("GET /jwks") == before + 1
    provider.control()
    monkeypatch.setattr(published, "FAILED_SECONDS", -1.0)
    assert report(sub="1").status_code == 200 and signed_in(ben) is None


def test_an_error_in_place_of_the_keys_is_forgotten_in_seconds(
    browser, provider, report, monkeypatch
):
    ben = browser()
    published.forget()
    provider.control(answers={"/jwks": [500, "{}"]})
    answer = report(sub="1")
    assert (answer.status_code, "HTTP 500" in answer.text) == (400, False)
    before = provider.requests().count("GET /jwks")
    assert report(sub="1").status_code == 400
    assert provider.requests().count("GET /jwks") == before, "it is not asked at once"
    provider.control()
    monkeypatch.setattr(published, "FAILED_SECONDS", -1.0)
    assert report(sub="1").status_code == 200 and signed_in(ben) is None


def test_an_error_in_place_of_the_keys_is_no_fault_of_the_token(provider, sign_in, client, caplog):
    provider.control(answers={"/jwks": [500, "down"]}, claims=provider.person())
    assert sign_in(client).status_code == 502
    assert "/jwks: HTTP 500" in caplog.text


def test_what_ended_meanwhile_is_not_looked_at(browser, report):
    browser()
    with time_machine.travel(time.time() + 13 * 3600, tick=False):
        making.person("else", "viewer")
    assert Session.objects.count() == 1
    assert report(sub="1").status_code == 200 and not Session.objects.exists()


def test_messages_are_limited_by_address(provider, report, monkeypatch):
    monkeypatch.setattr(logout, "MAX_MESSAGES", 1)
    assert report(sub="1").status_code == 200
    assert report(sub="1").status_code == 429
    RecentCount.objects.all().delete()
    assert report(sub="1").status_code == 200


def test_without_a_provider_there_is_no_such_address(settings, db):
    settings.OIDC = None
    assert Client().post(ADDRESS, {"logout_token": "x"}).status_code == 404
