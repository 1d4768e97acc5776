"""The curves of several operations: what the pages that draw them together ask for."""

import csv

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.dashboard import compared_curves
from apps.dashboard.views import compare
from apps.operations import versions
from apps.operations.models import LogChunk, MetricPoint
from apps.operations.points import metric_queries
from apps.operations.studies import services as studies
from tests.api.saved import saved
from tests.api.test_comparisons import made, measured
from tests.pages import making
from tests.pages.test_live import followed


@pytest.fixture
def pair(ana):
    one, two = made(ana, "one", learning_rate=0.1), made(ana, "two", learning_rate=0.01)
    measured(one, "val_loss", {10: 0.5, 20: 0.25})
    measured(one, "epoch", {10: 1, 20: 2})
    measured(two, "val_loss", {10: 1.0, 20: 0.75, 30: "nan"})
    return one, two


def ids_of(*operations):
    return ",".join(each.pk for each in operations)


def live(page, *operations, **query):
    response = page.get("/compare/live", {"ids": ids_of(*operations), **query})
    assert response.status_code == 200
    return response.json()


def values(answer, metric):
    """The points of a metric by operation, as (step, value)."""
    found = {}
    for each in answer["operations"]:
        series = [s for s in each["points"]["series"] if s["name"] == metric]
        found[each["name"]] = [p for s in series for p in zip(s["steps"], s["values"], strict=True)]
    return found


def position(answer):
    return ",".join(f"{o['operation_id']}:{o['points']['last']}" for o in answer["operations"])


def test_the_first_answer_has_all_points_with_times_and_axes(page, pair):
    answer = live(page, *pair)
    assert values(answer, "val_loss") == {
        "one": [(10, 0.5), (20, 0.25)], "two": [(10, 1.0), (20, 0.75), (30, None)],
    }  # fmt: skip
    assert values(answer, "epoch") == {"one": [(10, 1), (20, 2)], "two": []}
    (series,) = answer["operations"][1]["points"]["series"]
    assert all(each > 1e9 for each in series["times"]), "Unix times"
    assert answer["settled"] and [each["note"] for each in answer["operations"]] == [
        each.pk[-6:] for each in pair
    ]


def test_later_answers_have_what_is_new(page, ana, pair):
    running = made(ana, "three", state="RUNNING")
    first = live(page, *pair, running)
    assert not first["settled"] and set(first["parts"]) == {"summary", "operations"}
    measured(running, "val_loss", {10: 0.1})
    have = ",".join(f"{name}:{part['digest']}" for name, part in first["parts"].items())
    later = live(page, *pair, running, points=position(first), have=have)
    assert values(later, "val_loss") == {"one": [], "two": [], "three": [(10, 0.1)]}
    assert later["parts"] == {}
    running.row.update(step=30)
    after = live(page, *pair, running, points=position(later), have=have)
    assert set(after["parts"]) == {"operations"} and values(after, "val_loss")["three"] == []
    running.row.update(state="COMPLETED")
    last = live(page, *pair, running, points=position(later), have=have)
    assert last["settled"] and "Still active" not in last["parts"]["summary"]["html"]


def test_more_new_points_than_one_query_reads_come_all_the_same(page, pair, monkeypatch):
    one, _ = pair
    first = live(page, *pair)
    measured(one, "val_loss", {step: float(step) for step in range(30, 40)})
    monkeypatch.setattr(metric_queries, "MAX_POINTS_AFTER", 5)
    found = values(live(page, *pair, points=position(first)), "val_loss")
    assert [step for step, _ in found["one"]] == [*range(30, 40)] and found["two"] == []


def test_the_attempts_whose_points_stand_are_named(page, ana, pair):
    one, _ = pair
    for number, start in ((1, 0), (2, 10)):
        making.attempt(one, number, from_step=start, receipt={"checkpoint": None})
    answer = live(page, *pair)
    assert [each["standing"] for each in answer["operations"]] == [{"2": None}, {}]


def test_the_number_of_queries_does_not_grow_with_operations(page, ana):
    def count(operations):
        first = live(page, *operations)
        with CaptureQueriesContext(connection) as asked:
            live(page, *operations, points=position(first))
        return len(asked)

    operations = [made(ana, f"run {n}") for n in range(6)]
    for each in operations:
        measured(each, "val_loss", {1: 1.0})
        saved(each)
    assert count(operations[:2]) == count(operations)
    without = [made(ana, f"without {n}", state="RUNNING") for n in range(5)]
    assert count([*operations[:1], *without[:1]]) == count([*operations[:1], *without])


def test_the_stream_follows_the_compared_operations_alone(ana, ben, page, pair):
    one, two = pair
    other = made(ana, "other")
    path = f"/compare/live?ids={ids_of(*pair)}&baseline={two.pk}"
    found, _ = followed(ana, path)
    again, _ = followed(ben, f"/compare/live?{found.query}")
    assert again.alike == found.alike and again.query == found.query
    assert f"baseline={two.pk}" in found.query

    def version():
        return versions.current([found.topic])[found.topic]

    before = version()
    other.row.update(step=49)
    assert version() == before
    for change in (
        lambda: two.row.update(step=49),
        lambda: measured(one, "val_loss", {30: 0.1}),
        lambda: one.row.update(state="FAILED"),
    ):
        before = version()
        change()
        assert version() != before


def long_curves(*operations, name="long", number=5000):
    MetricPoint.objects.bulk_create(
        MetricPoint(operation=each, attempt=1, name=name, step=step, value=float(step % 7),
                    at=timezone.now())
        for each in operations for step in range(1, number + 1)
    )  # fmt: skip


def test_long_curves_are_thinned_and_a_window_has_all_of_its_points(page, ana):
    one, two = made(ana, "one"), made(ana, "two")
    long_curves(one, two)
    answer = live(page, one, two)
    assert all(each["points"]["is_thinned"] for each in answer["operations"])
    assert all(len(points) < 1600 for points in values(answer, "long").values())
    windows = f"{one.pk}:1000:1500,{two.pk}:4500:"
    found = page.get("/compare/points", {"windows": windows, "name": "long"}).json()
    steps = {key: each["series"][0]["steps"] for key, each in found["operations"].items()}
    assert steps == {one.pk: [*range(1000, 1501)], two.pk: [*range(4500, 5001)]}


def test_all_points_together_are_limited(page, ana, monkeypatch):
    monkeypatch.setattr(compared_curves, "MAX_POINTS_OF_ALL", 400)
    one, two = made(ana, "one"), made(ana, "two")
    long_curves(one, two, number=1000)
    assert sum(map(len, values(live(page, one, two), "long").values())) < 650


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"name": "loss"}, "windows"),
        ({"windows": "{one}:1"}, "allowed: ID:FIRST:LAST"),
        ({"windows": "{one}:a:b", "name": "loss"}, "got '{one}:a:b'"),
        ({"windows": "{one}:1:2:3", "name": "loss"}, "allowed: ID:FIRST:LAST"),
        ({"windows": ",".join(f"op_{n}:0:" for n in range(13)), "name": "a"}, "got 13; allowed"),
        ({"windows": "{one}:0:", "name": "loss", "step": "1"}, "unknown field; allowed"),
    ],
)
def test_windows_that_cannot_be_read_are_refused(page, pair, query, says):
    one, _ = pair
    given = {name: text.replace("{one}", one.pk) for name, text in query.items()}
    response = page.get("/compare/points", given)
    assert response.status_code == 400
    assert says.replace("{one}", one.pk) in str(response.json())


def test_operations_that_do_not_exist_are_refused(page):
    for path in (
        "/compare/points?windows=op_gone:0:&name=loss",
        "/compare/points.csv?ids=op_gone&name=loss",
        "/compare/live?ids=op_lost,op_gone",
        "/compare/values?ids=op_lost,op_gone",
    ):
        assert page.get(path).status_code == 404, path
        answer = page.get(path, headers={"X-Requested-With": "fetch"})
        assert (answer.status_code, answer.json()["level"]) == (404, "error"), path


def test_the_csv_file_has_all_points_of_a_metric_with_their_operation(page, pair):
    one, two = pair
    response = page.get("/compare/points.csv", {"ids": ids_of(*pair), "name": "val_loss"})
    text = response.getvalue()
    rows = list(csv.DictReader(text.decode().splitlines()))
    assert [(row["operation_id"], row["step"], row["value"]) for row in rows] == [
        (one.pk, "10", "0.5"), (one.pk, "20", "0.25"),
        (two.pk, "10", "1.0"), (two.pk, "20", "0.75"), (two.pk, "30", "NaN"),
    ]  # fmt: skip
    assert {row["name"] for row in rows} == {"val_loss"} and rows[0]["attempt"] == "1"
    again = page.get(
        "/compare/points.csv", {"ids": f"{ids_of(*pair)},{one.pk}", "name": "val_loss"}
    )
    assert again.getvalue() == text, "an operation that is named twice"
    whole = page.get("/compare/points.csv", {"ids": one.pk}).getvalue().decode()
    assert f"{one.pk},epoch,10,1,1.0," in whole


def test_values_come_again_with_what_the_relations_draw(page, pair):
    _, two = pair
    query = {"ids": ids_of(*pair), "baseline": two.pk}
    answer = page.get("/compare/values", query).json()
    assert "-0.5" in answer["html"] and "<html" not in answer["html"]
    assert [each["name"] for each in answer["relations"]["operations"]] == ["one", "two"]


def test_deleted_operations_are_named_and_the_others_go_on(page, ana, pair):
    one, two = pair
    three = made(ana, "three", state="RUNNING")
    measured(three, "val_loss", {10: 0.1})
    gone = one.pk
    one.delete()
    ids = f"{gone},{two.pk},{three.pk}"
    answer = page.get("/compare/live", {"ids": ids}).json()
    assert [each["name"] for each in answer["operations"]] == ["two", "three"]
    assert not answer["settled"]
    summary, rows = answer["parts"]["summary"]["html"], answer["parts"]["operations"]["html"]
    assert f'data-deleted="{gone}"' in summary and "The baseline is now two." in summary
    assert rows.count(gone) == 3 and rows.count("swatch-") == 3, "the others keep their colours"
    assert [each["tint"] for each in answer["operations"]] == [1, 2]
    values = page.get("/compare/values", {"ids": ids}).json()
    assert "swatch-1" in values["html"] and "swatch-0" not in values["html"]
    assert [each["name"] for each in values["relations"]["operations"]] == ["two", "three"]
    opened = page.get(f"/compare/?ids={ids}")
    assert f'data-deleted="{gone}"' in opened.content.decode()
    two.delete()
    answer = page.get("/compare/live", {"ids": ids, "baseline": three.pk}).json()
    assert [each["name"] for each in answer["operations"]] == ["three"]
    assert "The baseline is now" not in answer["parts"]["summary"]["html"]
    assert page.get("/compare/values", {"ids": ids}).status_code == 200
    assert page.get(f"/compare/?ids={ids}").status_code == 404, "one is not compared"


def test_values_are_computed_once_until_something_changes(page, as_, vera, pair):
    one, _ = pair
    query = {"ids": ids_of(*pair)}

    def ask(who=page, **more):
        with CaptureQueriesContext(connection) as asked:
            answer = who.get("/compare/values", query | more).json()
        return len(asked), answer

    opened = page.get("/compare/", query).context["version"]
    num_whole, whole = ask()
    assert whole["version"] == opened
    num_again, again = ask(have=whole["version"])
    assert again == {"version": opened}
    num_other, other = ask(as_(vera))
    assert other == whole, "what was computed for another reader"
    assert num_other < num_whole / 2 and num_again <= num_other
    measured(one, "val_loss", {30: 0.125})
    _, changed = ask(have=whole["version"])
    assert changed["version"] != opened and "0.125" in changed["html"]


def test_values_are_not_computed_again_after_mere_progress(page, pair):
    one, _ = pair
    query = {"ids": ids_of(*pair)}
    whole = page.get("/compare/values", query).json()
    one.row.update(step=7, place="1 of 5 epochs", progressed_at=timezone.now())
    LogChunk.objects.create(operation=one, attempt=1, text="an epoch\n")
    have = query | {"have": whole["version"]}
    assert page.get("/compare/values", have).json() == {"version": whole["version"]}


def test_the_cache_holds_one_answer_for_the_same_operations(page, pair, monkeypatch):
    kept = {}
    monkeypatch.setattr(
        compare.cache, "set", lambda key, answer, seconds: kept.update({key: answer})
    )
    for step in (30, 40):
        measured(pair[0], "val_loss", {step: 0.125})
        page.get("/compare/values", {"ids": ids_of(*pair)})
    assert len(kept) == 1


def test_a_change_while_the_page_is_made_is_shown_by_the_next_values(page, pair, monkeypatch):
    one, _ = pair
    remaining = compare.selection.remaining

    def remaining_then_renamed(*given, **named):
        selected = remaining(*given, **named)
        one.row.update(name="renamed")
        return selected

    monkeypatch.setattr(compare.selection, "remaining", remaining_then_renamed)
    query = {"ids": ids_of(*pair)}
    have = page.get("/compare/", query).context["version"]
    monkeypatch.undo()
    assert "renamed" in page.get("/compare/values", query | {"have": have}).json()["html"]


def test_a_text_that_is_no_id_is_refused_by_name(page, pair):
    fetch = {"X-Requested-With": "fetch"}
    for path, headers in (("/compare/", {}), ("/compare/live", fetch), ("/compare/values", fetch)):
        response = page.get(path, {"ids": f"{ids_of(*pair)},op_typo"}, headers=headers)
        assert response.status_code == 404
        assert "op_typo" in response.content.decode(), path
        assert "data-deleted" not in response.content.decode()


def test_only_an_answer_about_the_subject_of_a_page_says_that_it_is_gone(page):
    fetch = {"X-Requested-With": "fetch"}
    for path in ("/operations/op_gone/live", "/studies/st_gone/", "/compare/live?ids=op_a,op_b"):
        assert page.get(path, headers=fetch).json()["gone"] is True, path
    for path in ("/api/v1/studies/st_gone/dimensions", "/checkpoints/gone/confirm-delete"):
        response = page.get(path, headers=fetch)
        assert response.status_code == 404 and not response.json().get("gone"), path


def test_viewers_see_curves_and_others_do_not(as_, client, vera, pair):
    paths = (
        f"/compare/live?ids={ids_of(*pair)}",
        f"/compare/values?ids={ids_of(*pair)}",
        f"/compare/points?windows={pair[0].pk}:0:&name=val_loss",
        f"/compare/points.csv?ids={ids_of(*pair)}",
    )
    without_role = as_(making.person("noa", None))
    for path in paths:
        assert as_(vera).get(path).status_code == 200, path
        assert client.get(path).status_code == 302
        assert without_role.get(path).status_code == 403


def trials(ana, number):
    """A study whose operations have ended, the last submitted as the best."""
    study = studies.create(
        kind="training", config={"recipe": "digits", "epochs": 1}, owner=ana,
        design={"values": {"learning_rate": [1 / (n + 2) for n in range(number)]}},
    )  # fmt: skip
    operations = list(study.operations.order_by("pk"))
    for n, each in enumerate(operations):
        each.row.update(state="COMPLETED", result={"best": {"value": 1 - n / 100}})
        making.attempt(each)
        measured(each, "val_loss", {10: 1 - n / 100})
    return study, operations


def test_a_study_draws_the_curves_of_its_best_or_its_latest_operations(page, ana, in_process):
    study, operations = trials(ana, 14)
    best = page.get(f"/studies/{study.pk}/curves").json()
    order = [each["operation_id"] for each in best["operations"]]
    lines = page.get(study.get_absolute_url()).context["lines"]
    assert order == [line["id"] for line in lines[:12]] and not best["is_active"]
    assert best["operations"][0]["name"].startswith("learning_rate 0.")
    latest = page.get(f"/studies/{study.pk}/curves?of=latest").json()
    ids = [each["operation_id"] for each in latest["operations"]]
    assert ids == sorted((each.pk for each in operations), reverse=True)[:12]
    later = page.get(f"/studies/{study.pk}/curves?points={position(best)}").json()
    assert set(map(len, values(later, "val_loss").values())) == {0}
    assert page.get("/studies/st_gone/curves").status_code == 404
    operations[0].row.update(state="PENDING")
    assert page.get(f"/studies/{study.pk}/curves").json()["is_active"]
