"""The list: one query for the rows, all of its state in the address, nothing that moves."""

import html
import json
import re
from itertools import product
from urllib.parse import urlencode

import pytest
from django.core.cache import cache

from apps.dashboard import grouping, rows
from apps.operations.models import Operation
from apps.operations.requests.editing import edit
from apps.operations.search.groups import grouped
from tests.api.saved import saved
from tests.pages import making
from tests.thinning import quick_some
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


def test_the_rows_cost_one_query_however_many_there_are_and_three_more_if_any_waits(
    page, ana, django_assert_num_queries, django_assert_max_num_queries
):
    for number in range(12):
        making.operation(ana, STATES[number % 6], tags=["one", "two"])
    page.get("/")  # counts are remembered for a moment
    assert role_of(ana) == "operator"  # so is the role, for a request
    with django_assert_num_queries(5):  # rows; workers, what they run, shares; tags
        found = rows.select(Operation.objects.all())
        assert len(rows.lines(found, ana)) == 12
    with django_assert_max_num_queries(9):  # session, person, role, views
        assert len(shown(page.get("/"))) == 12


def test_an_empty_list_says_what_to_do_next(page, as_, vera):
    text = page.get("/").content.decode()
    assert "No operations yet" in text and "/operations/new?recipe=digits" in text
    assert "/operations/new" not in as_(vera).get("/").content.decode()


def test_filters_stand_in_the_address_and_have_counts(page, ana, ben):
    making.operation(ana, "RUNNING", name="runs")
    saved(making.operation(ben, "FAILED", name="broke"))
    making.operation(ana, "COMPLETED", name="done", tags=["night"])
    assert set(shown(page.get("/"))) == {"runs", "broke", "done"}
    assert shown(page.get("/?tab=active")) == ["runs"]
    assert shown(page.get("/?tab=attention")) == ["broke"]
    assert shown(page.get("/?tab=resumable")) == ["broke"]
    assert shown(page.get("/?tab=done&owner=me")) == ["done"]
    assert shown(page.get("/?owner=ben")) == ["broke"]
    assert shown(page.get("/?q=tag:night")) == ["done"]
    assert shown(page.get("/?q=RUN")) == ["runs"]
    by_tab = {tab.name: tab.count for tab in page.get("/").context["tabs"]}
    assert by_tab == {"": 3, "active": 1, "attention": 1, "resumable": 1, "done": 1}


def test_an_operation_without_a_checkpoint_is_not_listed_as_resumable(page, ana):
    making.operation(ana, "FAILED", name="broke early")
    found = page.get("/?tab=resumable")
    assert shown(found) == []
    assert {tab.name: tab.count for tab in found.context["tabs"]}["resumable"] == 0


TABS = {
    "": {}, "active": {"status": "PENDING,RESUMING,RUNNING"}, "done": {"status": "COMPLETED"},
    "attention": {"needs_attention": "true"}, "resumable": {"resumable": "true"},
}  # fmt: skip
WORDS = {  # of the search field -> parameters of the API
    "": {},
    "one": {"search": "one"},
    "A failed": {"search": "A failed"},
    "tag:night tag:long": {"tag": "night,long"},
    "worker:worker-1 one": {"worker": "worker-1", "search": "one"},
    "worker:work": {"worker": "work"},
    "recipe:digits": {"recipe": "digits"},
    "reason:job_error": {"reason": "JOB_ERROR"},
    "state:failed -tag:night epochs>=5": {"q": "state:failed -tag:night epochs>=5"},
}


OWNERS = ["", "me", "ben", "unknown"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "owner"), quick_some([*product(WORDS, OWNERS)], every=5))
def test_page_and_api_list_the_same_operations(page, ana, ben, owner, words):
    for number, state in enumerate(STATES * 2):
        tags = ["night", "long"][: number % 3]
        made = making.operation([ana, ben][number % 2], state, tags=tags)
        if number > 4:
            saved(made)
    for tab, criteria in TABS.items():
        found = page.get("/?" + urlencode({"tab": tab, "owner": owner, "q": words}))
        asked = criteria | WORDS[words] | ({"owner": owner} if owner else {})
        listed = page.get("/api/v1/operations?" + urlencode(asked)).json()["data"]
        assert [line.id for line in found.context["lines"]] == [row["id"] for row in listed]
        assert found.context["total"] == len(listed)


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
    assert {tab.name: tab.count for tab in found.context["tabs"]}["attention"] == 2
    answer = page.get("/api/v1/operations?needs_attention=true").json()["data"]
    assert {row["name"] for row in answer} == {"broke", "checked"}
    assert all(row["needs_attention"] for row in answer)
    (other,) = page.get("/api/v1/operations?needs_attention=false").json()["data"]
    assert (other["name"], other["needs_attention"]) == ("equal", False)


def test_a_failed_operation_with_a_bad_self_check_is_counted_once(page, ana):
    making.operation(ana, "FAILED", self_check="differs")
    found = page.get("/?tab=attention")
    assert len(shown(found)) == 1
    assert {tab.name: tab.count for tab in found.context["tabs"]}["attention"] == 1


@pytest.mark.parametrize(
    "query",
    ["tab=%27", "kind=nonsense", "q=tag:", "cursor=abc", "cursor=W10",
     "cursor=WyItY3JlYXRlZF9hdCIsdHJ1ZSwieCIsInkiXQ", "q=" + "x" * 5000],
)  # fmt: skip
def test_a_broken_address_still_shows_a_list(page, ana, query):
    making.operation(ana)
    assert page.get(f"/?{query}").status_code == 200


def test_a_query_with_an_error_names_it_and_lists_nothing(page, ana):
    making.operation(ana)
    response = page.get("/?q=stat:failed")
    assert shown(response) == [] and response.context["total"] == 0
    text = response.content.decode()
    assert "stat:failed&#x27; (character 1)" in text and "allowed: state:" in text


@pytest.mark.database
def test_the_list_is_sorted_by_a_metric_a_config_field_or_a_column(page, ana, monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.listing.PAGE_SIZE", 2)
    for name, loss in (("b", 0.5), ("a", 12.0), ("c", None)):
        metrics = {} if loss is None else {"val_loss": loss}
        making.operation(ana, "COMPLETED", name=name, metrics=metrics)
    first = page.get("/?sort=-val_loss")
    assert shown(first) == ["a", "b"]
    assert (first.context["page"].before, first.context["page"].last) == (0, 2)
    second = page.get(f"/?sort=-val_loss&cursor={first.context['page'].older}")
    assert shown(second) == ["c"] and "3\N{EN DASH}3 of 3" in second.content.decode()
    assert shown(page.get(f"/?sort=-val_loss&cursor={second.context['page'].newer}")) == ["a", "b"]
    assert shown(page.get("/?sort=val_loss")) == ["b", "a"]
    assert shown(page.get("/?sort=name")) == ["a", "b"]
    assert shown(page.get("/?sort=epochs")) == ["c", "a"]  # equal values: newest first
    assert 'aria-sort="descending"' in page.get("/?sort=-name").content.decode()
    assert shown(page.get("/?sort=%3Bdrop")) == ["c", "a"]


def test_additional_columns_show_metrics_and_config_fields(page, ana):
    making.operation(ana, "COMPLETED", metrics={"val_loss": 0.123456}, tags=["night"])
    response = page.get("/?columns=val_loss,epochs,attempt,unknown,-x")
    (line,) = response.context["lines"]
    names = ("val_loss", "epochs", "attempt", "unknown")
    assert response.context["filters"].columns == names
    for text in ("0.1235", "night", *names):
        assert text in line.html
    live = page.get(f"/operations/live?columns=val_loss&rows={line.id}:other").json()
    assert "0.1235" in live["rows"][line.id]["html"]


def test_quoted_names_are_columns(page, ana):
    metrics = {"mAP@0.5": 0.123456, "Loss, best": 7.25, "val_loss": 0.5}
    operation = making.operation(ana, "COMPLETED", metrics=metrics)
    fields = {"columns": '"mAP@0.5" "Loss, best" "val_loss" val_loss -worker'}
    response = page.get("/", fields)
    assert response.context["filters"].columns == ('"mAP@0.5"', '"Loss, best"', "val_loss")
    (line,) = response.context["lines"]
    for text in ("0.1235", "7.25", "0.5", "mAP@0.5"):
        assert text in line.html
    headings = {each.label: each for each in response.context["headings"]}
    assert {"mAP@0.5", "Loss, best", "val_loss"} <= headings.keys() and "Worker" not in headings
    again = page.get("/" + headings["Loss, best"].url)
    assert again.context["filters"].columns == response.context["filters"].columns
    assert again.context["filters"].sort == '"Loss, best"'
    assert [each.id for each in again.context["lines"]] == [operation.pk]


def test_columns_of_the_list_are_removed_by_a_minus_sign(page, ana):
    making.operation(ana, "RUNNING", metrics={"val_loss": 0.123456})
    names = "-metric,epochs,-worker,-progress,-name,-x"
    response = page.get(f"/?columns={names}")
    (line,) = response.context["lines"]
    labels = [each.label for each in response.context["headings"]]
    assert labels == ["Operation", "State", "epochs", "Started"]
    assert not any(f"cell-{name}" in line.html for name in ("metric", "worker", "progress"))
    assert line.html.count("<td") == 5 and 'value="epochs -metric -worker -progress"' in (
        response.content.decode()
    )
    live = page.get(f"/operations/live?columns={names}&rows={line.id}:other").json()
    assert live["rows"][line.id]["html"] == line.html
    opened = page.get(f"/operations/group?columns={names}").content.decode()
    assert "cell-started" in opened and "cell-worker" not in opened


def test_the_summary_says_that_it_counts_a_view_and_the_foot_where_it_is(page, ana, monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.listing.PAGE_SIZE", 2)
    for number in range(3):
        making.operation(ana, "FAILED", name=f"n{number}")
    first = page.get("/")
    assert (
        "in this view" not in first.context["summary"]
        and "1\N{EN DASH}2 of 3" in first.content.decode()
    )
    second = page.get(f"/?cursor={first.context['page'].older}")
    assert "3\N{EN DASH}3 of 3" in second.content.decode()
    assert page.get("/?q=n1").context["summary"].endswith("1 to review in this view")


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
        assert "60 %" in answer["rows"][moving.pk]["html"]

    def test_new_ones_are_counted_and_wait(self, page, ana):
        making.operation(ana)
        response = page.get("/")
        top = response.context["page"].top
        making.operation(ana, "RUNNING")
        cache.clear()
        answer = self.ask(page, response.context["lines"], top)
        assert answer["new"] == 1 and answer["rows"] == {}
        assert self.ask(page, response.context["lines"], top, tab="done")["new"] == 0

    @pytest.mark.parametrize("sort", ["created", "-created", "name", "val_loss", "-val_loss"])
    def test_in_any_order_only_later_ones_are_new(self, page, ana, sort):
        for loss in (0.2, 0.1, 0.3):
            making.operation(ana, name=f"loss {loss}", metrics={"val_loss": loss})
        top = page.get(f"/?sort={sort}").context["page"].top
        assert self.ask(page, [], top, sort=sort)["new"] == 0
        making.operation(ana, name="later", metrics={"val_loss": 0.05})
        assert self.ask(page, [], top, sort=sort)["new"] == 1

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

    @pytest.mark.parametrize("path", ["/", "/api/docs/"])
    def test_a_sign_in_leads_back_to_no_endless_address(self, client, db, path):
        response = client.get(f"{path}?q={'%F0%9F%98%80' * 600}")
        assert (response.status_code, response.url) == (302, "/login/?next=/")

    def test_a_script_of_a_stranger_gets_401(self, client, db):
        response = client.get("/operations/live", headers={"X-Requested-With": "fetch"})
        assert response.status_code == 401

    def test_a_user_without_a_role_sees_a_message(self, as_, db):
        response = as_(making.person("nobody", None)).get("/")
        assert response.status_code == 403
        assert "no role yet" in response.content.decode()

    def test_viewers_read_and_are_offered_nothing_else(self, as_, vera, ana):
        making.operation(ana, "RUNNING")
        text = as_(vera).get("/").content.decode()
        assert "data-action" not in text and "Run again" not in text

    def test_operators_are_offered_only_what_is_theirs(self, as_, ben, ana):
        making.operation(ana, "RUNNING")
        assert "data-action" not in as_(ben).get("/").content.decode()


def test_an_acknowledged_failure_is_not_counted_as_one_to_review(page, ana):
    made = making.operation(ana, "FAILED")
    assert "1 to review" in page.get("/").context["summary"]
    edit(operation_id=made.pk, actor=ana, changes={"acknowledged": True})
    cache.clear()
    assert "to review" not in page.get("/").context["summary"]
    assert shown(page.get("/?tab=attention")) == []


def test_groups_are_counted_anew_after_an_event_and_after_a_deletion(page, ana, monkeypatch):
    calls = []

    def counted(*arguments, **named):
        calls.append(arguments)
        return grouped(*arguments, **named)

    def counts():
        lines = page.get("/?group=state").context["page"].lines
        return {line.group["value"]: line.group["num_operations"] for line in lines}

    monkeypatch.setattr(grouping, "grouped", counted)
    first, other = making.operation(ana), making.operation(ana)
    assert [counts(), counts()] == [{"PENDING": 2}] * 2
    assert len(calls) == 1
    first.row.move("CANCELLED", actor="ana")
    assert counts() == {"PENDING": 1, "CANCELLED": 1}
    other.delete()
    assert counts() == {"CANCELLED": 1}
    assert page.get("/?group=kind").context["page"].lines[0].group["value"] == "training"
    assert len(calls) == 4


def test_the_list_is_shown_in_groups_that_open(page, ana):
    one = making.operation(ana, "COMPLETED", name="one", tags=["night run"])
    one.row.update(result={"best": {"value": 0.25}})
    making.operation(ana, "FAILED", name="two")
    text = page.get("/?group=tag&q=kind:training").content.decode()
    assert text.count('data-testid="group"') == 2 and "best val loss" in text and "0.25" in text
    assert "no tag" in text and "2 by tag" in text
    (address,) = re.findall(r'hx-get="(/operations/group\?[^"]*night[^"]*)"', text)
    rows = page.get(html.unescape(address)).content.decode()
    assert 'data-testid="row"' in rows and ">one<" in rows and ">two<" not in rows
    assert "select-all" not in rows and "group=" not in rows
    refused = page.get("/?group=val_loss").content.decode()
    assert "got &#x27;val_loss&#x27;; allowed: study" in refused
    assert 'data-testid="row"' in page.get("/?group=").content.decode()


def test_the_best_value_is_a_column_and_an_order(page, ana):
    for name, low in (("one", 0.5), ("two", 0.25)):
        making.operation(ana, "COMPLETED", name=name, extremes={"val_loss": [low, 9.875]})
    text = page.get("/?columns=best(val_loss)&sort=best(val_loss)").content.decode()
    text = re.sub(r"<time.*?</time>", "", text)  # has such digits, too
    assert 0 < text.index("0.25") < text.index("0.5") and 'aria-sort="ascending"' in text
    assert "9.875" not in text
    only = page.get("/?q=best(val_loss)%3C0.3").content.decode()
    assert only.count('data-testid="row"') == 1
