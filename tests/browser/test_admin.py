"""The admin as axe judges it, in both themes; states and progress as on the pages."""

import io

import pytest
from playwright.sync_api import expect

from apps.datasets import services as datasets
from apps.notifications.models import Delivery, Rule
from apps.operations.models import Attempt
from apps.operations.studies import services as studies
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.browser.axe import CONTRAST, violations
from tests.browser.conftest import NARROW, WIDE
from tests.pages import making
from tests.pages.test_studies import BARS, GRID

OUTCOMES = {True: Attempt.Outcome.FAILED, False: Attempt.Outcome.RUNNING}


@pytest.fixture
def addresses(ana):
    """The pages of the admin by name, with something to show on each."""
    ana.is_staff = ana.is_superuser = True
    ana.save()
    made = {state: making.operation(ana, state) for state in
            ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")}  # fmt: skip
    for each in made.values():
        making.attempt(each, outcome=OUTCOMES[each.state == "FAILED"])
    making.curve(made["COMPLETED"])
    making.log(made["COMPLETED"], "epoch 1: val_loss 0.5\n")
    saved(made["COMPLETED"])
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=2, num_running=1)
    prices = datasets.add_table(io.BytesIO(BARS), filename="bars.csv", owner=ana).pk
    config = {"recipe": "sma_crossover", "dataset": prices}
    studies.create(kind="backtest", config=config, design=GRID, owner=ana)
    rule = Rule.objects.create(name="chat", target="https://chat.example.org/")
    for status in Delivery.Status.values:
        Delivery.objects.create(rule=rule, what="TEST", body={}, status=status)
    lists = ("operations/operation", "operations/study", "operations/attempt", "operations/event",
             "operations/metricpoint", "operations/logchunk", "checkpoints/checkpoint",
             "datasets/dataset", "workers/worker", "notifications/rule", "notifications/delivery",
             "auth/user", "auth/group", "access/token", "access/auditentry")  # fmt: skip
    of = made["COMPLETED"].pk.replace("_", "_5F")
    return {
        "index": "/admin/",
        "operation": f"/admin/operations/operation/{of}/change/",
        "rule": f"/admin/notifications/rule/{rule.pk}/change/",
        "person": f"/admin/auth/user/{ana.pk}/change/",
        **{name: f"/admin/{name}/" for name in lists},
    }


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_axe_finds_nothing_in_the_admin(open_page, addresses, every):
    page, found = open_page("/admin/", WIDE), {}
    for name, path in [*addresses.items()][::every]:
        found |= both_themes(page, name, path)
    page.set_viewport_size(NARROW)
    for name in ("index", "operation", "operations/operation")[::every]:
        found |= both_themes(page, f"{name}, narrow", addresses[name])
    assert not any(found.values()), "\n".join(f"{name}: {said}" for name, said in found.items())


def both_themes(page, name, path):
    page.emulate_media(reduced_motion="reduce")
    page.goto(path)
    found = {name: violations(page)}
    page.evaluate("document.documentElement.classList.add('dark')")
    return found | {f"{name}, dark": violations(page, rules=CONTRAST)}


def test_the_admin_draws_states_and_progress_as_the_pages_do(open_page, addresses):
    page = open_page("/admin/operations/operation/")
    row = page.locator("tr", has_text="a running one")
    expect(row.get_by_test_id("state")).to_have_text("Running")
    expect(row.locator("progress")).to_have_attribute("value", "40.00")
    colours = {}
    for path in ("/admin/operations/operation/", "/"):
        page.goto(path)
        state = page.locator("tr", has_text="a running one").get_by_test_id("state")
        colours[path] = state.evaluate("(each) => getComputedStyle(each).backgroundColor")
    assert len(set(colours.values())) == 1, colours
