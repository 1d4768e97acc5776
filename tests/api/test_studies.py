"""Studies over HTTP: submitted, listed, compared, stopped, deleted."""

import io

import pytest
from django.db import connection

from apps.datasets import services as datasets
from apps.operations.models import Operation, Study
from apps.operations.studies import services as studies
from tests.api.answers import data, error

pytestmark = pytest.mark.usefixtures("in_process")

BARS = b"date,open,high,low,close\n" + b"".join(
    b"2020-01-%02d,100,102,99,101\n" % day for day in range(1, 29)
)
DESIGN = {"values": {"parameters.fast": [3, 5], "parameters.slow": [4, 9]}}


@pytest.fixture
def submission(db):
    prices = datasets.add_table(io.BytesIO(BARS), filename="bars.csv").pk
    config = {"recipe": "sma_crossover", "dataset": prices}
    return {"kind": "backtest", "config": config, "design": DESIGN, "name": "one"}


@pytest.fixture
def study(operator, submission):
    return data(operator.post("studies", submission), 202)


def test_a_study_is_accepted_and_says_where_it_is(operator, submission):
    response = operator.post("studies", submission)
    study = data(response, 202)
    assert response["Location"] == f"/api/v1/studies/{study['id']}"
    assert (study["num_planned"], study["counts"], study["owner"]) == (3, {"PENDING": 3}, "otto")
    assert (study["metric"], study["mode"], study["best"]) == ("sharpe", "max", None)
    assert study["left_out"][0]["values"] == {"parameters.fast": 5, "parameters.slow": 4}
    tried = {tuple(line["study_values"].values()) for line in study["operations"]}
    assert tried == {(3, 4), (3, 9), (5, 9)}
    assert data(operator.client.get(response["Location"])) == study


def test_the_best_comes_first_once_there_are_results(operator, study):
    for operation in Operation.objects.all():
        slow = operation.study_values["parameters.slow"]
        operation.row.update(state="COMPLETED", result={"sharpe": slow / 10, "return": 0.5})
    found = data(operator.get(f"studies/{study['id']}"))
    assert found["percent"] == 100 and not found["is_active"]
    assert found["best"]["value"] == 0.9 and found["best"]["values"]["parameters.slow"] == 9
    assert [line["value"] for line in found["operations"]] == [0.9, 0.9, 0.4]
    assert found["operations"][0]["figures"]["return"] == 0.5


def test_what_is_reported_of_one_study_is_of_one_moment(operator, study):
    """The last operation ends after the lines were read: every part shows it as before."""

    def end_after_lines(execute, sql, *rest):
        if seen and seen.pop() == "lines":
            Operation.objects.update(state="COMPLETED", result={"sharpe": 0.5})
        if "study_values" in sql and sql.startswith("SELECT"):
            seen.append("lines")
        return execute(sql, *rest)

    seen = []
    with connection.execute_wrapper(end_after_lines):
        found = data(operator.get(f"studies/{study['id']}"))
    assert set(Operation.objects.values_list("state", flat=True)) == {"COMPLETED"}
    assert {line["state"] for line in found["operations"]} == {"PENDING"}
    assert (found["counts"], found["percent"], found["is_active"]) == ({"PENDING": 3}, 0, True)


def test_between_the_folds_of_a_walk_forward_it_continues(operator, submission):
    """Who asks until it has ended must not stop when nothing runs for a moment."""
    submission["design"] = DESIGN | {"walk_forward": {"folds": 1, "in_sample": 0.5}}
    study = data(operator.post("studies", submission), 202)
    path = f"studies/{study['id']}"
    Operation.objects.update(state="COMPLETED", result={"sharpe": 0.5})
    assert data(operator.get(path))["is_active"]

    studies.advance(study["id"])
    Operation.objects.update(state="COMPLETED", result={"sharpe": 0.4})
    assert not data(operator.get(path))["is_active"]


@pytest.mark.parametrize(
    "ended", [{"state": "FAILED"}, {"state": "COMPLETED", "result": {"sharpe": None}}]
)
def test_a_fold_in_which_nothing_can_be_chosen_is_waited_for_no_longer(operator, submission, ended):
    submission["design"] = DESIGN | {"walk_forward": {"folds": 1, "in_sample": 0.5}}
    study = data(operator.post("studies", submission), 202)
    Operation.objects.update(**ended)
    assert studies.advance(study["id"]) == 0
    assert not data(operator.get(f"studies/{study['id']}"))["is_active"]


@pytest.mark.slow
def test_studies_are_listed_newest_first(operator, colleague, submission):
    names = ["a", "b", "c"]
    for name in names:
        operator.post("studies", submission | {"name": name})
    page = operator.get("studies", limit=2).json()
    assert [row["name"] for row in page["data"]] == ["c", "b"] and page["next"]
    assert page["data"][0]["counts"] == {"PENDING": 3}
    assert [row["name"] for row in data(operator.client.get(page["next"]))] == ["a"]
    assert data(colleague.get("studies", owner="me")) == []
    assert len(data(colleague.get("studies", owner="otto"))) == 3


def test_the_same_idempotency_key_answers_with_the_first_study(operator, submission):
    key = {"Idempotency-Key": "k1"}
    first = data(operator.post("studies", submission, headers=key), 202)
    assert data(operator.post("studies", submission, headers=key), 202)["id"] == first["id"]
    refused = operator.post("studies", submission | {"name": "two"}, headers=key)
    error(refused, 409, "IDEMPOTENCY_KEY_REUSED")
    assert Study.objects.count() == 1


def test_what_is_wrong_is_named_by_its_field(operator, submission):
    wrong = operator.post("studies", submission | {"design": {"values": {}}})
    assert "design" in error(wrong, 400, "INVALID_CONFIG")["details"]["fields"]
    wrong = operator.post("studies", submission | {"design": DESIGN | {"method": "all"}})
    assert "design.method" in error(wrong, 400, "INVALID_CONFIG")["details"]["fields"]
    assert not Operation.objects.exists()


@pytest.mark.slow
def test_a_study_is_stopped_resumed_and_deleted_by_its_owner(operator, colleague, viewer, study):
    address = f"studies/{study['id']}"
    for other in (colleague, viewer):
        for action in ("cancel", "kill", "resume"):
            error(other.post(f"{address}/{action}"), 403, "PERMISSION_DENIED")
        error(other.delete(address), 403, "PERMISSION_DENIED")
    assert error(operator.delete(address), 409, "STUDY_ACTIVE")["details"]["num_active"] == 3
    assert data(operator.post(f"{address}/cancel"))["num_operations"] == 3
    assert data(operator.get(address))["counts"] == {"CANCELLED": 3}
    assert data(operator.post(f"{address}/resume"))["num_operations"] == 3
    assert data(operator.post(f"{address}/kill"))["num_operations"] == 3
    data(operator.delete(address))
    error(operator.get(address), 404, "STUDY_NOT_FOUND")
    assert not Operation.objects.exists()


TPE = {
    "values": {"parameters.fast": {"low": 2, "high": 9, "whole": True}},
    "method": "tpe", "samples": 4, "parallel": 1,
    "further_objectives": [{"metric": "drawdown", "mode": "min"}],
}  # fmt: skip


@pytest.fixture
def search(operator, submission):
    return data(operator.post("studies", submission | {"design": TPE}), 202)


def test_a_study_is_continued_with_more_trials(operator, viewer, search):
    address = f"studies/{search['id']}/extend"
    assert (search["num_trials"], len(search["operations"]), search["is_active"]) == (4, 1, True)
    assert data(operator.post(address, {"trials": 3}))["num_operations"] == 0, "one is active"
    assert data(operator.get(f"studies/{search['id']}"))["num_trials"] == 7
    assert operator.post(address, {"trials": 0}).status_code == 400
    assert "allowed: 1 to 493" in str(
        error(operator.post(address, {"trials": 494}), 400, "INVALID_CONFIG")
    )
    assert viewer.post(address, {"trials": 1}).status_code == 403


def test_the_pareto_front_of_several_objectives(operator, search):
    results = [(2.0, 0.3), (1.0, 0.1), (1.0, 0.2), (2.0, 0.3)]
    study = Study.objects.get()
    for sharpe, drawdown in results:
        active = study.operations.filter(state="PENDING")
        active.update(state="COMPLETED", result={"sharpe": sharpe, "drawdown": drawdown})
        studies.advance(study.pk)
    found = data(operator.get(f"studies/{study.pk}"))
    figures = {
        line["id"]: (line["value"], line["figures"]["drawdown"]) for line in found["operations"]
    }
    best = {each for each in figures.values() if each != (1.0, 0.2)}
    assert {figures[each] for each in found["front"]} == best
