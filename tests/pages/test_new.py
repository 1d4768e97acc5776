"""The form of a new operation: generated, checked by the server, and nothing typed is lost."""

import io

import numpy as np
import pytest
from django.contrib.auth.models import User

from apps.checkpoints import storage
from apps.dashboard import branches, fields
from apps.dashboard.fields import FormField, fields_of
from apps.dashboard.form import Form
from apps.datasets import services as datasets
from apps.operations.models import Operation, Share
from apps.operations.requests import forking, shares
from tests.api import forks
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from tests.pages import making
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.recipes import recipes

pytestmark = pytest.mark.usefixtures("in_process")

CSV = b"size,rooms,price\n" + b"".join(b"%d,%d,%d\n" % (n, n % 5, n * 1000) for n in range(1, 40))


def posted(page, recipe="digits", **changes):
    """Post the form as it is shown, with some fields changed."""
    form = page.get(f"/operations/new?recipe={recipe}").context["form"]
    data = {"recipe": recipe, "once": "x" * 8}
    for field in form.fields:
        if field.text is not False and field.text != "":
            data[f"config.{field.path}"] = (
                field.text if field.kind == "columns" else str(field.text)
            )
    return page.post("/operations/new", data | changes)


BARS = b"when,open,high,low,last price\n" + b"".join(
    b"2024-01-%02d,10,11,9,10.5\n" % day for day in range(1, 31)
)


@pytest.fixture
def bars(ana):
    return datasets.add_table(io.BytesIO(BARS), filename="bars.csv", name="bars", owner=ana)


@pytest.fixture
def table(ana):
    return datasets.add_table(io.BytesIO(CSV), filename="flats.csv", name="flats", owner=ana)


@pytest.mark.slow
def test_the_form_as_it_is_shown_is_the_recipes_example(page, settings):
    response = posted(page)
    operation = Operation.objects.get()
    assert response.url == operation.get_absolute_url()
    example = KINDS["training"].parse_config(recipes()["digits"].example)
    assert operation.config == example.model_dump(mode="json")


def test_only_what_differs_from_the_defaults_is_written_down(page):
    posted(page, **{"config.epochs": "7", "config.limits.max_duration_seconds": "60"})
    given = Operation.objects.get().config_given
    assert given["epochs"] == 7 and given["limits"] == {"max_duration_seconds": 60.0}
    assert "seed" not in given and "momentum" not in given


def test_its_own_fields_are_kept(page):
    posted(page, name="tuned", tags=" b, a ,", priority="5", project=" vision ")
    operation = Operation.objects.get()
    assert (operation.name, operation.priority, operation.project) == ("tuned", 5, "vision")
    assert [tag.name for tag in operation.tags.all()] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    quick_some(
        [
            ("config.epochs", "many", "got &#x27;many&#x27;"),
            ("config.epochs", "0", "greater than or equal to 1"),
            ("config.epochs", "2.5", "got 2.5"),
            ("config.learning_rate", "nan", "finite number"),
            ("config.optimizer", "magic", "got &#x27;magic&#x27;"),
            ("config.parameters.dropout", "1.5", "less than 1"),
            ("config.checkpoint.every_seconds", "-1", "greater than 0"),
            ("name", "x" * 200, "at most 120"),
            ("tags", ",".join(f"t{n}" for n in range(30)), "at most 20 tags"),
            ("priority", "high", "whole number"),
            ("project", "x" * 65, "at most 64"),
        ],
        every=4,
    ),
)
def test_a_wrong_value_is_reported_beside_its_field_and_stays(page, name, typed, said):
    response = posted(page, **{"config.batch_size": "77", name: typed})
    text = response.content.decode()
    assert response.status_code == 422 and not Operation.objects.exists()
    assert said in text and "nothing was submitted" in text
    assert 'value="77"' in text  # what was right is not lost either
    field = text.partition(f'name="{name}"')[2].partition("<div")[0]
    assert 'aria-invalid="true"' in field and "invalid-feedback" in field


def test_projects_that_a_user_may_submit_to_are_suggested(page, ana):
    posted(page, project="speech")
    Share.objects.create(project="open")
    closed = shares.save(Share(project="closed"), [User.objects.create_user("ben")])
    assert page.get("/operations/new").context["projects"] == ["open", "speech"]
    refused = posted(page, once="y", project="closed")
    field = refused.content.decode().partition('name="project"')[2].partition("<div")[0]
    assert refused.status_code == 422 and "ana is not a member" in field
    closed.members.add(ana)
    assert page.get("/operations/new").context["projects"] == ["closed", "open", "speech"]


def test_a_problem_among_the_folded_fields_opens_them(page):
    text = posted(page, **{"config.seed": "x"}).content.decode()
    assert '<details class="advanced" open' in text


def test_the_same_form_sent_twice_makes_one_operation(page):
    first, second = posted(page), posted(page)
    assert first.url == second.url and Operation.objects.count() == 1


def test_a_blank_required_field_is_named(page, db):
    text = posted(page, "tabular").content.decode()
    assert text.count("nothing was given; it is required") == 2


def test_a_table_and_its_column_are_chosen(page, table):
    shown = page.get(f"/operations/new?recipe=tabular&dataset={table.pk}").content.decode()
    assert "price (integer)" in shown
    dataset = {"config.parameters.dataset": table.pk, "config.parameters.target": "price"}
    posted(page, "tabular", **dataset, **{"config.parameters.drop_columns": ["rooms"]})
    parameters = Operation.objects.get().config["parameters"]
    assert parameters["target"] == "price" and parameters["drop_columns"] == ["rooms"]


def test_a_backtest_is_asked_for_its_prices_and_their_columns(page, bars):
    shown = page.get(f"/operations/new?recipe=sma_crossover&dataset={bars.pk}").content.decode()
    assert '<legend class="card-title">Backtest</legend>' in shown
    assert "last price (number)" in shown
    given = {"config.dataset": bars.pk, "config.columns.close": "last price"}
    posted(page, "sma_crossover", **given, **{"config.parameters.fast": "2"})
    operation = Operation.objects.get()
    assert (operation.kind, operation.unit) == ("backtest", "bar")
    assert operation.config["columns"]["close"] == "last price"
    assert operation.config["checkpoint"]["every_bars"] == 10_000


@pytest.mark.slow
def test_a_table_without_prices_is_refused_beside_its_field(page, bars, table):
    unnamed = posted(page, "macd", **{"config.dataset": bars.pk}).content.decode()
    assert "no column for close was found; its columns: when, open" in unnamed
    other = posted(page, "macd", **{"config.dataset": table.pk}).content.decode()
    assert "no column for time, open, high, low, close was found" in other
    absent = posted(page, "macd", **{"config.dataset": "ds_" + "f" * 16})
    field = absent.content.decode().partition('name="config.dataset"')[2].partition("</div>")[0]
    assert 'aria-invalid="true"' in field
    assert not Operation.objects.exists()


def test_a_column_that_is_not_there_is_reported(page, table):
    dataset = {"config.parameters.dataset": table.pk, "config.parameters.target": "prize"}
    text = posted(page, "tabular", **dataset).content.decode()
    assert "its columns: size, rooms, price" in text


def test_choosing_a_table_brings_its_columns_and_keeps_what_was_typed(page, table):
    data = {"recipe": "tabular", "shown": "tabular", "config.parameters.dataset": table.pk}
    text = page.post("/operations/new/fields", data | {"config.epochs": "99"}).content.decode()
    assert "price (integer)" in text and 'value="99"' in text and "<html" not in text


def test_a_completed_training_offers_its_model_to_a_backtest(page, ana, bars):
    trained = making.operation(ana, "COMPLETED", name="waves")
    learned_from = {"dataset": bars.pk, "resample": "1w", "timezone": "Asia/Tokyo"}
    address = f"/operations/new?recipe=model&model={trained.pk}"
    assert address not in page.get(f"/operations/{trained.pk}/").content.decode()
    trained.row.update(
        recipe="price_direction", config={**trained.config, "parameters": learned_from}
    )
    assert address.replace("&", "&amp;") in page.get(f"/operations/{trained.pk}/").content.decode()
    form = page.get(address).context["form"]
    texts = {field.path: field.text for field in form.fields}
    assert texts["parameters.operation"] == trained.pk and texts["dataset"] == bars.pk
    assert texts["resample"] == "1w" and texts["timezone"] == "Asia/Tokyo"
    assert [model.pk for model in form.models] == [trained.pk]


def change(page, before, after, **typed):
    """Choose another recipe after some fields were edited."""
    data = entered(page.get(f"/operations/new?recipe={before}"))
    data |= {f"config.{path}": text for path, text in typed.items()}
    return page.post("/operations/new/fields", data | {"shown": before, "recipe": after})


def texts(response):
    return {field.path: field.text for field in response.context["form"].fields}


def test_edits_survive_a_change_of_recipe(page):
    response = change(page, "tabular", "digits", epochs="99")
    shown = texts(response)
    assert (shown["epochs"], shown["learning_rate"]) == ("99", "0.002"), "the rest is the example"
    assert response.context["carried"].kept == ["Epochs"]
    assert "Kept: Epochs." in response.content.decode()


def test_edits_that_do_not_fit_another_recipe_are_said(page):
    typed = {"parameters.channels": "7", "epochs": "many", "seed": "3"}
    response = change(page, "digits", "grid_world", **typed)
    carried = response.context["carried"]
    assert carried.kept == ["Seed"] and texts(response)["seed"] == "3"
    assert "Not kept: Channels" in response.content.decode()
    assert carried.dropped["Epochs"].endswith("has no such field")
    invalid = change(page, "tabular", "digits", epochs="many").context["carried"]
    assert "got 'many'" in invalid.dropped["Epochs"]


def test_values_to_try_survive_a_change_of_recipe(page):
    tries = {"try.0.path": "epochs", "try.0.values": "5, 10"}
    data = {"shown": "tabular", "recipe": "digits"} | tries
    form = page.post("/operations/new/fields", data).context["form"]
    assert form.is_trying and (form.tries[0].path, form.tries[0].text) == ("epochs", "5, 10")


def test_recent_recipes_are_first_and_the_latest_is_chosen(page, ana):
    making.operation(ana, "COMPLETED").row.update(recipe="images")
    making.operation(making.person("eve", "operator")).row.update(recipe="tabular")
    response = page.get("/operations/new")
    groups = response.context["groups"]
    assert (groups[0][0], [each.name for each, _ in groups[0][1]]) == ("Recent", ["images"])
    assert response.context["form"].recipe.name == "images"
    offered = [each.name for _, found in groups for each, _ in found]
    assert sorted(offered) == sorted(recipes()), "each once"


def test_the_list_of_recipes_is_folded_once_one_is_chosen(page):
    assert 'id="picker" open' in page.get("/operations/new").content.decode()
    chosen = page.get("/operations/new?recipe=digits").content.decode()
    assert 'id="picker"' in chosen and 'id="picker" open' not in chosen


def test_a_clone_has_the_config_and_the_tags_of_its_source(page, ana):
    posted(page, tags="a", name="first", project="vision", **{"config.epochs": "7"})
    source = Operation.objects.get()
    shown = page.get(f"/operations/new?from={source.pk}")
    text = shown.content.decode()
    assert all(f'value="{each}"' in text for each in ("first", "a", "vision"))
    epochs = next(f for f in shown.context["form"].fields if f.path == "epochs")
    assert epochs.text == "7"


def test_what_is_typed_is_escaped(page):
    evil = '"><script>alert(1)</script>'
    text = posted(page, name=evil * 5, **{"config.epochs": evil}).content.decode()
    assert "<script>alert" not in text


def test_only_operators_submit(as_, vera):
    viewer = as_(vera)
    assert viewer.get("/operations/new").status_code == 403
    assert viewer.post("/operations/new", {"recipe": "digits"}).status_code == 403
    assert not Operation.objects.exists()


def test_an_unknown_recipe_is_survived(page, ana):
    assert page.get("/operations/new?recipe=magic").status_code == 200
    assert page.post("/operations/new", {"recipe": "magic"}).url == "/operations/new"
    operation = making.operation(ana)
    operation.row.update(recipe="gone")
    assert page.get(f"/operations/new?from={operation.pk}").status_code == 200


SCHEMA = {
    "$defs": {"Inner": {"properties": {"flag": {"type": "boolean", "default": True}}}},
    "required": ["count"],
    "properties": {
        "count": {"type": "integer", "minimum": 1, "description": "How many"},
        "limit": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "mode": {"enum": ["min", "max"], "type": "string", "default": "min"},
        "sizes": {"type": "array", "items": {"type": "integer"}, "default": [4]},
        "extra": {"type": "object", "default": {}},
        "inner": {"$ref": "#/$defs/Inner"},
    },
}


class TestFields:
    """Out of a JSON Schema."""

    def test_every_leaf_becomes_a_field(self):
        found = {field.path: field for field in fields_of(SCHEMA)}
        kinds = {path: field.kind for path, field in found.items()}
        assert kinds == {
            "count": "integer", "limit": "number", "mode": "choice", "sizes": "list",
            "extra": "json", "inner.flag": "switch",
        }  # fmt: skip
        assert found["count"].required and found["limit"].nullable
        assert found["inner.flag"].group == "Inner"

    @pytest.mark.parametrize(
        ("kind", "element", "typed", "value"),
        [
            ("integer", "", "12", 12),
            ("integer", "", "1,000", 1000),
            ("integer", "", "1e3", 1000.0),
            ("number", "", "1e-3", 0.001),
            ("number", "", "abc", "abc"),
            ("list", "integer", "1, 2,", [1, 2]),
            ("list", "string", "a b, c", ["a b", "c"]),
            ("json", "", '{"a": 1}', {"a": 1}),
            ("pairs", "", "0: a\n\n *:b:{client} ", {"0": "a", "*": "b:{client}"}),
            ("pairs", "", '{"0": "a"}', {"0": "a"}),
            ("pairs", "", "0: a\nb", "0: a\nb"),
            ("pairs", "", "0: a\n0: b", "0: a\n0: b"),
            ("json", "", "{broken", "{broken"),
            ("text", "", " x ", "x"),
            ("switch", "", "true", True),
        ],
    )
    def test_texts_become_values(self, kind, element, typed, value):
        field = FormField(path="x", kind=kind, label="X", element=element)
        assert field.value([typed]) == value

    def test_a_blank_is_the_default_or_null(self):
        assert FormField(path="x", kind="integer", label="X").value([""]) is fields.NOTHING
        assert FormField(path="x", kind="integer", label="X", nullable=True).value([]) is None
        assert FormField(path="x", kind="switch", label="X").value([]) is False

    @pytest.mark.slow
    def test_every_recipe_makes_a_form(self, db):
        for recipe in recipes().values():
            form = Form(recipe, recipe.example)
            assert form.basic and form.advanced


def entered(shown):
    """Return the values that a form shows, as a browser sends them."""
    form = {field.path: field.text for field in shown.context["form"].fields}
    return {
        f"config.{path}": str(value) for path, value in form.items() if value not in (False, "")
    }


def test_a_fork_is_asked_for_in_the_form_of_its_source(page, ana, monkeypatch):
    source = making.operation(ana, "CANCELLED", name="the first")
    assert 'data-testid="fork"' not in page.get(f"/operations/{source.pk}/").content.decode()
    saved(source)
    assert 'data-testid="fork"' in page.get(f"/operations/{source.pk}/").content.decode()
    shown = page.get(f"/operations/new?fork={source.pk}")
    text = shown.content.decode()
    assert "continues from" in text and "the first" in text and "learning_rate" in text
    assert 'data-testid="recipe-' not in text, "a fork keeps its recipe"

    wanted = {}
    monkeypatch.setattr(forking, "fork", lambda **given: wanted.update(given) or source)
    data = entered(shown) | {"fork": source.pk, "recipe": source.recipe, "name": "second"}
    response = page.post("/operations/new", data | {"config.epochs": "9"})
    assert response.status_code == 302
    assert (wanted["operation_id"], wanted["name"]) == (source.pk, "second")
    assert wanted["config"]["epochs"] == 9


def test_a_longer_training_begins_with_twice_the_epochs(page, ana):
    source = making.operation(ana, "COMPLETED", name="the first")
    saved(source)
    header = page.get(f"/operations/{source.pk}/").content.decode()
    assert 'data-testid="extend"' in header and 'data-testid="warm-start"' in header
    shown = page.get(f"/operations/new?extend={source.pk}")
    text = {field.path: field.text for field in shown.context["form"].fields}["epochs"]
    assert int(text) == 2 * source.config["epochs"]
    answer = " ".join(shown.content.decode().partition('data-testid="refusal"')[2].split())
    assert "got 10; the cosine schedule was built for 5" in answer.partition("</div> </div>")[0]
    assert f"/operations/new?warm_start={source.pk}" in answer


def test_the_schedules_answer_to_a_longer_training_is_shown_first(page, ana):
    source = making.operation(ana, "COMPLETED")
    saved(source)
    constant = source.config | {"scheduler": "none"}
    source.row.update(config=constant, config_given=constant)
    text = page.get(f"/operations/new?extend={source.pk}").content.decode()
    answer = text.partition('data-testid="preview"')[2].partition("<form")[0]
    assert "the weights of a training submitted with 10 epochs" in answer


def test_a_fork_shows_only_the_fields_that_may_differ(page, ana):
    source = making.operation(ana, "CANCELLED")
    saved(source)
    shown = texts(page.get(f"/operations/new?fork={source.pk}"))
    assert {"epochs", "learning_rate", "checkpoint.every_epochs"} <= set(shown)
    assert not {"batch_size", "seed", "parameters.channels"} & set(shown)
    data = {"fork": source.pk, "recipe": "digits", "shown": "digits"}
    again = page.post("/operations/new/fields", data)
    assert set(texts(again)) == set(shown) and 'data-testid="tries"' not in again.content.decode()


@pytest.fixture
def again(page, ana):
    """The form of an operation that runs again: posted with changes, or shown as it is."""
    source = making.operation(ana, "COMPLETED", name="the first")
    given = {"recipe": "digits", "momentum": 0.5, "checkpoint": {"every_epochs": 2}}
    source.row.update(config=source.config | given, config_given=given)

    def ask(**changes):
        shown = page.get(f"/operations/new?from={source.pk}")
        if not changes:
            return shown
        data = entered(shown) | {"recipe": "digits", "from": source.pk, "once": "x" * 8} | changes
        return page.post("/operations/new", data)

    return ask


def short(response):
    return {field.path for field in response.context["form"].basic}


def test_what_a_run_was_given_is_shown_at_once_when_it_runs_again(again):
    shown = again()
    usual = {"epochs", "batch_size", "learning_rate"}
    earlier_defaults = {"optimizer", "scheduler", "threads"}  # not given, and another one today
    assert short(shown) == usual | earlier_defaults | {"momentum", "checkpoint.every_epochs"}
    folded = {f.path for group in shown.context["form"].advanced.values() for f in group}
    assert {"seed", "parameters.channels", "checkpoint.keep_last"} <= folded
    assert not folded & short(shown)
    text = shown.content.decode()
    assert "Show all settings" in text and "What this operation was given" in text
    assert text.count('name="config.parameters.channels"') == 1
    assert 'data-testid="advanced" open' not in " ".join(text.split())


def test_an_edited_field_and_one_with_an_error_are_shown_at_once_when_it_runs_again(again):
    response = again(**{"config.seed": "many", "config.parameters.channels": "9"})
    assert response.status_code == 422 and not response.context["form"].has_advanced_errors
    assert {"seed", "parameters.channels"} <= short(response)
    assert "checkpoint.keep_last" not in short(response)
    wrong = again(priority="high")
    text = " ".join(wrong.content.decode().split())
    assert '<details class="card advanced own" open' in text


def test_a_run_again_is_submitted_with_what_its_short_form_shows(again):
    assert again(**{"config.momentum": "0.25"}).status_code == 302
    newest = Operation.objects.latest("created_at")
    assert newest.config["momentum"] == 0.25 and newest.config["checkpoint"]["every_epochs"] == 2


def test_a_run_again_keeps_its_short_form_on_the_way_through_yaml(page, again):
    shown = again()
    data = entered(shown) | {"recipe": "digits", "from": shown.context["again"].pk}
    file = page.post("/operations/new/editor?show=yaml", data).context["file"]
    same = page.post("/operations/new/editor?show=form", {"yaml": file.text, "from": data["from"]})
    assert short(same) == short(shown) and texts(same) == texts(shown)
    assert "Show all settings" in same.content.decode()
    longer = {"yaml": f"{file.text}  seed: 7\n", "from": data["from"]}
    changed = page.post("/operations/new/editor?show=form", longer)
    assert short(changed) == short(shown) | {"seed"}, "what differs"
    other = {"yaml": "kind: training\nconfig: {recipe: tabular}\n", "from": data["from"]}
    whole = page.post("/operations/new/editor?show=form", other)
    assert "Show all settings" not in whole.content.decode()


def test_another_recipe_has_its_whole_form(page, again):
    data = entered(again()) | {"recipe": "tabular", "shown": "digits"}
    response = page.post("/operations/new/fields", data)
    assert "Show all settings" not in response.content.decode()


def test_a_preview_says_what_differs_and_submits_nothing(page, ana):
    source = making.operation(ana, "CANCELLED", name="the first")
    saved(source)
    constant = source.config | {"scheduler": "none"}
    source.row.update(config=constant, config_given=constant)
    data = entered(page.get(f"/operations/new?fork={source.pk}"))
    data |= {"fork": source.pk, "recipe": source.recipe, "preview": "1", "config.epochs": "50"}
    response = page.post("/operations/new", data)
    text = response.content.decode()
    assert not response.context["form"].errors
    assert response.status_code == 200 and Operation.objects.count() == 1
    assert "<td><code>epochs</code></td>" in text and "<td>50</td>" in text
    assert "the weights of a training submitted with 50 epochs" in text
    assert 'name="config.epochs"' in text and f'name="fork" value="{source.pk}"' in text


def test_a_fork_may_set_a_field_back_to_its_default(page, ana):
    source = making.operation(ana, "CANCELLED", name="the first")
    saved(source)
    other = source.config | {"scheduler": "none", "epochs": 5}
    source.row.update(config=other, config_given=other)
    data = entered(page.get(f"/operations/new?fork={source.pk}"))
    data |= {"fork": source.pk, "recipe": source.recipe, "preview": "1", "config.epochs": "10"}
    text = page.post("/operations/new", data).content.decode()
    assert "<td>5</td>" in " ".join(text.split()) and "<td>10</td>" in " ".join(text.split())


@pytest.mark.parametrize("verb", ["fork", "extend"])
def test_a_fork_under_changed_code_names_the_files_and_asks(page, ana, monkeypatch, verb):
    source = making.operation(ana, "CANCELLED")
    constant = source.config | {"scheduler": "none"}
    source.row.update(config=constant, config_given=constant)
    saved(source, step=5)
    address = f"/operations/new?{verb}={source.pk}"
    assert 'name="accept_inexact"' not in page.get(address).content.decode()
    saved(source, step=15, environment=CHANGED)
    shown = page.get(address)
    text = shown.content.decode()
    assert 'name="accept_inexact"' in text and CHANGED_FILE in text
    assert "weights of a training" not in text

    begun = forks.begun(monkeypatch)
    wanted = entered(shown) | {verb: source.pk, "recipe": source.recipe}
    refused = page.post("/operations/new", wanted)
    assert refused.status_code == 422 and Operation.objects.count() == 1
    assert "A fork would not be exact" in refused.content.decode()
    accepted = page.post("/operations/new", wanted | {"accept_inexact": "1"})
    assert accepted.status_code == 302 and len(begun) == 1


def test_the_form_of_a_fork_asks_about_the_checkpoint_that_the_submission_takes(
    page, ana, monkeypatch
):
    source = making.operation(ana, "CANCELLED")
    saved(source, step=5, environment=CHANGED)
    newest = saved(source, step=15)
    (storage.directory(newest.artifacts_path) / "model.pt").unlink()
    shown = page.get(f"/operations/new?fork={source.pk}")
    assert 'name="accept_inexact"' not in shown.content.decode()
    begun = forks.begun(monkeypatch)
    wanted = entered(shown) | {"fork": source.pk, "recipe": source.recipe}
    refused = page.post("/operations/new", wanted)
    text = refused.content.decode()
    assert refused.status_code == 422 and "A fork would not be exact" in text
    assert 'name="accept_inexact"' in text and CHANGED_FILE in text
    accepted = page.post("/operations/new", wanted | {"accept_inexact": "1"})
    assert accepted.status_code == 302 and len(begun) == 1


def test_a_warm_start_under_changed_code_asks_nothing(page, ana):
    source = making.operation(ana, "CANCELLED")
    saved(source, environment=CHANGED)
    shown = page.get(f"/operations/new?warm_start={source.pk}")
    assert 'name="accept_inexact"' not in shown.content.decode()
    wanted = entered(shown) | {"warm_start": source.pk, "recipe": source.recipe, "preview": "1"}
    assert CHANGED_FILE in page.post("/operations/new", wanted).content.decode()


def test_a_warm_start_may_change_any_field(page, ana, monkeypatch):
    source = making.operation(ana, "CANCELLED", name="the first")
    saved(source)
    shown = page.get(f"/operations/new?warm_start={source.pk}").content.decode()
    assert "starts at step 0 with the weights of" in shown
    wanted = {}
    monkeypatch.setattr(branches, "warm_start", lambda **given: wanted.update(given) or source)
    response = posted(page, warm_start=source.pk, **{"config.batch_size": "7"})
    assert response.status_code == 302
    assert (wanted["operation_id"], wanted["config"]["batch_size"]) == (source.pk, 7)


def test_what_a_fork_may_not_change_is_said_at_its_field(page, ana):
    source = making.operation(ana, "CANCELLED", name="the first")
    saved(source)
    response = posted(page, fork=source.pk, **{"config.batch_size": "7", "config.epochs": "5"})
    assert response.status_code == 422
    assert "a fork keeps" in response.content.decode()
    assert f'name="fork" value="{source.pk}"' in response.content.decode()
    assert Operation.objects.count() == 1


@pytest.fixture
def scans(ana):
    images = np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8)
    np.savez(file := io.BytesIO(), images=images, masks=images > 100)
    file.seek(0)
    return datasets.add_table(file, filename="scans.npz", name="scans", owner=ana)


def test_a_dataset_that_is_not_required_may_be_left_out(page):
    shown = page.get("/operations/new?recipe=segmentation").content.decode()
    assert "required" not in shown.partition('name="config.parameters.dataset"')[2].split(">")[0]
    posted(page, "segmentation")
    assert Operation.objects.get().config["parameters"]["dataset"] is None


@pytest.mark.slow
def test_images_are_chosen_as_tables_are(page, scans, table):
    shown = page.get(f"/operations/new?recipe=segmentation&dataset={scans.pk}").content.decode()
    assert f'<option value="{scans.pk}" selected>' in shown
    posted(page, "segmentation", **{"config.parameters.dataset": scans.pk})
    assert Operation.objects.get().config["parameters"]["dataset"] == scans.pk
    again = {"once": "another one"}
    unlabelled = posted(page, "images", **{"config.parameters.dataset": scans.pk}, **again)
    assert "it has no labels, only mask" in unlabelled.content.decode()
    wrong = posted(page, "images", **{"config.parameters.dataset": table.pk}, **again)
    assert "a table; allowed: images" in wrong.content.decode()
    assert Operation.objects.count() == 1
