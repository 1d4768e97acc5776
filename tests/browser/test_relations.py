"""Parallel coordinates, scatter and importance in Chromium, of a comparison and of a study."""

import re

import pytest
from playwright.sync_api import expect

from apps.operations.comparisons import importance
from apps.operations.requests import deletion
from tests.browser.conftest import NARROW, settled
from tests.browser.test_compare import WIDEST, address, compared
from tests.browser.test_deleted import come_back
from tests.browser.test_studies import photograph, prices
from tests.pages.test_studies import GRID, completed, made

__all__ = ["prices"]  # a fixture


@pytest.fixture(autouse=True)
def shares(monkeypatch):
    """Importance without the process that grows the forest: 3 to 1, by the order of the fields."""

    def call(module, request, limits):
        names = list(request["fields"])
        return {name: (3 if name == names[0] else 1) / (len(names) + 2) for name in names}

    monkeypatch.setattr(importance, "call", call)


def chosen(page):
    """The places of the line and of the dot that stand out, and of how many."""
    return page.evaluate(
        """() => ["relation-line", "relation-dot"].map((name) => {
          const all = [...document.querySelectorAll(`.${name}`)];
          return [all.length, all.filter((each) => each.classList.contains("is-current")).length];
        })"""
    )


def test_a_deletion_among_ended_operations_is_noticed_on_return(open_page, ana):
    operations = compared(ana, 9)
    page = open_page(address(operations), WIDEST)
    page.get_by_test_id("relations").scroll_into_view_if_needed()
    note = page.locator("[data-importance-note]")
    note.scroll_into_view_if_needed()
    expect(note).to_contain_text("By 9 completed operations.")
    settled(page)
    deletion.delete(operation_id=operations[0].pk, actor=ana)
    come_back(page, "tab")
    expect(page.get_by_test_id("deleted")).to_contain_text(f"Deleted: {operations[0].name}")
    expect(page.locator(".relation-line")).to_have_count(8)
    expect(note).to_contain_text("By 8 completed operations.")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_compared_operations_are_drawn_over_fields_and_values(open_page, ana):
    operations = compared(ana, 9)
    page = open_page(address(operations), WIDEST)
    section = page.get_by_test_id("relations")
    section.scroll_into_view_if_needed()
    assert chosen(page) == [[9, 0], [9, 0]]
    expect(page.get_by_test_id("importance").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_test_id("importance")).to_contain_text("learning_rate75%")
    page.get_by_test_id("parallel").focus()
    page.keyboard.press("ArrowRight")
    readout = page.get_by_test_id("relation-readout")
    expect(readout).to_contain_text(operations[0].name)
    expect(readout).to_contain_text("val_loss (best) 0.01667")
    assert chosen(page) == [[9, 1], [9, 1]]
    page.keyboard.press("End")
    expect(readout).to_contain_text(operations[8].name)
    page.keyboard.press("Escape")
    expect(readout).to_be_empty()
    page.get_by_test_id("scatter-up").select_option("train_loss best")
    page.get_by_test_id("scatter-tint").select_option("seed")
    page.get_by_test_id("relation-target").select_option("val_loss final")
    expect(page).to_have_url(re.compile(r"target=val_loss\+final"))
    page.reload()
    expect(page.get_by_test_id("scatter-up")).to_have_value("train_loss best")
    page.get_by_test_id("relation-table").locator("summary").click()
    cells = page.get_by_test_id("relation-table").locator("tbody tr").first.locator("td, th")
    expect(cells.first).to_have_text(operations[0].name)
    expect(page.get_by_test_id("relation-table").locator("tbody tr")).to_have_count(9)
    page.get_by_test_id("parallel-axes").locator("summary").click()
    page.get_by_label("seed", exact=True).uncheck()
    expect(page.locator(".relation-parallel .relation-name")).to_have_count(2)
    page.keyboard.press("Escape")
    page.get_by_test_id("scatter").locator("svg").hover(position={"x": 100, "y": 100})
    for name, viewport in (("wide", WIDEST), ("narrow", NARROW)):
        page.set_viewport_size(viewport)
        assert overflow(page) <= 0
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            photograph(page, f"relations-{name}-{scheme}")
    page.get_by_test_id("parallel").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/operations/{operations[0].pk}/"))


def test_a_running_study_keeps_what_is_chosen_while_it_is_updated(open_page, ana, prices):
    study = made(ana, prices, GRID)
    completed(study)
    running = study.operations.order_by("pk").last()
    running.row.update(state="PENDING", result=None)
    page = open_page(study.get_absolute_url())
    expect(page.locator(".relation-line")).to_have_count(8)
    page.get_by_test_id("scatter-across").select_option("cash")
    page.get_by_test_id("scatter-across").focus()
    running.row.update(state="COMPLETED", result={"sharpe": 1.0, "trades": 1})
    page.evaluate("window.kept = document.getElementById('relations')")
    expect(page.get_by_test_id("study-counts")).to_contain_text("Completed 8")
    assert page.evaluate("window.kept === document.getElementById('relations')")
    expect(page.get_by_test_id("scatter-across")).to_have_value("cash")


def test_values_of_a_study_that_was_resumed_elsewhere_are_followed(open_page, ana, prices):
    study = made(ana, prices, GRID)
    completed(study)
    page = open_page(study.get_absolute_url())
    relations = page.get_by_test_id("relations")
    expect(relations).to_contain_text("(best)")
    settled(page)
    again = study.operations.order_by("pk").last()
    again.row.update(state="PENDING", result=None)
    come_back(page, "tab")
    expect(page.get_by_test_id("study-counts")).to_contain_text("Completed 7")
    again.row.update(state="COMPLETED", result={"sharpe": 99.0, "trades": 1})
    expect(relations).to_contain_text("99 (best)")


@pytest.mark.parametrize("viewport", [WIDEST, NARROW], ids=["wide", "narrow"])
def test_a_study_is_drawn_at_any_width(open_page, ana, prices, viewport):
    study = made(ana, prices, GRID)
    completed(study)
    page = open_page(study.get_absolute_url(), viewport)
    expect(page.locator(".relation-line")).to_have_count(8)
    expect(page.get_by_test_id("relation-target")).to_have_value("sharpe result")
    page.locator(".relation-importance").scroll_into_view_if_needed()
    expect(page.get_by_test_id("importance").locator("tbody tr")).to_have_count(3)
    assert overflow(page) <= 0
    photograph(page, f"relations-study-{viewport['width']}")


def outside(page):
    """How many lines and dots recede."""
    return page.evaluate(
        """() => [".relation-line.is-outside", ".relation-dot.is-outside"].map(
          (name) => document.querySelectorAll(name).length)"""
    )


def test_a_range_that_is_marked_on_an_axis_leaves_the_others_behind(open_page, ana):
    operations = compared(ana, 9)
    page = open_page(address(operations), WIDEST)
    plot, readout = page.get_by_test_id("parallel"), page.get_by_test_id("relation-readout")
    plot.scroll_into_view_if_needed()
    assert outside(page) == [0, 0]
    axis = plot.locator(".relation-axis").last.bounding_box()
    x, bottom = axis["x"] + axis["width"] / 2, axis["y"] + axis["height"]
    page.mouse.move(x, bottom + 2)
    page.mouse.down()
    page.mouse.move(x, bottom - axis["height"] / 4)
    page.mouse.up()
    page.mouse.move(x, axis["y"] - 60)
    expect(page).to_have_url(re.compile("within=val_loss"))
    expect(page.locator(".relation-range")).to_have_count(1)
    num_outside = outside(page)[0]
    assert 0 < num_outside < 9 and outside(page) == [num_outside, num_outside]
    page.reload()
    expect(readout).to_have_text(f"{9 - num_outside} of 9 within the marked ranges")
    assert outside(page) == [num_outside, num_outside]
    page.get_by_test_id("clear-ranges").click()
    expect(page.get_by_test_id("clear-ranges")).to_be_hidden()
    assert outside(page) == [0, 0] and "within" not in page.url

    expect(plot).to_be_focused()
    for key in ("ArrowRight", "ArrowRight", "<", "Escape"):
        page.keyboard.press(key)
    expect(readout).to_have_text("2 of 9 within the marked ranges")  # a loss: the best is lowest
    page.keyboard.press("End")
    expect(readout).to_contain_text(operations[1].name)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(readout).to_be_empty()
    assert outside(page) == [0, 0]
