"""The examples of the OpenAPI document are real: requests are accepted, responses have their form.

With RENEW_EXAMPLES=1 in the environment, the test writes the files anew.
"""

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from drf_spectacular.generators import SchemaGenerator

from apps.operations.api.examples import DIRECTORY
from tests.api.saved import saved
from tests.pages import making

FREE_FORM = {"config", "config_given", "metrics", "result", "counts", "values", "state_summary"}
ERROR = {
    "code": "JOB_ERROR",
    "message": "ValueError: Expected more than 1 value per channel when training",
    "traceback": "Traceback (most recent call last): …",
}


class Request(NamedTuple):
    name: str  # operationId
    method: str
    path: str
    body: Any = None


def requests(api) -> Iterator[Request]:
    """Yield the requests; each is sent before the next one is made."""
    config = {"recipe": "digits", "epochs": 5, "seed": 1}
    new = {"kind": "training", "config": config, "name": "digits, 5 epochs", "tags": ["night"]}
    yield Request("operations_create", "POST", "operations", new)
    failed = making.operation(
        api.user, "FAILED", name="digits, 5 epochs", tags=["night"], error=ERROR
    )
    making.curve(failed, last=3)
    saved(failed)
    one = f"operations/{failed.pk}"
    yield Request("me", "GET", "me")
    yield Request("operations_get", "GET", one)
    yield Request("operations_list", "GET", "operations?q=state:failed")
    edit = {"name": "digits, night run", "tags": ["night", "paper"], "revision": 0}
    yield Request("operations_edit", "PATCH", one, edit)
    yield Request("operations_metrics", "GET", f"{one}/metrics?name=train_loss")
    several = f"operations/metrics?ids={failed.pk}&name=train_loss"
    yield Request("operations_several_metrics", "GET", several)
    yield Request("operations_events", "GET", f"{one}/events")
    yield Request("checkpoints_list", "GET", f"checkpoints?operation_id={failed.pk}")
    bulk = {"action": "archive", "q": "state:failed tag:paper", "dry_run": True}
    yield Request("operations_bulk", "POST", "operations/bulk", bulk)
    yield Request("operations_resume", "POST", f"{one}/resume", {"checkpoint_id": "latest"})


@pytest.fixture
def real(operator):
    """The real requests and responses, by name."""
    found = {}
    for name, method, path, body in requests(operator):
        options = {} if body is None else {"data": json.dumps(body)}
        response = operator.client.generic(
            method, f"/api/v1/{path}", content_type="application/json", **options
        )
        request = {} if body is None else {"request": body}
        found[name] = {**request, "status": response.status_code, "response": response.json()}
    return found


def differences(example: Any, real: Any, place: str) -> Iterator[str]:
    """Yield where fields or types differ; compares the first items of lists, no free-form parts."""
    if example is None or real is None or place.rpartition(".")[2] in FREE_FORM:
        return
    if isinstance(example, dict) and isinstance(real, dict):
        if example.keys() != real.keys():
            yield f"{place}: fields {sorted(example.keys() ^ real.keys())}"
        for name in example.keys() & real.keys():
            yield from differences(example[name], real[name], f"{place}.{name}")
    elif isinstance(example, list) and isinstance(real, list):
        for first, second in zip(example[:1], real[:1], strict=False):
            yield from differences(first, second, place)
    elif kind(example) != kind(real):
        yield f"{place}: {kind(example)}, {kind(real)}"


def kind(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


@pytest.mark.slow
def test_the_examples_are_requests_and_responses_of_today(real):
    if os.environ.get("RENEW_EXAMPLES"):
        for name, example in real.items():
            text = json.dumps(example, indent=2, ensure_ascii=False)
            (DIRECTORY / f"{name}.json").write_text(text + "\n")
    assert sorted(real) == sorted(path.stem for path in DIRECTORY.glob("*.json"))
    for name, answer in real.items():
        example = json.loads((DIRECTORY / f"{name}.json").read_text())
        found = list(differences(example, answer, name))
        assert not found, f"{found}; renew the examples: RENEW_EXAMPLES=1 with this test"
        assert (example["status"], example.get("request")) == (
            answer["status"],
            answer.get("request"),
        )


@pytest.mark.parametrize(
    ("example", "real", "found"),
    [
        ({"a": 1, "b": 2}, {"a": 1.5}, ["x: fields ['b']"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": "x"}]}, ["x.a.b: number, str"]),
        ({"config": {"x": 1}, "a": None}, {"config": {}, "a": 3}, []),
        ({"a": True}, {"a": 1}, ["x.a: bool, number"]),
    ],
)
def test_other_forms_are_detected(example, real, found):
    assert list(differences(example, real, "x")) == found


@pytest.mark.slow
def test_the_document_has_the_examples():
    document = SchemaGenerator().get_schema(request=None, public=True)
    operations = {
        each["operationId"]: each
        for methods in document["paths"].values()
        for each in methods.values()
    }
    for path in DIRECTORY.glob("*.json"):
        example = json.loads(path.read_text())
        response = operations[path.stem]["responses"][str(example["status"])]
        assert response["content"]["application/json"]["example"] == example["response"]
        if "request" in example:
            body = operations[path.stem]["requestBody"]["content"]["application/json"]
            assert body["example"] == example["request"]
