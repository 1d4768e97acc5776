"""Forms, sign-in and the menu, in Chromium."""

import re

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from apps.operations.models import Operation
from apps.workers.models import Worker
from tests.api import forks
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from tests.browser.conftest import NARROW
from tests.pages import making

CSV = "size,rooms,price\n" + "".join(f"{n},{n % 5},{n * 1000}\n" for n in range(1, 40))


def test_signing_in_and_out(open_page, ana, live_server):
    ana.set_password("correct horse")
    ana.save()
    page = open_page("/workers/")
    page.context.clear_cookies()
    page.goto("/workers/")
    expect(page).to_have_url(re.compile(r"/login/\?next=/workers/$"))
    page.get_by_label("Username").fill("ana")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_test_id("sign-in").click()
    expect(page).to_have_url(re.compile("/workers/$"))
    page.get_by_test_id("sign-out").click()
    expect(page).to_have_url(re.compile("/login/$"))


def test_signing_out_while_the_page_polls_ends_on_the_plain_login_page(open_page, ana):
    page, held = open_page("/"), []
    making.operation(ana, "RUNNING")
    page.route("**/logout/", lambda route: held.append(route))
    page.goto("/", wait_until="load")
    with page.expect_request("**/logout/"):
        page.get_by_test_id("sign-out").click(no_wait_after=True)
    with page.expect_response(lambda response: response.status == 401):
        Session.objects.all().delete()
    held[0].continue_()
    expect(page).to_have_url(re.compile("/login/$"))


def test_an_operation_is_submitted(open_page, ana):
    page = open_page("/operations/new?recipe=digits")
    page.get_by_label("Epochs", exact=True).fill("3")
    page.locator("#f-name").fill("by hand")
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("operation-name")).to_have_text("by hand")
    expect(page.get_by_test_id("state")).to_have_text("Queued")
    expect(page.get_by_test_id("toast")).to_contain_text("Submitted “by hand”")
    assert Operation.objects.get().config["epochs"] == 3


def test_errors_stand_beside_their_fields_and_nothing_is_lost(open_page, ana):
    page = open_page("/operations/new?recipe=digits")
    page.get_by_label("Batch size").fill("77")
    epochs = page.get_by_label("Epochs", exact=True)
    epochs.fill("many")
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("form-errors")).to_contain_text("nothing was submitted")
    expect(page.get_by_test_id("field-error")).to_contain_text("got 'many'")
    expect(epochs).to_be_focused()
    expect(epochs).to_have_value("many")
    expect(page.get_by_label("Batch size")).to_have_value("77")
    epochs.fill("2")
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("state")).to_have_text("Queued")


@pytest.fixture
def spread_out(open_page):
    """The form of a federated operation, with its clients on several machines."""
    page = open_page("/operations/new?recipe=federated_digits")
    page.get_by_test_id("advanced").locator("summary").click()
    page.get_by_label("Placement").select_option("distributed")
    return page


def test_a_distributed_operation_is_submitted(spread_out):
    labels = spread_out.get_by_label("Labels", exact=True)
    expect(labels).to_have_attribute("placeholder", "*: client-{client}\n0: hospital-a")
    labels.fill("*: client-{client}\n0: hospital-a")
    spread_out.get_by_label("Round timeout").fill("3600")
    spread_out.get_by_test_id("submit").click()
    expect(spread_out.get_by_test_id("state")).to_have_text("Queued")
    spread_out.get_by_test_id("tab-config").click()
    shown = spread_out.locator("#pane-config")
    for text in ('"placement": "distributed"', '"*": "client-{client}"', '"0": "hospital-a"',
                 '"round_timeout": 3600.0'):  # fmt: skip
        expect(shown).to_contain_text(text)
    operation = Operation.objects.get()
    assert operation.config["labels"] == {"*": "client-{client}", "0": "hospital-a"}
    spread_out.goto(f"/operations/new?from={operation.pk}")
    expect(labels).to_have_value("*: client-{client}\n0: hospital-a")


REFUSED = {
    "labels of nobody": (
        {"labels": "hospital-a"}, ["got 'hospital-a'", "pairs of a name and a value, such as"]
    ),
    "a client that is none": (
        {"labels": "ward: a"}, ["got the client 'ward'", "allowed: numbers from 0, and *"]
    ),
    "a client there is not": ({"labels": "99: a"}, ["got the client 99", "allowed: 0 to 9"]),
    "a label that is none": ({"labels": "0: a b"}, ["got 'a b'", "letters"]),
    "no seconds": ({"round-timeout": "soon"}, ["got 'soon'", "valid number"]),
    "less than no seconds": ({"round-timeout": "-3"}, ["got -3.0", "greater than 0"]),
    "in one process": (
        {"labels": "0: a", "placement": "in_process"}, ["got {'0': 'a'}", "placement: distributed"]
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "said"), REFUSED.values(), ids=REFUSED)
def test_a_distributed_operation_that_cannot_be_is_refused_by_name(spread_out, typed, said):
    for name, text in typed.items():
        field = spread_out.locator(f"#f-{name}")
        field.select_option(text) if name == "placement" else field.fill(text)
    spread_out.get_by_test_id("submit").click()
    beside = spread_out.locator(f"#f-{next(iter(typed))}-error")
    for part in said:
        expect(beside).to_contain_text(part)
    expect(spread_out.locator(f"#f-{next(iter(typed))}")).to_have_value(next(iter(typed.values())))
    assert not Operation.objects.exists()


def test_a_table_is_uploaded_and_trained_on(open_page, ana, tmp_path):
    file = tmp_path / "flats.csv"
    file.write_text(CSV)
    page = open_page("/operations/new?recipe=digits")
    page.locator("#f-name").fill("prices")
    page.get_by_test_id("picker").locator("summary").click()
    page.get_by_text("Predicts a column of an uploaded table").click()
    page.get_by_test_id("upload").set_input_files(file)
    target = page.get_by_test_id("parameters.target")
    expect(target).to_contain_text("price (integer)")
    expect(page.get_by_test_id("dataset")).to_contain_text("flats (39 rows)")
    target.select_option("price")
    expect(page.locator("#f-name")).to_have_value("prices")
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("state")).to_have_text("Queued")
    assert Operation.objects.get().config["parameters"]["target"] == "price"


def test_a_recipe_is_found_and_chosen_by_keyboard(open_page):
    page = open_page("/operations/new?recipe=digits")
    page.get_by_label("Epochs", exact=True).fill("33")
    picker = page.get_by_test_id("picker")
    picker.locator("summary").press("Enter")
    search = page.get_by_test_id("recipe-search")
    expect(search).to_be_focused()
    search.fill("nothing like that")
    expect(picker.get_by_role("status")).to_have_text("No recipe matches.")
    search.fill("training u-net")
    expect(picker.locator(".recipe:visible")).to_have_count(1)
    search.press("Enter")
    expect(search).to_be_hidden()
    expect(picker.locator("summary")).to_contain_text("Segmentation")
    expect(page.get_by_test_id("carried")).to_contain_text("Kept: Epochs.")
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("33")


@pytest.fixture
def before_scripts(open_page):
    """Return a page, a function that opens a path without scripts, and one that lets them come."""
    page, held, is_held = open_page("/settings/"), [], True
    scripts = re.compile(r"/js/(?!early|theme|zone)|(htmx|bootstrap).*js")

    def go(path):
        page.route(scripts, lambda route: held.append(route) if is_held else route.continue_())
        page.goto(path, wait_until="commit")

    def release():
        nonlocal is_held
        is_held = False
        for each in held:
            each.continue_()

    return page, go, release


def test_a_recipe_chosen_before_the_scripts_have_arrived_is_shown(before_scripts):
    page, go, release = before_scripts
    go("/operations/new")
    page.get_by_test_id("recipe-price_direction").check(force=True)
    release()
    expect(page.get_by_test_id("upload")).to_be_attached()


def test_a_file_chosen_before_the_scripts_have_arrived_is_uploaded(before_scripts, tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text("length,kind\n1,rose\n2,lily\n")
    page, go, release = before_scripts
    go("/operations/new?recipe=price_direction")
    page.get_by_test_id("upload").set_input_files(path)
    release()
    expect(page.get_by_test_id("dataset")).not_to_have_value("")


def test_filters_chosen_and_typed_before_the_scripts_have_arrived_are_followed(before_scripts):
    page, go, release = before_scripts
    go("/")
    page.get_by_test_id("owner").select_option("me")
    page.get_by_test_id("search").fill("tag:day")
    release()
    expect(page).to_have_url(re.compile(r"\?owner=me&q=tag%3Aday$"))


def test_a_button_pressed_before_the_scripts_have_arrived_has_its_effect(before_scripts, ana):
    running = making.operation(ana, "RUNNING")
    page, go, release = before_scripts
    go(f"/operations/{running.pk}/")
    page.get_by_test_id("cancel").click()
    release()
    expect(page.get_by_test_id("confirm-cancel")).to_be_visible()


def test_a_menu_opened_twice_before_the_scripts_have_arrived_is_open(before_scripts):
    page, go, release = before_scripts
    page.set_viewport_size(NARROW)
    go("/")
    for _ in range(2):  # the second time since nothing was to be seen
        page.get_by_role("button", name="Menu").click()
    release()
    expect(page.get_by_test_id("sign-out")).to_be_visible()


def test_the_form_is_edited_as_yaml_and_back(open_page):
    page = open_page("/operations/new?recipe=digits")
    page.get_by_label("Epochs", exact=True).fill("33")
    page.get_by_test_id("show-yaml").click()
    file = page.get_by_test_id("yaml")
    expect(file).to_have_value(re.compile("epochs: 33"))
    file.fill(file.input_value().replace("recipe: digits", "recipe: cake"))
    page.get_by_test_id("show-form").click()
    expect(page.get_by_test_id("file-errors")).to_contain_text("Line 3: recipe: got 'cake'")
    file.fill(file.input_value().replace("recipe: cake", "recipe: segmentation"))
    page.get_by_test_id("show-form").click()
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("33")
    picker = page.get_by_test_id("picker")
    expect(picker.locator("summary")).to_contain_text("Segmentation")
    picker.locator("summary").click()
    expect(page.get_by_test_id("recipe-search")).to_be_focused()


def test_submit_stays_in_view_with_what_it_would_do(open_page, ana):
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=1)
    page = open_page("/operations/new?recipe=digits", NARROW)
    estimate = page.get_by_test_id("estimate")
    expect(estimate).to_contain_text("Can start now on w-1.")
    expect(page.get_by_test_id("submit")).to_be_in_viewport()
    page.locator("#f-queue").fill("a100")
    page.locator("#f-name").focus()
    expect(estimate).to_contain_text("No worker has the label a100")


def test_a_bad_upload_says_why(open_page, ana, tmp_path):
    file = tmp_path / "bad.csv"
    file.write_text("a,a\n1,2\n")
    page = open_page("/operations/new?recipe=tabular")
    page.get_by_test_id("upload").set_input_files(file)
    expect(page.locator("[data-upload-state]")).to_have_class(re.compile("text-danger"))
    expect(page.locator("[data-upload-state]")).to_contain_text("a")


def test_a_clone_opens_filled_in(open_page, ana):
    operation = making.operation(ana, "COMPLETED", name="first", tags=["night"])
    page = open_page(f"/operations/{operation.pk}/")
    page.get_by_test_id("submit-again").click()
    expect(page.locator("#f-name")).to_have_value("first")
    expect(page.locator("#f-tags")).to_have_value("night")
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("5")


def test_a_setting_is_brought_to_those_of_a_run_again_and_changed(open_page, ana):
    source = making.operation(ana, "COMPLETED", name="first")
    page = open_page(f"/operations/new?from={source.pk}")
    short = page.locator("[data-chosen-settings]")
    expect(short.locator('[data-field="epochs"]')).to_be_visible()
    expect(page.locator("#f-seed")).to_be_hidden()
    expect(page.locator("#f-name")).to_be_hidden()
    choice = page.get_by_test_id("other-setting")
    choice.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(choice).not_to_have_value("")
    expect(choice).to_be_focused()
    choice.select_option("seed")
    expect(page.locator("#f-seed")).to_be_hidden()
    choice.press("Enter")
    expect(page.locator("#f-seed")).to_be_focused()
    expect(choice.locator('option[value="seed"]')).to_have_count(0)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("many")
    choice.select_option("checkpoint.keep_last")
    page.get_by_test_id("show-setting").click()
    moved = short.locator('[data-field="checkpoint.keep_last"]')
    expect(moved.locator("label")).to_have_text("Checkpoint: keep last")
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("form-errors")).to_be_visible()
    expect(page.locator("#f-seed")).to_be_focused()
    expect(page.get_by_test_id("advanced").locator("#f-batch-size")).to_have_count(0)
    page.locator("#f-seed").fill("7")
    page.keyboard.press("Tab")
    expect(page.get_by_test_id("estimate")).to_contain_text("seed 0 → 7")
    page.get_by_test_id("advanced").locator("summary").press("Enter")
    expect(page.locator("#f-parameters-channels")).to_be_visible()
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile("/operations/op_"))
    assert Operation.objects.latest("created_at").config["seed"] == 7


def test_a_token_is_made_and_revoked(open_page, ana):
    page = open_page("/account/")
    page.get_by_label("Name").fill("laptop")
    page.get_by_test_id("create-token").click()
    secret = page.get_by_test_id("token-secret").input_value()
    assert len(secret) > 30
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the token").click()
    expect(page.get_by_role("button", name="Copy the token")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    page.get_by_test_id("revoke").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("toast")).to_contain_text("revoked")
    expect(page.get_by_test_id("token")).to_have_count(0)


def test_the_menu_opens_on_a_narrow_screen(open_page, ana):
    page = open_page("/", NARROW)
    link = page.locator("#menu").get_by_role("link", name="Datasets")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(link).to_be_visible()
    link.click()
    expect(page).to_have_url(re.compile("/datasets/$"))


def test_a_fork_under_changed_code_is_refused_until_it_is_accepted(open_page, ana, monkeypatch):
    begun = forks.begun(monkeypatch)
    source = making.operation(ana, "CANCELLED", name="the first")
    constant = source.config | {"scheduler": "none"}
    source.row.update(config=constant, config_given=constant)
    saved(source, environment=CHANGED)
    page = open_page(f"/operations/new?extend={source.pk}")
    expect(page.get_by_test_id("preview")).to_contain_text("not exact: these files of the recipe")
    expect(page.get_by_test_id("preview")).to_contain_text(CHANGED_FILE)
    page.get_by_test_id("submit").click()
    expect(page.get_by_test_id("form-errors")).to_contain_text(CHANGED_FILE)
    assert not begun
    page.get_by_test_id("accept-inexact").check()
    page.get_by_test_id("submit").click()
    expect(page).to_have_url(re.compile("/operations/op_training_"))
    assert len(begun) == 1
