"""Studies on both databases: submitted as one, stopped as one, compared; real children."""

import io
import threading
from datetime import date, timedelta

import pyarrow.parquet as pq
import pytest
from django.db import connection

from apps.datasets import services as datasets
from apps.operations import outbox
from apps.operations.attempts.work import work_until_idle
from apps.operations.models import Operation, Study
from apps.operations.requests import deletion, services
from apps.operations.studies import services as studies
from tests.backtest.market import run, walk
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

pytestmark = [
    pytest.mark.database,
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("in_process"),
]
GRID = {"values": {"parameters.fast": [3, 5, 40], "parameters.slow": [10, 30]}}


@pytest.fixture
def prices(person):
    file = io.BytesIO()
    pq.write_table(walk(24 * 60), file)  # 60 days of hours
    file.seek(0)
    return datasets.add_table(file, filename="walk.parquet", owner=person).pk


def create(person, prices, design=GRID, given=(), **more):
    config = {"recipe": "sma_crossover", "dataset": prices, **dict(given)}
    return studies.create(kind="backtest", config=config, design=design, owner=person, **more)


def test_it_submits_each_set_that_the_recipe_takes(person, prices):
    study = create(person, prices, name="grid", tags=["try"], priority=3)
    made = {tuple(each.study_values.values()): each for each in study.operations.all()}
    assert set(made) == {(3, 10), (3, 30), (5, 10), (5, 30)}  # slow is above fast
    assert study.num_planned == 4 and len(study.left_out) == 2
    assert "must be above fast (40)" in study.left_out[0]["problem"]
    one = made[5, 30]
    assert one.config["parameters"]["fast"] == 5 and one.priority == 3
    assert one.name == "grid · fast 5, slow 30" and one.tags.get().name == "try"


def test_with_an_error_there_is_nothing(person, prices):
    for design, field in (
        ({"values": {"parameters.quick": [1]}}, "parameters.quick"),
        ({"values": {"parameters.fast": [90, 95]}}, "parameters.slow"),
        ({"values": {"parameters.fast": []}}, "design"),
        (GRID | {"walk_forward": {"folds": 50, "in_sample": 0.95}}, "design.walk_forward"),
    ):
        with pytest.raises(ConfigError) as refused:
            create(person, prices, design)
        assert field in refused.value.errors
    with pytest.raises(ConfigError, match="allowed: min, max"):
        create(person, prices, mode="best")
    with pytest.raises(ConfigError, match="allowed: backtest"):
        studies.create(
            kind="training", config={"recipe": "digits"}, owner=person,
            design={"values": {"epochs": [1]}, "walk_forward": {}},
        )  # fmt: skip
    assert not Study.objects.exists() and not Operation.objects.exists()


FOLDS = {"values": {"parameters.fast": [2]}, "walk_forward": {"folds": 2, "in_sample": 0.5}}


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ({}, "2020-01-01", "2020-02-29"),
        ({"start": "2015-01-01", "until": "2030-01-01"}, "2020-01-01", "2020-02-29"),
        ({"start": "2020-01-11", "until": "2020-02-10"}, "2020-01-11", "2020-02-09"),
        ({"timezone": "Asia/Tokyo"}, "2020-01-01", "2020-03-01"),
        ({"timezone": "America/New_York", "until": "2030-01-01"}, "2019-12-31", "2020-02-29"),
    ],
    ids=["all", "more", "fewer", "east", "west"],
)
def test_folds_are_of_days_that_the_data_has(person, prices, given, first, last):
    """Those before or after it had no bars: their backtests failed."""
    study = create(person, prices, FOLDS, given)
    assert study.folds[0]["start"] == first
    assert date.fromisoformat(study.folds[-1]["end"]) == date.fromisoformat(last) + timedelta(1)


@pytest.mark.parametrize(
    ("given", "field"), [({"start": "2021-01-01"}, "start"), ({"until": "2019-01-01"}, "until")]
)
def test_days_that_the_data_does_not_have_are_refused(person, prices, given, field):
    with pytest.raises(ConfigError) as refused:
        create(person, prices, FOLDS, given)
    days = "the data has days from 2020-01-01 to 2020-02-29"
    assert refused.value.errors[field] == f"got {given[field]}; {days}"


def test_the_same_key_makes_one_study(person, prices):
    first = create(person, prices, idempotency_key="k")
    assert create(person, prices, idempotency_key="k") == first
    with pytest.raises(DomainError) as refused:
        create(person, prices, idempotency_key="k", name="other")
    assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert Operation.objects.count() == 4


@pytest.mark.slow
def test_a_cancel_reaches_all_and_a_resume_begins_them_anew(person, prices):
    study = create(person, prices)
    assert studies.cancel(study_id=study.pk, actor=person) == 4
    assert set(study.operations.values_list("state", flat=True)) == {"CANCELLED"}
    assert studies.cancel(study_id=study.pk, actor=person) == 0
    assert studies.resume(study_id=study.pk, actor=person) == 4
    states = study.operations.values_list("state", flat=True)
    assert list(states) == ["PENDING"] * 4, "without a checkpoint there is nothing to resume from"
    with pytest.raises(DomainError) as refused:
        studies.delete(study_id=study.pk, actor=person)
    assert refused.value.code == "STUDY_ACTIVE"
    studies.cancel(study_id=study.pk, actor=person)
    studies.delete(study_id=study.pk, actor=person)
    assert not Study.objects.exists() and not Operation.objects.exists()
    with pytest.raises(studies.StudyNotFound):
        studies.get(study.pk)


@pytest.mark.slow
def test_a_walk_forward_tries_on_the_next_days_what_was_best_before(
    runtime, person, prices, tmp_path
):
    run(walk(30), tmp_path, recipe="sma_crossover")  # compiles here: a child's lease is not renewed
    design = {
        "values": {"parameters.fast": [2, 8], "parameters.slow": [20]},
        "walk_forward": {"folds": 2, "in_sample": 0.5},
    }
    study = create(person, prices, design, metric="return")
    assert study.operations.count() == 4 and study.num_planned == 6
    work_until_idle(runtime)
    tried = {each.fold: each for each in study.operations.filter(is_test=True)}
    assert set(tried) == {1, 2}
    for number, test in tried.items():
        assert test.state == "COMPLETED"
        chosen = study.operations.filter(fold=number, is_test=False)
        best = max(chosen, key=lambda each: each.result["return"])
        assert test.study_values == best.study_values
        fold = study.folds[number - 1]
        assert (test.config["start"], test.config["until"]) == (fold["split"], fold["end"])
        assert best.config["until"] == test.config["start"]
    assert studies.advance(study.pk) == 0


@pytest.mark.parametrize(
    ("kind", "config", "judged"),
    [
        ("training", {"recipe": "digits"}, ("best.value", "min")),
        ("training", {"recipe": "digits", "mode": "max"}, ("best.value", "max")),
        ("rl", {"recipe": "gymnasium", "parameters": {"id": "CartPole-v1"}}, ("best.value", "max")),
    ],
)
def test_a_study_is_judged_as_its_kind_judges_itself(person, kind, config, judged):
    design = {"values": {"seed": [1, 2]}}
    study = studies.create(kind=kind, config=config, design=design, owner=person)
    assert (study.metric, study.mode) == judged


def ended(study, **results):
    """Pretend that the operations of fold 1 ended, with these returns by value of fast."""
    for operation in study.operations.filter(fold=1):
        value = results[f"fast_{operation.study_values['parameters.fast']}"]
        operation.row.update(state="COMPLETED", result={"return": value})


WALK = {"values": {"parameters.fast": [2, 8]}, "walk_forward": {"folds": 2, "in_sample": 0.5}}


def test_a_fold_is_tried_once_however_many_ask(person, prices):
    study = create(person, prices, WALK, metric="return")
    ended(study, fast_2=0.1, fast_8=0.2)
    threads = [threading.Thread(target=_advance, args=[study.pk]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    test = study.operations.get(is_test=True)
    assert (test.fold, test.study_values) == (1, {"parameters.fast": 8})
    test.row.update(state="COMPLETED", result={"return": 0.0})
    assert studies.advance(study.pk) == 0


def _advance(study_id):
    try:
        studies.advance(study_id)
    finally:
        connection.close()


@pytest.mark.slow
def test_a_study_that_was_stopped_tries_nothing_more(person, prices):
    study = create(person, prices, WALK, metric="return", mode="min")
    ended(study, fast_2=0.1, fast_8=0.2)
    studies.cancel(study_id=study.pk, actor=person)
    assert studies.advance(study.pk) == 0
    assert not study.operations.filter(is_test=True).exists()
    studies.resume(study_id=study.pk, actor=person)
    assert study.operations.get(is_test=True).study_values == {"parameters.fast": 2}, "min"


def test_a_study_that_cannot_be_read_keeps_no_other_from_its_turn(person, prices):
    broken, sound = (create(person, prices, WALK, metric="return", name=n) for n in "ab")
    for study in (broken, sound):
        ended(study, fast_2=0.1, fast_8=0.2)
    Study.objects.filter(pk=broken.pk).update(folds=[{"nonsense": 1}])
    for study in (broken, sound):
        study.operations.first().record("COMPLETED", actor="test")
    outbox.deliver()
    assert sound.operations.filter(is_test=True).count() == 1


def test_a_fold_whose_test_was_deleted_is_not_tried_again(person, prices):
    study = create(person, prices, WALK, metric="return")
    ended(study, fast_2=0.1, fast_8=0.2)
    studies.advance(study.pk)
    test = study.operations.get(is_test=True)
    services.cancel(operation_id=test.pk, actor=person)
    assert studies.resume(study_id=study.pk, actor=person) == 1
    anew = study.operations.get(is_test=True)
    assert anew != test, "without a checkpoint it is submitted anew"
    services.cancel(operation_id=anew.pk, actor=person)
    deletion.delete(operation_id=anew.pk, actor=person)
    assert studies.advance(study.pk) == 0 and not study.operations.filter(is_test=True).exists()
    study.refresh_from_db()
    assert [each["number"] for each in study.folds] == [2]
    problem = "Its out-of-sample test was deleted."
    assert study.left_out == [{"values": {"fold": 1}, "problem": problem}]


def test_a_fold_whose_prices_are_gone_is_given_up_with_the_reason(person, prices):
    study = create(person, prices, WALK, metric="return")
    study.operations.update(state="COMPLETED", result={"return": 0.5})
    datasets.delete(dataset_id=prices, actor=person)
    assert studies.advance(study.pk) == 0
    study.refresh_from_db()
    assert study.folds == [] and "upload it first" in study.left_out[0]["problem"]


def test_one_of_its_operations_can_be_deleted_alone(person, prices):
    study = create(person, prices)
    one = study.operations.first()
    services.cancel(operation_id=one.pk, actor=person)
    deletion.delete(operation_id=one.pk, actor=person)
    assert study.operations.count() == 3
