"""Studies in Chromium: submitted by the form, compared, stopped by a button that asks."""

import io
import os
import re

import pytest
from playwright.sync_api import expect

from apps.datasets import services as datasets
from apps.operations.models import Study
from apps.operations.studies import services as studies
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from tests.api.test_comparisons import measured
from tests.browser.conftest import NARROW
from tests.pages.test_compared_curves import trials
from tests.pages.test_studies import BARS, GRID, completed, made


@pytest.fixture
def prices(ana):
    return datasets.add_table(io.BytesIO(BARS), filename="bars.csv", owner=ana).pk


def photograph(page, name):
    if directory := os.environ.get("TRAINOPS_TEST_SCREENSHOTS"):
        page.screenshot(path=f"{directory}/{name}.png", full_page=True)


def test_values_are_typed_submitted_and_stopped(open_page, prices):
    page = open_page(f"/operations/new?recipe=sma_crossover&dataset={prices}")
    page.get_by_test_id("tries").locator("summary").click()
    page.get_by_test_id("try-path").nth(0).select_option("parameters.fast")
    page.get_by_test_id("try-values").nth(0).fill("3, 5, 40")
    page.get_by_test_id("try-path").nth(1).select_option("parameters.slow")
    page.get_by_test_id("try-values").nth(1).fill("10..30:10")
    photograph(page, "study-form")
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(r"/studies/st_"))
    expect(page.get_by_test_id("line")).to_have_count(6)
    expect(page.get_by_test_id("left-out")).to_contain_text("fast 40")
    page.get_by_test_id("study-cancel").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("study-counts")).to_contain_text("Cancelled 6")
    assert set(Study.objects.get().operations.values_list("state", flat=True)) == {"CANCELLED"}


def test_a_resume_under_changed_code_is_refused_until_it_is_accepted(open_page, ana):
    config = {"recipe": "digits", "epochs": 2}
    design = {"values": {"learning_rate": [0.1, 0.2]}}
    study = studies.create(kind="training", config=config, design=design, owner=ana)
    studies.cancel(study_id=study.pk, actor=ana)
    saved(study.operations.order_by("pk")[0], environment=CHANGED)
    page = open_page(study.get_absolute_url())
    page.get_by_test_id("study-resume").click()
    photograph(page, "study-resume")
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_text(f"differ from those of the checkpoint: {CHANGED_FILE}")).to_be_visible()
    assert set(study.operations.values_list("state", flat=True)) == {"CANCELLED"}
    page.get_by_test_id("study-resume").click()
    page.get_by_test_id("accept-inexact").check()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_text("Resuming 2 operations.")).to_be_visible()
    assert set(study.operations.values_list("state", flat=True)) == {"PENDING", "RESUMING"}


def test_another_field_with_a_condition_is_typed_and_edited_as_a_file(open_page, ana):
    page = open_page("/operations/new?recipe=digits")
    page.get_by_test_id("tries").locator("summary").click()
    page.get_by_test_id("try-path").nth(0).select_option("optimizer")
    page.get_by_test_id("try-values").nth(0).fill("sgd, adam")
    page.get_by_test_id("add-try").click()
    expect(page.get_by_test_id("try-path")).to_have_count(4)
    expect(page.get_by_test_id("try-path").nth(3)).to_be_focused()
    page.get_by_test_id("try-path").nth(3).select_option("momentum")
    page.get_by_label("Values", exact=True).nth(3).fill("0.5, 0.9")
    page.get_by_label("Only if").nth(3).select_option("optimizer")
    page.get_by_label("is one of").nth(3).fill("sgd")
    page.get_by_test_id("show-yaml").click()
    file = page.get_by_test_id("yaml")
    expect(file).to_have_value(re.compile("conditions:"))
    file.fill(file.input_value().replace("0.5", "0.25"))
    page.get_by_test_id("show-form").click()
    expect(page.get_by_test_id("try-values").nth(1)).to_have_value("0.25, 0.9")
    for _ in range(7):
        page.get_by_test_id("add-try").click()
    expect(page.get_by_test_id("add-try")).to_be_hidden()
    expect(page.get_by_test_id("try-path")).to_have_count(10)
    photograph(page, "study-conditions")
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(r"/studies/st_"))
    expect(page.get_by_test_id("line")).to_have_count(3)
    design = Study.objects.get().design
    assert design["conditions"] == {"momentum": {"path": "optimizer", "values": ["sgd"]}}


def test_the_curves_of_its_operations_are_drawn_and_followed(open_page, ana):
    study, operations = trials(ana, 13)
    operations[0].row.update(state="PENDING", result=None)
    page = open_page(f"{study.get_absolute_url()}?smooth=0.5")
    legend = page.get_by_test_id("legend").locator("li")
    expect(legend).to_have_count(12)
    rate = operations[12].study_values["learning_rate"]
    expect(legend.first).to_contain_text(f"learning_rate {rate:.4g}"[:20])
    canvas = page.locator('[data-chart="val_loss"] canvas')
    page.locator('[data-chart="val_loss"]').scroll_into_view_if_needed()
    expect(canvas).to_have_attribute("aria-label", re.compile("0.88 at step 10"))
    page.get_by_test_id("curves-of").select_option("latest")
    expect(canvas).to_have_attribute("aria-label", re.compile("0.99 at step 10"))
    colour = legend.first.locator(".swatch").get_attribute("class")
    measured(operations[12], "val_loss", {20: 0.5})
    expect(canvas).to_have_attribute("aria-label", re.compile("0.5 at step 20"))
    assert legend.first.locator(".swatch").get_attribute("class") == colour
    page.get_by_test_id("x-axis").select_option("elapsed")
    page.wait_for_function("() => location.search.includes('curves_x=elapsed')")
    assert "smooth=0.5" in page.url
    swapped = page.get_by_test_id("study-percent").text_content()
    operations[0].row.update(state="COMPLETED", step=50, total_steps=50)
    expect(page.get_by_test_id("study-percent")).not_to_have_text(swapped)
    expect(canvas).to_be_visible()


def test_a_search_is_typed_and_continued(open_page, prices):
    page = open_page(f"/operations/new?recipe=sma_crossover&dataset={prices}")
    page.get_by_test_id("tries").locator("summary").click()
    page.get_by_test_id("try-path").nth(0).select_option("parameters.fast")
    page.get_by_test_id("try-values").nth(0).fill("2..9")
    page.get_by_test_id("try-method").select_option("tpe")
    page.get_by_test_id("try-samples").fill("6")
    page.get_by_test_id("try-parallel").fill("2")
    photograph(page, "study-search-form")
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(r"/studies/st_"))
    expect(page.get_by_test_id("line")).to_have_count(2)
    page.get_by_test_id("extend-trials").fill("4")
    page.get_by_test_id("study-extend").click()
    expect(page.get_by_test_id("study-counts")).to_contain_text("of 10 operations")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_came_of_it_is_compared_at_any_width(open_page, ana, prices, scheme):
    design = GRID | {"further_objectives": [{"metric": "trades", "mode": "min"}]}
    study = made(ana, prices, design, name="Averages")
    completed(study)
    page = open_page(study.get_absolute_url(), scheme=scheme)
    expect(page.get_by_test_id("heat").locator("td")).to_have_count(4)
    expect(page.get_by_test_id("line")).to_have_count(8)
    photograph(page, f"study-{scheme}")
    page = open_page(study.get_absolute_url(), viewport=NARROW, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    photograph(page, f"study-narrow-{scheme}")
    page.select_option("select[name=x]", "cash")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#heat-title")).to_contain_text("by cash and")
