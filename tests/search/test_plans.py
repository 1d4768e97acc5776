"""Which indexes serve the list and its counts, on both databases."""

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from apps.dashboard import filters, pages, rows
from apps.dashboard.filters import CRITERIA
from apps.operations.filters import narrowed
from apps.operations.models import Operation, Tag
from apps.operations.points import latest_values
from apps.operations.search import by_value, conditions
from apps.operations.search.completion import completions
from apps.operations.search.conditions import condition
from apps.operations.search.sorting import ordering
from tests.pages import making
from trainops.http.pagination import PageCursor

on_both_databases = pytest.mark.database
NEWEST = ("-created_at", "-pk")
SORTED = ("TEMP B-TREE", "Sort")
SCANNED = ("SCAN operations_operation\n", "Seq Scan on operations_operation")
EDGES = (None, PageCursor(pages.ORDERING, False, "2026-01-01T00:00:00+00:00", "op_training_x"))


@pytest.fixture
def ana(db):
    """With operations on PostgreSQL, whose plans depend on their number; those of SQLite do not."""
    ana = making.person("ana", "operator")
    if connection.vendor == "postgresql":
        making.operation(ana, "COMPLETED")
        made = Operation.objects.values().get()
        copies = (Operation(**made | {"id": f"op_training_{number}"}) for number in range(2000))
        Operation.objects.bulk_create(copies)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE operations_operation")
    return ana


def plan(query):
    return query.explain() + "\n"


def listed(ana, tab):
    return narrowed(Operation.objects.order_by(), CRITERIA[tab], ana)


@on_both_databases
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("tab", ["", "done"])
def test_a_page_of_a_long_tab_is_read_in_the_order_of_an_index(ana, tab, edge):
    found = pages.beyond(rows.select(listed(ana, tab)), edge)
    text = plan(found.order_by(*NEWEST)[:51])
    assert not any(word in text for word in SORTED), text
    names = ("operation_newest", "operation_state", "operation_listed")
    assert any(name in text for name in names), text


@on_both_databases
@pytest.mark.parametrize("tab", ["active", "attention", "resumable"])
def test_a_short_tab_and_its_count_read_only_its_operations(ana, tab):
    for query in (rows.select(listed(ana, tab)).order_by(*NEWEST)[:51], listed(ana, tab)):
        text = plan(query)
        assert not any(word in text for word in (*SCANNED, "operation_newest")), text


@pytest.mark.parametrize("tab", ["", "active", "resumable", "done"])
def test_counts_by_state_are_read_from_the_index_alone(ana, tab):
    text = plan(listed(ana, tab).values_list("state").annotate(number=Count("pk")))
    assert "COVERING INDEX operation_listed" in text, text


@pytest.mark.parametrize("by", [NEWEST, ("name", "pk")])  # PostgreSQL: only after a VACUUM
def test_text_and_names_are_compared_in_an_index_alone(ana, by):
    found = narrowed(Operation.objects.order_by(), {"search": "no such"}, ana).window(by, 0, 51)
    text = plan(found)
    assert "COVERING INDEX operation_listed" in text, text


@pytest.mark.parametrize("shown", [{}, {"kind": "training"}, {"owner": "me"}])
def test_tabs_are_counted_in_their_own_indexes(ana, shown):
    cache.clear()  # counts of another test's person with the same id
    with CaptureQueriesContext(connection) as asked:
        filters.counts(filters.Filters(**shown), ana)
    plans = "".join(explained(query["sql"]) for query in asked if "COUNT" in query["sql"])
    assert "SCAN operations_operation\n" not in plans, plans
    assert plans.count("COVERING INDEX operation_") == 3, plans


def explained(sql):
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        return "".join(f"{row[-1]}\n" for row in cursor.fetchall())


@on_both_databases
@pytest.mark.parametrize("query", ["loss<0.1", "loss<0.1 kind:training -loss=0.05"])
def test_a_condition_on_a_metric_reads_the_operations_that_few_values_name(ana, query):
    with_values(ana)
    found = narrowed(Operation.objects.order_by(*NEWEST), {"q": query}, ana)
    text = plan(found.values("pk")[:51])
    assert not any(word in text for word in (*SCANNED, "operation_newest")), text
    assert found.count() == 1


@on_both_databases
@pytest.mark.parametrize("sort", ["loss", "-loss"])
def test_an_order_by_a_metric_reads_the_first_operations(ana, sort, monkeypatch):
    monkeypatch.setattr(by_value, "FEW", 10)
    with_values(ana)
    some = by_value.leading(listed(ana, ""), sort, 9)
    text = plan(some.order_by(*ordering(sort)).values("pk")[:9])
    assert not any(word in text for word in (*SCANNED, "operation_newest")), text
    assert some.count() == 10


def with_values(ana):
    """Give 20 operations different values of a metric."""
    for number in range(20):
        making.operation(ana, "COMPLETED", metrics={"loss": number / 10})
    while latest_values.write_missing():
        pass


@on_both_databases
@pytest.mark.parametrize("number", [2, 5])
def test_tagged_operations_are_found_whether_they_are_few_or_many(ana, monkeypatch, number):
    monkeypatch.setattr(conditions, "MANY", 3)
    made = [making.operation(ana, "COMPLETED") for _ in range(number)]
    Tag.objects.bulk_create(Tag(operation=each, name="night") for each in made)
    found = narrowed(Operation.objects.all(), {"q": "tag:night"}, ana)
    assert {*found.values_list("pk", flat=True)} == {each.pk for each in made}


@on_both_databases
def test_archived_operations_are_found_by_their_own_index(ana):
    text = plan(Operation.objects.filter(condition("archived:yes", ana)).order_by(*NEWEST)[:51])
    assert "operation_archived" in text, text


@on_both_databases
def test_operations_of_a_project_are_found_by_an_index(ana):
    found = narrowed(Operation.objects.order_by(*NEWEST), {"q": "project:night"}, ana)
    text = plan(found[:51])
    assert "operation_project" in text, text


def test_a_completion_reads_only_operations_with_a_project(ana, django_assert_num_queries):
    with CaptureQueriesContext(connection) as asked:
        assert completions("project:n") == []
    (query,) = asked
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        assert "operation_project" in str(cursor.fetchall())
    with django_assert_num_queries(0):
        assert "recipe:digits" in completions("recipe:dig")
