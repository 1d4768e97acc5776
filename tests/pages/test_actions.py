"""Buttons: they ask first, they act by POST only, and they say what came of it."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.checkpoints import integrity, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from tests.api.saved import CHANGED, CHANGED_FILE, damage, saved
from tests.operations.rows import subtask_of
from tests.pages import making

MINUTE = timedelta(minutes=1)
ELSEWHERE = ["https://evil.example/", "//evil.example", "javascript://evil.example/%0aalert(1)"]


def asked(client, action, *operations, **query):
    ids = [operation.pk for operation in operations]
    response = client.get(f"/operations/confirm/{action}", {"id": ids, **query})
    assert response.status_code == 200
    return response.content.decode()


def do(client, action, *operations, **data):
    ids = [operation.pk for operation in operations]
    return client.post(f"/operations/act/{action}", {"id": ids, **data})


def state_of(operation):
    return Operation.objects.get(pk=operation.pk).state


class TestAsking:
    @pytest.mark.parametrize("to", ELSEWHERE)
    def test_no_link_of_a_question_leads_to_another_site(self, page, ana, to):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        for question in (
            "operations/confirm/delete",
            f"checkpoints/{checkpoint.pk}/confirm-delete",
        ):
            query = {"id": operation.pk, "next": to}
            text = page.get(f"/{question}", query).content.decode()
            assert "data-close" in text and "evil.example" not in text, question

    def test_a_cancel_says_that_it_saves(self, fetch, ana):
        text = asked(fetch, "cancel", making.operation(ana, "RUNNING"))
        assert "It will save a checkpoint and stop" in text
        assert "<html" not in text

    def test_without_scripts_the_question_is_a_page(self, page, ana):
        text = asked(page, "cancel", making.operation(ana, "RUNNING"))
        assert "<html" in text and 'data-testid="confirm-cancel"' in text

    def test_a_kill_says_what_is_lost(self, fetch, ana):
        operation = making.operation(ana, "RUNNING")
        assert "all work is lost" in asked(fetch, "kill", operation)
        saved(operation, step=15)
        assert "5 steps since epoch 1" in asked(fetch, "kill", operation)

    def test_a_resume_that_must_be_exact_may_be_accepted_as_it_is(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        saved(operation, step=15)
        assert 'name="accept_inexact"' not in asked(fetch, "resume", operation)
        Operation.objects.update(config=operation.config | {"exact": "required"})
        assert 'name="accept_inexact"' in asked(fetch, "resume", operation)
        do(fetch, "resume", operation, accept_inexact="1")
        operation.refresh_from_db()
        assert (operation.state, operation.accepts_inexact) == ("RESUMING", True)

    def test_a_resume_under_changed_code_names_the_files_and_asks(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        older = saved(operation, step=5)
        assert 'name="accept_inexact"' not in asked(fetch, "resume", operation)
        saved(operation, step=15, environment=CHANGED)
        text = asked(fetch, "resume", operation)
        assert CHANGED_FILE in text and "files of its recipe were changed" in text
        assert 'value="1"\n              required' not in text  # the older one is of this code
        older.delete()
        assert 'value="1"\n              required' in asked(fetch, "resume", operation)
        refused = do(fetch, "resume", operation)
        assert refused.status_code == 409 and CHANGED_FILE in refused.json()["message"]
        do(fetch, "resume", operation, accept_inexact="1")
        operation.refresh_from_db()
        assert operation.state == "RESUMING"

    def test_several_resumes_may_be_accepted_as_they_are(self, fetch, ana):
        several = [making.operation(ana, "FAILED") for _ in range(2)]
        for each in several:
            saved(each, environment=CHANGED)
        assert 'name="accept_inexact"' in asked(fetch, "resume", *several)
        do(fetch, "resume", *several, accept_inexact="1")
        assert set(Operation.objects.values_list("state", flat=True)) == {"RESUMING"}

    def test_a_deletion_says_what_it_frees(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        size = saved(operation).artifacts_size_bytes
        text = asked(fetch, "delete", operation)
        assert f"Frees {size / 1000:.3g} kB" in text and "no longer be resumed" in text

    def test_a_deletion_says_which_clients_go_with_it(self, fetch, ana):
        server = making.operation(ana, "FAILED")
        parts = [subtask_of(server, "CANCELLED", client) for client in (0, 1)]
        size = sum(saved(each).artifacts_size_bytes for each in (server, *parts))
        text = asked(fetch, "delete", server)
        assert (
            f"Frees {size / 1000:.3g} kB. Permanently deletes its 2 subtasks, 3 checkpoints" in text
        )
        do(fetch, "delete", server)
        assert not Operation.objects.exists()

    def test_a_resume_offers_its_checkpoints(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        older = saved(operation, step=5, epoch=0)
        saved(operation, step=15)
        text = asked(fetch, "resume", operation, checkpoint=older.pk)
        assert "continues from epoch 1, repeating 5 steps" in text
        assert text.count('data-testid="choose-checkpoint"') == 2
        assert f'value="{older.pk}" checked' in text

    def test_many_at_once_say_which_are_skipped_and_why(self, fetch, ana, ben):
        running = making.operation(ana, "RUNNING", name="mine")
        done = making.operation(ana, "COMPLETED", name="done")
        others = making.operation(ben, "RUNNING", name="bens")
        text = asked(fetch, "cancel", running, done, others)
        assert "Cancel 1 of 3 operations?" in text
        assert "<strong>done</strong>: it is completed" in text
        assert "<strong>bens</strong>: it belongs to ben" in text
        assert text.count('name="id"') == 1

    def test_many_cancelled_at_once_say_how_many_are_saved_and_how_many_are_not(self, fetch, ana):
        running = making.operation(ana, "RUNNING", lease_expires_at=timezone.now() + MINUTE)
        lost = making.operation(ana, "RUNNING", lease_expires_at=timezone.now() - MINUTE)
        waiting = [making.operation(ana) for _ in range(2)]
        paused = making.operation(ana, "RESUMING")
        saved(paused)
        text = asked(fetch, "cancel", running, lost, *waiting, paused)
        assert "1 saves a checkpoint at the next safe point" in text
        assert "1 keeps its last checkpoint and can be resumed" in text
        assert "3 have no checkpoint and must be submitted again." in text

    def test_many_killed_at_once_say_how_many_lose_everything(self, fetch, ana):
        kept, lost = (making.operation(ana, "RUNNING") for _ in range(2))
        saved(kept)
        text = asked(fetch, "kill", kept, lost)
        assert "1 has no checkpoint and loses all work." in text

    def test_a_resume_names_newer_checkpoints_that_are_damaged(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        saved(operation, step=5, epoch=1)
        bad = saved(operation, step=15, epoch=2)
        damage(bad)
        integrity.check(bad)
        text = asked(fetch, "resume", operation)
        assert "It continues from epoch 1" in text
        assert "The newer checkpoint at epoch 2 is corrupted: altered: model.pt." in text

    def test_a_resume_names_checkpoints_that_the_database_does_not_know(self, fetch, ana):
        operation = making.operation(ana, "FAILED")
        saved(operation, step=5)
        Checkpoint.objects.filter(pk=saved(operation, step=15).pk).delete()
        assert "1 newer checkpoint, up to step 15" in asked(fetch, "resume", operation)

    def test_where_nothing_can_be_done_there_is_no_button(self, fetch, ana):
        text = asked(fetch, "resume", making.operation(ana, "FAILED"))
        assert "no checkpoint to resume from" in text and "confirm-resume" not in text

    def test_asking_changes_nothing(self, fetch, ana):
        operation = making.operation(ana)
        asked(fetch, "cancel", operation)
        assert state_of(operation) == "PENDING"

    def test_an_unknown_action_is_a_404(self, page):
        assert page.get("/operations/confirm/explode").status_code == 404
        assert page.post("/operations/act/explode").status_code == 404


class TestActing:
    def test_a_waiting_one_is_cancelled_at_once(self, fetch, ana):
        operation = making.operation(ana)
        answer = do(fetch, "cancel", operation).json()
        assert answer["level"] == "success" and state_of(operation) == "CANCELLED"

    def test_a_running_one_is_asked_to_stop(self, fetch, ana):
        operation = making.operation(ana, "RUNNING")
        assert "saving a checkpoint first" in do(fetch, "cancel", operation).json()["message"]
        assert Operation.objects.get(pk=operation.pk).stop_requested == "cancel"

    def test_a_second_cancel_is_refused_with_the_reason(self, fetch, ana):
        operation = making.operation(ana, "RUNNING")
        do(fetch, "cancel", operation)
        response = do(fetch, "cancel", operation)
        assert response.status_code == 409 and "already requested" in response.json()["message"]

    def test_a_resume_says_from_where(self, fetch, ana):
        operation = making.operation(ana, "CANCELLED")
        saved(operation)
        answer = do(fetch, "resume", operation).json()
        assert answer["message"] == "Training resumed from epoch 1."
        assert state_of(operation) == "RESUMING"

    def test_a_resume_from_a_chosen_checkpoint(self, fetch, ana):
        operation = making.operation(ana, "CANCELLED")
        older = saved(operation, step=5)
        saved(operation, step=15)
        do(fetch, "resume", operation, checkpoint=older.pk)
        assert Operation.objects.get(pk=operation.pk).resume_from == older.pk

    def test_a_deletion_goes_back_to_the_list(self, fetch, ana):
        operation = making.operation(ana, "COMPLETED")
        answer = do(fetch, "delete", operation, next=operation.get_absolute_url()).json()
        assert answer == {"go": "/"}
        assert not Operation.objects.filter(pk=operation.pk).exists()
        assert "Deleted “" in fetch.get("/").content.decode()

    def test_what_can_be_done_is_done_and_the_rest_is_reported(self, fetch, ana, ben):
        mine, theirs = making.operation(ana), making.operation(ben, name="bens")
        answer = do(fetch, "cancel", mine, theirs).json()
        assert answer["level"] == "warning" and "bens" in answer["details"][0]
        assert (state_of(mine), state_of(theirs)) == ("CANCELLED", "PENDING")

    def test_without_scripts_one_returns_to_the_page(self, page, ana):
        operation = making.operation(ana)
        response = do(page, "cancel", operation, next=operation.get_absolute_url())
        assert response.status_code == 302 and response.url == operation.get_absolute_url()

    @pytest.mark.parametrize("to", ELSEWHERE)
    def test_an_action_redirects_to_no_other_site(self, page, ana, to):
        assert do(page, "cancel", making.operation(ana), next=to).url == "/"

    def test_an_anonymous_visitor_is_sent_to_the_login(self, client, ana):
        operation = making.operation(ana)
        assert do(client, "cancel", operation).url.startswith("/login/")
        assert state_of(operation) == "PENDING"

    def test_get_does_nothing(self, page, ana):
        operation = making.operation(ana)
        assert page.get(f"/operations/act/cancel?id={operation.pk}").status_code == 405
        assert state_of(operation) == "PENDING"

    def test_viewers_are_refused(self, as_, vera, ana):
        operation = making.operation(ana)
        assert do(as_(vera), "cancel", operation).status_code == 403
        assert state_of(operation) == "PENDING"

    def test_others_are_refused(self, as_, ben, ana):
        operation = making.operation(ana)
        do(as_(ben), "cancel", operation)
        assert state_of(operation) == "PENDING"

    def test_an_admin_may(self, as_, ada, ana):
        operation = making.operation(ana)
        do(as_(ada), "cancel", operation)
        assert state_of(operation) == "CANCELLED"

    def test_a_form_from_elsewhere_is_refused(self, ana):
        client = Client(enforce_csrf_checks=True)
        client.force_login(ana)
        operation = making.operation(ana)
        response = do(client, "cancel", operation)
        assert response.status_code == 403 and "The form has expired" in response.content.decode()
        assert state_of(operation) == "PENDING"


class TestCheckpoints:
    @pytest.fixture
    def checkpoint(self, ana):
        return saved(making.operation(ana, "CANCELLED"))

    def test_pinned_and_unpinned(self, fetch, checkpoint):
        fetch.post(f"/checkpoints/{checkpoint.pk}/pin")
        assert Checkpoint.objects.get().pinned
        fetch.post(f"/checkpoints/{checkpoint.pk}/unpin")
        assert not Checkpoint.objects.get().pinned

    def test_verified(self, fetch, checkpoint):
        answer = fetch.post(f"/checkpoints/{checkpoint.pk}/verify").json()
        assert answer["level"] == "warning"  # it has no config, so no job could be made of it
        assert "is undamaged" in answer["message"] and "not loaded" in answer["message"]

    def test_an_altered_one_is_found_out(self, fetch, checkpoint):
        path = storage.directory(checkpoint.artifacts_path) / "model.pt"
        path.write_bytes(b"x" + path.read_bytes()[1:])
        answer = fetch.post(f"/checkpoints/{checkpoint.pk}/verify").json()
        assert answer["level"] == "error" and "model.pt" in answer["message"]
        assert Checkpoint.objects.get().health == "corrupted"

    def test_deleted_after_a_warning(self, fetch, checkpoint):
        text = fetch.get(f"/checkpoints/{checkpoint.pk}/confirm-delete").content.decode()
        assert "it is the only one" in text and Checkpoint.objects.exists()
        fetch.post(f"/checkpoints/{checkpoint.pk}/delete")
        assert not Checkpoint.objects.exists()

    def test_kept_while_it_runs(self, fetch, ana):
        checkpoint = saved(making.operation(ana, "RUNNING"))
        assert fetch.post(f"/checkpoints/{checkpoint.pk}/delete").status_code == 409
        assert Checkpoint.objects.exists()

    def test_not_by_others(self, as_, ben, checkpoint):
        as_(ben).post(f"/checkpoints/{checkpoint.pk}/delete")
        as_(ben).post(f"/checkpoints/{checkpoint.pk}/pin")
        assert Checkpoint.objects.filter(pinned=False).exists()

    def test_a_gone_one_is_said_so(self, fetch, db):
        assert fetch.post("/checkpoints/nothing/pin").status_code == 404
        assert fetch.get("/checkpoints/nothing/confirm-delete").status_code == 404


class TestEverythingThatMatches:
    def ask(self, client, action, **query):
        response = client.get(f"/operations/confirm/{action}", {"matching": "1", **query})
        return response.context["confirmation"]

    def test_the_preview_counts_what_is_skipped_and_why(self, fetch, ana, ben):
        for number in range(12):
            making.operation(ana, "RUNNING" if number else "FAILED", name=f"n{number}")
        making.operation(ben, "FAILED")
        making.operation(ana, "FAILED", name="other", tags=["x"])
        found = self.ask(fetch, "archive", q="-tag:x")
        assert found.title == "Archive 1 of 13 operations?"
        assert found.skipped == [
            ("11 operations", "it is running: cancel it first"),
            ("1 operation", "it belongs to ben"),
        ]

    def test_more_than_the_limit_is_said(self, fetch, ana, monkeypatch):
        monkeypatch.setattr("apps.operations.requests.bulk.MAX_OPERATIONS", 2)
        for _ in range(3):
            making.operation(ana, "FAILED")
        found = self.ask(fetch, "acknowledge", tab="attention")
        assert len(found.ids) == 2
        assert "Only the first 2 of 3 that match are affected." in found.text

    def test_a_query_with_an_error_matches_nothing(self, fetch, ana):
        making.operation(ana, "FAILED")
        assert self.ask(fetch, "delete", q="stat:failed").ids == []


@pytest.mark.parametrize(
    ("action", "said", "unmarked"),
    [
        ("archive", "Archived", {"archived_at": None}),
        ("acknowledge", "Acknowledged", {"acknowledged_at": None}),
        ("favourite", "Marked", {"is_favourite": False}),
    ],
)
def test_marks_are_set_on_several_at_once(fetch, ana, ben, action, said, unmarked):
    mine = [making.operation(ana, "FAILED", name=f"n{number}") for number in range(2)]
    theirs = making.operation(ben, "FAILED", name="theirs")
    answer = do(fetch, action, *mine, theirs).json()
    assert answer["message"] == f"{said} 2 operations." and "theirs" in answer["details"][0]
    assert set(Operation.objects.exclude(**unmarked)) == set(mine)


def test_tags_and_projects_of_several_are_edited(fetch, ana):
    mine = [making.operation(ana, "FAILED", name=f"n{number}", tags=["old"]) for number in range(2)]
    question = asked(fetch, "edit", *mine)
    assert 'name="untags"' in question and "what is left empty stays as it is" in question
    do(fetch, "edit", *mine, tags="new, night ,", untags="old", project="lungs")
    do(fetch, "edit", mine[1], no_project="1", project="ignored")
    found = [
        (sorted(each.tags.values_list("name", flat=True)), each.project)
        for each in Operation.objects.order_by("name")
    ]
    assert found == [(["new", "night"], "lungs"), (["new", "night"], "")]
