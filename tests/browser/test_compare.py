"""Operations compared in Chromium: selected in the list, with curves, one legend and a baseline."""

import csv
import re

from playwright.sync_api import expect

from tests.api.saved import saved
from tests.api.test_comparisons import made, measured
from tests.browser.conftest import NARROW
from tests.browser.test_charts import chart, drag, pick, zoom_of
from tests.browser.test_deleted import expect_silence, open_with_clock
from tests.browser.test_operation import canvas, picture, until_changed
from tests.browser.test_studies import photograph
from tests.pages import making
from tests.pages.test_compared_curves import long_curves

STEPS = range(1, 61)
WIDEST = {"width": 1440, "height": 900}


def compared(owner, number):
    found = []
    for i in range(number):
        each = made(owner, f"digits, rate {10.0**-i:g}", learning_rate=10.0**-i, seed=i % 2)
        making.attempt(each)
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


def shown(page, name="val_loss"):
    chart(page, name).scroll_into_view_if_needed()
    canvas(page, name).wait_for()


def test_curves_are_drawn_over_every_axis_that_an_operation_counts(open_page, ana):
    one, two = compared(ana, 2)
    measured(one, "epoch", {step: step / 10 for step in STEPS})
    page = open_page(address([one, two]))
    shown(page)
    axis = page.get_by_test_id("x-axis")
    options = "select => [...select.options].filter((o) => !o.hidden).map((o) => o.value)"
    assert axis.evaluate(options) == ["step", "epoch", "elapsed", "time"]
    assert is_drawn(page, "val_loss", swatch(page, 1))
    axis.select_option("epoch")
    expect(page.locator("#without-axis")).to_have_text(f"Without epoch: {two.name}.")
    page.wait_for_function("() => location.search.includes('x=epoch')")
    assert is_drawn(page, "val_loss", swatch(page, 0))
    assert not is_drawn(page, "val_loss", swatch(page, 1)), "it counts no epochs"
    chart(page, "val_loss").locator(".u-over").hover()
    expect(page.locator("#at-step")).to_have_text(re.compile(r"Val loss at epoch [23]"))
    for value in ("elapsed", "time"):
        before = picture(page, "val_loss")
        axis.select_option(value)
        until_changed(page, before, "val_loss")
        expect(page.locator("#without-axis")).to_be_hidden()
    page.reload()
    expect(axis).to_have_value("time")


def test_a_zoomed_window_has_all_points_of_every_operation(open_page, ana):
    operations = compared(ana, 2)
    long_curves(*operations)
    page = open_page(address(operations))
    shown(page, "long")
    with page.expect_response(re.compile(r"/compare/points\?.*name=long")) as asked:
        drag(page, "long", 0.5, 0.6)
    low, high = zoom_of(page)
    found = asked.value.json()["operations"]
    assert set(found) == {each.pk for each in operations}
    for each in found.values():
        inside = [step for step in each["series"][0]["steps"] if low <= step <= high]
        assert inside == list(range(inside[0], inside[-1] + 1)) and len(inside) > 400
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()
    page.reload()
    shown(page, "long")
    assert zoom_of(page) == (low, high)


def test_the_page_is_updated_while_an_operation_runs(open_page, ana):
    operations = compared(ana, 1)
    running = making.operation(ana, "RUNNING", name="the star")
    making.attempt(running)
    measured(running, "val_loss", dict.fromkeys(STEPS, 1.0))
    page = open_page(address([*operations, running]))
    shown(page)
    expect(page.get_by_text("Still active: 1 operation")).to_be_visible()
    measured(running, "val_loss", dict.fromkeys(range(61, 91), 0.5))
    running.row.update(step=30)
    note = canvas(page, "val_loss")
    expect(note).to_have_attribute("aria-label", re.compile("the star: 0.5 at step 90"))
    expect(page.get_by_test_id("compared").nth(1)).to_contain_text("60 %")
    running.row.update(state="COMPLETED", step=50)
    expect(page.get_by_text("Still active")).to_have_count(0)
    row = page.locator('tr[data-row="val_loss final"]')
    expect(row).to_contain_text("step 90")
    expect(page.get_by_test_id("compared").nth(1)).to_contain_text("100 %")


def test_a_deleted_operation_is_named_and_the_others_go_on(open_page, ana):
    first, second = compared(ana, 2)
    running = making.operation(ana, "RUNNING", name="the star")
    making.attempt(running)
    measured(running, "val_loss", {step: 3 / step for step in STEPS})
    page = open_with_clock(open_page, address([first, second, running]))
    shown(page)
    gone = first.name
    first.delete()
    expect(page.get_by_test_id("deleted")).to_contain_text(f"Deleted: {gone}")
    expect(page.get_by_test_id("deleted")).to_contain_text(f"The baseline is now {second.name}.")
    expect(page.get_by_test_id("compared-deleted")).to_contain_text(gone)
    expect(page.get_by_test_id("legend").get_by_role("listitem")).to_have_count(2)
    assert is_drawn(page, "val_loss", swatch(page, 2)), "the others keep their colours"
    measured(running, "val_loss", dict.fromkeys(range(61, 91), 0.5))
    running.row.update(step=30)
    note = canvas(page, "val_loss")
    expect(note).to_have_attribute("aria-label", re.compile("the star: 0.5 at step 90"))
    second.delete()
    running.delete()
    expect(page.get_by_test_id("gone")).to_contain_text("All of these operations were deleted.")
    expect_silence(page, "/compare/")


def test_a_link_with_an_id_of_no_operation_says_what_is_known(open_page, ana):
    missing = "op_training_20260101_000000_abcdef"
    page = open_page(f"{address(compared(ana, 2))},{missing}")
    shown(page)
    note = page.get_by_test_id("deleted")
    expect(note).to_contain_text(f"Not found (deleted, or a wrong id): {missing}")
    expect(page.get_by_test_id("compared-deleted")).to_contain_text("Not found")


def test_a_chart_is_saved_as_csv_and_png_and_shown_as_a_table(open_page, ana):
    operations = compared(ana, 2)
    page = open_page(address(operations))
    shown(page)
    with page.expect_download() as download:
        pick(page, "val_loss", "All points as CSV")
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert {row["operation_id"] for row in rows} == {each.pk for each in operations}
    assert len(rows) == 2 * len(STEPS) and {row["name"] for row in rows} == {"val_loss"}
    with page.expect_download() as download:
        pick(page, "val_loss", "Save as PNG")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    pick(page, "val_loss", "Show as table")
    names = "".join(each.name for each in operations)
    expect(page.locator("#chart-table thead")).to_have_text(f"step{names}")
