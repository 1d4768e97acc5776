"""The YAML of a new operation: the form as a file for `run`, and back, by one validator."""

import pytest

from apps.operations.models import Operation
from trainops.cli import submission

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


def test_values_to_try_are_kept_for_the_form(page):
    tries = {"try.0.path": "epochs", "try.0.values": "5, 10"}
    text = edit(page, "yaml", entered(page) | tries).content.decode()
    assert 'name="try.0.values" value="5, 10"' in text and "not part of this file" in text
    form = edit(page, "form", {"yaml": FILE} | tries).context["form"]
    assert form.is_trying
