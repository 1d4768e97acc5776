"""Real Chromium against a real server. Whatever it complains about fails the test."""

import os

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from playwright.sync_api import Page, expect, sync_playwright

from tests.pages import making

pytest.register_assert_rewrite("tests.browser.journeys")

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = 60_000  # on a machine that does much else
WIDE, NARROW = {"width": 1366, "height": 900}, {"width": 390, "height": 844}

# Counts what the scripts of a page have asked for and not got.
COUNT_REQUESTS = """
  window.openRequests = { num: 0, changedAt: 0 };
  const count = (by) => {
    window.openRequests.num += by;
    window.openRequests.changedAt = performance.now();
  };
  const { fetch } = window;
  window.fetch = (...given) => {
    count(1);
    return fetch(...given).finally(() => count(-1));
  };
  const { send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.send = function (...given) {
    count(1);
    this.addEventListener("loadend", () => count(-1));
    return send.apply(this, given);
  };
"""
IS_SETTLED = """() => document.readyState === "complete" && window.openRequests.num === 0
  && performance.now() - window.openRequests.changedAt > 300"""


def settled(page):
    """Wait until the page and all that its scripts asked for have arrived."""
    page.wait_for_function(IS_SETTLED)


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


def _is_complaint(said):
    """A refusal (status 4xx, 503) is an answer; the browser writes it to its console all the same.

    So it does with an answer that a test has cut off.
    """
    wanted = ("status of 4", "status of 503", "net::ERR_FAILED")
    is_wanted = any(each in said.text for each in wanted)
    return said.type == "error" and not is_wanted


@pytest.fixture(scope="package")
def chromium():
    # The driver keeps an event loop in this thread; Django would refuse the database beside one.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def ana(transactional_db, settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    cache.clear()
    return making.person("ana", "operator")


@pytest.fixture
def open_page(chromium, live_server, ana):
    """Return a function that opens a page: open_page("/workers/", width, theme, zone, user=ana)."""
    contexts, complaints = [], []

    def open_page(
        path: str = "/", viewport=WIDE, scheme="light", zone: str | None = None, *, user: User = ana
    ) -> Page:
        client = Client()
        client.force_login(user)
        cookie = client.cookies["sessionid"].value
        context = chromium.new_context(
            viewport=viewport, color_scheme=scheme, timezone_id=zone, base_url=live_server.url
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(COUNT_REQUESTS)
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: _is_complaint(said) and complaints.append(said.text))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
