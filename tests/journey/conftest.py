"""A whole installation with a browser before it. Modules with a stack of their own replace it."""

import os

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, PATIENCE_MS
from tests.journey.stack import running

PASSWORD = "a long pass phrase"


@pytest.fixture
def stack(tmp_path):
    with running(tmp_path / "var", TRAINOPS_ADMIN_PASSWORD=PASSWORD) as stack:
        yield stack


@pytest.fixture
def page(stack):
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        page = browser.new_page(base_url=stack.url)
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/login/")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", PASSWORD)
        page.get_by_test_id("sign-in").click()
        page.get_by_test_id("tour-skip").click()  # of the first sign-in
        yield page
        if directory := os.environ.get("TRAINOPS_TEST_SCREENSHOTS"):
            page.screenshot(path=f"{directory}/by-clicking.png", full_page=True)
        browser.close()
