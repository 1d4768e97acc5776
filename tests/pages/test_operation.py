"""The page of one operation, in every state, and its live answers."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.dashboard import menu
from apps.workers.models import Worker
from tests.api.saved import WEIGHTS, damage, saved
from tests.operations import rows
from tests.pages import making
from tests.pages.test_list import STATES

EVIL = "<script>alert(1)</script>"


def text_of(page, operation):
    response = page.get(f"/operations/{operation.pk}/")
    assert response.status_code == 200
    return response.content.decode()


def explanation_of(page, operation):
    text = text_of(page, operation)
    return text.partition('data-testid="explanation">')[2].partition("</p>")[0]


def worker(**fields):
    return Worker.objects.create(
        **({"worker_id": "worker-1", "kinds": ["training"], "slots": 1} | fields)
    )


@pytest.mark.parametrize("state", STATES)
def test_every_state_shows_its_page(page, ana, state):
    operation = making.operation(ana, state, tags=["night"])
    making.attempt(operation)
    making.curve(operation)
    text = text_of(page, operation)
    assert f'data-state="{state}"' in text and "night" in text
    assert 'data-testid="submit-again"' in text


def test_the_number_of_processes_is_shown_if_there_are_several(page, ana):
    operation = making.operation(ana, "RUNNING")
    assert "processes</span>" not in text_of(page, operation)
    operation.row.update(processes=2)
    assert '<span data-testid="processes">2 processes</span>' in text_of(page, operation)


def test_the_number_of_nodes_is_shown_if_there_are_several(page, ana):
    operation = making.operation(ana, "RUNNING")
    making.attempt(operation, 1)
    text = text_of(page, operation)
    assert "nodes</span>" not in text
    operation.row.update(nodes=4)
    operation.attempts.update(num_nodes=3)
    text = text_of(page, operation)
    assert '<span data-testid="nodes">4 nodes</span>' in text
    assert '<span class="sub">leads 3 nodes</span>' in text


def test_an_unknown_operation_is_a_404_with_a_way_back(page):
    response = page.get("/operations/op_training_20260101_000000_abcdef/")
    assert response.status_code == 404
    assert "Back to operations" in response.content.decode()
    assert page.get("/operations/..%2f..%2fetc/").status_code == 404


class TestActions:
    def test_what_may_be_done_is_offered(self, page, ana):
        running = text_of(page, making.operation(ana, "RUNNING"))
        assert 'data-action="cancel"' in running and 'data-action="kill"' in running
        assert 'data-action="delete"' not in running
        failed = making.operation(ana, "FAILED")
        assert 'data-action="resume"' not in text_of(page, failed)
        saved(failed)
        assert 'data-action="resume"' in text_of(page, failed)

    def test_only_permitted_actions_are_offered(self, as_, ana, ben, vera):
        operation = making.operation(ana, "FAILED")
        saved(operation)
        for person in (ben, vera):
            text = text_of(as_(person), operation)
            assert "data-action" not in text and 'data-testid="pin"' not in text


class TestExplanation:
    """Why it is where it is: no state goes unexplained."""

    def test_no_worker_runs(self, page, ana):
        assert "No worker is running" in explanation_of(page, making.operation(ana))

    def test_no_worker_serves_it(self, page, ana):
        worker(kinds=["backtest"])
        said = explanation_of(page, making.operation(ana))
        assert "No worker serves the kind training; served kinds: backtest" in said

    def test_no_worker_has_what_it_needs(self, page, ana):
        worker(labels=["t4"])
        said = explanation_of(page, making.operation(ana, queue="a100"))
        assert "No worker has the label a100; available labels: t4" in said and "/workers/" in said
        assert "standing-orange" in text_of(page, making.operation(ana, device="cuda"))

    def test_all_are_busy_and_others_come_first(self, page, ana):
        worker(num_running=1)
        making.operation(ana)
        said = explanation_of(page, making.operation(ana))
        assert "the only slot is busy" in said and "1 operation is ahead of it" in said

    def test_a_free_worker_takes_it(self, page, ana):
        worker()
        assert "claims it shortly" in explanation_of(page, making.operation(ana))

    def test_a_pause_before_a_restart(self, page, ana):
        later = timezone.now() + timedelta(seconds=30)
        operation = making.operation(ana, "RESUMING", not_before=later)
        said = explanation_of(page, operation)
        assert f"{later:%H:%M:%S}" in said and "from the start" in said
        operation.row.update(reason="WORKER_LOST")
        assert "Reason: the worker stopped responding" in explanation_of(page, operation)

    def test_a_preempted_operation(self, page, ana):
        later = timezone.now() + timedelta(seconds=60)
        operation = making.operation(ana, "RUNNING", attempt=1, lease_expires_at=later)
        note = "makes room for op_x of priority 3"
        making.attempt(operation, handback_reason="PREEMPTED", handback_note=note)
        assert f"then queued again: {note}." in explanation_of(page, operation)
        operation.row.update(state="RESUMING", reason="PREEMPTED", lease_expires_at=None)
        expected = "because an operation of higher priority needed its slots; it continues from"
        assert expected in explanation_of(page, operation)

    def test_a_silent_worker(self, page, ana):
        past = timezone.now() - timedelta(seconds=5)
        operation = making.operation(ana, "RUNNING", lease_expires_at=past)
        said = explanation_of(page, operation)
        assert "was last seen" in said and "No worker is running: start one" in said
        worker()
        assert "The next sweep returns the operation to the queue" in explanation_of(
            page, operation
        )

    def test_a_cancel_under_way(self, page, ana):
        asked = {"stop_requested": "cancel", "stop_requested_by": "ben"}
        operation = making.operation(ana, "RUNNING", stop_requested_at=timezone.now(), **asked)
        said = explanation_of(page, operation)
        assert "ben requested a cancel" in said and "1 min" in said

    def test_no_step_for_long(self, page, ana):
        then = timezone.now() - timedelta(minutes=10)
        operation = making.operation(ana, "RUNNING", progressed_at=then)
        said = explanation_of(page, operation)
        assert "No step for" in said and "30 min" in said

    def test_failed_and_nothing_saved(self, page, ana):
        said = explanation_of(page, making.operation(ana, "FAILED"))
        assert "the recipe raised an exception" in said and "submit it again" in said

    def test_an_error_of_the_recipe_comes_again_after_a_resume(self, page, ana):
        operation = making.operation(ana, "FAILED")
        assert "Fix the recipe and restart the workers, then submit" in explanation_of(
            page, operation
        )
        saved(operation)
        assert "fails again at the same one" in explanation_of(page, operation)
        resume = text_of(page, operation).rpartition('data-action="resume"')[0]
        assert "btn-primary" not in resume[resume.rindex("<a ") :]

    def test_a_resume_from_step_0_starts_from_the_beginning(self, page, ana):
        operation = making.operation(ana, "CANCELLED", reason="CANCELLED_BY_PERSON")
        saved(operation, step=0, epoch=0)
        assert "starts from the beginning" in explanation_of(page, operation)

    def test_cancelled_and_saved(self, page, ana):
        operation = making.operation(
            ana, "CANCELLED", reason="CANCELLED_BY_PERSON", stop_requested_by="ana"
        )
        saved(operation)
        said = explanation_of(page, operation)
        assert "Cancelled by ana" in said and "Resuming continues from epoch 1" in said

    @pytest.mark.parametrize("role", ["viewer", "operator"])
    def test_a_reader_without_the_right_to_resume_sees_no_advice(self, as_, ana, role):
        operation = making.operation(ana, "FAILED")
        saved(operation)
        text = text_of(as_(making.person("other", role)), operation)
        assert "Failed: the recipe raised an exception." in text
        assert "Resuming" not in text and "resume it" not in text


def test_the_mark_of_a_crash_goes_away_after_a_resume(page, ana):
    operation = making.operation(ana, "FAILED")
    assert 'data-testid="error"' in text_of(page, operation)
    operation.row.update(state="RESUMING")
    assert 'data-testid="error"' not in text_of(page, operation)


def test_a_failed_operation_shows_the_last_lines_of_its_latest_log(page, ana):
    operation = making.operation(ana, "FAILED", attempt=2)
    making.log(operation, "of the first attempt\n", attempt=1)
    for number in range(20):
        making.log(operation, f"line {number} begins", attempt=2)
        making.log(operation, " and ends\n", attempt=2)
    shown = text_of(page, operation).partition('data-keep="last-lines"')[2].partition("</pre>")[0]
    lines = shown.rpartition(">")[2].splitlines()
    assert lines == [f"line {number} begins and ends" for number in range(5, 20)]


def test_the_receipt_says_from_where_by_whom_and_how_exactly(page, ana):
    operation = making.operation(ana, "RUNNING", attempt=2)
    operation.record("RESUMING", actor="zoe", note="from the checkpoint at step 10")
    items = [{"part": "threads", "restored": False, "exact": False, "note": "was 2, is 4"}]
    receipt = {"step": 10, "checkpoint": "a0001-s10", "exact": False, "items": items}
    making.attempt(operation, 2, receipt=receipt)
    text = text_of(page, operation)
    assert "not exact" in text and "was 2, is 4" in text and "a0001-s10" in text
    assert "requested by zoe" in text


def test_what_no_resume_is_certain_to_restore_is_said_before_any_stop(page, ana):
    operation = making.operation(ana, "RUNNING")
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    newest = making.attempt(operation, 1, receipt=receipt)
    assert "A resume may not be exact" not in text_of(page, operation)
    uncertain = {"train": "the loader has no state"}
    newest.__class__.objects.update(receipt=receipt | {"uncertain": uncertain})
    said = " ".join(text_of(page, operation).split())
    assert "A resume may not be exact: train: the loader has no state." in said
    operation.row.update(state="COMPLETED")
    assert "A resume may not be exact" not in text_of(page, operation)


def test_what_comes_from_outside_is_escaped(page, ana):
    operation = making.operation(
        ana, "FAILED", name=EVIL, place=EVIL, worker_id=EVIL, result={"x": EVIL},
        error={"code": EVIL, "message": EVIL, "traceback": EVIL},
    )  # fmt: skip
    operation.tags.create(name=EVIL)
    operation.record("X", actor=EVIL, note=EVIL)
    making.attempt(operation, worker_id=EVIL, note=EVIL)
    making.log(operation, EVIL)
    saved(operation, epoch=EVIL).__class__.objects.update(problem=EVIL, health="corrupted")
    text = text_of(page, operation)
    assert EVIL not in text and text.count("&lt;script&gt;") >= 10


def test_the_page_says_from_where_it_was_resumed_and_what_was_lost(page, ana):
    operation = making.operation(ana, "RUNNING", attempt=2)
    assert 'data-testid="resumed"' not in text_of(page, operation)
    making.attempt(operation, 1, to_step=33)
    operation.record("RESUMING", actor="ada")
    receipt = {"step": 30, "checkpoint": "a0001-s0000000030-periodic", "exact": True, "items": []}
    newest = making.attempt(operation, 2, from_step=30, receipt=receipt)
    text = text_of(page, operation)
    strip = text.partition('data-testid="resumed">')[2].partition("</p>")[0]
    assert f"Resumed from {operation.unit} 30" in strip and "by ada" in strip
    assert ">exact<" in strip and f"3 {operation.unit}s repeated" in strip
    newest.__class__.objects.update(receipt=receipt | {"exact": False}, to_step=30)
    strip = text_of(page, operation).partition('data-testid="resumed">')[2].partition("</p>")[0]
    assert "not exact" in strip and "nothing lost" in strip


def test_a_traceback_begins_at_the_first_frame_of_the_recipe(page, ana):
    library = '  File "/env/lib/python3.11/site-packages/torch/nn.py", line 5, in call\n    x\n'
    loop = '  File "/srv/trainops/runtime/loop.py", line 90, in run\n    advance()\n'
    own = '  File "/home/ana/recipes/mine.py", line 7, in loss\n    return a / 0\n'
    trace = f"Traceback (most recent call last):\n{loop}{own}{library}ValueError: no\n"
    error = {"code": "JOB_ERROR", "message": "ValueError: no", "traceback": trace}
    text = text_of(page, making.operation(ana, "FAILED", error=error))
    shown = text.partition('data-keep="own-trace" open')[2].partition("</pre>")[0]
    assert "mine.py" in shown and "torch/nn.py" in shown and "loop.py" not in shown
    assert "loop.py" in text.partition("Whole traceback")[2]
    error["traceback"] = f"Traceback (most recent call last):\n{loop}ValueError: no\n"
    assert "own-trace" not in text_of(page, making.operation(ana, "FAILED", error=error))


class TestLive:
    def ask(self, page, operation, **query):
        return page.get(f"/operations/{operation.pk}/live", query).json()

    def have(self, answer):
        return ",".join(f"{name}:{part['digest']}" for name, part in answer["parts"].items())

    def test_a_second_request_gets_only_the_updates(self, page, ana):
        operation = making.operation(ana, "RUNNING")
        making.attempt(operation)
        making.curve(operation)
        making.log(operation, "one\n")
        first = self.ask(page, operation)
        assert len(first["points"]["series"]) == 4 and first["log"] > 0
        known = {"points": first["points"]["last"]}
        quiet = self.ask(page, operation, have=self.have(first), **known)
        assert (
            quiet["parts"] == {}
            and quiet["log"] == first["log"]
            and quiet["points"]["series"] == []
        )
        operation.row.update(step=21)
        making.curve(operation, first=21, last=21)
        making.log(operation, "two\n")
        updates = self.ask(page, operation, have=self.have(first), **known)
        assert "progress" in updates["parts"] and "files" not in updates["parts"]
        assert updates["points"]["series"][0]["steps"] == [21]
        assert updates["log"] > first["log"]

    def test_it_costs_few_queries(self, page, ana, django_assert_max_num_queries):
        operation = making.operation(ana, "RUNNING")
        for number in range(1, 6):
            making.attempt(operation, number)
            saved(operation, step=number, attempt=number, type="periodic")
        making.curve(operation)
        menu.menu_counts()  # counted once for all pages
        with django_assert_max_num_queries(16):
            self.ask(page, operation)

    def test_a_finished_operation_is_settled(self, page, ana):
        assert self.ask(page, making.operation(ana, "COMPLETED"))["settled"] is True
        assert self.ask(page, making.operation(ana, "RUNNING"))["settled"] is False

    def test_the_points_that_stand_are_reported_by_attempt(self, page, ana):
        operation = making.operation(ana, "RUNNING", attempt=2)
        making.attempt(operation, 1, receipt={"checkpoint": None})
        receipt = {"checkpoint": "a0001-s0000000010-periodic"}
        making.attempt(operation, 2, from_step=10, receipt=receipt)
        assert self.ask(page, operation)["standing"] == {"1": 10, "2": None}

    @pytest.mark.parametrize("number", ["x", "-1", "1e3", "9" * 40, "²"])
    def test_nonsense_counts_as_the_beginning(self, page, ana, number):
        operation = making.operation(ana, "RUNNING")
        making.curve(operation)
        answer = self.ask(page, operation, points=number, have=":,:x,y")
        assert answer["points"]["series"]


class TestFiles:
    def test_a_file_of_a_checkpoint_is_downloaded(self, page, ana):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        response = page.get(f"/operations/{operation.pk}/files/{checkpoint.pk}/model.pt")
        assert b"".join(response.streaming_content) == WEIGHTS
        assert "attachment" in response["Content-Disposition"]
        assert response["X-Content-Type-Options"] == "nosniff"

    @pytest.mark.parametrize("name", ["..%2fsecret", "manifest.json", "%2fetc%2fpasswd", "x.pt"])
    def test_only_names_in_the_manifest_are_opened(self, page, ana, name):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        response = page.get(f"/operations/{operation.pk}/files/{checkpoint.pk}/{name}")
        assert response.status_code == 404

    def test_a_file_of_another_operation_is_not_here(self, page, ana):
        checkpoint = saved(making.operation(ana, "CANCELLED"))
        other = making.operation(ana)
        path = f"/operations/{other.pk}/files/{checkpoint.pk}/model.pt"
        assert page.get(path).status_code == 404

    def test_a_file_that_is_gone_says_so(self, page, ana, settings):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        (settings.CHECKPOINT_ROOT / checkpoint.artifacts_path / "model.pt").unlink()
        path = f"/operations/{operation.pk}/files/{checkpoint.pk}/model.pt"
        response = page.get(path)
        assert response.status_code == 409
        assert "from what was saved" in response.content.decode()

    def test_a_file_with_one_flipped_byte_is_refused_as_the_api_refuses_it(self, page, ana):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        damage(checkpoint)
        path = f"/operations/{operation.pk}/files/{checkpoint.pk}/model.pt"
        api = f"/api/v1/operations/{operation.pk}/artifacts/model.pt"
        assert page.get(api, {"checkpoint_id": checkpoint.pk}).status_code == 409
        Checkpoint.objects.update(health="healthy")
        assert page.get(path).status_code == 409
        checkpoint.refresh_from_db()
        assert (checkpoint.health, checkpoint.altered_artifacts) == ("corrupted", ["model.pt"])

    def test_a_symbolic_link_in_the_place_of_a_file_is_not_followed(self, page, ana, tmp_path):
        operation = making.operation(ana, "CANCELLED")
        checkpoint = saved(operation)
        (tmp_path / "secret").write_bytes(WEIGHTS)
        file = storage.directory(checkpoint.artifacts_path) / "model.pt"
        file.unlink()
        file.symlink_to(tmp_path / "secret")
        path = f"/operations/{operation.pk}/files/{checkpoint.pk}/model.pt"
        assert page.get(path).status_code == 409

    def test_the_log_is_plain_text_by_attempt(self, page, ana):
        operation = making.operation(ana, "COMPLETED")
        making.log(operation, "a\n", attempt=1)
        making.log(operation, "b\n", attempt=2)
        whole = page.get(f"/operations/{operation.pk}/log.txt")
        text = b"".join(whole.streaming_content).decode()
        assert text == "--- attempt 1 ---\na\n--- attempt 2 ---\nb\n"
        assert whole["Content-Type"].startswith("text/plain")
        second = page.get(f"/operations/{operation.pk}/log.txt?attempt=2")
        assert b"a\n" not in b"".join(second.streaming_content)


def test_a_window_of_points_is_for_charts_that_are_zoomed(page, ana):
    operation = making.operation(ana, "RUNNING")
    making.curve(operation)
    path = f"/operations/{operation.pk}/points"
    found = page.get(path, {"name": "train_loss,val_loss", "after_step": 8, "to_step": 10}).json()
    assert [(each["name"], each["steps"]) for each in found["series"]] == [
        ("train_loss", [9, 10]),
        ("val_loss", [10]),
    ]
    assert not found["is_thinned"]
    refused = page.get(path, {"to_step": "-1"})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["to_step"])


def test_stats_ignore_what_was_taken_back(page, ana):
    operation = making.operation(ana, "RUNNING", attempt=2)
    making.curve(operation)
    rows.retire(operation, by=2, after_step=10)
    text = text_of(page, operation)
    assert "0.25" in text and "at step 10" in text


def test_stats_show_only_what_is_measured(page, ana):
    operation = making.operation(ana, "RUNNING", kind="backtest", place="", metrics={})
    config = {name: value for name, value in operation.config.items() if name != "monitor"}
    operation.row.update(config=config)
    text = text_of(page, operation)
    stats = text.partition('data-testid="stats"')[2].partition("chart-tools")[0]
    assert "Latest" not in stats and "Best" not in stats and "Time spent" in stats
    place = text.partition('data-testid="place"')[2].partition("</strong>")[0]
    assert "starting" in place and "not started" not in place
    operation.row.update(metrics={"equity": 8418.4})
    stats = text_of(page, operation).partition('data-testid="stats"')[2]
    assert "Latest equity" in stats and "8,418" in stats


def test_stats_show_the_wait_the_throughput_and_the_checkpoints(page, ana):
    operation = making.operation(ana, "COMPLETED", step=50, unit="step")
    begun = operation.created_at + timedelta(seconds=90)
    making.attempt(
        operation, started_at=begun, ended_at=begun + timedelta(seconds=100), outcome="completed"
    )
    saved(operation, step=50)
    stats = text_of(page, operation).partition('data-testid="stats"')[2].partition("charts")[0]
    words = " ".join(re.sub("<[^>]+>", " ", stats).split())
    assert "Waited 1 min 30 s in the queue" in words
    assert "Throughput 30 steps/min mean" in words and "Checkpoints 1" in words
    running = making.operation(ana, "RUNNING", unit="step", steps_per_second=2.0)
    making.attempt(running)
    assert "2 steps/s</p>" in " ".join(text_of(page, running).split())


def test_the_throughput_of_a_fork_counts_its_own_steps_only(page, ana):
    fork = making.operation(ana, "COMPLETED", step=10_100, unit="step")
    begun = fork.created_at
    making.attempt(
        fork, 1, started_at=begun, ended_at=begun, outcome="lost", from_step=None, to_step=0
    )
    making.attempt(
        fork, 2, started_at=begun, ended_at=begun + timedelta(seconds=5), outcome="cancelled",
        from_step=10_000, to_step=10_060,
    )  # fmt: skip
    making.attempt(
        fork, 3, started_at=begun, ended_at=begun + timedelta(seconds=5), outcome="completed",
        from_step=10_050,
    )  # fmt: skip
    assert "11 steps/s mean" in " ".join(re.sub("<[^>]+>", " ", text_of(page, fork)).split())


def test_checkpoints_are_marked_on_the_line(page, ana):
    operation = making.operation(ana, "CANCELLED")
    saved(operation, step=10, type="periodic")
    bad = saved(operation, step=30, type="failure", metric=None)
    Checkpoint.objects.filter(pk=bad.pk).update(health="corrupted", problem="altered: model.pt")
    text = text_of(page, operation)
    assert 'cx="20.60%"' in text and 'cx="59.80%"' in text and "mark-broken" in text
    assert "altered: model.pt" in text


def test_an_outcome_of_a_newer_version_is_shown_as_it_is(page, ana):
    operation = making.operation(ana, "CANCELLED")
    making.attempt(operation, outcome="migrated", ended_at=timezone.now())
    response = page.get(f"/operations/{operation.pk}/")
    assert response.status_code == 200 and "migrated" in response.content.decode()
