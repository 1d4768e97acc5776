"""Kinds, recipes, health and readiness."""

import pytest

from apps.operations.scheduling import readiness
from tests.api.answers import data, error
from trainops.kind import KINDS


def test_kinds_and_recipes_come_with_their_schemas(viewer):
    training, _, backtest, _, federated = data(viewer.get("kinds"))
    assert (training["kind"], training["unit"]) == ("training", "step")
    assert (backtest["kind"], backtest["unit"]) == ("backtest", "bar")
    assert (federated["kind"], federated["unit"]) == ("federated", "client epoch")
    assert "epochs" in training["json_schema"]["properties"]
    recipes = {recipe["name"]: recipe for recipe in data(viewer.get("recipes", kind="training"))}
    assert {"digits", "tabular"} <= recipes.keys()
    assert recipes["tabular"]["json_schema"]["properties"]["target"]
    assert recipes["digits"]["example"]["recipe"] == "digits"


def test_an_unknown_kind_names_those_there_are(viewer):
    problem = error(viewer.get("recipes", kind="cooking"), 400, "VALIDATION_ERROR")
    assert (
        problem["details"]["fields"]["kind"]
        == f"'cooking' is not a kind; allowed: {', '.join(KINDS)}"
    )


def test_an_example_can_be_submitted_as_it_stands(operator):
    recipes = {recipe["name"]: recipe for recipe in data(operator.get("recipes"))}
    body = {"kind": "training", "config": recipes["digits"]["example"]}
    assert data(operator.post("operations", body), 202)["recipe"] == "digits"


def test_health_needs_no_sign_in(client):
    assert data(client.get("/api/v1/health")) == {"status": "ok"}


@pytest.mark.django_db
def test_what_is_not_ready_is_named(client, settings, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    settings.BROKER_URL = f"redis+socket://{tmp_path}/nobody.sock?virtual_host=0"
    settings.CHECKPOINT_ROOT = tmp_path / "file" / "checkpoints"
    parts = error(client.get("/api/v1/ready"), 503, "NOT_READY")["details"]["parts"]
    assert parts["database"] == "ready"
    assert "no response" in parts["broker"]
    assert parts["storage"].startswith("NotADirectoryError")


@pytest.mark.django_db
def test_ready_when_all_parts_are(client, monkeypatch):
    monkeypatch.setattr(readiness, "_broker", lambda: "")
    status = data(client.get("/api/v1/ready"))
    assert status["parts"] == {"database": "ready", "broker": "ready", "storage": "ready"}


def test_the_brokers_address_is_read_in_all_spellings():
    socket = readiness.redis_client("redis+socket:///run/redis.sock?virtual_host=3")
    kwargs = socket.connection_pool.connection_kwargs
    assert (kwargs["path"], kwargs["db"]) == ("/run/redis.sock", 3)
    tcp = readiness.redis_client("redis://example:6380/2").connection_pool.connection_kwargs
    assert (tcp["host"], tcp["port"], tcp["db"]) == ("example", 6380, 2)
    with pytest.raises(ValueError):
        readiness.redis_client("amqp://example")
