"""The form that edits an operation, without scripts."""

from apps.operations.models import Operation
from tests.pages import making

FORM = {"name": "new", "tags": "a, b", "project": "p", "notes": "why", "revision": "0"}


def test_the_form_shows_and_stores_what_is_written(page, ana):
    made = making.operation(ana, "COMPLETED", name="<old>", tags=["x"])
    text = page.get(f"/operations/{made.pk}/edit").content.decode()
    assert "&lt;old&gt;" in text and 'value="x"' in text
    response = page.post(f"/operations/{made.pk}/edit", FORM | {"archived": "1"})
    assert response.status_code == 302
    after = Operation.objects.get(pk=made.pk)
    assert (after.name, after.project, after.notes) == ("new", "p", "why")
    assert [tag.name for tag in after.tags.all()] == ["a", "b"] and after.archived_at
    text = page.get(f"/operations/{made.pk}/").content.decode()
    assert "why" in text and "project" in text and "archived" in text
    page.post(f"/operations/{made.pk}/edit", FORM | {"revision": "1"})
    assert Operation.objects.get(pk=made.pk).archived_at is None


def test_a_favourite_is_marked_by_its_button(page, ana, ben):
    made, other = making.operation(ana), making.operation(ben)
    assert page.post(f"/operations/{made.pk}/favourite", {"is_favourite": "1"}).status_code == 302
    assert Operation.objects.get(pk=made.pk).is_favourite
    assert 'aria-label="favourite"' in page.get("/").content.decode()
    page.post(f"/operations/{made.pk}/favourite", {"is_favourite": "0"})
    assert not Operation.objects.get(pk=made.pk).is_favourite
    page.post(f"/operations/{other.pk}/favourite", {"is_favourite": "1"})
    assert not Operation.objects.get(pk=other.pk).is_favourite
    assert page.post("/operations/op_none/favourite").status_code == 404
    assert page.get(f"/operations/{made.pk}/favourite").status_code == 405


def test_the_link_of_a_tag_finds_its_operations(page, ana):
    made = making.operation(ana, tags=["two words"])
    link = "/?q=tag:%22two%20words%22"
    assert link in page.get(f"/operations/{made.pk}/").content.decode()
    assert [line.id for line in page.get(link).context["lines"]] == [made.pk]


def test_a_problem_is_reported_to_the_script(fetch, ana):
    made = making.operation(ana)
    response = fetch.post(f"/operations/{made.pk}/edit", FORM | {"name": "x" * 10_000})
    assert response.status_code == 400 and "at most 120" in response.json()["message"]
    response = fetch.post(f"/operations/{made.pk}/edit", FORM | {"revision": "7"})
    assert response.status_code == 409 and "meanwhile" in response.json()["message"]
    response = fetch.post(f"/operations/{made.pk}/edit", FORM | {"revision": "x"})
    assert response.status_code == 400 and "the revision" in response.json()["message"]


def test_only_those_who_may_change_it_edit_it(page, as_, ana, ben, vera):
    made = making.operation(ben)
    assert "edit-operation" not in page.get(f"/operations/{made.pk}/").content.decode()
    assert page.get("/operations/op_unknown/edit").status_code == 404
    page.post(f"/operations/{made.pk}/edit", FORM)
    assert as_(vera).post(f"/operations/{made.pk}/edit", FORM).status_code == 403
    assert Operation.objects.get(pk=made.pk).revision == 0
    assert "edit-operation" in as_(ben).get(f"/operations/{made.pk}/").content.decode()
