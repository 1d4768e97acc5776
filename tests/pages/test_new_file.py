"""The YAML of a new operation: the form as a file for `run`, and back, by one validator."""

import html

import pytest

from apps.operations.models import Operation, Study
from trainops.cli import submission
from trainops.submission_file import STUDY_FIELDS

pytestmark = pytest.mark.usefixtures("in_process")

PATHS = ("new", "new/editor", "new/estimate")
FILE = """\
kind: training
name: typed
tags: [a, b]
config:
  recipe: digits
  epochs: 7
  parameters:
    channels: 8
"""


def entered(page, recipe="digits", **typed):
    """Return the form of a recipe as a browser sends it, with some fields edited."""
    fields = page.get(f"/operations/new?recipe={recipe}").context["form"].fields
    shown = {f"config.{each.path}": str(each.text) for each in fields if each.text}
    return shown | {"recipe": recipe} | typed


def edit(page, show, data):
    return page.post(f"/operations/new/editor?show={show}", data)


def submit(page, text):
    return page.post("/operations/new", {"yaml": text, "once": "x" * 8})


def test_the_form_becomes_the_file_of_the_same_operation(page, tmp_path):
    data = entered(page, name="by hand", tags="b, a", priority="5", **{"config.epochs": "7"})
    file = edit(page, "yaml", data).context["file"]
    (path := tmp_path / "file.yaml").write_text(file.text)
    body = submission.read(path).body
    assert (body["kind"], body["name"], body["priority"]) == ("training", "by hand", 5)
    page.post("/operations/new", data | {"once": "1"})
    page.post("/operations/new", {"yaml": file.text, "once": "2"})
    first, second = Operation.objects.all()
    assert (first.config, first.name) == (second.config, second.name)
    assert "seed" not in body["config"], "fields with default values are left out"


def test_a_file_becomes_the_form(page):
    response = edit(page, "form", {"yaml": FILE})
    shown = {field.path: field.text for field in response.context["form"].fields}
    assert (shown["epochs"], shown["parameters.channels"]) == ("7", "8")
    text = response.content.decode()
    assert 'value="typed"' in text and 'value="a, b"' in text and "<html" not in text


def test_a_file_is_submitted(page):
    response = submit(page, FILE)
    operation = Operation.objects.get()
    assert response.url == operation.get_absolute_url()
    assert (operation.name, operation.config["epochs"]) == ("typed", 7)
    assert sorted(operation.tags.values_list("name", flat=True)) == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        *((path, "[" + "1," * 1_900_000 + "1]", "characters") for path in PATHS),
        ("new", "- 1\n" * 60_000, "20000 values and keys"),
    ],
    ids=[*PATHS, "values"],
)
def test_a_large_file_is_refused_before_it_is_read(page, path, text, said):
    """PyYAML would take minutes and gigabytes for it, while others wait."""
    data = {"yaml": f"kind: training\nx:\n{text}", "once": "x" * 8}
    response = page.post(f"/operations/{path}", data)
    assert said in response.content.decode() and not Operation.objects.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epochs: 7", "epochs: many", "Line 6: epochs: got &#x27;many&#x27;"),
        ("channels: 8", "chanels: 8", "Line 8: parameters.chanels: there is no such field"),
        ("tags:", "tag:", "Line 3: tag: there is no such field; allowed: kind"),
        ("epochs: 7", "epochs: [", "not YAML"),
        ("name: typed", "priority: 900", "Line 2: priority: Ensure this value is less"),
        ("kind: training", "kind: baking", "Line 1: kind: &#x27;baking&#x27; is not a kind"),
    ],
)
def test_problems_of_a_file_are_said_with_their_lines(page, old, new, said):
    response = submit(page, FILE.replace(old, new))
    assert response.status_code == 422 and not Operation.objects.exists()
    text = response.content.decode()
    assert said in text and f"{new}" in text, "the file as it was typed"


def test_a_file_that_no_form_can_show_stays_a_file(page):
    shown = edit(page, "form", {"yaml": FILE.replace("recipe: digits", "recipe: cake")})
    assert "Line 5: recipe: got &#x27;cake&#x27;; allowed: digits" in shown.content.decode()
    unknown = edit(page, "form", {"yaml": FILE.replace("epochs", "epoch")})
    assert "Line 6: epoch: there is no such field" in unknown.content.decode()


def test_what_a_field_can_show_is_corrected_in_the_form(page):
    response = edit(page, "form", {"yaml": FILE.replace("epochs: 7", "epochs: 0")})
    field = response.content.decode().partition('name="config.epochs"')[2].partition("</div>")[0]
    assert "greater than or equal to 1" in field


TRIES = {
    "try.0.path": "optimizer", "try.0.values": "sgd, adam",
    "try.1.path": "momentum", "try.1.values": "0.5..0.9",
    "try.1.condition_path": "optimizer", "try.1.condition_values": "sgd",
    "try.2.path": "parameters.channels", "try.2.values": "4..16",
    "try.3.path": "learning_rate", "try.3.values": "1e-05..0.1 log",
    "try.method": "random", "try.samples": "6", "try.seed": "3", "try.parallel": "2",
    "try.max_seconds": "90", "try.metric": "best.value", "try.mode": "max",
    "try.objective.0.metric": "final.train_loss", "try.objective.0.mode": "min",
}  # fmt: skip


def test_a_study_becomes_a_file_and_the_same_form_again(page):
    response = edit(page, "yaml", entered(page) | TRIES)
    file = response.context["file"]
    assert not file.problems and "trainops studies run" in response.content.decode()
    form = edit(page, "form", {"yaml": file.text}).context["form"]
    assert form.is_trying
    assert {name: text for name, text in form.study.items() if text} == TRIES
    again = edit(page, "yaml", entered(page) | dict(form.study)).context["file"]
    assert again.text == file.text


def test_the_file_of_a_study_is_submitted_as_the_form_and_the_command_submit_it(page, tmp_path):
    data = entered(page, name="both", tags="a") | TRIES
    page.post("/operations/new", data | {"once": "1"})
    text = edit(page, "yaml", data).context["file"].text
    assert submit(page, text).url.startswith("/studies/")
    first, second = Study.objects.order_by("pk")
    for name in ("design", "config", "metric", "mode", "name", "submission"):
        assert getattr(first, name) == getattr(second, name), name
    (path := tmp_path / "file.yaml").write_text(text)
    body = submission.read(path, also=STUDY_FIELDS).body
    assert body["design"]["further_objectives"] == [{"metric": "final.train_loss", "mode": "min"}]


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ("{values: {epochs: []}}", "epochs: got no values"),
        ("{values: {epochs: [5]}, method: best}", "Line 9: design.method: got"),
        ("{values: {epochs: [5]}, trials: 3}", "design.trials: there is no such field"),
        ("[1]", "design: Expected a dictionary"),
    ],
)
def test_problems_of_a_design_are_said(page, design, said):
    response = submit(page, f"{FILE}design: {design}\n")
    assert response.status_code == 422 and not Study.objects.exists()
    assert said in html.unescape(response.content.decode())


@pytest.mark.parametrize(
    "design",
    [
        "{values: {epochs: [[1, 2]]}}",
        "{values: {epochs: {low: 1, high: 5}}, method: random}",
        "{values: {resources: [{}]}}",
    ],
)
def test_a_design_that_no_form_can_show_stays_a_file(page, design):
    response = edit(page, "form", {"yaml": f"{FILE}design: {design}\n"})
    assert response.context["form"] is None
    said = html.unescape(response.content.decode())
    assert "Line 9: design: the form has no place for this design" in said


def test_a_metric_without_a_design_is_refused(page):
    said = html.unescape(submit(page, f"{FILE}metric: best.value\n").content.decode())
    assert "design: This field is required" in said and not Operation.objects.exists()


def test_values_to_try_that_cannot_be_read_are_kept_for_the_form(page):
    tries = {"try.0.path": "epochs", "try.0.values": "9..2:1"}
    response = edit(page, "yaml", entered(page) | tries)
    text = html.unescape(response.content.decode())
    assert "such as 5..20:5" in text and "not part of this file until they are correct" in text
    assert 'name="try.0.values" value="9..2:1"' in text
    form = edit(page, "form", {"yaml": FILE} | tries).context["form"]
    assert form.is_trying


def test_a_study_without_values_is_kept_by_the_file_for_the_form(page):
    tries = {
        "try.method": "tpe", "try.metric": "best.value", "try.pruner": "asha",
        "try.1.path": "epochs", "try.1.condition_path": "optimizer",
        "try.objective.0.metric": "final.train_loss",
    }  # fmt: skip
    response = edit(page, "yaml", entered(page) | tries)
    text = html.unescape(response.content.decode())
    assert all(f'name="{name}" value="{value}"' in text for name, value in tries.items())
    assert "got no values in row 2" in text
    assert edit(page, "form", {"yaml": FILE} | tries).context["form"].is_trying
    unchanged = edit(page, "yaml", entered(page) | {"try.method": "grid", "try.0.values": " "})
    assert not unchanged.context["file"].problems, "nothing was typed for a study"


@pytest.mark.parametrize(
    ("tries", "said"),
    [
        ({"try.0.path": "epochs"}, "design.values.epochs: got no values in row 1"),
        ({"try.0.values": "5"}, "got '5' in row 1 without a field; allowed: one field in each row"),
        ({"try.2.condition_path": "seed"}, "design.values.3: got 'seed' in row 3 without a field"),
        (
            {"try.0.path": "cake", "try.0.values": "5"},
            "got 'cake' in row 1; allowed: fields of this recipe",
        ),
        (
            {"try.0.path": "epochs", "try.0.values": "5", "try.1.path": "epochs",
             "try.1.values": "7"},
            "design.values.epochs: got the field again in row 2",
        ),
        (
            {"try.0.path": "epochs", "try.0.values": "5", "try.10.path": "seed",
             "try.10.values": "1"},
            "design.values: got row 11; allowed: up to 10 fields",
        ),
        (
            {"try.0.path": "epochs", "try.0.values": "5", "try.1.path": "seed", "try.1.values": "1",
             "try.1.condition_path": "epochs", "try.1.condition_values": "9..2:1"},
            "design.conditions.seed: got '9..2:1'",
        ),
        ({"try.pruner": "median"}, "design.values: got no values to try"),
        ({"try.objective.0.metric": "final.train_loss"}, "design.values: got no values to try"),
    ],
)  # fmt: skip
def test_a_study_with_an_incomplete_row_is_refused_and_nothing_is_submitted(page, tries, said):
    response = page.post("/operations/new", entered(page) | tries | {"once": "x" * 8})
    assert response.status_code == 422
    shown = response.context["form"].unplaced_errors
    assert said in "; ".join(f"{path}: {why}" for path, why in shown.items())
    assert not Operation.objects.exists() and not Study.objects.exists()


def test_a_further_row_is_offered_until_there_are_ten(page):
    nine, ten = (
        edit(page, "form", {"yaml": FILE, f"try.{number}.values": "1"}) for number in (8, 9)
    )
    button = 'data-max="10" hidden'
    assert button in " ".join(ten.content.decode().split())
    assert button not in " ".join(nine.content.decode().split())
