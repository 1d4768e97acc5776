"""Operations compared in Chromium: selected in the list, with curves, one legend and a baseline."""

import re

from playwright.sync_api import expect

from tests.api.saved import saved
from tests.api.test_comparisons import made, measured
from tests.browser.conftest import NARROW
from tests.browser.test_studies import photograph

STEPS = range(1, 61)
WIDEST = {"width": 1440, "height": 900}


def compared(owner, number):
    found = []
    for i in range(number):
        each = made(owner, f"digits, rate {10.0**-i:g}", learning_rate=10.0**-i, seed=i % 2)
        measured(each, "val_loss", {step: (i + 1) / step for step in STEPS})
        measured(each, "train_loss", {step: (i + 0.5) / step for step in STEPS})
        measured(each, "val_accuracy", {step: 1 - (i + 1) / (step + 20) for step in STEPS})
        saved(each, environment={"torch": f"2.1{i % 3}.0", "device_type": "cpu", "threads": 1})
        found.append(each)
    return found


def address(operations):
    return f"/compare/?ids={','.join(each.pk for each in operations)}"


def is_drawn(page, name, colour):
    """Whether a line of a chart has a colour, up to the rounding of smoothed edges."""
    return page.evaluate(
        """([name, colour]) => {
          const canvas = document.querySelector(`[data-chart="${name}"] canvas`);
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const probe = new OffscreenCanvas(1, 1).getContext("2d");
          probe.fillStyle = colour;
          probe.fillRect(0, 0, 1, 1);
          const wanted = [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
          for (let i = 0; i < data.length; i += 4) {
            const isNear = wanted.every((each, k) => Math.abs(each - data[i + k]) < 4);
            if (isNear && data[i + 3] > 150) return true;
          }
          return false;
        }""",
        [name, colour],
    )


def swatch(page, n):
    script = "(each) => getComputedStyle(each).backgroundColor"
    return page.locator(f".curve-legend .swatch-{n}").evaluate(script)


def test_selected_rows_are_compared_with_one_legend(open_page, ana):
    operations = compared(ana, 3)
    page = open_page()
    page.locator("tbody input").nth(0).check()
    expect(page.get_by_test_id("bulk-compare")).to_be_disabled()
    page.get_by_label("Select all on this page").check()
    page.get_by_test_id("bulk-compare").click()
    page.wait_for_url(re.compile(r"/compare/\?ids=op_"))
    expect(page.get_by_test_id("compared")).to_have_count(3)
    chart = page.locator('[data-chart="val_loss"]')
    chart.scroll_into_view_if_needed()
    expect(page.get_by_test_id("chart")).to_have_count(3)
    expect(chart.locator("canvas")).to_have_attribute("aria-label", re.compile("at step 60"))
    expect(page.locator(".u-legend")).to_have_count(0)
    assert all(is_drawn(page, "val_loss", swatch(page, n)) for n in range(3))
    assert not is_drawn(page, "val_loss", "rgb(1, 200, 1)")
    chart.locator(".u-over").hover()
    expect(page.locator("#at-step")).to_have_text(re.compile("Val loss at step 3[01]"))
    newest = page.locator(f'[data-value="{operations[2].pk}"]')
    expect(newest).to_have_text(re.compile(r"0\.\d"))
    row = page.locator('tr[data-row="val_loss final"]')
    expect(row.locator(".gain")).to_have_count(2)
    page.get_by_test_id("as-baseline").nth(1).click()
    page.wait_for_url(re.compile("baseline=op_"))
    expect(page.get_by_test_id("baseline")).to_have_count(1)
    expect(row.locator(".loss")).to_have_count(2)


def test_smoothing_and_scale_stay_in_the_address(open_page, ana):
    operations = compared(ana, 2)
    page = open_page(address(operations))
    chart = page.locator('[data-chart="val_loss"]')
    chart.scroll_into_view_if_needed()
    expect(chart.locator("canvas")).to_have_count(1)
    page.get_by_test_id("smoothing").fill("0.5")
    chart.locator("[data-log-scale]").check()
    expect(page).to_have_url(re.compile(r"ids=op_[^&]*,op_[^&]*&smooth=0.5&log=val_loss$"))
    page.reload()
    expect(page.get_by_test_id("smoothing")).to_have_value("0.5")
    expect(page.locator('[data-chart="val_loss"] [data-log-scale]')).to_be_checked()


def test_a_comparison_of_twelve_fits_its_window(open_page, ana):
    page = open_page(address(compared(ana, 12)), WIDEST)
    chart = page.locator('[data-chart="val_loss"]')
    for name, viewport in (("wide", WIDEST), ("narrow", NARROW)):
        page.set_viewport_size(viewport)
        chart.scroll_into_view_if_needed()
        expect(chart.locator("canvas")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
            assert is_drawn(page, "val_loss", swatch(page, 6)), "the colour of the theme"
            photograph(page, f"compare-{name}-{scheme}")
