"""Studies whose owner may have no more active operations: the rest follows later."""

import pytest

from apps.operations.models import Study
from apps.operations.requests import submission
from apps.operations.studies import advancing
from apps.operations.studies import services as studies
from trainops.person_limits import LimitReached

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_process")]
TRAINING = {"kind": "training", "config": {"recipe": "digits"}}
RATE = {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}
ONE_BY_ONE = {"values": RATE, "method": "random", "samples": 5, "parallel": 1}


@pytest.fixture
def two_active(settings):
    limit = {"max_active_operations_per_person": 2}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=limit)


def end(operation):
    operation.row.update(state="COMPLETED", result={"best": {"value": 0.5}})


def finish(operation):
    """End an operation as a worker does, and deliver the event."""
    end(operation)
    operation.record("COMPLETED", actor="w")
    advancing.operation_ended(operation.events.get(what="COMPLETED"))


@pytest.mark.usefixtures("two_active")
def test_further_trials_stay_below_the_limit_of_the_owner_and_follow_later(person):
    study = studies.create(
        owner=person, **TRAINING, design={"values": RATE, "method": "random", "samples": 1}
    )
    assert studies.extend(study_id=study.pk, trials=4, actor=person) == 1
    with pytest.raises(LimitReached):
        studies.extend(study_id=study.pk, trials=1, actor=person)
    for expected in (3, 4, 5, 5, 5):
        finish(study.operations.filter(state="PENDING").first())
        assert study.operations.count() == expected


@pytest.mark.usefixtures("two_active")
def test_a_study_without_active_trials_continues_when_another_operation_ends(person):
    study = studies.create(owner=person, **TRAINING, design=ONE_BY_ONE)
    others = [submission.submit(owner=person, **TRAINING)]
    end(study.operations.get())
    others.append(submission.submit(owner=person, **TRAINING))  # before the study is advanced
    assert studies.advance(study.pk) == 0 and study.operations.count() == 1
    finish(others[0])
    assert study.operations.count() == 2


@pytest.mark.usefixtures("two_active")
def test_a_study_with_an_active_trial_takes_what_others_free(person):
    study = studies.create(
        owner=person, **TRAINING, design=ONE_BY_ONE | {"parallel": 2, "samples": 2}
    )
    end(study.operations.first())
    other = submission.submit(owner=person, **TRAINING)  # before the study is advanced
    Study.objects.update(num_trials=5, num_planned=5)
    assert studies.advance(study.pk) == 0
    finish(other)
    assert study.operations.filter(state="PENDING").count() == 2


def test_an_error_of_one_study_does_not_stop_the_others(person, caplog):
    broken, study = (studies.create(owner=person, **TRAINING, design=ONE_BY_ONE) for _ in range(2))
    broken.suggestions.update(state="changed")
    end(broken.operations.get())
    finish(study.operations.get())
    assert study.operations.count() == 2
    assert f"{broken.pk} is not advanced" in caplog.text
