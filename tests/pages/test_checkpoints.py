"""The page of all checkpoints: filters, orders, deleting several, the preview of a cleanup."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.checkpoints.models import Checkpoint
from tests.api.saved import saved
from tests.pages import making


@pytest.fixture
def made(ana):
    """Two checkpoints of an operation that ended, and one of an active operation."""
    ended = making.operation(ana, "CANCELLED", name="ended one")
    running = making.operation(ana, "RUNNING", name="running one")
    return [
        saved(ended, step=10, type="periodic"),
        saved(ended, step=20, type="cancellation", epoch=2),
        saved(running, step=30, type="periodic", epoch=3),
    ]


def steps(page, query=""):
    rows = page.get(f"/checkpoints/{query}").context["rows"]
    return [row["step"] for row in rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [30, 20, 10]),
        ("?sort=oldest", [10, 20, 30]),
        ("?type=periodic", [30, 10]),
        ("?finished=true", [20, 10]),
        ("?finished=false", [30]),
        ("?operation=ended&type=periodic", [10]),
        ("?kind=training&health=healthy", [30, 20, 10]),
        ("?kind=rl", []),
        ("?type=unheard&pinned=maybe", [30, 20, 10]),  # what is not understood is left out
    ],
)
def test_filters_and_orders_choose_rows(page, made, query, expected):
    assert steps(page, query) == expected


def test_orders_by_size_and_by_operation(page, made):
    for number, each in enumerate(made):
        Checkpoint.objects.filter(pk=each.pk).update(artifacts_size_bytes=[5, 9, 7][number])
    assert steps(page, "?sort=largest") == [20, 30, 10]
    assert steps(page, "?sort=smallest") == [10, 30, 20]
    assert steps(page, "?sort=operation")[-1] == 30


def test_pages_keep_filters_and_order(page, made, monkeypatch):
    monkeypatch.setattr("apps.dashboard.views.checkpoints.PAGE_SIZE", 1)
    text = page.get("/checkpoints/?type=periodic&sort=oldest").content.decode()
    assert 'href="?type=periodic&amp;sort=oldest&cursor=1"' in text
    assert steps(page, "?type=periodic&sort=oldest&cursor=1") == [30]


def test_rows_say_their_place_and_only_those_that_may_go_have_a_box(page, made, ben):
    saved(making.operation(ben, "CANCELLED", name="of ben"))
    text = page.get("/checkpoints/").content.decode()
    assert "epoch 2" in text and text.count('form="chosen"') == 2


def test_the_question_counts_what_is_freed_and_names_what_is_skipped(page, made, ben):
    other = saved(making.operation(ben, "CANCELLED", name="of ben"))
    ids = "&".join(f"id={each.pk}" for each in [*made, other])
    text = page.get(f"/checkpoints/confirm-delete?{ids}").content.decode()
    assert "Delete 2 of 4 checkpoints?" in text and "Frees 154 kB." in text
    assert "No checkpoint is left of ended one." in text
    assert "its checkpoints are in use" in text and "this one belongs to ben" in text
    one = page.get(f"/checkpoints/confirm-delete?id={made[0].pk}").content.decode()
    assert "Frees 76." in one and "No checkpoint is left" not in one


def test_chosen_ones_are_deleted_and_others_are_reported(page, made):
    answer = page.post(
        "/checkpoints/delete",
        {"id": [each.pk for each in made]},
        headers={"X-Requested-With": "fetch"},
    ).json()
    assert answer["message"].startswith("Deleted 2 checkpoints. Freed 154 kB.")
    assert answer["level"] == "warning" and "running one: " in answer["details"][0]
    assert list(Checkpoint.objects.values_list("step", flat=True)) == [30]


def test_more_than_ten_are_confirmed_by_their_number(page, ana):
    ended = making.operation(ana, "CANCELLED")
    ids = "&".join(f"id={saved(ended, step=step).pk}" for step in range(1, 12))
    assert "Enter 11 to confirm" in page.get(f"/checkpoints/confirm-delete?{ids}").content.decode()


def test_an_admin_sees_what_a_cleanup_would_delete_before_it_does(client, made):
    root = making.person("root", "admin")
    client.force_login(root)
    Checkpoint.objects.filter(pk=made[0].pk).update(created_at=timezone.now() - timedelta(days=99))
    text = client.get("/checkpoints/cleanup").content.decode()
    assert "would delete 1 checkpoint and 0 directories without a database row: 76." in text
    assert text.count('data-testid="checkpoint"') == 1
    assert Checkpoint.objects.count() == 3
    said = client.post("/checkpoints/cleanup", follow=True).content.decode()
    assert "Deleted 1 checkpoint and 0 directories" in said and Checkpoint.objects.count() == 2


def test_a_cleanup_is_for_admins(page, made):
    assert page.get("/checkpoints/cleanup").status_code == 403
    assert "/checkpoints/cleanup" not in page.get("/checkpoints/").content.decode()


INITIAL = "initial checkpoint: no attempt computed it"


def test_what_no_attempt_computed_is_shown_as_such(page, ana):
    """Imports, forks and warm starts begin with a checkpoint of attempt 0, signed as such."""
    operation = making.operation(ana, "CANCELLED")
    saved(operation, step=10, attempt=1)
    addresses = ("/checkpoints/", f"/operations/{operation.pk}/")
    for address in addresses:
        assert INITIAL not in page.get(address).content.decode()
    saved(operation, step=0, attempt=0)
    for address in addresses:
        assert page.get(address).content.decode().count(INITIAL) == 1
