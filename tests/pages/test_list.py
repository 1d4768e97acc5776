"""The list: one query for the rows, all of its state in the address, nothing that moves."""

import json
from urllib.parse import urlencode

import pytest
from django.core.cache import cache

from apps.dashboard import rows
from apps.operations.models import Operation
from tests.pages import making
from trainops.http.roles import role_of

STATES = ["PENDING", "RUNNING", "RESUMING", "COMPLETED", "FAILED", "CANCELLED"]


def shown(response):
    """The names in the list, in their order."""
    return [line.name for line in response.context["lines"]]


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_row_with_a_word_and_a_way_on(page, ana, state):
    making.operation(ana, state)
    text = page.get("/").content.decode()
    assert f'data-state="{state}"' in text
    assert 'data-focus="action"' in text


def test_the_rows_cost_one_query_however_many_there_are_and_two_more_if_any_waits(
    page, ana, django_assert_num_queries, django_assert_max_num_queries
):
    for number in range(12):
        making.operation(ana, STATES[number % 6], tags=["one", "two"])
    page.get("/")  # counts are remembered for a moment
    assert role_of(ana) == "operator"  # so is the role, for a request
    with django_assert_num_queries(3):  # rows; workers, what they run
        found = rows.select(Operation.objects.all())
        assert len(rows.lines(found, ana)) == 12
    with django_assert_max_num_queries(6):  # session, person, role
        assert len(shown(page.get("/"))) == 12


def test_an_empty_list_says_what_to_do_next(page, as_, vera):
    text = page.get("/").content.decode()
    assert "No operations yet" in text and "/operations/new?recipe=digits" in text
    assert "/operations/new" not in as_(vera).get("/").content.decode()


def test_filters_stand_in_the_address_and_have_counts(page, ana, ben):
    making.operation(ana, "RUNNING", name="runs")
    making.operation(ben, "FAILED", name="broke")
    making.operation(ana, "COMPLETED", name="done", tags=["night"])
    assert set(shown(page.get("/"))) == {"runs", "broke", "done"}
    assert shown(page.get("/?tab=active")) == ["runs"]
    assert shown(page.get("/?tab=attention")) == ["broke"]
    assert shown(page.get("/?tab=resumable")) == ["broke"]
    assert shown(page.get("/?tab=done&owner=me")) == ["done"]
    assert shown(page.get("/?owner=ben")) == ["broke"]
    assert shown(page.get("/?q=tag:night")) == ["done"]
    assert shown(page.get("/?q=RUN")) == ["runs"]
    by_tab = {tab["name"]: tab["count"] for tab in page.get("/").context["tabs"]}
    assert by_tab == {"": 3, "active": 1, "attention": 1, "resumable": 1, "done": 1}


@pytest.mark.parametrize(
    ("verdict", "why"),
    [("differs", "a resume would not be exact"), ("not_loaded", "checkpoints cannot be resumed")],
)
@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED", "COMPLETED"])
def test_a_bad_self_check_needs_attention_in_every_state(page, ana, state, verdict, why):
    making.operation(ana, "FAILED", name="broke")
    making.operation(ana, state, name="checked", self_check=verdict)
    making.operation(ana, state, name="equal", self_check="equal")
    found = page.get("/?tab=attention")
    assert set(shown(found)) == {"broke", "checked"}
    assert why in found.content.decode()
    assert {tab["name"]: tab["count"] for tab in found.context["tabs"]}["attention"] == 2
    answer = page.get("/api/v1/operations?needs_attention=true").json()["data"]
    assert {row["name"] for row in answer} == {"broke", "checked"}
    assert all(row["needs_attention"] for row in answer)
    (other,) = page.get("/api/v1/operations?needs_attention=false").json()["data"]
    assert (other["name"], other["needs_attention"]) == ("equal", False)


def test_a_failed_operation_with_a_bad_self_check_is_counted_once(page, ana):
    making.operation(ana, "FAILED", self_check="differs")
    found = page.get("/?tab=attention")
    assert len(shown(found)) == 1
    assert {tab["name"]: tab["count"] for tab in found.context["tabs"]}["attention"] == 1


@pytest.mark.parametrize(
    "query",
    ["tab=%27", "kind=nonsense", "q=tag:", "cursor=abc", "cursor=W10",
     "cursor=WyItY3JlYXRlZF9hdCIsdHJ1ZSwieCIsInkiXQ", "q=" + "x" * 5000],
)  # fmt: skip
def test_a_broken_address_still_shows_a_list(page, ana, query):
    making.operation(ana)
    assert page.get(f"/?{query}").status_code == 200


@pytest.mark.database
@pytest.mark.parametrize("at_once", [True, False])
def test_pages_go_back_and_forth_without_a_gap_or_a_repeat(page, ana, monkeypatch, at_once):
    monkeypatch.setattr("apps.dashboard.views.listing.PAGE_SIZE", 2)
    for number in range(5):
        making.operation(ana, name=f"n{number}")
    if at_once:  # ties are broken by the id
        same = Operation.objects.order_by("created_at").values("created_at")[:1]
        Operation.objects.update(created_at=same)
    first = page.get("/")
    second = page.get(f"/?cursor={first.context['page'].older}")
    third = page.get(f"/?cursor={second.context['page'].older}")
    assert len({*shown(first), *shown(second), *shown(third)}) == 5
    assert not third.context["page"].older and not first.context["page"].newer
    back = page.get(f"/?cursor={third.context['page'].newer}")
    assert shown(back) == shown(second)
    assert shown(page.get(f"/?cursor={back.context['page'].newer}")) == shown(first)


class TestLive:
    def ask(self, page, lines, top="", **filters):
        seen = ",".join(f"{line.id}:{line.digest}" for line in lines)
        query = urlencode({"rows": seen, "top": top, **filters})
        return page.get(f"/operations/live?{query}").json()

    def test_only_changed_rows_are_sent(self, page, ana):
        quiet = making.operation(ana, "COMPLETED")
        moving = making.operation(ana, "RUNNING")
        response = page.get("/")
        assert self.ask(page, response.context["lines"])["rows"] == {}
        moving.row.update(step=30)
        answer = self.ask(page, response.context["lines"])
        assert set(answer["rows"]) == {moving.pk} and quiet.pk not in answer["gone"]
        assert "60%" in answer["rows"][moving.pk]["html"]

    def test_new_ones_are_counted_and_wait(self, page, ana):
        making.operation(ana)
        response = page.get("/")
        top = response.context["page"].top
        making.operation(ana, "RUNNING")
        cache.clear()
        answer = self.ask(page, response.context["lines"], top)
        assert answer["new"] == 1 and answer["rows"] == {}
        assert self.ask(page, response.context["lines"], top, tab="done")["new"] == 0

    def test_the_first_operation_is_announced_on_an_empty_list(self, page, ana):
        top = page.get("/").context["page"].top
        making.operation(ana)
        assert self.ask(page, [], top)["new"] == 1

    def test_deleted_rows_are_named(self, page, ana):
        gone = making.operation(ana, "COMPLETED")
        response = page.get("/")
        Operation.objects.all().delete()
        assert self.ask(page, response.context["lines"])["gone"] == [gone.pk]

    def test_nonsense_is_survived(self, page):
        assert page.get("/operations/live?rows=,,a,b:c:d,:&top=!!").status_code == 200


def test_names_tags_and_errors_are_escaped(page, ana):
    evil = "<script>alert(1)</script>"
    making.operation(ana, "FAILED", name=evil, error={"code": "X", "message": evil})
    text = page.get("/").content.decode()
    live = json.dumps(page.get(f"/operations/live?rows={Operation.objects.get().pk}:0").json())
    for answer in (text, live):
        assert evil not in answer and "&lt;script&gt;" in answer
    assert evil not in page.get("/?q=" + evil).content.decode()


class TestWhoSeesWhat:
    def test_strangers_sign_in_first(self, client, db):
        response = client.get("/?tab=active")
        assert response.status_code == 302
        assert response.url == "/login/?next=/%3Ftab%3Dactive"

    def test_a_script_of_a_stranger_gets_401(self, client, db):
        response = client.get("/operations/live", headers={"X-Requested-With": "fetch"})
        assert response.status_code == 401

    def test_who_has_no_role_is_told_so(self, as_, db):
        response = as_(making.person("nobody", None)).get("/")
        assert response.status_code == 403
        assert "no role yet" in response.content.decode()

    def test_viewers_read_and_are_offered_nothing_else(self, as_, vera, ana):
        making.operation(ana, "RUNNING")
        text = as_(vera).get("/").content.decode()
        assert "data-action" not in text and "Submit again" not in text

    def test_operators_are_offered_only_what_is_theirs(self, as_, ben, ana):
        making.operation(ana, "RUNNING")
        assert "data-action" not in as_(ben).get("/").content.decode()
