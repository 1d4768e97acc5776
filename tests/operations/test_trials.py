"""Trials of a study on both databases: suggested, submitted, continued, pruned."""

import math
import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.utils import timezone

from apps.operations.api.studies import detail
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, MetricPoint, Operation, Study, Suggestion
from apps.operations.requests import deletion
from apps.operations.requests import services as requests
from apps.operations.scheduling import claims
from apps.operations.studies import asking, comparison, pruning, reports
from apps.operations.studies import services as studies
from apps.operations.studies.designs import Design, Pruner
from apps.operations.studies.sampling import StudySearch
from apps.workers import maintenance
from tests.operations.attempts import Running, run
from tests.operations.test_supervisor import weights
from tests.waiting import wait_until
from trainops.clock import seconds_from_now
from trainops.errors import DomainError
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.errors import ConfigError

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("in_process"),
]
RATE = {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}
TPE = {"values": RATE, "method": "tpe", "samples": 5, "parallel": 2}


def create(person, design=TPE, **more):
    config = {"recipe": "digits"}
    return studies.create(kind="training", config=config, design=design, owner=person, **more)


def end(operation, value=0.5, **fields):
    row = {"state": "COMPLETED", "result": {"best": {"value": value}}, **fields}
    operation.row.update(**row)


def took(operation, seconds):
    ended_at = timezone.now()
    started_at = ended_at - timedelta(seconds=seconds)
    Attempt.objects.create(
        operation=operation, number=1, worker_id="w", started_at=started_at, ended_at=ended_at
    )


def values(study):
    return [each.values for each in study.suggestions.all()]


def test_trials_follow_one_another_up_to_the_parallel_limit(person):
    study = create(person)
    assert study.operations.count() == 2 and (study.num_planned, study.num_trials) == (5, 5)
    assert studies.advance(study.pk) == 0
    for expected in (3, 4, 5, 5):
        end(study.operations.filter(state="PENDING").first())
        studies.advance(study.pk)
        assert study.operations.count() == expected
    assert [each.number for each in study.suggestions.all()] == [0, 1, 2, 3, 4]
    assert all(each.operation.study_values == each.values for each in study.suggestions.all())


CONDITIONAL = {  # the path with a condition comes first in the order of `jsonb`
    "values": {"learning_rate": [0.1, 0.01], "seed": [1, 2, 3]},
    "conditions": {"seed": {"path": "learning_rate", "values": [0.1]}},
    "method": "random", "samples": 6, "parallel": 1,
}  # fmt: skip


def test_a_study_with_a_condition_continues_after_its_first_trial(person):
    study = create(person, design=CONDITIONAL)
    while asking.has_more(study):
        end(study.operations.get(state="PENDING"))
        assert studies.advance(study.pk) <= 1
    assert list(detail(study)["design"]["values"]) == ["learning_rate", "seed"]
    assert all(("seed" in each) == (each["learning_rate"] == 0.1) for each in values(study))
    assert {"seed" in each for each in values(study)} == {True, False}


def test_its_trials_are_those_that_one_search_of_all_of_them_suggests(person):
    study = create(person, design=CONDITIONAL)
    while asking.has_more(study):
        end(study.operations.get(state="PENDING"))
        studies.advance(study.pk)
    at_once = create(person, design=CONDITIONAL | {"parallel": 6})
    assert values(study) == values(at_once)


METRICS = [
    ("loss", {"loss": 0.5}), ("best.value", {"best": {"value": 0.5}}),
    ("val__loss", {"val__loss": 0.5}), ("scores.1", {"scores": [1, 0.5]}),
    ("a.b__c.0.d", {"a": {"b__c": [{"d": 0.5}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "result"), METRICS)
def test_sampler_and_page_read_the_same_value(person, metric, result):
    study = create(person, metric=metric, mode="min")
    end(study.operations.first(), result=result)
    assert asking.value_of(result, metric) == 0.5
    assert [line["value"] for line in comparison.lines(study)] == [0.5, None]


@pytest.mark.parametrize("further", [["best.value"], ["loss", "loss"]])
def test_an_objective_that_is_given_twice_is_refused(person, further):
    design = TPE | {"further_objectives": [{"metric": each, "mode": "max"} for each in further]}
    with pytest.raises(ConfigError, match="allowed: a metric that is no objective yet"):
        create(person, design=design, metric="best.value", mode="min")
    assert not Study.objects.exists()


def test_a_study_with_an_objective_that_was_stored_twice_is_shown(person):
    study = create(person, metric="best.value", mode="min")
    study.design["further_objectives"] = [{"metric": "best.value", "mode": "max"}]
    end(study.operations.first())
    assert len(comparison.front(study, comparison.lines(study))) == 1


def test_a_result_that_no_float_holds_is_none(person):
    study = create(person)
    end(study.operations.first(), value=10**400)
    assert studies.advance(study.pk) == 1
    assert asking.value_of({"loss": 10**400}, "loss") is None


def test_a_trial_is_submitted_once_however_many_ask(person):
    study = create(person)
    end(study.operations.first())
    threads = [threading.Thread(target=_advance, args=[study.pk]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert study.operations.count() == 3 and study.suggestions.count() == 3


def _advance(study_id):
    try:
        studies.advance(study_id)
    finally:
        connection.close()


class Crash(BaseException):
    """The process ends here; the database rolls back."""


@pytest.mark.parametrize(
    "place", ["submit_part", "packed", "_num_planned"], ids=["submit", "store", "count"]
)
def test_a_crash_between_suggestion_and_submission_changes_nothing(person, monkeypatch, place):
    twins = [create(person), create(person)]
    for study in twins:
        for operation, value in zip(
            study.operations.order_by("study_values"), (0.4, 0.6), strict=True
        ):
            end(operation, value)
    crashed, other = twins
    with monkeypatch.context() as patch:
        patch.setattr(asking, place, _crash)
        with pytest.raises(Crash):
            studies.advance(crashed.pk)
    assert crashed.operations.count() == crashed.suggestions.count() == 2
    assert studies.advance(crashed.pk) == studies.advance(other.pk) == 2
    assert values(crashed) == values(other), "the same trials suggest the same values"


def _crash(*_, **__):
    raise Crash


def test_the_same_values_are_computed_once(person):
    design = {"values": {"seed": [1, 2]}, "method": "random", "samples": 12}
    study = create(person, design)
    assert study.operations.count() == 2 and study.suggestions.count() == 12
    study.refresh_from_db()
    assert study.num_planned == 2


def test_a_study_continues_with_more_trials(person):
    study = create(person, {"values": RATE, "method": "random", "samples": 2})
    assert studies.extend(study_id=study.pk, trials=3, actor=person) == 3
    whole = create(person, {"values": RATE, "method": "random", "samples": 5})
    assert values(study) == values(whole)
    for trials in (0, 496):
        with pytest.raises(ConfigError, match="allowed: 1 to 495"):
            studies.extend(study_id=study.pk, trials=trials, actor=person)
    for seconds in (math.inf, math.nan, -1.0):
        with pytest.raises(ConfigError, match="allowed: a finite number"):
            studies.extend(study_id=study.pk, trials=1, seconds=seconds, actor=person)
    grid = create(person, {"values": {"seed": [1]}})
    with pytest.raises(DomainError, match="got a grid; allowed"):
        studies.extend(study_id=grid.pk, trials=1, actor=person)


def test_nothing_is_submitted_once_the_compute_time_is_spent(person):
    study = create(person, TPE | {"max_seconds": 60.0})
    for operation in study.operations.all():
        took(operation, seconds=40)
        end(operation)
    assert studies.advance(study.pk) == 0
    assert studies.extend(study_id=study.pk, trials=1, seconds=30, actor=person) == 2


def test_compute_time_of_deleted_trials_counts(person):
    study = create(person, TPE | {"max_seconds": 60.0})
    for operation in study.operations.all():
        took(operation, seconds=40)
        end(operation)
    for operation in study.operations.all():
        deletion.delete(operation_id=operation.pk, actor=person)
    assert not study.operations.exists()
    assert detail(studies.get(study.pk))["seconds_spent"] >= 80
    assert studies.extend(study_id=study.pk, trials=1, seconds=30, actor=person) == 2


def test_a_deletion_before_its_end_was_delivered_advances_the_study(person):
    study = create(person, TPE | {"parallel": 1})
    trial = study.operations.get()
    end(trial)
    trial.record("COMPLETED", actor="w")
    deletion.delete(operation_id=trial.pk, actor=person)
    assert study.operations.filter(state="PENDING").count() == 1


def test_a_deletion_that_is_rolled_back_advances_nothing(person):
    study = create(person, TPE | {"parallel": 1})
    trial = study.operations.get()
    took(trial, seconds=40)
    end(trial)
    with pytest.raises(Crash), transaction.atomic():
        deletion.delete(operation_id=trial.pk, actor=person)
        raise Crash
    study.refresh_from_db()
    assert study.operations.get() == trial and study.past_seconds == 0


def test_a_sweep_advances_a_study_of_which_an_event_was_missed(person):
    study = create(person, TPE | {"parallel": 1})
    end(study.operations.get())
    maintenance.sweep(actor="beat")
    assert study.operations.filter(state="PENDING").count() == 1


def test_a_deletion_of_a_study_submits_no_further_trials(person):
    study = create(person)
    for operation in study.operations.all():
        end(operation)
    submitted = []

    def saved(instance, **_):
        submitted.append(instance.pk)

    post_save.connect(saved, sender=Operation)
    studies.delete(study_id=study.pk, actor=person)
    post_save.disconnect(saved, sender=Operation)
    assert submitted == [] and not Operation.objects.exists() and not Study.objects.exists()


def test_a_resume_that_begins_trials_anew_stays_within_the_parallel_limit(person):
    study = create(person)
    studies.cancel(study_id=study.pk, actor=person)
    assert studies.resume(study_id=study.pk, actor=person) == 2
    assert study.operations.count() == 2
    assert {each.operation.state for each in study.suggestions.all()} == {"PENDING"}


def test_invalid_values_are_left_out_and_a_deleted_operation_is_a_failed_trial(person):
    design = {"values": {"epochs": [0, 1, 2]}, "parallel": 1}
    study = create(person, design)
    for _ in range(2):
        end(study.operations.get(state="PENDING"))
        studies.advance(study.pk)
    left = Study.objects.get(pk=study.pk).left_out
    assert study.suggestions.count() == 3 and study.operations.count() == 2
    assert [each["values"] for each in left] == [{"epochs": 0}]
    study.operations.first().delete()
    assert study.suggestions.filter(operation=None).count() == 2
    assert studies.advance(study.pk) == 0


def test_a_sampler_state_that_was_changed_is_not_unpacked(person):
    study = create(person, TPE | {"method": "cmaes", "parallel": 1, "samples": 9})
    Suggestion.objects.update(state=asking.packed({"cma:generation": 1})[:-1] + "_")
    end(study.operations.get())
    with pytest.raises(Exception, match="Signature"):
        studies.advance(study.pk)


PRUNED = TPE | {"parallel": 4, "pruner": {"method": "median", "min_trials": 3}}


def report(operation, *reported, attempt=1):
    points = {"operation": operation, "attempt": attempt, "name": "val_loss", "at": timezone.now()}
    MetricPoint.objects.bulk_create(
        MetricPoint(step=n, value=value, **points) for n, value in enumerate(reported)
    )


@pytest.fixture
def last(person):
    """The running trial of a study whose other trials have completed."""
    study = create(person, PRUNED)
    *before, last = study.operations.order_by("pk")
    for operation in before:
        end(operation)
        report(operation, 0.5, 0.4)
    lease = seconds_from_now(60)
    last.row.update(state=State.RUNNING, attempt=1, worker_id="w", lease_expires_at=lease)
    Attempt.objects.create(operation=last, number=1, worker_id="w")
    last.refresh_from_db()
    return last


def test_a_worse_trial_is_stopped_at_its_checkpoint_as_pruned(last):
    report(last, 0.9, 0.8)
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    last.refresh_from_db()
    assert (last.stop_requested, last.stop_requested_by) == ("cancel", "pruner")
    claims.finish(
        last, State.CANCELLED, outcome=Attempt.Outcome.CANCELLED, reason=Reason.CANCELLED_BY_PERSON
    )
    last.refresh_from_db()
    assert last.reason == last.attempts.get().reason == Reason.PRUNED
    assert studies.resume(study_id=last.study_id, actor=last.owner) == 0
    assert (
        asking.search_of(last.study, Design.of_row(last.study.design), {})
        .trials[last.suggestions.get().number]
        .state.name
        == "PRUNED"
    )
    last.row.update(state=State.RUNNING, lease_expires_at=seconds_from_now(60), stop_reason="")
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    last.refresh_from_db()
    assert last.stop_requested == "", "resumed by a user, it is not pruned again"


def test_a_better_trial_continues(last):
    report(last, 0.3, 0.2)
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    last.refresh_from_db()
    assert last.stop_requested == ""


def test_only_a_periodic_checkpoint_of_a_running_trial_is_judged(last):
    report(last, 0.9, 0.8)
    pruning.checkpoint_committed(last, CheckpointType.FINAL)
    assert not last.events.filter(what="CANCEL_REQUESTED").exists()
    last.row.update(stop_requested="cancel", stop_requested_by="ana")
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    last.refresh_from_db()
    assert last.stop_requested_by == "ana" and last.suggestions.get().state == ""


def test_a_checkpoint_without_a_pruner_is_one_query_and_no_transaction(
    person, django_assert_num_queries
):
    operation = create(person).operations.first()
    with django_assert_num_queries(1):  # the study's row, without its lock
        pruning.checkpoint_committed(operation, CheckpointType.PERIODIC)


def test_a_pruner_decides_before_it_locks_anything(last, monkeypatch):
    report(last, 0.9, 0.8)
    decide = StudySearch.is_to_be_pruned

    def decided(*arguments):
        assert not connection.in_atomic_block
        return decide(*arguments)

    monkeypatch.setattr(StudySearch, "is_to_be_pruned", decided)
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    last.refresh_from_db()
    assert last.stop_requested == "cancel"


@pytest.mark.parametrize("method", ["median", "asha", "hyperband"])
def test_the_pruner_reads_one_value_of_each_other_trial(last, method):
    report(last, 0.9, 0.8)
    pruner = Pruner(method=method, metric="val_loss", mode="max")
    found = reports.at_checkpoint(last.study, pruner, last)
    assert found.pop(last.pk) == {1: -0.9, 2: -0.8}, "the study's mode is min"
    assert list(found.values()) == ([] if method == "asha" else [{2: -0.4}] * 3)


def test_values_that_a_resume_measured_again_count_once(last):
    other = last.study.operations.exclude(pk=last.pk).first()
    other.points.update(retired_by=2)
    report(other, 0.5, 0.3, 0.2, attempt=2)
    report(last, 0.9, 0.8)
    pruner = Pruner(method="median", metric="val_loss", mode="min")
    assert reports.at_checkpoint(last.study, pruner, last)[other.pk] == {2: 0.3}
    hyperband = pruner.model_copy(update={"method": "hyperband"})
    assert reports.at_checkpoint(last.study, hyperband, last)[other.pk] == {3: 0.2}


def test_a_sampler_gets_the_last_value_of_each_pruned_trial(last):
    report(last, 0.9, 0.8)
    last.row.update(state=State.CANCELLED, reason=Reason.PRUNED)
    pruner = Pruner(method="median", metric="val_loss", mode="min")
    assert reports.of_pruned(last.study, pruner) == {last.pk: {2: 0.8}}


def test_an_error_of_the_pruner_does_not_end_the_attempt(last, caplog):
    Study.objects.update(design={"nonsense": 1})
    pruning.checkpoint_committed(last, CheckpointType.PERIODIC)
    assert "the pruner of its study failed" in caplog.text


@pytest.mark.slow
def test_a_pruned_trial_stops_at_a_checkpoint_and_a_resume_ends_as_if_it_had_not_been(
    person, runtime
):
    """Real children: the rate of the second trial is useless."""
    config = {
        "recipe": "scripted", "parameters": {"what": "nothing", "step_seconds": 0.02},
        "epochs": 12, "batch_size": 16, "checkpoint": {"every_epochs": 1},
    }  # fmt: skip
    design = {
        "values": {"learning_rate": [0.05, 1e-9]}, "seed": 2, "parallel": 1,
        "pruner": {"method": "median", "min_trials": 1},
    }  # fmt: skip
    study = studies.create(kind="training", config=config, design=design, owner=person)
    good = study.operations.get()
    assert run(runtime, good).state == "COMPLETED"
    useless = study.operations.exclude(pk=good.pk).get()
    running = Running(runtime, useless)
    wait_until(useless.row.filter(stop_requested="cancel").exists)
    running.held.stop = useless.Stop.CANCEL  # as the worker's loop does
    pruned = running.ended()
    assert (pruned.state, pruned.reason) == ("CANCELLED", Reason.PRUNED)
    assert 0 < pruned.step < pruned.total_steps
    assert not good.events.filter(actor="pruner").exists()
    at_stop = pruned.checkpoints.get(type="cancellation")
    assert at_stop.step == pruned.step
    trial = asking.search_of(study, Design.of_row(study.design), {}).trials[1]
    assert trial.state.name == "PRUNED"
    requests.resume(operation_id=pruned.pk, actor=person)
    done = run(runtime, pruned)
    assert (done.state, done.reason) == ("COMPLETED", "")
    assert done.attempts.get(number=2).receipt["exact"]
    assert done.events.filter(actor="pruner").count() == 1, "it is not pruned again"
    whole = requests.submit(kind="training", config=done.config_given, owner=person)
    whole = run(runtime, whole)
    assert weights(done) == weights(whole) and done.result == whole.result
