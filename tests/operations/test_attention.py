"""Reasons for attention: raised once, cleared when no longer true, acknowledged with a note."""

from pathlib import Path

import pytest
from django.core.cache import cache
from hypothesis import given
from hypothesis import strategies as st

from apps.checkpoints import integrity
from apps.notifications import services as notifications
from apps.notifications.models import Delivery
from apps.operations import attention, concerns
from apps.operations.attention import Attention
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation, Share
from apps.operations.requests import services
from apps.operations.requests.editing import edit
from apps.operations.scheduling import claims, crash_loops
from apps.operations.scheduling.crash_loops import EndedAttempt, num_restarts
from apps.operations.scheduling.stuck import StuckWatch
from apps.workers import fleet, registry
from tests.api.saved import saved
from tests.notifications.receiver import made
from tests.operations import rows
from tests.pages import making
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = pytest.mark.django_db
GB = 10**9


@pytest.fixture
def ana():
    return making.person("ana", "operator")


def reasons(operation):
    operation.refresh_from_db()
    return [str(each) for each in attention.reasons(attention.row_of(operation))]


def listed(reason):
    return set(Operation.objects.filter(attention.needed_for(reason)).values_list("pk", flat=True))


def events(operation, what):
    return list(operation.events.filter(what=what).values_list("note", flat=True))


# Crash loops

ENDS = st.sampled_from(["crash", "crash before its start", "shutdown", "user"])
HISTORIES = st.lists(st.tuples(ENDS, st.integers(0, 2), st.booleans()), min_size=1, max_size=12)


def told(history, *, with_damage):
    """Live through (end, progress, damage) of attempts; return num_restarts and a plain count.

    Damage to the newest checkpoint lets the next attempt begin at the one before it.
    """
    attempts, saved_steps, resumed_after, count = [], [0], 0, 0
    for number, (end, progress, is_damaged) in enumerate(history, 1):
        from_step = saved_steps[-1]
        is_begun = end != "crash before its start"
        if progress and is_begun:
            saved_steps.append(from_step + progress)
        if with_damage and is_damaged and len(saved_steps) > 1:
            saved_steps.pop()
        is_preempted = end == "shutdown"
        attempts.insert(0, EndedAttempt(number, from_step if is_begun else None, is_preempted))
        has_progressed = saved_steps[-1] > from_step
        if end == "user":
            resumed_after, count = number, 0
        elif has_progressed:
            count = 0
        else:
            count += not is_preempted
    found = num_restarts(attempts, next_step=saved_steps[-1], resumed_after=resumed_after)
    return found, count


@given(HISTORIES)
def test_restarts_are_counted_since_the_last_progress_or_resume_by_a_user(history):
    found, count = told(history, with_damage=False)
    assert found == count


@given(HISTORIES)
def test_progress_that_is_lost_again_never_lowers_the_count(history):
    found, count = told(history, with_damage=True)
    assert found >= count


def test_a_loop_through_checkpoints_that_are_damaged_again_is_found():
    """Each attempt saves a checkpoint, which resets the restarts used: only this count grows."""
    found, count = told([("crash", 0, False), *[("crash", 1, True)] * 4], with_damage=True)
    assert (found, count) == (5, 5)
    attempts = [EndedAttempt(number, 10) for number in (5, 4, 3)]
    assert num_restarts(attempts, next_step=10, resumed_after=0) == 3
    assert num_restarts(attempts, next_step=20, resumed_after=0) == 0
    assert num_restarts(attempts, next_step=10, resumed_after=4) == 1


def crashed(operation, *, from_step=10, reason=Reason.PROCESS_KILLED):
    """End the running attempt, which the policy restarts; return the operation."""
    Attempt.objects.filter(operation=operation, number=operation.attempt).update(
        from_step=from_step, to_step=from_step + 5
    )
    assert claims.restart_or_fail(
        operation, reason, actor="worker-1", note="killed", outcome=Attempt.Outcome.FAILED
    )
    return services.get(operation.pk)


def restarted(operation, **ended):
    operation = crashed(operation, **ended)
    operation.row.update(not_before=None)
    return rows.claim()


def looping(ana):
    operation = rows.claimed(ana, restart={"max_restarts": 9})
    saved(operation, step=10)
    for _ in range(crash_loops.RESTARTS):
        operation = restarted(operation)
    return operation


def test_restarts_from_the_same_checkpoint_are_a_crash_loop_once_there_are_several(ana):
    operation = rows.claimed(ana, restart={"max_restarts": 9})
    saved(operation, step=10)
    for _ in range(crash_loops.RESTARTS - 1):
        operation = restarted(operation)
    assert reasons(operation) == []
    operation = crashed(operation)
    assert reasons(operation) == ["CRASH_LOOPING"]
    assert events(operation, "CRASH_LOOPING") == [
        "3 restarts from step 10; latest end: the process was killed"
    ]
    assert listed("CRASH_LOOPING") == {operation.pk}


def test_an_acknowledged_crash_loop_is_not_raised_again_by_its_next_restart(ana):
    operation = looping(ana)
    edit(
        operation_id=operation.pk, actor=ana,
        changes={"acknowledged": True, "acknowledgement": "bad memory, replaced on Monday"},
    )  # fmt: skip
    operation = restarted(operation)
    assert reasons(operation) == ["CRASH_LOOPING"]
    assert operation.acknowledgement == "bad memory, replaced on Monday"
    assert not Operation.objects.filter(attention.needed()).exists()
    assert len(events(operation, "CRASH_LOOPING")) == 1
    assert events(operation, "EDITED") == [
        "acknowledged, acknowledgement: bad memory, replaced on Monday"
    ]
    assert operation.row.move(State.FAILED, actor="w")
    assert reasons(operation) == ["FAILED"]
    assert (operation.acknowledged_at, operation.acknowledgement) == (None, "")


def test_only_a_checkpoint_beyond_every_earlier_attempt_ends_a_crash_loop(ana):
    operation = looping(ana)
    concerns.checkpoint_committed(operation, 15)  # as far as those before, which crashed there
    assert reasons(operation) == ["CRASH_LOOPING"]
    concerns.checkpoint_committed(operation, 16)
    assert reasons(operation) == []


def test_shutdowns_are_no_crash_loop_and_progress_ends_one(ana):
    operation = rows.claimed(ana, restart={"max_restarts": 9})
    for _ in range(4):
        Attempt.objects.filter(operation=operation, number=operation.attempt).update(from_step=0)
        claims.restart_or_fail(
            operation, Reason.SHUTDOWN, actor="w", note="", outcome=Attempt.Outcome.PREEMPTED
        )
        operation = rows.claim()
    assert reasons(operation) == []
    operation = looping(ana)
    saved(operation, step=20, attempt=operation.attempt)
    assert reasons(crashed(operation)) == []


def test_a_resume_by_a_user_begins_the_count_anew(ana):
    operation = crashed(looping(ana))
    assert operation.row.move(State.CANCELLED, actor="ana")
    assert reasons(operation) == []
    services.resume(operation_id=operation.pk, actor=ana)
    operation = rows.claim()
    assert reasons(crashed(operation)) == []


# Waiting for what no worker has


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def watch(settings):
    watch = StuckWatch(clock=Clock())
    watch.passed = lambda seconds: passed(watch, seconds)
    return watch


def passed(watch, seconds):
    """Let time pass, with a sweep every 15 seconds; return how many concerns were raised."""
    num_raised = 0
    for _ in range(seconds // 15):
        watch.clock.seconds += 15
        num_raised += watch.check(actor="beat")
    return num_raised


def worker(labels=(), disk=100 * GB, slots=1, **capabilities):
    registry.register(
        worker_id="w", kinds=["training"], labels=labels, slots=slots,
        capabilities={"gpus": [], "ram_bytes": 64 * GB} | capabilities,
    )  # fmt: skip
    fleet.report_storage(worker_id="w", free_bytes=disk, storage_problem="", dataset_problem="")


def test_an_operation_that_no_worker_can_run_is_stuck_after_a_while(watch):
    worker()
    stuck, other = rows.submitted(queue="a100"), rows.submitted()
    watch.passed(120)
    assert reasons(stuck) == []  # 105 s since the first sweep that saw it
    watch.passed(15)
    assert (reasons(stuck), reasons(other)) == (["STUCK"], [])
    watch.passed(60)
    assert events(stuck, "STUCK") == ["No worker has the label a100."]
    assert listed("STUCK") == {stuck.pk}
    worker(labels=["a100"])
    watch.passed(15)
    assert reasons(stuck) == []


def test_an_operation_that_needs_more_than_its_share_ever_allows_is_stuck(ana, watch):
    worker(slots=4)
    share = Share.objects.create(owner=ana, max_slots=1)
    assert rows.claimed(ana)
    stuck, waits, other = rows.submitted(ana), rows.submitted(ana), rows.submitted()
    stuck.row.update(processes=2)
    other.row.update(processes=2)
    watch.passed(150)
    assert [reasons(each) for each in (stuck, waits, other)] == [["STUCK"], [], []]
    assert events(stuck, "STUCK") == [
        "Needs more than its share: ana may use 1 slot at once, and it needs 2."
    ]
    share.max_slots = 2
    share.save()
    watch.passed(15)
    assert reasons(stuck) == []  # it waits now until the other one has ended


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"device": "cuda"}, "STUCK"),
        ({"memory_bytes": 100 * GB}, "STUCK"),
        ({"processes": 2}, "STUCK"),
        ({"checkpoint_bytes": GB}, "LOW_DISK"),
    ],
)
def test_missing_devices_memory_slots_and_disk_space_are_obstacles(watch, needs, reason):
    worker(disk=GB)
    operation = rows.submitted()
    operation.row.update(**needs)
    watch.passed(150)
    assert reasons(operation) == [reason]


def test_busy_workers_and_pauses_are_no_obstacles(watch):
    worker()
    rows.claimed(worker_id="w")
    waits = rows.submitted()
    paused = rows.submitted(queue="a100")
    paused.row.update(not_before=rows.seconds_from_now(900))
    assert watch.passed(300) == 0
    assert (reasons(waits), reasons(paused)) == ([], [])


def test_a_restart_of_the_workers_and_a_gap_between_sweeps_raise_nothing(watch):
    worker(labels=["a100"])
    operation = rows.submitted(queue="a100")
    watch.passed(300)
    worker()
    watch.passed(90)
    worker(labels=["a100"])
    watch.passed(15)
    worker()
    watch.passed(90)
    watch.clock.seconds += 600  # the database was away, for example
    watch.passed(60)
    assert reasons(operation) == []


def test_a_claim_ends_that_an_operation_is_stuck(watch):
    operation = rows.submitted()
    watch.passed(150)
    assert reasons(operation) == ["STUCK"]
    assert rows.claim() == operation
    assert reasons(operation) == []


def test_a_parent_whose_subtask_is_stuck_is_stuck_and_the_subtask_is_named(watch):
    worker()
    parent, other = rows.in_state(State.RUNNING), rows.in_state(State.RUNNING)
    stuck, waits = [rows.subtask_of(parent, State.PENDING, index) for index in (1, 2)]
    rows.subtask_of(other, State.PENDING)
    stuck.row.update(queue="a100")
    watch.passed(120)
    assert reasons(parent) == []
    watch.passed(15)
    assert (reasons(parent), reasons(other), reasons(stuck), reasons(waits)) == (
        ["STUCK"], [], [], [],
    )  # fmt: skip
    watch.passed(60)
    (note,) = events(parent, "STUCK")
    assert note.startswith(f"Subtask {stuck.pk} (client 1 of ")
    assert note.endswith("waits: No worker has the label a100.")
    worker(labels=["a100"])
    watch.passed(15)
    assert reasons(parent) == []


def test_an_end_of_the_parent_or_a_claim_of_the_subtask_ends_that_the_parent_is_stuck(watch):
    worker()
    parents = [rows.in_state(State.RUNNING) for _ in range(2)]
    subtasks = [rows.subtask_of(parent, State.PENDING) for parent in parents]
    for each in subtasks:
        each.row.update(queue="a100")
    watch.passed(150)
    assert [reasons(each) for each in parents] == [["STUCK"], ["STUCK"]]
    subtasks[0].row.update(state=State.RUNNING, lease_expires_at=rows.seconds_from_now(60))
    watch.passed(15)
    parents[1].row.move(State.CANCELLED, actor="ana")
    assert [reasons(each) for each in parents] == [[], []]


def test_a_sweep_costs_the_same_for_many_stuck_operations(watch, django_assert_num_queries):
    made = [rows.submitted(queue="a100")]
    watch.passed(150)
    for _ in range(5):
        made.append(rows.submitted(queue="a100"))
        watch.passed(15)
        with django_assert_num_queries(10):  # shares, groups, workers, marked, parents, new ones
            watch.check(actor="beat")
    assert listed("STUCK") == {each.pk for each in made}


# Checkpoints and budgets


def test_an_altered_checkpoint_needs_attention_until_it_is_intact_or_deleted(ana, watch):
    operation = making.operation(ana, "CANCELLED")
    checkpoint = saved(operation)
    problem = CheckpointCorrupted(Path(checkpoint.artifacts_path), altered=["model.pt"])
    integrity.mark(checkpoint.artifacts_path, problem)
    assert reasons(operation) == ["CORRUPTED"]
    assert "model.pt" in events(operation, "CORRUPTED")[0]
    integrity.heal(checkpoint.artifacts_path)
    assert reasons(operation) == []
    integrity.mark(checkpoint.artifacts_path, problem)
    assert operation.row.move(State.RESUMING, actor="ana")
    assert reasons(operation) == ["CORRUPTED"]
    checkpoint.delete()
    watch.passed(15)
    assert reasons(operation) == []


def test_missing_files_of_a_checkpoint_are_no_damage(ana):
    operation = making.operation(ana, "CANCELLED")
    checkpoint = saved(operation)
    problem = CheckpointCorrupted(Path(checkpoint.artifacts_path), missing=["model.pt"])
    integrity.mark(checkpoint.artifacts_path, problem)
    assert reasons(operation) == []


def test_a_checkpoint_that_was_not_saved_needs_attention_until_the_next_one(ana):
    operation = rows.claimed(ana)
    for _ in range(2):
        concerns.not_saved(operation, "No space left on device")
    assert reasons(operation) == ["NOT_SAVED"]
    assert len(events(operation, "SAVE_FAILED")) == 2
    assert events(operation, "NOT_SAVED") == ["No space left on device"]
    concerns.checkpoint_committed(operation, 5)
    assert reasons(operation) == []


@pytest.mark.parametrize(
    ("state", "reason", "found"),
    [
        (State.COMPLETED, Reason.PRIVACY_BUDGET, ["OVER_BUDGET"]),
        (State.FAILED, Reason.TIME_LIMIT, ["FAILED", "OVER_BUDGET"]),
        (State.COMPLETED, Reason.NONE, []),
    ],
)
def test_an_end_by_a_budget_needs_attention(ana, state, reason, found):
    operation = making.operation(ana, "RUNNING")
    assert operation.row.move(state, actor="w", reason=reason)
    assert reasons(operation) == found
    assert listed("OVER_BUDGET") == ({operation.pk} if found else set())


@pytest.mark.parametrize(
    ("reason", "number"), [("", 1), ("CRASH_LOOPING", 1), ("STUCK", 0), ("WORKER_LOST", 0)]
)
def test_a_notification_rule_can_name_a_reason(ana, reason, number):
    made("https://hooks.example.org/", on_failed=False, on_attention=True, reason=reason)
    operation = looping(ana)
    for event in operation.events.filter(what__in=notifications.EVENT_FIELDS):
        notifications.notify_of(event)
    bodies = [each.body for each in Delivery.objects.all()]
    assert [body["event"] for body in bodies] == ["CRASH_LOOPING"] * number


# Pages and API


def with_each_reason(ana):
    for each in Attention:
        fields = {"concerns": str(each)} if each in attention.CONCERNS else {}
        check = {v: k for k, v in attention._CHECKS.items()}.get(each, "")
        state = "FAILED" if each == Attention.FAILED else "CANCELLED"
        making.operation(ana, state, name=str(each), self_check=check, **fields)


def test_the_list_counts_and_filters_by_reason_with_a_fixed_number_of_queries(
    client, ana, django_assert_max_num_queries
):
    client.force_login(ana)
    for times in (1, 2):
        with_each_reason(ana)
        cache.clear()  # counts are remembered for a moment
        with django_assert_max_num_queries(15):
            found = client.get("/?tab=attention")
        assert len(found.context["lines"]) == found.context["total"] == times * len(Attention)
        assert [number for _, number, _ in found.context["reasons"]] == [times] * len(Attention)
    url = next(url for label, _, url in found.context["reasons"] if label == Attention.STUCK.label)
    assert client.get("/" + url).context["total"] == 2
    api = client.get("/api/v1/operations?attention=STUCK,FAILED&limit=100").json()["data"]
    assert {row["name"] for row in api} == {"STUCK", "FAILED"}
    assert [[each["code"] for each in row["attention"]] for row in api] == [
        [row["name"]] for row in api
    ]


def test_the_page_has_the_reason_the_next_step_and_the_note_of_an_acknowledgement(client, ana):
    client.force_login(ana)
    operation = rows.claimed(ana)
    concerns.not_saved(operation, "No space left on device")
    page = client.get(f"/operations/{operation.pk}/").content.decode()
    assert "Needs attention: its latest checkpoint could not be stored." in page
    assert "No space left on device." in page and "free disk space or quota" in page
    assert 'data-testid="acknowledge"' in page
    client.post("/operations/act/acknowledge", {"id": operation.pk, "note": "disk ordered"})
    page = client.get(f"/operations/{operation.pk}/").content.decode()
    assert 'Acknowledged: <span dir="auto">disk ordered</span>' in page
    assert 'data-testid="acknowledge"' not in page


def test_a_note_without_an_acknowledgement_is_refused(client, ana):
    client.force_login(ana)
    operation = making.operation(ana, "FAILED")
    address = f"/api/v1/operations/{operation.pk}"
    body = {"acknowledgement": "known"}
    refused = client.patch(address, body, content_type="application/json")
    assert refused.status_code == 409
    body |= {"acknowledged": True}
    done = client.patch(address, body, content_type="application/json").json()["data"]
    assert (done["needs_attention"], done["acknowledgement"]) == (False, "known")
