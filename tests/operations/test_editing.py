"""Edits of name, tags, notes, project and marks: strict, recorded, and never lost silently."""

import threading

import pytest
from django.db import connection

from apps.operations import attention
from apps.operations.errors import NotAllowed
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests.editing import edit
from tests.pages import making
from trainops.runtime.errors import ConfigError


@pytest.fixture
def ana(db):
    return making.person("ana", "operator")


def test_an_edit_changes_only_what_it_names_and_is_an_event(ana):
    made = making.operation(ana, name="old", tags=["a", "b"])
    after = edit(
        operation_id=made.pk,
        actor=ana,
        changes={"name": "new", "tags": ["b", "c"], "notes": "line\r\nline", "project": "p"},
        revision=0,
    )
    assert (after.name, after.notes, after.project, after.revision) == ("new", "line\nline", "p", 1)
    assert [tag.name for tag in after.tags.all()] == ["b", "c"]
    event = after.events.first()
    assert (event.what, event.actor) == ("EDITED", "ana")
    assert event.note == "name: 'old' → 'new', tags, notes, project"
    after = edit(operation_id=made.pk, actor=ana, changes={"is_favourite": True})
    assert (after.name, after.is_favourite, after.revision) == ("new", True, 2)


def test_values_that_do_not_differ_are_no_edit(ana):
    made = making.operation(ana, "COMPLETED", name="old", tags=["b", "a"])
    same = {"name": " old", "tags": ["a", "b"], "notes": "", "project": "", "archived": False}
    assert edit(operation_id=made.pk, actor=ana, changes=same, revision=0).revision == 0
    after = edit(operation_id=made.pk, actor=ana, changes=same | {"notes": "why"}, revision=0)
    assert [event.note for event in after.events.filter(what="EDITED")] == ["notes"]
    assert (after.revision, after.notes) == (1, "why")


def test_the_second_of_two_edits_of_one_revision_is_refused(ana):
    made = making.operation(ana, name="old")
    edit(operation_id=made.pk, actor=ana, changes={"name": "first"}, revision=0)
    with pytest.raises(NotAllowed, match="edited by ana meanwhile; its name is now 'first'") as no:
        edit(operation_id=made.pk, actor=ana, changes={"name": "second"}, revision=0)
    assert no.value.details["current_revision"] == 1
    assert Operation.objects.get(pk=made.pk).name == "first"


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_rename_at_once_one_is_refused():
    ana = making.person("ana", "operator")
    made = making.operation(ana, name="old")
    barrier, refused = threading.Barrier(2), []

    def rename(name):
        barrier.wait()
        try:
            edit(operation_id=made.pk, actor=ana, changes={"name": name}, revision=0)
        except NotAllowed:
            refused.append(name)
        finally:
            connection.close()

    threads = [threading.Thread(target=rename, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (loser,) = refused
    assert {Operation.objects.get(pk=made.pk).name, loser} == {"one", "two"}
    assert made.events.filter(what="EDITED").count() == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "x" * 10_000}, "has 10000 characters; at most 120"),
        ({"name": " "}, "allowed: 1 to 120 characters"),
        ({"name": "\u202eright to left override"}, "U\\+202E"),
        ({"notes": "x" * 10_001}, "at most 10000"),
        ({"notes": "\x00"}, "U\\+0000"),
        ({"project": "x" * 65}, "at most 64"),
        ({"tags": ["x" * 65]}, "at most 20 tags of 64"),
    ],
)
def test_values_that_are_not_allowed_say_so(ana, changes, problem):
    made = making.operation(ana)
    with pytest.raises(ConfigError, match=problem):
        edit(operation_id=made.pk, actor=ana, changes=changes, revision=0)
    assert Operation.objects.get(pk=made.pk).revision == 0


@pytest.mark.parametrize("name", ["שלום עולם", "🎉 👩\u200d🔬", "x" * 120])
def test_names_of_any_script_are_kept(ana, name):
    made = making.operation(ana)
    assert edit(operation_id=made.pk, actor=ana, changes={"name": name}, revision=0).name == name


def test_a_written_field_requires_the_revision(ana):
    made = making.operation(ana)
    with pytest.raises(ConfigError, match="the revision of the operation, now 0"):
        edit(operation_id=made.pk, actor=ana, changes={"notes": "x"})


def test_an_active_operation_is_not_archived(ana):
    made = making.operation(ana, "RUNNING")
    with pytest.raises(NotAllowed, match="it is running: cancel it first"):
        edit(operation_id=made.pk, actor=ana, changes={"archived": True})


def test_marks_of_a_failure_end_with_its_resume(ana):
    made = making.operation(ana, "FAILED")
    edit(operation_id=made.pk, actor=ana, changes={"acknowledged": True, "archived": True})
    with pytest.raises(NotAllowed, match="does not need attention"):
        edit(operation_id=made.pk, actor=ana, changes={"acknowledged": True})
    assert made.row.move("RESUMING", actor="ana")
    resumed = Operation.objects.get(pk=made.pk)
    assert (resumed.acknowledged_at, resumed.archived_at) == (None, None)


def test_a_failure_needs_attention_after_a_self_check_was_acknowledged(ana):
    made = making.operation(ana, "RUNNING", self_check="differs")
    edit(operation_id=made.pk, actor=ana, changes={"acknowledged": True})
    assert not Operation.objects.filter(attention.needed()).exists()
    assert made.row.move(State.FAILED, actor="w")
    assert Operation.objects.filter(attention.needed()).get() == made
