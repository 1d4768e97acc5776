"""The tab Media in a real browser: panels, slider, what is drawn, live."""

import numpy as np
import pytest
from playwright.sync_api import expect

from apps.operations.models import Media
from tests.browser.axe import violations
from tests.browser.conftest import NARROW, WIDE, settled
from tests.pages import making
from trainops.media import Audio, ConfusionMatrix, Histogram, Image, Table
from trainops.media.items import MediaItem

HOSTILE = "<img src=x onerror=alert(1)>"


def logged(operation, step, *values, name, attempt=1):
    for index, value in enumerate(values):
        item = MediaItem(step, False, name, index, value.type, value.caption, value.encode())
        Media.of(item, operation.pk, attempt, 0.0).save()


def log_all(operation, step, attempt=1):
    rng = np.random.default_rng(step)
    log = lambda name, *values: logged(operation, step, *values, name=name, attempt=attempt)  # noqa: E731
    log("pictures", *[Image(rng.random((8, 8)), caption=f"seven {i}, {step}") for i in range(5)])
    log("weights", Histogram([*rng.standard_normal(500), float("nan")], 30))
    log(HOSTILE, Table([HOSTILE, "n"], [[HOSTILE, step], [None, 0.123456]], caption=HOSTILE))
    labels = [HOSTILE, *map(str, range(9))]
    log("confusion", ConfusionMatrix(labels, rng.integers(0, 50, (10, 10))))
    log("sound", Audio(np.sin(np.arange(8000) / 9), 8000, caption="a tone"))


@pytest.fixture
def operation(ana):
    operation = making.operation(ana, "RUNNING")
    making.attempt(operation)
    return operation


def panel(page, name):
    return page.locator(".media-panel").filter(
        has=page.get_by_role("heading", name=name, exact=True)
    )


def test_the_tab_appears_with_the_first_item_and_follows_the_newest(open_page, operation):
    page = open_page(f"/operations/{operation.pk}/")
    expect(page.get_by_test_id("tab-log")).to_be_visible()
    expect(page.get_by_test_id("tab-media")).to_be_hidden()
    log_all(operation, 1)
    page.get_by_test_id("tab-media").click()
    confusion = panel(page, "confusion")
    expect(confusion.locator("output")).to_have_text("step 1, attempt 1 (1 of 1)")
    expect(confusion.get_by_role("slider")).to_be_disabled()
    log_all(operation, 2)
    expect(confusion.locator("output")).to_have_text("step 2, attempt 1 (2 of 2)")
    slider = confusion.get_by_role("slider")
    slider.focus()
    slider.press("ArrowLeft")
    expect(confusion.locator("output")).to_have_text("step 1, attempt 1 (1 of 2)")
    expect(slider).to_have_attribute("aria-valuetext", "step 1, attempt 1")
    log_all(operation, 3)  # an earlier step stays, and so does the focus
    expect(confusion.locator("output")).to_have_text("step 1, attempt 1 (1 of 3)")
    expect(slider).to_be_focused()
    confusion.get_by_role("button", name="Later step of confusion").click()
    expect(confusion.locator("output")).to_have_text("step 2, attempt 1 (2 of 3)")
    Media.objects.filter(step__gt=1).update(retired_by=2)
    expect(confusion.locator("output")).to_have_text("step 1, attempt 1 (1 of 1)")
    log_all(operation, 2, attempt=2)
    expect(confusion.locator("output")).to_have_text("step 2, attempt 2 (2 of 2)")


def test_each_type_is_drawn_and_hostile_text_stays_text(open_page, operation):
    log_all(operation, 1)
    page = open_page(f"/operations/{operation.pk}/#media")
    pictures = panel(page, "pictures").locator("img")
    expect(pictures).to_have_count(5)
    assert pictures.first.evaluate("each => each.decode().then(() => each.naturalWidth)") == 8
    expect(pictures.first).to_have_attribute("alt", "seven 0, 1")
    weights = panel(page, "weights")
    expect(weights.locator(".media-bar")).to_have_count(30)
    expect(weights).to_contain_text("Not finite, not shown: 1")
    weights.locator("summary").click()
    expect(weights.locator("tbody tr")).to_have_count(30)
    confusion = panel(page, "confusion")
    expect(confusion.locator(".media-cell")).to_have_count(100)
    title = confusion.locator(".media-cell title").first
    assert title.text_content().startswith(f"true {HOSTILE}, predicted {HOSTILE}: ")
    hostile = panel(page, HOSTILE)
    expect(hostile.locator("td").first).to_have_text(HOSTILE)
    expect(hostile.locator("td").nth(2)).to_have_text("\N{EN DASH}")
    expect(hostile.locator("img")).to_have_count(0)
    seconds = """each => new Promise(done => {
        each.onloadedmetadata = () => done(each.duration);
        each.load();
    })"""
    assert panel(page, "sound").locator("audio").evaluate(seconds) == pytest.approx(1)


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing_and_nothing_jumps(open_page, operation, viewport):
    for step in (1, 2, 3):
        log_all(operation, step)
    page = open_page(f"/operations/{operation.pk}/#media", viewport)
    page.emulate_media(reduced_motion="reduce")
    expect(page.locator(".media-cell").first).to_be_visible()
    settled(page)
    assert not violations(page)
    heights = "() => [...document.querySelectorAll('.media-panel')].map(each => each.offsetHeight)"
    before = page.evaluate(heights)
    for name in ("pictures", "weights", "confusion", "sound", HOSTILE):
        panel(page, name).get_by_role("button", name="Earlier").click()
        expect(panel(page, name).locator("output")).to_contain_text("(2 of 3)")
    settled(page)
    assert page.evaluate(heights) == before
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    assert not violations(page, rules=["color-contrast"])
