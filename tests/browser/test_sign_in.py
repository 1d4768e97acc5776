"""Second factors and sign-ins by a provider, in a browser: what the policy of the pages allows."""

import re
import time

import pyotp
import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.axe import judged_at_each_width, violations
from tests.browser.conftest import NARROW, WIDE
from tests.identity import conftest as identity
from trainops.http import second_factor

PASSWORD = "correct horse"


@pytest.fixture
def stranger(open_page, ana):
    """Return a function that opens a page of a browser that is not signed in."""
    ana.set_password(PASSWORD)
    ana.save()

    def stranger(path="/login/", viewport=WIDE, scheme="light"):
        page = open_page("/login/", viewport, scheme)
        page.context.clear_cookies()
        page.goto(path)
        return page

    return stranger


def enter_password(page):
    page.get_by_label("Username").fill("ana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_test_id("sign-in").click()


def test_a_second_factor_is_set_up_and_asked_for(stranger):
    page = stranger("/login/?next=/account/second-factor")
    enter_password(page)
    expect(page.locator(".qr svg")).to_be_visible()
    assert not judged_at_each_width(page)
    secret = page.get_by_test_id("factor-secret").inner_text().replace(" ", "")
    totp = pyotp.TOTP(secret)
    page.get_by_label("Enter the code").fill(totp.now())
    page.get_by_label("Enter your password").fill(PASSWORD)
    page.get_by_test_id("confirm-factor").click()
    expect(page.get_by_test_id("recovery-codes").locator("li")).to_have_count(10)
    assert not judged_at_each_width(page)
    page.get_by_test_id("codes-kept").click()
    expect(page.get_by_role("heading", name="Second factor", exact=True)).to_be_visible()
    assert not violations(page)
    page.get_by_test_id("sign-out").click()
    enter_password(page)
    page.get_by_label("Code of the authenticator app").fill("000000")
    page.get_by_test_id("send-code").click()
    expect(page.get_by_test_id("code-error")).to_be_visible()
    assert not judged_at_each_width(page)
    later = totp.at(time.time(), counter_offset=1)  # the same one is not accepted again
    page.get_by_label("Code of the authenticator app").fill(later)
    page.get_by_test_id("send-code").click()
    expect(page).to_have_url(re.compile("/$"))
    expect(page.get_by_test_id("account")).to_have_text("ana")


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_required_second_factor_fits_its_window(stranger, settings, viewport):
    settings.SECOND_FACTOR = "all"
    page = stranger(viewport=viewport)
    enter_password(page)
    expect(page.get_by_test_id("set-up-form")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not violations(page)
    secret = page.get_by_test_id("factor-secret").inner_text().replace(" ", "")
    page.get_by_label("Enter the code").fill(pyotp.TOTP(secret).now())
    page.get_by_test_id("confirm-factor").click()
    expect(page.get_by_test_id("recovery-codes")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_test_id("codes-kept").click()
    expect(page.get_by_test_id("account")).to_have_text("ana")
    assert second_factor.is_set(User.objects.get())


@pytest.fixture
def provider(settings, live_server):
    provider = identity.start()
    callback = f"{live_server.url}/login/oidc/callback"
    provider.control(redirects=[callback])
    identity.configure(settings, provider)
    yield provider
    identity.stop(provider)
    identity.cached.forget()


def test_a_provider_signs_in_and_out(stranger, provider, live_server):
    page = stranger("/login/?next=/workers/")
    assert not violations(page)
    page.get_by_test_id("sign-in-provider").click()
    expect(page).to_have_url(re.compile("/workers/$"))
    expect(page.get_by_test_id("account")).to_have_text("ben")
    expect(page.get_by_test_id("tour")).to_be_visible()  # of a first sign-in; it comes later
    page.keyboard.press("Escape")
    page.get_by_test_id("sign-out").click()
    expect(page.get_by_test_id("signed-out")).to_be_visible()
    assert not violations(page)
    page.get_by_role("link", name="Sign out of Example, too").click()
    expect(page).to_have_url(f"{live_server.url}/login/")
    assert "GET /end" in provider.requests()


def test_an_account_is_connected_with_a_provider(stranger, provider):
    page = stranger("/login/?next=/account/identity")
    enter_password(page)
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_test_id("connect").click()
    page.get_by_test_id("continue").click()
    expect(page).to_have_url(re.compile("/account/$"))
    page.get_by_test_id("identity").click()
    expect(page.get_by_role("heading", name="Connected with Example")).to_be_visible()
    assert not violations(page)
