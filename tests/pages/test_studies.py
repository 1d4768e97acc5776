"""Studies on their pages: made by the form, compared, stopped."""

import html
import io
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.dashboard import trying
from apps.dashboard.fields import FormField
from apps.datasets import services as datasets
from apps.operations.models import Operation, Study
from apps.operations.studies import comparison
from apps.operations.studies import services as studies
from tests.pages import making
from tests.pages.test_live import followed
from trainops.runtime.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_process")

BARS = b"date,open,high,low,close\n" + b"".join(
    b"2020-%02d-%02d,%d,%d,%d,%d\n" % (day // 28 + 1, day % 28 + 1, 100, 102, 99, 101)
    for day in range(84)
)
GRID = {"values": {"parameters.fast": [3, 5], "parameters.slow": [10, 30], "cash": [1e3, 1e4]}}


@pytest.fixture
def prices(ana):
    return datasets.add_table(io.BytesIO(BARS), filename="bars.csv", owner=ana).pk


def made(owner, prices, design=GRID, **more):
    config = {"recipe": "sma_crossover", "dataset": prices}
    return studies.create(kind="backtest", config=config, design=design, owner=owner, **more)


def completed(study):
    """End all of its operations, with a Sharpe ratio of slow - fast."""
    for operation in study.operations.all():
        tried = operation.config["parameters"]
        result = {"sharpe": tried["slow"] - tried["fast"], "return": 0.1, "trades": 7}
        operation.row.update(state="COMPLETED", result=result)


def posted(page, prices, *tries, **changes):
    data = {
        "recipe": "sma_crossover", "once": "x" * 8, "config.dataset": prices, **changes,
    }  # fmt: skip
    for number, (path, values) in enumerate(tries):
        data |= {f"try.{number}.path": path, f"try.{number}.values": values}
    return page.post("/operations/new", data)


def test_the_form_makes_a_study_of_what_is_tried(page, prices):
    answer = posted(
        page, prices, ("parameters.fast", "3, 5"), ("parameters.slow", "10..30:10"), name="both"
    )
    study = Study.objects.get()
    assert answer.url == study.get_absolute_url() and study.name == "both"
    assert study.design["values"] == {"parameters.fast": [3, 5], "parameters.slow": [10, 20, 30]}
    assert study.operations.count() == 6
    text = page.get(answer.url).content.decode()
    assert text.count('data-testid="line"') == 6 and "0 %" in text


def test_the_ids_of_studies_and_datasets_are_copied_by_a_button(page, ana, prices):
    study = made(ana, prices)
    for address, pk in ((f"/studies/{study.pk}/", study.pk), (f"/datasets/{prices}/", prices)):
        assert f'data-copy-text="{pk}"' in " ".join(page.get(address).content.decode().split())


def test_random_sets_and_folds_come_from_the_form(page, prices):
    posted(
        page, prices, ("parameters.fast", "2..9"),
        **{"try.method": "random", "try.samples": "3", "try.folds": "2"},
    )  # fmt: skip
    study = Study.objects.get()
    assert study.design["samples"] == 3 and len(study.folds) == 2
    tried = {each.study_values["parameters.fast"] for each in study.operations.all()}
    assert all(isinstance(each, int) and 2 <= each <= 9 for each in tried)


def test_what_cannot_be_tried_is_reported_and_stays_as_typed(page, prices):
    for row, problem in (
        (("parameters.fast", "2..9"), "got a range; allowed with grid: values"),
        (("parameters.fast", "quick"), "parameters.fast"),
        (("parameters.fast", "9..2:1"), "such as 5..20:5"),
    ):
        answer = posted(page, prices, row)
        text = answer.content.decode()
        assert answer.status_code == 422 and problem in text
        assert f'value="{row[1]}"' in text
    answer = posted(page, prices, ("parameters.fast", "3"), **{"try.folds": "many"})
    text = answer.content.decode()
    assert "must be a whole number" in text and "design.walk_forward.folds" in text
    assert not Study.objects.exists() and not Operation.objects.exists()


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        ("integer", "1, 2,3", [1, 2, 3]),
        ("integer", "5..20:5", [5, 10, 15, 20]),
        ("number", "0..0.3:0.1", [0.0, 0.1, 0.2, 0.3]),
        ("number", "1e-4..1e-1 log", {"low": 1e-4, "high": 0.1, "log": True, "whole": False}),
        ("integer", "-3..3", {"low": -3.0, "high": 3.0, "log": False, "whole": True}),
        ("choice", "adam, sgd", ["adam", "sgd"]),
        ("switch", "true,False", [True, False]),
        ("text", "1..2", ["1..2"]),
    ],
)
def test_values_are_read_by_the_kind_of_their_field(kind, text, values):
    assert trying.values_of(FormField(path="a", kind=kind, label="A"), text) == values


def test_a_switch_has_two_values():
    with pytest.raises(ConfigError, match="allowed: true, false"):
        trying.values_of(FormField(path="a", kind="switch", label="A"), "perhaps")


def test_the_page_compares_the_best_first_and_maps_two_of_the_values(page, ana, prices):
    study = made(ana, prices)
    completed(study)
    found = page.get(study.get_absolute_url())
    first = found.context["lines"][0]
    assert first["value"] == 27 and first["study_values"]["parameters.slow"] == 30
    assert found.context["best"] == first
    text = found.content.decode()
    assert "strength-6" in text and "strength-0" in text
    assert "data-settled" in text and "data-active" not in text
    other = page.get(study.get_absolute_url() + "?x=cash&y=parameters.slow").context["heat"]
    assert other.columns == [1000.0, 10000.0]
    values = [[cell.value for cell in cells] for _, cells in other.rows]
    assert values == [[7, 7], [27, 27]], "the best over the values of fast"


def test_a_study_that_runs_is_fetched_again_and_one_of_folds_shows_what_was_chosen(
    page, ana, prices
):
    design = {"values": {"parameters.fast": [3, 5]}, "walk_forward": {"folds": 2}}
    study = made(ana, prices, design)
    text = page.get(study.get_absolute_url()).content.decode()
    assert 'data-refresh="/studies/' in text and "data-active" in text
    assert "data-settled" not in text
    completed(study)
    assert studies.advance(study.pk) == 2
    completed(study)
    shown = page.get(study.get_absolute_url())
    chosen = shown.context["chosen"]
    assert [fold["values"] for fold in chosen] == [{"parameters.fast": 3}] * 2
    assert chosen[0]["in_sample"] == chosen[0]["out_of_sample"] is not None
    mean = sum(fold["out_of_sample"] for fold in chosen) / 2
    assert shown.context["out_of_sample"] == mean
    assert 'data-testid="folds-mean"' in shown.content.decode()


def test_a_best_value_is_named_by_the_metric_that_is_monitored():
    study = Study(kind="training", metric="best.value", config={})
    assert comparison.metric_name(study) == "val_loss"
    study.config = {"monitor": "val_accuracy"}
    assert comparison.metric_name(study) == "val_accuracy"
    assert comparison.metric_name(Study(kind="backtest", metric="sharpe", config={})) == "sharpe"


def test_a_mean_leaves_out_what_is_not_known():
    assert comparison.mean([1.0, None, 2.0]) == 1.5 and comparison.mean([None]) is None


@pytest.mark.slow
def test_its_buttons_do_what_they_say_to_those_who_may(page, as_, vera, ana, prices):
    viewer = as_(vera)
    study = made(ana, prices, name="mine")
    assert viewer.post(f"/studies/{study.pk}/cancel").status_code == 403
    assert "study-cancel" not in viewer.get(study.get_absolute_url()).content.decode()
    page.post(f"/studies/{study.pk}/cancel")
    assert set(study.operations.values_list("state", flat=True)) == {"CANCELLED"}
    page.post(f"/studies/{study.pk}/resume")
    assert set(study.operations.values_list("state", flat=True)) == {"PENDING"}
    assert (
        "have not ended" in page.post(f"/studies/{study.pk}/delete", follow=True).content.decode()
    )
    page.post(f"/studies/{study.pk}/kill")
    assert page.post(f"/studies/{study.pk}/explode").status_code == 404
    assert page.post(f"/studies/{study.pk}/delete").url == "/studies/"
    assert page.get(study.get_absolute_url()).status_code == 404


def test_studies_are_listed_and_an_operation_names_its_own(page, ana, prices):
    assert "No studies yet" in page.get("/studies/").content.decode()
    study = made(ana, prices, name="compared")
    assert "compared" in page.get("/studies/").content.decode()
    operation = study.operations.first()
    assert study.get_absolute_url() in page.get(operation.get_absolute_url()).content.decode()
    alone = making.operation(ana)
    assert "part of" not in page.get(alone.get_absolute_url()).content.decode()


def test_a_search_comes_from_the_form_and_is_continued_on_its_page(page, prices):
    typed = {"method": "tpe", "samples": "6", "parallel": "2", "pruner": "", "max_seconds": "90"}
    answer = posted(
        page, prices, ("parameters.fast", "2..9"), **{f"try.{n}": v for n, v in typed.items()}
    )
    study = Study.objects.get()
    assert study.design["method"] == "tpe" and study.max_seconds == 90
    assert study.operations.count() == 2 and study.num_trials == 6
    assert "study-extend" in page.get(answer.url).content.decode()
    page.post(f"/studies/{study.pk}/extend", {"trials": "4"})
    study.refresh_from_db()
    assert study.num_trials == 10
    for typed in ("many", "0", "900"):
        found = page.post(f"/studies/{study.pk}/extend", {"trials": typed}, follow=True)
        assert f"got {typed!r}; allowed: 1 to 500" in html.unescape(found.content.decode())


def test_a_pruner_with_its_numbers_and_the_seed_come_from_the_form(page, prices):
    typed = {"pruner": "asha", "min_reports": "2", "min_trials": "", "reduction": "4", "seed": "7"}
    answer = posted(
        page, prices, ("parameters.fast", "2..9"),
        **{"try.method": "random", "try.samples": "3", "try.parallel": "1"},
        **{f"try.{name}": value for name, value in typed.items()},
    )  # fmt: skip
    design = Study.objects.get().design
    pruner = {"method": "asha", "min_reports": 2, "reduction": 4}
    assert pruner.items() <= design["pruner"].items() and design["pruner"]["min_trials"] == 5
    assert (design["seed"], design["parallel"]) == (7, 1)
    text = page.get(answer.url).content.decode()
    assert "Sampler random · pruner asha · at most 1 active at a time" in text


def test_conditions_and_further_objectives_come_from_the_form(page, prices):
    answer = posted(
        page, prices, ("parameters.fast", "3, 5"), ("parameters.slow", "10, 30"),
        **{
            "try.1.condition_path": "parameters.fast", "try.1.condition_values": "5",
            "try.metric": "return", "try.mode": "max",
            "try.objective.0.metric": "max_drawdown", "try.objective.0.mode": "min",
        },
    )  # fmt: skip
    study = Study.objects.get()
    assert answer.url == study.get_absolute_url()
    condition = {"path": "parameters.fast", "values": [5]}
    assert study.design["conditions"] == {"parameters.slow": condition}
    assert study.design["further_objectives"] == [{"metric": "max_drawdown", "mode": "min"}]
    assert (study.metric, study.mode) == ("return", "max")
    tried = [each.study_values for each in study.operations.order_by("pk")]
    assert {"parameters.fast": 3} in tried and len(tried) == 3


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ({"0.condition_path": "parameters.slow", "0.condition_values": "5"}, "none, as it is the"),
        ({"1.condition_path": "", "1.condition_values": "5"}, "the field of an earlier row"),
        ({"1.condition_path": "parameters.fast"}, "allowed: values with commas"),
        ({"1.condition_path": "nothing"}, "got 'nothing'"),
        ({"objective.1.metric": "return"}, "got '' for return; allowed: min, max"),
        ({"objective.0.mode": "min"}, "got no metric"),
        ({"mode": "up"}, "got 'up'; allowed: min, max"),
        ({"pruner_metric": "equity"}, "got metric without a pruner"),
        ({"in_sample": "0.5"}, "got in_sample without folds"),
        ({"folds": "2", "in_sample": "half"}, "got 'half'; must be a number"),
    ],
)
def test_conditions_and_objectives_that_cannot_be_read_are_refused(page, prices, typed, problem):
    answer = posted(
        page, prices, ("parameters.fast", "3, 5"), ("parameters.slow", "10, 30"),
        **{f"try.{name}": text for name, text in typed.items()},
    )  # fmt: skip
    said = html.unescape(answer.content.decode())
    assert answer.status_code == 422 and problem in said and not Study.objects.exists()


def test_ten_fields_can_be_tried_and_at_least_three_rows_are_shown():
    assert len(trying.read(None)) == len(trying.read({"try.0.path": "a"})) == 3
    assert len(trying.read({"try.6.values": "1"})) == 7
    assert len(trying.read({"try.9.values": "1", "try.10.values": "1"})) == 10


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("parallel", "0", "design.parallel"),
        ("samples", "0", "design.samples"),
        ("max_seconds", "0", "design.max_seconds"),
        ("folds", "0", "design.walk_forward.folds"),
        ("min_trials", "2", "got min_trials without a pruner; allowed with it: median"),
    ],
)
def test_numbers_that_are_too_small_or_without_a_pruner_are_refused(
    page, prices, field, text, problem
):
    answer = posted(
        page, prices, ("parameters.fast", "2..9"), **{"try.method": "random", f"try.{field}": text}
    )
    assert answer.status_code == 422 and problem in answer.content.decode()
    assert not Study.objects.exists()


def test_a_study_whose_compute_time_is_spent_says_so_and_is_continued_with_more(page, ana, prices):
    design = {
        "values": {"parameters.fast": {"low": 2, "high": 9, "whole": True}},
        "method": "random", "samples": 3, "parallel": 1, "max_seconds": 60.0,
    }  # fmt: skip
    study = made(ana, prices, design)
    first = study.operations.get()
    now = timezone.now()
    making.attempt(first, started_at=now - timedelta(seconds=61), ended_at=now)
    first.row.update(state="COMPLETED", result={"sharpe": 1.0})
    text = page.get(study.get_absolute_url()).content.decode()
    assert "compute time 1 min 1 s of 1 min; no more trials are submitted" in text
    refused = page.post(
        f"/studies/{study.pk}/extend", {"trials": "1", "seconds": "-1"}, follow=True
    )
    assert "got '-1'; allowed: 0 to" in html.unescape(refused.content.decode())
    page.post(f"/studies/{study.pk}/extend", {"trials": "1", "seconds": "60"})
    study.refresh_from_db()
    assert (study.max_seconds, study.num_trials, study.operations.count()) == (120, 4, 2)


def test_a_pruner_and_a_front_are_shown(page, ana, prices):
    design = GRID | {"further_objectives": [{"metric": "trades", "mode": "min"}]}
    study = made(ana, prices, design)
    completed(study)
    found = page.get(study.get_absolute_url())
    assert 'data-testid="front"' in found.content.decode()
    assert {line["value"] for line in found.context["front"]} == {27}
    study.operations.update(state="CANCELLED", reason="PRUNED")
    assert "pruned</span>" in page.get(study.get_absolute_url()).content.decode()


def test_one_extreme_value_leaves_the_heat_map_readable(page, ana, prices):
    study = made(ana, prices)
    completed(study)
    worst = min(study.operations.all(), key=lambda each: each.result["sharpe"])
    worst.row.update(result={"sharpe": -1e9})
    axes = "?x=parameters.fast&y=parameters.slow"
    found = page.get(study.get_absolute_url() + axes).context["heat"]
    strengths = {cell.strength for _, cells in found.rows for cell in cells}
    assert len(strengths) > 2


def test_the_stream_of_a_study_is_not_shared_as_it_has_the_token_of_a_session(ana, prices):
    path = f"/studies/{made(ana, prices).pk}/"
    first, response = followed(ana, path)
    assert "csrfmiddlewaretoken" in response.content.decode()
    assert "<html" not in response.content.decode()
    assert followed(ana, path)[0].alike != first.alike  # `followed` signs in anew
