"""No password is enough where an account has a second factor, and a code is accepted once."""

import base64
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyotp
import pytest
import time_machine
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.db import DatabaseError, connections
from django.test import Client

from tests.pages import making
from trainops.clock import seconds_from_now
from trainops.http import encryption, second_factor, sign_in
from trainops.http.models import AuditEntry, RecentCount, RecoveryCode, SecondFactor, Token
from trainops.sign_in_settings import Requirement
from trainops.sign_in_settings import second_factor as read_setting

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse"
PERIOD = 30


def with_password(name, role="operator", **fields):
    user = making.person(name, role)
    user.set_password(PASSWORD)
    for field, value in fields.items():
        setattr(user, field, value)
    user.save()
    return user


@pytest.fixture
def zoe():
    return with_password("zoe")


def code_of(secret, periods=0):
    return pyotp.TOTP(secret).at(time.time(), counter_offset=periods)


@pytest.fixture
def factor(zoe):
    """The secret of zoe, whose code of the next period is accepted, and her recovery codes."""
    return set_up(zoe)


def set_up(user):
    secret = second_factor.new_secret()
    codes = second_factor.set_up(user, secret, code_of(secret, -1))
    return secret, codes


def by_page(client, password=PASSWORD, name="zoe", to=""):
    return client.post("/login/", {"username": name, "password": password, "next": to})


def by_body(client, code=None, name="zoe"):
    body = {"username": name, "password": PASSWORD, "name": "x"} | ({"code": code} if code else {})
    return client.post("/api/v1/tokens", body, content_type="application/json")


def code_in(response):
    return response.json()["error"]["code"]


def events(name):
    return AuditEntry.objects.filter(event=name).count()


def test_the_page_asks_for_a_code_after_the_password(client, factor):
    response = by_page(client, to="/workers/")
    assert response.url == "/login/code"
    assert client.get("/workers/").status_code == 302  # not signed in yet
    assert client.get("/api/v1/me").status_code == 401
    assert events("sign-in ok") == 0
    assert "Code for zoe" in client.get("/login/code").content.decode()
    wrong = client.post("/login/code", {"code": "000000"})
    assert wrong.status_code == 422 and "The code is wrong" in wrong.content.decode()
    assert client.get("/workers/").status_code == 302
    right = client.post("/login/code", {"code": code_of(factor[0])})
    assert right.url == "/workers/" and client.get("/workers/").status_code == 200
    entry = AuditEntry.objects.get(event="sign-in ok")
    assert entry.details == {"user": "zoe", "method": "password and code"}
    assert events("wrong code") == 1


def test_a_session_before_the_code_is_another_one_than_after_it(client, factor):
    by_page(client)
    before = client.cookies["sessionid"].value
    assert client.session.get_expiry_age() <= sign_in.PENDING_SECONDS
    client.post("/login/code", {"code": code_of(factor[0])})
    assert client.cookies["sessionid"].value != before
    assert sign_in.PENDING not in client.session
    assert client.session.get_expiry_age() > sign_in.PENDING_SECONDS


@pytest.mark.parametrize("change", ["password", "disabled", "time"])
def test_an_awaited_code_is_no_longer_accepted(client, zoe, factor, change):
    by_page(client)
    moment = time.time()
    if change == "password":
        zoe.set_password("battery staple 9")
        zoe.save()
    elif change == "disabled":
        User.objects.filter(pk=zoe.pk).update(is_active=False)
    else:
        moment += sign_in.PENDING_SECONDS + 1
    with time_machine.travel(moment, tick=False):
        response = client.post("/login/code", {"code": code_of(factor[0])})
    assert response.url == "/login/?late"
    assert "took too long" in client.get("/login/?late").content.decode()
    assert client.get("/account/").status_code == 302


def test_the_code_page_without_a_password_leads_to_the_sign_in(client, zoe):
    assert client.get("/login/code").url == "/login/?late"
    assert client.post("/login/set-up", {"code": "000000"}).url == "/login/?late"


def test_a_code_is_accepted_once(client, zoe, factor):
    code = code_of(factor[0])
    assert by_body(client, code).status_code == 201
    refused = by_body(client, code)
    assert (refused.status_code, code_in(refused)) == (401, "WRONG_CODE")
    assert Token.objects.filter(user=zoe).count() == 1


def test_the_code_that_confirmed_the_set_up_is_used(client, zoe):
    secret = second_factor.new_secret()
    code = code_of(secret)
    second_factor.set_up(zoe, secret, code)
    assert code_in(by_body(client, code)) == "WRONG_CODE"


def test_codes_of_neighbouring_periods_are_accepted_and_others_not(client, zoe):
    moment = 1_800_000_000
    with time_machine.travel(moment, tick=False):
        secret = second_factor.new_secret()
        second_factor.set_up(zoe, secret, code_of(secret, -1))
        assert code_in(by_body(client, code_of(secret, 2))) == "WRONG_CODE"
        assert code_in(by_body(client, code_of(secret, -2))) == "WRONG_CODE"
        assert by_body(client, code_of(secret, 1)).status_code == 201
        assert code_in(by_body(client, code_of(secret, 0))) == "WRONG_CODE"  # older than the last


def test_codes_are_read_as_people_write_them(zoe, factor):
    code = code_of(factor[0])
    second_factor.accept(zoe, f" {code[:3]} {code[3:]} ", None)
    second_factor.accept(zoe, factor[1][0].upper().replace("-", " "), None)
    for given in ("", "١٢٣٤٥٦", "\x00", "é" * 16, "1" * 100):
        with pytest.raises(second_factor.WrongCode):
            second_factor.accept(zoe, given, None)
        RecentCount.objects.all().delete()


def test_a_recovery_code_is_accepted_once_and_only_a_digest_is_stored(client, zoe, factor):
    code = factor[1][3]
    assert len(set(factor[1])) == second_factor.NUM_RECOVERY_CODES
    plain = code.replace("-", "")
    assert not any(plain in each.digest for each in RecoveryCode.objects.all())
    assert by_body(client, code).status_code == 201
    assert code_in(by_body(client, code)) == "WRONG_CODE"
    assert RecoveryCode.objects.count() == second_factor.NUM_RECOVERY_CODES - 1
    assert events("recovery code used") == 1


def test_a_recovery_code_that_cannot_be_noted_stays_valid(zoe, factor, monkeypatch):
    def broken(*_, **__):
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(second_factor, "note", broken)
        with pytest.raises(DatabaseError):
            second_factor.accept(zoe, factor[1][0], None)
    second_factor.accept(zoe, factor[1][0], None)
    assert events("recovery code used") == 1


def test_a_recovery_code_of_another_account_is_refused(client, factor):
    set_up(with_password("ben"))
    assert code_in(by_body(client, factor[1][0], name="ben")) == "WRONG_CODE"


def test_the_secret_is_stored_encrypted(zoe, factor):
    stored = SecondFactor.objects.get().secret
    raw = base64.b64decode(stored.removeprefix(encryption.VERSION))
    assert factor[0] not in stored and base64.b32decode(factor[0]) not in raw
    SecondFactor.objects.filter(pk=zoe.pk).delete()
    ben = with_password("ben")
    SecondFactor.objects.create(user=ben, secret=stored)  # the row of another account
    with pytest.raises(second_factor.DomainError, match="secret key"):
        second_factor.accept(ben, code_of(factor[0]), None)


def test_no_way_to_a_token_by_password_omits_the_code(client, zoe, factor):
    basic = base64.b64encode(f"zoe:{PASSWORD}".encode()).decode()
    header = {"HTTP_AUTHORIZATION": f"Basic {basic}"}
    for response in (
        by_body(client),
        client.get("/api/v1/tokens", **header),
        client.post("/api/v1/tokens", {"name": "x"}, content_type="application/json", **header),
    ):
        assert (response.status_code, code_in(response)) == (401, "CODE_REQUIRED")
    assert not Token.objects.exists()
    with pytest.raises(second_factor.CodeRequired):
        authenticate(None, username="zoe", password=PASSWORD)


def test_the_admin_has_no_sign_in_of_its_own(client, zoe):
    root = with_password("root", is_superuser=True, is_staff=True)
    secret, _ = set_up(root)
    assert client.get("/admin/").url == "/admin/login/?next=/admin/"
    assert client.get("/admin/login/?next=/admin/").url == "/login/?next=/admin/"
    assert client.get("/admin/login/?next=https://evil.example/").url == "/login/?next=/admin/"
    body = {"username": "root", "password": PASSWORD, "next": "/admin/"}
    assert client.post("/admin/login/?next=/admin/", body).status_code == 405
    assert client.get("/admin/").status_code == 302
    assert by_page(client, name="root", to="/admin/").url == "/login/code"
    assert client.get("/admin/").status_code == 302
    assert client.post("/login/code", {"code": code_of(secret)}).url == "/admin/"
    assert client.get("/admin/").status_code == 200
    assert client.get("/admin/login/").url == "/admin/"
    other = Client()
    other.force_login(zoe)
    assert other.get("/admin/login/?next=/admin/").status_code == 403  # and no endless redirect


def test_wrong_codes_are_limited_for_an_address(client, factor):
    for _ in range(second_factor.MAX_WRONG):
        assert code_in(by_body(client, "000000")) == "WRONG_CODE"
    refused = by_body(client, code_of(factor[0]))
    assert (refused.status_code, code_in(refused)) == (429, "TOO_MANY_CODES")
    assert 1 <= int(refused["Retry-After"]) <= second_factor.FORGET_SECONDS
    RecentCount.objects.update(expires_at=seconds_from_now(50))
    assert "in 1 minute." in by_body(client, "000000").content.decode()
    elsewhere = Client(REMOTE_ADDR="10.0.0.66")
    assert by_body(elsewhere, code_of(factor[0])).status_code == 201
    RecentCount.objects.update(expires_at=seconds_from_now(-1))
    assert by_body(client, code_of(factor[0], 1)).status_code == 201


def test_wrong_codes_of_the_app_are_limited_for_an_account_from_everywhere(
    client, factor, monkeypatch
):
    monkeypatch.setattr(second_factor, "MAX_WRONG_OF_ACCOUNT", 6)
    for number in range(6):
        elsewhere = Client(REMOTE_ADDR=f"10.0.0.{number}")
        assert code_in(by_body(elsewhere, "000000")) == "WRONG_CODE"
    assert code_in(by_body(client, code_of(factor[0]))) == "TOO_MANY_CODES"
    assert by_body(client, factor[1][0]).status_code == 201  # no guess, so the owner gets in


def test_a_right_code_forgets_the_wrong_ones_of_its_address_only(client, factor, monkeypatch):
    monkeypatch.setattr(second_factor, "MAX_WRONG_OF_ACCOUNT", 6)
    for _ in range(4):
        by_body(client, "000000")
    assert by_body(client, code_of(factor[0])).status_code == 201
    assert code_in(by_body(client, "000000")) == "WRONG_CODE"
    assert code_in(by_body(client, "000000")) == "WRONG_CODE"
    assert code_in(by_body(client, "000000")) == "TOO_MANY_CODES"  # six of the account


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["app", "recovery"])
def test_of_parallel_requests_with_one_code_one_is_accepted(kind):
    zoe = with_password("zoe")
    secret, codes = set_up(zoe)
    code = code_of(secret) if kind == "app" else codes[0]
    barrier = threading.Barrier(4)

    def tried(_):
        try:
            barrier.wait(20)
            second_factor.accept(zoe, code, None)
        except second_factor.WrongCode:
            return False
        else:
            return True
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(tried, range(4))) == [False, False, False, True]


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_parallel_guesses_are_limited_together():
    zoe = with_password("zoe")
    set_up(zoe)
    barrier = threading.Barrier(12)

    def guessed(_):
        try:
            barrier.wait(20)
            second_factor.accept(zoe, "000000", None)
        except second_factor.DomainError as problem:
            return problem.code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(guessed, range(12)))
    # A request reads the number after later ones have counted, too: fewer may be compared.
    assert found.count("WRONG_CODE") <= second_factor.MAX_WRONG
    assert {*found} <= {"WRONG_CODE", "TOO_MANY_CODES"}
    assert RecentCount.objects.filter(number=12).exists()


def test_existing_tokens_stay_valid(client, zoe):
    _, secret = Token.objects.create(zoe)
    set_up(zoe)
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/me", headers=bearer).status_code == 200


def test_codes_are_for_passwords_only(client, zoe):
    client.force_login(zoe)
    response = client.post(
        "/api/v1/tokens", {"name": "x", "code": "000000"}, content_type="application/json"
    )
    assert "code" in response.json()["error"]["details"]["fields"]


@pytest.mark.parametrize(
    ("setting", "role", "is_asked"),
    [
        (Requirement.OPTIONAL, "admin", False),
        (Requirement.ADMINS, "admin", True),
        (Requirement.ADMINS, "operator", False),
        (Requirement.ALL, "viewer", True),
    ],
)
def test_the_installation_requires_a_second_factor(client, settings, setting, role, is_asked):
    settings.SECOND_FACTOR = setting
    with_password("zoe", role)
    assert by_page(client).url == ("/login/set-up" if is_asked else "/")
    response = by_body(Client(REMOTE_ADDR="10.0.0.66"))
    if is_asked:
        assert (response.status_code, code_in(response)) == (403, "SECOND_FACTOR_REQUIRED")
        assert client.get("/account/").status_code == 302  # not signed in yet
    else:
        assert response.status_code == 201


def test_a_superuser_counts_as_an_admin(settings, client):
    settings.SECOND_FACTOR = Requirement.ADMINS
    with_password("root", None, is_superuser=True)
    assert by_page(client, name="root").url == "/login/set-up"


def test_a_required_second_factor_is_set_up_before_the_sign_in(client, zoe, settings):
    settings.SECOND_FACTOR = Requirement.ALL
    by_page(client, to="/workers/")
    secret = client.get("/login/set-up").context["set_up"].secret
    wrong = client.post("/login/set-up", {"code": "000000"})
    assert wrong.status_code == 422 and wrong.context["set_up"].secret == secret
    assert not second_factor.is_set(zoe) and client.get("/workers/").status_code == 302
    shown = client.post("/login/set-up", {"code": code_of(secret)})
    assert shown.context["to"] == "/workers/"
    assert shown.content.decode().count("<li><code>") == second_factor.NUM_RECOVERY_CODES
    assert client.get("/workers/").status_code == 200
    assert by_body(Client(), shown.context["codes"][0]).status_code == 201


def test_who_has_begun_a_required_set_up_cannot_skip_to_another_step(client, zoe, settings):
    """A code of the session's own secret is no code of the account's."""
    settings.SECOND_FACTOR = Requirement.ALL
    by_page(client)
    secret = client.get("/login/set-up").context["set_up"].secret
    assert client.post("/login/code", {"code": code_of(secret)}).status_code == 422
    set_up(zoe)  # in another window
    assert client.post("/login/set-up", {"code": code_of(secret)}).url == "/login/code"
    assert client.get("/account/").status_code == 302


def test_a_wrong_setting_is_refused_at_the_start():
    assert read_setting({}) is Requirement.OPTIONAL
    assert read_setting({"TRAINOPS_SECOND_FACTOR": "admins"}) is Requirement.ADMINS
    with pytest.raises(ValueError, match="got 'yes'; allowed: optional, admins, all"):
        read_setting({"TRAINOPS_SECOND_FACTOR": "yes"})


def test_it_survives_a_new_secret_key_and_is_encrypted_anew(zoe, factor, settings):
    old = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, [old]
    second_factor.accept(zoe, code_of(factor[0]), None)
    assert second_factor.num_not_current() == (1, 0)
    assert second_factor.encrypt_anew() == 1 and second_factor.encrypt_anew() == 0
    settings.SECRET_KEY_FALLBACKS = []
    second_factor.accept(zoe, code_of(factor[0], 1), None)
    settings.SECRET_KEY = "m" * 50
    assert second_factor.num_not_current() == (0, 1) and second_factor.encrypt_anew() == 0
    with pytest.raises(second_factor.DomainError, match="Use a recovery code"):
        second_factor.accept(zoe, "123456", None)
    second_factor.accept(zoe, factor[1][0], None)  # needs no key


@pytest.mark.parametrize("stored", ["", "1.", "1.!", "2.AAAA", "1." + "A" * 80])
def test_damaged_secrets_are_recognised(stored):
    with pytest.raises(encryption.NotDecryptable):
        encryption.decrypted(stored, "x")


def test_logs_have_neither_codes_nor_secrets(client, zoe, caplog):
    with caplog.at_level(logging.INFO, "trainops.access"):
        secret, codes = set_up(zoe)
        by_body(client, "000000")
        by_body(client, code_of(secret))
        by_body(client, codes[0])
        by_page(client)
    log = caplog.text + " ".join(f"{e.event} {e.details}" for e in AuditEntry.objects.all())
    assert "second factor set" in log and "wrong code" in log and "password ok" in log
    for text in (secret, codes[0], code_of(secret), "000000"):
        assert text not in log


def test_superusers_remove_the_second_factor_of_others(client, zoe, factor):
    root = with_password("root", None, is_superuser=True)
    set_up(root)
    client.force_login(root)
    assert client.get("/api/v1/users/zoe").json()["data"]["has_second_factor"] is True
    assert client.delete("/api/v1/users/zoe/second-factor").status_code == 200
    assert client.get("/api/v1/users/zoe").json()["data"]["has_second_factor"] is False
    assert not RecoveryCode.objects.filter(factor_id=zoe.pk).exists()
    entry = AuditEntry.objects.get(event="second factor removed")
    assert (entry.actor, entry.details) == ("root", {"user": "zoe"})
    assert code_in(client.delete("/api/v1/users/zoe/second-factor")) == "NO_SECOND_FACTOR"
    assert code_in(client.delete("/api/v1/users/root/second-factor")) == "OWN_ACCOUNT"
    client.force_login(with_password("ada", "admin"))
    assert client.delete("/api/v1/users/root/second-factor").status_code == 403
    assert by_page(Client()).url == "/"
