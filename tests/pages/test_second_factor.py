"""The pages of the second factor: setting it up, replacing it, recovery codes, removing it."""

import re
import time

import pyotp
import pytest

from tests.admin.test_buttons import SUBMITTED
from tests.pages import making
from trainops.http import login_throttle, second_factor
from trainops.http.models import AuditEntry, RecoveryCode, SecondFactor
from trainops.sign_in_settings import Requirement

PAGE, PASSWORD = "/account/second-factor", "correct horse"
REPLACE = f"{PAGE}?replace"


@pytest.fixture
def zoe(db):
    user = making.person("zoe", "operator")
    user.set_password(PASSWORD)
    user.save()
    return user


@pytest.fixture
def page(as_, zoe):
    return as_(zoe)


def code_of(secret, periods=0):
    return pyotp.TOTP(secret).at(time.time(), counter_offset=periods)


def set_up(page, address=PAGE, periods=0, password=PASSWORD, **more):
    secret = page.get(address).context["set_up"].secret
    return page.post(address, {"code": code_of(secret, periods), "password": password, **more})


def test_it_is_set_up_with_a_qr_code_and_the_secret_as_text(page, zoe):
    assert "Second factor: off" in page.get("/account/").content.decode()
    shown = page.get(PAGE)
    text, secret = shown.content.decode(), shown.context["set_up"].secret
    assert "<svg" in text and "<script" not in text.partition("<svg")[2].partition("</svg>")[0]
    assert shown.context["set_up"].groups in text
    assert not SecondFactor.objects.exists()
    codes = page.post(PAGE, {"code": code_of(secret), "password": PASSWORD}).context["codes"]
    assert len(codes) == second_factor.NUM_RECOVERY_CODES
    assert second_factor.is_set(zoe)
    assert "Second factor: on" in page.get("/account/").content.decode()
    status = page.get(PAGE).content.decode()
    assert "10 recovery codes left" in status and codes[0] not in status and secret not in status


def test_the_address_in_the_qr_code_names_account_and_installation(zoe):
    address = second_factor.address(zoe, "JBSWY3DPEHPK3PXP" * 2, "train.example.org")
    read = pyotp.parse_uri(address)
    assert (read.secret, read.name) == ("JBSWY3DPEHPK3PXP" * 2, "zoe")
    assert read.issuer == "trainops train.example.org"


@pytest.mark.parametrize(
    ("host", "name"),
    [("[::1]", "[--1]"), ("[::1]:8000", "[--1]"), ("localhost:8000", "localhost")],
)
def test_the_host_in_the_address_has_no_port(page, settings, monkeypatch, host, name):
    shown = []
    draw = second_factor.address
    monkeypatch.setattr(
        second_factor, "address", lambda *given: shown.append(draw(*given)) or shown[-1]
    )
    settings.ALLOWED_HOSTS = ["*"]
    page.get(PAGE, headers={"Host": host})
    assert pyotp.parse_uri(shown[0]).issuer == f"trainops {name}"


@pytest.mark.parametrize(
    ("code", "password", "field"),
    [("000000", PASSWORD, "code"), (None, "wrong", "password"), ("", PASSWORD, "code")],
)
def test_a_wrong_code_or_password_sets_nothing_up(page, code, password, field):
    secret = page.get(PAGE).context["set_up"].secret
    given = code_of(secret) if code is None else code
    response = page.post(PAGE, {"code": given, "password": password})
    assert response.status_code == 422 and [*response.context["errors"]] == [field]
    assert response.context["set_up"].secret == secret
    assert not SecondFactor.objects.exists()


def test_each_opened_page_has_a_new_secret(page, zoe):
    """A former user of an open session does not know the one that its owner sets up."""
    known = page.get(PAGE).context["set_up"].secret
    secret = page.get(PAGE).context["set_up"].secret
    assert secret != known
    body = {"code": code_of(known), "password": PASSWORD}
    assert [*page.post(PAGE, body).context["errors"]] == ["code"]
    assert page.post(PAGE, {**body, "code": code_of(secret)}).context["codes"]


def test_passwords_are_throttled_on_these_pages_too(page, zoe):
    for _ in range(login_throttle.MAX_FAILURES):
        page.post(PAGE, {"code": "000000", "password": "wrong"})
    text = set_up(page).content.decode()
    assert "Too many wrong passwords" in text and not SecondFactor.objects.exists()


def test_it_is_replaced_and_the_former_codes_are_refused(page, zoe):
    former = set_up(page, periods=-1).context["codes"]
    old = SecondFactor.objects.get().secret
    codes = set_up(page, REPLACE, current_code=former[1]).context["codes"]
    assert SecondFactor.objects.get().secret != old
    with pytest.raises(second_factor.WrongCode):
        second_factor.accept(zoe, former[0], None)
    second_factor.accept(zoe, codes[0], None)
    assert AuditEntry.objects.filter(event="second factor replaced").count() == 1


@pytest.mark.parametrize("given", [{}, {"current_code": "000000"}])
def test_with_the_password_alone_it_is_not_changed(page, zoe, given):
    set_up(page, periods=-1)
    before = SecondFactor.objects.get()
    refused = set_up(page, REPLACE, **given)
    assert refused.status_code == 422 and [*refused.context["errors"]] == ["current_code"]
    assert "The code is wrong" in refused.text
    for action in ("remove", "recovery-codes"):
        refused = page.post(f"{PAGE}/{action}", {"password": PASSWORD, **given})
        assert refused.status_code == 422 and "The code is wrong" in refused.text
    assert SecondFactor.objects.get().secret == before.secret
    assert RecoveryCode.objects.count() == second_factor.NUM_RECOVERY_CODES
    assert not AuditEntry.objects.filter(event="recovery codes made").exists()


def test_a_code_of_the_present_app_replaces_it(page, zoe):
    secret = page.get(PAGE).context["set_up"].secret
    page.post(PAGE, {"code": code_of(secret, -1), "password": PASSWORD})
    assert set_up(page, REPLACE, current_code=code_of(secret)).context["codes"]


def test_a_recovery_code_is_not_used_up_where_the_new_app_is_not_confirmed(page, zoe):
    (first, *_) = set_up(page).context["codes"]
    page.get(REPLACE)
    body = {"code": "000000", "password": PASSWORD, "current_code": first}
    assert [*page.post(REPLACE, body).context["errors"]] == ["code"]
    assert [*page.post(REPLACE, {**body, "password": "wrong"}).context["errors"]] == ["password"]
    second_factor.accept(zoe, first, None)


def test_new_recovery_codes_need_the_password_and_end_the_former_ones(page, zoe):
    former = set_up(page).context["codes"]
    refused = page.post(f"{PAGE}/recovery-codes", {"password": "wrong"})
    assert refused.status_code == 422 and "The password is wrong" in refused.content.decode()
    body = {"password": PASSWORD, "current_code": former[1]}
    codes = page.post(f"{PAGE}/recovery-codes", body).context["codes"]
    assert not set(codes) & set(former)
    assert RecoveryCode.objects.count() == second_factor.NUM_RECOVERY_CODES
    with pytest.raises(second_factor.WrongCode):
        second_factor.accept(zoe, former[0], None)


def test_its_owner_removes_it_with_the_password_and_a_code(page, zoe, client):
    (code, *_) = set_up(page).context["codes"]
    assert page.post(f"{PAGE}/remove", {"password": "wrong"}).status_code == 422
    assert page.post(f"{PAGE}/remove", {}).status_code == 422
    assert second_factor.is_set(zoe)
    body = {"password": PASSWORD, "current_code": code}
    assert page.post(f"{PAGE}/remove", body).url == "/account/"
    assert not second_factor.is_set(zoe)
    entry = AuditEntry.objects.get(event="second factor removed")
    assert (entry.actor, entry.details) == ("zoe", {"user": "zoe"})
    assert client.post("/login/", {"username": "zoe", "password": PASSWORD}).url == "/"


def test_a_required_one_cannot_be_removed_by_its_owner(page, zoe, settings):
    (code, *_) = set_up(page).context["codes"]
    settings.SECOND_FACTOR = Requirement.ALL
    assert "Remove</button>" not in page.get(PAGE).content.decode()
    page.post(f"{PAGE}/remove", {"password": PASSWORD, "current_code": code})
    assert second_factor.is_set(zoe)


def test_what_another_window_removed_is_said(page, zoe):
    for action in ("remove", "recovery-codes"):
        response = page.post(f"{PAGE}/{action}", {"password": PASSWORD}, follow=True)
        assert "zoe has no second factor" in response.content.decode()


def test_these_pages_require_a_sign_in_and_posts(client, page, db):
    for path in (PAGE, f"{PAGE}/remove", f"{PAGE}/recovery-codes"):
        assert client.post(path).url.startswith("/login/")
    for path in (f"{PAGE}/remove", f"{PAGE}/recovery-codes"):
        assert page.get(path).status_code == 405


def test_an_account_without_a_password_needs_none(as_, ana):
    ana.set_unusable_password()
    ana.save()
    page = as_(ana)
    assert "Second factor" not in page.get("/account/").content.decode()
    assert "has no password" in page.get(PAGE).content.decode()


def test_a_superuser_removes_it_in_the_admin(page, zoe, as_):
    set_up(page)
    root = making.person("root", None)
    root.is_superuser = root.is_staff = True
    root.save()
    admin = as_(root)
    assert "Second factor" in admin.get("/admin/auth/user/").content.decode()
    shown = admin.get(f"/admin/auth/user/{zoe.pk}/change/").content.decode()
    (address,) = set(re.findall(r'hx-get="([^"]*second_factor[^"]*)"', shown))
    staff = making.person("staff", "admin")
    staff.is_staff = True
    staff.save()
    assert as_(staff).post(address, SUBMITTED).status_code == 403
    assert second_factor.is_set(zoe)
    assert admin.post(address, SUBMITTED).status_code == 302
    assert not second_factor.is_set(zoe)
    for number in (10**30, "x", 7):
        gone = admin.post(address.replace(str(zoe.pk), str(number)), SUBMITTED)
        assert gone.status_code == 302
