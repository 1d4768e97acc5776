"""The estimate of a submission, by HTTP."""

import pytest

from apps.operations.models import Operation
from tests.api.answers import data, error
from trainops.recipes import recipes

pytestmark = pytest.mark.django_db

BODY = {"kind": "training", "config": {"recipe": "digits"}}


def test_an_estimate_submits_nothing(operator):
    found = data(operator.post("operations/estimate", BODY | {"queue": "a100"}))
    assert found["status"]["code"] == "NO_WORKER" and found["worker_ids"] == []
    assert (found["num_earlier"], found["seconds"]) == (0, None)
    assert not Operation.objects.exists()


def test_a_wrong_config_is_named(operator):
    config = {**recipes()["digits"].example, "epochs": "many"}
    refused = operator.post("operations/estimate", {"kind": "training", "config": config})
    assert "epochs" in error(refused, 400, "INVALID_CONFIG")["details"]["fields"]
