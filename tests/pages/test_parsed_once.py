"""A submission validates its config once, whichever way it comes in."""

import json

import pytest

from apps.operations.models import Operation
from apps.operations.requests import services
from tests.pages.test_new_file import FILE, entered, submit
from tests.parsing import parsed_configs

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
    return parsed_configs(monkeypatch)


@pytest.mark.parametrize("submitted", [by_service, by_api, by_form, by_file])
def test_a_submission_validates_its_config_once(submitted, ana, page, parsed):
    submitted(ana, page)
    assert Operation.objects.get().config["epochs"] == 7
    assert [len(each) for each in parsed.values()] == [1, 1]
