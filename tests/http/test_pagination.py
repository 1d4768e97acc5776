"""Lists are walked by keyset: each row once, in order, whatever happens meanwhile."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from trainops.http.pagination import NewestFirst, NewestFirstCounted

pytestmark = pytest.mark.django_db
START = datetime(2024, 1, 1, tzinfo=UTC)


class ByJoined(NewestFirst):
    default_ordering = "-date_joined"


class Counted(NewestFirstCounted):
    default_ordering = "-date_joined"


class View:
    ordering_fields = ("username", "last_name")


@pytest.fixture
def users():
    rows = [
        User(
            username=f"user{n:03}",
            last_name="same" if n % 2 else "other",
            date_joined=START + timedelta(hours=n // 7),  # seven share each moment
        )
        for n in range(60)
    ]
    return User.objects.bulk_create(rows)


def page(address, *, paginator=ByJoined, rows=None):
    request = Request(APIRequestFactory().get(address))
    made = paginator()
    found = made.paginate_queryset(User.objects.all() if rows is None else rows, request, View())
    return found, made.get_paginated_response(found).data


def walk(address, link="next"):
    while address:
        found, data = page(address)
        yield found
        address = getattr(data, link)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 3, 7, 30, 59, 60, 500])
@pytest.mark.parametrize(
    "ordering", ["-date_joined", "date_joined", "username", "-username", "last_name"]
)
def test_walking_there_and_back_shows_each_row_once(users, limit, ordering):
    sign = "-" if ordering.startswith("-") else ""
    expected = list(User.objects.order_by(ordering, f"{sign}id"))
    pages = list(walk(f"/x?limit={limit}&ordering={ordering}"))
    assert [row for found in pages for row in found] == expected
    assert len(pages) == -(-len(expected) // limit)
    address = f"/x?limit={limit}&ordering={ordering}"
    while following := page(address)[1].next:
        address = following
    backwards = [row for found in walk(address, "previous") for row in reversed(found)]
    assert backwards == expected[::-1]


def test_rows_that_arrive_meanwhile_shift_nothing(users):
    first, data = page("/x?limit=10")
    User.objects.create(username="new", date_joined=START + timedelta(days=99))
    User.objects.filter(pk=first[-1].pk).delete()
    second, _ = page(data.next)
    expected = list(User.objects.exclude(username="new").order_by("-date_joined", "-id"))
    assert second == expected[9:19]


def test_rows_may_be_dicts(users):
    rows = User.objects.values("id", "date_joined")
    found, data = page("/x?limit=7", rows=rows)
    again, _ = page(data.next, rows=rows)
    assert len({row["id"] for row in found + again}) == 14


def test_a_count_is_free_on_one_page_and_asked_for_on_more(users, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert page("/x?limit=60")[1].total_count == 60
    with django_assert_num_queries(1):
        assert page("/x?limit=10")[1].total_count is None
    assert page("/x?limit=10&count=true")[1].total_count == 60
    assert page("/x?limit=10", paginator=Counted)[1].total_count == 60


def test_an_empty_list_has_no_links():
    found, data = page("/x")
    assert (found, data.total_count, data.next, data.previous) == ([], 0, None, None)


def test_filters_stay_in_the_links(users):
    assert "owner=ana" in page("/x?limit=10&owner=ana")[1].next


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=%C2%B2", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("count=1", "count"),
        ("ordering=password", "ordering"),
        ("ordering=-", "ordering"),
        ("ordering=", "ordering"),
        ("cursor=%FF", "cursor"),
        ("cursor=bm9uc2Vuc2U", "cursor"),
        ("cursor=WzEsMiwzXQ", "cursor"),  # three values
        ("cursor=WyItZGF0ZV9qb2luZWQiLGZhbHNlLCJ4IiwxXQ", "cursor"),  # no date
        ("cursor=WyItZGF0ZV9qb2luZWQiLGZhbHNlLG51bGwsbnVsbF0", "cursor"),  # nulls
        ("cursor=WyItZGF0ZV9qb2luZWQiLGZhbHNlLHt9LFtdXQ", "cursor"),  # containers
        ("cursor=WyJ1c2VybmFtZSIsZmFsc2UsIngiLDFd", "cursor"),  # of another ordering
    ],
)
def test_bad_parameters_are_named(users, query, field):
    with pytest.raises(ValidationError) as error:
        page(f"/x?{query}")
    assert list(error.value.detail) == [field]
