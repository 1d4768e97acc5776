"""What people come for, from beginning to end: written once, done by mouse and by keyboard.

A journey names what it touches by the roles, labels and texts that people see.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from apps.datasets import services as datasets
from apps.datasets.models import Dataset
from apps.notifications.models import Rule
from apps.operations.models import Operation, SavedView, Study
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.browser.hands import Hands
from tests.browser.trained import trained
from tests.pages import making
from tests.pages.test_studies import BARS

PASSWORD = "correct horse"
CHANGES = re.compile(
    r"^(Cancel|Kill|Delete|Resume|Edit|Run again|Fork|Train longer|Warm start|Favourite|Acknowledge"
    r"|New operation|Drain|Undrain|Upload|Create rule|Preview cleanup|Pin|Unpin|Verify|Continue)\b"
)
READ = ("Studies", "Datasets", "Checkpoints", "Workers", "Notifications", "Settings")


@dataclass
class Person:
    """Somebody in front of a page."""

    user: User
    page: Page
    hands: Hands
    files: Path  # a directory of their own

    @property
    def main(self) -> Locator:
        return self.page.get_by_role("main")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def link(self, name: str | re.Pattern[str]) -> Locator:
        return self.main.get_by_role("link", name=name, exact=True)

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.main.get_by_role("button", name=name, exact=True)

    def field(self, label: str) -> Locator:
        return self.main.get_by_label(label, exact=True)

    def asked(self, label: str) -> Locator:
        """Return a field of the dialog."""
        return self.dialog.get_by_label(label, exact=True)

    def confirm(self, verb: str) -> None:
        self.hands.press(self.dialog.get_by_role("button", name=re.compile(f"^{verb}")))

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.main.get_by_text(text, exact=True).first).to_be_visible()

    def is_told(self, text: str) -> None:
        expect(self.page.get_by_role("status").filter(has_text=text)).to_be_visible()

    def is_on(self, heading: str) -> None:
        expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    def row(self, text: str) -> Locator:
        return self.main.get_by_role("row").filter(has_text=text)

    def has(self, state: str, **fields: object) -> Operation:
        """Return an operation of this person's in that state."""
        return making.operation(self.user, state, **fields)

    def opens(self, name: str) -> None:
        """Go from the list to an operation."""
        self.hands.press(self.link(name))
        self.is_on(name)

    def comes_back(self) -> None:
        self.hands.go("Operations", "/")

    def is_offered_no_change(self) -> None:
        for role in ("button", "link"):
            expect(self.main.get_by_role(role, name=CHANGES)).to_have_count(0)


@dataclass(frozen=True)
class Journey:
    name: str
    roles: tuple[str, ...]
    take: Callable[[Person], None]


JOURNEYS: dict[str, Journey] = {}


def journey(*roles: str) -> Callable[[Callable[[Person], None]], Callable[[Person], None]]:
    """Register a function as a journey that people of these roles take, from the list on."""

    def register(take: Callable[[Person], None]) -> Callable[[Person], None]:
        JOURNEYS[take.__name__] = Journey(take.__name__, roles, take)
        return take

    return register


@journey("viewer", "operator", "admin")
def signs_out_and_in(person: Person) -> None:
    hands, page = person.hands, person.page
    person.user.set_password(PASSWORD)
    person.user.save(update_fields=["password"])
    page.context.clear_cookies()
    page.goto("/workers/")
    hands.write(page.get_by_label("Username"), person.user.username)
    hands.write(page.get_by_label("Password"), PASSWORD)
    hands.press(page.get_by_role("button", name="Sign in"))
    person.is_on("Workers")
    hands.go(person.user.username, "/account/")
    hands.sign_out()
    page.go_back()
    expect(page).to_have_url(re.compile("/login/"))


@journey("viewer")
def reads_everything_and_is_offered_no_change(person: Person) -> None:
    ana = making.person("alma", "operator")
    for state in ("RUNNING", "FAILED"):
        made = making.operation(ana, state, name=f"{state} of hers", reason="STALLED")
        making.attempt(made)
        making.curve(made)
        making.log(made, "first line\n")
    saved(made)
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=2)
    datasets.add_table(BytesIO(BARS), filename="bars.csv", owner=ana)
    person.page.reload()
    person.is_offered_no_change()
    for name in ("RUNNING of hers", "FAILED of hers"):
        person.opens(name)
        person.is_offered_no_change()
        for tab in ("Checkpoints", "Config", "Files"):
            person.hands.open_tab(tab)
            person.is_offered_no_change()
        person.comes_back()
    for name in READ:
        person.hands.go(name, f"/{name.lower()}/")
        person.is_offered_no_change()


@journey("operator")
def is_offered_no_change_of_what_others_own(person: Person) -> None:
    other = making.operation(making.person("omar", "operator"), "RUNNING", name="his")
    saved(other)
    person.page.reload()
    person.opens("his")
    for name in ("Cancel…", "Kill…", "Delete…", "Edit…", "Favourite", "Pin", "Verify"):
        expect(person.main.get_by_role("button", name=name)).to_have_count(0)
        expect(person.link(name)).to_have_count(0)
    expect(person.link("Run again with…")).to_be_visible()


@journey("viewer", "operator")
def finds_sorts_and_saves_a_view(person: Person) -> None:
    owner = making.person("alma", "operator")
    for name, tags in (("beta", ["night"]), ("alpha", ["night"]), ("gamma", [])):
        making.operation(owner, "COMPLETED", name=name, tags=tags, metrics={"val_loss": 0.5})
    person.page.reload()
    names = person.main.get_by_role("link", name=re.compile("^(alpha|beta|gamma)$"))
    person.hands.write(person.main.get_by_label("Query"), "tag:night")
    expect(names).to_have_text(["alpha", "beta"])
    columns = person.main.get_by_label("Columns to add, or with a minus sign to remove")
    person.hands.write(columns, "epochs -progress")
    person.page.keyboard.press("Enter")
    expect(person.main.get_by_role("progressbar")).to_have_count(0)
    sort = person.main.get_by_role("columnheader", name="epochs")
    if sort.is_visible():  # cards have no heads
        person.hands.press(sort.get_by_role("link"))
        expect(person.page).to_have_url(re.compile("sort=epochs"))
    person.hands.press(person.link("Save this view…"))
    person.hands.write(person.asked("Name"), "at night")
    person.confirm("Save")
    view = person.main.get_by_role("navigation", name="Saved views").get_by_role("link")
    expect(view.first).to_have_text("at night")
    assert SavedView.objects.get().columns == ["epochs", "-progress"]
    person.comes_back()
    expect(names).to_have_count(3)
    person.hands.press(view.first)
    expect(names).to_have_count(2)
    expect(person.main.get_by_role("progressbar")).to_have_count(0)


@journey("operator", "admin")
def submits_by_the_form(person: Person) -> None:
    hands = person.hands
    hands.press(person.main.get_by_role("link", name=re.compile("^New operation")))
    hands.write(person.field("Search recipes"), "handwritten training")
    hands.press(person.main.get_by_role("radio", name="Handwritten digits Classifies 1,797"))
    hands.write(person.field("Epochs"), "many")
    hands.write(person.main.get_by_role("textbox", name="Name optional"), "by hand")
    hands.press(person.button("Submit"))
    expect(person.main.get_by_role("alert")).to_contain_text("nothing was submitted")
    hands.write(person.field("Epochs"), "3")
    hands.press(person.button("Submit"))
    person.is_on("by hand")
    person.sees("Queued")
    made = Operation.objects.get()
    assert (made.name, made.config["epochs"], made.owner) == ("by hand", 3, person.user)


@journey("operator")
def submits_by_yaml(person: Person) -> None:
    person.page.goto("/operations/new?recipe=digits")
    hands = person.hands
    hands.press(person.button("YAML"))
    file = person.main.get_by_role("textbox", name=re.compile("^File for trainops run"))
    hands.write(file, "kind: training\nname: from a file\nconfig:\n  recipe: digits\nepochs: 4")
    hands.press(person.button("Submit"))
    expect(person.main.get_by_role("alert")).to_contain_text("Line 5")
    hands.write(file, "kind: training\nname: from a file\nconfig: {recipe: digits, epochs: 4}")
    hands.press(person.button("Submit"))
    person.is_on("from a file")
    assert Operation.objects.get().config["epochs"] == 4


@journey("operator", "admin")
def follows_cancels_and_resumes(person: Person) -> None:
    running = person.has("RUNNING", name="long")
    making.attempt(running)
    making.curve(running)
    person.page.reload()
    person.opens("long")
    expect(person.main.get_by_role("tabpanel", name="Log")).to_contain_text("No output yet.")
    making.log(running, "the first words\n")
    expect(person.main.get_by_role("log")).to_contain_text("the first words")
    expect(person.main.get_by_text("No output yet.")).to_be_hidden()
    running.row.update(step=45, place="5 of 5 epochs")
    person.sees("90 %")
    person.hands.press(person.link("Cancel…"))
    expect(person.dialog).to_contain_text("will save a checkpoint")
    person.confirm("Cancel")
    person.sees("Cancelling")
    saved(running, step=45)
    running.row.update(state="CANCELLED", lease_expires_at=None, stop_requested="")
    person.sees("Cancelled")
    person.hands.press(person.link("Resume…"))
    expect(person.dialog.get_by_role("radio", name=re.compile("latest healthy"))).to_be_checked()
    person.confirm("Resume")
    person.is_told("resumed from")
    person.sees("Resuming")


@journey("operator", "admin")
def kills_and_deletes(person: Person) -> None:
    running = person.has("RUNNING", name="wrong")
    person.page.reload()
    person.opens("wrong")
    person.hands.press(person.link("Kill…"))
    person.confirm("Kill")
    person.is_told("Killing")
    running.row.update(state="CANCELLED", lease_expires_at=None, finished_at=timezone.now())
    person.hands.press(person.link("Delete…"))
    person.confirm("Delete")
    person.is_told("Deleted “wrong”")
    person.is_on("Operations")
    assert not Operation.objects.exists()


def _ended(person: Person) -> Operation:
    """Return a saved operation whose length may change."""
    made = person.has("COMPLETED", name="source")
    constant = made.config | {"scheduler": "none"}
    made.row.update(config=constant, config_given=constant)
    made.refresh_from_db()
    trained(made)
    person.page.reload()
    person.opens("source")
    return made


def _submits_a_copy(person: Person, source: Operation, **differs: object) -> None:
    person.hands.press(person.button("Submit"))
    person.sees("Queued")
    made = Operation.objects.exclude(pk=source.pk).get()
    assert {name: made.config[name] for name in differs} == differs


@journey("operator")
def forks_with_a_preview(person: Person) -> None:
    source = _ended(person)
    person.hands.press(person.link("Fork"))
    person.hands.write(person.field("Epochs"), "9")
    person.hands.press(person.button("Preview"))
    expect(person.page.get_by_role("heading", name="What will happen")).to_be_visible()
    expect(person.row("epochs")).to_contain_text("9")
    _submits_a_copy(person, source, epochs=9)


@journey("operator")
def runs_again_with_another_value(person: Person) -> None:
    source = _ended(person)
    person.hands.press(person.link("Run again with…"))
    person.hands.write(person.field("Epochs"), "8")
    person.page.keyboard.press("Tab")
    expect(person.main.get_by_role("status").last).to_contain_text("epochs 5 → 8")
    _submits_a_copy(person, source, epochs=8)


@journey("operator")
def trains_longer_after_the_schedules_answer(person: Person) -> None:
    source = _ended(person)
    person.hands.press(person.link("Train longer"))
    expect(person.page.get_by_role("heading", name="What will happen")).to_be_visible()
    expect(person.field("Epochs")).to_have_value("10")
    _submits_a_copy(person, source, epochs=10)


@journey("operator")
def starts_warm_with_a_preview(person: Person) -> None:
    source = _ended(person)
    person.hands.press(person.link("Warm start"))
    person.hands.write(person.field("Epochs"), "7")
    person.hands.press(person.button("Preview"))
    expect(person.page.get_by_role("heading", name="What will happen")).to_be_visible()
    _submits_a_copy(person, source, epochs=7)


@journey("viewer", "operator")
def compares_several(person: Person) -> None:
    owner = making.person("alma", "operator")
    for name in ("one", "two", "three"):
        made = making.operation(owner, "COMPLETED", name=name)
        making.attempt(made)
        making.curve(made)
    person.page.reload()
    for name in ("one", "two", "three"):
        person.hands.check(person.main.get_by_role("checkbox", name=f"Select {name}"))
    person.hands.press(person.button("Compare"))
    person.is_on("Compare 3 operations")
    person.hands.press(person.link("Use two as the baseline"))
    expect(person.link("Use three as the baseline")).to_be_visible()
    expect(person.link("Use two as the baseline")).to_have_count(0)
    person.hands.press(person.link("Remove one"))
    person.is_on("Compare 2 operations")


@journey("operator")
def searches_by_a_study_continues_and_stops_it(person: Person) -> None:
    prices = datasets.add_table(BytesIO(BARS), filename="bars.csv", owner=person.user).pk
    person.page.goto(f"/operations/new?recipe=sma_crossover&dataset={prices}")
    hands = person.hands
    hands.press(person.main.get_by_text("Try several values: a study"))
    hands.choose(person.field("Field").first, "Fast")
    hands.write(person.field("Values").first, "2..9")
    hands.choose(person.field("Sampler"), "TPE: by results")
    hands.write(person.field("Number of trials (not grid)"), "6")
    hands.write(person.field("Active trials at a time"), "2")
    hands.press(person.button("Submit"))
    expect(person.page).to_have_url(re.compile("/studies/st_"))
    hands.write(person.field("Continue with more trials"), "4")
    result = {"sharpe": 1.0, "return": 0.1, "trades": 7}
    Study.objects.get().operations.first().row.update(state="COMPLETED", result=result)
    person.sees("Completed")
    expect(person.field("Continue with more trials")).to_have_value("4")  # typed meanwhile
    hands.press(person.button("Continue"))
    expect(person.main).to_contain_text(re.compile("of (9|10) operations"))  # one may be there
    hands.press(person.button("Cancel…"))
    person.confirm("Cancel")
    person.is_told("Cancelling")
    states = set(Study.objects.get().operations.values_list("state", flat=True))
    assert states == {"COMPLETED", "CANCELLED"}


@journey("operator")
def uploads_a_dataset_and_trains_on_it(person: Person) -> None:
    table = person.files / "flats.csv"
    table.write_text("size,price\n" + "".join(f"{n},{n * 1000}\n" for n in range(1, 40)))
    hands = person.hands
    hands.go("Datasets", "/datasets/")
    hands.attach(person.field("CSV, Parquet, NPZ or text file"), table)
    hands.press(person.button("Upload"))
    person.is_on("flats")
    hands.press(person.link("Train on it"))
    hands.choose(person.main.get_by_label("Target"), "price (integer)")
    hands.press(person.button("Submit"))
    person.sees("Queued")
    config = Operation.objects.get().config
    assert config["parameters"]["dataset"] == Dataset.objects.get().pk
    assert config["parameters"]["target"] == "price"


@journey("viewer", "operator")
def searches_a_log_and_downloads_it(person: Person) -> None:
    done = making.operation(making.person("alma", "operator"), "COMPLETED", name="wrote much")
    making.attempt(done)
    making.log(done, "".join(f"line {number}\n" for number in range(300)))
    person.page.reload()
    person.opens("wrote much")
    log = person.main.get_by_role("log")
    expect(log).to_contain_text("line 299")
    person.hands.write(person.field("Text of the line"), "LINE 250")
    person.is_told("1 line")
    expect(log).not_to_contain_text("line 299")
    with person.page.expect_download() as download:
        person.hands.press(person.link("Download"))
    assert "line 17\n" in download.value.path().read_text()


@journey("operator", "admin")
def creates_a_notification_rule_and_tests_it(person: Person) -> None:
    hands = person.hands
    hands.go("Notifications", "/notifications/")
    hands.write(person.field("Name"), "chat")
    hands.write(person.field("Target"), "not an address")
    hands.press(person.button("Create rule"))
    expect(person.main.get_by_text("got 'not an address'; allowed: http://")).to_be_visible()
    hands.write(person.field("Target"), "https://hooks.example.org/a")
    hands.press(person.button("Create rule"))
    person.is_on("chat")
    hands.press(person.button("Send a test"))
    expect(person.row("TEST")).to_be_visible()
    hands.go("Notifications", "/notifications/")
    hands.press(person.row("hooks.example.org").get_by_role("button", name="Delete…"))
    person.confirm("Delete")
    expect(person.main.get_by_text("No rules yet.")).to_be_visible()
    assert not Rule.objects.exists()


@journey("viewer", "operator", "admin")
def creates_and_revokes_a_token(person: Person) -> None:
    hands = person.hands
    hands.go(person.user.username, "/account/")
    hands.write(person.field("Name"), "laptop")
    hands.choose(person.field("Scope"), "Reads for its owner")
    hands.press(person.button("Create token"))
    assert len(person.field("The new token").input_value()) > 30
    hands.press(person.button("Revoke…"))
    person.confirm("Revoke")
    expect(person.row("laptop")).to_have_count(0)


@journey("admin")
def drains_a_worker_and_lets_it_work_again(person: Person) -> None:
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=2)
    old = timezone.now() - timedelta(hours=1)
    Worker.objects.create(worker_id="w-2", heartbeat_at=old)
    person.hands.go("Workers", "/workers/")
    person.hands.press(person.row("w-1").get_by_role("button", name="Drain…"))
    person.confirm("Drain")
    person.is_told("Draining w-1")
    person.hands.press(person.row("w-1").get_by_role("button", name="Undrain"))
    person.is_told("w-1 accepts work again")
    expect(person.row("w-1").get_by_role("button", name="Drain…")).to_be_visible()


@journey("operator", "admin")
def gathers_operations_in_a_project(person: Person) -> None:
    for name in ("one", "two", "three"):
        person.has("COMPLETED", name=name)
    person.page.reload()
    for name in ("one", "two"):
        person.hands.check(person.main.get_by_role("checkbox", name=f"Select {name}"))
    person.hands.press(person.button("Edit…"))
    person.hands.write(person.asked("Project"), "lungs")
    person.confirm("Edit 2")
    person.is_told("Edited 2 operations")
    person.opens("two")
    person.hands.press(person.link("lungs"))
    names = person.main.get_by_role("link", name=re.compile("^(one|two|three)$"))
    expect(names).to_have_text(["two", "one"])


@journey("admin")
def resumes_several_in_the_admin(person: Person) -> None:
    owner = making.person("alma", "operator")
    for name in ("first", "second"):
        saved(making.operation(owner, "FAILED", name=name))
    making.operation(owner, "FAILED", name="third")  # has no checkpoint
    person.page.reload()
    person.hands.go("Admin", "/admin/")
    person.page.goto("/admin/operations/operation/")
    for name in ("first", "second", "third"):
        person.hands.check(person.row(name).get_by_role("checkbox"))
    person.hands.choose(person.page.get_by_label("Select action to run"), "Resume…")
    person.hands.press(person.page.get_by_role("button", name="Run"))
    expect(person.main).to_contain_text("it has no checkpoint to resume from")
    person.hands.press(person.button("Resume"))
    expect(person.page.get_by_text("Resume: 2 of 2 done.")).to_be_visible()
    assert Operation.objects.filter(state="RESUMING").count() == 2


@journey("admin")
def resumes_and_deletes_what_others_submitted(person: Person) -> None:
    owner = making.person("alma", "operator")
    saved(making.operation(owner, "FAILED", name="broke", reason="STALLED"))
    done = making.operation(owner, "COMPLETED", name="done")
    person.page.reload()
    person.opens("broke")
    person.hands.press(person.link("Resume…"))
    person.confirm("Resume")
    person.sees("Resuming")
    person.comes_back()
    person.opens("done")
    person.hands.press(person.link("Delete…"))
    person.confirm("Delete")
    person.is_told("Deleted “done”")
    assert not Operation.objects.filter(pk=done.pk).exists()
