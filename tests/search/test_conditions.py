"""Queries against rows, on both databases."""

from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.operations.models import Operation
from apps.operations.points import latest_values
from apps.operations.search.conditions import FIELDS, condition
from apps.operations.search.language import NAME, QueryError
from apps.operations.search.sorting import is_sort, ordering
from apps.operations.search.values import CONFIG, METRIC, named
from tests.pages import making

pytestmark = pytest.mark.database


@pytest.fixture
def ana(db):
    return making.person("ana", "operator")


@pytest.fixture(params=[False, True], ids=["", "with-values"])
def three(request, ana):
    """Named after what their metrics are."""
    made = []
    for name, metrics in (("low", {"val_loss": 0.05}), ("high", {"val_loss": 2, "a/b.c": 1})):
        made.append(making.operation(ana, "COMPLETED", name=name, metrics=metrics, tags=[name]))
    made.append(making.operation(ana, "FAILED", name="none", metrics={"val_loss": "nan"}))
    if request.param:
        latest_values.write_missing()
    return made


def found(query, user):
    listed = Operation.objects.filter(condition(query, user))
    return {operation.name for operation in listed}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("val_loss<0.1", {"low"}),
        ("val_loss>0.1", {"high"}),
        ("val_loss<=2", {"low", "high"}),
        ("val_loss!=2", {"low"}),
        ("-val_loss<0.1", {"high", "none"}),
        ("val_loss=nan", {"none"}),
        ("metric.val_loss>=2", {"high"}),
        ("a/b.c=1", {"high"}),
        ("unknown>0", set()),
        ("epochs=5", {"low", "high", "none"}),
        ("epochs>5", set()),
        ("config.epochs>=5 val_loss<1", {"low"}),
        ("checkpoint.keep_last>=1", {"low", "high", "none"}),
        ("device=auto", {"low", "high", "none"}),
        ("device!=auto", set()),
        ("step>=20", {"low", "high", "none"}),
        ("state:failed", {"none"}),
        ("state:FAILED,completed -tag:low", {"high", "none"}),
        ("state:active", set()),
        ("kind:training", {"low", "high", "none"}),
        ("tag:low,high", {"low", "high"}),
        ("tag:low tag:high", set()),
        ("owner:me", {"low", "high", "none"}),
        ("owner:ana low", {"low"}),
        ("owner:unknown", set()),
        ("recipe:digits", {"low", "high", "none"}),
        ("reason:job_error", {"none"}),
        ("worker:worker-1", set()),
        ("study:x", set()),
        ("newer:1h", {"low", "high", "none"}),
        ("older:7d", set()),
        ("is:attention", {"none"}),
        ("is:resumable", set()),
        ("-low", {"high", "none"}),
        ("", {"low", "high", "none"}),
    ],
)
def test_a_query_finds(three, ana, query, names):
    assert found(query, ana) == names


def test_metrics_of_any_name_can_be_compared(ana):
    metrics = {"mAP@0.5": 0.3, "Validation Loss": 2, "f1(macro)": 1, "epochs": 7}
    making.operation(ana, name="detector", metrics=metrics)
    making.operation(ana, name="other")
    for query in ('"mAP@0.5"<0.4', '"Validation Loss">1', '"f1(macro)"=1', '"metric.epochs"=7'):
        assert found(query, ana) == {"detector"}
        assert found(f"-{query}", ana) == {"other"}
    assert found('"mAP@0.5">0.4', ana) == set()


@pytest.mark.parametrize("name", ["mAP@0.5", "Validation Loss", "Gewinn €", r"a\b", "🎉"])
def test_a_quoted_name_is_an_order(ana, name):
    for value in (2, 3, 1):
        making.operation(ana, name=str(value), metrics={name: value})
    for sort, names in ((f'"{name}"', "123"), (f'-"{name}"', "321")):
        assert is_sort(sort)
        assert "".join(each.name for each in Operation.objects.order_by(*ordering(sort))) == names
    assert found(f'"{name}"<2', ana) == {"1"}


@pytest.mark.parametrize("sort", ['"', '""', '"a', 'a"b"', '"a"b', '"a\0"', "mAP@0.5"])
def test_other_text_is_no_order(sort):
    assert not is_sort(sort)


def test_ages_count_from_now(three, ana):
    three[0].row.update(created_at=timezone.now() - timedelta(days=8))
    assert found("older:7d", ana) == {"low"}
    assert found("newer:1w", ana) == {"high", "none"}


def test_a_parameter_of_a_recipe_needs_no_prefix(ana):
    made = making.operation(ana, name="wide")
    made.row.update(config=made.config | {"parameters": {"hidden": 64}})
    for name in ("hidden", "config.hidden", "parameters.hidden"):
        assert found(f"{name}>=64", ana) == {"wide"}
        assert found(f"{name}>64", ana) == set()


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("config.hidden_sizes.0", True),
        ("config.hidden_sizes.00", True),
        ("config.hidden_sizes.1", False),
        ("config.hidden_sizes.-1", False),
        ("config.hidden_sizes.4294967296", False),
        ("config.hidden_sizes.\N{SUPERSCRIPT TWO}", False),
        ("config.hidden_sizes.\N{ARABIC-INDIC DIGIT ZERO}", False),
        ("config.weights.0", True),
        ("config.weights.00", False),
        ("config.weights.01", True),
        ("config.layers.0.size", True),
        ("config.layers.1.0.size", True),
        ("config.layers.1.1.size", False),
        ("config.seed.0", False),
        ("metric.0", True),
        ("metric.-1", True),
        ("metric.größe", True),
    ],
)
def test_a_number_in_a_name_is_an_index_of_a_list_or_a_key_in_a_config(ana, name, is_there):
    made = making.operation(ana, name="one", metrics={"0": 64, "-1": 64, "größe": 64})
    layers = {"0": {"size": 64}, "1": [{"size": 64}]}
    weights = {"0": 64, "01": 64}
    made.row.update(config={"hidden_sizes": [64], "weights": weights, "layers": layers, "seed": 64})
    assert (found(f"{name}=64", ana) == {"one"}) is is_there


@pytest.mark.slow
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    start=st.sampled_from(["", METRIC, CONFIG, "checkpoint."]),
    name=st.from_regex(NAME, fullmatch=True),
)
def test_every_name_that_the_language_allows_is_looked_up_and_sorted_by(three, ana, start, name):
    name = start + name
    found(f'{name}>1 {name}="a"', ana)
    columns = {"value": named(name).text}
    assert len(Operation.objects.order_by(*ordering(name)).values(**columns)) == len(three)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("kind:rl stat:failed", r"'stat:failed' \(character 9\).*allowed: state:, kind:"),
        ("state:failing", "got 'failing'; allowed: pending"),
        ("kind:nonsense", "allowed: training"),
        ("is:good", "allowed: resumable, attention, favourite"),
        ("older:soon", "got 'soon'; allowed: a whole number"),
        ("val_loss<low", "got 'low'; allowed after '<': a number"),
        ("step=low", "allowed after '=': a number"),
        ("kind:rl state=failed", r"'state=failed' \(character 9\): got 'state='; allowed: state:"),
        ("Owner!=ana", "got 'Owner!='; allowed: owner:"),
        ("val_loss<inf", "allowed after '<': a number"),
    ],
)
def test_errors_name_the_term_and_what_is_allowed(db, ana, query, problem):
    with pytest.raises(QueryError, match=problem):
        condition(query, ana)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_takes_text_of_any_script(db, ana, name):
    for text in ("שלום", "🎉", "x" * 900):
        if FIELDS[name].allowed or FIELDS[name].form:
            with pytest.raises(QueryError, match="allowed"):
                found(f"{name}:{text}", ana)
        else:
            assert found(f"{name}:{text}", ana) == set()


def test_the_number_of_queries_does_not_depend_on_rows(three, ana, django_assert_num_queries):
    with django_assert_num_queries(4):  # few or many have the value? the tag? and the rows
        found("val_loss<1 epochs>=5 -tag:x is:attention older:1d worker:w study:y", ana)


F1 = {"train_f.1": [0.3, 0.9]}  # further monitored


@pytest.fixture
def extremes(ana):
    """Of metrics with and without a direction; monitored are return (max) and val_score (min)."""
    for name, monitor, mode, found in (
        ("rl", "return", "max", {"return": [1, 9], "evaluation_return": [2, 8], "loss": [3, 7]}),
        (
            "net",
            "val_score",
            "min",
            {"val_score": [0.1, 5], "train_score": [0.2, 4], "x": [1, 2]} | F1,
        ),
        ("old", "val_loss", "min", None),
    ):
        made = making.operation(ana, "COMPLETED", name=name)
        config = made.config | {"monitor": monitor, "mode": mode, "monitors": {"val_f.1": "max"}}
        made.row.update(config=config, extremes=found)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("best(return)>=9", {"rl"}),
        ("best(return)<9", set()),
        ("best(evaluation_return)=8", {"rl"}),
        ("best(loss)=3", {"rl"}),
        ("best(val_score)<=0.1", {"net"}),
        ("best(train_score)=0.2", {"net"}),
        ("best(metric.val_score)=0.1", {"net"}),
        ("best(x)>0", set()),
        ("best(train_f.1)=0.9", {"net"}),
        ("-best(val_score)=0.1", {"rl", "old"}),
        ("no:best(val_score)", {"rl", "old"}),
    ],
)
def test_the_best_value_follows_the_direction_of_the_metric(extremes, ana, query, names):
    assert found(query, ana) == names


def test_lists_are_sorted_by_the_best_value(extremes, ana):
    ordered = Operation.objects.order_by(*ordering("-best(return)"))
    assert ordered[0].name == "rl"
    columns = Operation.objects.values_list("name", named("best(val_score)").text)
    assert dict(columns) == {"net": 0.1, "rl": None, "old": None}
    with pytest.raises(QueryError, match="allowed after '=': a number"):
        found("best(return)=high", ana)
