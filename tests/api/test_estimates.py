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
