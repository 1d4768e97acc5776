"""The report of a backtest in Chromium: drawn, in both themes, at any width."""

import json

import pytest
from playwright.sync_api import expect

from tests.backtest.market import run, walk
from tests.browser.conftest import NARROW
from tests.browser.test_operation import COLOURED
from tests.pages import making


@pytest.fixture
def finished(ana, tmp_path):
    result = json.loads(json.dumps(run(walk(500), tmp_path, recipe="sma_crossover").result()))
    return making.operation(ana, "COMPLETED", name="walked", kind="backtest", result=result)


def test_the_curves_are_drawn_and_follow_the_theme(open_page, finished):
    page = open_page(f"/operations/{finished.pk}/")
    curves = page.locator("[data-report-chart] canvas")
    expect(curves).to_have_count(3)
    for number in range(3):
        assert curves.nth(number).evaluate(COLOURED) > 50
        assert curves.nth(number).get_attribute("aria-label")
    expect(page.locator("#charts")).to_be_hidden()
    page.evaluate("document.documentElement.dataset.bsTheme = 'dark'")
    page.evaluate("document.dispatchEvent(new Event('theme-changed'))")
    expect(curves).to_have_count(3)


def test_nothing_is_wider_than_a_narrow_page(open_page, finished):
    page = open_page(f"/operations/{finished.pk}/", viewport=NARROW)
    expect(page.locator("[data-report-chart] canvas")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
