"""Saved views: of one user, or shared by an admin; by page and API."""

import pytest

from apps.operations.models import SavedView
from tests.pages import making


@pytest.fixture
def ana(db, client):
    ana = making.person("ana", "viewer")
    client.force_login(ana)
    return ana


FORM = {"name": "night 🎉", "q": "tag:night", "columns": "val_loss,epochs", "sort": "-val_loss"}
FORM |= {"group": "learning_rate"}
BODY = {"name": "b", "query": "tag:x", "columns": ["epochs"], "sort": "epochs", "group_by": "tag"}


def post(client, body):
    return client.post("/api/v1/views", body, content_type="application/json")


def test_the_page_saves_shows_replaces_and_deletes_a_view(ana, client):
    assert "tag:night" in client.get("/operations/views", {"q": "tag:night"}).content.decode()
    for _ in range(2):
        client.post("/operations/views", FORM)
    view = SavedView.objects.get(owner=ana)
    assert (view.name, view.query, view.columns) == (
        "night 🎉",
        "tag:night",
        ["val_loss", "epochs"],
    )
    text = client.get("/").content.decode()
    assert (
        "/?q=tag%3Anight&amp;sort=-val_loss&amp;columns=val_loss%2Cepochs&amp;group=learning_rate"
        in text
    )
    client.post(f"/operations/views/{view.pk}/delete")
    assert not SavedView.objects.exists()


def test_the_api_saves_lists_and_deletes_a_view(ana, client):
    saved = post(client, BODY).json()["data"]
    assert saved == BODY | {"id": saved["id"], "owner": "ana", "is_shared": False}
    assert client.get("/api/v1/views").json()["data"] == [saved]
    assert client.delete(f"/api/v1/views/{saved['id']}").status_code == 200
    assert client.delete(f"/api/v1/views/{saved['id']}").status_code == 404


def test_a_view_has_the_columns_that_are_removed(ana, client):
    client.post("/operations/views", FORM | {"columns": "-worker,epochs,-started"})
    assert SavedView.objects.get().columns == ["epochs", "-worker", "-started"]
    assert "columns=epochs%2C-worker%2C-started" in client.get("/").content.decode()


def test_only_admins_share_and_others_see_only_shared_ones(ana, client):
    assert post(client, BODY | {"is_shared": True}).status_code == 403
    client.force_login(making.person("ada", "admin"))
    shared = post(client, BODY | {"is_shared": True}).json()["data"]
    post(client, BODY | {"name": "own"})
    client.force_login(ana)
    assert [view["name"] for view in client.get("/api/v1/views").json()["data"]] == ["b"]
    assert client.delete(f"/api/v1/views/{shared['id']}").status_code == 404


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "x" * 10_000}, "name"),
        ({"name": "\u202eabc"}, "U+202E"),
        ({"query": "stat:x"}, "allowed: state:"),
        ({"columns": ["a b"]}, "names of metrics"),
        ({"columns": ["-name"]}, "to remove a column: -state, -progress"),
        ({"sort": "a b"}, "descending with a minus sign"),
        ({"group_by": "a b"}, "allowed: study"),
    ],
)
def test_a_view_that_is_not_allowed_says_why(ana, client, change, problem):
    response = post(client, BODY | change)
    assert response.status_code == 400 and problem in response.content.decode()


@pytest.mark.parametrize(
    ("query", "followed"),
    [
        ("owner:ana", "owner:ana.k"),
        ('epochs>=5  -OWNER:ben,"ana" tag:ana', "epochs>=5  -OWNER:ben,ana.k tag:ana"),
        ('owner:anabel "owner:ana" ana', 'owner:anabel "owner:ana" ana'),
    ],
)
def test_the_owner_in_a_view_follows_a_new_username(ana, query, followed):
    ben = making.person("ben", "operator")
    own, of_ben = (SavedView.objects.create(owner=each, query=query) for each in (ana, ben))
    ana.username = "ana.k"
    ana.save()
    own.refresh_from_db()
    of_ben.refresh_from_db()
    assert own.query == of_ben.query == followed


def test_the_owner_me_and_a_view_without_room_stay_after_a_new_username(ana):
    me, long = making.person("me", "viewer"), "owner:ana " + "x" * 990
    for number, query in enumerate(("owner:me", long)):
        SavedView.objects.create(owner=ana, name=str(number), query=query)
    for each in (ana, me):
        each.username += ".k"
        each.save()
    assert list(SavedView.objects.values_list("query", flat=True)) == ["owner:me", long]
