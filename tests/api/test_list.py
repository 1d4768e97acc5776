"""The list of operations: pages, filters, order, and what a page costs."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.operations.api.serializers import OperationSerializer
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from tests.api.answers import data, error
from tests.api.saved import saved
from tests.operations.rows import CONFIG, claimed, in_state, submitted
from tests.pages import making
from tests.thinning import quick_some

SUBMISSION = {"kind": "training", "config": CONFIG}


def ids(response):
    return [row["id"] for row in data(response)]


@pytest.fixture
def many(operator):
    """25 operations, each a second older than the one before."""
    moment = timezone.now()
    template = submitted(operator.user)
    rows = []
    for number in range(1, 25):
        row = Operation.objects.get(pk=template.pk)
        row.pk, row.name = f"op_training_20260101_000000_{number:06x}", f"row {number}"
        row.created_at = moment - timedelta(seconds=number)
        rows.append(row)
    Operation.objects.bulk_create(rows)
    return [template.pk, *(row.pk for row in rows)]


def test_pages_follow_each_other_without_gap_or_double(operator, many):
    seen, response = [], operator.get("operations", limit=10)
    while True:
        seen += ids(response)
        if not (following := response.json()["next"]):
            break
        response = operator.client.get(following)
    assert seen == many
    back = operator.client.get(response.json()["previous"])
    assert ids(back) == many[10:20]


def test_the_count_is_given_where_it_is_asked_for(operator, many):
    assert operator.get("operations", limit=10).json()["total_count"] is None
    assert operator.get("operations", limit=10, count="true").json()["total_count"] == 25
    assert operator.get("operations").json()["total_count"] == 25  # all on one page: free


def test_a_page_costs_two_queries_and_the_login_and_three_more_if_anything_waits(
    operator, many, django_assert_num_queries
):
    saved(in_state(State.FAILED, operator.user))
    operator.get("operations")
    # session, user, role; operations, tags; workers, attempts, shares
    with django_assert_num_queries(8):
        operator.get("operations")


def test_a_row_is_what_the_schema_says(operator):
    submitted(operator.user)
    (row,) = data(operator.get("operations"))
    assert row.keys() == OperationSerializer().fields.keys()


@pytest.mark.slow
def test_filters(operator, colleague):
    mine = data(operator.post("operations", SUBMISSION | {"tags": ["a", "b"], "name": "Iris"}), 202)
    theirs = data(colleague.post("operations", SUBMISSION | {"tags": ["a"]}), 202)
    running = claimed(colleague.user, "worker-7", epochs=3)
    first, second = mine["id"], theirs["id"]
    assert running.pk == first  # the longest waiting is taken first
    waiting = Operation.objects.exclude(pk__in=[first, second]).get().pk
    found = {
        "kind=training": 3,
        "state=RUNNING": [first],
        "state=PENDING,RUNNING": 3,
        "state=PENDING&state=RUNNING": 3,
        "owner=me": [first],
        "owner=carla": [waiting, second],
        "owner=nobody": [],
        "tag=a": [second, first],
        "tag=a,b": [first],
        "worker=worker-7": [first],
        "worker=worker": [first],
        "worker=orker-7": [],
        "recipe=digits": 3,
        "recipe=digit": [],
        "reason=STALLED,JOB_ERROR": [],
        "created_after=2020-01-01": 3,
        "created_before=2020-01-01T00:00:00Z": [],
        "search=iris": [first],
        "search=is+IR": [first],
        "search=iris+row": [],
        f"search={second[-6:].upper()}": [second],
        "resumable=true": [],
        "resumable=false": 3,
        "state=RUNNING&owner=carla": [],
    }
    for query, expected in found.items():
        rows = ids(operator.client.get(f"/api/v1/operations?{query}"))
        assert (len(rows) if isinstance(expected, int) else rows) == (expected), query


def test_resumable_means_that_a_healthy_checkpoint_is_left(operator):
    empty, whole, broken = (in_state(State.FAILED, operator.user) for _ in range(3))
    saved(whole)
    saved(broken)
    broken.checkpoints.update(health="corrupted")
    assert ids(operator.get("operations", resumable="true")) == [whole.pk]
    offered = {row["id"]: row["allowed_actions"] for row in data(operator.get("operations"))}
    assert offered[whole.pk] == ["resume", "delete"]
    assert offered[empty.pk] == offered[broken.pk] == ["delete"]


@pytest.mark.parametrize(
    "ordering",
    quick_some(["priority", "-priority", "name", "queued_at", "-created_at"], every=3),
)
def test_any_order_pages_completely(operator, many, ordering):
    seen, address = [], f"/api/v1/operations?limit=7&ordering={ordering}"
    while address:
        response = operator.client.get(address)
        seen += ids(response)
        address = response.json()["next"]
    assert sorted(seen) == sorted(many)


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("state=running", "state", "allowed: PENDING, RUNNING"),
        ("kind=cooking", "kind", "allowed: training"),
        ("sate=RUNNING", "sate", "allowed: kind, status"),
        ("reason=bored", "reason", "allowed: CANCELLED_BY_PERSON"),
        ("created_after=yesterday", "created_after", "format"),
        ("resumable=perhaps", "resumable", "boolean"),
        ("limit=0", "limit", "1 to 500"),
        ("ordering=-", "ordering", "allowed: created_at, queued_at"),
        ("cursor=abc", "cursor", "use the links of the list"),
        ("worker=" + "x" * 121, "worker", "120"),
    ],
)
def test_a_wrong_filter_names_itself_and_what_is_allowed(operator, query, field, says):
    problem = error(operator.client.get(f"/api/v1/operations?{query}"), 400, "VALIDATION_ERROR")
    assert says in problem["details"]["fields"][field]


def test_numbers_that_json_cannot_say_are_text(operator):
    operation = in_state(State.RUNNING, operator.user)
    operation.row.update(metrics={"loss": "nan"}, step=5, total_steps=20, steps_per_second=2.5)
    (row,) = data(operator.get("operations"))
    assert row["metrics"] == {"loss": "nan"}
    assert (row["percent"], row["eta_seconds"]) == (25.0, 6.0)


def test_a_query_narrows_the_list_and_its_errors_name_the_place(operator):
    row = submitted(operator.user)
    row.row.update(attempt=1, metrics={"val_loss": 0.05})
    assert ids(operator.get("operations", q="val_loss<0.1 kind:training")) == [row.pk]
    assert ids(operator.get("operations", q="val_loss>0.1")) == []
    problem = error(operator.get("operations", q="kind:rl stat:x"), 400, "INVALID_QUERY")
    assert problem["details"]["offset"] == 8 and "allowed: state:" in problem["message"]


@pytest.mark.database
def test_a_list_is_ordered_by_a_metric_page_by_page(operator):
    rows = [submitted(operator.user) for _ in range(3)]
    for row, loss in zip(rows, (0.5, 12.0, None), strict=True):
        row.row.update(attempt=1, metrics={} if loss is None else {"val_loss": loss})
    low, high, none = (row.pk for row in rows)
    first = operator.get("operations", ordering="-val_loss", limit=2)
    assert ids(first) == [high, low] and first.json()["previous"] is None
    second = operator.client.get(first.json()["next"])
    assert ids(second) == [none] and second.json()["next"] is None
    assert ids(operator.client.get(second.json()["previous"])) == [high, low]
    assert ids(operator.get("operations", ordering="val_loss")) == [low, high, none]
    problem = error(operator.get("operations", ordering="a b"), 400, "VALIDATION_ERROR")
    assert "a metric or a config field" in str(problem["details"])


def test_groups_take_the_filters_of_the_list(operator):
    for state, tags in (("FAILED", ["x"]), ("FAILED", []), ("COMPLETED", ["x"])):
        making.operation(operator.user, state, tags=tags)
    found = data(operator.get("operations/groups", group_by="tag", q="state:failed"))
    assert not found["has_more"] and found["group_by"] == "tag"
    groups = {each["value"]: (each["counts"], each["query"]) for each in found["groups"]}
    assert groups == {"x": ({"FAILED": 1}, "tag:x"), None: ({"FAILED": 1}, "no:tag")}
    first = data(operator.get("operations/groups", group_by="tag", limit=1, kind="training"))
    assert first["has_more"] and len(first["groups"]) == 1
    for query in ({}, {"group_by": "val_loss"}, {"group_by": "tag", "offset": -1}):
        error(operator.get("operations/groups", **query), 400, "VALIDATION_ERROR")
    error(operator.get("operations/groups", group_by="tag", q="x:y"), 400, "INVALID_QUERY")
