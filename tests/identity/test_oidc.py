"""Sign-ins by a provider: who gets in with which role, and what is refused."""

import html
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, urlencode, urlsplit

import pyotp
import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import Client
from django.utils import timezone

from tests.admin.test_buttons import SUBMITTED
from tests.identity import conftest
from tests.identity.conftest import change, configure, path_of
from tests.pages import making
from trainops.http import second_factor
from trainops.http.models import AuditEntry, Identity, RecentCount, Token
from trainops.http.oidc import accounts, flow, requests
from trainops.http.oidc import provider as published
from trainops.http.oidc.errors import ProviderProblem
from trainops.http.roles import Role, role_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def ana():
    """A person with a password."""
    user = making.person("ana", "viewer")
    user.set_password("correct horse")
    user.save()
    return user


def refused(response, *texts, status=403):
    text = response.content.decode()
    assert response.status_code == status, text
    assert 'data-testid="sign-in-error"' in text
    for each in texts:
        assert each in text


def role(name):
    return role_of(User.objects.get(username=name))


def signed_in(client):
    answer = client.get("/api/v1/me")
    return answer.json()["data"]["username"] if answer.status_code == 200 else None


def test_the_first_sign_in_makes_an_account_with_the_role_of_its_groups(client, provider, sign_in):
    page = client.get("/login/?next=/workers/").content.decode()
    assert "Sign in with Example" in page and 'href="/login/oidc?next=%2Fworkers%2F"' in page
    response = sign_in(client)
    assert response.url == "/workers/" and client.get("/workers/").status_code == 200
    ben = User.objects.get()
    assert (ben.username, role("ben"), ben.is_staff) == ("ben", Role.OPERATOR, False)
    assert not ben.has_usable_password()
    identity = Identity.objects.get()
    assert (identity.user, identity.issuer, identity.subject) == (ben, provider.issuer, "1")
    assert identity.last_used_at is not None
    assert AuditEntry.objects.get(event="sign-in ok").details["method"] == "provider"
    told = AuditEntry.objects.values_list("event", flat=True)
    assert {"user created", "role given", "sign-in ok"} <= set(told)


def test_the_same_person_gets_the_same_account_whatever_the_name(client, provider, sign_in):
    sign_in(client)
    provider.control(claims=provider.person(name="benjamin", email="other@example.org"))
    sign_in(Client())
    assert User.objects.get().username == "ben"


def test_the_request_to_the_provider_has_state_nonce_and_a_challenge(client, provider):
    query = dict(parse_qsl(urlsplit(client.get("/login/oidc").url).query))
    begun = client.session[flow.BEGUN]
    assert (query["state"], query["nonce"]) == (begun["state"], begun["nonce"])
    assert query["code_challenge_method"] == "S256" and begun["verifier"] not in query.values()
    assert len({begun["state"], begun["nonce"], begun["verifier"]}) == 3
    assert query["redirect_uri"] == "http://testserver/login/oidc/callback"
    again = Client()
    again.get("/login/oidc")
    assert again.session[flow.BEGUN]["state"] != begun["state"]


def test_a_secret_in_the_body_and_a_client_without_a_secret(client, provider, sign_in, settings):
    provider.control(metadata={"token_endpoint_auth_methods_supported": ["client_secret_post"]})
    assert sign_in(client).status_code == 302
    change(settings, client_secret="")
    refused(sign_in(Client()), "did not confirm")  # this provider requires one


def test_an_account_with_the_same_mail_address_is_not_taken_over(client, provider, sign_in):
    ada = making.person("ada", "admin")
    User.objects.filter(pk=ada.pk).update(email="ben@example.org")
    claims = provider.person(email="ben@example.org", email_verified=True)
    provider.control(claims=claims)
    sign_in(client)
    assert signed_in(client) == "ben"
    assert Identity.objects.get().user.username == "ben"
    assert User.objects.get(username="ben").email == "ben@example.org"


@pytest.mark.parametrize("name", ["ben", "Ben"])
def test_an_account_with_the_same_name_is_not_taken_over(client, provider, sign_in, name):
    making.person("ben", "admin")
    provider.control(claims=provider.person(name=name))
    refused(sign_in(client), "already is an account", "connect it on the page Account", status=409)
    assert signed_in(client) is None and not Identity.objects.exists()


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ({"id_token": {"nonce": "another"}}, "nonce"),
        ({"id_token": {"nonce": None}}, "nonce"),
        ({"id_token": {"nonce": ["another"]}}, "nonce"),
        ({"id_token": {"aud": "another-client"}}, "aud"),
        ({"id_token": {"aud": ["another", "trainops"], "azp": "another"}}, "another"),
        ({"id_token": {"aud": ["another", "trainops"]}}, "another"),
        ({"id_token": {"aud": None}}, "aud"),
        ({"id_token": {"iss": "https://evil.example"}}, "iss"),
        ({"id_token": {"exp": 1}}, "Expired"),
        ({"id_token": {"exp": None}}, "exp"),
        ({"id_token": {"iat": 4_000_000_000}}, "issued in the future"),
        ({"id_token": {"sub": None}}, "sub"),
        ({"id_token": {"sub": ""}}, "sub"),
        ({"id_token": {"sub": "x" * 256}}, "subject"),
        ({"sign_with": "foreign"}, "BadSignature"),
        ({"sign_with": "HS256"}, "Algorithm"),
        ({"sign_with": "none"}, "Algorithm"),
        ({"sign_with": "nothing"}, "the ID token"),
        ({"header": {"crit": ["b"], "b": 1}}, "the ID token"),
        ({"header": {"b": "x" * 20_000}}, "the ID token"),
        ({"answers": {"/jwks": [200, '{"keys": []}']}}, "no usable key"),
        ({"answers": {"/jwks": [200, "[]"]}}, "no usable key"),
        ({"answers": {"/jwks": [500, "broken"]}}, "/jwks: HTTP 500"),
        ({"answers": {"/token": [200, "{}"]}}, "no ID token"),
        ({"answers": {"/token": [200, "not JSON"]}}, "JSON"),
        ({"answers": {"/token": [200, "[" * 100]}}, "JSON"),
    ],
    ids=str,
)
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    client, provider, sign_in, caplog, fault, detail
):
    provider.control(**fault)
    with caplog.at_level(logging.INFO, "trainops.access"):
        refused(sign_in(client), "cannot be accepted", status=502)
    assert signed_in(client) is None and not User.objects.exists()
    assert detail in caplog.text


@pytest.mark.parametrize("header", [{"typ": "JWT", "vendor": "x" * 60}, {"x5c": ["A" * 3000]}])
def test_headers_that_are_not_known_are_ignored(client, provider, sign_in, header):
    provider.control(header=header)
    assert sign_in(client).status_code == 302 and signed_in(client) == "ben"


def test_an_answer_that_is_too_large_is_not_read_whole(client, provider, sign_in, monkeypatch):
    monkeypatch.setattr(requests, "MAX_BYTES", 1000)
    provider.control(answers={"/jwks": [200, "x" * 100_000]})
    refused(sign_in(client), "cannot be accepted", status=502)


@pytest.mark.parametrize("state", ["", "another", None])
def test_a_wrong_state_is_refused(client, provider, state):
    back = urlsplit(provider.authorize(client.get("/login/oidc").url))
    query = dict(parse_qsl(back.query)) | {"state": state}
    given = {name: value for name, value in query.items() if value is not None}
    refused(client.get(f"{back.path}?{urlencode(given)}"), "not of the sign-in that was begun")
    refused(client.get(path_of(back.geturl())), "not begun here")  # a state is used once
    assert signed_in(client) is None


def test_the_callback_of_another_browser_is_refused(client, provider):
    back = provider.authorize(client.get("/login/oidc").url)
    refused(Client().get(path_of(back)), "not begun here")
    stranger = Client()
    stranger.get("/login/oidc")
    refused(stranger.get(path_of(back)), "not of the sign-in that was begun")
    assert signed_in(stranger) is None


def test_a_callback_is_used_once_and_not_too_late(client, provider):
    back = path_of(provider.authorize(client.get("/login/oidc").url))
    assert client.get(back).status_code == 302
    client.logout()
    refused(client.get(back), "not begun here")
    client.get("/login/oidc")
    with time_machine.travel(time.time() + flow.BEGUN_SECONDS + 1, tick=False):
        refused(client.get("/login/oidc/callback?code=x&state=y"), "took too long")


def test_the_answer_of_another_provider_is_refused(client, provider):
    back = provider.authorize(client.get("/login/oidc").url)
    mixed = dict(parse_qsl(urlsplit(back).query)) | {"iss": "https://evil.example"}
    refused(client.get(f"/login/oidc/callback?{urlencode(mixed)}"), "of another provider")


def test_a_code_of_another_sign_in_is_refused(client, provider):
    """Its challenge belongs to the verifier of the other session."""
    other = dict(parse_qsl(urlsplit(provider.authorize(Client().get("/login/oidc").url)).query))
    own = dict(parse_qsl(urlsplit(provider.authorize(client.get("/login/oidc").url)).query))
    answer = client.get(f"/login/oidc/callback?{urlencode(own | {'code': other['code']})}")
    refused(answer, "did not confirm")


def test_what_the_provider_refuses_is_said(client, provider, caplog):
    provider.control(error="access_denied<script>")
    back = provider.authorize(client.get("/login/oidc").url)
    with caplog.at_level(logging.INFO, "trainops.access"):
        response = client.get(path_of(back))
    refused(response, "Example refused the sign-in: access_denied&lt;script&gt;")
    assert "of the test" in caplog.text


def test_roles_follow_the_groups_at_each_sign_in(client, provider, sign_in):
    sign_in(client)
    provider.control(claims=provider.person(groups=["staff", "leads"]))
    sign_in(Client())
    assert role("ben") is Role.ADMIN
    provider.control(claims=provider.person(groups=["staff"]))
    sign_in(Client())
    assert role("ben") is Role.OPERATOR


def test_a_removed_group_takes_the_role_away_also_from_tokens(client, provider, sign_in):
    sign_in(client)
    _, secret = Token.objects.create(User.objects.get())
    bearer = {"Authorization": f"Bearer {secret}"}
    assert Client().get("/api/v1/operations", headers=bearer).status_code == 200
    provider.control(claims=provider.person(groups=[]))
    other = Client()
    refused(sign_in(other), "No group of your account at Example has a role here")
    assert signed_in(other) is None and role("ben") is None
    assert Client().get("/api/v1/operations", headers=bearer).status_code == 403
    assert AuditEntry.objects.filter(event="role taken").count() == 1


def test_without_a_mapping_roles_are_given_here(client, provider, sign_in, settings):
    change(settings, roles=())
    sign_in(client)
    assert role("ben") is None
    user = User.objects.get()
    user.groups.add(accounts.users._group(Role.VIEWER))
    sign_in(Client())
    assert role("ben") is Role.VIEWER


@pytest.mark.parametrize(
    "fields", [{"required_group": "staff"}, {"email_domains": ("example.org",)}], ids=str
)
def test_without_a_mapping_too_a_refused_person_loses_the_role(
    client, provider, sign_in, settings, fields
):
    """Tokens of the account act for it."""
    change(settings, roles=(), **fields)
    person = {"email": "ben@example.org", "email_verified": True}
    provider.control(claims=provider.person(**person))
    sign_in(client)
    User.objects.get().groups.add(accounts.users._group(Role.VIEWER))
    sign_in(Client())
    assert role("ben") is Role.VIEWER
    provider.control(claims=provider.person(groups=[], email="ben@elsewhere.example"))
    refused(sign_in(Client()))
    assert role("ben") is None


def test_everyone_has_a_role_by_an_asterisk(client, provider, sign_in, settings):
    configure(settings, provider, ROLES="*=viewer,leads=admin")
    provider.control(claims={"sub": "1", "preferred_username": "ben"})
    sign_in(client)
    assert role("ben") is Role.VIEWER


def test_groups_are_read_from_another_claim_and_from_userinfo(client, provider, sign_in, settings):
    change(settings, groups_claim="roles", username_claim="email")
    info = {"email": "ben@example.org", "roles": "leads", "sub": "1"}
    provider.control(claims={"sub": "1"}, userinfo=info)
    sign_in(client)
    assert role("ben@example.org") is Role.ADMIN


def test_userinfo_of_another_subject_is_refused(client, provider, sign_in):
    provider.control(claims={"sub": "1"}, userinfo={"sub": "2", "groups": ["leads"]})
    refused(sign_in(client), "cannot be accepted", status=502)
    assert not User.objects.exists()


def test_userinfo_does_not_replace_claims_of_the_id_token(client, provider, sign_in):
    provider.control(claims=provider.person(), userinfo={"groups": ["leads"]})
    sign_in(client)
    assert role("ben") is Role.OPERATOR


def test_a_mail_address_is_verified_by_the_source_that_names_it(
    client, provider, sign_in, settings
):
    configure(settings, provider, EMAIL_DOMAINS="example.org")
    mail = {"email": "ben@example.org", "email_verified": True}
    provider.control(claims=provider.person(email=mail["email"]), userinfo=mail)
    assert sign_in(client).status_code == 302
    assert User.objects.get().email == mail["email"]
    provider.control(claims=provider.person(email=mail["email"]), userinfo={"email_verified": True})
    refused(sign_in(Client()), "has not verified")


def test_userinfo_is_asked_only_for_what_a_setting_needs(client, provider, sign_in, settings):
    """It is then no reason for a refusal, either."""
    configure(settings, provider, ROLES="*=viewer")
    provider.control(
        claims={"sub": "1", "preferred_username": "ben", "email": "ben@example.org"},
        answers={"/userinfo": [500, "broken"]},
    )
    assert sign_in(client).status_code == 302 and role("ben") is Role.VIEWER
    change(settings, required_group="staff")
    refused(sign_in(Client()), "cannot be accepted", status=502)


def test_a_superuser_stays_one(client, provider, sign_in, settings):
    root = making.person("root", None)
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    Identity.objects.create(user=root, issuer=provider.issuer, subject="1")
    provider.control(claims=provider.person(groups=["staff"]))
    sign_in(client)
    assert signed_in(client) == "root" and role("root") is Role.ADMIN


def test_a_disabled_account_is_refused(client, provider, sign_in):
    sign_in(client)
    User.objects.update(is_active=False)
    other = Client()
    refused(sign_in(other), "The account ben is disabled")
    assert signed_in(other) is None and signed_in(client) is None


def test_a_required_group(client, provider, sign_in, settings):
    configure(settings, provider, REQUIRED_GROUP="ml")
    refused(sign_in(client), "not in the group ml")
    assert not User.objects.exists()
    provider.control(claims=provider.person(groups=["ml", "staff"]))
    assert sign_in(client).status_code == 302
    provider.control(claims=provider.person(groups=["staff"]))
    refused(sign_in(Client()), "not in the group ml")
    assert role("ben") is None


@pytest.mark.parametrize(
    ("address", "is_verified", "problem"),
    [
        ("ben@example.org", True, None),
        ("ben@Example.ORG", True, None),
        ("ben@example.org", False, "has not verified"),
        ("ben@example.org", "true", "has not verified"),
        ("ben@example.org.evil.example", True, "not of an allowed domain"),
        ("ben@example.org@evil.example", True, "not of an allowed domain"),
        (None, True, "not of an allowed domain"),
    ],
)
def test_allowed_domains_of_mail_addresses(
    client, provider, sign_in, settings, address, is_verified, problem
):
    configure(settings, provider, EMAIL_DOMAINS="example.org, example.com")
    provider.control(claims=provider.person(email=address, email_verified=is_verified))
    response = sign_in(client)
    if problem is None:
        assert response.status_code == 302
    else:
        refused(response, problem)


def test_accounts_are_made_only_if_that_is_allowed(client, provider, sign_in, settings):
    change(settings, creates_accounts=False)
    refused(sign_in(client), "is not connected with an account here")
    assert not User.objects.exists()


@pytest.mark.parametrize("name", [None, 5, "", "a b", "x" * 151, "../x"])
def test_an_unusable_name_makes_no_account(client, provider, sign_in, name):
    provider.control(claims=provider.person(name=name))
    refused(sign_in(client), "gives no usable name")
    assert not User.objects.exists()


def test_a_session_of_the_provider_ends_by_itself(client, provider, sign_in, settings):
    change(settings, session_hours=2)
    sign_in(client)
    now = time.time()
    with time_machine.travel(now + 2 * 3600 - 60, tick=False):
        assert client.get("/workers/").status_code == 200
    with time_machine.travel(now + 2 * 3600 + 60, tick=False):
        assert client.get("/workers/").status_code == 302


def test_signing_out_offers_to_sign_out_of_the_provider(client, provider, sign_in):
    sign_in(client)
    assert client.post("/logout/").url == "/login/?signed-out"
    assert "Sign out of Example, too" in client.get("/login/?signed-out").content.decode()
    assert signed_in(client) is None
    address = urlsplit(client.get("/login/oidc/sign-out").url)
    assert dict(parse_qsl(address.query))["post_logout_redirect_uri"] == "http://testserver/login/"
    provider.control(metadata={"end_session_endpoint": None})
    published.forget()
    refused(client.get("/login/oidc/sign-out"), "has no page to sign out", status=404)


def test_a_provider_that_is_down_is_said_and_passwords_work(client, settings, ana):
    down = conftest.start()
    configure(settings, down)
    conftest.stop(down)
    shown = client.get("/login/oidc?next=/workers/")
    refused(shown, "cannot be reached", status=502)
    assert submitted(client, shown).url == "/workers/"
    assert signed_in(client) == "ana"


def submitted(client, shown):
    """Fill in the form of a page as a browser does; return the response."""
    text = shown.content.decode()
    action = re.search(r'<form [^>]*action="([^"]*)"', text)
    to = re.search(r'name="next" value="([^"]*)"', text).group(1)
    body = {"username": "ana", "password": "correct horse", "next": html.unescape(to)}
    return client.post(action.group(1) if action else shown.wsgi_request.path, body)


def test_a_provider_that_goes_down_before_the_callback(client, settings, ana):
    provider = conftest.start()
    configure(settings, provider)
    back = provider.authorize(client.get("/login/oidc?next=/workers/").url)
    conftest.stop(provider)
    shown = client.get(path_of(back))
    refused(shown, "cannot be reached", status=502)
    assert signed_in(client) is None
    assert submitted(client, shown).url == "/workers/"


def test_a_state_is_used_once_also_where_the_provider_breaks(client, provider):
    back = path_of(provider.authorize(client.get("/login/oidc").url))
    provider.control(answers={"/jwks": [500, "broken"]})
    refused(client.get(back), "cannot be accepted", status=502)
    provider.control()
    refused(client.get(back), "not begun here")
    assert signed_in(client) is None


def seconds_kept(client):
    row = Session.objects.get(pk=client.session.session_key)
    return (row.expire_date - timezone.now()).total_seconds()


def test_the_session_of_a_begun_sign_in_expires_with_it(client, provider, ana):
    client.get("/login/oidc")
    assert 0 < seconds_kept(client) <= flow.BEGUN_SECONDS
    client.post("/login/", {"username": "ana", "password": "correct horse"})
    assert signed_in(client) == "ana" and seconds_kept(client) > 24 * 3600


def test_private_addresses_are_reached_only_if_that_is_allowed(client, provider, settings, caplog):
    change(settings, networks=())
    with caplog.at_level(logging.INFO, "trainops.access"):
        refused(client.get("/login/oidc"), "cannot be reached", status=502)
    assert "TRAINOPS_OIDC_PRIVATE_ADDRESSES" in caplog.text


@pytest.mark.parametrize(
    ("metadata", "detail"),
    [
        ({"issuer": "https://evil.example"}, "got the issuer"),
        ({"authorization_endpoint": "http://evil.example/"}, "http://evil.example/"),
        ({"token_endpoint": None}, "None"),
        ({"jwks_uri": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"userinfo_endpoint": 5}, "5"),
        ({"jwks_uri": "https://[::1"}, "https://[::1"),
    ],
)
def test_metadata_of_another_or_an_insecure_provider_is_refused(
    client, provider, caplog, metadata, detail
):
    provider.control(metadata=metadata)
    with caplog.at_level(logging.INFO, "trainops.access"):
        refused(client.get("/login/oidc"), "cannot be accepted", status=502)
    assert detail in caplog.text


def test_redirects_of_the_provider_are_not_followed(client, provider):
    path = "/.well-known/openid-configuration"
    provider.control(answers={path: [302, f"{provider.issuer}/elsewhere"]})
    refused(client.get("/login/oidc"), "cannot be accepted", status=502)
    assert not any("elsewhere" in each for each in provider.requests())


def test_few_requests_to_the_provider_are_in_progress_at_once(client, provider, monkeypatch):
    monkeypatch.setattr(requests, "_slots", threading.BoundedSemaphore(1))
    monkeypatch.setattr(requests, "SLOT_SECONDS", 0.1)
    with requests._slot():
        refused(client.get("/login/oidc"), "Too many sign-ins are waiting", status=503)
    assert client.get("/login/oidc").status_code == 302


def test_a_request_waits_until_another_one_has_ended(provider, settings, monkeypatch):
    monkeypatch.setattr(requests, "SLOT_SECONDS", 60)
    slots = threading.BoundedSemaphore(1)
    monkeypatch.setattr(requests, "_slots", slots)
    slots.acquire()
    threading.Timer(0.3, slots.release).start()
    assert published.read(settings.OIDC).address("token_endpoint")


def test_sign_ins_that_are_begun_are_limited_by_address(client, provider, monkeypatch):
    monkeypatch.setattr(flow, "MAX_STARTS", 2)
    assert [client.get("/login/oidc").status_code for _ in range(2)] == [302, 302]
    refused(client.get("/login/oidc"), "Too many sign-ins were begun", status=429)
    assert Client(REMOTE_ADDR="10.0.0.66").get("/login/oidc").status_code == 302
    RecentCount.objects.all().delete()


def test_sign_outs_that_are_begun_are_limited_by_address(client, provider, monkeypatch):
    monkeypatch.setattr(flow, "MAX_STARTS", 2)
    assert [client.get("/login/oidc/sign-out").status_code for _ in range(2)] == [302, 302]
    refused(client.get("/login/oidc/sign-out"), "Too many sign-outs", status=429)
    assert client.get("/login/oidc").status_code == 302


def test_a_provider_that_does_not_answer_is_not_asked_again_for_seconds(
    client, provider, monkeypatch
):
    path = "/.well-known/openid-configuration"
    provider.control(answers={path: [500, "broken"]})
    before = len(provider.requests())
    for _ in range(3):
        refused(client.get("/login/oidc"), "cannot be accepted", status=502)
    assert len(provider.requests()) == before + 1
    provider.control()
    monkeypatch.setattr(published.time, "monotonic", lambda now=time.monotonic: now() + 6)
    assert client.get("/login/oidc").status_code == 302


def test_metadata_is_read_once_in_some_minutes(client, provider):
    before = len(provider.requests())
    for _ in range(3):
        client.get("/login/oidc")
    assert len(provider.requests()) == before + 1


def test_without_a_provider_there_are_no_such_pages(client, settings, db):
    settings.OIDC = None
    for path in ("/login/oidc", "/login/oidc/callback?code=x", "/login/oidc/sign-out"):
        assert client.get(path).status_code == 404
    assert "Sign in with" not in client.get("/login/").content.decode()


def test_a_sign_in_leads_to_no_other_site(client, provider, sign_in):
    assert sign_in(client, to="https://evil.example/").url == "/"


def test_an_account_is_connected_with_its_password(client, provider, sign_in, ana):
    client.force_login(ana)
    assert client.get("/login/oidc").url == "/"  # signed in, and no password was given
    wrong = client.post("/account/identity", {"password": "wrong"})
    assert wrong.status_code == 422 and "The password is wrong" in wrong.content.decode()
    assert client.get("/login/oidc").url == "/"
    right = client.post("/account/identity", {"password": "correct horse"})
    assert "Continue to Example" in page(right)
    assert sign_in(client, address=link_of(right)).url == "/account/"
    assert Identity.objects.get().user == ana and role("ana") is Role.OPERATOR
    assert User.objects.count() == 1
    assert "Connected with Example" in page(client.get("/account/identity"))
    other = Client()
    sign_in(other)
    assert signed_in(other) == "ana"
    assert {"identity linked"} <= {each.event for each in AuditEntry.objects.all()}


def link_of(response):
    """Return the address of "Continue to Example"."""
    return re.search(r'href="(/login/oidc[?][^"]*)"', page(response)).group(1)


def connect(client):
    return link_of(client.post("/account/identity", {"password": "correct horse"}))


def test_only_the_link_that_follows_the_password_connects(client, provider, ana):
    client.force_login(ana)
    link = connect(client)
    for other in ("/login/oidc", "/login/oidc?connect=", f"{link}x"):
        assert client.get(other).url == "/"  # as another site can have a browser do
    assert client.get(link).url.startswith(provider.issuer)
    assert client.get(link).url == "/"  # once
    link = connect(client)
    with time_machine.travel(time.time() + 301, tick=False):
        assert client.get(link).url == "/"
    link = connect(client)
    client.get("/account/identity")  # back
    assert client.get(link).url == "/"


def test_a_second_factor_is_asked_for_before_connecting(client, provider, sign_in, ana):
    """Who knows the password alone must not get a way in that asks for no code."""
    codes = second_factor.set_up(
        ana, secret := second_factor.new_secret(), pyotp.TOTP(secret).now()
    )
    client.force_login(ana)
    assert 'name="code"' in page(client.get("/account/identity"))
    for code in ({}, {"code": "000000"}):
        body = {"password": "correct horse", **code}
        shown = client.post("/account/identity", body)
        assert shown.status_code == 422 and "The code is wrong" in shown.content.decode()
        assert "Continue to Example" not in shown.content.decode()
    body = {"password": "correct horse", "code": codes[0]}
    sign_in(client, address=link_of(client.post("/account/identity", body)))
    assert Identity.objects.get().user == ana


def test_a_new_password_says_that_the_identity_stays(client, provider, ana):
    new = "battery staple 9"
    body = {"old_password": "correct horse", "new_password1": new, "new_password2": new}
    client.force_login(ana)
    assert "stays connected" not in page(client.post("/account/password", body, follow=True))
    Identity.objects.create(user=ana, issuer=provider.issuer, subject="1")
    body = {"old_password": new, "new_password1": new + "x", "new_password2": new + "x"}
    assert "stays connected" in page(client.post("/account/password", body, follow=True))


def page(response):
    assert response.status_code == 200
    return response.content.decode()


def test_an_identity_of_another_account_is_not_connected(client, provider, sign_in, ana):
    sign_in(Client())
    client.force_login(ana)
    assert sign_in(client, address=connect(client)).url == "/account/identity"
    assert "another account already has" in page(client.get("/account/identity"))
    assert Identity.objects.get().user.username == "ben"


def test_a_connection_is_not_made_for_another_user_of_the_browser(client, provider, ana):
    client.force_login(ana)
    back = provider.authorize(client.get(connect(client)).url)
    session = client.session
    begun = session[flow.BEGUN]
    client.force_login(making.person("eve", "viewer"))
    session = client.session
    session[flow.BEGUN] = begun
    session.save()
    assert client.get(path_of(back)).url == "/account/identity"
    assert not Identity.objects.exists()


def test_a_connection_is_ended_with_the_password(client, provider, ana):
    Identity.objects.create(user=ana, issuer=provider.issuer, subject="1")
    client.force_login(ana)
    client.post("/account/identity/disconnect", {"password": "wrong"})
    assert Identity.objects.exists()
    assert client.post("/account/identity/disconnect", {"password": "correct horse"}).url
    assert not Identity.objects.exists()
    assert AuditEntry.objects.filter(event="identity unlinked").count() == 1


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_parallel_first_sign_ins_make_one_account(provider, settings):
    claims = provider.person()
    barrier = threading.Barrier(4)

    def signed_in(_):
        try:
            barrier.wait(20)
            return accounts.sign_in(settings.OIDC, claims).pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(signed_in, range(4)))
    assert found == {User.objects.get().pk}
    assert Identity.objects.count() == 1 and role("ben") is Role.OPERATOR


def test_a_deadline_ends_a_request_that_hangs(provider, settings, monkeypatch):
    """Whatever the address is: nothing listens behind a full backlog or an unanswered port."""
    import socket

    monkeypatch.setattr(requests, "TIMEOUT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        change(settings, issuer=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ProviderProblem) as caught:
            published.read(settings.OIDC)
    assert "Timeout" in caught.value.detail


def test_superusers_disconnect_identities_in_the_admin(client, provider, ana):
    identity = Identity.objects.create(user=ana, issuer=provider.issuer, subject="1")
    address = f"/admin/access/identity/{identity.pk}/disconnect/"
    ada = making.person("ada", "admin")
    User.objects.filter(pk=ada.pk).update(is_staff=True)
    client.force_login(ada)
    assert client.post(address, SUBMITTED).status_code == 403
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    assert client.post(address, SUBMITTED).status_code == 302
    assert not Identity.objects.exists()
