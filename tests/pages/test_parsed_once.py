"""A submission validates its config once, whichever way it comes in."""

import json

import pytest

from apps.operations.models import Operation
from apps.operations.requests import services
from tests.pages.test_new_file import FILE, entered, submit
from trainops.kind import Kind
from trainops.runtime.config import OperationConfig

CONFIG = {"recipe": "digits", "epochs": 7}


def by_service(ana, page):
    services.submit(kind="training", config=CONFIG, owner=ana)


def by_api(ana, page):
    body = json.dumps({"kind": "training", "config": CONFIG})
    page.post("/api/v1/operations", body, content_type="application/json")


def by_form(ana, page):
    page.post("/operations/new", entered(page, **{"config.epochs": "7", "once": "x" * 8}))


def by_file(ana, page):
    submit(page, FILE)


@pytest.fixture
def parsed(monkeypatch):
    """The configs that descriptors of kinds and config classes were given."""
    found = {"kind": [], "class": []}
    of_kind, validate = Kind.parse_config, OperationConfig.model_validate.__func__

    def by_kind(kind, raw):
        found["kind"].append(raw)
        return of_kind(kind, raw)

    def by_class(config_class, raw, **options):
        found["class"].append(raw)
        return validate(config_class, raw, **options)

    monkeypatch.setattr(Kind, "parse_config", by_kind)
    monkeypatch.setattr(OperationConfig, "model_validate", classmethod(by_class))
    return found


@pytest.mark.parametrize("submitted", [by_service, by_api, by_form, by_file])
def test_a_submission_validates_its_config_once(submitted, ana, page, parsed):
    submitted(ana, page)
    assert Operation.objects.get().config["epochs"] == 7
    assert [len(each) for each in parsed.values()] == [1, 1]
