"""The page of one operation, in every state, and its live answers."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
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


def standing_of(page, operation):
    text = text_of(page, operation)
    return text.partition('data-testid="standing">')[2].partition("</p>")[0]


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


def test_an_unknown_operation_is_a_404_with_a_way_back(page):
    response = page.get("/operations/op_training_20260101_000000_abcdef/")
    assert response.status_code == 404
    assert "To the operations" in response.content.decode()
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

    def test_nobody_is_offered_what_is_not_theirs(self, as_, ana, ben, vera):
        operation = making.operation(ana, "FAILED")
        saved(operation)
        for person in (ben, vera):
            text = text_of(as_(person), operation)
            assert "data-action" not in text and 'data-testid="pin"' not in text


class TestStanding:
    """Why it is where it is: no state goes unexplained."""

    def test_nobody_works(self, page, ana):
        assert "No worker is running" in standing_of(page, making.operation(ana))

    def test_nobody_serves_it(self, page, ana):
        worker(kinds=["backtest"])
        said = standing_of(page, making.operation(ana))
        assert "No worker serves the kind training; served: backtest" in said

    def test_nobody_has_what_it_needs(self, page, ana):
        worker(labels=["t4"])
        said = standing_of(page, making.operation(ana, queue="a100"))
        assert "No worker has the label a100; there are: t4" in said and "/workers/" in said
        assert "standing-orange" in text_of(page, making.operation(ana, device="cuda"))

    def test_all_are_busy_and_others_come_first(self, page, ana):
        worker(num_running=1)
        making.operation(ana)
        said = standing_of(page, making.operation(ana))
        assert "the only slot is busy" in said and "one stands before it" in said

    def test_a_free_worker_takes_it(self, page, ana):
        worker()
        assert "takes it in a moment" in standing_of(page, making.operation(ana))

    def test_a_pause_before_a_restart(self, page, ana):
        later = timezone.now() + timedelta(seconds=30)
        operation = making.operation(ana, "RESUMING", not_before=later)
        said = standing_of(page, operation)
        assert f"{later:%H:%M:%S}" in said and "from the start" in said
        operation.row.update(reason="WORKER_LOST")
        assert "because its worker went silent" in standing_of(page, operation)

    def test_a_silent_worker(self, page, ana):
        past = timezone.now() - timedelta(seconds=5)
        operation = making.operation(ana, "RUNNING", lease_expires_at=past)
        said = standing_of(page, operation)
        assert "was last seen" in said and "No worker is running: start one" in said
        worker()
        assert "The next sweep puts it back into the queue" in standing_of(page, operation)

    def test_a_cancel_under_way(self, page, ana):
        asked = {"stop_requested": "cancel", "stop_requested_by": "ben"}
        operation = making.operation(ana, "RUNNING", stop_requested_at=timezone.now(), **asked)
        said = standing_of(page, operation)
        assert "ben asked to cancel it" in said and "1 min" in said

    def test_no_step_for_long(self, page, ana):
        then = timezone.now() - timedelta(minutes=10)
        operation = making.operation(ana, "RUNNING", progressed_at=then)
        said = standing_of(page, operation)
        assert "No step for" in said and "30 min" in said

    def test_failed_and_nothing_saved(self, page, ana):
        said = standing_of(page, making.operation(ana, "FAILED"))
        assert "its code raised an error" in said and "submit it again" in said

    def test_cancelled_and_saved(self, page, ana):
        operation = making.operation(
            ana, "CANCELLED", reason="CANCELLED_BY_PERSON", stop_requested_by="ana"
        )
        saved(operation)
        said = standing_of(page, operation)
        assert "ana cancelled it" in said and "A resume continues at epoch 1" in said


def test_the_mark_of_a_crash_goes_away_after_a_resume(page, ana):
    operation = making.operation(ana, "FAILED")
    assert 'data-testid="error"' in text_of(page, operation)
    operation.row.update(state="RESUMING")
    assert 'data-testid="error"' not in text_of(page, operation)


def test_the_receipt_says_from_where_by_whom_and_how_exactly(page, ana):
    operation = making.operation(ana, "RUNNING", attempt=2)
    operation.record("RESUMING", actor="zoe", note="from the checkpoint at step 10")
    items = [{"part": "threads", "restored": False, "exact": False, "note": "was 2, is 4"}]
    receipt = {"step": 10, "checkpoint": "a0001-s10", "exact": False, "items": items}
    making.attempt(operation, 2, receipt=receipt)
    text = text_of(page, operation)
    assert "not exact" in text and "was 2, is 4" in text and "a0001-s10" in text
    assert "asked for by zoe" in text


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


class TestLive:
    def ask(self, page, operation, **query):
        return page.get(f"/operations/{operation.pk}/live", query).json()

    def have(self, answer):
        return ",".join(f"{name}:{part['digest']}" for name, part in answer["parts"].items())

    def test_a_second_question_gets_only_the_news(self, page, ana):
        operation = making.operation(ana, "RUNNING")
        making.attempt(operation)
        making.curve(operation)
        making.log(operation, "one\n")
        first = self.ask(page, operation)
        assert len(first["points"]["series"]) == 4 and first["log"][0]["text"] == "one\n"
        known = {"points": first["points"]["last"], "log": first["log"][-1]["id"]}
        quiet = self.ask(page, operation, have=self.have(first), **known)
        assert quiet["parts"] == {} and quiet["log"] == [] and quiet["points"]["series"] == []
        operation.row.update(step=21)
        making.curve(operation, first=21, last=21)
        making.log(operation, "two\n")
        news = self.ask(page, operation, have=self.have(first), **known)
        assert "progress" in news["parts"] and "files" not in news["parts"]
        assert news["points"]["series"][0]["steps"] == [21]
        assert [chunk["text"] for chunk in news["log"]] == ["two\n"]

    def test_it_costs_few_queries(self, page, ana, django_assert_max_num_queries):
        operation = making.operation(ana, "RUNNING")
        for number in range(1, 6):
            making.attempt(operation, number)
            saved(operation, step=number, attempt=number, type="periodic")
        making.curve(operation)
        with django_assert_max_num_queries(15):
            self.ask(page, operation)

    def test_a_finished_operation_is_settled(self, page, ana):
        assert self.ask(page, making.operation(ana, "COMPLETED"))["settled"] is True
        assert self.ask(page, making.operation(ana, "RUNNING"))["settled"] is False

    def test_where_attempts_started_tells_what_was_taken_back(self, page, ana):
        operation = making.operation(ana, "RUNNING", attempt=2)
        making.attempt(operation, 1)
        making.attempt(operation, 2, from_step=10)
        assert self.ask(page, operation)["starts"] == [[1, 0], [2, 10]]

    def test_long_logs_come_as_their_end(self, page, ana):
        operation = making.operation(ana, "RUNNING")
        for number in range(30):
            making.log(operation, f"{number:02d}" + "x" * 9998)
        log = self.ask(page, operation)["log"]
        assert sum(len(chunk["text"]) for chunk in log) == 64_000
        assert log[-1]["text"].startswith("29")

    @pytest.mark.parametrize("number", ["x", "-1", "1e3", "9" * 40, "²"])
    def test_nonsense_counts_as_the_beginning(self, page, ana, number):
        operation = making.operation(ana, "RUNNING")
        making.curve(operation)
        answer = self.ask(page, operation, points=number, log=number, have=":,:x,y")
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
        assert "not what was saved" in response.content.decode()

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


def test_stats_ignore_what_was_taken_back(page, ana):
    operation = making.operation(ana, "RUNNING", attempt=2)
    making.curve(operation)
    rows.retire(operation, by=2, after_step=10)
    text = text_of(page, operation)
    assert "0.25" in text and "at step 10" in text


def test_checkpoints_are_marked_on_the_line(page, ana):
    operation = making.operation(ana, "CANCELLED")
    saved(operation, step=10, type="periodic")
    bad = saved(operation, step=30, type="failure", metric=None)
    Checkpoint.objects.filter(pk=bad.pk).update(health="corrupted", problem="altered: model.pt")
    text = text_of(page, operation)
    assert 'cx="20.60%"' in text and 'cx="59.80%"' in text and "mark-broken" in text
    assert "altered: model.pt" in text
