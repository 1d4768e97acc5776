"""The estimate of a submission, by HTTP."""

import pytest

from apps.operations.models import Operation, Share
from apps.workers import registry
from tests.api.answers import data, error
from tests.operations.rows import claimed
from trainops.recipes import recipes

pytestmark = pytest.mark.django_db

BODY = {"kind": "training", "config": {"recipe": "digits"}}


def test_an_estimate_submits_nothing(operator):
    found = data(operator.post("operations/estimate", BODY | {"queue": "a100"}))
    assert found["status"]["code"] == "NO_WORKER" and found["worker_ids"] == []
    assert (found["num_earlier"], found["seconds"]) == (0, None)
    assert not Operation.objects.exists()


@pytest.mark.parametrize(
    ("config", "is_named"),
    [
        ({}, False),
        ({"deterministic": False}, True),
        ({"deterministic": False, "device": "cuda"}, True),
        ({"deterministic": False, "device": "cpu"}, False),
    ],
)
def test_an_estimate_says_that_no_resume_may_be_exact(operator, config, is_named):
    body = {"kind": "training", "config": BODY["config"] | config}
    notes = data(operator.post("operations/estimate", body))["notes"]
    assert bool(notes) == is_named
    assert all("may not be exact" in note and "deterministic: false" in note for note in notes)


def test_an_estimate_says_that_required_exactness_refuses_the_run_on_a_gpu(operator):
    config = BODY["config"] | {"deterministic": False, "exact": "required"}
    body = {"kind": "training", "config": config}
    assert data(operator.post("operations/estimate", body))["notes"] == [
        "On a GPU it is refused before its first step: exact: required needs deterministic: true."
    ]


def test_an_estimate_names_the_share_that_would_be_used_up(operator):
    registry.register(worker_id="worker-1", kinds=["training"], slots=8)
    Share.objects.create(project="vision", max_slots=0)

    def code(**more):
        return data(operator.post("operations/estimate", BODY | more))["status"]["code"]

    assert (code(), code(project="vision")) == ("SOON", "SHARE_TOO_SMALL")
    Share.objects.create(owner=operator.user, max_slots=1)
    claimed(operator.user)
    assert code() == "SHARE_USED_UP"


def test_a_wrong_config_is_named(operator):
    config = {**recipes()["digits"].example, "epochs": "many"}
    refused = operator.post("operations/estimate", {"kind": "training", "config": config})
    assert "epochs" in error(refused, 400, "INVALID_CONFIG")["details"]["fields"]
