"""Recorded episodes in Chromium: two side by side, played, stepped through, in any width."""

import json
import re

import pytest
from playwright.sync_api import expect

from apps.checkpoints.models import Checkpoint
from tests.api.test_comparisons import measured
from tests.browser.conftest import NARROW
from tests.browser.test_operation import COLOURED
from tests.pages import making
from tests.rl.cases import ADAPTIVE
from tests.rl.populations import CARTPOLE, GRID, job_of, of

HERE = "canvas => canvas.getAttribute('aria-label')"


def learned(config, steps):
    """Return the plain state and the result of a population after N steps."""
    job = job_of(config)
    while job.step < steps:
        job.advance()
    return (
        json.loads(json.dumps(each)) for each in (job.state_dict()["state"], dict(job.result()))
    )


def made(ana, config, *, is_finished, steps=20):
    state, result = learned(config, steps)
    fields = {"kind": "rl", "unit": "step", "result": result if is_finished else None}
    operation = making.operation(ana, "COMPLETED" if is_finished else "RUNNING", **fields)
    for step in (steps - 5, steps):
        Checkpoint.objects.create(
            id=f"{operation.pk}-{step}", operation=operation, attempt=1, type="periodic",
            step=step, state=state, artifacts_path=f"{operation.pk}/{step}", manifest=[],
            manifest_digest="0" * 64, state_size_bytes=1, artifacts_size_bytes=1,
        )  # fmt: skip
    return operation


@pytest.fixture
def town(ana):
    evaluation = {"every_steps": 4, "max_frames": 50}
    return made(ana, of(GRID, "dqn", 3, 40, evaluation=evaluation, **ADAPTIVE), is_finished=False)


def shown(page, side):
    return page.locator(f"[data-side={side}] [data-caption]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_episodes_are_drawn_side_by_side(open_page, town, scheme):
    page = open_page(f"/operations/{town.pk}/", scheme=scheme)
    for side in ("left", "right"):
        expect(shown(page, side)).to_contain_text("step 0 of")
        assert page.locator(f"[data-side={side}] canvas").evaluate(COLOURED) > 30
    left, right = (
        page.get_by_test_id(f"replay-{side}").input_value() for side in ("left", "right")
    )
    assert int(left) > int(right), "the newest beside the first"


def test_an_episode_can_be_stepped_through_and_played(open_page, town):
    page = open_page(f"/operations/{town.pk}/")
    expect(shown(page, "left")).to_contain_text("step 0 of")
    expect(page.locator(".heat-cells rect")).to_have_count(9)
    expect(page.locator(".stage-lines polyline")).to_have_count(3)
    expect(page.get_by_role("row", name="Bed")).to_be_visible()
    page.get_by_test_id("replay-on").click()
    expect(shown(page, "left")).to_contain_text("step 1 of")
    before = page.locator("[data-side=left] canvas").evaluate("canvas => canvas.toDataURL()")
    page.get_by_test_id("replay-at").fill("3")
    expect(shown(page, "left")).to_contain_text("step 3 of")
    assert page.locator("[data-side=left] canvas").evaluate("c => c.toDataURL()") != before
    page.get_by_test_id("replay-play").click()
    expect(page.get_by_test_id("replay-play")).to_have_text("Pause")
    expect(shown(page, "left")).to_contain_text("time is up")
    expect(page.get_by_test_id("replay-play")).to_have_text("Play")


def test_another_checkpoint_can_be_chosen_and_stays_chosen(open_page, town):
    page = open_page(f"/operations/{town.pk}/")
    expect(shown(page, "right")).to_contain_text("step 0 of")
    options = (
        page.get_by_test_id("replay-right")
        .locator("option")
        .evaluate_all("options => options.map((option) => option.value)")
    )
    page.get_by_test_id("replay-right").select_option(options[0])
    page.evaluate("document.querySelector('[data-part=agents]').dataset.digest = 'older'")
    expect(page.locator("[data-part=agents]")).not_to_have_attribute("data-digest", "older")
    expect(page.get_by_test_id("replay-right")).to_have_value(options[0])


def test_a_cart_with_its_pole_is_drawn_of_the_result(open_page, ana):
    finished = made(ana, of(CARTPOLE, "dqn", 1, 20), is_finished=True)
    page = open_page(f"/operations/{finished.pk}/")
    expect(shown(page, "left")).to_contain_text("step 0 of")
    assert page.locator("[data-side=left] canvas").evaluate(COLOURED) > 30
    assert page.locator(".heat-cells").count() == 0


def test_nothing_is_wider_than_a_narrow_page(open_page, town):
    page = open_page(f"/operations/{town.pk}/", viewport=NARROW)
    expect(shown(page, "left")).to_contain_text("step 0 of")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_return_curve_marks_the_two_shown_episodes(open_page, ana, town):
    making.attempt(town)
    measured(town, "evaluation_return", {4: -8.0, 8: -2.0, 20: 3.0})
    page = open_page(f"/operations/{town.pk}/")
    curve = page.get_by_test_id("return-curve").locator("svg")
    line = curve.locator(".return-line")
    expect(line).to_have_attribute("points", re.compile(r"^\S+ \S+ \S+$"))
    left, right = (page.get_by_test_id(f"replay-{side}") for side in ("left", "right"))
    place = "dot => Number(dot.getAttribute('cx'))"
    before = curve.locator(".is-left").evaluate(place)
    assert before > curve.locator(".is-right").evaluate(place), "the newest is on the left side"
    left.select_option(right.input_value())
    both = re.compile("left: .* at step 4; right: .* at step 4")
    expect(curve).to_have_attribute("aria-label", both)
    assert curve.locator(".is-left").evaluate(place) < before
    box, card = line.bounding_box(), page.get_by_test_id("replay").bounding_box()
    assert box["x"] >= card["x"] and box["x"] + box["width"] <= card["x"] + card["width"]
