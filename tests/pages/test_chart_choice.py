"""Which charts a user sees, and in which order: one choice for all of their browsers."""

import json

import pytest

from apps.dashboard.views.charts import MAX_NAMES
from apps.operations.models import ChartChoice

CHOICE = {"hidden": ["loss"], "pinned": ["accuracy"], "order": ["accuracy", "loss"]}
CHANGE = {"hide": ["loss"], "pin": ["accuracy"], "order": ["accuracy", "loss"]}


def store(client, user, change):
    text = change if isinstance(change, str) else json.dumps(change)
    return client.post("/charts/choice", {"user": user.pk, "change": text})


def kept(client, user):
    response = client.get("/charts/choice", {"user": user.pk})
    assert response.status_code == 200
    return response.json()["choice"]


def test_a_choice_is_kept_for_its_user(page, as_, ana, vera):
    assert kept(page, ana) is None
    assert store(page, ana, CHANGE).json() == {"choice": CHOICE}
    assert kept(as_(ana), ana) == CHOICE
    assert kept(as_(vera), vera) is None
    store(page, ana, {"show": ["loss"]})
    assert kept(page, ana) == CHOICE | {"hidden": []}
    assert store(as_(vera), vera, CHANGE).status_code == 200, "viewers, too"
    ana.delete()
    assert ChartChoice.objects.count() == 1


def test_a_change_leaves_the_rest_of_the_choice_as_it_is(page, ana):
    store(page, ana, CHANGE)
    store(page, ana, {"hide": ["epoch_time", "loss"]})
    store(page, ana, {"unpin": ["accuracy"], "pin": ["return"]})
    store(page, ana, {"order": ["return", "loss"]})
    assert kept(page, ana) == {
        "hidden": ["loss", "epoch_time"],
        "pinned": ["return"],
        "order": ["return", "loss", "accuracy"],
    }


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_page_of_another_user_neither_reads_nor_changes_the_choice(as_, ana, vera, method):
    store(as_(vera), vera, CHANGE)
    given = {"user": ana.pk, "change": json.dumps({"show": ["loss"]})}
    response = getattr(as_(vera), method)("/charts/choice", given)
    assert response.status_code == 409 and set(response.json()) == {"level", "message"}
    assert ChartChoice.objects.get().hidden == ["loss"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "change"),
        ("[]", "Invalid data"),
        ({"hide": "loss"}, "Expected a list"),
        ({"hidden": []}, "unknown field; allowed: hide, show, pin, unpin, order"),
        ({"order": ["a" * 201]}, "no more than 200 characters"),
        ({"order": ["a"] * 1001}, "no more than 1000 elements"),
        ({"pin": [{}]}, "Not a valid string"),
    ],
)
def test_a_change_of_another_form_is_refused(page, ana, given, says):
    response = store(page, ana, given)
    assert response.status_code == 400 and says in str(response.json()["errors"])
    assert not ChartChoice.objects.exists()


def test_a_choice_of_too_many_charts_is_refused_and_a_long_order_is_cut(page, ana):
    many = [f"chart {number}" for number in range(MAX_NAMES)]
    store(page, ana, {"hide": many, "order": many})
    response = store(page, ana, {"hide": ["loss"]})
    assert response.status_code == 400 and "got 1001 charts; allowed: up to 1000" in str(
        response.json()["errors"]["hide"]
    )
    order = store(page, ana, {"order": ["loss"]}).json()["choice"]["order"]
    assert order == ["loss", *many[:-1]]


def test_a_choice_needs_a_sign_in(client, ana):
    assert client.get("/charts/choice", {"user": ana.pk}).status_code == 302
    assert store(client, ana, CHANGE).status_code == 302
